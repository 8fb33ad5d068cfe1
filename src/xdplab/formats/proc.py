"""Files of /proc that count by CPU: /proc/stat and /proc/net/softnet_stat.

/proc/stat: how long each CPU did what, in ticks of 10 ms (USER_HZ) since boot; see proc(5).

softnet_stat: what each CPU's receive softirq handled, dropped and left undone (hex, one line per CPU). Columns as
net/core/net-procfs.c writes them: 0 processed, 1 dropped, 2 time_squeeze since 2.6; 9 received_rps since 2.6.35;
10 flow_limit since 3.11; later 11 backlog and 12 CPU number, then 13 input and 14 process queue (15 columns in 6.18).
Offline CPUs have no line, so without column 12 only a line's position shows its CPU.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdplab.formats.reading import count_of, lines_of, refuse

STAT = "/proc/stat"
MIN_STAT_COLUMNS = 7
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
        for number, line in enumerate(lines_of(data, STAT), start=1)
        if line.startswith("cpu") and not line.startswith("cpu ")
    )
    if not rows:
        refuse(STAT, "no line of a CPU")
    if len({row.cpu for row in rows}) != len(rows):
        refuse(STAT, "a CPU twice")
    return rows


def parse_cpu_line(line: str, number: int) -> CpuTicks:
    """Return the CPU in `cpuN user nice system …`, line ``number`` of its file."""
    name, *words = line.split() or [""]
    if not name.startswith("cpu"):
        refuse(STAT, "no CPU", line=number, text=line)
    if len(words) < MIN_STAT_COLUMNS:
        refuse(STAT, f"fewer than {MIN_STAT_COLUMNS} columns (cut?)", line=number, text=line)
    ticks = [count_of(word, STAT, line=number) for word in words[:8]]
    user, nice, system, idle, iowait, irq, softirq, steal = ticks if len(ticks) == 8 else [*ticks, 0]
    cpu = count_of(name.removeprefix("cpu"), STAT, line=number)
    return CpuTicks(cpu, user, nice, system, idle, iowait, irq, softirq, steal)


SOFTNET = "softnet_stat"
MIN_COLUMNS, CPU_COLUMN, WIDTH = 9, 12, 8


@dataclass(frozen=True)
class SoftnetCpu:
    """Cumulative 32-bit counters of one CPU.

    ``dropped``: frames that found the backlog full; ``squeezed``: times that NAPI ran out of budget or time.
    """

    cpu: int
    processed: int
    dropped: int
    squeezed: int


def parse_softnet(data: bytes | str) -> tuple[SoftnetCpu, ...]:
    """Return one row per CPU. Raises FormatError if lines differ in length or are not 8-digit hex columns."""
    rows = tuple(_row(line, number) for number, line in enumerate(lines_of(data, SOFTNET), start=1))
    columns = len(rows[0])
    for number, row in enumerate(rows, start=1):
        if len(row) != columns:
            refuse(SOFTNET, f"{len(row)} columns, {columns} before (cut?)", line=number)
    cpus = tuple(row[CPU_COLUMN] if columns > CPU_COLUMN else place for place, row in enumerate(rows))
    if len(set(cpus)) != len(cpus):
        refuse(SOFTNET, "a CPU twice")
    return tuple(SoftnetCpu(cpu, row[0], row[1], row[2]) for cpu, row in zip(cpus, rows, strict=True))


def _row(line: str, number: int) -> tuple[int, ...]:
    words = line.split()
    if len(words) < MIN_COLUMNS:
        refuse(SOFTNET, f"fewer than {MIN_COLUMNS} columns", line=number, text=line)
    for word in words:
        if len(word) != WIDTH:
            refuse(SOFTNET, f"not {WIDTH} hex digits (cut?)", line=number, text=word)
    return tuple(count_of(word, SOFTNET, line=number, base=16) for word in words)
