"""The tables of a run of XDP traffic, which are derived from its journal and raw files: trials and samples."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd

from xdplab.analysis.derived import Visits, derive
from xdplab.analysis.verdicts import RULES_VERSION
from xdplab.plan import Trial
from xdplab.run.derived import Recipe, Tables, all_gone, table, warn_gone
from xdplab.run.frames import frame
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import attempts_of
from xdplab.studies.traffic.columns import NAMES, SAMPLES, columns_version, trials_frame
from xdplab.studies.traffic.rows import Row, attempt_rows
from xdplab.studies.traffic.run_files import run_plan, run_trials_of


def _derive(run: RunDirectory, before: Tables) -> Tables:
    """Make the rows of every attempt from the journal and the raw files.

    If raw files are gone, the run's existing rows stay as they are, and their reason says so.
    """
    trials = {t.trial_id: t for t in run_trials_of(run)}
    window_s = run_plan(run).trial.window_s
    gone = all_gone(run)
    warn_gone(run, gone)
    kept = {(attempt.trial_id, attempt.attempt) for attempt in gone}
    old_rows, old_samples = (_by_attempt(before.get(name), kept) for name in (TRIALS, SAMPLES_FILE))
    rows: list[Row] = []
    samples: list[Row] = []
    for attempt in attempts_of(run):
        key = (attempt.trial_id, attempt.attempt)
        if key in old_rows:
            # If a column is newer than the table and is a factor, the plan gives its value.
            rows += map(_marked, old_rows[key])
            samples += old_samples.get(key, [])
        else:
            derived = attempt_rows(run, trials[attempt.trial_id], attempt, window_s=window_s)
            rows.append(derived.row)
            samples += derived.samples
    table = derive(trials_frame(rows), _visits(run, trials))
    return {TRIALS: with_own_metrics(table), SAMPLES_FILE: frame(samples, SAMPLES)}


def _visits(run: RunDirectory, trials: Mapping[str, Trial]) -> Visits:
    """Return which attempts a block had in a row: another block in the same lab, or another session, ends a visit.

    Labs at once measure different blocks, and their attempts end in between each other.
    """
    visits: dict[tuple[str, int], tuple[int, float]] = {}
    at: dict[str | None, tuple[tuple[int, int], int]] = {}  # by lab: the block and repetition, and the visit's number
    number = 0
    for event in run.journal.events("planned", "hosts", "shared", "finished"):
        if event["event"] != "finished":
            at.clear()
            continue
        trial, lab = trials[event["trial_id"]], (event.get("facts") or {}).get("lab")
        place = trial.block, trial.repetition
        if lab not in at or at[lab][0] != place:
            number += 1
            at[lab] = place, number
        visits[trial.trial_id, event["attempt"]] = at[lab][1], float(event["time"])
    return visits


GONE = "its raw files are gone: the verdict is the one of before"


def _marked(row: Row) -> Row:
    reason = row.get("reason")
    return row if GONE in str(reason) else row | {"reason": f"{reason}; {GONE}" if reason else GONE}


def _by_attempt(table: pd.DataFrame | None, kept: set[tuple[str, int]]) -> dict[tuple[str, int], list[Row]]:
    """Return the rows of these attempts, nulls as None, without columns of the plan's own."""
    by_attempt: dict[tuple[str, int], list[Row]] = {}
    if table is None or not kept:
        return by_attempt
    names = [name for name in table.columns if name in NAMES or name in SAMPLE_NAMES]
    for row in table[names].astype(object).where(table[names].notna(), None).to_dict("records"):
        if (key := (row["trial_id"], row["attempt"])) in kept:
            by_attempt.setdefault(key, []).append({str(name): value for name, value in row.items()})
    return by_attempt


TRIALS, SAMPLES_FILE = "trials.parquet", "samples.parquet"
SAMPLE_NAMES = {column.name for column in SAMPLES}
RECIPE = Recipe((TRIALS, SAMPLES_FILE), f"rules {RULES_VERSION}, visits 2, columns {columns_version()}", _derive)


def with_own_metrics(table: pd.DataFrame) -> pd.DataFrame:
    """Give each metric of the plan's own a column; null if its command printed no number."""
    values = [json.loads(text) if isinstance(text, str) else {} for text in table["metrics"]]
    names = sorted({name for row in values for name in row})
    return table.assign(**{n: pd.array([row.get(n) for row in values], dtype="Float64") for n in names})


def trials_table(run: RunDirectory, read: Callable[[Path], pd.DataFrame] | None = None) -> pd.DataFrame:
    """Every finished attempt, one row each, judged by the current rules. Writes nothing into the run.

    ``read`` reads a file of the table, for callers that need only a part.
    """
    return table(run, RECIPE, TRIALS, read)


def settled_trials(run: RunDirectory) -> pd.DataFrame:
    """The attempt that counts of each trial: its last."""
    return trials_table(run).drop_duplicates("trial_id", keep="last", ignore_index=True)
