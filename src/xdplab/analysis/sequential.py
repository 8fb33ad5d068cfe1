"""An interval of a median that holds at every look, so that a run may stop as soon as it knows enough.

The interval of a fixed number of values does not: the t interval, looked at after each of 200 pairs, calls equal
programs different in 41 % of all races. And no interval of a mean is of use where single windows of a program are up
to 40 % slow for a reason outside it: few such values decide how wide it is. So the interval is of the median, and uses
only on which side of it each value lies. It holds whatever the distribution is.

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
    """The median of ``n`` values with its interval, in their unit; no values have no median: it is NaN."""

    n: int
    median: float
    low: float
    high: float

    @property
    def bounded(self) -> bool:
        """False if there were too few values for an interval, or only copies of one."""
        return self.low > -inf


def known(values: Sequence[float], alpha: float = ALPHA) -> Known:
    """Return the median with its anytime-valid interval; infinitely wide for too few values, or copies of one.

    The values are independent, each with the same median. Two of them in their order are the ends, as in Thompson's
    interval of a fixed number (1936), but farther out: see `_outside`.
    """
    n, ordered = len(values), sorted(map(float, values))
    middle = median(ordered) if n else nan
    outside = _outside(n, alpha)
    if not outside or ordered[0] == ordered[-1]:
        return Known(n, middle, -inf, inf)
    return Known(n, middle, ordered[outside - 1], ordered[n - outside])


@lru_cache(maxsize=4096)
def _outside(n: int, alpha: float) -> int:
    """Return how many of ``n`` values in their order the interval's lower end is from the outside; 0 if it has none.

    If m is the median, each value is below it with probability 1/2. Averaged over all probabilities p alike, the
    likelihood ratio of p to 1/2 after k values below m is 2^n / ((n + 1) C(n, k)). It is a martingale of mean 1, so it
    ever reaches 1 / alpha with probability alpha at most (Ville 1939). An m for which it has is not in the interval.
    """
    return sum(_log_evidence(n, k) >= -log(alpha) for k in range((n + 1) // 2))


def _log_evidence(n: int, k: int) -> float:
    return n * log(2) - log(n + 1) - (lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1))


LEAST = next(n for n in count(1) if _outside(n, ALPHA))
"""Fewer values have no interval."""
