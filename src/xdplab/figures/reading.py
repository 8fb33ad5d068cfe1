"""The columns that the album's figures read, and a table of trials without the others.

Half of the columns and most of a table's bytes serve no figure: the reasons of nulls alone are two thirds of a row.
Selecting rows copies every column, so figures are drawn from a narrow table.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd

from xdplab.figures.caption import OF_A_CAPTION
from xdplab.figures.factors import FACTORS

REASONS = "null_reasons"
READ = frozenset(
    {
        *FACTORS,
        *OF_A_CAPTION,
        *("run_id", "trial_id", "attempt", "verdict", "limited_by", "rules_version", "path", "rate_requested_pps"),
        *("tx_packets", "offered_pps", "forwarded_pps", "forwarded_l2_bps", "ns_per_packet", "access_ns"),
        *("testrun_raw_ns", "testrun_ns", "program_run_ns", "sender_ns", "receiver_ns", "harness_ns"),
        *("latency_p50_ns", "latency_p99_ns", "latency_p999_ns", "latency_from", "rx_by_queue", "evenness"),
        *("cpu_busy_cores", "host_busy_cores", "cycles", "instructions", "ipc", "branches", "branch_misses"),
        *("l1d_loads", "l1d_misses", "perf_packets", "host_cycles", "host_instructions", "host_context_switches"),
        *("softnet_dropped", "softnet_squeezed", "xsk_dropped"),
    }
)
"""`tests/figures/test_reading.py` looks for every column that the figures' modules name."""


def narrowed(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the columns that figures read; of the reasons of nulls only those of these columns, as a category."""
    kept = trials[[name for name in trials if name in READ]]
    if REASONS not in kept:
        return kept
    whole = kept[REASONS].astype("category").cat
    place, shorter = pd.factorize(pd.Series([_of_figures(text) for text in whole.categories], dtype="str"), sort=True)
    codes = np.append(place, -1)[whole.codes.to_numpy()]  # code -1 is null, and stays so
    return kept.assign(**{REASONS: pd.Categorical.from_codes(codes, categories=shorter)})


def read_narrowed(path: Path) -> pd.DataFrame:
    """Read a table of trials as `narrowed` leaves it, without ever holding the rest. Raises OSError, ValueError."""
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path, read_dictionary=[REASONS], memory_map=True)
    held = file.read([name for name in file.schema_arrow.names if name in READ])
    return narrowed(held.to_pandas())


def _of_figures(text: str) -> str:
    return json.dumps({name: words for name, words in json.loads(text).items() if name in READ})
