"""How each kind of mark looks: one function per kind, one table for the looks of verdicts and limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count, cycle, islice
from math import floor, log10
from types import MappingProxyType
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.container import ErrorbarContainer
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.path import Path
from matplotlib.text import Annotation
from matplotlib.transforms import offset_copy
from numpy.typing import NDArray

from xdplab.figures.marks import Look

Array = NDArray[np.float64]
Color = Any
BAR_VALUE = "bar value"
MARK_WORDS = "words beside a mark"
VALUE_ROOM = 0.12
"""Share of an axis that values above bars need at its end."""
MOST_DECIMALS = 4  # of such a value
CUT = "interval goes on"
UPWARDS = Path([(0, -1), (0, 0), (-0.4, -0.5), (0, 0), (0.4, -0.5)], [1, 2, 1, 2, 2])
DOWNWARDS = Path(-UPWARDS.vertices, UPWARDS.codes)  # type: ignore[operator]
ARROW = 2.4
"""Its length, as is that of a marker of this size: twice what is drawn, over a marker."""
REPETITION = "one repetition"
SAMPLE = "one value; box: quartiles, median"
NEAR_SHARE = 0.35
"""Of a panel's greatest value: as far beside its mark an interval gets room on the axis."""
MOST_LISTED = 20  # colours: a longer list is a scale
SIDE_BY_SIDE = ("bar", "sample", "beside", "below")
"""Kinds whose hues share a place on the axis, each with a width of its own."""

UNSHIFTED = ("line", "dot", "fit", "stack", "edge")
"""Kinds whose hues stand on their x value, whatever stands beside it."""

DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (1.2, 1.2)),
    (0, (5, 1.2, 1.2, 1.2)),
    (0, (8, 2)),
    (0, (3, 1, 1, 1, 1, 1)),
)


SIZES = (1.25, 0.95, 0.65)
SHAPES = ("o", "D", "P", "v", "*", "<")
"""None of them is the shape of a status."""
SHAPE_SIZES = {"D": 0.9, "P": 1.25, "v": 1.1, "*": 1.6, "<": 1.1}
"""By which factor a shape's size differs from a circle's that looks as large."""


@dataclass(frozen=True)
class Paint:
    """What distinguishes a hue: its colour; a dash and a shape for readers who cannot see colours; its marker's size.

    Later hues have smaller markers, so that both of two overlapping markers are visible.
    """

    color: Color
    dash: Any
    size: float = 1.0
    shape: str = "o"

    @property
    def marker_size(self) -> float:
        """The size of the marker in its shape, in points."""
        return float(mpl.rcParams["lines.markersize"] * self.size**0.5 * SHAPE_SIZES.get(self.shape, 1.0))


@dataclass(frozen=True)
class Status:
    """The look of a mark that is not simply valid."""

    marker: str
    hatch: str
    label: str


STATUSES = {
    "valid": Status("o", "", ""),
    "generator": Status("^", "/////", "generator-limited"),
    "link": Status("s", ".....", "link-limited"),
    "invalid": Status("x", "xxxxx", "invalid"),
}


OF_ALL_FIGURES = {
    **{"interpreter": 0, "JIT": 1, "JIT: bpf_int_jit_compile()": 1, "module": 2, "init_module(2)": 2, "user space": 3},
    **{"BPF": 4, "eBPF": 4, "BPF_PROG_LOAD": 4, "classic": 5},
    **{"native": 0, "generic": 1, "AF_XDP": 2, "tcx": 3, "tc": 4, "netkit": 5, "offload": 8},
}
"""Hues that figures of several studies have, each with its place in the palette: a colour means one of them."""

_PALETTE = 10
"""Colours of a palette before it begins anew."""

COLORBLIND = (
    *("#0173b2", "#de8f05", "#029e73", "#d55e00", "#cc78bc"),
    *("#ca9161", "#fbafe4", "#949494", "#ece133", "#56b4e9"),
)
"""seaborn's palette of this name; importing seaborn for it takes as long as drawing three figures."""


