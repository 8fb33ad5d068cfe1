"""The histograms of a run's latencies, read from its raw files."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from xdplab.errors import FormatError
from xdplab.formats.both_ways import both
from xdplab.formats.generator import Histogram, parse_output
from xdplab.generators import OUTPUT, OUTPUT_BACK
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import last_attempts


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
