"""The additional columns of an imported run, and why a column is null if its derivation gives no reason."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from xdplab.analysis.derived import ACROSS_TRIALS
from xdplab.run.columns import Column
from xdplab.studies.traffic.columns import COLUMNS, SAMPLES

TRIAL_EXTRAS: tuple[Column[Any], ...] = (
    Column("source", "str", "id", "imported: folder of the repetition in the published data"),
    Column("generator_file", "str", "id", "imported: the generator's log"),
    Column("generator_line", "int", "id", "imported: line of the receiver's last row in it"),
    Column("sar_file", "str", "id", "imported: sar's log"),
    Column("sar_line", "int", "id", "imported: line of CPU 0 in sar's last sample"),
    Column("sar_lines", "json", "id", "imported: line of CPU 0 in each of sar's samples within the traffic"),
    Column("perf_file", "str", "id", "imported: perf's log"),
    Column("perf_lines", "json", "id", "imported: line of each perf event, a JSON object"),
    Column("file_sha256", "json", "id", "imported: sha256 of each of these files, a JSON object"),
    Column("program_file", "str", "id", "imported: the C file of the program that was measured"),
    Column("program_counts", "json", "state", "imported: what the proof counts in it for each packet"),
    Column("anomalies", "json", "state", "imported: what is wrong with these files, a JSON list"),
    Column("dut_interface", "str", "state", "imported: the DUT's interface whose counts are used"),
    Column("tg_count_pps", "float", "rate", "frames the TG counted a second, in the window both hosts saw"),
    Column("dut_count_pps", "float", "rate", "frames the DUT's interface sent a second, in the same window"),
    Column("rate_step_share", "float", "share", "imported: a change of the rate in mid-run, over the rate before"),
    Column("rate_step_s", "float", "time", "imported: when it changed"),
    Column("latency_open_ns", "float", "time", "imported: what the printed digits leave open to either side"),
    Column("latency_levels_ns", "json", "time", "imported: the two levels of the seconds, where they have two"),
    Column("latency_how", "str", "state", "imported: how latency_mean_ns was had from the printed running mean"),
    Column("latency_decimals", "int", "state", "imported: digits behind the point of the printed latency in s"),
    Column("softirq_by_cpu_percent", "json", "share", "imported: softirq of each CPU, mean of the steady samples"),
    Column("user_percent", "float", "share", "imported: user and system time of all CPUs; 100 is one core"),
    Column("dut_stage", "str", "state", "imported: AF_XDP's stage that limits, where it is not the application"),
    Column("perf_target", "str", "state", "imported: whom perf counted, by its header"),
    Column("published_rx_mean_pps", "float", "rate", "imported: the printed mean receive rate in the last row"),
    Column("published_latency_s", "float", "time", "imported: the printed running mean in the last row"),
    Column("published_softirq_percent", "json", "share", "imported: softirq of CPUs 0 to 7 in sar's last sample"),
    Column("published_instructions", "float", "count", "imported: perf's count, whomever it counted"),
    Column("published_branches", "float", "count", "imported: perf's count, whomever it counted"),
    Column("published_l1d_loads", "float", "count", "imported: perf's count, whomever it counted"),
    Column("published_l1d_misses", "float", "count", "imported: perf's count, whomever it counted"),
)
TRIAL_COLUMNS = COLUMNS + TRIAL_EXTRAS
SAMPLE_EXTRAS: tuple[Column[Any], ...] = (
    Column("latency_mean_s", "float", "time", "imported: running mean at the end of the interval, as printed"),
    Column("latency_s", "float", "time", "imported: mean of the interval's own frames, where digits allow it"),
    Column("usr_percent", "float", "share", "imported: of one CPU in the interval"),
    Column("sys_percent", "float", "share", "imported: of one CPU in the interval"),
    Column("irq_percent", "float", "share", "imported: of one CPU in the interval"),
    Column("soft_percent", "float", "share", "imported: of one CPU in the interval"),
    Column("idle_percent", "float", "share", "imported: of one CPU in the interval"),
)
SAMPLE_COLUMNS = SAMPLES + SAMPLE_EXTRAS

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


_REASONS = {
    column.name: _reason(column.name)
    for column in COLUMNS
    if column.kind != "factor" and column not in ACROSS_TRIALS and column.name not in (*JUDGED, "null_reasons")
}
"""Columns that the logs give, or could have given; a factor may be null without a reason."""
_WITH_REASON = frozenset(_REASONS)


def reasons_text(row: Mapping[str, Any], reasons: Mapping[str, str]) -> str:
    """Return ``reasons`` as a JSON object, with one more reason for each column that is null and has none."""
    null = _WITH_REASON.difference(reasons, [column for column, value in row.items() if value is not None])
    return _text_of(null, frozenset(reasons.items()))


@lru_cache(maxsize=1024)
def _text_of(null: frozenset[str], reasons: frozenset[tuple[str, str]]) -> str:
    """The same columns are null in most trials: thousands of trials share some dozens of texts."""
    texts = dict(reasons)
    return json.dumps(texts | {column: _reason_of(column, texts) for column in null}, sort_keys=True)


def _reason_of(column: str, reasons: Mapping[str, str]) -> str:
    same = (reasons[head] for head, columns in SAME_REASON.items() if column in columns and head in reasons)
    return next(same, _REASONS[column])