def paint(hues: list[str], palette: str, things: Mapping[str, str] = MappingProxyType({})) -> dict[str, Paint]:
    """Return each hue's paint from a palette: its own in all figures, else the next that is free, in order.

    ``things`` names the hue of all figures whose colour a hue has; hues of one thing differ in dash and size.
    ``name:4`` begins with the fifth colour of the palette ``name``. A scale is given as many colours as there are hues.
    """
    palette, _, first = palette.partition(":")
    if first:
        colors = _colors(palette, _PALETTE)
        return {hue: _paint(colors[(int(first) + at) % _PALETTE], at) for at, hue in enumerate(hues)}
    named = {hue: things.get(hue, hue) for hue in hues}
    fixed = {hue: OF_ALL_FIGURES[thing] for hue, thing in named.items() if thing in OF_ALL_FIGURES}
    free = _free(set(fixed.values()))
    places = {hue: fixed[hue] if hue in fixed else next(free) for hue in hues}
    colors = _colors(palette, max(max(places.values(), default=0) + 1, _PALETTE if fixed else 1))
    earlier = {hue: [places[other] for other in hues[:at]].count(places[hue]) for at, hue in enumerate(hues)}
    return {hue: _paint(colors[at], at + earlier[hue]) for hue, at in places.items()}


def _free(taken: set[int]) -> Iterator[int]:
    """Yield places of the palette: beside hues of all figures those that none has, then those that are not shown."""
    if not taken:
        yield from count()
    shared = set(OF_ALL_FIGURES.values())
    yield from (at for at in range(_PALETTE) if at not in shared)
    yield from sorted(shared - taken, reverse=True)
    yield from count(_PALETTE)


def _paint(color: Color, at: int) -> Paint:
    return Paint(color, DASHES[at % len(DASHES)], SIZES[at % len(SIZES)], SHAPES[at % len(SHAPES)])


def _colors(palette: str, most: int) -> list[Color]:
    """Return that many colours: of a list in turn, of a scale evenly from near its one end to near its other."""
    listed = COLORBLIND if palette == "colorblind" else getattr(mpl.colormaps[palette], "colors", ())
    if 0 < len(listed) <= MOST_LISTED:
        return list(islice(cycle(map(to_rgb, listed)), most))
    return [to_rgb(color) for color in mpl.colormaps[palette](np.linspace(0, 1, most + 2)[1:-1])]


@dataclass(frozen=True)
class Slot:
    """The room of one hue beside others at one place of the axis; both are 0 where nothing stands side by side."""

    offset: float = 0.0
    width: float = 0.0


def slot(rank: int, count: int) -> Slot:
    """Return the slot of one of ``count`` hues side by side."""
    width = 0.8 / count if count else 0.0
    return Slot((rank - (count - 1) / 2) * width, width)


def statuses(marks: pd.DataFrame) -> pd.Series:
    """Return the name in STATUSES of each mark: a panel has few, for which columns take ten times as long."""
    limits = [str(limit) if str(limit) in ("generator", "link") else "valid" for limit in marks["limited_by"]]
    judged = zip(marks["verdict"], limits, strict=True)
    names = ["invalid" if str(verdict) == "invalid" else limit for verdict, limit in judged]
    return pd.Series(names, index=marks.index, dtype="object")


