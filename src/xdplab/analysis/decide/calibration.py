"""How much equal runs of one machine differ, and whether the machine is fit to compare runs. Whole runs differ
(Kalibera and Jones 2013, levels of repetition): repetitions within a run do not reduce this. PASTRAMI (arXiv
2410.18644) did the same for packet rates over kernels and threw whole environments out as unfit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import exp, log, sqrt
from typing import Any

import numpy as np
import pandas as pd

from xdplab.analysis.intervals import t_quantile
from xdplab.errors import ResultsError

MOST_BETWEEN, MOST_WITHIN, MOST_INVALID = 0.04, 0.10, 0.05
"""Limits of a fit machine: relative SD of equal runs, relative SD of repetitions, share of trials without `valid`."""

LEAST_RUNS = 3
LEAST_REPETITIONS = 2


@dataclass(frozen=True)
class Calibration:
    """``between``: SD of the logarithm of a run's mean at one point; ``joint``: of its mean over all ``points``.

    Both include the variance of the repetitions, so they are rather too large. ``within``: SD of a repetition.
    ``names`` are the runs, ``lab`` is their lab, ``around`` describes the machine that they are valid for.
    """

    date: str
    lab: str
    around: Mapping[str, str]
    names: tuple[str, ...]
    points: int
    repetitions: int
    between: float
    joint: float
    within: float
    invalid: float
    worst: str

    @property
    def freedom(self) -> int:
        return len(self.names) - 1

    def spread(self, points: int) -> float:
        """Return the SD of the logarithm of a run's mean over so many points.

        A run has an effect on all of its points and one on each. ``between`` and ``joint`` give both: the variance of a
        mean over k points is common + own / k. Over more points than were calibrated it is not taken to be smaller.
        """
        if self.points < 2:
            return self.between
        whole, mean = self.between**2, self.joint**2
        common = min(max(0.0, (self.points * mean - whole) / (self.points - 1)), whole)
        return sqrt(common + (whole - common) / min(points, self.points))

    @property
    def unfit(self) -> list[str]:
        """Return the reasons why this machine is unfit to compare runs; empty if it is fit."""
        checks = (
            (self.between > MOST_BETWEEN, f"equal runs lie {self.between:.1%} apart (SD; {MOST_BETWEEN:.0%} at most)"),
            (self.within > MOST_WITHIN, f"repetitions spread by {self.within:.1%} (SD; {MOST_WITHIN:.0%} at most)"),
            (self.invalid > MOST_INVALID, f"{self.invalid:.0%} of the trials were not valid, most often: {self.worst}"),
        )
        return [problem for holds, problem in checks if holds]

    def detectable(self, repetitions: int) -> float:
        """Return the relative difference at one point that two runs with so many repetitions detect with 80 % power."""
        between, within = 2 * self.between**2, self.within**2 / repetitions
        variance = between + 2 * within
        freedom = variance**2 / (between**2 / self.freedom + 2 * within**2 / (repetitions - 1))
        return exp((t_quantile(0.975, freedom) + t_quantile(0.8, freedom)) * sqrt(variance)) - 1

    @property
    def text(self) -> str:
        """One line: which runs, when, how far apart."""
        return (
            f"the spread of runs is {self.between:.1%} (SD), by the calibration of {self.date[:10]}: "
            f"{len(self.names)} equal runs of {self.lab}"
        )

    def lines(self) -> list[str]:
        """Return the result as text: the spreads, the detectable differences, fit or unfit and why."""
        text_lines = [f"{self.text}; {self.points} points, {self.repetitions} repetitions in each run"]
        text_lines.append(f"repetitions spread by {self.within:.1%}, runs over all points by {self.joint:.1%} (SD)")
        shares = ", ".join(f"{self.detectable(n):.1%} with {n}" for n in (3, 10, 30))
        text_lines.append(f"two runs are told apart at one point with 80 % where they differ by {shares} repetitions")
        return [*text_lines, f"unfit to compare runs: {'; '.join(self.unfit)}" if self.unfit else "fit to compare runs"]

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"unfit": self.unfit}

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Calibration:
        """Return what `to_json` wrote. Raises KeyError, TypeError for anything else."""
        fields = {name: data[name] for name in cls.__dataclass_fields__}
        return cls(**{**fields, "names": tuple(fields["names"])})


def calibration(
    tables: Mapping[str, pd.DataFrame],
    *,
    date: str,
    lab: str,
    around: Mapping[str, str],
    value: str = "forwarded_pps",
) -> Calibration:
    """Return how much runs of one plan differ: ``tables`` has the settled trials of each by its name.

    Raises ResultsError if they do not show it: fewer than three runs, no point at maximum load with a valid rate in
    each of them, or no point with two valid repetitions in one run.
    """
    trials = pd.concat([table.assign(run=name) for name, table in tables.items()], ignore_index=True)
    good = trials[trials["verdict"].eq("valid").fillna(False) & trials[value].gt(0).fillna(False)]
    if "rate_requested_pps" in good:
        good = good[good["rate_requested_pps"].isna()]  # a paced rate is the one asked for: equal in all runs
    logs = pd.DataFrame({"run": good["run"], "point": good["point_id"], "log": [log(v) for v in good[value]]})
    means = logs.groupby(["point", "run"])["log"].mean().unstack("run").dropna()
    if means.empty or means.shape[1] < LEAST_RUNS:
        raise ResultsError(
            f"no point at maximum load has a valid rate in each of {LEAST_RUNS} runs or more",
            remedy="`xdplab audit` says why not",
        )
    apart = logs["log"] - logs.groupby(["point", "run"])["log"].transform("mean")
    freedom = len(logs) - logs.groupby(["point", "run"]).ngroups
    if not freedom:
        raise ResultsError(
            "no point has two valid repetitions in one run: how far repetitions spread is not known",
            remedy="calibrate with more `repetitions:`, or see `xdplab audit` for what was not valid",
        )
    bad = trials[~trials["verdict"].eq("valid").fillna(False)]
    return Calibration(
        date=date,
        lab=lab,
        around=around,
        names=tuple(tables),
        points=len(means),
        repetitions=int(trials["repetition"].max()),
        between=float(np.sqrt(means.var(axis=1, ddof=1).mean())),
        joint=float(means.mean(axis=0).std(ddof=1)),
        within=float(np.sqrt((apart**2).sum() / freedom)),
        invalid=len(bad) / len(trials),
        worst=str(bad["reason"].mode().iloc[0]) if len(bad) else "",
    )
