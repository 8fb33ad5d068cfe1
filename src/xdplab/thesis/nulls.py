"""Why a column of an imported trial is null if its derivation gives no reason: the published logs lack the value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from xdplab.analysis.derived import ACROSS_TRIALS
from xdplab.studies.traffic.columns import COLUMNS

JUDGED = ("verdict", "reason", "limited_by", "rules_version")
SAME_REASON = {
    "rx_packets": ("forwarded_pps", "forwarded_source", "forwarded_l2_bps", "forwarded_window_s", "loss_ratio"),
    "tx_packets": ("window_s", "offered_pps", "lost_packets", "loss_ratio"),
    "program_counts": ("program_hash",),
}
"""A column, and those that are null for the same reason."""

_NOT_HELD = {
    "the generator's log has only a running mean of the round trips": ("latency_", "late_"),
    "not in the generator's log": (
        *("tx_", "tg_", "probes_", "generator_pps", "drained_", "duplicate_", "reordered_", "foreign_", "refused_"),
        *("sender_", "receiver_", "harness_", "path", "warmup_", "rate_change", "slices_", "window_requested_s"),
    ),
    "not in the logs: see program_counts": (
        *("program_", "verified_", "jited_", "helper_", "load_ms", "attach_ms", "mode_obtained", "access_", "testrun_"),
        *("stats_cost_ns", "xdp_actions", "actions_counted", "redirect_targets", "records_"),
    ),
    "not in sar's log": (
        *("host_", "other_", "softnet_", "dut_", "rx_by_queue", "evenness", "queues_reached", "xsk_", "rx_ring_"),
        *("device_settings", "sched_policy", "clocksource", "rt_runtime_us", "xps"),
    ),
    "perf's log has no frames and no clock of its time": (
        *("perf_packets", "perf_running", "cycles_per_ns", "clock_change"),
    ),
    "the logs do not tell in which order the trials were measured": ("block", "order"),
}
"""By what is absent: beginnings of the names of columns. The words are short: a row has a hundred of them."""
NOT_HELD = "not in the logs"


def _reason(column: str) -> str:
    return next((why for why, names in _NOT_HELD.items() if column.startswith(names)), NOT_HELD)


_HEADS: dict[str, tuple[str, ...]] = {}
for _head, _columns in SAME_REASON.items():
    for _column in _columns:
        _HEADS[_column] = (*_HEADS.get(_column, ()), _head)
_REASONS = {
    column.name: _reason(column.name)
    for column in COLUMNS
    if column.kind != "factor" and column not in ACROSS_TRIALS and column.name not in (*JUDGED, "null_reasons")
}
"""Columns that the logs give, or could have given; a factor may be null without a reason."""
_NAMES = frozenset(_REASONS)


def reasons_text(row: Mapping[str, Any], reasons: Mapping[str, str]) -> str:
    """Return ``reasons`` as a JSON object, with one more reason for each column that is null and has none."""
    present = frozenset(column for column, value in row.items() if value is not None)
    return _text_of(present & _NAMES, frozenset(reasons.items()))


@lru_cache(maxsize=1024)
def _text_of(present: frozenset[str], reasons: frozenset[tuple[str, str]]) -> str:
    """The same columns are null in most trials: thousands of trials share some dozens of texts."""
    texts = dict(reasons)
    added = {column: _told(column, texts) for column in _REASONS if column not in present and column not in texts}
    return json.dumps(texts | added, sort_keys=True)


def _told(column: str, reasons: Mapping[str, str]) -> str:
    heads = (reasons[head] for head in _HEADS.get(column, ()) if head in reasons)
    return next(heads, _REASONS[column])
