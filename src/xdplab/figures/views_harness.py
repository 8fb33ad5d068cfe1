"""The figure of what a closed loop's packet is made of: the program, the way in, the way back.

On shared CPUs a packet's time is that of sender, link, DUT and receiver together. A program that drops makes only the
way in; what reflecting takes more is the way back. BPF_PROG_TEST_RUN tells the program itself.
"""

from __future__ import annotations

import pandas as pd

from xdplab.analysis.intervals import values_of_one_point
from xdplab.analysis.series import SETTING, key_of, valid
from xdplab.figures.caption import caption
from xdplab.figures.factors import PIECES, FigureError, NotApplicableError, levels
from xdplab.figures.marks import Look, View, marks_frame
from xdplab.figures.views import FigureRequest, labelled, orders, unlimited

PROGRAM, WAY_IN, WAY_BACK = PIECES


def pieces(trials: pd.DataFrame) -> pd.DataFrame:
    """Return one row per trial of N = 0 and piece, with the columns piece and piece_ns (CPU time per packet).

    ``trials`` are settled and at maximum load. Trials of a program that drops are needed in the same setting and
    repetition. Raises NotApplicableError without any, FigureError where several programs drop.
    """
    known = valid(trials[trials["arrangement"].eq("shared").fillna(False)])
    known = known[known["ns_per_packet"].notna() & known["testrun_raw_ns"].notna()]
    drops = known[known["action"].eq("drop").fillna(False)]
    if drops["program_name"].nunique() > 1:
        names = ", ".join(sorted(drops["program_name"].unique()))
        raise FigureError(f"several programs drop: {names}", remedy="choose the trials with where=")
    zeros = known[known["accesses"].eq(0).fillna(False)]
    zeros = zeros.assign(place=key_of(zeros, SETTING))
    first = zeros.groupby("place")["point_id"].transform("first")
    zeros = zeros[zeros["point_id"].eq(first)]  # N = 0 of any workload is the same code
    there = drops.assign(place=key_of(drops, SETTING))[["place", "repetition", "ns_per_packet", "testrun_raw_ns"]]
    both = zeros.merge(there, on=["place", "repetition"], suffixes=("", "_dropped"))
    if both.empty:
        raise NotApplicableError(
            "no program that drops was measured beside N = 0 on shared CPUs: see plans/harness.yaml"
        )
    way_in = both["ns_per_packet_dropped"] - both["testrun_raw_ns_dropped"]
    way_back = both["ns_per_packet"] - both["testrun_raw_ns"] - way_in
    parts = {PROGRAM: both["testrun_raw_ns"], WAY_IN: way_in, WAY_BACK: way_back}
    return pd.concat([both.assign(piece=name, piece_ns=ns) for name, ns in parts.items()], ignore_index=True)


def harness(request: FigureRequest) -> View:
    """CPU time per packet of N = 0 by mode, piece upon piece: the mean over the repetitions of each."""
    rows = unlimited(labelled(request))
    order = orders(request)
    marks: list[dict[str, object]] = []
    for (panel, x), place in rows.groupby(["panel", "x"], sort=False):
        below = 0.0
        for hue in order["hues"]:
            own = place[place["hue"] == hue]
            if own.empty:
                continue
            values = values_of_one_point(own, "value")
            top = below + float(values.mean())
            mark = {
                "figure": request.figure,
                "file": request.figure,
                "kind": "stack",
                "panel": panel,
                "hue": hue,
                "x": x,
            }
            marks.append(mark | {"value": top, "low": below, "n": len(values), "verdict": "valid"} | _points(own))
            below = top
    table = marks_frame(marks)
    note = (
        f"N = 0: {PROGRAM} by BPF_PROG_TEST_RUN; {WAY_IN}: a program that drops, less its own time; {WAY_BACK}: what "
        "reflecting takes more. Differences are of one repetition; means over the repetitions."
    )
    small = caption(request.trials, table, (*request.used, "accesses"), note, interval="")
    modes = tuple(levels(request.trials, "mode"))
    return View(table, Look("mode", "CPU time per packet (ns)", x_values=modes, caption=small, **order))


def _points(rows: pd.DataFrame) -> dict[str, object]:
    return {"points": ",".join(sorted(set(rows["point_id"].dropna().astype(str))))}
