"""Two sides in one run, paired by repetition: faster, slower, equivalent, or not yet known.

Each repetition gives one value, the mean logarithm of b over a of all pairs of points that both measured in it: common
effects in a repetition (drift, the machine's other work) cancel, and repetitions are the independent values. If the two
programs took turns under one sender, the ratio of a repetition is that of their slices, whose spread is a hundredth of
that of whole windows on a shared machine; otherwise it is that of the two windows' rates. The ratio of the race is the
median: single disturbed repetitions do not move it. Its interval holds at every look (`xdplab.analysis.sequential`), so
the run may stop as soon as it knows. The three-way decision is that of `compare`.

If the sides' order is random in each repetition and both have the same noise, the logarithms are symmetric about that
of the true ratio, so their median is the true ratio.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Literal

from xdplab.analysis.sequential import LEAST, Known, known
from xdplab.text import many

Answer = Literal["equivalent", "differs", "undecided"]
By = Literal["slices", "windows", "slices and windows"]
Rates = Mapping[tuple[str, int], float]
"""A number of each valid trial, by point and repetition: its forwarding rate in frames per second, or a ratio."""


@dataclass(frozen=True)
class Standing:
    """The state of a race after ``ratio.n`` pairs; ``ratio`` is the logarithm of b over a, ``by`` is slices or
    windows, or both if only some pairs of points took turns under one sender."""

    ratio: Known
    margin: float
    by: By = "windows"

    @property
    def answer(self) -> Answer:
        """Return the answer. The margin comes first: a difference inside it counts as equivalent."""
        within = log(1 + self.margin)
        if -within < self.ratio.low and self.ratio.high < within:
            return "equivalent"
        return "differs" if self.ratio.low > 0 or self.ratio.high < 0 else "undecided"

    def to_json(self) -> dict[str, object]:
        """Return the answer, the ratio of b to a with its interval (null if there is none), pairs and margin."""
        bounds = (self.ratio.low, self.ratio.median, self.ratio.high)
        low, ratio, high = (exp(value) if self.ratio.bounded else None for value in bounds)
        found: dict[str, object] = {"verdict": self.answer, "ratio": ratio, "low": low, "high": high}
        return found | {"pairs": self.ratio.n, "margin": self.margin, "by": self.by}

    @property
    def text(self) -> str:
        """Return one line: the answer, the ratio with its interval, the number of pairs."""
        n = self.ratio.n
        if n < LEAST:
            return f"undecided: {many(n, 'valid pair')}, and an interval needs {LEAST}"
        faster = "faster" if self.ratio.median > 0 else "slower"
        inside = abs(self.ratio.median) < log(1 + self.margin)
        said = {
            "equivalent": f"equivalent within {self.margin:.1%}",
            "differs": f"differs: b is {faster}" + (f", by less than {self.margin:.1%} in the middle" * inside),
            "undecided": f"undecided within {self.margin:.1%}",
        }[self.answer]
        interval = "" if not self.ratio.bounded else f" [{exp(self.ratio.low):.4f}, {exp(self.ratio.high):.4f}]"
        return f"{said}; b over a {exp(self.ratio.median):.4f}{interval} after {n} pairs, by {self.by}"


def standing(rates: Rates, slices: Rates, pairs: Sequence[tuple[str, str]], margin: float) -> Standing:
    """Return the state of the race between the sides of ``pairs`` (point ids of a and b).

    ``slices`` are the ratios of b's programs over a's, from trials of b. If some trials of a point have a ratio, its
    other trials are ignored: two kinds of values with different noise have no common median.
    """
    sliced = {b for b, _ in slices}
    values = []
    for repetition in sorted({repetition for _, repetition in rates}):
        logs = [_log_ratio(rates, slices if b in sliced else None, a, b, repetition) for a, b in pairs]
        found = [value for value in logs if value is not None]
        if len(found) == len(pairs):  # a mean over different pairs would describe different points
            values.append(sum(found) / len(found))
    by: set[By] = {"slices" if b in sliced else "windows" for _, b in pairs}
    return Standing(known(values), margin, by.pop() if len(by) == 1 else "slices and windows")


def _log_ratio(rates: Rates, slices: Rates | None, a: str, b: str, repetition: int) -> float | None:
    """Return the logarithm of b over a in a repetition in which both are valid; else None."""
    first, second = rates.get((a, repetition)), rates.get((b, repetition))
    if not first or not second:
        return None
    if slices is None:
        return log(second / first)
    ratio = slices.get((b, repetition))
    return log(ratio) if ratio else None
