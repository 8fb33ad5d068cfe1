"""Where a figure will stand: width, type sizes, line widths. Print never goes below 6 pt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xdplab.errors import FigureError
from xdplab.lazy import lazy

if TYPE_CHECKING:
    import matplotlib as mpl
else:
    mpl = lazy("matplotlib")

FORMATS = ("svg", "pdf", "png")
"""What a figure is written as."""
DEFAULT_FORMATS = ("svg",)
"""Of a whole album: the format that takes least time to write."""


@dataclass(frozen=True)
class Style:
    """``width_in`` is final: the figure is not to be scaled. ``height_in`` is None if the content decides."""

    name: str
    width_in: float
    height_in: float | None
    panel_height_in: float
    font_pt: float
    small_pt: float
    caption_pt: float
    line_pt: float
    marker_pt: float
    dpi: int


STYLES = {
    style.name: style
    for style in (
        Style("paper-1col", 3.4, None, 1.3, 7.0, 6.0, 6.0, 1.0, 3.0, 300),
        Style("paper-2col", 7.0, None, 1.7, 8.0, 7.0, 6.5, 1.2, 3.6, 300),
        Style("notebook", 8.5, None, 2.6, 10.0, 9.0, 8.0, 1.5, 4.5, 144),
        Style("slides", 10.0, 5.625, 3.0, 14.0, 12.0, 9.0, 2.2, 6.5, 150),
    )
}


def style_named(name: str) -> Style:
    """Return a style. Raises FigureError for an unknown name."""
    if name not in STYLES:
        raise FigureError(f"unknown style {name!r}", remedy=f"one of {', '.join(STYLES)}")
    return STYLES[name]


@contextmanager
def applied(style: Style) -> Iterator[None]:
    """Matplotlib's parameters for this style, restored afterwards: a notebook's own settings are left alone."""
    thin = style.line_pt * 0.6
    parameters: dict[Any, Any] = {
        "font.family": "DejaVu Sans",
        "font.size": style.font_pt,
        "axes.titlesize": style.font_pt,
        "axes.labelsize": style.font_pt,
        "axes.titlepad": 3.0,
        "axes.linewidth": thin,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "axes.axisbelow": True,
        "grid.color": "0.88",
        "grid.linewidth": thin,
        "xtick.labelsize": style.small_pt,
        "ytick.labelsize": style.small_pt,
        "xtick.major.width": thin,
        "ytick.major.width": thin,
        "xtick.major.size": 2.5,
        "ytick.major.size": 2.5,
        "legend.fontsize": style.small_pt,
        "legend.title_fontsize": style.small_pt,
        "legend.frameon": False,
        "lines.linewidth": style.line_pt,
        "lines.markersize": style.marker_pt,
        "hatch.linewidth": thin,
        "figure.dpi": style.dpi,
        "figure.autolayout": False,  # a sheet is laid out once, by `settle`
        "figure.constrained_layout.use": False,
        "svg.hashsalt": "xdplab",  # element ids, and so the bytes, depend on the content alone
        "svg.fonttype": "path",
        "pdf.fonttype": 42,
        "text.parse_math": False,  # a `$` in a file's name is a dollar; no label of ours is a formula
    }
    with mpl.rc_context(parameters):
        yield
