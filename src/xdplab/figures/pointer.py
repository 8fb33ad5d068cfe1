"""What a figure's SVG tells a pointer: over each mark its value, interval and trials; which shapes belong to a hue.

Any browser shows this text over a mark, without a script. A page may hide a hue by the ids of its shapes:
``series-HUE-NUMBER``, and ``legend-HUE-NUMBER`` of its entry in the legend.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from xdplab.figures.marks import Look

SERIES, LEGEND = "series", "legend"
TOLD = ("bar", "line", "point", "beside", "below", "stack")
"""Kinds whose marks have words; of the others, each repetition, sample and model's line, there may be thousands."""
REACH_PT = 4.0


@dataclass(frozen=True)
class Group:
    """The marks of one hue and kind in one panel, the shapes they became, and where along the axis they stand."""

    ax: Axes
    hue: str
    kind: str
    marks: Sequence[Mapping[str, Any]]
    x: NDArray[np.float64]
    shapes: tuple[Artist, ...]


@dataclass(frozen=True)
class OnSheet:
    """What a figure shows."""

    look: Look
    drawn: tuple[Group, ...]
    hues: tuple[str, ...]


@contextmanager
def named(sheet: Figure, shown: OnSheet) -> Iterator[None]:
    """Give the shapes of each hue and its entry in the legend their ids, for the time of writing the SVG."""
    hues = shown.hues
    shapes = [(SERIES, hues.index(one.hue), shape) for one in shown.drawn for shape in one.shapes]
    for legend in sheet.legends:
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
            if text.get_text() in hues and handle is not None:
                shapes += [(LEGEND, hues.index(text.get_text()), entry) for entry in (handle, text)]
    before = [(shape, shape.get_gid()) for _, _, shape in shapes]
    try:
        for number, (word, hue, shape) in enumerate(shapes):
            shape.set_gid(f"{word}-{hue}-{number}")
        yield
    finally:
        for shape, gid in before:
            shape.set_gid(gid)


def with_tooltips(svg: str, sheet: Figure, shown: OnSheet) -> str:
    """Return the SVG with an invisible disc over each mark, with its text as title; the legend has labels."""
    for number, hue in enumerate(shown.hues):
        svg = svg.replace(f'<g id="{LEGEND}-{number}-', f'<g aria-label={quoteattr(hue)} id="{LEGEND}-{number}-')
    groups = [one for one in shown.drawn if one.kind in TOLD]
    discs = "".join(_discs(sheet, one, shown.hues.index(one.hue), shown.look) for one in groups)
    end = svg.rindex("</svg>")
    return f'{svg[:end]}<g id="marks" fill="#ffffff" fill-opacity="0">\n{discs}</g>\n{svg[end:]}'


def _discs(sheet: Figure, drawn: Group, hue: int, look: Look) -> str:
    stacked = drawn.kind == "stack"
    y = np.array([(mark["value"] + mark["low"]) / 2 if stacked else mark["value"] for mark in drawn.marks], dtype=float)
    width, height = sheet.get_size_inches() * 72
    places = sheet.transFigure.inverted().transform(drawn.ax.transData.transform(np.column_stack([drawn.x, y])))
    discs = []
    for (x, up), mark in zip(places.tolist(), drawn.marks, strict=True):
        if isfinite(x) and isfinite(up):
            place = f'cx="{x * width:.1f}" cy="{(1 - up) * height:.1f}" r="{REACH_PT:g}"'
            text = escape(tooltip(mark, look))
            discs.append(f'<circle class="{SERIES}-{hue}" {place}><title>{text}</title></circle>\n')
    return "".join(discs)


def tooltip(mark: Mapping[str, Any], look: Look) -> str:
    """Return a mark as text: what it is, value with interval, verdict, and the trials behind it."""
    place = f"{look.axes.x_label}: {mark['x']}"
    lines = [", ".join(str(part) for part in (mark["hue"], mark["panel"], place) if not pd.isna(part) and part != "")]
    whole = mark["value"] if mark["kind"] != "stack" else mark["value"] - mark["low"]
    value = f"{look.axes.y_label}: {whole:.4g}"
    if mark["kind"] != "stack" and not pd.isna(mark["low"]):
        value += f" [{mark['low']:.4g}, {mark['high']:.4g}]"
    lines.append(value + ("" if pd.isna(mark["n"]) else f", n = {mark['n']:g}"))
    if not pd.isna(mark["verdict"]) and mark["verdict"] != "valid":
        lines.append(str(mark["verdict"]))
    if not pd.isna(mark["points"]) and mark["points"]:
        lines.append("trials " + ", ".join(f"{point}-r…" for point in str(mark["points"]).split(",")))
    return "\n".join(lines)
