"""The published figures on their printed pages: the same panels in the same boxes, printed words, notes below.

The boxes are read back from the published PDFs (I. F. Capeletti, Unipampa 2022): three panels one below the other, or
two by two, with the legend to their right. What is wrong with a figure is said below the printed page, not on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from textwrap import fill
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.markers import CARETDOWN, CARETUP
from matplotlib.patches import Patch
from matplotlib.textpath import TextPath
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator
from numpy.typing import NDArray

from xdplab.analysis.values import Row, records
from xdplab.figures import kinds
from xdplab.figures.draw import Sheet
from xdplab.figures.marks import Look, View
from xdplab.figures.paper import wrap
from xdplab.figures.pointer import Group, OnSheet
from xdplab.thesis.language import BEHIND, CUT, LIMITED, NO_MARK, Language
from xdplab.thesis.panel import Panel
from xdplab.thesis.published import Spec
from xdplab.thesis.views import translated

Array = NDArray[np.float64]

POINTS = 72.0  # to the inch
TEXT_PT, TITLE_PT, LABEL_PT, LEGEND_PT, NOTE_PT = 10.0, 11.0, 9.0, 7.0, 8.0
NUMBER_ROOM_PT = 19.0  # left of a panel, beside its numbers: their ticks, and the axis' label
GAP_PT = 4.0  # between neighbouring words below an axis
LEGEND_ROOM_PT = 12.0  # between the panels and a legend, and around its words
AIR_PT = 3.0  # more, where a page is made wider for its numbers
ROOM_PT = 28.0  # between two panels, for the tick labels of the upper and the title of the lower one
NOTE_LINE_PT = 1.35 * NOTE_PT
MARGIN = 1.05  # of the axis above the highest mark
DPI = 120
LOG_MARGIN = 1.6
SHORT_LABELS = (-3, 4)
GREY, WHISKER = "0.8", "0.26"
WHISKER_PT, DOT_PT, ARROW_PT = 1.5, 4.0, 5.0
SPARSE = 50.0  # times from an axis' lower end to its upper one: beyond, its decades alone have numbers
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

    ``pitch_x`` and ``pitch_y`` lead from one panel to the next; ``columns`` of them stand side by side. ``notes`` is
    the height of what stands below the printed page.
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
    notes: float = 0.0

    @property
    def paper(self) -> float:
        """The height of page and notes."""
        return self.height + self.notes

    @property
    def inches(self) -> tuple[float, float]:
        return self.width / POINTS, self.paper / POINTS

    def box(self, place: int) -> tuple[float, float, float, float]:
        """Return (x0, y0, x1, y1) of a panel, in points from the page's top left."""
        row, column = divmod(place, self.columns)
        x, y = self.left + column * self.pitch_x, self.top + row * self.pitch_y
        return x, y, x + self.panel_width, y + self.panel_height

    def rect(self, place: int) -> tuple[float, float, float, float]:
        """Return (left, bottom, width, height) of a panel, as shares of page and notes."""
        x0, y0, x1, y1 = self.box(place)
        return x0 / self.width, 1 - y1 / self.paper, (x1 - x0) / self.width, (y1 - y0) / self.paper


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


def printed_sheet(
    view: View, spec: Spec, *, behind: pd.DataFrame | None = None, language: Language = "en", empty: bool = False
) -> Sheet:
    """Draw a view on its printed page, with its caption below it: the page grows downwards by the caption's lines.

    ``behind``: marks in grey behind the view's, of the same panels, hues and unit. ``empty``: a panel without any mark
    says so. Marks over repetitions have dots, intervals and limits; as printed there are none.
    """
    behind = None if behind is None else translated(View(behind, view.look), language).marks
    view = translated(view, language)
    look, page = view.look, page_of(spec)
    lines = [line for note in view.caption for line in wrap(note, (page.width - 20) / POINTS, NOTE_PT)]
    page = replace(page, notes=NOTE_LINE_PT * (len(lines) + 1) if lines else 0.0)
    with mpl.rc_context(dict(PARAMETERS)):  # type: ignore[arg-type]
        sheet = Sheet(figsize=page.inches, dpi=DPI)
        FigureCanvasAgg(sheet)
        axes = [sheet.add_axes(page.rect(at), axes_class=Panel) for at in range(len(look.order.panels))]
        content = _content(view, behind)
        drawn = _draw_panels(axes, page, look, content, NO_MARK.of(language) if empty else "")
        page = _with_room(sheet, axes, page)
        _write_label(sheet, page, look)
        cut = any(line.get_gid() == kinds.CUT for ax in axes for line in ax.lines)
        entries = _entries(content, language, barred=spec.kind == "bar", cut=cut)
        _write_legend(sheet, page, look, entries)
        if lines:
            below = 1 - (page.height + 2) / page.paper
            sheet.text(10 / page.width, below, "\n".join(lines), fontsize=NOTE_PT, color="0.25", va="top")
    if content.measured:
        sheet.shown = OnSheet(look, tuple(drawn), tuple(content.paints))
    return sheet


