"""/proc/net/softnet_stat: what each CPU's receive softirq handled, dropped and left undone (hex, one line per CPU).

Columns as net/core/net-procfs.c writes them: 0 processed, 1 dropped, 2 time_squeeze since 2.6; 9 received_rps since
2.6.35; 10 flow_limit since 3.11; later 11 backlog and 12 CPU number, then 13 input and 14 process queue (15 columns in
6.18). Offline CPUs have no line, so without column 12 only a line's position shows its CPU.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdplab.formats.reading import count_of, lines_of, refuse

TOOL = "softnet_stat"
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
    rows = tuple(_row(line, number) for number, line in enumerate(lines_of(data, TOOL), start=1))
    columns = len(rows[0])
    for number, row in enumerate(rows, start=1):
        if len(row) != columns:
            refuse(TOOL, f"{len(row)} columns, {columns} before (cut?)", line=number)
    cpus = tuple(row[CPU_COLUMN] if columns > CPU_COLUMN else place for place, row in enumerate(rows))
    if len(set(cpus)) != len(cpus):
        refuse(TOOL, "a CPU twice")
    return tuple(SoftnetCpu(cpu, row[0], row[1], row[2]) for cpu, row in zip(cpus, rows, strict=True))


def _row(line: str, number: int) -> tuple[int, ...]:
    words = line.split()
    if len(words) < MIN_COLUMNS:
        refuse(TOOL, f"fewer than {MIN_COLUMNS} columns", line=number, text=line)
    for word in words:
        if len(word) != WIDTH:
            refuse(TOOL, f"not {WIDTH} hex digits (cut?)", line=number, text=word)
    return tuple(count_of(word, TOOL, line=number, base=16) for word in words)
