"""Labs as a factor: the same points measured in several labs, and the effect of each lab over all points."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from math import exp, sqrt

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from xdplab.analysis.findings import Finding, files_of, points_of
from xdplab.analysis.intervals import CONFIDENCE, summarise, t_quantile
from xdplab.analysis.series import valid
from xdplab.text import many

MATTERS = 0.05
"""Labs that count as equal should differ by less than this share."""


@dataclass(frozen=True)
class LabRatio:
    """Ratio of the rate in lab ``b`` to that in ``a``, over the points that both measured, with its interval."""

    a: str
    b: str
    points: int
    trials: int
    ratio: float
    low: float
    high: float

    @property
    def differs(self) -> bool:
        return not self.low <= 1 <= self.high


def in_several_labs(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the valid trials at maximum load of points that more than one lab has measured."""
    if trials["lab"].nunique() < 2:
        return trials.iloc[:0]
    measured = valid(trials[trials["rate_requested_pps"].isna() & trials["lab"].notna()])
    measured = measured[measured["forwarded_pps"].gt(0).fillna(False).astype(bool)]
    labs = measured.groupby("point_id")["lab"].transform("nunique")
    return measured[labs > 1]


def by_lab(trials: pd.DataFrame) -> pd.DataFrame:
    """Return n, mean, median, sd, low, high, cv of the rate per lab, for each point measured in several labs."""
    return summarise(in_several_labs(trials), "forwarded_pps", ["point_id", "lab"])


def lab_ratios(trials: pd.DataFrame) -> list[LabRatio]:
    """Return the ratio of every two labs that have points in common.

    Least squares of log rate on point and lab without interaction (two-way analysis of variance, unbalanced: Searle,
    Linear Models, ch. 7); t intervals, by Bonferroni over the pairs. Without a spare repetition there is none.
    """
    rows = in_several_labs(trials)
    labs = sorted(rows["lab"].unique())
    points = {lab: set(rows.loc[rows["lab"] == lab, "point_id"]) for lab in labs}
    pairs = [(a, b) for a, b in combinations(labs, 2) if points[a] & points[b]]
    spare = len(rows) - rows["point_id"].nunique() - (len(labs) - 1)
    if not pairs or spare < 1:
        return []
    effects = _effects(rows, labs, spare)
    t = t_quantile(1 - (1 - CONFIDENCE) / 2 / len(pairs), spare)
    ratios = []
    for a, b in pairs:
        common = points[a] & points[b]
        count = int((rows["point_id"].isin(common) & rows["lab"].isin((a, b))).sum())
        ratios.append(LabRatio(a, b, len(common), count, *effects.ratio(a, b, t)))
    return ratios


def labs_differ(trials: pd.DataFrame) -> Iterator[Finding]:
    """The same points forward more in one lab than in another. Labs that differ by 5 % or more are not equal."""
    rows = in_several_labs(trials)
    for ratio in lab_ratios(trials):
        if not ratio.differs:
            continue
        pair = rows[rows["lab"].isin([ratio.a, ratio.b])]
        pair = pair[pair.groupby("point_id")["lab"].transform("nunique") > 1]
        medians = {f"median_pps_{lab}": float(g["forwarded_pps"].median()) for lab, g in pair.groupby("lab")}
        points = f"{many(ratio.points, 'point')} in common"
        interval = f"{ratio.low:.1%} to {ratio.high:.1%}"
        what = f"lab {ratio.b} forwards {ratio.ratio:.1%} of what lab {ratio.a} does ({interval}), over {points}"
        numbers = {"ratio": ratio.ratio, "low": ratio.low, "high": ratio.high, **medians}
        severity = "warning" if abs(ratio.ratio - 1) >= MATTERS else "info"
        yield Finding("labs differ", severity, what, points_of(pair), numbers, files_of(pair))  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Effects:
    """Each lab's effect on the log rate (the first lab's is 0), and their covariance."""

    labs: list[str]
    of_lab: NDArray[np.float64]
    covariance: NDArray[np.float64]

    def ratio(self, a: str, b: str, t: float) -> tuple[float, float, float]:
        """Return the ratio of lab ``b`` to lab ``a``, and its interval of ``t`` standard errors."""
        i, j = self.labs.index(a), self.labs.index(b)
        shift = float(self.of_lab[j] - self.of_lab[i])
        half = t * sqrt(max(0.0, float(self.covariance[i, i] + self.covariance[j, j] - 2 * self.covariance[i, j])))
        return exp(shift), exp(shift - half), exp(shift + half)


def _effects(rows: pd.DataFrame, labs: list[str], spare: int) -> _Effects:
    """Fit the labs' effects.

    The points' own effects are first removed from both sides (Frisch and Waugh, 1933).
    """
    rate = pd.Series(np.log(rows["forwarded_pps"].to_numpy(dtype=float)), index=rows.index)
    dummies = pd.DataFrame({lab: rows["lab"].eq(lab).astype(float) for lab in labs})
    point = rows["point_id"].to_numpy()
    y = (rate - rate.groupby(point).transform("mean")).to_numpy()
    x = (dummies - dummies.groupby(point).transform("mean")).to_numpy()[:, 1:]
    inverse = np.linalg.pinv(x.T @ x)
    effects = inverse @ x.T @ y
    residual = y - x @ effects
    variance = float(residual @ residual) / spare
    whole = np.zeros((len(labs), len(labs)))
    whole[1:, 1:] = variance * inverse
    return _Effects(labs, np.concatenate([[0.0], effects]), whole)
