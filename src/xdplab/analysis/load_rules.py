"""Findings about the offered load: paced loads that were not carried, generators that were slowed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pandas as pd

from xdplab.analysis import verdicts
from xdplab.analysis.count_rules import COUNT_TOLERANCE
from xdplab.analysis.decide.compare import drift
from xdplab.analysis.findings import Finding, files_of, points_of
from xdplab.analysis.series import first_label, key_of, point_label, rows_where, series_of, valid
from xdplab.analysis.values import Row, records
from xdplab.text import many

CARRIED = 0.005
"""The PDR's loss ratio: the DUT does not carry a load that loses more."""

HELD_BACK = 0.8
"""Share of the rate that the generator reaches alone. Below it, something slowed the sender."""


def paced_loss(trials: pd.DataFrame) -> Iterator[Finding]:
    """Some trials lost more than 0.5 % of a paced load: their latency is that of a full queue."""
    paced = valid(trials[trials["rate_requested_pps"].notna() & trials["loss_ratio"].notna()])
    for _, rows in paced.groupby(series_of(paced), sort=False):
        lost = rows[rows["loss_ratio"].astype(float) > CARRIED]
        if lost.empty:
            continue
        low, high = (float(lost["loss_ratio"].astype(float).agg(end)) for end in ("min", "max"))
        whose = [all(map(rule, records(lost))) for rule in (verdicts.sender_bunched, verdicts.tg_lost_frames)]
        causes = ("as much as the sender sent late, in bursts", "as much as the TG's port did not take")
        why = next(
            (text for text, holds in zip(causes, whose, strict=True) if holds), "the DUT does not carry this load"
        )
        share = ", though it is a share of a PDR" if str(rows["load"].iloc[0]).endswith("%") else ""
        losses = f"{low:.1%}" if low == high else f"{low:.1%} to {high:.1%}"
        what = f"{first_label(rows)}: {len(lost)} of {len(rows)} trials lose {losses} of their paced load{share}: {why}"
        numbers = {"loss_ratio_low": low, "loss_ratio_high": high, "trials": float(len(lost)), "of": float(len(rows))}
        yield Finding("paced load is lost", "warning", what, points_of(lost), numbers, files_of(lost))


def nothing_forwarded(trials: pd.DataFrame) -> Iterator[Finding]:
    """The DUT got every frame and sent none back: a livelock, or a driver that cannot send (XDP_TX on veth)."""
    silent = valid(trials[trials["forwarded_pps"].eq(0)])
    for _, rows in silent.groupby(series_of(silent), sort=False):
        remedy = "look at its xdp_tx_errors: a veth's other end needs an XDP program"
        what = f"{first_label(rows)}: {many(len(rows), 'trial')} forwarded nothing: {remedy}"
        yield Finding(
            "nothing forwarded", "warning", what, points_of(rows), {"trials": float(len(rows))}, files_of(rows)
        )


def held_back(trials: pd.DataFrame) -> Iterator[Finding]:
    """At maximum load the generator offered less than 80 % of what it offers over the same link without a program."""
    unpaced = trials[trials["rate_requested_pps"].isna() & trials["generator_pps"].notna()]
    for _, rows in valid(unpaced).groupby("point_id", sort=False):
        offered, alone = (float(rows[name].astype(float).median()) for name in ("offered_pps", "generator_pps"))
        if offered >= HELD_BACK * alone:
            continue
        slower = f"the generator offered {offered / alone:.0%} of what it does alone"
        what = f"{point_label(rows)}: {slower}: pause frames, or others on its CPU?"
        numbers = {"offered_pps": offered, "generator_pps": alone}
        yield Finding("generator held back", "info", what, points_of(rows), numbers, files_of(rows))


def clock_differs(trials: pd.DataFrame) -> Iterator[Finding]:
    """Trials of one run whose CPUs ran at a different clock: their times are not comparable.

    The clock of a trial is compared with the median of those measured in the same way (by perf, or by additions).
    """
    clocked = valid(trials[trials["cycles_per_ns"].notna()])
    for _, rows in clocked.groupby(key_of(clocked, ("lab", "cycles_per_ns_from")), sort=False):
        clocks = rows["cycles_per_ns"].astype(float)
        usual = float(clocks.median())
        other = rows[(clocks / usual - 1).abs() > verdicts.CLOCK_CHANGE]
        if other.empty:
            continue
        low, high = float(clocks.min()), float(clocks.max())
        what = (
            f"{len(other)} of {len(rows)} trials ran at another clock than the rest: {low:.3g} to {high:.3g} cycles "
            f"per ns, {usual:.3g} in the middle; for one {point_label(other)}"
        )
        numbers = {"low": low, "median": usual, "high": high, "trials": float(len(other)), "of": float(len(rows))}
        yield Finding("clock differs", "warning", what, points_of(other), numbers, files_of(other))


