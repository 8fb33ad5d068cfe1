"""A search's table: one row an attempt that ended, from the journal alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from xdplab.plan import Trial
from xdplab.runner import Attempt, read_state
from xdplab.store import RunDirectory

COLUMNS = (
    *("ndr_pps", "ndr_upper_pps", "pdr_pps", "pdr_upper_pps", "mrr_pps", "mrr_offered_pps", "mrr_loss_ratio"),
    *("generator_pps", "livelock", "limited_by", "latency_missing"),
)
TABLE = "searches.parquet"


def row_of(trial: Trial, attempt: Attempt) -> dict[str, Any]:
    """Return one attempt's row; rates in frames a second, latencies in ns, null where nothing was found."""
    found: Mapping[str, Any] = attempt.facts.get("search") or {}
    flat = {
        **found,
        **{f"{goal}_pps": found.get(goal, {}).get("lower_pps") for goal in ("ndr", "pdr")},
        **{f"{goal}_upper_pps": found.get(goal, {}).get("upper_pps") for goal in ("ndr", "pdr")},
    }
    return {
        "trial_id": trial.trial_id,
        "pdr_key": trial.point.pdr_key,
        **trial.point.factors(),
        "repetition": trial.repetition,
        "lab": attempt.facts.get("lab"),
        **{name: flat.get(name) for name in COLUMNS},
        **_latencies(found),
        "accesses_at_share": (found.get("accesses") or {}).get("enough"),
        "status": attempt.status,
        "reason": attempt.reason,
    }


def _latencies(found: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"latency_{100 * at['pdr_share']:.0f}pdr_{quantile}": at[quantile]
        for at in found.get("latency") or []
        for quantile in ("p50_ns", "p99_ns", "max_ns")
    }


def search_table(run: RunDirectory, trials: Mapping[str, Trial]) -> pd.DataFrame:
    """Rebuild and write the table of a search's run."""
    table = pd.DataFrame([row_of(trials[a.trial_id], a) for a in read_state(run).attempts])
    run.write_table(TABLE, table)
    return table
