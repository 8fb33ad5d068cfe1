"""A search's table: one row per attempt that ended, from the journal alone."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd

from xdplab.plan import Trial
from xdplab.plan.factors import changed
from xdplab.run.facts import learnt
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import Attempt, attempts_of
from xdplab.studies.search.study import PointSearch, SearchFacts
from xdplab.studies.trial_facts import device_columns

COLUMNS = (
    *("ndr_pps", "ndr_upper_pps", "pdr_pps", "pdr_upper_pps"),
    *("mrr_pps", "mrr_low_pps", "mrr_high_pps", "mrr_offered_pps", "mrr_loss_ratio"),
    *("generator_pps", "livelock", "limited_by", "latency_missing"),
)
TABLE = "searches.parquet"


def row_of(trial: Trial, attempt: Attempt) -> dict[str, Any]:
    """Return one attempt's row; rates in frames per second, latencies in ns, null if nothing was found."""
    facts = learnt(SearchFacts, attempt)
    found = facts.search
    flat: dict[str, Any] = {}
    if found is not None:
        flat = vars(found) | {"ndr_pps": found.ndr.lower_pps, "ndr_upper_pps": found.ndr.upper_pps}
        flat |= {"pdr_pps": found.pdr.lower_pps, "pdr_upper_pps": found.pdr.upper_pps}
    return {
        "trial_id": trial.trial_id,
        "pdr_key": trial.point.pdr_key,
        **trial.point.factors(),
        **device_columns(facts.device),
        "repetition": trial.repetition,
        "lab": facts.lab,
        **{name: flat.get(name) for name in COLUMNS},
        **(_latencies(found) if found else {}),
        "accesses_at_share": found.accesses.enough if found and found.accesses else None,
        "status": attempt.status,
        "reason": attempt.reason,
    }


def _latencies(found: PointSearch) -> dict[str, Any]:
    return {
        f"latency_{100 * at.pdr_share:.0f}pdr_{quantile}": getattr(at, quantile)
        for at in found.latency or ()
        for quantile in ("p50_ns", "p99_ns", "max_ns")
    }


def search_table(run: RunDirectory, trials: Mapping[str, Trial]) -> pd.DataFrame:
    """Return the table of a search's run: one row per attempt."""
    return pd.DataFrame([row_of(trials[a.trial_id], a) for a in attempts_of(run)])


def shown(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the table for a reader: rates in kpps, NDR and PDR as their two bounds."""
    return [
        {
            "point": point_label(row),
            "NDR kpps": _between(row["ndr_pps"], row["ndr_upper_pps"]),
            "PDR kpps": _between(row["pdr_pps"], row["pdr_upper_pps"]),
            "MRR kpps": _kpps(row["mrr_pps"]),
            "limited by": row["limited_by"],
        }
        for row in _rows(table)
    ]


def remarks(table: pd.DataFrame) -> list[str]:
    """Return a line for each point that livelocks, and for each that was not searched, with the reason."""
    found = ((point_label(row), _remark(row)) for row in _rows(table))
    return [f"{point}: {words}" for point, words in found if words]


def _rows(table: pd.DataFrame) -> list[dict[Hashable, Any]]:
    return table.astype("object").where(table.notna(), None).to_dict("records")


def point_label(row: Mapping[Hashable, Any]) -> str:
    """Return the description of a point, from its row."""
    accesses = "" if row["accesses"] is None else f" N={row['accesses']:g}"
    place = f"{row['program_name']}{accesses} {row['mode']} {row['queues']}q {row['frame_bytes']} B"
    known = {str(name): value for name, value in row.items() if value is not None}
    return ", ".join([place, *changed(known, "program_name", "accesses", "mode", "queues", "frame_bytes", "load")])


def _kpps(rate: float | None) -> str:
    return "–" if rate is None else f"{rate / 1e3:.4g}"


def _between(lower: float | None, upper: float | None) -> str:
    if lower is None:
        return "none" if upper is None else f"< {_kpps(upper)}"
    return f"{_kpps(lower)}–{_kpps(upper)}" if upper is not None else f"≥ {_kpps(lower)}"


def _remark(row: Mapping[Hashable, Any]) -> str:
    if row["status"] != "measured":
        return f"{row['status']}: {row['reason']}"
    if row["limited_by"] == "generator" and row["pdr_upper_pps"] is not None:
        return "the sender stood still at times and caught up in bunches: the losses are no more than that makes"
    if not row["livelock"]:
        return ""
    mrr, pdr = row["mrr_pps"], row["pdr_pps"]
    return f"livelock: the MRR, {_kpps(mrr)} kpps, lies {1 - mrr / pdr:.0%} below the PDR: more load, less forwarded"
