"""Two sides in one run, paired by repetition: faster, slower, equivalent, or not yet known.

Each repetition gives one value, the mean logarithm of b over a of all pairs of points that both measured in it: common
effects in a repetition (drift, the machine's other work) cancel, and repetitions are the independent values. If the two
programs took turns under one sender, the ratio of a repetition is that of their slices, whose spread is a hundredth of
that of whole windows on a shared machine; otherwise it is that of the two windows' rates. The ratio of the race is the
median: single disturbed repetitions do not move it. Its interval holds at every look (`sequential`), so
the run may stop as soon as it knows. The three-way decision is that of `compare`.

Slices and windows measure the same trials. A program whose state follows the clock (a token bucket, entries that age)
does other work in slices, between which it is off: then the two differ by more than their noise, and the race has no
answer: which of the two is meant, only a user knows.

If the sides' order is random in each repetition and both have the same noise, the logarithms are symmetric about that
of the true ratio, so their median is the true ratio.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import fmean, median, stdev
from typing import Literal

from xdplab.analysis.decide.sequential import LEAST, Known, median_interval
from xdplab.analysis.intervals import t_quantile
from xdplab.text import many

Answer = Literal["equivalent", "differs", "undecided"]
By = Literal["slices", "windows", "slices and windows"]
APART_CHANCE = 0.001  # that slices and windows of one race differ so far by chance, by Student's distribution
APART_SHARE = 0.05  # of the ratio's logarithm: frames that wait when turns change are that much if b is far slower
Rates = Mapping[tuple[str, int], float]
"""A number of each valid trial, by point and repetition: its forwarding rate in frames per second, or a ratio."""


@dataclass(frozen=True)
class Standing:
    """The state of a race after ``ratio.n`` pairs; ``ratio`` is the logarithm of b over a, ``by`` is slices or
    windows, or both if only some pairs of points took turns under one sender.

    ``windows`` is the ratio of the same trials by their windows, if slices and windows contradict each other.
    """

    ratio: Known
    margin: float
    by: By = "windows"
    windows: Known | None = None

    @property
    def answer(self) -> Answer:
        """Return the answer. The margin comes first: a difference inside it counts as equivalent."""
        return "undecided" if self.windows is not None else _answer(self.ratio, self.margin)

    @property
    def settled(self) -> bool:
        """Whether more pairs would tell nothing more: there is an answer, or one by windows that contradicts it."""
        return _answer(self.windows or self.ratio, self.margin) != "undecided"

    def to_json(self) -> dict[str, object]:
        """Return the answer, the ratio of b to a with its interval (null if there is none), pairs and margin;
        ``windows`` is null unless it contradicts the ratio by slices."""
        record = {"verdict": self.answer, **_ratio(self.ratio), "pairs": self.ratio.n, "margin": self.margin}
        return record | {"by": self.by, "windows": None if self.windows is None else _ratio(self.windows)}

    @property
    def text(self) -> str:
        """Return one line: the answer, the ratio with its interval, the number of pairs."""
        n = self.ratio.n
        if n < LEAST:
            return f"undecided: {many(n, 'valid pair')}, and an interval needs {LEAST}"
        if self.windows is not None:
            return (
                f"undecided: the programs depend on time; by {self.by}, between which each is off, "
                f"{_interval(self.ratio)}; by windows {_interval(self.windows)}; after {n} pairs: `--by windows` "
                "compares them as they run"
            )
        faster = "faster" if self.ratio.median > 0 else "slower"
        inside = abs(self.ratio.median) < log(1 + self.margin)
        answer_text = {
            "equivalent": f"equivalent within {self.margin:.1%}",
            "differs": f"differs: b is {faster}" + (f", by less than {self.margin:.1%} in the middle" * inside),
            "undecided": f"undecided within {self.margin:.1%}",
        }[self.answer]
        return f"{answer_text}; b over a {_interval(self.ratio)} after {n} pairs, by {self.by}"


def _answer(ratio: Known, margin: float) -> Answer:
    within = log(1 + margin)
    if -within < ratio.low and ratio.high < within:
        return "equivalent"
    return "differs" if ratio.low > 0 or ratio.high < 0 else "undecided"


def _ratio(ratio: Known) -> dict[str, float | None]:
    bounds = {"ratio": ratio.median, "low": ratio.low, "high": ratio.high}
    return {name: exp(value) if ratio.bounded else None for name, value in bounds.items()}


def _interval(ratio: Known) -> str:
    interval = f" [{exp(ratio.low):.4f}, {exp(ratio.high):.4f}]" if ratio.bounded else ""
    return f"{exp(ratio.median):.4f}{interval}"


def standing(rates: Rates, slices: Rates, pairs: Sequence[tuple[str, str]], margin: float) -> Standing:
    """Return the state of the race between the sides of ``pairs`` (point ids of a and b).

    ``slices`` are the ratios of b's programs over a's, from trials of b. If some trials of a point have a ratio, its
    other trials are ignored: two kinds of values with different noise have no common median.
    """
    sliced = {b for b, _ in slices}
    values, windows = [], []
    for repetition in sorted({repetition for _, repetition in rates}):
        logs = [_log_ratio(rates, slices if b in sliced else None, a, b, repetition) for a, b in pairs]
        ratios = [value for value in logs if value is not None]
        if len(ratios) == len(pairs):  # a mean over different pairs would describe different points
            values.append(fmean(ratios))
            windows.append(fmean(log(rates[b, repetition] / rates[a, repetition]) for a, b in pairs))
    by: set[By] = {"slices" if b in sliced else "windows" for _, b in pairs}
    apart = median_interval(windows) if _contradict(values, windows, margin) else None
    return Standing(median_interval(values), margin, by.pop() if len(by) == 1 else "slices and windows", apart)


def _contradict(slices: Sequence[float], windows: Sequence[float], margin: float) -> bool:
    """Tell whether the same trials have another ratio by windows than by slices: by more than half of the margin, by
    more than the change of turns explains, and by more than their noise does: other work slows some windows by far."""
    differences = [window - slice_ratio for slice_ratio, window in zip(slices, windows, strict=True)]
    if len(differences) < LEAST:
        return False
    if abs(median(differences)) <= max(log(1 + margin) / 2, APART_SHARE * abs(median(slices))):
        return False
    error = stdev(differences) / sqrt(len(differences))
    most = t_quantile(1 - APART_CHANCE / 2, len(differences) - 1) * error
    return 0 < most < abs(fmean(differences))


def _log_ratio(rates: Rates, slices: Rates | None, a: str, b: str, repetition: int) -> float | None:
    """Return the logarithm of b over a in a repetition in which both are valid; else None."""
    first, second = rates.get((a, repetition)), rates.get((b, repetition))
    if not first or not second:
        return None
    if slices is None:
        return log(second / first)
    ratio = slices.get((b, repetition))
    return log(ratio) if ratio else None
