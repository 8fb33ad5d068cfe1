"""Two runs, point by point: is b faster than a, and by how much at least."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, nan

import numpy as np
import pandas as pd

from xdplab.analysis.intervals import CONFIDENCE, t_quantile
from xdplab.analysis.series import PROGRAM, SETTING, valid

POINT = (*SETTING, *PROGRAM, "accesses", "dut_cpus")
COLUMNS = ("n_a", "n_b", "mean_a", "mean_b", "ratio", "low", "high", "differs", "reason")


@dataclass(frozen=True)
class Ratio:
    """``ratio`` is b over a of the geometric means.

    The interval is NaN where a side has one repetition, or only copies of one value: copies are no repetitions.
    """

    n_a: int
    n_b: int
    mean_a: float
    mean_b: float
    ratio: float
    low: float
    high: float

    @property
    def differs(self) -> bool | None:
        """True where the interval leaves out 1; None where there is no interval."""
        return None if np.isnan(self.low) else not self.low <= 1 <= self.high


def ratio(a: pd.Series, b: pd.Series, confidence: float = CONFIDENCE) -> Ratio:
    """Return b/a of positive values with its interval: Welch's t (1947) on the logarithms of the repetitions."""
    log_a, log_b = np.log(a.to_numpy(dtype=float)), np.log(b.to_numpy(dtype=float))
    n_a, n_b, shift = len(log_a), len(log_b), float(log_b.mean() - log_a.mean())
    means = float(np.exp(log_a.mean())), float(np.exp(log_b.mean()))
    if min(n_a, n_b) < 2:
        return Ratio(n_a, n_b, *means, exp(shift), nan, nan)
    parts = log_a.var(ddof=1) / n_a, log_b.var(ddof=1) / n_b
    variance = sum(parts)
    if min(parts) == 0:
        return Ratio(n_a, n_b, *means, exp(shift), nan, nan)
    freedom = variance**2 / (parts[0] ** 2 / (n_a - 1) + parts[1] ** 2 / (n_b - 1))
    half = t_quantile(0.5 + confidence / 2, freedom) * variance**0.5
    return Ratio(n_a, n_b, *means, exp(shift), exp(shift - half), exp(shift + half))


def compare(a: pd.DataFrame, b: pd.DataFrame, value: str = "forwarded_pps") -> pd.DataFrame:
    """Return one row a point of either run: its factors, n, geometric means, ratio b/a with 95 % interval.

    Only valid trials with a positive ``value`` count; where there is no ratio it is null and ``reason`` says why.
    """
    sides = [_values(trials, value) for trials in (a, b)]
    both = _points(a, b)
    rows = []
    for point in both.itertuples(index=False):
        factors = {name: getattr(point, name) for name in ("point_id", *POINT)}
        rows.append(factors | _row(*(side.get(str(point.point_id)) for side in sides)))
    table = pd.DataFrame(rows, columns=["point_id", *POINT, *COLUMNS])
    dtypes = {name: both[name].dtype for name in ("point_id", *POINT)}
    return table.astype(dtypes | {"n_a": "Int64", "n_b": "Int64", "differs": "boolean", "reason": "string"})


def _points(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """Return one row a point; where the runs' labs or kernels differ, both are named: ``6.12 / 6.18``."""
    both = pd.concat([a, b], ignore_index=True)
    first = both.drop_duplicates("point_id").copy()
    for name in ("lab", "kernel"):
        joint = both.groupby("point_id", sort=False)[name].agg(lambda found: " / ".join(dict.fromkeys(found.dropna())))
        first[name] = first["point_id"].map(joint).astype("string")
    return first


def _values(trials: pd.DataFrame, value: str) -> dict[str, pd.Series]:
    believed = valid(trials)
    positive = believed[believed[value].gt(0).fillna(False).astype(bool)]
    return {str(point): group[value].astype(float) for point, group in positive.groupby("point_id")}


def _row(a: pd.Series | None, b: pd.Series | None) -> dict[str, object]:
    if a is None or b is None:
        missing = "either run" if a is None and b is None else ("the first run" if a is None else "the second run")
        return {
            "n_a": 0 if a is None else len(a),
            "n_b": 0 if b is None else len(b),
            "reason": f"no valid trial in {missing}",
        }
    found = ratio(a, b)
    why = "one repetition has" if min(found.n_a, found.n_b) < 2 else "copies of one value have"
    reason = None if found.differs is not None else f"{why} no interval"
    return vars(found) | {"differs": found.differs, "reason": reason}
