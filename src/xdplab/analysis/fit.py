"""The model that every series is compared with: t(N) = t0 + c x N."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import nan, sqrt

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from xdplab.analysis.intervals import CONFIDENCE, t_quantile
from xdplab.analysis.series import by_series, places_by, valid


@dataclass(frozen=True)
class Line:
    """Fitted t0 (ns) and c (ns per access) with standard errors and R^2 (NaN without a degree of freedom).

    ``residuals`` are relative, (t - fitted)/fitted, in the order of the observations; ``points`` counts distinct N.
    """

    t0: float
    c: float
    t0_se: float
    c_se: float
    r2: float
    n: int
    points: int
    residuals: NDArray[np.float64]

    def at(self, accesses: float) -> float:
        """Return the fitted time at N in ns."""
        return self.t0 + self.c * accesses


def fit_line(accesses: ArrayLike, times_ns: ArrayLike) -> Line | None:
    """Weighted least squares of time (ns) against N, one observation per repetition; None with fewer than two N.

    The noise of a rate is proportional to it, so each observation has the weight 1/t^2 (one iteration, with the fitted
    t); standard errors come from the scaled residuals, s^2 (X'WX)^-1, R^2 from the weighted sums (Draper and Smith, ch.
    9).
    """
    x, t = np.asarray(accesses, dtype=float), np.asarray(times_ns, dtype=float)
    points = len(np.unique(x))
    if points < 2:
        return None
    t0, c, *_ = _solve(x, t, 1 / t**2)
    fitted = t0 + c * x
    weights = 1 / np.where(fitted > 0, fitted, t) ** 2
    t0, c, mean, *variances = _solve(x, t, weights)
    fitted = t0 + c * x
    residuals = t - fitted
    spare = len(x) - 2
    left, spread = float(weights @ residuals**2), float(weights @ (t - mean) ** 2)
    r2 = 1 - left / spread if spread and spare else nan  # through two points goes every line
    t0_se, c_se = (sqrt(left / spare * variance) if spare else nan for variance in variances)
    return Line(t0, c, t0_se, c_se, r2, len(x), points, residuals / fitted)


def _solve(
    x: NDArray[np.float64], t: NDArray[np.float64], weights: NDArray[np.float64]
) -> tuple[float, float, float, float, float]:
    """Return t0, c, the mean time, and the variances of t0 and c in units of s^2, the diagonal of (X'WX)^-1.

    N is taken from its mean: that keeps precision at N = 12800, and a run has thousands of fits too small for matrices.
    """
    total = weights.sum()
    middle, mean = weights @ x / total, weights @ t / total
    apart = x - middle
    squares = weights @ apart**2
    c = weights @ (apart * (t - mean)) / squares
    return float(mean - c * middle), float(c), float(mean), float(1 / total + middle**2 / squares), float(1 / squares)


def lines_by_repetition(rows: pd.DataFrame) -> Iterator[tuple[float, Line]]:
    """Yield each repetition of a series that has two N, and the line of its service times."""
    accesses, times = (rows[name].to_numpy(dtype=float, na_value=nan) for name in ("accesses", "ns_per_packet"))
    for repetition, places in places_by(rows["repetition"]):
        line = fit_line(accesses[places], times[places])
        if line is not None:
            yield repetition, line


STAGE = "dut_stage"
"""Column of runs whose DUT works in stages: the stage that limits a trial, if another stage does the work."""


@dataclass(frozen=True)
class Slope:
    """The cost of one more access (ns), with the half-width of its 95 % interval (NaN for one repetition)."""

    c: float
    half: float


MOST_GROUPS = 200
"""Each group takes a fit of all observations: a fit for each of many repetitions took time by their square."""


def slope(accesses: pd.Series, times_ns: pd.Series, repetitions: pd.Series) -> Slope | None:
    """Return the slope of `fit_line` with an interval from whole repetitions; None with fewer than two N.

    The points of one repetition share its baseline and its drift, so they are no independent observations. Each
    repetition is left out once, or of more than `MOST_GROUPS` a group of them (jackknife by groups: Efron and
    Tibshirani 1993, ch. 11); t with one degree of freedom less than there are groups.
    """
    x, times = (column.to_numpy(dtype=float, na_value=nan) for column in (accesses, times_ns))
    line = fit_line(x, times)
    if line is None:
        return None
    place, repeated = pd.factorize(repetitions)  # a null, -1, is never left out
    group = np.where(place < 0, -1, place % MOST_GROUPS)
    without = [fit_line(x[group != left], times[group != left]) for left in range(min(len(repeated), MOST_GROUPS))]
    slopes = np.array([one.c for one in without if one is not None])
    count = len(slopes)
    if count < 2:
        return Slope(line.c, nan)
    error = sqrt((count - 1) / count * float(((slopes - slopes.mean()) ** 2).sum()))
    return Slope(line.c, t_quantile(0.5 + CONFIDENCE / 2, count - 1) * error)


def limited_by_dut(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the valid trials whose rate is the DUT's: they have a service time, and the working stage limits them."""
    believed = valid(trials)
    timed = believed[believed["ns_per_packet"].notna()]
    return timed[timed[STAGE].isna()] if STAGE in timed else timed


def fits(trials: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame, Line]]:
    """Yield (label, rows, line) for each series of DUT-limited or CPU-sharing points with at least two N."""
    for label, rows in by_series(limited_by_dut(trials)):
        line = fit_line(rows["accesses"].astype(float), rows["ns_per_packet"].astype(float))
        if line is not None:
            yield label, rows, line
