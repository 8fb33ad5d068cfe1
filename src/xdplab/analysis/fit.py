"""The model that every series is compared with: t(N) = t0 + c x N."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import nan, sqrt

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from xdplab.analysis.intervals import CONFIDENCE, t_quantile
from xdplab.analysis.series import by_series, rows_where, valid

Table = NDArray[np.float64]
"""A row for each group, or a column with one value of each."""


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
    x, t = (np.asarray(values, dtype=float)[None] for values in (accesses, times_ns))
    points = _levels(x)
    if points[0] < 2:
        return None
    *values, residuals = _fitted(x, t)
    t0, c, t0_se, c_se, r2 = (float(value[0]) for value in values)
    return Line(t0, c, t0_se, c_se, r2, x.shape[1], int(points[0]), residuals[0])


def _levels(x: Table) -> NDArray[np.intp]:
    """Return how many different values each row has."""
    return np.asarray((np.diff(np.sort(x, axis=1), axis=1) != 0).sum(axis=1) + 1)


def _fitted(x: Table, t: Table) -> tuple[NDArray[np.float64], ...]:
    """Fit each row, of equally many observations: t0, c, their standard errors, R^2, and the relative residuals."""
    t0, c, *_ = _solve(x, t, 1 / t**2)
    fitted = t0 + c * x
    weights = 1 / np.where(fitted > 0, fitted, t) ** 2
    t0, c, mean, *variances = _solve(x, t, weights)
    fitted = t0 + c * x
    residuals = t - fitted
    spare = x.shape[1] - 2
    left, spread = _dot(weights, residuals**2), _dot(weights, (t - mean) ** 2)
    none = np.full_like(left, nan)
    r2 = 1 - left / np.where(spread == 0, nan, spread) if spare else none  # through two points goes every line
    errors = (np.sqrt(left / spare * variance) if spare else none for variance in variances)
    return *(value[:, 0] for value in (t0, c, *errors, r2)), residuals / fitted


def _solve(x: Table, t: Table, weights: Table) -> tuple[Table, ...]:
    """Return t0, c, the mean time, and the variances of t0 and c in units of s^2, the diagonal of (X'WX)^-1.

    N is taken from its mean: that keeps precision at N = 12800, and a run has thousands of fits too small for matrices.
    """
    total = weights.sum(axis=1, keepdims=True)
    middle, mean = _dot(weights, x) / total, _dot(weights, t) / total
    apart = x - middle
    squares = _dot(weights, apart**2)
    c = _dot(weights, apart * (t - mean)) / squares
    return mean - c * middle, c, mean, 1 / total + np.float_power(middle, 2) / squares, 1 / squares


def _dot(a: Table, b: Table) -> Table:
    """Return the product of each two rows, summed up: a column."""
    return np.asarray((a[:, None] @ b[:, :, None])[:, 0])


@dataclass(frozen=True)
class FittedLines:
    """The lines of groups that have two N or more, as columns: each with a ``place`` of its group, its first."""

    place: NDArray[np.intp]
    t0: NDArray[np.float64]
    c: NDArray[np.float64]
    t0_se: NDArray[np.float64]
    c_se: NDArray[np.float64]
    r2: NDArray[np.float64]
    n: NDArray[np.intp]
    points: NDArray[np.intp]


def fit_lines(accesses: ArrayLike, times_ns: ArrayLike, groups: ArrayLike) -> FittedLines:
    """Fit a line to each group (a number of each observation), by ascending number: a run has as many as trials."""
    x, t = (np.asarray(values, dtype=float) for values in (accesses, times_ns))
    order = np.argsort(groups, kind="stable")
    _, starts, sizes = np.unique(np.asarray(groups)[order], return_index=True, return_counts=True)
    columns = np.full((len(starts), 8), nan)
    for size in np.unique(sizes[sizes > 1]):  # numpy fits all groups of one size at once
        which = np.flatnonzero(sizes == size)
        places = order[starts[which, None] + np.arange(size)]
        points = _levels(x[places])
        which, places, points = (values[points > 1] for values in (which, places, points))
        *values, _ = _fitted(x[places], t[places])
        columns[which] = np.column_stack([places[:, 0], *values, np.full(len(which), size), points])
    place, t0, c, t0_se, c_se, r2, n, points = columns[~np.isnan(columns[:, 0])].T
    return FittedLines(place.astype(np.intp), t0, c, t0_se, c_se, r2, n.astype(np.intp), points.astype(np.intp))


def lines_by_repetition(rows: pd.DataFrame) -> tuple[NDArray[np.float64], FittedLines]:
    """Return the lines of a series' service times in each repetition that has two N, and these repetitions."""
    accesses, times, repetition = (
        rows[name].to_numpy(dtype=float, na_value=nan) for name in ("accesses", "ns_per_packet", "repetition")
    )
    lines = fit_lines(accesses, times, repetition)
    return repetition[lines.place], lines


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
    timed = rows_where(believed, believed["ns_per_packet"].notna())
    return rows_where(timed, timed[STAGE].isna()) if STAGE in timed else timed


def fits(trials: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame, Line]]:
    """Yield (label, rows, line) for each series of DUT-limited or CPU-sharing points with at least two N."""
    for label, rows in by_series(limited_by_dut(trials)):
        line = fit_line(rows["accesses"].astype(float), rows["ns_per_packet"].astype(float))
        if line is not None:
            yield label, rows, line
