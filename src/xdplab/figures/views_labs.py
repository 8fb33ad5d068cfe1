"""The figure whose factor is the lab: its rate relative to that of the same points in all labs."""

from __future__ import annotations

import pandas as pd

from xdplab.analysis.labs import in_several_labs
from xdplab.errors import NotApplicableError
from xdplab.figures.factors import FigureRequest
from xdplab.figures.marks import Axes, Look, Order, View, collect
from xdplab.figures.views import described, labelled, unlimited


def relative_rates(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the trials of points that several labs measured, with ``lab_ratio``: rate / mean of the labs' means."""
    rows = in_several_labs(trials)
    if rows.empty:
        raise NotApplicableError("no point was measured in several labs")
    means = rows.groupby(["point_id", "lab"])["forwarded_pps"].mean().groupby("point_id").mean()
    return rows.assign(lab_ratio=rows["forwarded_pps"] / rows["point_id"].astype("str").map(means))


def labs(request: FigureRequest) -> View:
    """Rate by lab, relative to the mean of the same point over all labs."""
    rows = unlimited(labelled(request))
    points = [point for _, point in rows.groupby("point_id", sort=False)]
    marks = [mark for point in points for mark in collect(point, request.figure, "point")]
    note = "One mark per point and lab: its rate over the mean of the point in all labs, 1 where the labs are equal."
    axes = Axes("lab", "rate / mean of all labs", from_zero=False, rules={"": 1.0})
    order = Order(x_values=tuple(sorted(request.trials["lab"].dropna().unique())))
    return described(request, marks, Look(axes, order), note, beside=("accesses",))
