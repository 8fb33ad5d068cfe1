"""Means and intervals over repetitions. The unit is the repetition, never the sample within a trial."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import exp, isnan, nan, sqrt
from typing import Literal

import numpy as np
import pandas as pd
from scipy.special import bdtr, stdtrit

from xdplab.errors import XdplabError

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """Statistics of one point over its repetitions; ``sd``, ``low``, ``high`` and ``cv`` are NaN for a single
    repetition."""

    n: int
    mean: float
    median: float
    sd: float
    low: float
    high: float
    cv: float

    @property
    def se(self) -> float:
        return self.sd / sqrt(self.n) if self.n > 1 else nan


def t_quantile(share: float, freedom: float) -> float:
    """Return the value below which ``share`` of Student's t distribution lies; ``freedom``: its degrees of freedom.

    As scipy.stats.t.ppf, which calls the same function and takes a second to import.
    """
    return float(stdtrit(freedom, share))


def interval(values: Iterable[float], confidence: float = CONFIDENCE) -> Interval:
    """Return mean, median, SD, t interval of the mean, and CV. Raises ValueError without any value.

    mean +- t(1 - (1-confidence)/2, n-1) x sd/sqrt(n): Student (1908); two-sided.
    """
    sample = np.asarray(list(values), dtype=float)
    if not len(sample):
        raise ValueError("an interval needs at least one repetition")
    mean, median, n = float(sample.mean()), float(np.median(sample)), len(sample)
    if n == 1:
        return Interval(1, mean, median, nan, nan, nan, nan)
    sd = float(sample.std(ddof=1))
    half = t_quantile(0.5 + confidence / 2, n - 1) * sd / sqrt(n)
    return Interval(n, mean, median, sd, mean - half, mean + half, sd / mean if mean else nan)


Scale = Literal["linear", "log", "logit"]


def interval_on(scale: Scale, values: Iterable[float]) -> Interval:
    """Return the same as ``interval``, with the t interval computed on the natural scale of the quantity.

    ``log`` for values above 0, ``logit`` for shares between 0 and 1: mean and SD are those of the values; the standard
    error is transformed by the delta method (times dg/dx at the mean), and the ends are transformed back, so none of
    them leaves the range of the quantity. A mean at the end of its range has no interval.
    """
    found = interval(values)
    half = (found.high - found.low) / 2
    if scale == "linear" or isnan(half) or half == 0:
        return found
    mean = found.mean
    if mean <= 0 or (scale == "logit" and mean >= 1):
        return replace(found, low=nan, high=nan)
    if scale == "log":
        factor = exp(min(half / mean, _MOST_EXPONENT))
        return replace(found, low=mean / factor, high=mean * factor)
    odds, factor = mean / (1 - mean), exp(min(half / (mean * (1 - mean)), _MOST_EXPONENT))
    low, high = odds / factor, odds * factor
    return replace(found, low=low / (1 + low), high=high / (1 + high))


_MOST_EXPONENT = 300.0  # beyond it the end is that of the range in any case


def median_interval(values: Iterable[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the median's interval by order statistics, (NaN, NaN) if there is none: 95 % needs six repetitions.

    The narrowest symmetric pair x(k), x(n+1-k) with 1 - 2 P(Bin(n, 1/2) < k) >= confidence: Thompson (1936); it holds
    for any distribution.
    """
    ordered = np.sort(np.asarray(list(values), dtype=float))
    n = len(ordered)
    held = [k for k in range(1, n // 2 + 1) if 1 - 2 * float(bdtr(k - 1, n, 0.5)) >= confidence]
    return (float(ordered[held[-1] - 1]), float(ordered[n - held[-1]])) if held else (nan, nan)


class MixedPointsError(XdplabError):
    """An average over two different points would describe neither."""

    exit_code = 2


def values_of_one_point(rows: pd.DataFrame, value: str, scale: float = 1.0) -> pd.Series:
    """Return ``value`` / ``scale`` of each repetition of one point: the values behind each average.

    Raises MixedPointsError if the rows are of several points.
    """
    points = rows["point_id"].dropna().unique()
    if len(points) > 1:
        names = ", ".join(sorted(map(str, points))[:4])
        raise MixedPointsError(
            f"{len(points)} points would become one mean of {value}: {names}",
            remedy="put what they differ in on a hue or a panel, or choose with where=",
        )
    return rows[value].astype(float) / scale


def of_one_point(rows: pd.DataFrame, value: str, scale: float = 1.0) -> Interval:
    """Return the interval of ``value`` / ``scale`` over the repetitions of one point. Every mean is made here.

    Raises MixedPointsError if the rows are of several points, ValueError where there is none.
    """
    return interval(values_of_one_point(rows, value, scale))


def summarise(trials: pd.DataFrame, value: str, by: str | list[str] = "point_id") -> pd.DataFrame:
    """Return one row per group with n, mean, median, sd, low, high, cv of ``value``; empty groups are left out."""
    known = trials[trials[value].notna()]
    names = [by] if isinstance(by, str) else list(by)
    rows = []
    for key, group in known.groupby(names, sort=False, dropna=False):
        found = of_one_point(group, value)
        rows.append(dict(zip(names, key, strict=True)) | vars(found))
    return pd.DataFrame(rows, columns=[*names, "n", "mean", "median", "sd", "low", "high", "cv"])
