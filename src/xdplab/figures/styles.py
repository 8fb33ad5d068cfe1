"""Where a figure will stand: width, type sizes, line widths. Print never goes below 6 pt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from xdplab.errors import FigureError
from xdplab.lazy import lazily

with lazily():
    import matplotlib as mpl


@dataclass(frozen=True)
class Style:
    """``width_in`` is final: the figure is not to be scaled. ``height_in`` is None if the content decides.

    ``captioned``: the short caption stands on the figure. In print it does not, as a paper's own caption says that.
    ``titled``: so does a title, if the figure has one, unless a width was chosen, for a paper, or no caption is wanted.
    ``chosen``: the size is a person's, and is refused where it is too small.
    """

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
    captioned: bool = False
    titled: bool = True
    chosen: bool = False


STYLES = {
    style.name: style
    for style in (
        Style("paper-1col", 3.4, None, 1.3, 7.0, 6.0, 6.0, 1.0, 3.0, 300),
        Style("paper-2col", 7.0, None, 1.7, 8.0, 7.0, 6.5, 1.2, 3.6, 300),
        Style("notebook", 8.5, None, 2.6, 10.0, 9.0, 8.0, 1.5, 4.5, 144, captioned=True),
        Style("slides", 10.0, 5.625, 3.0, 14.0, 12.0, 9.0, 2.2, 6.5, 150, captioned=True),
    )
}


def style_named(name: str) -> Style:
    """Return a style. Raises FigureError for an unknown name."""
    if name not in STYLES:
        raise FigureError(f"unknown style {name!r}", remedy=f"one of {', '.join(STYLES)}")
    return STYLES[name]


@dataclass(frozen=True)
class Venue:
    """The width of a figure at a venue, which the venue says, and the style of its type sizes."""

    width_in: float
    style: str


VENUES = {
    "acm": Venue(3.33, "paper-1col"),  # acmart.cls, sigconf: letter less 2 x 54 pt and 24 pt between = 241.147 pt
    "ieee": Venue(3.5, "paper-1col"),  # IEEE Author Center, size requirements for graphics: 88.9 mm, 21 picas
    "usenix": Venue(3.33, "paper-1col"),  # usenix2019_v3.sty: text 7 in wide, 0.33 in between its columns
    "a4": Venue(6.3, "paper-2col"),  # 210 mm less margins of 25 mm
    "slide": Venue(10.0, "slides"),  # 16:9
}
UNITS_IN = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "pt": 1 / 72.27}
"""Units of lengths, in inches; ``pt`` is TeX's, in which LaTeX tells a column's width."""
MOST_IN = 100.0
DEFAULT_STYLE = "paper-1col"


def inches(length: str | float) -> float:
    """Return a length, ``3.3in``, ``84mm``, ``241pt`` or a number of inches. Raises FigureError."""
    match = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*([a-z]*)", str(length).strip())
    size = float(match[1]) * UNITS_IN.get(match[2] or "in", 0) if match else 0
    if not 0 < size < MOST_IN:
        raise FigureError(f"{length!r} is no length", remedy=f"write 3.3in, 84mm or 241pt, or {', '.join(VENUES)}")
    return size


def sized(
    style: str | None = None,
    width: str | float | None = None,
    height: str | float | None = None,
    *,
    caption: bool | None = None,
) -> Style:
    """Return a style with a width (a length, or a venue's name), a height and a caption as given.

    Without a style it is the one whose width is nearest, for its type sizes. Raises FigureError.
    """
    venue = VENUES.get(str(width))
    if venue is not None:
        named, width_in = style_named(style or venue.style), venue.width_in
    elif width is not None:
        width_in = inches(width)
        nearest = min(STYLES.values(), key=lambda one: abs(one.width_in - width_in))
        named = style_named(style) if style else nearest
    else:
        named = style_named(style or DEFAULT_STYLE)
        width_in = named.width_in
    keeps = height is None and width_in == named.width_in
    return replace(
        named,
        width_in=width_in,
        height_in=named.height_in if keeps else None if height is None else inches(height),
        captioned=named.captioned if caption is None else caption,
        titled=width is None if caption is None else caption,
        chosen=width is not None or height is not None,
    )


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
        "figure.autolayout": False,  # `settle` lays a sheet out
        "figure.constrained_layout.use": False,
        "svg.hashsalt": "xdplab",  # element ids, and so the bytes, depend on the content alone
        "svg.fonttype": "path",
        "pdf.fonttype": 42,
        "text.parse_math": False,  # a `$` in a file's name is a dollar; no label of ours is a formula
    }
    with mpl.rc_context(parameters):
        yield
