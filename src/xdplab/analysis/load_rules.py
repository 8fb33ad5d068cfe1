"""Findings about what was offered: paced loads that were not carried, generators that were held back."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from xdplab.analysis.findings import Finding, files_of, points_of
from xdplab.analysis.series import SERIES, first_label, key_of, valid

CARRIED = 0.005
"""The PDR's loss ratio: a load that loses more is none that the DUT carries."""

HELD_BACK = 0.8
"""Of what the generator offers alone: below it something slowed the sender."""


def paced_loss(trials: pd.DataFrame) -> Iterator[Finding]:
    """A paced load is taken to be carried, but of some trials more than 0.5 % was lost: then latency is a queue's."""
    paced = valid(trials[trials["rate_requested_pps"].notna() & trials["loss_ratio"].notna()])
    for _, rows in paced.groupby(key_of(paced, SERIES), sort=False):
        lost = rows[rows["loss_ratio"].astype(float) > CARRIED]
        if lost.empty:
            continue
        low, high = (float(lost["loss_ratio"].astype(float).agg(end)) for end in ("min", "max"))
        bunched = bool(lost["limited_by"].eq("generator").all())
        why = "as much as the sender sent late, in bursts" if bunched else "the DUT does not carry this load"
        share = ", though it is a share of a PDR" if "%" in str(rows["load"].iloc[0]) else ""
        losses = f"{low:.1%}" if low == high else f"{low:.1%} to {high:.1%}"
        what = f"{first_label(rows)}: {len(lost)} of {len(rows)} trials lose {losses} of their paced load{share}: {why}"
        numbers = {"loss_ratio_low": low, "loss_ratio_high": high, "trials": float(len(lost)), "of": float(len(rows))}
        yield Finding("paced load is lost", "warning", what, points_of(lost), numbers, files_of(lost))


def nothing_forwarded(trials: pd.DataFrame) -> Iterator[Finding]:
    """The DUT got every frame and sent none back: a livelock, or a driver that cannot send (XDP_TX on veth)."""
    silent = valid(trials[trials["forwarded_pps"].eq(0)])
    for _, rows in silent.groupby(key_of(silent, SERIES), sort=False):
        remedy = "look at its xdp_tx_errors: a veth's other end needs an XDP program"
        what = f"{first_label(rows)}: {len(rows)} trials forwarded nothing: {remedy}"
        yield Finding(
            "nothing forwarded", "warning", what, points_of(rows), {"trials": float(len(rows))}, files_of(rows)
        )


def held_back(trials: pd.DataFrame) -> Iterator[Finding]:
    """At maximum load the generator offered less than 80 % of what it does over the same link to no program."""
    unpaced = trials[trials["rate_requested_pps"].isna() & trials["generator_pps"].notna()]
    for _, rows in valid(unpaced).groupby("point_id", sort=False):
        offered, alone = (float(rows[name].astype(float).median()) for name in ("offered_pps", "generator_pps"))
        if offered >= HELD_BACK * alone:
            continue
        slower = f"the generator offered {offered / alone:.0%} of what it does alone"
        what = f"{_point(rows)}: {slower}: pause frames, or others on its CPU?"
        numbers = {"offered_pps": offered, "generator_pps": alone}
        yield Finding("generator held back", "info", what, points_of(rows), numbers, files_of(rows))


def _point(rows: pd.DataFrame) -> str:
    accesses = rows["accesses"].iloc[0]
    return first_label(rows) + ("" if pd.isna(accesses) else f", N = {accesses:g}")
