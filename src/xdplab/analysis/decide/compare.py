"""Is the second of two runs faster, slower or the same, by point and overall, and could the runs have shown it?

Whole runs differ: equal ones differed by 1.5 to 3.8 % on one machine, for any number of repetitions. So a
run is a random effect (Kalibera and Jones 2013, levels of repetition): the variance of a difference has the spread of
runs as its floor, taken from equal runs where they are given, else assumed. Each point is a hypothesis, and so are all
of them together: Holm (1979) controls the false alarms of the family. Equivalence is two one-sided tests (Schuirmann
1987).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, isinf, log, nan, sqrt
from typing import Literal

import numpy as np
import pandas as pd

from xdplab.analysis import MARGIN, OFFERED, QUEUED
from xdplab.analysis.decide import Decision
from xdplab.analysis.decide.calibration import Calibration
from xdplab.analysis.intervals import CONFIDENCE, special, t_quantile
from xdplab.analysis.series import PROGRAM, SETTING, key_of, settled, valid
from xdplab.analysis.summary import paced
from xdplab.analysis.values import records
from xdplab.analysis.verdicts import is_senders_rate
from xdplab.plan.factors import FACTORS
from xdplab.run.columns import RATES, TIMES
from xdplab.run.frames import DTYPES as FRAME_DTYPES
from xdplab.text import unit_of

Verdict = Literal["faster", "slower", "higher", "lower", "equivalent", "undecided"]
Logs = Mapping[str, pd.Series]
"""The logarithms of each point, by repetition."""

ALPHA, POWER = 1 - CONFIDENCE, 0.8
SURE = 0.999
"""The confidence of the floor's bound. If runs spread too far for any number of repetitions, only pilots whose equal
runs are close together by chance give a number, so these must be rare. With 95 %, 3 % of the pilots gave one at a
spread of 0.7 %, and 69 % of these numbers held instead of the promised 80 %.
"""
ASSUMED_SPREAD = 0.04
"""Relative SD of equal runs if none are given: the largest in ten equal runs of a netns lab was 3.8 %."""

POINT = (*SETTING, *PROGRAM, "accesses", "dut_cpus")
FOUND = (
    "n_a", "n_b", "mean_a", "mean_b", "ratio", "low", "high", "verdict", "differs", "p_differs", "p_equivalent",
    "detectable", "needed", "reason",
)  # fmt: skip
DTYPES = dict.fromkeys(("n_a", "n_b", "needed"), "Int64") | dict.fromkeys(("verdict", "reason"), "string")
DTYPES |= {"differs": "boolean"}


_NEEDED = {f.column: f.dtype for f in FACTORS} | {"trial_id": "str", "dut_cpus": "int", "order": "int"}


def as_points(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows of another kind of run as trials, with the columns that a comparison reads, as null."""
    nulls = {name: pd.array([None] * len(rows), dtype=FRAME_DTYPES[dtype]) for name, dtype in _NEEDED.items()}  # type: ignore[call-overload]
    return rows.assign(**{name: cells for name, cells in nulls.items() if name not in rows})


@dataclass(frozen=True)
class Floor:
    """The observed variance of the difference of two equal runs, which no number of repetitions reduces.

    ``seen`` contains ``repetitions``, the part that the repetitions of the equal runs add; ``freedom``: its degrees.
    """

    seen: float
    repetitions: float
    freedom: float

    @property
    def estimate(self) -> float:
        return max(self.seen - self.repetitions, 0)

    @property
    def at_most(self) -> float:
        """Return the upper bound of the floor, with 99.9 % (``SURE``), given the observations.

        seen x freedom / chi2(freedom), truncated at the part that repetitions add: Box and Tiao 1973,
        Bayesian Inference in Statistical Analysis, 5.2, for the variance between groups.
        """
        if isinf(self.freedom):
            return self.estimate
        half, below = self.freedom / 2, self.repetitions  # 2 gammaincinv(freedom / 2, p) is the quantile of chi2
        cut = float(special.gammainc(half, half * self.seen / below)) if below else 1.0
        quantile = float(special.gammaincinv(half, (1 - SURE) * cut))
        if not quantile:  # no spread was observed: only the tail of the posterior
            return below * (float((1 - SURE) ** (-1 / half)) - 1)
        return self.seen * half / quantile - below


