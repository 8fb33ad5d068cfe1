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

from xdplab.figures import kinds
from xdplab.figures.draw import Sheet
from xdplab.figures.marks import Look, View
from xdplab.figures.paper import wrap
from xdplab.figures.pointer import Group, OnSheet
from xdplab.thesis.language import BEHIND, CUT, LIMITED, Language
from xdplab.thesis.published import Spec

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


def printed_sheet(
    view: View,
    spec: Spec,
    notes: Sequence[str],
    *,
    behind: pd.DataFrame | None = None,
    language: Language = "en",
    empty: str = "",
) -> Sheet:
    """Draw a view on its printed page, with ``notes`` below it: the page grows downwards by their lines.

    ``behind``: marks in grey behind the view's, of the same panels, hues and unit. ``empty``: what a panel without any
    mark says. Marks over repetitions have dots, intervals and limits; as printed there are none.
    """
    page, look = page_of(spec), view.look
    lines = [line for note in notes for line in wrap(note, (page.width - 20) / POINTS, NOTE_PT)]
    height = page.height + (NOTE_LINE_PT * (len(lines) + 1) if lines else 0)
    with mpl.rc_context(dict(PARAMETERS)):  # type: ignore[arg-type]
        sheet = Sheet(figsize=(page.width / POINTS, height / POINTS), dpi=DPI)
        FigureCanvasAgg(sheet)
        paints = kinds.paint(list(look.order.hues), look.order.palette)
        axes = [sheet.add_axes(_rect(page.box(at), page.width, height)) for at in range(len(look.order.panels))]
        own, grey = _by_place(view.marks, look), _by_place(behind, look) if behind is not None else {}
        measured = bool(view.marks["n"].notna().any())
        drawn = list[Group]()
        shared = page.columns > 1  # as printed: between panels side by side there is no room for numbers
        everywhere = [*own.values(), *grey.values()]
        for at, (ax, panel) in enumerate(zip(axes, look.order.panels, strict=True)):
            here = _of_panel(panel, own, grey)
            shown = everywhere if shared else here
            floor = _scale_y(ax, shown, look, measured=measured)
            if behind is not None and look.axes.y_scale == "linear":
                ax.ticklabel_format(axis="y", scilimits=SHORT_LABELS)  # counts of one's own have no power of ten yet
            drawn += _panel(ax, panel, own, grey, paints, floor)
            _scale_x(ax, look, page)
            # matplotlib would measure every label to keep titles and labels off them; here they have their places.
            ax.set_title(panel, y=1.0)
            ax.yaxis.set_label_coords(-0.1, 0.5)
            if not here and empty:
                _say(ax, empty, numbers=bool(shown))
            if at + page.columns >= len(axes):
                ax.set_xlabel(look.axes.x_label)
            else:
                ax.xaxis.set_label_coords(0.5, -0.1)
                if page.pitch_y - page.panel_height < ROOM_PT:
                    ax.tick_params(labelbottom=False)
            if at % page.columns:
                ax.tick_params(labelleft=False)
        page = _with_room(sheet, axes, page, height)
        cut = any(line.get_gid() == kinds.CUT for ax in axes for line in ax.lines)
        barred = spec.kind == "bar"
        extra = _extra_entries(own, language, barred=barred, cut=cut, behind=behind is not None)
        _label_and_legend(sheet, axes, page, look, paints, height, extra, barred=barred, lined=measured)
        if lines:
            below = 1 - (page.height + 2) / height
            sheet.text(10 / page.width, below, "\n".join(lines), fontsize=NOTE_PT, color="0.25", va="top")
    if measured:
        sheet.shown = OnSheet(look, tuple(drawn), tuple(paints))
    return sheet


def _with_room(sheet: Figure, axes: Sequence[Axes], page: Page, height: float) -> Page:
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
    sheet.set_size_inches(wide.width / POINTS, height / POINTS)
    for at, ax in enumerate(axes):
        ax.set_position(_rect(wide.box(at), wide.width, height))
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


def _rect(box: tuple[float, float, float, float], width: float, height: float) -> tuple[float, float, float, float]:
    x0, y0, x1, y1 = box
    return x0 / width, 1 - y1 / height, (x1 - x0) / width, (y1 - y0) / height


@dataclass(frozen=True, eq=False)
class _Hue:
    """The marks of one panel and hue as arrays, by rising x.

    A table is chosen from once for each figure, and not for each panel, hue and use.
    """

    marks: pd.DataFrame
    x: Array
    value: Array
    low: Array
    high: Array
    status: NDArray[np.object_]
    barred: bool
    measured: bool


