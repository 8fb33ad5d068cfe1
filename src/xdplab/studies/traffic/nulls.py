"""Why a column of a measured trial is null if its derivation gives no reason: shared and structural reasons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xdplab.analysis.action_rules import returns_frames
from xdplab.analysis.derived import COLUMNS
from xdplab.run.metrics import METRICS

Row = dict[str, Any]

NO_VERIFIED = "this kernel does not tell how much its verifier processed (Linux 5.16 and newer do)"
IN_USER_SPACE = "af_xdp: the attached program only redirects, the accesses are made in user space"
NO_TIMES = "this lab's clock is an emulator's: no times are reported"
OLDER = "the version that measured this run did not record it"

SAME_REASON = {
    "rate_change": ("rate_change_kind",),
    "forwarded_pps": ("forwarded_window_s", "forwarded_l2_bps", "forwarded_source"),
    "latency_p50_ns": tuple(
        f"latency_{name}" for name in ("min_ns", "mean_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns", "from")
    ),
    "latency_sent_p50_ns": tuple(f"latency_sent_{name}_ns" for name in ("p90", "p99", "p999", "max")),
    "late_p50_ns": ("late_p99_ns", "late_p999_ns", "late_max_ns", "tx_late_packets"),
    "lost_packets": ("loss_ratio",),
    "slices_ratio": ("slices_total_ratio", "slices_pairs"),
    "access_loads": ("access_stores", "access_bytes", "access_chain"),
    "testrun_raw_ns": ("testrun_all_ns",),
    "records_read": ("records_lost", "records_lost_share", "records_reader_cores", "records_reader_cpus"),
    "program_run_ns": ("program_run_raw_ns", "stats_cost_ns"),
    "cycles": ("perf_packets",),
    "cycles_per_ns": ("cycles_per_ns_from", "clock_change"),
    "rx_by_queue": ("evenness", "queues_reached"),
}
"""A column, and those that are null for the same reason."""

NOT_SO_HERE: dict[str, Callable[[Row], str | None]] = {
    "lost_packets": lambda row: None if returns_frames(row) else "no frame has to come back: see dut_rx_packets",
    "tx_paused_ms": lambda row: "at a paced load lateness shows a pause: see late_max_ns" if _paced(row) else None,
    "tx_late_packets": lambda row: None if _paced(row) else "at maximum load no frame is due",
    "xsk_dropped": lambda row: None if _sockets(row) else "the mode has no AF_XDP socket",
    "helper_inlined": lambda row: (
        "the names of the helpers it calls could not be read, or the attached program has other instructions"
        if row.get("workload") == "lookup"
        else "the program is no lookup"
    ),
    "access_chain": lambda row: (
        None if row.get("workload") == "chase" else "accesses depend on each other in chase only"
    ),
    "warmup_steady": lambda row: None if row.get("warmup_s") is None else "the warm-up has too few intervals to tell",
    "counters_missing": lambda row: "no reading is missing",
    "limited_by": lambda row: None if row.get("verdict") == "valid" else "only a valid trial has a limit",
    "metrics": lambda row: "the plan has no metrics of its own",
    "device_settings": lambda row: "the plan sets nothing of the DUT's device",
    "rx_ring_entries": lambda row: "the DUT's driver does not tell the size of its rings",
    "jited_bytes": lambda row: IN_USER_SPACE if _sockets(row) else "the kernel did not compile the program",
    "verified_insns": lambda row: IN_USER_SPACE if _sockets(row) else NO_VERIFIED if row.get("program_insns") else None,
    "access_loads": lambda row: "what one access does is read from generated programs only" if _own(row) else None,
    **dict.fromkeys(("program_insns", "load_ms", "attach_ms"), lambda row: IN_USER_SPACE if _sockets(row) else None),
}
"""Columns that have no value at some points, and the reason there; None elsewhere."""


def _paced(row: Row) -> bool:
    return row.get("rate_requested_pps") is not None


def _own(row: Row) -> bool:
    return row.get("accesses") is None


def _sockets(row: Row) -> bool:
    return row.get("mode") == "af_xdp"


def with_reasons(row: Row, reasons: dict[str, str]) -> dict[str, str]:
    """Return ``reasons`` with one more for each measured column that is null and has none."""

    def why(column: str) -> str | None:
        return reasons.get(column) or NOT_SO_HERE.get(column, _unknown)(row)

    null = [name for name in _MEASURED if row.get(name) is None]
    return reasons | {name: why(name) or why(_HEADS.get(name, "")) or OLDER for name in null}


def _unknown(row: Row) -> None:
    return None


_HEADS = {column: head for head, columns in SAME_REASON.items() for column in columns}
_MEASURED = [
    metric.name
    for metric in METRICS
    if metric.kind not in ("factor", "id") and metric.name not in (*COLUMNS, "null_reasons", "rules_version")
]
"""Columns that an attempt's own files give; a factor may be null without a reason."""