@dataclass(frozen=True)
class Difference:
    """b minus a in logarithms, its standard error with degrees of freedom, and the floor of its variance.

    ``within`` is the variance of a single repetition, from both runs.
    """

    log_ratio: float
    se: float
    freedom: float
    floor: Floor
    within: float

    def p_differs(self) -> float:
        """Return the two-sided p of a ratio of 1."""
        return 2 * float(special.stdtr(self.freedom, -abs(self.log_ratio) / self.se))

    def p_equivalent(self, margin: float) -> float:
        """Return the greater p of the two one-sided tests against the margin."""
        inside = log1p_of(margin) - abs(self.log_ratio)
        return float(special.stdtr(self.freedom, -inside / self.se))

    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval of the ratio, of this point alone."""
        half = t_quantile(0.5 + CONFIDENCE / 2, self.freedom) * self.se
        return exp(self.log_ratio - half), exp(self.log_ratio + half)

    def detectable(self, family: int) -> float:
        """Return the relative difference of the runs that is detected with 80 % power, in a family of this many
        tests."""
        reach = t_quantile(1 - ALPHA / 2 / family, self.freedom) + t_quantile(POWER, self.freedom)
        return exp(reach * self.se) - 1

    def needed(self, family: int, margin: float) -> int | None:
        """Return the repetitions per run that show equal runs as equivalent with 80 % power; None if no number does.

        The test uses the estimate of the floor, but the runs differ by the floor itself. Few equal runs determine it,
        so the power is computed at the highest plausible floor (`SURE`): then the number is not too low by chance.
        """
        quantile = t_quantile(1 - ALPHA / family, self.freedom)

        def power(repetitions: int) -> float:
            within = 2 * self.within / repetitions
            spare = log1p_of(margin) - quantile * sqrt(self.floor.estimate + within)
            return 1 - 2 * float(special.ndtr(-spare / sqrt(self.floor.at_most + within))) if spare > 0 else 0.0

        if power(_ENDLESS) < POWER:
            return None
        return bisect_left(range(_ENDLESS), POWER, lo=2, key=power)


_ENDLESS = 1_000_000_000
"""A number of repetitions that leaves only the floor."""


def log1p_of(margin: float) -> float:
    """Return the margin on the logarithmic scale, where it is symmetric."""
    return log(1 + margin)


@dataclass(frozen=True)
class EqualRuns:
    """The spread of equal runs: from ``runs`` (degrees of freedom: their number minus one), else from the machine's
    ``calibration``, else assumed.
    """

    runs: tuple[Logs, ...] = ()
    calibration: Calibration | None = None

    @property
    def text(self) -> str:
        if self.calibration is not None and not self.runs:
            unfit = f"; this machine is unfit to compare runs: {'; '.join(self.calibration.unfit)}"
            return self.calibration.text + (unfit if self.calibration.unfit else "")
        if not self.runs:
            return (
                f"the spread of equal runs is assumed to be {ASSUMED_SPREAD:.0%}, the most that equal runs of a netns "
                "lab showed; it was not measured here"
            )
        return f"the spread of runs comes from {len(self.runs)} equal runs"

    def difference(self, a: Logs, b: Logs, points: Sequence[str]) -> Difference:
        """Return b minus a over ``points`` with equal weights. Every point has two repetitions or more on both
        sides."""
        shift = float(np.mean([b[p].mean() - a[p].mean() for p in points]))
        within = [_spread_within(side, points) for side in (a, b)]
        if not self.runs and self.calibration is not None:
            return _summed(shift, within, self.calibration.spread(len(points)), self.calibration.freedom)
        if not self.runs:
            return _summed(shift, within, ASSUMED_SPREAD)
        means = np.array([np.mean([run[p].mean() for p in points]) for run in self.runs])
        return _calibrated(shift, within, float(means.var(ddof=1)), [_spread_within(run, points) for run in self.runs])


@dataclass(frozen=True)
class Within:
    """The variance of one repetition of a run, averaged over points, and how many there were."""

    variance: float
    n: int


def _spread_within(side: Logs, points: Sequence[str]) -> Within:
    """A slow repetition is slow at all points, so whole repetitions are the observations, not their points."""
    if len(points) == 1:
        return Within(float(side[points[0]].var(ddof=1)), len(side[points[0]]))
    apart = pd.DataFrame({point: side[point] - side[point].mean() for point in points}).mean(axis=1)
    return Within(float((apart**2).sum()) / (len(apart) - 1), len(apart))


def _summed(shift: float, within: Sequence[Within], sd: float, known_by: float = inf) -> Difference:
    """Welch and Satterthwaite: the runs' SD and that of the repetitions have separate degrees of freedom."""
    between = 2 * sd**2
    parts = [one.variance / one.n for one in within]
    variance = between + sum(parts)
    spent = between**2 / known_by + sum(part**2 / (one.n - 1) for part, one in zip(parts, within, strict=True))
    freedom = variance**2 / spent
    floor = Floor(between, 0, known_by)
    return Difference(shift, sqrt(variance), freedom, floor, sum(one.variance for one in within) / 2)


