"""The results of a run of XDP traffic: its table of points, and what it says in a few lines."""

from __future__ import annotations

from typing import Any

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
    """Return a race's answer, verdicts, and the reasons of trials that are not valid."""
    settled = run.rows()
    counts = settled["verdict"].value_counts()
    lines = [race.race_line(run.directory)] if is_race(run) else []
    verdicts = ", ".join(f"{n} {verdict}" for verdict, n in counts.items())
    lines.append(f"verdicts: {verdicts}" if verdicts else "no trial has ended")
    others = settled[settled["verdict"] != "valid"]
    for (verdict, reason), rows in others.groupby(["verdict", "reason"], dropna=False):
        lines.append(f"  {verdict} ({len(rows)}): {reason}")
    return lines
