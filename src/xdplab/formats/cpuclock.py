"""cpuclock's output: the time of a chain of dependent additions, one cycle each, on each CPU."""

from __future__ import annotations

from xdplab.formats.reading import as_object, count_field, json_of, lines_of, refuse

TOOL = "cpuclock"


def parse_cpuclock(data: bytes | str) -> dict[int, float]:
    """Return cycles per ns by CPU. Raises FormatError on any other line."""
    clocks: dict[int, float] = {}
    for number, text in enumerate(lines_of(data, TOOL), start=1):
        line = as_object(json_of(text, TOOL, line=number), TOOL, line=number)
        cpu, adds, ns = (count_field(line, key, TOOL, line=number) for key in ("cpu", "adds", "ns"))
        if not ns or cpu in clocks:
            refuse(TOOL, "no time passed" if not ns else "a CPU twice", line=number, text=text)
        clocks[cpu] = adds / ns
    return clocks