def _calibrated(shift: float, compared: Sequence[Within], means: float, equal: Sequence[Within]) -> Difference:
    """The means of equal runs spread by ``means``, corrected for a different number of repetitions."""
    runs = [*compared, *equal]
    within = sum(one.variance * (one.n - 1) for one in runs) / sum(one.n - 1 for one in runs)
    theirs = within * sum(1 / one.n for one in equal) / len(equal)
    ours = within * sum(1 / one.n for one in compared)
    variance = (
        2 * means if {one.n for one in compared} == {one.n for one in equal} else max(2 * (means - theirs) + ours, ours)
    )
    freedom = len(equal) - 1
    return Difference(shift, sqrt(variance), freedom, Floor(2 * means, 2 * theirs, freedom), within)


_FILES = ("file", "file_sha256", "frames_sha256")
NAMED = (*(f.column for f in FACTORS if f.identity and f.name not in _FILES), "program_name")
"""What a point is called: its factors, without its program's file, which has a name, and without files' contents."""


def same_points(*tables: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the tables of several runs with one ``point_id`` for points of one name: a file may have been edited.

    Where one run has two contents under one name, they stay apart in it.
    """
    names = tuple(name for name in NAMED if all(name in table for table in tables))
    ids: dict[str, object] = {}
    renamed = []
    for table in tables:
        key = key_of(table, names)
        alone = table["point_id"].groupby(key).transform("nunique").eq(1)
        for name, point in dict(zip(key[alone], table["point_id"][alone], strict=True)).items():
            ids.setdefault(str(name), point)
        renamed.append(table.assign(point_id=table["point_id"].where(~alone, key.map(ids).astype("string"))))
    return renamed


def decide(
    a: pd.DataFrame,
    b: pd.DataFrame,
    value: str = "forwarded_pps",
    *,
    equal: Sequence[pd.DataFrame] | Calibration = (),
    margin: float = MARGIN,
) -> Decision:
    """Compare ``b`` to ``a`` by valid trials of ``value``.

    ``equal`` gives the spread of equal runs: the trials of runs that measured the same, or the machine's calibration.
    If a point has no ratio, ``reason`` says why.
    """
    calibration, tables = (equal, ()) if isinstance(equal, Calibration) else (None, equal)
    a, b, *tables = same_points(a, b, *tables)
    (first, why_first), (second, why_second) = _logs(a, value), _logs(b, value)
    sides, reasons = (first, second), (why_first, why_second)
    spread = EqualRuns(tuple(_logs(trials, value)[0] for trials in tables), calibration)
    both = _points(a, b)
    names = [str(point) for point in both["point_id"]]
    carried = _carried(a, value) & _carried(b, value)
    differences: dict[str, Difference] = {}
    problems: dict[str, str] = {}
    for point in names:
        problem = OFFERED if point in carried else _problem(point, sides, reasons, spread.runs)
        if problem is None:
            differences[point] = spread.difference(first, second, [point])
        else:
            problems[point] = problem
    together = _together(list(differences), (a, b), value)
    whole = spread.difference(first, second, together) if len(together) > 1 else None
    family = [*differences.values(), *([whole] if whole else [])]
    answers = _answers(family, value, margin)
    by_point = dict(zip(differences, answers, strict=False))
    joint = answers[-1] if whole else by_point[together[0]] if len(differences) > 1 else None
    rows = [_means(sides, point) | by_point.get(point, {"reason": problems.get(point)}) for point in names]
    table = both[["point_id", *POINT]].reset_index(drop=True)
    table = pd.concat([table, pd.DataFrame(rows, columns=list(FOUND))], axis=1)
    joint = None if joint is None else joint | {"points": len(together)}
    return Decision(table.astype(DTYPES), joint, spread.text, margin)


def _together(points: list[str], sides: Sequence[pd.DataFrame], value: str) -> list[str]:
    """Return the points that the joint ratio is of. Of rates, those at maximum load, if there are any: a paced rate is
    the one that was asked for in both runs, and would hide the others' difference.
    """
    if unit_of(value) not in RATES:
        return points
    paced = {str(p) for side in sides for p in side.loc[side["rate_requested_pps"].notna(), "point_id"].dropna()}
    return [point for point in points if point not in paced] or points


def _carried(trials: pd.DataFrame, value: str) -> set[str]:
    """Return the points whose rates are the sender's in each trial."""
    if unit_of(value) not in RATES or "limited_by" not in trials:
        return set()
    rows = records(valid(trials)[["point_id", "arrangement", "limited_by"]])
    return {str(row["point_id"]) for row in rows} - {str(row["point_id"]) for row in rows if not is_senders_rate(row)}


def compare(a: pd.DataFrame, b: pd.DataFrame, value: str = "forwarded_pps") -> pd.DataFrame:
    """Return the points of `decide`: their factors, n, geometric means, ratio b/a with 95 % interval, verdict."""
    return decide(a, b, value).points


def _answers(family: Sequence[Difference], value: str, margin: float) -> list[dict[str, object]]:
    differs = holm([one.p_differs() for one in family])
    same = holm([one.p_equivalent(margin) for one in family])
    rows: list[dict[str, object]] = []
    for one, apart, equal in zip(family, differs, same, strict=True):
        low, high = one.interval()
        rows.append(
            {
                "ratio": exp(one.log_ratio), "low": low, "high": high, "differs": apart <= ALPHA,
                "verdict": _verdict(one, apart, equal, value), "p_differs": apart, "p_equivalent": equal,
                "detectable": one.detectable(len(family)), "needed": one.needed(len(family), margin), "reason": None,
            }
        )  # fmt: skip
    return rows


def _verdict(one: Difference, apart: float, equal: float, value: str) -> Verdict:
    """A difference inside the margin counts as equivalent; ``differs`` still records that it was detected."""
    if equal <= ALPHA:
        return "equivalent"
    if apart > ALPHA:
        return "undecided"
    more = one.log_ratio > 0
    if unit_of(value) in RATES:
        return "faster" if more else "slower"
    if unit_of(value) in TIMES:
        return "slower" if more else "faster"
    return "higher" if more else "lower"


def holm(p: Sequence[float]) -> list[float]:
    """Return p adjusted for the family: Holm (1979), step down."""
    order = np.argsort(p)
    steps = np.array([p[place] * (len(p) - rank) for rank, place in enumerate(order)])
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1) if len(p) else steps
    return [float(value) for value in adjusted]


