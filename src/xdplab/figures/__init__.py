"""Figures: a view of the trials makes a marks table, and the marks table is drawn."""

from xdplab.figures.album import Drawn, draw_all
from xdplab.figures.catalogue import CATALOGUE, figure, view
from xdplab.figures.comparing import compare_view
from xdplab.figures.draw import Panels, draw
from xdplab.figures.factors import FigureError, NotApplicableError
from xdplab.figures.marks import COLUMNS, Look, View, marks_frame
from xdplab.figures.save import save
from xdplab.figures.styles import STYLES

__all__ = [
    "CATALOGUE",
    "COLUMNS",
    "STYLES",
    "Drawn",
    "FigureError",
    "Look",
    "NotApplicableError",
    "Panels",
    "View",
    "compare_view",
    "draw",
    "draw_all",
    "figure",
    "marks_frame",
    "save",
    "view",
]