def near_interval(marks: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Return each mark's low and high, cut where they lie further off than NEAR_SHARE of the greatest value."""
    values, span = marks["value"], NEAR_SHARE * marks["value"].abs().max()
    return marks["low"].clip(lower=values - span), marks["high"].clip(upper=values + span)


@dataclass(frozen=True, eq=False)
class Series:
    """The marks of one panel, hue and kind, and how they stand there; ``places`` are along the x axis.

    ``rank`` is the hue's among those of the panel.
    """

    ax: Axes
    places: Array
    marks: pd.DataFrame
    paint: Paint
    slot: Slot = Slot()
    rank: int = 0

    @property
    def x(self) -> Array:
        """The places within the hue's own slot."""
        return self.places + self.slot.offset

    @property
    def values(self) -> Array:
        return np.asarray(self.marks["value"].to_numpy())

    @property
    def color(self) -> Color:
        """The hue's colour; dark where the mark stands on a bar of that colour."""
        return "0.15" if self.slot.width else self.paint.color

    def by_x(self) -> Series:
        """Return the marks by rising x, at their unshifted places."""
        order = np.argsort(self.places, kind="stable")
        return replace(self, places=self.places[order], marks=self.marks.iloc[order], slot=Slot())

    def spread(self, share: float) -> Array:
        """Return shifts over a share of the slot: evenly, not at random, so that equal tables are equal pictures."""
        return np.asarray(share * self.slot.width * ((np.arange(len(self.marks)) * 0.618034) % 1.0 - 0.5))


ON_BAR = 2.0
"""By how many markers' widths a point stands beside the interval of its bar."""
LANES = 3
"""Beside a marker so many hues have a lane for their intervals: the outermost is two markers' widths off, in points,
so that on no scale an interval seems to be another N's."""


def _lane(series: Series) -> float:
    """Return how far the hue's lane is beside its markers, in their widths: an interval behind one is not seen."""
    return 0.9 + 0.5 * (series.rank % LANES)


def _shifted(ax: Axes, widths: float) -> dict[str, Any]:
    """Return the transformation to so many markers' widths to the right, which are points and no share of an axis."""
    sheet: Any = ax.figure
    points = widths * mpl.rcParams["lines.markersize"]
    return {"transform": offset_copy(ax.transData, sheet, x=points, y=0.0, units="points")} if widths else {}


def _errors(series: Series, color: Color, shift: float = 0.0) -> None:
    marks = series.marks
    has_interval = marks["low"].notna().to_numpy()
    if not has_interval.any():
        return
    value = series.values[has_interval]
    reach = np.vstack([value - marks["low"].to_numpy()[has_interval], marks["high"].to_numpy()[has_interval] - value])
    thin = mpl.rcParams["lines.linewidth"] * 0.7
    cap = mpl.rcParams["lines.markersize"] * (0.25 if shift else 0.45)
    series.ax.errorbar(
        series.x[has_interval], value, yerr=reach, fmt="none", ecolor=color, elinewidth=thin, capsize=cap,
        capthick=thin, **_shifted(series.ax, shift),
    )  # fmt: skip


def _markers(series: Series, color: Color, shape: str = "", shift: float = 0.0) -> None:
    """The hue's markers; hollow ones of ``shape`` mean something else, and other statuses have shapes of their own."""
    status, paint = statuses(series.marks), series.paint
    for name, look in STATUSES.items():
        mask = (status == name).to_numpy()
        if mask.any():
            filled = name == "valid" and not shape
            marker = (shape or paint.shape) if name == "valid" else look.marker
            size = paint.marker_size if filled else mpl.rcParams["lines.markersize"]
            series.ax.plot(
                series.x[mask], series.values[mask], linestyle="none", marker=marker, color=color, zorder=3,
                markerfacecolor=color if filled else "white", markersize=size,
                markeredgewidth=0.0 if filled else 0.25 * mpl.rcParams["lines.markersize"],
                **_shifted(series.ax, shift),
            )  # fmt: skip


def bars(series: Series, look: Look) -> None:
    """Bars side by side by hue; one that is not simply valid is hollow and hatched, an invalid one behind others."""
    status_names = statuses(series.marks).to_numpy()
    behind = np.isin(series.x, series.x[status_names == "invalid"]) & (status_names != "invalid")
    widths = series.slot.width * np.where(behind, 0.6, 0.94)
    for name, status in reversed(STATUSES.items()):
        mask = status_names == name
        if mask.any():
            face = series.paint.color if name == "valid" else "white"
            series.ax.bar(
                series.x[mask], series.values[mask], widths[mask], color=face,
                edgecolor=series.paint.color, hatch=status.hatch, linewidth=0.5,
            )  # fmt: skip
    _errors(series, "0.15")
    if look.words.bar_values:
        _write_values(series)


def stack(series: Series, look: Look) -> None:
    """A piece of a bar, from ``low`` up to ``value``: hues pile up to the whole."""
    low = series.marks["low"].to_numpy()
    height, color = series.values - low, series.paint.color
    series.ax.bar(series.places, height, 0.75, bottom=low, color=color, edgecolor="white", linewidth=0.3)


def edge(series: Series, look: Look) -> None:
    """The interval of a piece of a bar, at its end."""
    _errors(replace(series, slot=Slot()), "0.15")


def _write_values(series: Series) -> None:
    marks = series.marks
    tops = marks["high"].fillna(marks["value"]).clip(lower=0)
    for place, top, value in zip(series.x, tops, marks["value"], strict=True):
        text = f"{value:.12g}"  # `settle_values` gives all of a panel the same digits
        series.ax.annotate(
            text, (place, top), xytext=(0, mpl.rcParams["lines.markersize"]), textcoords="offset points",
            ha="center", va="bottom", fontsize=mpl.rcParams["legend.fontsize"], color="0.2", gid=BAR_VALUE,
        )  # fmt: skip


def line(series: Series, look: Look) -> None:
    """Connected markers by rising x; invalid ones stand beside the line, and so does zero before an axis' break."""
    series = series.by_x()
    paint, joined = series.paint, _joined(series.marks, look).to_numpy()
    series.ax.plot(series.x[joined], series.values[joined], color=paint.color, linestyle=paint.dash, zorder=2)
    _errors(series, paint.color, _lane(series))
    _markers(series, paint.color)


def _joined(marks: pd.DataFrame, look: Look) -> pd.Series:
    valid = statuses(marks) != "invalid"
    return valid & marks["x"].ne(0) if look.axes.x_scale == "counts" else valid


def point(series: Series, look: Look) -> None:
    """Markers by themselves, beside a bar's interval where there are bars; diamonds where they mean another thing."""
    on_bar = ON_BAR if series.slot.width else 0.0
    _errors(series, series.color, on_bar or _lane(series))
    _markers(series, series.color, "D" if look.words.point_label else "", on_bar)


def beside(series: Series, look: Look) -> None:
    """Markers side by side by hue, with their intervals: what bars are where an axis has no zero to stand on."""
    _errors(series, series.paint.color)
    _markers(series, series.paint.color)


def below(series: Series, look: Look) -> None:
    """Hollow triangles that point down, at the upper bound of a value, with their labels."""
    color = series.paint.color
    series.ax.plot(
        series.x, series.values, linestyle="none", marker="v", color=color, markerfacecolor="white", zorder=3
    )
    _write_labels(series, series.x, above=False)


def dots(series: Series, look: Look) -> None:
    """Markers small enough for a thousand of them."""
    size, color = mpl.rcParams["lines.markersize"] * 0.35, series.paint.color
    series.ax.plot(series.places, series.values, linestyle="none", marker="o", markersize=size, color=color, zorder=2)


def raw(series: Series, look: Look) -> None:
    """Each repetition as a small ring: spread a little in the room of a bar, else left of the hue's marker."""
    size, thin = mpl.rcParams["lines.markersize"] * 0.45, mpl.rcParams["lines.linewidth"] * 0.5
    shift = 0.0 if series.slot.width else -_lane(series)
    series.ax.plot(
        series.x + series.spread(0.5), series.values, linestyle="none", marker="o", markersize=size,
        markeredgewidth=thin, markeredgecolor=series.color, markerfacecolor="none", zorder=2.5,
        **_shifted(series.ax, shift),
    )  # fmt: skip


def samples(series: Series, look: Look) -> None:
    """A box of each place's samples (quartiles, median, whiskers to 1.5 times their distance) over every sample."""
    slot, values = series.slot, series.values
    thin, size = mpl.rcParams["lines.linewidth"] * 0.7, mpl.rcParams["lines.markersize"] * 0.5
    x, color = series.x + series.spread(0.6), series.paint.color
    series.ax.plot(
        x, values, linestyle="none", marker="o", markersize=size, markeredgewidth=0.0, color=color, alpha=0.6
    )
    for place in np.unique(series.places):
        series.ax.boxplot(
            values[series.places == place], positions=[place + slot.offset], widths=slot.width * 0.7, showfliers=False,
            manage_ticks=False, boxprops={"linewidth": thin}, whiskerprops={"linewidth": thin},
            capprops={"linewidth": thin}, medianprops={"color": "0.1", "linewidth": 1.6 * thin},
        )  # fmt: skip
    _write_labels(series, x)


def _write_labels(series: Series, x: Array, *, above: bool = True) -> None:
    away, side = (2.0, "bottom") if above else (-mpl.rcParams["lines.markersize"], "top")
    for place, value, label in zip(x, series.marks["value"], series.marks["label"], strict=True):
        if pd.notna(label):
            series.ax.annotate(
                str(label), (place, value), xytext=(0, away), textcoords="offset points", ha="center", va=side,
                fontsize=mpl.rcParams["legend.fontsize"], color="0.2", gid=MARK_WORDS,
            )  # fmt: skip


def fit(series: Series, look: Look) -> None:
    """A model's line, without markers."""
    series = series.by_x()
    thin, paint = mpl.rcParams["lines.linewidth"] * 0.8, series.paint
    series.ax.plot(series.x, series.values, color=paint.color, linestyle=paint.dash, linewidth=thin, zorder=1.5)


KINDS: dict[str, Callable[[Series, Look], None]] = {
    "bar": bars,
    "line": line,
    "point": point,
    "dot": dots,
    "fit": fit,
    "stack": stack,
    "edge": edge,
    "sample": samples,
    "beside": beside,
    "below": below,
    "raw": raw,
}


def settle_values(ax: Axes) -> None:
    """Give the values above a panel's bars equal decimals and a place on the axis: three digits for the greatest, and
    more where another one would be 0 that is not. They stand above all marks of their bar, or beside an interval that
    leaves no room above it."""
    texts = [text for text in ax.texts if text.get_gid() == BAR_VALUE]
    values = [abs(float(text.get_text())) for text in texts]
    most, least = max(values, default=0.0), min(filter(None, values), default=0.0)
    decimals = max(0, 2 - floor(log10(most))) if most > 0 else 0
    while least and float(f"{least:.{decimals}f}") == 0 and decimals < MOST_DECIMALS:
        decimals += 1
    low, high = ax.get_ylim()
    for text in texts:
        assert isinstance(text, Annotation)
        text.set_text(f"{float(text.get_text()):.{decimals}f}")
        x, highest = text.xy[0], high - VALUE_ROOM * (high - low)
        top = max([text.xy[1], *_tops(ax, x)])
        text.xy = (x, min(top, highest))
        if top > highest:
            text.set_horizontalalignment("left")
            text.xyann = (mpl.rcParams["lines.markersize"], 0)


def _tops(ax: Axes, x: float) -> Iterator[float]:
    """Yield where markers and intervals at ``x`` end."""
    yield from (top for bars in _intervals(ax) for (at, _), (_, top) in bars.get_segments() if np.isclose(at, x))
    for line in (line for line in ax.lines if line.get_marker() not in (None, "", "None")):
        marks = np.column_stack([np.asarray(ends, dtype=float) for ends in line.get_data()])
        yield from (float(y) for at, y in marks if np.isclose(at, x))


def _intervals(ax: Axes) -> Iterator[Any]:
    """Yield the lines of intervals, a collection for each series."""
    for container in ax.containers:
        yield from container.lines[2] if isinstance(container, ErrorbarContainer) else ()


def mark_cut_intervals(ax: Axes) -> bool:
    """Put an arrow where an interval goes on beyond the axis, inside it; return whether any does."""
    low, high = ax.get_ylim()
    cut = False
    for bars in _intervals(ax):
        for (x, bottom), (_, top) in bars.get_segments():
            for end, beyond, marker in ((low, bottom < low, DOWNWARDS), (high, top > high, UPWARDS)):
                if beyond:
                    ax.plot(
                        x, end, marker=marker, color=bars.get_color()[0], clip_on=False, zorder=4, gid=CUT,
                        transform=bars.get_transform(), markerfacecolor="none",
                        markersize=ARROW * mpl.rcParams["lines.markersize"],
                    )  # fmt: skip
                    cut = True
    return cut


def legend_entries(
    marks: pd.DataFrame, look: Look, hues: dict[str, Paint], *, cut: bool = False
) -> list[tuple[Artist, str]]:
    """Return (handle, label) for the hues, then for each status and kind that the figure shows.

    ``cut``: an interval leaves an axis. A legend of the ring alone would tell nothing apart.
    """
    barred = marks["kind"].isin(("bar", "stack")).any()
    entries = [(_handle(marks[marks["hue"].eq(hue)], paint, look), hue) for hue, paint in hues.items() if hue]
    shown = set(statuses(marks))
    for name in ("generator", "link", "invalid"):
        if name in shown:
            entries.append(
                (_status_handle(STATUSES[name], bool(barred)), look.words.legend.get(name, STATUSES[name].label))
            )
    if look.words.point_label and marks["kind"].eq("point").any():
        entries.append((_loose("D"), look.words.point_label))
    if marks["kind"].eq("raw").any():
        entries.append((_loose("o", 0.45), REPETITION))
    if marks["kind"].eq("below").any():
        entries.append((_loose("v"), look.words.legend.get("below", "below this")))
    if marks["kind"].eq("sample").any():
        entries.append((_loose("o", 0.5), SAMPLE))
    if cut:
        entries.append((_loose(UPWARDS, ARROW), CUT))
    return [] if [text for _, text in entries] == [REPETITION] else entries


def _handle(marks: pd.DataFrame, paint: Paint, look: Look) -> Artist:
    """Return what stands for a hue of these marks: a bar, a marker, or a marker on a line where one is drawn."""
    kinds = set(marks["kind"])
    if kinds & {"bar", "stack"}:
        return Patch(facecolor=paint.color)
    ends = marks[marks["kind"].eq("fit") | (marks["kind"].eq("line") & _joined(marks, look))]
    dash: Any = paint.dash if ends.groupby("panel", dropna=False)["x"].nunique().gt(1).any() else "none"
    shape, size = paint.shape, paint.marker_size
    if kinds <= {"dot", "sample", "fit"}:
        shape, size = "" if kinds == {"fit"} else "o", float(mpl.rcParams["lines.markersize"])
    return Line2D([], [], color=paint.color, linestyle=dash, marker=shape, markersize=size, markeredgewidth=0.0)


def _status_handle(status: Status, barred: bool) -> Artist:
    if barred:
        return Patch(facecolor="white", edgecolor="0.3", hatch=status.hatch, linewidth=0.5)
    return _loose(status.marker)


def _loose(marker: Any, size: float = 1.0) -> Line2D:
    points = mpl.rcParams["lines.markersize"] * size
    return Line2D([], [], color="0.3", linestyle="none", marker=marker, markerfacecolor="white", markersize=points)
