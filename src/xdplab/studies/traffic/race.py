"""The state of a race, from its trials."""

from __future__ import annotations

import json

import pandas as pd

from xdplab.analysis.decide.race import Standing, standing
from xdplab.analysis.series import valid
from xdplab.errors import ResultsError
from xdplab.run.rundir import RunDirectory
from xdplab.studies.traffic.run_files import deciding_pairs, race_sides, run_plan, why_not_sliced
from xdplab.studies.traffic.runs import settled_trials


def standing_of(run: RunDirectory) -> Standing:
    """Return the state of the run's race, by its valid trials. Raises ResultsError for a run without a race."""
    plan = run_plan(run)
    if plan.race is None:
        raise ResultsError(f"{run.path} is not a race", remedy="`xdplab race A B`, or a plan with `race:`")
    arrangement = next(run.journal.events("planned"))["arrangement"]
    rows = valid(settled_trials(run))
    pairs = [(a.point_id, b.point_id) for a, b in deciding_pairs(plan, arrangement)]
    rates, slices = _by_trial(rows, "forwarded_pps"), _by_trial(rows, "slices_ratio")
    return standing(rates, slices, pairs, plan.race.margin)


def _by_trial(rows: pd.DataFrame, column: str) -> dict[tuple[str, int], float]:
    """Return the column's values that are there, by point and repetition."""
    keys = zip(rows["point_id"], rows["repetition"], rows[column], strict=True)
    return {(str(point), int(repetition)): float(value) for point, repetition, value in keys if not pd.isna(value)}


def race_line(run: RunDirectory) -> str:
    """Return the sides of a race and its state, in one line. Raises ResultsError for a run that is not a race."""
    standing = standing_of(run)
    a, b = race_names(run)
    return f"race of a ({a}) and b ({b}): {standing.text}{_why_by_windows(run, standing)}"


def race_names(run: RunDirectory) -> tuple[str, str]:
    """Return a description of a and of b of a race."""
    return race_sides(run_plan(run), next(run.journal.events("planned"))["arrangement"])


def _why_by_windows(run: RunDirectory, standing: Standing) -> str:
    """Return why programs did not take turns under one sender although the plan asks for it."""
    plan = run_plan(run)
    if standing.by == "slices" or plan.race is None or plan.race.by == "windows":
        return ""
    pairs, rows = deciding_pairs(plan, next(run.journal.events("planned"))["arrangement"]), settled_trials(run)
    believed = valid(rows)
    sliced = set(believed.loc[believed["slices_ratio"].notna(), "point_id"])
    a, b = next((a, b) for a, b in pairs if b.point_id not in sliced)
    reasons_of_trials = [
        json.loads(reasons) for reasons in rows.loc[rows["point_id"].eq(b.point_id), "null_reasons"].dropna()
    ]
    reason = why_not_sliced(a, b) or next(
        (one["slices_ratio"] for one in reasons_of_trials if "slices_ratio" in one), None
    )
    return f" ({reason})" if reason else ""
