"""A figure of which nothing can be shown: its frame, and why."""

from __future__ import annotations

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from xdplab.figures.draw import Sheet
from xdplab.figures.marks import Look
from xdplab.figures.paper import place_caption, settle
from xdplab.figures.styles import Style, applied
from xdplab.thesis.words import NO_MARK, Language


def empty_sheet(look: Look, style: Style, language: Language) -> Figure:
    """Return an empty panel with the axes' labels; the caption below it says why no mark is there."""
    with applied(style):
        sheet = Sheet(figsize=(style.width_in, 1.5 * style.panel_height_in), layout="constrained")
        FigureCanvasAgg(sheet)
        ax = sheet.subplots()
        ax.set(xlabel=look.x_label, ylabel=look.y_label, xticks=[], yticks=[])
        ax.text(0.5, 0.5, NO_MARK.of(language), transform=ax.transAxes, ha="center", va="center", color="0.4")
        place_caption(sheet, look.caption, style)
        settle(sheet, [ax], categorical=False)
    return sheet
