"""Marks table in, axes out: panels in a grid, hues by colour and dash, verdicts and limits by marker or hatch.

This module knows no trials and no units: the view and its look define what a number means.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from xdplab.errors import FigureError, NotApplicableError
from xdplab.figures import kinds, scales
from xdplab.figures.marks import Look, View
from xdplab.figures.paper import label_axes, place_caption, place_legend, settle, text_width_in, wrap
from xdplab.figures.pointer import Group, OnSheet
from xdplab.figures.styles import Style, applied, style_named

MOST_COLUMNS = 3


class Sheet(Figure):
    """A figure without pyplot. A notebook displays it as a cell's last value, and it keeps the view that it shows."""

    shown: OnSheet | None = None

    def _repr_png_(self) -> bytes:
        stream = io.BytesIO()
        self.savefig(stream, format="png")
        return stream.getvalue()


class Panels(np.ndarray[Any, Any]):
    """The Axes of a figure with several panels: an array that knows its figure, as a single Axes does."""

    @property
    def figure(self) -> Figure:
        sheet = self.flat[0].figure
        assert isinstance(sheet, Figure)
        return sheet

    def _repr_png_(self) -> bytes:
        stream = io.BytesIO()
        self.figure.savefig(stream, format="png")
        return stream.getvalue()


def draw(
    view: View,
    style: str | Style = "paper-1col",
    *,
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
    caption: bool = True,
) -> Axes | Panels:
    """Draw a view; returns one Axes, or the array of them (rows x columns, hidden ones included).

    Both know their ``.figure``. ``figsize``: width and height in inches, in place of the style's. ``ax``: Axes of your
    own, for a figure of one panel; they keep their size, and the caption is left out.
    Raises NotApplicableError if the marks table is empty, FigureError if ``ax`` cannot hold all panels.
    """
    style = style_named(style) if isinstance(style, str) else style
    if figsize is not None:
        style = replace(style, width_in=figsize[0], height_in=figsize[1])
    marks, look = view.marks, view.look
    if marks.empty:
        raise NotApplicableError("there is no mark to draw")
    panels = _order(look.order.panels, marks["panel"])
    if ax is not None:
        return _draw_onto(ax, view, panels, style)
    with applied(style):
        axes = _grid(panels, style, look, _categories(marks, look))
        titles = {panel: "\n".join(wrap(panel, _panel_width(axes.shape[1], style), style.font_pt)) for panel in panels}
        hues = _paints(look, marks["hue"])
        cut, drawn = False, list[Group]()
        for ax, panel in zip(axes.flat, panels, strict=False):
            in_panel = marks[marks["panel"].fillna("") == panel]
            drawn += _panel(ax, in_panel, look, hues, scales.places(marks if look.axes.share_x else in_panel, look))
            scales.scale_y(ax, marks if look.axes.share_y else in_panel, look)
            kinds.settle_values(ax)
            cut |= kinds.mark_cut_intervals(ax)
            if panel:
                ax.set_title(titles[panel])
        sheet = axes.flat[0].figure
        sheet.shown = OnSheet(look, tuple(drawn), tuple(hues))
        label_axes(sheet, axes, look.axes.x_label, look.axes.y_label, style)
        place_legend(sheet, kinds.legend_entries(marks, look, hues, cut=cut), look.words.hue_title, style)
        place_caption(sheet, view.short_caption if caption else (), style)
        settle(sheet, list(axes.flat)[: len(panels)], categorical=look.axes.x_scale == "category")
    return axes.view(Panels) if axes.size > 1 else axes.flat[0]


def _draw_onto(ax: Axes, view: View, panels: list[str], style: Style) -> Axes:
    marks, look = view.marks, view.look
    if len(panels) > 1:
        raise FigureError(
            f"one Axes cannot hold {len(panels)} panels: {', '.join(panels)}",
            remedy='choose one with where={…}, or panel="" where they fit one figure',
        )
    with applied(style):
        hues = _paints(look, marks["hue"])
        _panel(ax, marks, look, hues, scales.places(marks, look))
        scales.scale_y(ax, marks, look)
        kinds.settle_values(ax)
        entries = kinds.legend_entries(marks, look, hues, cut=kinds.mark_cut_intervals(ax))
        ax.set(xlabel=look.axes.x_label, ylabel=look.axes.y_label, title=panels[0])
        if entries:
            ax.legend(*zip(*entries, strict=True), title=look.words.hue_title or None)
    return ax


def _order(given: tuple[str, ...], labels: pd.Series) -> list[str]:
    """Return the labels that occur, in the given order first; an empty panel or hue is not drawn."""
    present = list(dict.fromkeys(labels.fillna("").astype(str)))
    return [name for name in given if name in present] + [name for name in present if name not in given]


def _paints(look: Look, labels: pd.Series) -> dict[str, kinds.Paint]:
    """Return the paint of each hue that occurs; it does not depend on which of the look's hues occur."""
    present = _order(look.order.hues, labels)
    paints = kinds.paint(list(dict.fromkeys((*look.order.hues, *present))), look.order.palette, look.order.things)
    return {hue: paints[hue] for hue in present}


