"""What surrounds the panels: legend above, caption below, a height that fits both, tick labels that do not collide."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations, pairwise
from math import ceil, radians, sin
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.lines import Line2D
from matplotlib.text import Annotation, Text
from matplotlib.ticker import FixedFormatter
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from xdplab.figures.kinds import BAR_VALUE, MARK_WORDS
from xdplab.figures.styles import Style

LEADING = 1.3  # line height over type size
SPACE_EMS = 0.33
BOLD = 0.88  # widths of letters that are not bold, over those of bold ones
CAPTION, X_LABEL, TITLE = "1 caption", "2 x label", "title"  # from the lower edge up; at the upper one


def text_width_in(text: str, size_pt: float) -> float:
    """Return the width of one line of text in inches."""
    parts = text.split(" ")
    return (sum(_ems(part) for part in parts) + (len(parts) - 1) * SPACE_EMS) * size_pt / 72


@lru_cache(maxsize=4096)
def _ems(word: str) -> float:
    """Return a word's width in units of its type size; asking the font itself is a hundred times faster than a path."""
    font = get_font(findfont(FontProperties(family="DejaVu Sans")))
    font.set_size(100, 72)
    font.set_text(word, 0.0)
    return float(font.get_width_height()[0]) / 64 / 100


def wrap(text: str, width_in: float, size_pt: float) -> list[str]:
    """Break text into lines of at most ``width_in``."""
    lines = [""]
    for word in filter(None, text.replace("\n", " ").split(" ")):
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width_in(longer, size_pt) > width_in:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def place_caption(sheet: Figure, caption: Sequence[str], style: Style) -> None:
    """Write the caption along the lower edge; it makes the figure higher."""
    lines = [line for part in caption for line in wrap(part, style.width_in - 0.15, style.caption_pt)]
    _place_lines(sheet, lines, style, fontsize=style.caption_pt, color="0.25", va="bottom", gid=CAPTION)


def _place_lines(sheet: Figure, lines: Sequence[str], style: Style, **how: Any) -> None:
    if not lines:
        return
    at, spacing = int(how["va"] == "top"), LEADING * 0.93
    sheet.text(0.05 / style.width_in, at, "\n".join(lines), ha="left", linespacing=spacing, **how)
    if style.height_in is None:
        sheet.set_figheight(sheet.get_figheight() + _caption_height(len(lines), how["fontsize"]))


def _caption_height(lines: int, size_pt: float) -> float:
    return (lines * LEADING + 0.5) * size_pt / 72


def place_title(sheet: Figure, title: str, style: Style) -> None:
    """Write the title along the upper edge; it makes the figure higher."""
    lines = wrap(title, BOLD * (style.width_in - 0.15), style.font_pt) if title else []
    _place_lines(sheet, lines, style, fontsize=style.font_pt, fontweight="bold", va="top", gid=TITLE)


def label_axes(sheet: Figure, axes: NDArray[Any], x_label: str, y_label: str, style: Style) -> None:
    """Label a single panel on its axes, several once for all."""
    y_label = "\n".join(wrap(y_label, 0.75 * sheet.get_figheight(), style.font_pt))
    if axes.size == 1:
        axes.flat[0].set(xlabel=x_label, ylabel=y_label)
        return
    if style.height_in is None:
        sheet.set_figheight(sheet.get_figheight() + _caption_height(1, style.font_pt))
    sheet.supylabel(y_label, fontsize=style.font_pt)
    sheet.text(0.5, 0, x_label, fontsize=style.font_pt, ha="center", va="bottom", gid=X_LABEL)


def _edges(sheet: Figure) -> tuple[float, float]:
    """Place what stands along the lower and upper edge, whose heights are known only when the figure's is; return how
    many inches it takes there."""
    foot, head = PAD_IN[1], 0.0
    for text in sorted((text for text in sheet.texts if text.get_gid()), key=lambda text: str(text.get_gid())):
        height = _caption_height(text.get_text().count("\n") + 1, float(text.get_fontsize()))
        if text.get_gid() == TITLE:
            text.set_y(1 - PAD_IN[1] / sheet.get_figheight())
            head += height
        else:
            text.set_y(foot / sheet.get_figheight())
            foot += height
    for legend in sheet.legends:
        legend.set_bbox_to_anchor((0, 0, 1, 1 - head / sheet.get_figheight()), sheet.transFigure)
        head += legend.get_window_extent().height / sheet.dpi + 2 * PAD_IN[1]
    return foot, head


