"""The scales of a panel: where a value of x stands, from where to where an axis goes, and which ticks have labels."""

from __future__ import annotations

from math import ceil, floor, log10
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.path import Path
from matplotlib.ticker import (
    FixedFormatter,
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

from xdplab.figures import kinds
from xdplab.figures.marks import Look

MOST_TICKS = 8
"""A logarithmic axis with more values than this is labelled by decades, not by its values."""
MOST_DECADES = 8
"""The largest number of labels of such an axis; decades between them are left out evenly."""
SLOT = 0.3
"""Width of the slot of zero beside a logarithmic axis of counts, as a share of that axis."""
BREAK = "break of the axis"
LANES_ROOM = {False: 0.09, True: 0.14}
"""Room for the intervals beside the outermost markers, as a share of the axis, in wide and in narrow panels."""


def places(marks: pd.DataFrame, look: Look) -> dict[object, float]:
    """Map an x value to its place on the axis: its rank among categories; on a logarithmic axis of counts its
    logarithm, with zero in a slot of its own; else itself."""
    if look.axes.x_scale == "counts":
        return _counts(list(marks["x"].unique()))
    if look.axes.x_scale != "category":
        return {x: float(x) for x in marks["x"].unique()}
    present = list(dict.fromkeys(marks["x"]))
    order = [x for x in look.order.x_values if x in present] + [x for x in present if x not in look.order.x_values]
    return {x: float(rank) for rank, x in enumerate(order)}


def _counts(values: list[object]) -> dict[object, float]:
    above = [log10(number) for number in (float(str(x)) for x in values) if number > 0]
    low, high = min(above, default=0.0), max(above, default=0.0)
    zero = low - SLOT * (high - low or 1.0)
    return {x: log10(float(str(x))) if float(str(x)) > 0 else zero for x in values}


def scale_x(ax: Axes, look: Look, spots: dict[object, float]) -> None:
    """Give a panel's x axis its scale, ends and ticks; ``spots`` is what `places` returned."""
    if look.axes.x_scale == "category":
        ax.set_xlim(-0.6, len(spots) - 0.4)
        _tick(ax, list(spots.values()), [str(x) for x in spots])
        return
    ticks = sorted(set(spots.values()))
    narrow = ax.get_subplotspec().get_gridspec().ncols > 2  # type: ignore[union-attr]
    if look.axes.x_scale == "linear":
        span = max(ticks) - min(ticks) or 1.0
        ax.set_xlim(
            look.axes.x_limits or (min(ticks) - LANES_ROOM[narrow] * span, max(ticks) + LANES_ROOM[narrow] * span)
        )
        if look.axes.x_limits or len(ticks) > MOST_TICKS:
            ax.xaxis.set_major_locator(MaxNLocator(3 if narrow else 6, integer=True, steps=[1, 2, 4, 5, 10]))
        else:
            _tick(ax, ticks, [f"{tick:g}" for tick in ticks])
    elif look.axes.x_scale == "counts":
        _scale_counts(ax, dict(sorted(spots.items(), key=lambda spot: spot[1])), LANES_ROOM[narrow])
    else:
        _scale_log_x(ax, ticks, narrow=narrow)


def _scale_counts(ax: Axes, spots: dict[object, float], room: float) -> None:
    first, *others = spots.values()
    span = (others[-1] if others else first) - first or 1.0
    ax.set_xlim(first - room * span, first + (1 + room) * span)
    _tick(ax, list(spots.values()), [f"{float(str(x)):g}" for x in spots])
    if others and float(str(next(iter(spots)))) == 0:
        _break(ax, (first + others[0]) / 2)


def _break(ax: Axes, x: float) -> None:
    """Open the axis' line at ``x`` between two strokes: what stands left of it is not on the scale."""
    line: dict[str, Any] = {"linestyle": "none", "transform": ax.get_xaxis_transform(), "clip_on": False, "gid": BREAK}
    thin = mpl.rcParams["axes.linewidth"]
    ax.plot(x, 0, marker="s", markersize=2.25, color="white", zorder=5, **line)
    for side in (-0.5, 0.5):
        stroke = Path([(side - 0.25, -1), (side + 0.25, 1)])
        ax.plot(x, 0, marker=stroke, markersize=4.5, color="black", markeredgewidth=thin, zorder=6, **line)


def _scale_log_x(ax: Axes, ticks: list[float], *, narrow: bool) -> None:
    ax.set_xscale("log")
    margin = _margin(min(ticks), max(ticks), 1.4)
    ax.set_xlim(min(ticks) / margin, max(ticks) * margin)
    if len(ticks) > MOST_TICKS:
        _tick_log(ax.xaxis, *ax.get_xlim(), most=3 if narrow else MOST_DECADES)
        ax.xaxis.set_minor_locator(LogLocator(subs=range(2, 10)))
        ax.xaxis.set_minor_formatter(NullFormatter())
        return
    _tick(ax, ticks, [f"{tick:g}" for tick in ticks])
    ax.xaxis.set_minor_locator(NullLocator())


def _tick(ax: Axes, ticks: list[float], labels: list[str]) -> None:
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.xaxis.set_major_formatter(FixedFormatter(labels))


def scale_y(ax: Axes, marks: pd.DataFrame, look: Look) -> None:
    """Give the axis to the values; an interval of two repetitions may leave it, and is seen to."""
    low, high = _reach(marks, list(look.axes.rules.values()) if look.axes.share_y else [])
    if look.axes.y_scale == "log":
        low = max(low, marks["value"].min() / 3)
        # Text above the highest mark stays below the panel's title.
        room = (high / low) ** 0.12 if "label" in marks and marks["label"].notna().any() else 1.0
        # So does text below the lowest one above the axis' line.
        under = (high / low) ** 0.2 if marks["kind"].eq("below").any() else 1.0
        _scale_log(ax, low / under, high * room)
        return
    if look.axes.from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    span = high - low or 1.0
    room = 0.15 if look.words.bar_values else 0.08 + 0.13 * len(ax.texts)
    around = (low - (0.08 * span if low < 0 or not look.axes.from_zero else 0), high + room * span)
    ax.set_ylim(look.axes.y_limits or around)
    ax.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))


def _scale_log(ax: Axes, low: float, high: float) -> None:
    ax.set_yscale("log")
    margin = _margin(low, high, 1.5)
    ax.set_ylim(low / margin, high * margin)
    _tick_log(ax.yaxis, low, high)
    ax.yaxis.set_minor_locator(NullLocator())


def _margin(low: float, high: float, least: float) -> float:
    """Return the factor beyond the outermost marks of a logarithmic axis: a twentieth of it, so that none is cut."""
    return max(least, float((high / low) ** 0.05))


def _tick_log(axis: Axis, low: float, high: float, most: int = MOST_DECADES) -> None:
    decades = floor(log10(high)) - ceil(log10(low)) + 1
    axis.set_major_locator(LogLocator(subs=(1.0,) if decades > 1 else (1.0, 2.0, 5.0), numticks=most))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.10g}"))


def _reach(marks: pd.DataFrame, rules: list[float]) -> tuple[float, float]:
    """Return from where to where values and the nearer part of their intervals go; none of them below 0 by that."""
    values = marks["value"]
    low, high = kinds.near_interval(marks)
    low = low.clip(lower=0) if values.min() >= 0 else low
    ends = [values.min(), values.max(), low.min(), high.max(), *rules]
    numbers = [float(end) for end in ends if not np.isnan(end)]
    return min(numbers), max(numbers)
