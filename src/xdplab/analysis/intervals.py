"""Means and intervals over repetitions. The unit is the repetition, never the sample within a trial."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp, nan, sqrt
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from xdplab.errors import XdplabError
from xdplab.lazy import lazily

with lazily():
    from scipy import special as special

CONFIDENCE = 0.95


Scale = Literal["linear", "log", "logit", "geometric", "ranks"]
"""How the ends are found, by the natural scale of a quantity; see `Spread.of`."""

_MOST_EXPONENT = 300.0  # beyond it the end is that of the range in any case


@dataclass(frozen=True)
class Spread:
    """Statistics of one point over its repetitions.

    ``low`` and ``high`` are the ends of the 95 % interval of the mean, or of the median (scale "ranks"). They, ``sd``
    and ``cv`` are NaN for a single repetition.
    """

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

    @classmethod
    def of(cls, values: Iterable[float], scale: Scale = "linear") -> Spread:
        """Return the statistics of repetitions. Raises ValueError without any value.

        ``linear``: mean +- t(0.975, n-1) x sd/sqrt(n): Student (1908); two-sided.

        ``log`` for values above 0, ``logit`` for shares between 0 and 1: mean and SD are those of the values; the
        standard error is transformed by the delta method (times dg/dx at the mean), and the ends are transformed back,
        so none of them leaves the range of the quantity. A mean at the end of its range has no interval.

        ``geometric``, for values above 0: mean and ends are those of the logarithms, transformed back: a ratio and its
        inverse are equivalent.

        ``ranks``: the median's interval, for any distribution (`_rank_ends`); it needs six repetitions.
        """
        sample = np.asarray(values if isinstance(values, pd.Series | np.ndarray) else list(values), dtype=float)
        if not len(sample):
            raise ValueError("a spread needs at least one repetition")
        n, mean, sd = len(sample), float(sample.mean()), float(sample.std(ddof=1)) if len(sample) > 1 else nan
        half = t_quantile(0.5 + CONFIDENCE / 2, n - 1) * sd / sqrt(n) if n > 1 else nan
        low, high = mean - half, mean + half
        plain = cls(n, mean, _median(sample), sd, low, high, sd / mean if mean else nan)
        if scale == "geometric":
            logs = cls.of(np.log(sample))
            mean, low, high = (float(np.exp(end)) for end in (logs.mean, logs.low, logs.high))
        elif scale == "ranks":
            low, high = _rank_ends(sample)
        elif scale != "linear" and half > 0:
            low, high = _delta_ends(mean, (high - low) / 2, scale)
        return replace(plain, mean=mean, low=low, high=high)


def _median(sample: NDArray[np.float64]) -> float:
    """As numpy's, which takes 20 times as long for a few values."""
    ordered, middle = np.sort(sample), len(sample) // 2
    if np.isnan(ordered[-1]):
        return nan
    return float(ordered[middle] if len(sample) % 2 else (ordered[middle - 1] + ordered[middle]) / 2)


@lru_cache(maxsize=1024)
def t_quantile(share: float, freedom: float) -> float:
    """Return the value below which ``share`` of Student's t distribution lies; ``freedom``: its degrees of freedom.

    As scipy.stats.t.ppf, which calls the same function and takes a second to import.
    """
    return float(special.stdtrit(freedom, share))


def _delta_ends(mean: float, half: float, scale: Scale) -> tuple[float, float]:
    if mean <= 0 or (scale == "logit" and mean >= 1):
        return nan, nan
    if scale == "log":
        factor = exp(min(half / mean, _MOST_EXPONENT))
        return mean / factor, mean * factor
    odds, factor = mean / (1 - mean), exp(min(half / (mean * (1 - mean)), _MOST_EXPONENT))
    low, high = odds / factor, odds * factor
    return low / (1 + low), high / (1 + high)


def _rank_ends(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the median's interval by order statistics, (NaN, NaN) if there is none.

    The narrowest symmetric pair x(k), x(n+1-k) with 1 - 2 P(Bin(n, 1/2) < k) >= confidence: Thompson (1936).
    """
    ordered, n = np.sort(values), len(values)
    held = [k for k in range(1, n // 2 + 1) if 1 - 2 * float(special.bdtr(k - 1, n, 0.5)) >= CONFIDENCE]
    return (float(ordered[held[-1] - 1]), float(ordered[n - held[-1]])) if held else (nan, nan)


class MixedPointsError(XdplabError):
    """An average over two different points would describe neither."""

    exit_code = 2


def values_of_one_point(rows: pd.DataFrame, value: str, scale: float = 1.0) -> pd.Series:
    """Return ``value`` / ``scale`` of each repetition of one point: the values behind each average.

    Raises MixedPointsError if the rows are of several points.
    """
    points = [point for point in rows["point_id"].unique() if not pd.isna(point)]  # one: to drop nulls takes longer
    if len(points) > 1:
        names = ", ".join(sorted(map(str, points))[:4])
        raise MixedPointsError(
            f"{len(points)} points would become one mean of {value}: {names}",
            remedy="put what they differ in on a hue or a panel, or choose with where=",
        )
    return rows[value].astype(float) if scale == 1.0 else rows[value].astype(float) / scale


def of_one_point(rows: pd.DataFrame, value: str, scale: float = 1.0) -> Spread:
    """Return the spread of ``value`` / ``scale`` over the repetitions of one point.

    Raises MixedPointsError if the rows are of several points, ValueError where there is none.
    """
    return Spread.of(values_of_one_point(rows, value, scale))


def summarise(trials: pd.DataFrame, value: str, by: str | list[str] = "point_id") -> pd.DataFrame:
    """Return one row per group with n, mean, median, sd, low, high, cv of ``value``; empty groups are left out."""
    measured = trials[trials[value].notna()]
    names = [by] if isinstance(by, str) else list(by)
    rows = []
    for key, group in measured.groupby(names, sort=False, dropna=False):
        rows.append(dict(zip(names, key, strict=True)) | vars(of_one_point(group, value)))
    return pd.DataFrame(rows, columns=[*names, "n", "mean", "median", "sd", "low", "high", "cv"])