Hues = dict[tuple[str, str], _Hue]
"""By panel and hue."""


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
    found = {}
    for key, own in rows.items():
        at = np.array(own)[np.argsort(x[own], kind="stable")]
        bars, several = bool((kind[at] == "bar").any()), bool(measured[at].any())
        found[key] = _Hue(marks.iloc[at], x[at], value[at], low[at], high[at], status[at], bars, several)
    return found


def _of_panel(panel: str, *marks: Hues) -> list[_Hue]:
    return [one for hues in marks for (place, _), one in hues.items() if place == panel]


def _panel(ax: Axes, panel: str, own: Hues, grey: Hues, paints: Mapping[str, kinds.Paint], floor: float) -> list[Group]:
    """Draw the hues of a panel, each one's grey marks behind its own; return what became of its own."""
    drawn = []
    for rank, (hue, paint) in enumerate(paints.items()):
        offset, width = kinds.slot(rank, len(paints))
        before = grey.get((panel, hue))
        if before is not None:
            _hue(ax, before, replace(paint, color=GREY, dash="-"), (offset, width), floor)
        if (one := own.get((panel, hue))) is not None:
            shapes = _hue(ax, one, paint, (offset, OWN_WIDTH * width if grey else width), floor)
            shift = offset if one.barred else 0.0
            _mark_cut(ax, one.x + shift, one, WHISKER if one.barred else paint.color)
            drawn.append(Group(ax, hue, str(one.marks["kind"].iloc[0]), one.marks, one.x + shift, shapes))
    return drawn


def _scale_x(ax: Axes, look: Look, page: Page) -> None:
    words = [str(value) for value in look.order.x_values]
    ax.set_xlim(-0.5, len(words) - 0.5)
    ax.set_xticks(range(len(words)), words)
    if (size := _size_below(words, page.panel_width / max(1, len(words)))) < TEXT_PT:
        ax.tick_params(axis="x", labelsize=size)


def _size_below(words: Sequence[str], pitch: float) -> float:
    """Return the size at which neighbouring words, ``pitch`` points apart, do not touch: the printed one at most."""
    needed = max((_width_pt(a) + _width_pt(b) for a, b in pairwise(words)), default=0.0) / 2
    return TEXT_PT * min(1.0, (pitch - GAP_PT) / needed) if needed else TEXT_PT


def _scale_y(ax: Axes, shown: Sequence[_Hue], look: Look, *, measured: bool) -> float:
    """Give the axis to the marks and their intervals; return where its bars stand.

    An interval of two repetitions would leave no room for what is compared: it reaches beyond the axis.
    """
    most = max((float(np.abs(one.value).max()) for one in shown), default=0.0)
    near = kinds.NEAR_SHARE * most if measured else np.inf
    ends = [end for one in shown for end in (one.value, np.minimum(one.high, one.value + near))]
    high = float(np.nanmax(np.concatenate(ends), initial=0.0)) if ends else 0.0
    least = min((float(one.value.min()) for one in shown), default=0.0)
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


def _hue(ax: Axes, own: _Hue, paint: kinds.Paint, slot: tuple[float, float], floor: float) -> tuple[Artist, ...]:
    """Draw the marks of one hue, with their intervals where they have some."""
    if own.barred:
        return (*_bars(ax, own, paint, slot, floor), *_whiskers(ax, own.x + slot[0], own, WHISKER))
    dots = "." if len(own.x) == 1 and not own.measured else ""
    dash = paint.dash if own.measured else "-"
    line = ax.plot(own.x, own.value, color=paint.color, linestyle=dash, marker=dots or None)
    return (*line, *_dots(ax, own, paint), *_whiskers(ax, own.x, own, paint.color))


def _dots(ax: Axes, own: _Hue, paint: kinds.Paint) -> list[Artist]:
    """What was measured, on its line: hollow where something else than the DUT limits it."""
    if not own.measured:
        return []
    made: list[Artist] = []
    for name, look in kinds.STATUSES.items():
        chosen = own.status == name
        if chosen.any():
            face = paint.color if name == "valid" else "white"
            made += ax.plot(
                own.x[chosen], own.value[chosen], linestyle="none", marker=look.marker, color=paint.color,
                markerfacecolor=face, markersize=DOT_PT * paint.size, zorder=3,
            )  # fmt: skip
    return made


def _bars(ax: Axes, own: _Hue, paint: kinds.Paint, slot: tuple[float, float], low: float) -> list[Artist]:
    """All bars of a hue as one collection: hundreds of single ones take seconds. Limited ones are hatched."""
    made: list[Artist] = []
    for name, look in kinds.STATUSES.items():
        chosen = own.status == name
        if not chosen.any():
            continue
        x, y = own.x[chosen] + slot[0], own.value[chosen]
        left, right, floor = x - slot[1] / 2, x + slot[1] / 2, np.full(len(x), low)
        corners = [np.stack(pair, axis=1) for pair in ((left, floor), (left, y), (right, y), (right, floor))]
        limited = {"facecolors": ["white"], "edgecolors": [paint.color], "hatch": look.hatch, "linewidths": 0.5}
        plain = {"facecolors": [paint.color], "edgecolors": "none"}
        bars = PolyCollection(list(np.stack(corners, axis=1)), **(plain if name == "valid" else limited))
        made.append(ax.add_collection(bars, autolim=False))
    return made


