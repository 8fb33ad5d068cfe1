"""An anytime-valid interval of a median: it holds at every look, so a run may stop as soon as it has its answer.

An interval for a fixed number of values does not hold: the t interval, checked after each of 200 pairs, calls equal
programs different in 41 % of all races. And an interval of a mean is not useful if external causes slow single windows
of a program by up to 40 %: a few such values determine its width. So this interval is that of the median, and depends
only on which side of it each value is. It holds for any distribution.

Howard and Ramdas 2022, Sequential estimation of quantiles with applications to A/B testing and best-arm identification
(Bernoulli 28); the mixture of likelihood ratios is that of Robbins 1970, Statistical methods related to the law of the
iterated logarithm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from math import inf, lgamma, log, nan
from statistics import median

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
