"""Two sides in one run, paired by repetition: faster, slower, equivalent, or not yet known.

Each repetition gives one value, the mean logarithm of b over a of all pairs of points that both measured in it: common
effects in a repetition (drift, the machine's other work) cancel, and repetitions are the independent values. If the two
programs took turns under one sender, the ratio of a repetition is that of their slices, whose spread is a hundredth of
that of whole windows on a shared machine; otherwise it is that of the two windows' rates. The ratio of the race is the
median: single disturbed repetitions do not move it. Its interval holds at every look, so the run
may stop as soon as it knows. The three-way decision is that of `compare`.

An interval for a fixed number of values does not hold: the t interval, checked after each of 200 pairs, calls equal
programs different in 41 % of all races. And an interval of a mean is not useful if external causes slow single windows
of a program by up to 40 %: a few such values determine its width. So this interval is that of the median, and depends
only on which side of it each value is. It holds for any distribution.

Howard and Ramdas 2022, Sequential estimation of quantiles with applications to A/B testing and best-arm identification
(Bernoulli 28); the mixture of likelihood ratios is that of Robbins 1970, Statistical methods related to the law of the
iterated logarithm.

Slices and windows measure the same trials. A program whose state follows the clock (a token bucket, entries that age)
does other work in slices, between which it is off: then the two differ by more than their noise, and the race has no
answer: which of the two is meant, only a user knows.

If the sides' order is random in each repetition and both have the same noise, the logarithms are symmetric about that
of the true ratio, so their median is the true ratio.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import count
from math import exp, floor, inf, lgamma, log, log10, nan, sqrt
from statistics import fmean, median, stdev
from typing import Literal

from xdplab.analysis import OFFERED
from xdplab.analysis.intervals import t_quantile
from xdplab.text import many

ALPHA = 0.05


@dataclass(frozen=True)
class Known:
    """The median of ``n`` values with its interval, in their unit; NaN without values."""

    n: int
    median: float
    low: float
    high: float

    @property
    def bounded(self) -> bool:
        """False if there are too few values for an interval, or only copies of one."""
        return self.low > -inf


def median_interval(values: Sequence[float], alpha: float = ALPHA) -> Known:
    """Return the median with its anytime-valid interval; infinitely wide for too few values, or copies of one.

    The values are independent, each with the same median. Two order statistics are the ends, as in
    Thompson's interval for a fixed number (1936), but farther out: see `_outside`.
    """
    n, ordered = len(values), sorted(map(float, values))
    middle = median(ordered) if n else nan
    outside = _outside(n, alpha)
    if not outside or ordered[0] == ordered[-1]:
        return Known(n, middle, -inf, inf)
    return Known(n, middle, ordered[outside - 1], ordered[n - outside])


@lru_cache(maxsize=4096)
def _outside(n: int, alpha: float) -> int:
    """Return the rank, from the outside, of the interval's lower end among ``n`` sorted values; 0 if it has none.

    If m is the median, each value is below it with probability 1/2. Averaged over all probabilities p alike, the
    likelihood ratio of p to 1/2 after k values below m is 2^n / ((n + 1) C(n, k)). It is a martingale of mean 1, so it
    ever reaches 1 / alpha with probability alpha at most (Ville 1939). An m for which it has is not in the interval.
    """
    return sum(_log_evidence(n, k) >= -log(alpha) for k in range((n + 1) // 2))


def _log_evidence(n: int, k: int) -> float:
    return n * log(2) - log(n + 1) - (lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1))


LEAST = next(n for n in count(1) if _outside(n, ALPHA))
"""The smallest number of values that have an interval."""


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
    ``carried``: all rates are the sender's, so there is no ratio. ``lost``: pairs that were tried and have none, as of
    an invalid side.
    """

    ratio: Known
    margin: float
    by: By = "windows"
    windows: Known | None = None
    carried: bool = False
    lost: int = 0

    @property
    def answer(self) -> Answer:
        """Return the answer. The margin comes first: a difference inside it counts as equivalent."""
        return "undecided" if self.windows is not None else _answer(self.ratio, self.margin)

    @property
    def settled(self) -> bool:
        """Whether more pairs would tell nothing more: there is an answer, or one by windows that contradicts it."""
        return _answer(self.windows or self.ratio, self.margin) != "undecided"

    def to_json(self) -> dict[str, object]:
        """Return the answer, the ratio of b to a with its interval (null if there is none), pairs, those lost, and
        margin; ``windows`` is null unless it contradicts the ratio by slices."""
        record = {"verdict": self.answer, **_ratio(self.ratio), "pairs": self.ratio.n, "margin": self.margin}
        return record | {
            "pairs_lost": self.lost,
            "by": self.by,
            "windows": None if self.windows is None else _ratio(self.windows),
        }

    @property
    def text(self) -> str:
        """Return the state in one line, without the names of the sides."""
        return Outcome(self).text


