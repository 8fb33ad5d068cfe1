"""The results of a run of XDP traffic: its table of points, and what it says in a few lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from xdplab.analysis.conclusions import conclusions, doubt
from xdplab.analysis.finding_rules import NEEDED
from xdplab.analysis.fit import STAGE
from xdplab.analysis.sentences import WIDEST
from xdplab.analysis.series import plain, same_reason
from xdplab.analysis.summary import VALUES, WORDS, constant_words, for_people, points_summary, varying
from xdplab.plan.factors import FACTORS
from xdplab.studies.kind import Run
from xdplab.studies.tables import Table
from xdplab.studies.traffic import race
from xdplab.studies.traffic.kind import is_race
from xdplab.text import many

SHARED_BY_SLICES = frozenset(
    {"clock differs", "drift", "repetition apart", "repetitions differ", "repetitions form classes"}
)
"""Rules on what changes between or within windows: in slices both sides share each moment, so it cancels."""

READ = {*NEEDED, STAGE, *(factor.column for factor in FACTORS), *(column for column, _ in VALUES.values())}
"""The columns of the results."""
GROUPED = ("point_id", "trial_id", "lab", "verdict", "limited_by")
"""Texts by which rows are grouped. The others are read as categories: some have thousands of characters, and the same
in all rows."""

OF_WINDOWS = "rates of whole windows, which swing more than the race's slices: their ratio is not the answer"


def read(path: Path) -> pd.DataFrame:
    """Read the columns of the results, `plain` ones. Raises OSError, ValueError."""
    names = [name for name in pq.read_schema(path).names if name in READ]
    file = pq.ParquetFile(path, read_dictionary=[name for name in names if name not in GROUPED])
    parts = (names[first : first + 20] for first in range(0, len(names), 20))  # Arrow's copy is of some at a time
    table = pd.concat([plain(file.read(part).to_pandas(ignore_metadata=True), part) for part in parts], axis=1)
    pa.default_memory_pool().release_unused()
    return table


def tables(run: Run[Any]) -> dict[str, Table]:
    """Return one row per point: varying factors, n, means with their intervals, verdicts."""
    trials = run.rows(run.kind.of_results)
    if trials.empty:
        return {}
    alike = constant_words(trials, varying(trials))
    title = f"{many(trials['point_id'].nunique(), 'point')}, mean ± half of its 95 % interval over n valid repetitions"
    points = points_summary(trials, race.side_order(run.directory) if is_race(run) else ())
    latencies = "; latencies: geometric mean [its interval]" if "p50_us" in points else ""
    shown = for_people(points)
    is_wide = any(shown[name].str.contains(" to ").any() for name in WORDS.values() if name in shown)
    wide = f"; (least to most) where the interval's ends are more than {WIDEST:g}-fold apart" if is_wide else ""
    sliced = f"; {OF_WINDOWS}" if is_race(run) and trials["slices_ratio"].notna().any() else ""
    return {"points": Table(f"{title}{latencies}{wide}{sliced}; {alike}", shown, points)}


def summary(run: Run[Any]) -> list[str]:
    """Return the answer with its intervals, what to doubt in it, and the reasons of trials that are not valid."""
    trials = run.rows(run.kind.of_results)
    if trials.empty:
        return ["no trial has ended"]
    others = trials[trials["verdict"].ne("valid")]
    if len(others) == len(trials):
        return [f"No trial is valid: {_counts(trials)}.", *_reasons(others)]
    answer = [race.race_line(run.directory)] if is_race(run) else conclusions(trials)
    cancelled = SHARED_BY_SLICES if is_race(run) and race.standing_of(run.directory).by == "slices" else frozenset()
    lines = [*answer, doubt(run.findings(), str(run.directory.path), cancelled)]
    return [*lines, *_reasons(others, told=lines[-1])]


def _counts(trials: pd.DataFrame) -> str:
    """Return how many trials were measured, and how many have each verdict."""
    verdicts = trials["verdict"].value_counts()
    measured = [f"{verdicts['invalid']} measured"] if "invalid" in verdicts else []
    return ", ".join([*measured, *(f"{count} {verdict}" for verdict, count in verdicts.items())])


def _reasons(trials: pd.DataFrame, told: str = "") -> Iterator[str]:
    """Give one line for all trials of a verdict whose reasons differ in numbers only; none for a reason in ``told``."""
    for (verdict, _), rows in trials.groupby(["verdict", same_reason(trials)], dropna=False, sort=False):
        reason = rows["reason"].iloc[0]
        alike = "" if rows["reason"].nunique() == 1 else ", as"
        if str(reason) not in told:
            yield f"  {verdict}, {many(len(rows), 'trial')}{alike}: {reason}"
