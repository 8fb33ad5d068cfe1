"""One attempt → one row of trials.parquet and its samples, from the journal's facts and the raw files alone; the
histograms of a run's latencies."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from xdplab.absent import Absent
from xdplab.counters.columns import files_in, intervals, metrics
from xdplab.counters.readings import Readings
from xdplab.errors import FormatError
from xdplab.formats.both_ways import both
from xdplab.formats.generator import Burst, Histogram, parse_output
from xdplab.generators import OUTPUT, OUTPUT_BACK
from xdplab.plan import Trial
from xdplab.run.columns import Column, ColumnValues, by_name
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import Attempt, last_attempts
from xdplab.studies.traffic.columns import LIMIT, MEASURED, PREPARED, VERDICT
from xdplab.studies.traffic.columns.source import COUNTERS_FOLDER, TrialSource

Row = dict[str, Any]
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
    readings = Readings(files_in(source.raw / COUNTERS_FOLDER), mode="", shared=False)
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