def drifts(trials: pd.DataFrame) -> Iterator[Finding]:
    """Rates that rise or fall with the order of the trials, without the points' effects (least squares on the
    logarithm). The order is random in each repetition, so a drift affects all points alike and cancels between them. It
    does not cancel between runs, and it widens the intervals.
    """
    for _, rows in trials.groupby("run_id", sort=False, observed=True):
        trend = drift(rows)
        if trend is None or not trend.significant:
            continue
        what = f"the rates changed by {trend.share:+.1%} from the first to the last trial (p = {trend.p:.1g})"
        yield Finding("drift", "warning", what, (), {"share": trend.share, "p": trend.p})


DISTURBANCES: dict[str, Callable[[Row], str | None]] = {
    "load missed": verdicts.say_load_missed,
    "sender late": verdicts.say_late_sender,
    "sender stood still": verdicts.say_paused,
    "device refused frames": verdicts.say_device_refused,
    "rate not steady": verdicts.say_unsteady,
    "no real-time priority": verdicts.say_refused,
    "CPU stolen": verdicts.say_stolen,
    "other work": verdicts.say_other_work,
    "clock changed": verdicts.say_clock_changed,
    "settings changed": verdicts.say_settings_changed,
}
"""Remarks in the reasons of valid trials that a run says once."""

DISTURBED_BY = (
    *(
        "tx_packets",
        "tx_errors",
        "tg_port_dropped_packets",
        "window_s",
        "tx_pause_ms",
        "tx_paused_ms",
        "rt_runtime_us",
        "sched_policy",
        "rate_change",
        "rate_change_kind",
    ),
    *("host_steal_cores", "other_busy_cores", "tx_busy_cores"),
    *("cycles_per_ns", "cycles_per_ns_from", "clock_change"),
    "settings_changed",
    *("latency_p50_ns", "latency_p99_ns", "latency_sent_p50_ns", "latency_sent_p99_ns", "latency_from"),
)


def disturbances(trials: pd.DataFrame) -> Iterator[Finding]:
    """Valid trials with a remark in their reasons, one finding for each of `DISTURBANCES`."""
    believed = valid(trials)
    for name, says in DISTURBANCES.items():
        suspects = rows_where(believed, _MAY_SAY[name](believed))
        parts = (suspects.iloc[first : first + 5_000] for first in range(0, len(suspects), 5_000))  # as objects
        remarks = pd.Series(
            [says(row) for part in parts for row in records(part)], index=suspects.index, dtype="object"
        )
        rows = suspects[remarks.notna()]
        if rows.empty:
            continue
        what = f"{len(rows)} of {many(len(believed), 'trial')}, such as {point_label(rows)}: {remarks[rows.index[0]]}"
        numbers = {"trials": float(len(rows)), "of": float(len(believed))}
        yield Finding(name, "warning", what, points_of(rows), numbers, files_of(rows))


_MAY_SAY: dict[str, Callable[[pd.DataFrame], pd.Series]] = {
    "load missed": lambda trials: _offered_another(trials) | trials["tx_errors"].gt(0),
    "sender late": lambda trials: _sent_late(trials, "p50") | _sent_late(trials, "p99"),
    "sender stood still": lambda trials: trials["tx_paused_ms"] / 1e3 >= verdicts.PAUSE_SHARE * trials["window_s"],
    "device refused frames": lambda trials: trials["tx_errors"].gt(0),
    "rate not steady": lambda trials: trials["rate_change"].abs().gt(0),
    "no real-time priority": lambda trials: _holds(trials["sched_policy"], "refused"),
    "CPU stolen": lambda trials: trials["host_steal_cores"].gt(verdicts.STEAL_CORES),
    "other work": lambda trials: trials["other_busy_cores"].gt(verdicts.OTHER_SHARE),
    "clock changed": lambda trials: trials["clock_change"].abs().gt(verdicts.CLOCK_CHANGE),
    "settings changed": lambda trials: _holds(trials["settings_changed"], ":"),
}
"""Which trials have such a remark, or may have one: to ask each of a million takes a hundred seconds."""


def _offered_another(trials: pd.DataFrame) -> pd.Series:
    share = trials["offered_pps"] / trials["rate_requested_pps"]
    return share.lt(verdicts.OFFERED_SHARE) | share.gt(1 + COUNT_TOLERANCE)


def _sent_late(trials: pd.DataFrame, name: str) -> pd.Series:
    whole = trials[f"latency_{name}_ns"]
    return whole - trials[f"latency_sent_{name}_ns"] > verdicts.LATE_SHARE * whole


def _holds(texts: pd.Series, part: str) -> pd.Series:
    return texts.isin([text for text in texts.dropna().unique() if part in text])
