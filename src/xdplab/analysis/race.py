"""Two sides in one run, paired by repetition: faster, slower, equivalent, or not yet known.

Each repetition gives one value, the mean logarithm of b over a of all pairs of points that both measured in it: what a
repetition shares (drift, the machine's other work) cancels, and repetitions are the independent values. The ratio is
their median: single slow loads do not move it. Its interval holds at every look (`xdplab.analysis.sequential`), so the
run may stop as soon as it knows. The three-way decision is that of `compare`.

Where the sides' order is drawn anew in each repetition and the noise of both is alike, the logarithms lie
symmetrically about that of the true ratio, so their median is the true ratio.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Literal

from xdplab.analysis.sequential import LEAST, Known, known
from xdplab.words import many

Answer = Literal["equivalent", "differs", "undecided"]
Rates = Mapping[tuple[str, int], float]
"""The forwarding rate of each valid trial, by point and repetition, in frames per second."""


@dataclass(frozen=True)
class Standing:
    """How a race stands after ``ratio.n`` pairs; ``ratio`` is of the logarithm of b over a."""

    ratio: Known
    margin: float

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
        return found | {"pairs": self.ratio.n, "margin": self.margin}

    @property
    def words(self) -> str:
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
        return f"{said}; b over a {exp(self.ratio.median):.4f}{interval} after {n} pairs"


def standing(rates: Rates, pairs: Sequence[tuple[str, str]], margin: float) -> Standing:
    """Return how the race between the sides of ``pairs`` (point ids of a and b) stands."""
    repetitions = sorted({repetition for _, repetition in rates})
    values = []
    for repetition in repetitions:
        both = [(rates.get((a, repetition)), rates.get((b, repetition))) for a, b in pairs]
        logs = [log(second / first) for first, second in both if first and second]
        if len(logs) == len(pairs):  # a mean over other pairs would be of other points
            values.append(sum(logs) / len(logs))
    return Standing(known(values), margin)
