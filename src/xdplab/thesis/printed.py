"""The published figures on their printed pages: the same panels in the same boxes, printed words, notes below.

The boxes are read back from the published PDFs (I. F. Capeletti, Unipampa 2022): three panels one below the other, or
two by two, with the legend to their right. What is wrong with a figure is said below the printed page, not on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from xdplab.figures import kinds
from xdplab.figures.draw import Sheet
from xdplab.figures.marks import Look, View
from xdplab.figures.paper import wrap
from xdplab.thesis.published import Spec

POINTS = 72.0  # to the inch
TEXT_PT, TITLE_PT, LABEL_PT, LEGEND_PT, NOTE_PT = 10.0, 11.0, 9.0, 7.0, 8.0
ROOM_PT = 28.0  # between two panels, for the tick labels of the upper and the title of the lower one
NOTE_LINE_PT = 1.35 * NOTE_PT
BARS_WIDTH = 0.8  # of a place on the axis, for all its bars together
MARGIN = 1.05  # of the axis above the highest mark
DPI = 120
LOG_MARGIN = 1.6
SHORT_LABELS = (-3, 4)
GREY, BEHIND = "0.8", "thesis"
OWN_WIDTH = 0.55  # of a grey bar behind it
PARAMETERS: Mapping[str, object] = {
    "font.family": "DejaVu Sans",
    "font.size": TEXT_PT,
    "axes.titlesize": TITLE_PT,
    "axes.titlepad": 4.0,
    "axes.formatter.limits": (-5, 6),
    "lines.linewidth": 1.5,
    "svg.hashsalt": "xdplab",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}


@dataclass(frozen=True)
class Page:
    """A printed page: its size, and the first panel's box (left, top, width, height), in points from the top left.

    ``pitch_x`` and ``pitch_y`` lead from one panel to the next; ``columns`` of them stand side by side.
    """

    width: float
    height: float
    left: float
    top: float
    panel_width: float
    panel_height: float
    pitch_x: float
    pitch_y: float
    columns: int

    def box(self, place: int) -> tuple[float, float, float, float]:
        """Return (x0, y0, x1, y1) of a panel, in points from the page's top left."""
        row, column = divmod(place, self.columns)
        x, y = self.left + column * self.pitch_x, self.top + row * self.pitch_y
        return x, y, x + self.panel_width, y + self.panel_height


PAGES = {
    "two by two": Page(716.8, 424.3, 39.6, 21.2, 291.0, 167.3, 301.8, 198.1, 2),
    "throughput": Page(577.5, 532.3, 34.1, 21.2, 493.7, 137.2, 0.0, 168.05, 1),
    "throughput lines": Page(598.7, 532.3, 39.6, 21.2, 485.9, 141.3, 0.0, 166.0, 1),
    "latency": Page(597.7, 532.3, 48.0, 21.2, 476.4, 141.3, 0.0, 166.0, 1),
    "softirq": Page(543.3, 424.3, 45.3, 21.2, 445.6, 101.2, 0.0, 132.05, 1),
    "counts": Page(948.5, 532.3, 34.1, 21.2, 841.4, 137.2, 0.0, 168.05, 1),
}


def page_of(spec: Spec) -> Page:
    """Return the page of a figure: four queue counts stand two by two, three modes or sizes below each other."""
    if spec.panel == "queues":
        return PAGES["two by two"]
    if spec.family == "throughput":
        return PAGES["throughput lines" if spec.kind == "line" else "throughput"]
    return PAGES[spec.family if spec.family in ("latency", "softirq") else "counts"]


def printed_sheet(view: View, spec: Spec, notes: Sequence[str], *, behind: pd.DataFrame | None = None) -> Figure:
    """Draw a view on its printed page, with ``notes`` below it: the page grows downwards by their lines.

    ``behind``: marks in grey behind the view's, of the same panels, hues and unit.
    """
    page, marks, look = page_of(spec), view.marks, view.look
    lines = [line for note in notes for line in wrap(note, (page.width - 20) / POINTS, NOTE_PT)]
    height = page.height + (NOTE_LINE_PT * (len(lines) + 1) if lines else 0)
    with mpl.rc_context(dict(PARAMETERS)):  # type: ignore[arg-type]
        sheet = Sheet(figsize=(page.width / POINTS, height / POINTS), dpi=DPI)
        FigureCanvasAgg(sheet)
        paints = kinds.paint(list(look.hues), look.palette)
        axes = [sheet.add_axes(_rect(page.box(at), page.width, height)) for at in range(len(look.panels))]
        for at, (ax, panel) in enumerate(zip(axes, look.panels, strict=True)):
            grey = None if behind is None else behind[behind["panel"] == panel]
            _panel(ax, marks[marks["panel"] == panel], look, paints, grey)
            ax.set_title(panel)
            if at + page.columns >= len(axes):
                ax.set_xlabel(look.x_label)
            elif page.pitch_y - page.panel_height < ROOM_PT:
                ax.tick_params(labelbottom=False)
        _label_and_legend(sheet, axes, page, look, paints, height, barred=spec.kind == "bar", behind=behind is not None)
        if lines:
            below = 1 - (page.height + 2) / height
            sheet.text(10 / page.width, below, "\n".join(lines), fontsize=NOTE_PT, color="0.25", va="top")
    return sheet


