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
    if len(np.unique(x)) < 2:
        return None
    first, _ = _solve(x, t, 1 / t**2)
    fitted = first[0] + first[1] * x
    weights = 1 / np.where(fitted > 0, fitted, t) ** 2
    (t0, c), inverse = _solve(x, t, weights)
    residuals = t - (t0 + c * x)
    spare = len(x) - 2
    scale = float(weights @ residuals**2) / spare if spare else nan
    spread = float(weights @ (t - np.average(t, weights=weights)) ** 2)
    r2 = 1 - float(weights @ residuals**2) / spread if spread and spare else nan  # through two points goes every line
    errors = [sqrt(scale * inverse[i, i]) if spare else nan for i in (0, 1)]
    relative = residuals / (t0 + c * x)
    return Line(float(t0), float(c), errors[0], errors[1], r2, len(x), len(np.unique(x)), relative)


def _solve(
    x: NDArray[np.float64], t: NDArray[np.float64], weights: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (t0, c) and (X'WX)^-1. N is scaled to its range, to keep precision at N = 12800."""
    scale = np.ptp(x)
    design = np.column_stack([np.ones_like(x), x / scale])
    inverse = np.linalg.inv(design.T @ (weights[:, None] * design))
    unscale = np.array([1.0, 1 / scale])
    solution: NDArray[np.float64] = inverse @ (design.T @ (weights * t)) * unscale
    return solution, np.asarray(inverse * np.outer(unscale, unscale), dtype=np.float64)


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
    repetitions: int


def slope(accesses: pd.Series, times_ns: pd.Series, repetitions: pd.Series) -> Slope | None:
    """Return the slope of `fit_line` with an interval from whole repetitions; None with fewer than two N.

    The points of one repetition share its baseline and its drift, so they are no independent observations. Each
    repetition is left out once (jackknife by groups: Efron and Tibshirani 1993, ch. 11); t with one degree of freedom
    less than there are repetitions.
    """
    line = fit_line(accesses, times_ns)
    if line is None:
        return None
    groups = repetitions.dropna().unique()
    without = [fit_line(accesses[repetitions.ne(group)], times_ns[repetitions.ne(group)]) for group in groups]
    slopes = np.array([one.c for one in without if one is not None])
    count = len(slopes)
    if count < 2:
        return Slope(line.c, nan, len(groups))
    error = sqrt((count - 1) / count * float(((slopes - slopes.mean()) ** 2).sum()))
    return Slope(line.c, t_quantile(0.5 + CONFIDENCE / 2, count - 1) * error, count)


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
