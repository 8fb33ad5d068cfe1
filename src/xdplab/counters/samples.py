"""The notes of the sampler: CPU ticks and packets of one interface, ten times per second; and those in the window.

Controller, TG and DUT share no clock, so the window is found in the samples themselves. It is the longest run of
intervals in which the interface counted packets, without the two at its ends, which traffic filled only in part.

And the output of cpuclock: the time of a chain of dependent additions, one cycle each, on each CPU.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TypeVar

from xdplab.absent import Absent
from xdplab.formats.proc import CpuTicks, parse_cpu_line
from xdplab.formats.reading import count_field, count_of, lines_of, objects_of, refuse, text_of

TOOL = "sampler"
T = TypeVar("T")
_UPTIME = re.compile(r"([0-9]{1,12}\.[0-9]{1,6}) [0-9]+\.[0-9]+")


@dataclass(frozen=True)
class Sample:
    """Cumulative counts at ``uptime_s`` (10 ms resolution)."""

    uptime_s: float
    rx_packets: int
    tx_packets: int
    cpus: tuple[CpuTicks, ...]


def parse_samples(data: bytes | str) -> tuple[Sample, ...]:
    """Return the samples, without a truncated last one. Raises FormatError."""
    text = text_of(data, TOOL)
    lines = lines_of(text[: text.rfind("\n") + 1], TOOL)
    starts = [index for index, line in enumerate(lines) if _UPTIME.fullmatch(line)]
    if not starts or starts[0] != 0:
        refuse(TOOL, "no uptime", line=1, text=lines[0])
    blocks = [(start, lines[start:stop]) for start, stop in zip(starts, [*starts[1:], len(lines)], strict=True)]
    length = len(blocks[0][1])
    if len(blocks[-1][1]) < length:
        blocks.pop()
    return tuple(_sample(start + 1, block, length) for start, block in blocks)


def _sample(number: int, block: list[str], length: int) -> Sample:
    if len(block) != length or length < 4:
        refuse(TOOL, f"{len(block)} lines in a note, {length} in the first", line=number)
    uptime = _UPTIME.fullmatch(block[0])
    if uptime is None:
        refuse(TOOL, "no uptime", line=number, text=block[0])
    cpus = tuple(parse_cpu_line(line, number + 3 + place) for place, line in enumerate(block[3:]))
    rx_packets, tx_packets = (count_of(line, TOOL, line=number + 1 + place) for place, line in enumerate(block[1:3]))
    return Sample(float(uptime[1]), rx_packets, tx_packets, cpus)


def window(samples: Sequence[Sample]) -> tuple[Sample, Sample]:
    """Return the first and the last sample that lie inside the window. Raises Absent if fewer than two do."""
    busy = [after.rx_packets > before.rx_packets for before, after in pairwise(samples)]
    inside = longest_run(busy, bool)[1:-1]
    if not inside:
        raise Absent("no sampling interval lies wholly inside the window")
    return samples[inside[0]], samples[inside[-1] + 1]


def longest_run(items: Sequence[T], holds: Callable[[T], bool]) -> range:
    """Return the range of the longest run of ``items`` for which ``holds`` (the first of equal ones)."""
    best, place = range(0), 0
    for good, group in groupby(items, key=holds):
        length = len(list(group))
        if good and length > len(best):
            best = range(place, place + length)
        place += length
    return best


CLOCK_TOOL = "cpuclock"


def parse_cpuclock(data: bytes | str) -> dict[int, float]:
    """Return cycles per ns by CPU. Raises FormatError on any other line."""
    clocks: dict[int, float] = {}
    for number, line in enumerate(objects_of(data, CLOCK_TOOL), start=1):
        cpu, adds, ns = (count_field(line, key, CLOCK_TOOL, line=number) for key in ("cpu", "adds", "ns"))
        if not ns or cpu in clocks:
            refuse(CLOCK_TOOL, "no time passed" if not ns else "a CPU twice", line=number)
        clocks[cpu] = adds / ns
    return clocks
