"""The columns that the album's figures read, and a table of trials without the others.

Half of the columns and most of a table's bytes serve no figure: the reasons of nulls alone are two thirds of a row.
Selecting rows copies every column, so figures are drawn from a narrow table. Its texts are categories, which are read,
copied and counted many times faster: a run has few levels and many rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable
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
OF_ONE_TRIAL = ("trial_id", "rx_by_queue")
"""Texts that differ from trial to trial."""


def narrowed(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the columns that figures read, texts as sorted categories, unless they are ordered ones already; of the
    reasons of nulls those of figures."""
    kept = trials[[name for name in trials if name in READ]]
    texts = [str(name) for name in kept if name not in OF_ONE_TRIAL and _is_text(kept[name].dtype)]
    return kept.assign(**{name: _categories(kept[name], _of_figures if name == REASONS else str) for name in texts})


def read_narrowed(path: Path) -> pd.DataFrame:
    """Read a table of trials as `narrowed` leaves it, without ever holding the rest. Raises OSError, ValueError."""
    import pyarrow.parquet as pq

    names = pq.read_schema(path).names
    file = pq.ParquetFile(path, read_dictionary=[name for name in names if name not in OF_ONE_TRIAL], memory_map=True)
    held = file.read([name for name in names if name in READ])
    return narrowed(held.to_pandas())


def _is_text(dtype: object) -> bool:
    if isinstance(dtype, pd.CategoricalDtype):
        return not dtype.ordered and pd.api.types.is_string_dtype(dtype.categories.dtype)
    return isinstance(dtype, pd.StringDtype)


def _categories(texts: pd.Series, change: Callable[[str], str]) -> pd.Categorical:
    """Return texts as categories in order; each text is changed once."""
    whole = texts.astype("category").cat
    place, levels = pd.factorize(pd.Series([change(text) for text in whole.categories], dtype="str"), sort=True)
    codes = np.append(place, -1)[whole.codes.to_numpy()]  # code -1 is null, and stays so
    return pd.Categorical.from_codes(codes, categories=levels)


def _of_figures(text: str) -> str:
    return json.dumps({name: reason for name, reason in json.loads(text).items() if name in READ})