def place_legend(sheet: Figure, entries: list[tuple[Artist, str]], title: str, style: Style) -> None:
    """Put one legend above all panels, in as many columns as the width holds; it makes the figure higher.

    Its title leads the row where all fits into one, and stands above where it does not.
    """
    if not entries:
        return
    led = [(_blank(), f"{title}:"), *entries] if title else entries
    height, fits = _legend(sheet, led, len(led), "", style)
    columns = len(entries)
    while not fits and columns:
        height, fits = _legend(sheet, entries, columns, title, style)
        columns -= 1
    if style.height_in is None:
        sheet.set_figheight(sheet.get_figheight() + height)


def _legend(
    sheet: Figure, entries: list[tuple[Artist, str]], columns: int, title: str, style: Style
) -> tuple[float, bool]:
    """Return the legend's height in inches and whether it fits; it stays only if it does, or cannot be narrower."""
    order = _row_major(len(entries), columns)
    chosen = [(_blank(), "") if place is None else entries[place] for place in order]
    legend = sheet.legend(
        [handle for handle, _ in chosen], [entry for _, entry in chosen], loc="upper center", ncols=columns,
        columnspacing=1.0, handletextpad=0.5, handlelength=2.0, borderaxespad=0.2, title=title or None,
    )  # fmt: skip
    box = legend.get_window_extent()
    fits = box.width / sheet.dpi <= style.width_in - 0.05 or columns == 1
    if not fits:
        legend.remove()
    return box.height / sheet.dpi, fits


