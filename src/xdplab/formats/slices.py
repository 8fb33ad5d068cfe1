"""xdpload's output about two programs that took turns under one sender, and the ratio of their rates.

Each slice is a few milliseconds of one program. Slices come in pairs, one of each program, in a random order for each
pair. Common effects on a pair cancel: the rate of an unchanged program may swing by tens of percent within tenths of a
second if another guest works on the same core.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, fsum, log
from statistics import median

from xdplab.formats.reading import as_list, count_field, objects_of, refuse

TOOL = "xdpload"
_FIELDS = ("other", "from", "to", "frames", "exchange")
MOST_SILENT = 0.25
"""The largest allowed share of slices without a frame: pauses of the sender, but not a counter that never moves."""
LEAST_PAIRS = 20
MOST_EXCHANGE = 0.5
"""The longest allowed exchange of programs, as a share of a slice."""


@dataclass(frozen=True)
class Slice:
    """``other`` ran, not the attached program; ``seconds`` long; the exchange before it took ``exchange_s``."""

    other: bool
    seconds: float
    frames: int
    exchange_s: float


@dataclass(frozen=True)
class SlicedRatio:
    """Rate of the attached program divided by the other's: ``median`` over pairs, and ``total`` of all frames and
    times."""

    median: float
    total: float
    pairs: int


def parse_slices(data: bytes | str) -> tuple[Slice, ...] | None:
    """Return the slices in xdpload's output; None if there are none. Raises FormatError."""
    numbered = enumerate(objects_of(data, TOOL), start=1)
    records = [(number, record) for number, record in numbered if record.get("type") == "alternated"]
    if not records:
        return None
    number, record = records[-1]
    return tuple(_slice(value, number) for value in as_list(record.get("slices"), TOOL))


def _slice(value: object, line: int) -> Slice:
    numbers = as_list(value, TOOL)
    if len(numbers) != len(_FIELDS):
        refuse(TOOL, "not a slice", line=line, text=repr(value))
    fields = dict(zip(_FIELDS, numbers, strict=True))
    other, since, until, frames, exchange = (count_field(fields, name, TOOL, line=line) for name in _FIELDS)
    if until <= since:
        refuse(TOOL, "a slice that ends before it begins", line=line, text=repr(value))
    return Slice(bool(other), (until - since) / 1e9, frames, exchange / 1e9)


def ratio_of(slices: Sequence[Slice]) -> SlicedRatio | str:
    """Return the ratio of rates, or why these slices have none."""
    silent = sum(not one.frames for one in slices)
    if silent > MOST_SILENT * len(slices):
        return f"the interface counted no frame in {silent} of {len(slices)} slices"
    slow = median(one.exchange_s for one in slices)
    if slow > MOST_EXCHANGE * median(one.seconds for one in slices):
        return f"the driver needs {slow * 1e3:.1f} ms to exchange programs"
    neighbours = zip(slices[::2], slices[1::2], strict=False)
    pairs = [sorted(pair, key=lambda one: one.other) for pair in neighbours if all(one.frames for one in pair)]
    if len(pairs) < LEAST_PAIRS:
        return f"only {len(pairs)} pairs of slices carried frames"
    logs = [log(first.frames / first.seconds) - log(other.frames / other.seconds) for first, other in pairs]
    rates = [sum(one.frames for one in side) / fsum(one.seconds for one in side) for side in _sides(slices)]
    return SlicedRatio(exp(median(logs)), rates[0] / rates[1], len(pairs))


def _sides(slices: Sequence[Slice]) -> tuple[list[Slice], list[Slice]]:
    return [one for one in slices if not one.other], [one for one in slices if one.other]