def _categories(marks: pd.DataFrame, look: Look) -> list[str]:
    return [str(x) for x in marks["x"].unique()] if look.axes.x_scale == "category" else []


def _grid(panels: Sequence[str], style: Style, look: Look, categories: Sequence[str]) -> NDArray[Any]:
    """Make the panels' axes: as many columns as hold each panel's notes, the words of its title and its categories."""
    many = len(panels)
    columns = (
        look.order.columns if 0 < look.order.columns <= MOST_COLUMNS else (2 if many == 4 else min(many, MOST_COLUMNS))
    )
    notes = [
        text_width_in(note, style.small_pt) for panel_notes in look.words.notes.values() for _, note in panel_notes
    ]
    titles = [text_width_in(word, style.font_pt) for panel in panels for word in panel.split()]
    widest = max([*notes, *titles, len(categories) * _TURNED_LINES * style.font_pt / 72], default=0)
    while columns > 1 and widest > _panel_width(columns, style):
        columns -= 1
    rows = -(-many // columns)
    below = _turned_in(categories, columns, style) if rows > 1 else 0.0
    height = style.height_in or (1.5 if many == 1 else rows) * style.panel_height_in + rows * below
    sheet = Sheet(figsize=(style.width_in, height), layout="constrained")
    sheet.get_layout_engine().set(w_pad=0.04, h_pad=0.03, hspace=0.03, wspace=0.02)  # type: ignore[union-attr,call-arg]
    FigureCanvasAgg(sheet)
    axes = sheet.subplots(rows, columns, sharex=False, sharey=look.axes.share_y, squeeze=False)
    for ax in axes.flat[many:]:
        ax.set_visible(False)
    return np.asarray(axes)


_TURNED_LINES = 2.0
"""How many lines' heights apart labels must stand that are turned by 30 degrees."""


def _turned_in(categories: Sequence[str], columns: int, style: Style) -> float:
    """Return how far down labels of categories reach that are turned since they are wider than their places; else 0."""
    widest = max((text_width_in(category, style.font_pt) for category in categories), default=0)
    word = max((text_width_in(word, style.font_pt) for category in categories for word in category.split()), default=0)
    return widest / 2 if word * len(categories) > _panel_width(columns, style) else 0.0


def _panel_width(columns: int, style: Style) -> float:
    return (style.width_in - 6 * style.font_pt / 72) / columns - 0.05


def _panel(
    ax: Axes, marks: pd.DataFrame, look: Look, hues: dict[str, kinds.Paint], places: dict[object, float]
) -> list[Group]:
    """Draw the marks of one panel."""
    drawn = []
    labels = marks["hue"].fillna("")
    barred = [hue for hue in hues if (marks["kind"].isin(kinds.SIDE_BY_SIDE) & labels.eq(hue)).any()]
    slots = {hue: kinds.slot(barred.index(hue) if hue in barred else 0, len(barred)) for hue in hues}
    spots = _centered(marks, places, {hue: slots[hue].offset for hue in barred})
    for rank, (hue, paint) in enumerate(hues.items()):
        for kind, group in marks[labels == hue].groupby("kind", sort=False):
            x = np.array([spots[value] for value in group["x"]])
            series = kinds.Series(ax, x, group, paint, slots[hue], rank)
            before = set(ax.get_children())
            kinds.KINDS[str(kind)](series, look)
            shapes = tuple(shape for shape in ax.get_children() if shape not in before)
            drawn.append(Group(ax, hue, str(kind), group, x if kind in kinds.UNSHIFTED else series.x, shapes))
    panel = str(marks["panel"].fillna("").iloc[0])
    rule = look.axes.rules.get(panel, look.axes.rules.get(""))
    if rule is not None:
        ax.axhline(rule, color="0.35", linewidth=mpl.rcParams["axes.linewidth"], linestyle=(0, (4, 2)), zorder=1)
    scales.scale_x(ax, look, places)
    _write_notes(ax, look.words.notes.get(panel, ()), hues)
    return drawn


def _centered(marks: pd.DataFrame, places: dict[object, float], offsets: dict[str, float]) -> dict[object, float]:
    """Return the places such that the hues that a group has stand around its label, where others are absent."""
    moved = dict(places)
    beside = marks[marks["kind"].isin(kinds.SIDE_BY_SIDE) & marks["hue"].fillna("").isin(list(offsets))]
    for x, group in beside.groupby("x", sort=False):
        shifts = [offsets[hue] for hue in group["hue"].fillna("").unique()]
        moved[x] = places[x] - (min(shifts) + max(shifts)) / 2
    return moved


def _write_notes(ax: Axes, notes: tuple[tuple[str, str], ...], hues: dict[str, kinds.Paint]) -> None:
    size = mpl.rcParams["legend.fontsize"]
    for line, (hue, note) in enumerate(notes):
        offset = (2.0, -2.0 - line * size * 1.2)
        ax.annotate(
            note, (0, 1), in_layout=False, xycoords="axes fraction", xytext=offset,
 textcoords="offset points", va="top", ha="left",
            fontsize=size, color=hues[hue].color if hue in hues else "0.2",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        )  # fmt: skip