def _draw_panels(axes: Sequence[Axes], page: Page, look: Look, content: _Content, empty: str) -> list[Group]:
    """Draw each panel's marks and axes; as printed, there is no room for numbers between panels side by side."""
    drawn = list[Group]()
    for at, (ax, panel) in enumerate(zip(axes, look.order.panels, strict=True)):
        here = content.of_panel(panel)
        shown = content.all if page.columns > 1 else here
        floor = _scale_y(ax, shown, look, measured=content.measured)
        if content.grey is not None and look.axes.y_scale == "linear":
            ax.ticklabel_format(axis="y", scilimits=SHORT_LABELS)  # counts of one's own have no power of ten yet
        drawn += _draw_panel(ax, panel, content, floor)
        _scale_x(ax, look, page)
        # matplotlib would measure every label to keep titles and labels off them; here they have their places.
        ax.set_title(panel, y=1.0)
        ax.yaxis.set_label_coords(-0.1, 0.5)
        if not here and empty:
            _write_empty(ax, empty, numbers=bool(shown))
        if at + page.columns >= len(axes):
            ax.set_xlabel(look.axes.x_label)
        else:
            ax.xaxis.set_label_coords(0.5, -0.1)
            if page.pitch_y - page.panel_height < ROOM_PT:
                ax.tick_params(labelbottom=False)
        if at % page.columns:
            ax.tick_params(labelleft=False)
    return drawn


def _with_room(sheet: Figure, axes: Sequence[Axes], page: Page) -> Page:
    """Return a page whose numbers beside the first column have their room: long ones widen it to the left.

    The printed pages were cut to what stood on them, so each is as wide as its numbers are long. The panels keep
    their sizes.
    """
    numbers = [word for ax in axes[:: page.columns] for word in _numbers(ax)]
    _keep_ticks(axes)
    more = NUMBER_ROOM_PT + max((_width_pt(word) for word in numbers), default=0.0) - page.left
    if more <= 0:
        return page
    more += AIR_PT
    wide = replace(page, width=page.width + more, left=page.left + more)
    sheet.set_size_inches(*wide.inches)
    for at, ax in enumerate(axes):
        ax.set_position(wide.rect(at))
    return wide


def _numbers(ax: Axes) -> list[str]:
    """Return the words beside an axis, before they are drawn."""
    low, high = sorted(ax.get_ylim())
    places = [place for place in ax.yaxis.get_majorticklocs() if low <= place <= high]
    return ax.yaxis.get_major_formatter().format_ticks(places)


def _keep_ticks(axes: Sequence[Axes]) -> None:
    """Fix the ticks that were measured: matplotlib would choose others, of longer numbers, under a style's letters."""
    for ax in axes:
        ax.yaxis.set_major_locator(FixedLocator(list(ax.yaxis.get_majorticklocs())))


@lru_cache(maxsize=256)
def _width_pt(word: str) -> float:
    return float(TextPath((0, 0), word, size=TEXT_PT).get_extents().width) if word else 0.0