def _rect(box: tuple[float, float, float, float], width: float, height: float) -> tuple[float, float, float, float]:
    x0, y0, x1, y1 = box
    return x0 / width, 1 - y1 / height, (x1 - x0) / width, (y1 - y0) / height


def _panel(
    ax: Axes, marks: pd.DataFrame, look: Look, paints: Mapping[str, kinds.Paint], behind: pd.DataFrame | None
) -> None:
    shown = marks
    if behind is not None:  # an interval of two repetitions would leave no room for what is compared
        near = marks.assign(high=kinds.near_interval(marks)[1]) if len(marks) else marks
        shown = pd.concat([part for part in (near, behind) if len(part)] or [marks])
    floor = _scale_y(ax, shown, look)
    if behind is not None and look.y_scale == "linear":
        ax.ticklabel_format(axis="y", scilimits=SHORT_LABELS)  # counts of one's own have no power of ten yet
    for rank, hue in enumerate(paints):
        slot = _slot(rank, len(paints))
        if behind is not None:
            _hue(ax, behind[behind["hue"] == hue], look, slot, GREY, floor)
            slot = (slot[0], OWN_WIDTH * slot[1])
        _hue(ax, marks[marks["hue"] == hue], look, slot, paints[hue].color, floor)
    ax.set_xlim(-0.5, len(look.x_values) - 0.5)
    ax.set_xticks(range(len(look.x_values)), [str(value) for value in look.x_values])


def _scale_y(ax: Axes, marks: pd.DataFrame, look: Look) -> float:
    """Give the axis to the marks and their intervals; return where its bars stand."""
    high = float(np.nanmax(marks[["value", "high"]].to_numpy(dtype=float), initial=0.0)) if len(marks) else 0.0
    least = float(marks["value"].min()) if len(marks) else 0.0
    if look.y_scale == "log" and high > 0:
        least = float(marks.loc[marks["value"] > 0, "value"].min())  # a printed 0 has no place on it
        ax.set_yscale("log")
        ax.set_ylim(least / LOG_MARGIN, high * LOG_MARGIN)
        return least / LOG_MARGIN
    low = min(0.0, least)
    ax.set_ylim(MARGIN * low, MARGIN * high if high > 0 else 1.0)
    return 0.0


def _hue(ax: Axes, own: pd.DataFrame, look: Look, slot: tuple[float, float], color: kinds.Color, floor: float) -> None:
    """Draw the marks of one hue, with their intervals where they have some."""
    if own.empty:
        return
    places = {value: at for at, value in enumerate(look.x_values)}
    x = np.array([places[value] for value in own["x"]], dtype=float)
    y = own["value"].to_numpy(dtype=float)
    if (own["kind"] == "bar").any():
        _bars(ax, x + slot[0], y, slot[1], color, floor)
        _whiskers(ax, x + slot[0], own, "0.26")
        return
    order = np.argsort(x)
    ax.plot(x[order], y[order], color=color, marker="." if len(own) == 1 else None)
    _whiskers(ax, x, own, color)


def _slot(rank: int, count: int) -> tuple[float, float]:
    width = BARS_WIDTH / count
    return (rank - (count - 1) / 2) * width, width


def _bars(ax: Axes, x: np.ndarray, y: np.ndarray, width: float, color: kinds.Color, low: float) -> None:
    """All bars of a hue as one collection: hundreds of single ones take seconds."""
    left, right, floor = x - width / 2, x + width / 2, np.full(len(x), low)
    corners = [np.stack(pair, axis=1) for pair in ((left, floor), (left, y), (right, y), (right, floor))]
    ax.add_collection(PolyCollection(list(np.stack(corners, axis=1)), facecolors=[color], edgecolors="none"))


def _whiskers(ax: Axes, x: np.ndarray, marks: pd.DataFrame, color: kinds.Color) -> None:
    low, high = (marks[name].to_numpy(dtype=float) for name in ("low", "high"))
    known = ~np.isnan(low)
    segments = [((a, b), (a, c)) for a, b, c in zip(x[known], low[known], high[known], strict=True)]
    ax.add_collection(LineCollection(segments, colors=[color], linewidths=1.5))


def _label_and_legend(
    sheet: Figure,
    axes: Sequence[Axes],
    page: Page,
    look: Look,
    paints: Mapping[str, kinds.Paint],
    height: float,
    *,
    barred: bool,
    behind: bool,
) -> None:
    boxes = [page.box(at) for at in range(len(axes))]
    middle = 1 - (boxes[0][1] + boxes[-1][3]) / 2 / height
    sheet.text(0.5 / page.width, middle, look.y_label, rotation=90, va="center", ha="left", fontsize=LABEL_PT)
    handles = [
        Patch(facecolor=paint.color) if barred else Line2D([], [], color=paint.color) for paint in paints.values()
    ]
    names = list(paints)
    if behind:
        handles.append(Patch(facecolor=GREY) if barred else Line2D([], [], color=GREY))
        names.append(BEHIND)
    right, top = max(box[2] for box in boxes), boxes[0][1]
    sheet.legend(
        handles, names, title=look.hue_title or None, loc="upper left", frameon=False, borderaxespad=0.0,
        bbox_to_anchor=((right + 4) / page.width, 1 - top / height), handlelength=1.0, handletextpad=0.4,
        fontsize=LEGEND_PT, title_fontsize=LEGEND_PT,
    )  # fmt: skip