def _logs(trials: pd.DataFrame, value: str) -> tuple[dict[str, pd.Series], dict[str, str]]:
    """Return each point's logarithms, or why it has none."""
    believed = valid(trials)
    queued = believed[believed[value].notna()]
    measured = _at_their_load(queued, value)
    logs: dict[str, pd.Series] = {}
    reasons = dict.fromkeys(set(queued["point_id"].map(str)) - set(measured["point_id"].map(str)), QUEUED)
    for point, group in measured.groupby("point_id"):
        values = group[value].to_numpy(dtype=float)
        if (values <= 0).any():
            reasons[str(point)] = f"no ratio: {value} is at or below 0"
        else:
            logs[str(point)] = pd.Series(np.log(values)).groupby(group["repetition"].to_numpy()).mean()
    absent = set(settled(trials)["point_id"].dropna().map(str)) - set(logs) - set(reasons)
    return logs, reasons | dict.fromkeys(absent, "no valid trial")


def _at_their_load(trials: pd.DataFrame, value: str) -> pd.DataFrame:
    """Return the trials whose latency is of their load, not of a full queue; a study's is of no load."""
    return trials[paced(trials)] if value.startswith("latency_") and "offered_pps" in trials else trials


def _problem(
    point: str, sides: Sequence[Logs], reasons: Sequence[Mapping[str, str]], equal: Sequence[Logs]
) -> str | None:
    for side, why, name in zip(sides, reasons, ("first", "second"), strict=True):
        if point not in side:
            return f"{why.get(point, 'no such point')} in the {name} run"
    if min(len(side[point]) for side in sides) < 2:
        return "one repetition has no interval"
    if min(np.ptp(side[point]) for side in sides) == 0:
        return "copies of one value have no interval"
    if any(point not in run or len(run[point]) < 2 for run in equal):
        return "not every equal run has two repetitions of it"
    return None