@dataclass(frozen=True, eq=False)
class _Hue:
    """The marks of one panel and hue as arrays, by rising x.

    A table is chosen from once for each figure, and not for each panel, hue and use.
    """

    marks: Sequence[Row]
    x: Array
    value: Array
    low: Array
    high: Array
    status: NDArray[np.object_]
    barred: bool
    measured: bool


Hues = dict[tuple[str, str], _Hue]
"""By panel and hue."""


@dataclass(frozen=True, eq=False)
class _Content:
    """What a sheet shows: its own marks, those in ``grey`` behind them (None: there are none), each hue's paint."""

    own: Hues
    grey: Hues | None
    paints: Mapping[str, kinds.Paint]

    @property
    def all(self) -> list[_Hue]:
        return [*self.own.values(), *(self.grey or {}).values()]

    @property
    def measured(self) -> bool:
        return any(hue.measured for hue in self.own.values())

    def of_panel(self, panel: str) -> list[_Hue]:
        return [hue for hues in (self.own, self.grey or {}) for (place, _), hue in hues.items() if place == panel]


def _content(view: View, behind: pd.DataFrame | None) -> _Content:
    look = view.look
    grey = None if behind is None else _by_place(behind, look)
    return _Content(_by_place(view.marks, look), grey, kinds.paint(list(look.order.hues), look.order.palette))


def _by_place(marks: pd.DataFrame, look: Look) -> Hues:
    places = {value: float(at) for at, value in enumerate(look.order.x_values)}
    x = np.array([places[value] for value in marks["x"]], dtype=float)
    value, low, high = (marks[name].to_numpy(dtype=float) for name in ("value", "low", "high"))
    status, measured = kinds.statuses(marks).to_numpy(dtype=object), marks["n"].notna().to_numpy()
    rows: dict[tuple[str, str], list[int]] = {}
    for row, key in enumerate(zip(marks["panel"], marks["hue"], strict=True)):
        # A printed 0 has no place on a logarithmic axis.
        if look.axes.y_scale != "log" or value[row] > 0:
            rows.setdefault(key, []).append(row)
    kind = marks["kind"].to_numpy(dtype=object)
    hues, cells = {}, records(marks)
    for key, numbers in rows.items():
        at = np.array(numbers)[np.argsort(x[numbers], kind="stable")]
        bars, several = bool((kind[at] == "bar").any()), bool(measured[at].any())
        hues[key] = _Hue([cells[row] for row in at], x[at], value[at], low[at], high[at], status[at], bars, several)
    return hues


def _draw_panel(ax: Axes, panel: str, content: _Content, floor: float) -> list[Group]:
    """Draw the hues of a panel, each one's grey marks behind its own; return what became of its own."""
    drawn = []
    for rank, (name, paint) in enumerate(content.paints.items()):
        slot = kinds.slot(rank, len(content.paints))
        before, hue = (content.grey or {}).get((panel, name)), content.own.get((panel, name))
        if before is not None:
            _draw_hue(ax, before, replace(paint, color=GREY, dash="-"), slot, floor)
        if hue is not None:
            narrow = replace(slot, width=OWN_WIDTH * slot.width) if content.grey else slot
            shapes = _draw_hue(ax, hue, paint, narrow, floor)
            x = hue.x + slot.offset if hue.barred else hue.x
            _mark_cut(ax, x, hue, WHISKER if hue.barred else paint.color)
            drawn.append(Group(ax, name, str(hue.marks[0]["kind"]), hue.marks, x, shapes))
    return drawn


def _scale_x(ax: Axes, look: Look, page: Page) -> None:
    labels = [str(value) for value in look.order.x_values]
    ax.set_xlim(-0.5, len(labels) - 0.5)
    ax.set_xticks(range(len(labels)), labels)
    if (size := _size_below(labels, page.panel_width / max(1, len(labels)))) < TEXT_PT:
        ax.tick_params(axis="x", labelsize=size)


def _size_below(labels: Sequence[str], pitch: float) -> float:
    """Return the size at which neighbouring words, ``pitch`` points apart, do not touch: the printed one at most."""
    needed = max((_width_pt(a) + _width_pt(b) for a, b in pairwise(labels)), default=0.0) / 2
    return TEXT_PT * min(1.0, (pitch - GAP_PT) / needed) if needed else TEXT_PT


