"""The tables of a run of XDP traffic, which are derived from its journal and raw files: trials and samples.

One attempt → one row of trials.parquet and its samples, from the journal's facts and the raw files alone; the
histograms of a run's latencies.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd

from xdplab.absent import Absent
from xdplab.analysis.derived import Visits, derive
from xdplab.analysis.verdicts import RULES_VERSION
from xdplab.counters.columns import intervals, metrics
from xdplab.counters.readings import Readings
from xdplab.errors import FormatError
from xdplab.formats.both_ways import both
from xdplab.formats.generator import Burst, Histogram, parse_output
from xdplab.generators import OUTPUT, OUTPUT_BACK
from xdplab.plan import Trial
from xdplab.run.columns import Column, ColumnValues, by_name
from xdplab.run.derived import Before, Recipe, Tables, table
from xdplab.run.frames import frame, joined
from xdplab.run.gone import place_of, raw_gone, warn_gone
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import Attempt, attempts_of, last_attempts
from xdplab.studies.traffic.columns import (
    COLUMNS,
    LIMIT,
    MEASURED,
    NAMES,
    PREPARED,
    SAMPLES,
    VERDICT,
    columns_version,
    trials_frame,
)
from xdplab.studies.traffic.columns.source import COUNTERS_FOLDER, TrialSource
from xdplab.studies.traffic.pdr import stored
from xdplab.studies.traffic.run_files import run_plan, run_trials_of

Row = dict[str, Any]
Key = tuple[str, int]
NO_TIMES = "this lab's clock is an emulator's: no times are reported"


@dataclass(frozen=True)
class AttemptRows:
    """The attempt's row, and its rows of samples.parquet."""

    row: Row
    samples: list[Row]


def attempt_rows(run: RunDirectory, trial: Trial, attempt: Attempt, *, window_s: float) -> AttemptRows:
    """Derive all values of one attempt. A missing value is null, and ``null_reasons`` says why.

    ``window_s`` is the window that the run's plan asks for.
    """
    measured = attempt.status == "measured"
    source = TrialSource(run, trial, attempt, window_s, MEASURED if measured else PREPARED)
    judged = ColumnValues(by_name(VERDICT, LIMIT if measured else ()), source)
    row: Row = {**source.row, **judged}
    if not measured:
        return AttemptRows(row, [])
    reasons = source.row.reasons | judged.reasons | _missing_metrics(source)
    if source.facts.times is False:
        clocked = {"limited_by", *(name for name, column in MEASURED.items() if _needs_a_clock(column))}
        row |= dict.fromkeys(clocked)
        reasons |= dict.fromkeys(clocked, NO_TIMES)
    row["null_reasons"] = json.dumps(dict(sorted(reasons.items())))
    return AttemptRows(row, _samples(source))


def _needs_a_clock(column: Column[TrialSource]) -> bool:
    """In an emulator the clock means nothing: counts stay, times and rates are null."""
    return column.kind in ("time", "rate") or column.name.endswith("_cores")


def _missing_metrics(source: TrialSource) -> dict[str, str]:
    numbers = metrics(source.readings)
    return {f"metrics.{name}": str(number) for name, number in numbers.items() if isinstance(number, Absent)}


def _samples(source: TrialSource) -> list[Row]:
    identity = {"trial_id": source.attempt.trial_id, "attempt": source.attempt.attempt}
    rows = [
        {**identity, "burst": name, "host": "tg", "t_s": i.t_s, "tx_packets": i.tx_packets, "rx_packets": i.rx_packets}
        for name, burst in _bursts(source).items()
        for i in burst.intervals
    ]
    readings = Readings(source.files(COUNTERS_FOLDER), mode="", shared=False)
    return rows + [{**identity, "burst": "rate", "host": "dut", **vars(interval)} for interval in intervals(readings)]


def _bursts(source: TrialSource) -> dict[str, Burst]:
    try:
        return source.bursts
    except Absent:
        return {}


def latencies_of(run: RunDirectory) -> pd.DataFrame:
    """Return one row per bucket of each trial's headline histogram: trial_id, latency_ns (its lower end), count.

    At a paced load latency counts from the time a frame was due. Of two directions, the frames of both are in it.
    Trials whose raw files are gone have no rows.
    """
    rows: list[tuple[str, int, int]] = []
    for trial_id, attempt in last_attempts(run).items():
        try:
            histogram = _latency(run.raw_dir(trial_id, attempt.attempt))
        except (OSError, FormatError):
            continue
        rows += [(trial_id, lower, count) for lower, count in (histogram.buckets if histogram else ())]
    return pd.DataFrame(rows, columns=["trial_id", "latency_ns", "count"])


