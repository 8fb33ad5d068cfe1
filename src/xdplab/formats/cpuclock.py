"""cpuclock's output: the time of a chain of dependent additions, one cycle each, on each CPU."""

from __future__ import annotations

from xdplab.formats.reading import count_field, objects_of, refuse

TOOL = "cpuclock"


def parse_cpuclock(data: bytes | str) -> dict[int, float]:
    """Return cycles per ns by CPU. Raises FormatError on any other line."""
    clocks: dict[int, float] = {}
    for number, line in enumerate(objects_of(data, TOOL), start=1):
        cpu, adds, ns = (count_field(line, key, TOOL, line=number) for key in ("cpu", "adds", "ns"))
        if not ns or cpu in clocks:
            refuse(TOOL, "no time passed" if not ns else "a CPU twice", line=number)
        clocks[cpu] = adds / ns
    return clocks