def _row_major(count: int, columns: int) -> list[int | None]:
    """Return the order that makes matplotlib, which fills columns, fill rows; None is an empty place."""
    rows = -(-count // columns)
    places = [row * columns + column for column in range(columns) for row in range(rows)]
    return [place if place < count else None for place in places]


def _blank() -> Artist:
    """A legend title in the same row as its entries; it has no handle."""
    return Line2D([], [], linestyle="none")


def settle(sheet: Figure, axes: NDArray[Any], *, categorical: bool) -> None:
    """Lay out, then see to tick labels that touch: break words into lines, else turn them; leave out numbers."""
    shown = [ax for ax in axes.flat if ax.get_visible()]
    _lay_out(sheet, axes)
    tops = [ax.get_ylim()[1] for ax in shown]
    for ax, top in zip(shown, tops, strict=True):
        _turn_values(ax, top)
    if categorical and any(_collide(ax) for ax in shown) and not _broken_into_lines(sheet, axes):
        _relabel(shown, [_halved(ax) for ax in shown])
        for ax in shown:
            ax.tick_params(axis="x", rotation=TURNED)
            for label in ax.get_xticklabels():
                label.set_linespacing(1.0)
                label.set_horizontalalignment("right")
                label.set_rotation_mode("anchor")
        for _ in range(2):  # a turned label reaches as far as its panel is narrow
            _lay_out(sheet, axes)
    else:
        thinned = [_thin(ax) for ax in shown]
        if any(thinned):
            _lay_out(sheet, axes)
    for ax in shown:
        _separate_words(ax)


PAD_IN = (0.04, 0.03)
"""Room around each panel with its labels, and around the legend: beside them, and above and below."""


def _lay_out(sheet: Figure, axes: NDArray[Any]) -> None:
    """Give the panels one size, the largest that leaves room for what stands around them; centre common labels.

    Matplotlib's own layout measures everything in the panels, four times; only turned labels depend on a panel's size.
    """
    (width, height), (rows, columns) = sheet.get_size_inches(), axes.shape
    foot, head = _edges(sheet)
    label: Any = sheet._supylabel  # type: ignore[attr-defined]
    side = label.get_window_extent().width / sheet.dpi + 2 * PAD_IN[0] if label else 0.0
    left, right, below, above = np.vectorize(_around, otypes=[float] * 4)(axes)
    left, right, below, above = left.max(axis=0), right.max(axis=0), below.max(axis=1), above.max(axis=1)
    wide = max(_LEAST_IN, (width - side - sum(left + right)) / columns)
    high = max(_LEAST_IN, (height - foot - head - sum(below + above)) / rows)
    x = side + np.cumsum(left) + np.cumsum(right) - right + wide * np.arange(columns)
    y = height - head - np.cumsum(above) - np.cumsum(below) + below - high * np.arange(1, rows + 1)
    for ax, (row, column) in zip(axes.flat, np.ndindex(axes.shape), strict=True):
        ax.set_position((x[column] / width, y[row] / height, wide / width, high / height))
    for text in sheet.texts:
        if text.get_gid() == X_LABEL:
            text.set_x((x[0] + x[-1] + wide) / 2 / width)
    if label:
        label.set_position((PAD_IN[0] / width, (y[-1] + y[0] + high) / 2 / height))


_LEAST_IN = 0.01
"""Of a panel that has no room: `unreadable` sees it."""


def _around(ax: Axes) -> tuple[float, float, float, float]:
    """Return how many inches a panel's labels take left, right, below and above, with the room around them."""
    frame, dpi = ax.get_window_extent(), ax.figure.dpi
    words = [text for text in ax.texts if text.get_in_layout()]
    box = ax.get_tightbbox(for_layout_only=True, bbox_extra_artists=words) or frame
    beside = (frame.x0 - box.x0, box.x1 - frame.x1, frame.y0 - box.y0, box.y1 - frame.y1)
    left, right, below, above = (size / dpi for size in beside)
    return left + PAD_IN[0], right + PAD_IN[0], below + PAD_IN[1], above + PAD_IN[1]


TURNED = 30
"""Degrees by which labels are turned that are wider than their places."""


def _halved(ax: Axes) -> list[str]:
    """Return a panel's tick labels in two lines each, if two lines of them have room beside each other, turned."""
    labels = ax.get_xticklabels()
    apart = ax.get_window_extent().width / ax.figure.dpi * 72 / len(labels) * sin(radians(TURNED))
    roomy = apart > 2 * float(labels[0].get_fontsize())
    return [_lines(text.get_text(), ceil(0.6 * len(text.get_text()))) if roomy else text.get_text() for text in labels]


LEAST_EMS = (7.0, 6.0)
"""Width and height of the least panel in which marks can be told apart, in type sizes."""


def least_width_in(style: Style) -> float:
    return LEAST_EMS[0] * style.font_pt / 72


def unreadable(axes: NDArray[Any]) -> str:
    """Return what cannot be read of a figure that was laid out; nothing if all can."""
    shown = [ax for ax in axes.flat if ax.get_visible()]
    sheet = shown[0].figure
    sheet.draw_without_rendering()  # a legend takes its place only then
    em = float(sheet.style.font_pt) / 72 * sheet.dpi
    for ax in shown:
        box = ax.get_window_extent()
        if box.width < LEAST_EMS[0] * em or box.height < LEAST_EMS[1] * em:
            return f"a panel is {box.width / sheet.dpi:.2f} x {box.height / sheet.dpi:.2f} in"
    boxes = [(text, text.get_window_extent()) for text in visible_texts(sheet, shown)]
    for text, box in boxes:
        if min(box.x0, box.y0, sheet.bbox.x1 - box.x1, sheet.bbox.y1 - box.y1) < -1:
            return f"{text.get_text()!r} leaves the page"
    straight = [(text, box) for text, box in boxes if text.get_rotation() % 90 == 0]  # a slanted text's box is larger
    for (one, a), (other, b) in combinations(straight, 2):
        if min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1.5:
            return f"{one.get_text()!r} lies on {other.get_text()!r}"
    return ""


def visible_texts(sheet: Figure, shown: Sequence[Axes]) -> list[Text]:
    """Return the labels that are drawn: matplotlib also keeps those of ticks beyond the limits."""
    texts = [*sheet.texts, *(text for legend in sheet.legends for text in [legend.get_title(), *legend.get_texts()])]
    for ax in shown:
        texts += [ax.title, *ax.texts, ax.xaxis.label, ax.yaxis.label]
        axes: tuple[Any, ...] = (ax.xaxis, ax.yaxis)
        texts += [tick.label1 for axis in axes for tick in axis._update_ticks()]
        texts += [axis.get_offset_text() for axis in axes]
    return [text for text in texts if text.get_visible() and text.get_text().strip()]


def _broken_into_lines(sheet: Figure, axes: NDArray[Any]) -> bool:
    """Break tick labels into lines that are as wide as their place. Where that does not do, leave them as they are."""
    shown = [ax for ax in axes.flat if ax.get_visible()]
    before = [[label.get_text() for label in ax.get_xticklabels()] for ax in shown]
    broken = [[_lines(words, _place(ax, label)) for words, label in zip(texts, ax.get_xticklabels(), strict=True)]
              for ax, texts in zip(shown, before, strict=True)]  # fmt: skip
    if max((text.count("\n") + 1 for texts in broken for text in texts), default=0) <= _MOST_LINES:
        _relabel(shown, broken)
        _lay_out(sheet, axes)
        if not any(_collide(ax) for ax in shown):
            return True
    _relabel(shown, before)
    _lay_out(sheet, axes)
    return False


def _place(ax: Axes, label: Text) -> int:
    """Return how many characters of ``label``'s kind one tick has room for."""
    wide = label.get_window_extent().width
    if not wide:  # empty, or hidden below another panel
        return len(label.get_text()) or 1
    return max(1, int(ax.get_window_extent().width / len(ax.get_xticks()) * len(label.get_text()) / wide))


def _lines(text: str, characters: int) -> str:
    return "\n".join(textwrap.wrap(text, characters, break_long_words=False, break_on_hyphens=False))


def _relabel(shown: list[Axes], labels: list[list[str]]) -> None:
    for ax, panel_labels in zip(shown, labels, strict=True):
        ax.set_xticks(ax.get_xticks(), labels=panel_labels)


def _separate_words(ax: Axes) -> None:
    """Move words beside a mark that lie on earlier ones a line further away from the mark, as often as they do."""
    placed: list[Bbox] = []
    for text in (text for text in ax.texts if text.get_gid() == MARK_WORDS):
        assert isinstance(text, Annotation)
        line = 1.1 * float(text.get_fontsize()) * (1 if text.get_verticalalignment() == "bottom" else -1)
        for _ in range(_MOST_LINES):
            if not any(text.get_window_extent().overlaps(box) for box in placed):
                break
            right, up = text.xyann
            text.xyann = (right, up + line)
        placed.append(text.get_window_extent())


_MOST_LINES = 4


def _turn_values(ax: Axes, top: float) -> None:
    """Stand the values of narrow bars upright, all of a panel or none, and make room above ``top``."""
    values = [text for text in ax.texts if text.get_gid() == BAR_VALUE]
    boxes = sorted((text.get_window_extent() for text in values), key=lambda box: box.x0)
    if not any(a.x1 + 2 > b.x0 for a, b in pairwise(boxes)):
        return
    for text in values:
        text.set_rotation(90)
    ax.set_ylim(top=top + 0.2 * (top - ax.get_ylim()[0]))


def _collide(ax: Axes) -> bool:
    """Two labels with less than a space between them are read as one."""
    labels = [label for label in ax.get_xticklabels() if label.get_text()]
    boxes = [label.get_window_extent() for label in labels]
    space = _ems(" ") * float(labels[0].get_fontsize()) / 72 * ax.figure.dpi if labels else 0.0
    return any(a.x1 + space > b.x0 for a, b in pairwise(boxes))


def _thin(ax: Axes) -> bool:
    """Keep the last and first label, and those between that keep clear of them; the others stand in a second line where
    they do so there, else nowhere. Return whether any is moved or left out."""
    formatter = ax.xaxis.get_major_formatter()
    if not isinstance(formatter, FixedFormatter):
        return False
    labels = ax.get_xticklabels()
    from_last = range(len(labels))[::-1]
    kept = _clear(labels, [*from_last[:1], *from_last[-1:], *from_last[1:-1]])
    if len(kept) == len(labels):
        return False
    lower = _clear(labels, [place for place in from_last if place not in kept])
    for tick in (ax.xaxis.get_major_ticks()[place] for place in lower):
        tick.set_pad(mpl.rcParams["xtick.major.pad"] + LEADING * float(labels[0].get_fontsize()))
    ax.xaxis.set_major_formatter(
        FixedFormatter([label.get_text() if i in {*kept, *lower} else "" for i, label in enumerate(labels)])
    )
    return True


def _clear(labels: Sequence[Text], order: Sequence[int]) -> list[int]:
    """Return the places of labels that keep clear of each other in one line, chosen in that order."""
    room = 0.3 * float(labels[0].get_fontsize()) / 72 * labels[0].figure.dpi if labels else 0.0
    boxes = [label.get_window_extent() for label in labels]
    kept: list[int] = []
    for place in order:
        if all(boxes[place].x0 > boxes[at].x1 + room or boxes[place].x1 + room < boxes[at].x0 for at in kept):
            kept.append(place)
    return kept