@dataclass(frozen=True)
class Outcome:
    """A race in words: what its rates say of B and A by their names, then what other measurements of its trials say.

    ``packet_ns``: A's time per packet, if it is one time. ``more``: the median of what B takes more of per packet, by
    measurement and unit: ``("test run", "ns")``.
    """

    standing: Standing
    names: tuple[str, str] = ("a", "b")
    packet_ns: float | None = None
    more: Mapping[tuple[str, str], Known] = field(default_factory=dict)

    @property
    def more_ns(self) -> float | None:
        """Time per packet that B takes more than A, by the ratio of the rates, in ns; None if that has no interval."""
        if self.packet_ns is None or not self.standing.ratio.bounded:
            return None
        return self.packet_ns * (exp(-self.standing.ratio.median) - 1)

    @property
    def text(self) -> str:
        """Return the answer with its evidence; a measurement that shows a difference leads where the rates do not."""
        ratio, (a, b) = self.standing.ratio, self.names
        margin = f"within {self.standing.margin:.1%}"
        if self.standing.carried:
            return "; ".join([*(_more(what, one) for what, one in self.more.items()), f"undecided: {OFFERED}"])
        if ratio.n < LEAST:
            so_far = f"{b} is {_difference(ratio, a)} by " if ratio.n else ""
            return f"undecided: {so_far}{many(ratio.n, 'valid pair')}{self._lost}, and an interval needs {LEAST}"
        if self.standing.windows is not None:
            return (
                f"undecided: the programs depend on time; by {self.standing.by}, between which each is off, {b} is "
                f"{_difference(ratio)}; by windows {_difference(self.standing.windows)}; after {ratio.n} pairs"
                f"{self._lost}: `--by windows` compares them as they run"
            )
        inside = ", less than the margin in the middle" if abs(ratio.median) < log(1 + self.standing.margin) else ""
        answer = {
            "equivalent": f"{b} and {a} are equivalent {margin}: {b} is {_difference(ratio)}",
            "differs": f"{b} is {_difference(ratio, a)}{inside}",
            "undecided": f"undecided {margin}: {b} is {_difference(ratio)}",
        }[self.standing.answer]
        evidence = f"after {ratio.n} pairs{self._lost}, by {self.standing.by}"
        shown = {what: one for what, one in self.more.items() if one.bounded and not one.low <= 0 <= one.high}
        lead = list(shown) if self.standing.answer == "undecided" else []
        parts = [f"{_more(what, shown[what])} for {b}" for what in lead] + [f"{answer}{self._by_rates()}"]
        parts += [_more(what, one) for what, one in self.more.items() if what not in lead]
        return "; ".join([*parts, evidence])

    @property
    def _lost(self) -> str:
        return f" (and {self.standing.lost} without a ratio: `xdplab audit` says why)" if self.standing.lost else ""

    def _by_rates(self) -> str:
        return "" if self.more_ns is None else f": {_signed(self.more_ns)} ns per packet"

    def to_json(self) -> dict[str, object]:
        """Return the state, the names of the sides, and what B takes more of per packet, null if unknown."""
        more = {f"{what} {unit}": asdict(one) if one.bounded else None for (what, unit), one in self.more.items()}
        sides = {"a": self.names[0], "b": self.names[1]}
        return {**sides, **self.standing.to_json(), "more_ns": self.more_ns, "more": more, "text": self.text}


def _more(what: tuple[str, str], known: Known) -> str:
    """Return ``test run +1.5 ns [1.4, 1.6]``, with the digits that the interval supports."""
    name, unit = what
    interval = ""
    digits = 1
    if known.bounded:
        digits = _digits(known.low, known.high)
        interval = f" [{known.low:.{digits}f}, {known.high:.{digits}f}]"
    return f"{name} {known.median:+.{digits}f} {unit}{interval}"


def _digits(low: float, high: float) -> int:
    """Return how many decimals an interval supports: two digits of its half."""
    return min(3, max(0, 1 - floor(log10((high - low) / 2)))) if high > low else 3


def _signed(value: float) -> str:
    return f"{value:+.{_digits(0, abs(value))}f}"


def _difference(known: Known, other: str = "") -> str:
    """Return ``2.5% slower (1.7 to 6.1%)`` from the logarithm of a ratio of rates."""
    median, low, high = (100 * (exp(value) - 1) for value in (known.median, known.low, known.high))
    than = f" than {other}" if other else ""
    word = "slower" if median < 0 else "faster"
    if not known.bounded:
        return f"{abs(median):.1f}% {word}{than}"
    digits = _digits(low, high)
    if low < 0 < high:
        ends = f"{-low:.{digits}f}% slower to {high:.{digits}f}% faster"
    else:
        ends = f"{min(abs(low), abs(high)):.{digits}f} to {max(abs(low), abs(high)):.{digits}f}%"
    return f"{abs(median):.{digits}f}% {word}{than} ({ends})"


def _answer(ratio: Known, margin: float) -> Answer:
    within = log(1 + margin)
    if -within < ratio.low and ratio.high < within:
        return "equivalent"
    return "differs" if ratio.low > 0 or ratio.high < 0 else "undecided"


def _ratio(ratio: Known) -> dict[str, float | None]:
    bounds = {"ratio": ratio.median, "low": ratio.low, "high": ratio.high}
    return {name: exp(value) if ratio.bounded else None for name, value in bounds.items()}


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
