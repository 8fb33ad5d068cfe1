"""Whether a rate stayed the same during the measurement: one rule for a trial's intervals of either side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

STEP_SHARE = 0.10  # of the rate of the whole: a step that matters
LEAST_SHARE = 0.15  # of the intervals on either side: a shorter stretch is a hiccup, not another rate
LEAST_INTERVALS = 3
EVEN = 1 - 1e-9  # rounding aside
SPREADS = 4.0  # the step in standard deviations of the intervals around their own side's mean


@dataclass(frozen=True)
class RateStep:
    """A change of rate: ``before`` and ``after`` it, in the unit given; ``place`` is the first interval behind it."""

    place: int
    before: float
    after: float

    @property
    def share(self) -> float:
        """The change as a share of the rate before it."""
        return self.after / self.before - 1 if self.before else float("inf")


def step_in(rates: ArrayLike) -> RateStep | None:
    """Return the step that best splits ``rates`` (one per interval of equal length), or None if they are stationary.

    The place is that of least squares; the step counts if it is more than STEP_SHARE of the mean and SPREADS standard
    deviations within the two sides. NaN are ignored.
    """
    all_rates = np.asarray(rates, dtype=float)
    known = np.flatnonzero(~np.isnan(all_rates))
    values = all_rates[known]
    n, least = len(values), max(LEAST_INTERVALS, int(np.ceil(LEAST_SHARE * len(values))))
    mean = values.mean() if n >= 2 * least else 0.0
    # Means of two sides lie between the least and the most: most rates are so even that no step can be.
    if mean <= 0 or np.ptp(values) < EVEN * STEP_SHARE * mean:
        return None
    sizes = np.arange(1, n)
    sums = np.cumsum(values)[:-1]
    before, after = sums / sizes, (values.sum() - sums) / (n - sizes)
    gain = sizes * (n - sizes) / n * (before - after) ** 2
    cut = least + int(np.argmax(gain[least - 1 : n - least]))
    low, high = float(before[cut - 1]), float(after[cut - 1])
    spread = float(np.sqrt(((values - np.where(np.arange(n) < cut, low, high)) ** 2).sum() / (n - 2)))
    if abs(high - low) <= STEP_SHARE * mean or abs(high - low) <= SPREADS * spread:
        return None
    return RateStep(int(known[cut]), low, high)
