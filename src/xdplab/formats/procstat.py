"""/proc/stat: how long each CPU did what, in ticks of 10 ms (USER_HZ) since boot; see proc(5)."""

from __future__ import annotations

from dataclasses import dataclass

from xdplab.formats.reading import count_of, lines_of, refuse

TOOL = "/proc/stat"
MIN_COLUMNS = 7
"""user nice system idle iowait irq softirq: there since Linux 2.6; steal, guest and guest_nice came later."""

FAST_CLOCKS = frozenset(
    {
        *("tsc", "tsc-early", "kvm-clock", "hyperv_clocksource_tsc_page", "xen"),  # x86 and its hypervisors
        *("arch_sys_counter", "riscv_clocksource", "timebase", "tod", "Constant", "stable_counter"),  # other CPUs' own
    }
)
"""Clock sources that are read without leaving the CPU: in tens of nanoseconds (hpet and acpi_pm take a microsecond)."""


@dataclass(frozen=True)
class CpuTicks:
    """Cumulative ticks of one CPU; guest time is part of ``user``, as the kernel counts it."""

    cpu: int
    user: int
    nice: int
    system: int
    idle: int
    iowait: int
    irq: int
    softirq: int
    steal: int

    @property
    def total(self) -> int:
        return self.busy + self.idle + self.iowait + self.steal

    @property
    def busy(self) -> int:
        """Ticks in which it worked: not steal, in which the hypervisor ran another guest."""
        return self.user + self.nice + self.system + self.irq + self.softirq


def parse_procstat(data: bytes | str) -> tuple[CpuTicks, ...]:
    """Return one row per CPU (the sum over CPUs is left out). Raises FormatError if there is none."""
    rows = tuple(
        parse_cpu_line(line, number)
        for number, line in enumerate(lines_of(data, TOOL), start=1)
        if line.startswith("cpu") and not line.startswith("cpu ")
    )
    if not rows:
        refuse(TOOL, "no line of a CPU")
    if len({row.cpu for row in rows}) != len(rows):
        refuse(TOOL, "a CPU twice")
    return rows


def parse_cpu_line(line: str, number: int) -> CpuTicks:
    """Return the CPU in `cpuN user nice system …`, line ``number`` of its file."""
    name, *words = line.split() or [""]
    if not name.startswith("cpu"):
        refuse(TOOL, "no CPU", line=number, text=line)
    if len(words) < MIN_COLUMNS:
        refuse(TOOL, f"fewer than {MIN_COLUMNS} columns (cut?)", line=number, text=line)
    ticks = [count_of(word, TOOL, line=number) for word in words[:8]]
    user, nice, system, idle, iowait, irq, softirq, steal = ticks if len(ticks) == 8 else [*ticks, 0]
    cpu = count_of(name.removeprefix("cpu"), TOOL, line=number)
    return CpuTicks(cpu, user, nice, system, idle, iowait, irq, softirq, steal)