def _whiskers(ax: Axes, x: Array, own: _Hue, color: kinds.Color) -> list[Artist]:
    known = ~np.isnan(own.low)
    if not known.any():
        return []
    segments = [((a, b), (a, c)) for a, b, c in zip(x[known], own.low[known], own.high[known], strict=True)]
    return [ax.add_collection(LineCollection(segments, colors=[color], linewidths=WHISKER_PT), autolim=False)]


def _mark_cut(ax: Axes, x: Array, own: _Hue, color: kinds.Color) -> None:
    """Put an arrow head at the axis' end where an interval goes on beyond it."""
    bottom, top = ax.get_ylim()
    for end, beyond, marker in ((top, own.high > top, CARETUP), (bottom, own.low < bottom, CARETDOWN)):
        if beyond.any():
            ax.plot(
                x[beyond], np.full(beyond.sum(), end), linestyle="none", marker=marker, color=color,
                markersize=ARROW_PT, clip_on=False, zorder=4, gid=kinds.CUT,
            )  # fmt: skip


def _say(ax: Axes, words: str, *, numbers: bool) -> None:
    """Let an empty panel say why; it keeps the numbers on its axis if the panels beside it are read by them."""
    if not numbers:
        ax.set_yticks([])
    ax.text(0.5, 0.5, words, transform=ax.transAxes, ha="center", va="center", color="0.4")


def _label_and_legend(
    sheet: Figure,
    axes: Sequence[Axes],
    page: Page,
    look: Look,
    paints: Mapping[str, kinds.Paint],
    height: float,
    extra: Sequence[tuple[Artist, str]],
    *,
    barred: bool,
    lined: bool,
) -> None:
    boxes = [page.box(at) for at in range(len(axes))]
    middle = 1 - (boxes[0][1] + boxes[-1][3]) / 2 / height
    sheet.text(0.5 / page.width, middle, look.axes.y_label, rotation=90, va="center", ha="left", fontsize=LABEL_PT)
    entries = [(_entry(paint, barred=barred, lined=lined), hue) for hue, paint in paints.items()]
    right, top = max(box[2] for box in boxes), boxes[0][1]
    handles, names = zip(*entries, *extra, strict=True)
    title = _folded(look.words.hue_title, page.width - right - LEGEND_ROOM_PT)
    sheet.legend(
        handles, names, title=title or None, loc="upper left", frameon=False, borderaxespad=0.0,
        bbox_to_anchor=((right + 4) / page.width, 1 - top / height), handlelength=1.0, handletextpad=0.4,
        fontsize=LEGEND_PT, title_fontsize=LEGEND_PT,
    )  # fmt: skip


def _folded(title: str, room: float) -> str:
    """Return a legend's title in two lines if one is wider than ``room`` points."""
    wide = _width_pt(title) * LEGEND_PT / TEXT_PT > room
    return fill(title, (len(title) + 4) // 2) if wide else title


def _entry(paint: kinds.Paint, *, barred: bool, lined: bool) -> Artist:
    if barred:
        return Patch(facecolor=paint.color)
    dots = {"marker": "o", "markersize": DOT_PT * paint.size, "linestyle": paint.dash} if lined else {}
    return Line2D([], [], color=paint.color, **dots)


def _extra_entries(
    marks: Hues, language: Language, *, barred: bool, cut: bool, behind: bool
) -> list[tuple[Artist, str]]:
    """Return what the legend says beside the hues: limits, intervals that go on, and whose the grey marks are."""
    found: list[tuple[Artist, str]] = []
    for name, words in LIMITED.items():
        if any((one.status == name).any() for one in marks.values()):
            look = kinds.STATUSES[name]
            hatched = Patch(facecolor="white", edgecolor="0.3", hatch=look.hatch, linewidth=0.5)
            found.append((hatched if barred else _loose(look.marker), words.of(language)))
    if cut:
        found.append((_loose(CARETUP), CUT.of(language)))
    if behind:
        found.append((Patch(facecolor=GREY) if barred else Line2D([], [], color=GREY), BEHIND.of(language)))
    return found


def _loose(marker: Any) -> Artist:
    return Line2D([], [], color="0.3", linestyle="none", marker=marker, markerfacecolor="white", markersize=ARROW_PT)
