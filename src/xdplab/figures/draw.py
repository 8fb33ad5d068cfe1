"""Marks table in, axes out: panels in a grid, hues by colour and dash, verdicts and limits by marker or hatch.

This module knows no trials and no units: the view and its look define what a number means.
"""

from __future__ import annotations

import io
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from math import ceil
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from xdplab.analysis.values import records
from xdplab.errors import FigureError, NotApplicableError
from xdplab.figures import kinds, scales
from xdplab.figures.marks import Look, View
from xdplab.figures.paper import (
    label_axes,
    least_width_in,
    place_caption,
    place_legend,
    place_title,
    settle,
    text_width_in,
    unreadable,
    wrap,
)
from xdplab.figures.pointer import Group, OnSheet
from xdplab.figures.save import tex_caption
from xdplab.figures.styles import DEFAULT_STYLE, Style, applied, style_named

MOST_COLUMNS = 3


class Sheet(Figure):
    """A figure without pyplot. A notebook displays it as a cell's last value, and it keeps the view that it shows."""

    caption: str = ""
    """The whole caption, one paragraph a line; on the figure there may be less of it."""

    shown: OnSheet | None = None
    style: Style | None = None

    @property
    def tex(self) -> str:
        """The caption for LaTeX, ``\\caption{…}``."""
        return tex_caption(self.caption)

    def savefig(self, *arguments: Any, **options: Any) -> None:
        """Write the figure as its style does, for which a journal takes the fonts of a PDF."""
        with applied(self.style) if self.style else nullcontext():
            super().savefig(*arguments, **options)

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


def draw(view: View, style: str | Style = DEFAULT_STYLE, *, ax: Axes | None = None) -> Axes | Panels:
    """Draw a view; returns one Axes, or the array of them (rows x columns, hidden ones included).

    Both know their ``.figure``. ``ax``: Axes of your own, for a figure of one panel; they keep their size, and the
    caption is left out. Raises NotApplicableError if the marks table is empty, FigureError if ``ax`` cannot hold all
    panels, or if the style has a size that a person chose and nothing can be read in it.
    """
    style = style_named(style) if isinstance(style, str) else style
    if view.marks.empty:
        raise NotApplicableError("there is no mark to draw")
    if ax is not None:
        return _draw_onto(ax, view, _order(view.look.order.panels, view.marks["panel"]), style)
    axes = _drawn(view, style)
    if style.chosen and (problem := unreadable(axes)):
        raise FigureError(
            f"{_size(style.width_in, style.height_in)} is too small for this figure: {problem}",
            remedy=f"the smallest that works is {_smallest(view, style)}",
        )
    return axes.view(Panels) if axes.size > 1 else axes.flat[0]


def _drawn(view: View, style: Style) -> NDArray[Any]:
    marks, look = view.marks, view.look
    with applied(style):
        places = _places(_order(look.order.panels, marks["panel"]), style, look, _categories(marks, look))
        axes = _grid(places, style, look, _categories(marks, look))
        shown = [(ax, panel) for ax, panel in zip(axes.flat, places.flat, strict=True) if panel is not None]
        hues = _paints(look, marks["hue"])
        cut, drawn = False, list[Group]()
        for ax, panel in shown:
            in_panel = marks[marks["panel"].fillna("") == panel]
            drawn += _panel(ax, in_panel, look, hues, scales.places(marks if look.axes.share_x else in_panel, look))
            scales.scale_y(ax, marks if look.axes.share_y else in_panel, look)
            kinds.settle_values(ax)
            cut |= kinds.mark_cut_intervals(ax)
            if panel:
                ax.set_title("\n".join(wrap(panel, _panel_width(axes.shape[1], style), style.font_pt)))
        sheet = axes.flat[0].figure
        sheet.shown, sheet.style = OnSheet(look, tuple(drawn), tuple(hues)), style
        sheet.caption = "\n".join(view.caption)
        label_axes(sheet, axes, *look.axes.titles, style)
        place_legend(sheet, kinds.legend_entries(marks, look, hues, cut=cut), look.words.hue_title, style)
        place_caption(sheet, view.short_caption if style.captioned else (), style)
        place_title(sheet, look.words.title if style.titled else "", style)
        settle(sheet, axes, categorical=look.axes.x_scale == "category")
    return axes


