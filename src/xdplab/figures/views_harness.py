"""The parts of a packet's time in a closed loop: the program, the way in, the way back. On shared CPUs a packet's time
is that of sender, link, DUT and receiver together. BPF_PROG_TEST_RUN gives the time of the program; sender and receiver
are measured alone, without a link; a program that drops takes only the way in. The rest of the whole is the way back:
if it is negative, one of the parts was measured wrongly.
"""

from __future__ import annotations

import pandas as pd

from xdplab.analysis.intervals import Spread, values_of_one_point
from xdplab.analysis.series import SETTING, key_of, valid
from xdplab.errors import FigureError, NotApplicableError
from xdplab.figures.factors import PIECES, FigureRequest, levels
from xdplab.figures.marks import Axes, Look, Order, View
from xdplab.figures.views import described, hue_order, labelled, unlimited

PROGRAM, SENDER, WAY_IN, RECEIVER, WAY_BACK = PIECES


def pieces(trials: pd.DataFrame) -> pd.DataFrame:
    """Return one row per trial of N = 0 and piece, with the columns piece and piece_ns (CPU time per packet).

    ``trials`` are settled and at maximum load. Trials of a program that drops are needed in the same setting and
    repetition, and the pass ``harness`` of both. Raises NotApplicableError without any, FigureError if several
    programs drop.
    """
    shared = valid(trials[trials["arrangement"].eq("shared").fillna(False)])
    shared = shared[shared[["ns_per_packet", "testrun_raw_ns", "sender_ns", "harness_ns"]].notna().all(axis=1)]
    drops = shared[shared["action"].eq("drop").fillna(False)]
    if drops["program_name"].nunique() > 1:
        names = ", ".join(sorted(drops["program_name"].unique()))
        raise FigureError(f"several programs drop: {names}", remedy="choose the trials with where=")
    zeros = shared[shared["accesses"].eq(0).fillna(False)]
    zeros = zeros.assign(place=key_of(zeros, SETTING))
    first = zeros.groupby("place")["point_id"].transform("first")
    zeros = zeros[zeros["point_id"].eq(first)]  # N = 0 of any workload is the same code
    without_program = drops.assign(place=key_of(drops, SETTING))[
        ["place", "repetition", "ns_per_packet", "testrun_raw_ns"]
    ]
    both = zeros.merge(without_program, on=["place", "repetition"], suffixes=("", "_dropped"))
    if both.empty:
        raise NotApplicableError(
            "no program that drops was measured beside N = 0 on shared CPUs, with pass harness: see plans/harness.yaml"
        )
    dropped = both["ns_per_packet_dropped"] - both["testrun_raw_ns_dropped"]
    receiver = both["harness_ns"] - both["sender_ns"]  # below 0 too: a mean without would be biased
    parts = {
        PROGRAM: both["testrun_raw_ns"],
        SENDER: both["sender_ns"],
        WAY_IN: dropped - both["sender_ns"],
        RECEIVER: receiver,
        WAY_BACK: both["ns_per_packet"] - both["testrun_raw_ns"] - dropped - receiver,
    }
    return pd.concat([both.assign(piece=name, piece_ns=ns) for name, ns in parts.items()], ignore_index=True)


def harness(request: FigureRequest) -> View:
    """CPU time per packet of N = 0 by mode, piece upon piece: the mean over the repetitions of each."""
    rows = unlimited(labelled(request))
    hues = hue_order(request)
    marks: list[dict[str, object]] = []
    for (panel, x), place in rows.groupby(["panel", "x"], sort=False):
        below = 0.0
        for hue in hues:
            piece = place[place["hue"] == hue]
            if piece.empty:
                continue
            values = values_of_one_point(piece, "value")
            top = below + float(values.mean())
            mark = {"figure": request.figure, "file": request.figure, "kind": "stack", "panel": panel, "hue": hue}
            size = {"x": x, "value": top, "low": below, "n": len(values), "verdict": "valid"}
            marks.append(mark | size | _points(piece))
            below = top
    note = (
        f"N = 0: {PROGRAM} by BPF_PROG_TEST_RUN; {SENDER} and {RECEIVER} alone, without a link; {WAY_IN}: a program "
        f"that drops, less its own time and the sender's; {WAY_BACK}: what these leave of the whole. Differences are "
        f"of one repetition; means over the repetitions. {summed(rows)}"
    )
    look = Look(Axes("mode", "CPU time per packet (ns)"), Order(x_values=tuple(levels(request.trials, "mode"))))
    return described(request, marks, look, note, beside=("accesses",), intervals="")


def summed(rows: pd.DataFrame) -> str:
    """Return whether the pieces sum to the whole: at no point may one be below zero by more than its error."""
    below = []
    for (panel, hue, x), piece in rows.groupby(["panel", "hue", "x"], sort=False):
        spread = Spread.of(piece["value"])
        if (spread.high if spread.n > 1 else spread.mean) < 0:
            below.append(f"{hue} in {x} mode is {spread.mean:.0f} ns{f' ({panel})' if panel else ''}")
    if below:
        return f"The pieces do not sum to the whole: {'; '.join(below)}."
    repeated = rows.groupby(["panel", "hue", "x"]).size().min() > 1
    certainty = " by more than its 95 % interval" if repeated else ""
    return f"The pieces sum to the whole: none is below zero{certainty}."


def _points(rows: pd.DataFrame) -> dict[str, object]:
    return {"points": ",".join(sorted(set(rows["point_id"].dropna().astype(str))))}