def _scale_y(ax: Axes, shown: Sequence[_Hue], look: Look, *, measured: bool) -> float:
    """Give the axis to the marks and their intervals; return where its bars stand.

    An interval of two repetitions would leave no room for what is compared: it reaches beyond the axis.
    """
    most = max((float(np.abs(hue.value).max()) for hue in shown), default=0.0)
    near = kinds.NEAR_SHARE * most if measured else np.inf
    ends = [end for hue in shown for end in (hue.value, np.minimum(hue.high, hue.value + near))]
    high = float(np.nanmax(np.concatenate(ends), initial=0.0)) if ends else 0.0
    least = min((float(hue.value.min()) for hue in shown), default=0.0)
    if look.axes.y_scale == "log" and high > 0:
        ax.set_yscale("log")
        ax.set_ylim(least / LOG_MARGIN, high * LOG_MARGIN)
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0,) if high / least > SPARSE else (1.0, 2.0, 5.0)))
        ax.yaxis.set_major_formatter(FuncFormatter(_thousands))
        ax.yaxis.set_minor_locator(NullLocator())
        return least / LOG_MARGIN
    low = min(0.0, least)
    ax.set_ylim(MARGIN * low, MARGIN * high if high > 0 else 1.0)
    return 0.0


def _thousands(value: float, _: object) -> str:
    """Numbers short enough for the printed margin."""
    return f"{value:g}" if value < 1000 else f"{value / 1000:g}k"


def _draw_hue(ax: Axes, hue: _Hue, paint: kinds.Paint, slot: kinds.Slot, floor: float) -> tuple[Artist, ...]:
    """Draw the marks of one hue, with their intervals where they have some."""
    if hue.barred:
        return (*_bars(ax, hue, paint, slot, floor), *_whiskers(ax, hue.x + slot.offset, hue, WHISKER))
    dots = "." if len(hue.x) == 1 and not hue.measured else ""
    dash = paint.dash if hue.measured else "-"
    line = ax.plot(hue.x, hue.value, color=paint.color, linestyle=dash, marker=dots or None)
    return (*line, *_dots(ax, hue, paint), *_whiskers(ax, hue.x, hue, paint.color))


def _dots(ax: Axes, hue: _Hue, paint: kinds.Paint) -> list[Artist]:
    """What was measured, on its line: hollow where something else than the DUT limits it."""
    if not hue.measured:
        return []
    shapes: list[Artist] = []
    for name, look in kinds.STATUSES.items():
        chosen = hue.status == name
        if chosen.any():
            face = paint.color if name == "valid" else "white"
            shapes += ax.plot(
                hue.x[chosen], hue.value[chosen], linestyle="none", marker=look.marker, color=paint.color,
                markerfacecolor=face, markersize=DOT_PT * paint.size, zorder=3,
            )  # fmt: skip
    return shapes


def _bars(ax: Axes, hue: _Hue, paint: kinds.Paint, slot: kinds.Slot, low: float) -> list[Artist]:
    """All bars of a hue as one collection: hundreds of single ones take seconds. Limited ones are hatched."""
    shapes: list[Artist] = []
    for name, look in kinds.STATUSES.items():
        chosen = hue.status == name
        if not chosen.any():
            continue
        x, y = hue.x[chosen] + slot.offset, hue.value[chosen]
        left, right, floor = x - slot.width / 2, x + slot.width / 2, np.full(len(x), low)
        corners = [np.stack(pair, axis=1) for pair in ((left, floor), (left, y), (right, y), (right, floor))]
        limited = {"facecolors": ["white"], "edgecolors": [paint.color], "hatch": look.hatch, "linewidths": 0.5}
        plain = {"facecolors": [paint.color], "edgecolors": "none"}
        bars = PolyCollection(list(np.stack(corners, axis=1)), **(plain if name == "valid" else limited))
        shapes.append(ax.add_collection(bars, autolim=False))
    return shapes