def _means(sides: Sequence[Logs], point: str) -> dict[str, object]:
    """Return the values that need no interval: repetitions, geometric means and their ratio."""
    logs = [side.get(point) for side in sides]
    means = [nan if x is None else float(x.mean()) for x in logs]
    counts = {f"n_{name}": 0 if x is None else len(x) for name, x in zip("ab", logs, strict=True)}
    return counts | {"mean_a": exp(means[0]), "mean_b": exp(means[1]), "ratio": exp(means[1] - means[0])}


def _points(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """Return one row per point; where the runs' labs or kernels differ, both are named: ``6.12 / 6.18``."""
    both = pd.concat([a, b], ignore_index=True)
    first = both.drop_duplicates("point_id").copy()
    for name in ("lab", "kernel"):
        joint = both.groupby("point_id", sort=False)[name].agg(
            lambda values: " / ".join(dict.fromkeys(values.dropna()))
        )
        first[name] = first["point_id"].map(joint).astype("string")
    return first


DRIFT_P, DRIFT_SHARE = 0.01, 0.01
"""A drift is reported if its p is below 0.01 and it moves the values by 1 % or more."""


@dataclass(frozen=True)
class Drift:
    """How much later trials of a run differ from earlier ones, over the whole run: ``share``, and its p."""

    share: float
    p: float

    @property
    def significant(self) -> bool:
        return self.p < DRIFT_P and abs(self.share) >= DRIFT_SHARE


def drift(trials: pd.DataFrame, value: str = "forwarded_pps") -> Drift | None:
    """Return the trend of the logarithm over the order of the trials, without the points' effects; None without
    repetitions. Least squares within points: the order is random in each repetition, so a drift affects all points
    alike. Of rates, only those at maximum load show it: a paced rate is the one that was asked for.
    """
    rows = _at_their_load(valid(trials), value)
    if unit_of(value) in RATES:
        rows = rows[rows["rate_requested_pps"].isna()]
    rows = rows[rows[value].gt(0).fillna(False).astype(bool) & rows["order"].notna()]
    point, order = rows["point_id"], rows["order"].astype(float)
    logs = pd.Series(np.log(rows[value].to_numpy(dtype=float)), index=rows.index)
    y = logs - logs.groupby(point).transform("mean")
    x = order - order.groupby(point).transform("mean")
    freedom, spread = len(rows) - point.nunique() - 1, float((x**2).sum())
    if freedom < 1 or not spread:
        return None
    trend = float((x * y).sum()) / spread
    error = sqrt(float(((y - trend * x) ** 2).sum()) / freedom / spread)
    p = 2 * float(special.stdtr(freedom, -abs(trend) / error)) if error else nan
    return Drift(exp(trend * float(np.ptp(order))) - 1, p)
