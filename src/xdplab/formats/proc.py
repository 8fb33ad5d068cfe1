"""What Linux counts by CPU and device: /proc/stat, /proc/net/softnet_stat, and sar's record of both (`sadf -j`).

sar samples CPU use (`-u ALL -P ALL`) and network rates (`-n DEV`) once an interval.

`ip -s -j link show dev X`: an interface's own 64-bit counters and the XDP program attached to it.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdplab.formats.reading import (
    as_list,
    as_object,
    count_field,
    count_of,
    json_of,
    lines_of,
    refuse,
    text_field,
)

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


TOOL = "sadf"


def parse_sadf(data: bytes | str) -> tuple[dict[str, object], ...]:
    """Return what `sadf -j FILE -- -u ALL -P ALL -n DEV` printed of each interval; none if sar ended before its first.

    Raises FormatError on anything else.
    """
    root = as_object(json_of(data, TOOL), TOOL)
    hosts = as_list(as_object(root.get("sysstat"), TOOL).get("hosts"), TOOL)
    if len(hosts) != 1:
        refuse(TOOL, f"{len(hosts)} hosts instead of one")
    return tuple(as_object(item, TOOL) for item in as_list(as_object(hosts[0], TOOL).get("statistics"), TOOL))


IP = "ip link"
MODES = {1: "native", 2: "generic", 3: "offload"}
"""XDP_ATTACHED_DRV, _SKB and _HW of linux/if_link.h as modes (4, _MULTI, lists several)."""


@dataclass(frozen=True)
class Attachment:
    """One attached XDP program."""

    mode: str
    program_id: int


@dataclass(frozen=True)
class DirectionCounters:
    """Cumulative counters of one direction."""

    packets: int
    bytes: int
    errors: int
    dropped: int


@dataclass(frozen=True)
class Link:
    """One interface. Bytes depend on the path of a frame through the kernel; packets do not."""

    interface: str
    rx: DirectionCounters
    tx: DirectionCounters
    attachments: tuple[Attachment, ...]


def parse_link(data: bytes | str) -> Link:
    """Return the one interface in ``data``. Raises FormatError if there is none, or no statistics."""
    rows = [row for row in as_list(json_of(data, IP), IP) if row != {}]
    if len(rows) != 1:
        refuse(IP, f"{len(rows)} interfaces instead of one")
    fields = as_object(rows[0], IP)
    statistics = as_object(fields.get("stats64"), IP)
    return Link(
        interface=text_field(fields, "ifname", IP),
        rx=_direction(statistics.get("rx")),
        tx=_direction(statistics.get("tx")),
        attachments=_attachments(fields.get("xdp")),
    )


def _direction(value: object) -> DirectionCounters:
    fields = as_object(value, IP)
    return DirectionCounters(*(count_field(fields, key, IP) for key in ("packets", "bytes", "errors", "dropped")))


def _attachments(value: object) -> tuple[Attachment, ...]:
    if value is None:
        return ()
    fields = as_object(value, IP)
    return tuple(_attachment(as_object(item, IP)) for item in as_list(fields.get("attached"), IP))


def _attachment(fields: dict[str, object]) -> Attachment:
    mode = count_field(fields, "mode", IP)
    if mode not in MODES:
        refuse(IP, "an unknown XDP mode", text=str(mode))
    return Attachment(MODES[mode], count_field(as_object(fields.get("prog"), IP), "id", IP))