def _whiskers(ax: Axes, x: Array, hue: _Hue, color: kinds.Color) -> list[Artist]:
    has_interval = ~np.isnan(hue.low)
    if not has_interval.any():
        return []
    segments = [
        ((a, b), (a, c)) for a, b, c in zip(x[has_interval], hue.low[has_interval], hue.high[has_interval], strict=True)
    ]
    return [ax.add_collection(LineCollection(segments, colors=[color], linewidths=WHISKER_PT), autolim=False)]


def _mark_cut(ax: Axes, x: Array, hue: _Hue, color: kinds.Color) -> None:
    """Put an arrow head at the axis' end where an interval goes on beyond it."""
    bottom, top = ax.get_ylim()
    for end, beyond, marker in ((top, hue.high > top, CARETUP), (bottom, hue.low < bottom, CARETDOWN)):
        if beyond.any():
            ax.plot(
                x[beyond], np.full(beyond.sum(), end), linestyle="none", marker=marker, color=color,
                markersize=ARROW_PT, clip_on=False, zorder=4, gid=kinds.CUT,
            )  # fmt: skip


def _write_empty(ax: Axes, text: str, *, numbers: bool) -> None:
    """Let an empty panel say why; it keeps the numbers on its axis if the panels beside it are read by them."""
    if not numbers:
        ax.set_yticks([])
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", color="0.4")


def _write_label(sheet: Figure, page: Page, look: Look) -> None:
    """Write the label of all panels' y axes, in their middle."""
    top, bottom = page.box(0)[1], page.box(len(look.order.panels) - 1)[3]
    middle = 1 - (top + bottom) / 2 / page.paper
    sheet.text(0.5 / page.width, middle, look.axes.y_label, rotation=90, va="center", ha="left", fontsize=LABEL_PT)


def _write_legend(sheet: Figure, page: Page, look: Look, entries: Sequence[tuple[Artist, str]]) -> None:
    """Write the legend to the right of the panels, from the top of the first."""
    boxes = [page.box(at) for at in range(len(look.order.panels))]
    right, top = max(box[2] for box in boxes), boxes[0][1]
    handles, names = zip(*entries, strict=True)
    title = _folded(look.words.hue_title, page.width - right - LEGEND_ROOM_PT)
    sheet.legend(
        handles, names, title=title or None, loc="upper left", frameon=False, borderaxespad=0.0,
        bbox_to_anchor=((right + 4) / page.width, 1 - top / page.paper), handlelength=1.0, handletextpad=0.4,
        fontsize=LEGEND_PT, title_fontsize=LEGEND_PT,
    )  # fmt: skip


def _folded(title: str, room: float) -> str:
    """Return a legend's title in two lines if one is wider than ``room`` points."""
    wide = _width_pt(title) * LEGEND_PT / TEXT_PT > room
    return fill(title, (len(title) + 4) // 2) if wide else title


def _entries(content: _Content, language: Language, *, barred: bool, cut: bool) -> list[tuple[Artist, str]]:
    """Return the legend's hues, then limits, intervals that go on, and whose the grey marks are."""
    entries = [(_entry(paint, barred=barred, lined=content.measured), hue) for hue, paint in content.paints.items()]
    for name, phrase in LIMITED.items():
        if any((hue.status == name).any() for hue in content.own.values()):
            look = kinds.STATUSES[name]
            hatched = Patch(facecolor="white", edgecolor="0.3", hatch=look.hatch, linewidth=0.5)
            entries.append((hatched if barred else _loose(look.marker), phrase.of(language)))
    if cut:
        entries.append((_loose(CARETUP), CUT.of(language)))
    if content.grey is not None:
        entries.append((Patch(facecolor=GREY) if barred else Line2D([], [], color=GREY), BEHIND.of(language)))
    return entries


def _entry(paint: kinds.Paint, *, barred: bool, lined: bool) -> Artist:
    if barred:
        return Patch(facecolor=paint.color)
    dots = {"marker": "o", "markersize": DOT_PT * paint.size, "linestyle": paint.dash} if lined else {}
    return Line2D([], [], color=paint.color, **dots)


def _loose(marker: Any) -> Artist:
    return Line2D([], [], color="0.3", linestyle="none", marker=marker, markerfacecolor="white", markersize=ARROW_PT)
