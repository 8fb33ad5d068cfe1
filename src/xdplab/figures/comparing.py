"""Two runs in one figure: the ratio at each point that both runs have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from xdplab.analysis.values import records
from xdplab.errors import NotApplicableError
from xdplab.figures.catalogue import COMPARE
from xdplab.figures.factors import FigureChoice, FigureRequest, arrange, compound
from xdplab.figures.marks import Axes, Look, View
from xdplab.figures.views import ACCESSES, described, labelled, program_labels

RATE = "forwarded_pps"


def compare_view(rows: pd.DataFrame, *, names: tuple[str, str] = ("a", "b"), metric: str = RATE) -> View:
    """Return the view of ``decide.compare.compare(a, b)``: ratio b/a by N, or by program with a user's among them.

    ``names`` label the two runs, ``metric`` is the column that was compared. Raises NotApplicableError if no point has
    a ratio.
    """
    if rows["ratio"].isna().all():
        raise NotApplicableError("the two runs have no valid point in common")
    counted = bool(rows["accesses"].notna().all())
    x = "accesses" if counted else "program"
    judged = rows.assign(verdict="valid", limited_by=None, program=program_labels(rows))
    compared = judged[judged["ratio"].notna()]
    layout = arrange(compared, x, FigureChoice(), ("queues", "program_name", "frame_bytes", "mode"), ("mode",))
    request = FigureRequest(COMPARE, judged, compound(compared, layout), "ratio")
    note = f"{names[1]} over {names[0]}: ratio of geometric means, 95 % interval with the spread of runs as its floor."
    what = "rate" if metric == RATE else metric
    axes = Axes(
        ACCESSES if counted else "program",
        f"{what} of {names[1]} / {names[0]}",
        "counts" if counted else "category",
        from_zero=False,
        rules={"": 1.0},
    )
    marks = _marks(labelled(request), compared)
    return described(request, marks, Look(axes), note, *_without(rows), intervals="")


def _marks(rows: pd.DataFrame, compared: pd.DataFrame) -> Iterable[Mapping[str, object]]:
    """A ratio is one number with its own interval, so this averages nothing."""
    kind = "line" if compared["accesses"].notna().all() else "point"
    place = rows[["panel", "hue", "x", "value"]].assign(figure=COMPARE, file=COMPARE, kind=kind)
    n = compared[["n_a", "n_b"]].min(axis=1)
    interval = compared[["low", "high"]].assign(n=n, verdict="valid", limited_by=None, points=compared["point_id"])
    return records(pd.concat([place, interval], axis=1))


def _without(rows: pd.DataFrame) -> list[str]:
    lost = rows[rows["ratio"].isna()]
    reasons = "; ".join(sorted(lost["reason"].dropna().unique()))
    return [f"No ratio for {len(lost)} of {len(rows)} points: {reasons}."] if len(lost) else []
