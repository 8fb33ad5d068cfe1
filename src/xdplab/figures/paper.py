"""What surrounds the panels: legend above, caption below, a height that fits both, tick labels that do not collide."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.textpath import TextPath
from matplotlib.ticker import FixedFormatter
from numpy.typing import NDArray

from xdplab.figures.styles import Style

LEADING = 1.3  # line height over type size
CAPTION, X_LABEL = "1 caption", "2 x label"  # from the lower edge up


def text_width_in(words: str, size_pt: float) -> float:
    """Return the width of one line of text in inches."""
    if not words.strip():
        return 0.0
    box = TextPath((0, 0), words, size=size_pt, prop=FontProperties(family="DejaVu Sans")).get_extents()
    return float(box.x1) / 72


def wrap(words: str, width_in: float, size_pt: float) -> list[str]:
    """Break text into lines of at most ``width_in``."""
    lines = [""]
    for word in words.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width_in(longer, size_pt) > width_in:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def place_caption(sheet: Figure, caption: Sequence[str], style: Style) -> None:
    """Write the caption along the lower edge; it makes the figure higher."""
    lines = [line for part in caption for line in wrap(part, style.width_in - 0.1, style.caption_pt)]
    if not lines:
        return
    sheet.text(
        0.05 / style.width_in, 0, "\n".join(lines), fontsize=style.caption_pt, color="0.25", va="bottom", ha="left",
        linespacing=LEADING * 0.93, gid=CAPTION,
    )  # fmt: skip
    if style.height_in is None:
        sheet.set_figheight(sheet.get_figheight() + _caption_height(len(lines), style.caption_pt))


def _caption_height(lines: int, size_pt: float) -> float:
    return (lines * LEADING + 0.5) * size_pt / 72


def label_axes(sheet: Figure, axes: NDArray[Any], x_label: str, y_label: str, style: Style) -> None:
    """Label a single panel on its axes, several once for all."""
    if axes.size == 1:
        axes.flat[0].set(xlabel=x_label, ylabel=y_label)
        return
    if style.height_in is None:
        sheet.set_figheight(sheet.get_figheight() + _caption_height(1, style.font_pt))
    sheet.supylabel(y_label, fontsize=style.font_pt)
    sheet.text(0.5, 0, x_label, fontsize=style.font_pt, ha="center", va="bottom", gid=X_LABEL)


def _reserve_foot(sheet: Figure) -> None:
    """Keep the panels off caption and x label; their share of the height is known only when the height is."""
    foot = 0.03
    for text in sorted((text for text in sheet.texts if text.get_gid()), key=lambda text: str(text.get_gid())):
        text.set_y(foot / sheet.get_figheight())
        foot += _caption_height(text.get_text().count("\n") + 1, float(text.get_fontsize()))
    share = foot / sheet.get_figheight()
    sheet.get_layout_engine().set(rect=(0, share, 1, 1 - share))  # type: ignore[union-attr,call-arg]


def _center_labels(sheet: Figure, shown: list[Axes]) -> None:
    """Matplotlib centres common labels on the figure; they belong to the panels."""
    boxes = [ax.get_position() for ax in shown]
    for text in sheet.texts:
        if text.get_gid() == X_LABEL:
            text.set_x((min(box.x0 for box in boxes) + max(box.x1 for box in boxes)) / 2)
    label = sheet._supylabel  # type: ignore[attr-defined]
    if label is not None:
        label.set_y((min(box.y0 for box in boxes) + max(box.y1 for box in boxes)) / 2)


def place_legend(sheet: Figure, entries: list[tuple[Artist, str]], title: str, style: Style) -> None:
    """Put one legend above all panels, in as many columns as the width holds; it makes the figure higher."""
    if not entries:
        return
    handles, words = [entry[0] for entry in entries], [entry[1] for entry in entries]
    if title:
        handles, words = [_blank(), *handles], [f"{title}:", *words]
    for columns in range(len(words), 0, -1):
        legend = sheet.legend(
            handles, words, loc="outside upper center", ncols=columns, columnspacing=1.0, handletextpad=0.5,
            handlelength=2.0, borderaxespad=0.2,
        )  # fmt: skip
        box = legend.get_window_extent()
        if box.width / sheet.dpi <= style.width_in - 0.05 or columns == 1:
            break
        legend.remove()
    if style.height_in is None:
        sheet.set_figheight(sheet.get_figheight() + box.height / sheet.dpi)


def _blank() -> Artist:
    """A legend title in the row of its entries takes no handle."""
    return Line2D([], [], linestyle="none")


def settle(sheet: Figure, shown: list[Axes], *, categorical: bool) -> None:
    """Lay out, then see to tick labels that touch: turn words, leave out numbers."""
    _reserve_foot(sheet)
    sheet.draw_without_rendering()
    if categorical and any(_collide(ax) for ax in shown) and _wordy(shown):
        for ax in shown:
            ax.tick_params(axis="x", rotation=30)
            for label in ax.get_xticklabels():
                label.set_horizontalalignment("right")
                label.set_rotation_mode("anchor")
        sheet.draw_without_rendering()
    else:
        for ax in shown:
            _thin(ax)
    _center_labels(sheet, shown)


def _collide(ax: Axes) -> bool:
    boxes = [label.get_window_extent() for label in ax.get_xticklabels() if label.get_text()]
    return any(a.x1 + 1 > b.x0 for a, b in pairwise(boxes))


def _wordy(axes: list[Axes]) -> bool:
    return any(not label.get_text().strip().isdigit() for ax in axes for label in ax.get_xticklabels())


def _thin(ax: Axes) -> None:
    """Keep the first and last label, and those between that keep clear of their neighbours."""
    formatter = ax.xaxis.get_major_formatter()
    if not isinstance(formatter, FixedFormatter):
        return
    labels = ax.get_xticklabels()
    room = 0.3 * float(labels[0].get_fontsize()) / 72 * ax.figure.dpi if labels else 0.0
    boxes = [label.get_window_extent().padded(room / 2) for label in labels]
    kept: list[int] = []
    for place in range(len(labels)):
        if not kept or boxes[place].x0 > boxes[kept[-1]].x1:
            kept.append(place)
        elif place == len(labels) - 1 and len(kept) > 1:
            kept[-1] = place
    ax.xaxis.set_major_formatter(
        FixedFormatter([label.get_text() if i in kept else "" for i, label in enumerate(labels)])
    )