def _latency(raw: Path) -> Histogram | None:
    files = [raw / OUTPUT, *(path for path in [raw / OUTPUT_BACK] if path.exists())]
    bursts = [burst for file in files for burst in parse_output(file.read_bytes()).bursts if burst.name == "rate"]
    if len(bursts) != len(files):
        return None
    return (bursts[0] if len(bursts) == 1 else both(*bursts)).latency


def _derive(run: RunDirectory, before: Before) -> Tables:
    """Make the rows of every attempt from the journal and the raw files; those of ``before`` that are current stay.

    If raw files of an attempt that is parsed now are gone, its existing row stays, and its reason says so.
    """
    trials = {t.trial_id: t for t in run_trials_of(run)}
    window_s = run_plan(run).trial.window_s
    pieces = {name: [table] for name, table in _current(run, before).items()}
    current = len(pieces[TRIALS][0])
    looked_at = islice(attempts_of(run, without=["facts"]), current, None)
    gone = [attempt.ended for attempt in looked_at if raw_gone(run, attempt)]
    warn_gone(run, [*map(place_of, gone)])
    kept = {(attempt.trial_id, attempt.attempt) for attempt in gone}
    places = {name: table.groupby([*KEY]).indices for name, table in before.tables.items() if kept}
    missing = islice(attempts_of(run), current, None)
    while some := [*islice(missing, AT_ONCE)]:
        keys = [key for attempt in some if (key := (attempt.trial_id, attempt.attempt)) in kept]
        old = {name: _by_attempt(before.tables[name], at, keys) for name, at in places.items()}
        rows: list[Row] = []
        samples: list[Row] = []
        for attempt in some:
            key = (attempt.trial_id, attempt.attempt)
            if key in old.get(TRIALS, {}):
                # If a column is newer than the table and is a factor, the plan gives its value.
                rows += map(_marked, old[TRIALS][key])
                samples += old.get(SAMPLES_FILE, {}).get(key, [])
            else:
                derived = attempt_rows(run, trials[attempt.trial_id], attempt, window_s=window_s)
                rows.append(derived.row)
                samples += derived.samples
        pieces[TRIALS].append(trials_frame(rows))
        pieces[SAMPLES_FILE].append(frame(samples, SAMPLES))
    table = derive(joined(pieces[TRIALS]), _visits(run, trials))
    return {TRIALS: with_own_metrics(table), SAMPLES_FILE: joined(pieces[SAMPLES_FILE])}


def _current(run: RunDirectory, before: Before) -> dict[str, pd.DataFrame]:
    """Return the rows that stay: those of the first attempts, by the rules of now. What is said of a load that is a
    share of a PDR may change with the searches that the run has."""
    events = islice(run.journal.events("finished", without=["facts", "files"]), before.current)
    keys = [(event["trial_id"], event["attempt"]) for event in events]
    names = {TRIALS: COLUMNS, SAMPLES_FILE: SAMPLES}
    if keys and not stored(run) and keys == list(zip(*(before.tables[TRIALS][name] for name in KEY), strict=True)):
        return {name: before.tables[name][[column.name for column in table]] for name, table in names.items()}
    return {name: frame((), table) for name, table in names.items()}


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


def _by_attempt(table: pd.DataFrame, places: Mapping[Any, Any], keys: Sequence[Key]) -> dict[Key, list[Row]]:
    """Return the rows of these attempts, which are at ``places``, nulls as None, without columns of the plan's own."""
    by_attempt: dict[Key, list[Row]] = {}
    names = [name for name in table.columns if name in NAMES or name in SAMPLE_NAMES]
    some = table[names].iloc[[place for key in keys for place in places.get(key, ())]]
    for row in some.astype(object).where(some.notna(), None).to_dict("records"):
        named = {str(name): value for name, value in row.items()}
        by_attempt.setdefault((row["trial_id"], row["attempt"]), []).append(named)
    return by_attempt


AT_ONCE = 1_000
"""Attempts whose facts and rows are held at a time."""
TRIALS, SAMPLES_FILE = "trials.parquet", "samples.parquet"
KEY = ("trial_id", "attempt")
SAMPLE_NAMES = {column.name for column in SAMPLES}
RECIPE = Recipe((TRIALS, SAMPLES_FILE), f"rules {RULES_VERSION}, values 10, columns {columns_version()}", _derive)


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
