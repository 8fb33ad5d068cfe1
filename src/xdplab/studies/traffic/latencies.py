"""The histograms of a run's latencies, read from its raw files."""

from __future__ import annotations

import pandas as pd

from xdplab.errors import FormatError
from xdplab.formats.generator import parse_output
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import last_attempts


def latencies_of(run: RunDirectory) -> pd.DataFrame:
    """Return one row per bucket of each trial's headline histogram: trial_id, latency_ns (its lower end), count.

    At a paced load latency counts from the time a frame was due. Trials whose raw files are gone have no rows.
    """
    rows: list[tuple[str, int, int]] = []
    for trial_id, attempt in last_attempts(run).items():
        try:
            output = parse_output((run.raw_dir(trial_id, attempt.attempt) / "xdpgen.jsonl").read_bytes())
        except (OSError, FormatError):
            continue
        found = next((burst.latency for burst in output.bursts if burst.name == "rate"), None)
        rows += [(trial_id, lower, count) for lower, count in (found.buckets if found else ())]
    return pd.DataFrame(rows, columns=["trial_id", "latency_ns", "count"])