MOST_TENTHS = 200
"""The widest and highest figure that is tried, in tenths of an inch."""


def _smallest(view: View, style: Style) -> str:
    """Return the smallest size that works, ``3.3 x 4.1 in``: the width first, then the height if one is chosen."""

    def works(width_in: float, height_in: float | None) -> bool:
        return not unreadable(_drawn(view, replace(style, width_in=width_in, height_in=height_in)))

    width = style.width_in
    if not works(width, None):
        width = _first(ceil(10 * width), lambda tenths: works(tenths / 10, None)) / 10
    if style.height_in is None:
        return _size(width, None)
    return _size(width, _first(ceil(10 * style.height_in), lambda tenths: works(width, tenths / 10)) / 10)


def _size(width_in: float, height_in: float | None) -> str:
    return f"{width_in:.3g} in wide" if height_in is None else f"{width_in:.3g} x {height_in:.3g} in"


def _first(least: int, works: Callable[[int], bool]) -> int:
    """Return the least number from ``least`` on that works, where greater ones work, too; found by doubling steps."""
    step = 1
    while not works(least + step) and least + step < MOST_TENTHS:
        least, step = least + step, 2 * step
    return least + bisect_left(range(step), True, key=lambda more: works(least + more))


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
        x_label, y_label = look.axes.titles
        ax.set(xlabel=x_label, ylabel=y_label, title=panels[0])
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


def _places(panels: Sequence[str], style: Style, look: Look, categories: Sequence[str]) -> NDArray[Any]:
    """Return the panel of each place, row by row; None stays empty.

    There are as many columns as hold each panel's notes, the words of its title and its categories.
    """
    many, wanted = len(panels), look.order.columns
    columns = wanted if 0 < wanted <= MOST_COLUMNS else (2 if many == 4 else min(many, MOST_COLUMNS))
    notes = [
        text_width_in(note, style.small_pt) for panel_notes in look.words.notes.values() for _, note in panel_notes
    ]
    titles = [text_width_in(word, style.font_pt) for panel in panels for word in panel.split()]
    widest = max([*notes, *titles, len(categories) * _TURNED_LINES * style.font_pt / 72, least_width_in(style)])
    while columns > 1 and widest > _panel_width(columns, style):
        columns -= 1
    whole = look.order.grid and columns == wanted
    filled = [panel if panel in panels else None for panel in look.order.panels] if whole else list(panels)
    filled += [None] * (-len(filled) % columns)
    return np.array(filled, dtype=object).reshape(-1, columns)


def _grid(places: NDArray[Any], style: Style, look: Look, categories: Sequence[str]) -> NDArray[Any]:
    rows, columns = places.shape
    below = _turned_in(categories, columns, style) if rows > 1 else 0.0
    height = style.height_in or (1.5 if places.size == 1 else rows) * style.panel_height_in + rows * below
    sheet = Sheet(figsize=(style.width_in, height))
    FigureCanvasAgg(sheet)
    axes = sheet.subplots(rows, columns, sharex=False, sharey=look.axes.share_y, squeeze=False)
    for ax, panel in zip(axes.flat, places.flat, strict=True):
        ax.set_visible(panel is not None)
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
    drawn = []
    labels = marks["hue"].fillna("")
    barred = [hue for hue in hues if (marks["kind"].isin(kinds.SIDE_BY_SIDE) & labels.eq(hue)).any()]
    slots = {hue: kinds.slot(barred.index(hue) if hue in barred else 0, len(barred)) for hue in hues}
    present = [hue for hue in hues if labels.eq(hue).any()]
    spots = _centered(marks, places, {hue: slots[hue].offset for hue in barred})
    for rank, hue in enumerate(present):
        for kind, group in marks[labels == hue].groupby("kind", sort=False):
            x = np.array([spots[value] for value in group["x"]])
            series = kinds.Series(ax, x, group, hues[hue], slots[hue], rank)
            before = set(ax.get_children())
            kinds.KINDS[str(kind)](series, look)
            shapes = tuple(shape for shape in ax.get_children() if shape not in before)
            along = x if kind in kinds.UNSHIFTED else series.x
            drawn.append(Group(ax, hue, str(kind), records(group), along, shapes))
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
