"""The results of a run of XDP traffic: its table of points, and what it says in a few lines."""

from __future__ import annotations

from typing import Any

from xdplab.analysis.conclusions import conclusions
from xdplab.analysis.doubts import doubt
from xdplab.analysis.summary import constant_words, for_people, points_summary, varying
from xdplab.studies.kind import Run
from xdplab.studies.tables import Table
from xdplab.studies.traffic import race
from xdplab.studies.traffic.kind import is_race


def tables(run: Run[Any]) -> dict[str, Table]:
    """Return one row per point: varying factors, n, means with their intervals, verdicts."""
    trials = run.rows()
    if trials.empty:
        return {}
    alike = constant_words(trials, varying(trials))
    title = f"{trials['point_id'].nunique()} points, mean ± half of its 95 % interval over n valid repetitions"
    points = points_summary(trials)
    return {"points": Table(f"{title}; {alike}", for_people(points), points)}


def summary(run: Run[Any]) -> list[str]:
    """Return the answer with its intervals, what to doubt in it, and the reasons of trials that are not valid."""
    trials = run.rows()
    if trials.empty:
        return ["no trial has ended"]
    answer = [race.race_line(run.directory)] if is_race(run) else conclusions(trials)
    lines = [*answer, doubt(run.findings(), str(run.directory.path))]
    others = trials[trials["verdict"] != "valid"]
    for (verdict, reason), rows in others.groupby(["verdict", "reason"], dropna=False):
        lines.append(f"  {verdict} ({len(rows)}): {reason}")
    return lines
