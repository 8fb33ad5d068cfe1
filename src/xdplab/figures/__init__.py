"""Figures: a view of the trials makes a marks table, and the marks table is drawn."""

from xdplab.figures.catalogue import CATALOGUE, figure, view
from xdplab.figures.draw import draw
from xdplab.figures.factors import FigureError, NotApplicableError
from xdplab.figures.marks import COLUMNS, Look, View, marks_frame
from xdplab.figures.styles import STYLES

__all__ = [
    "CATALOGUE",
    "COLUMNS",
    "STYLES",
    "FigureError",
    "Look",
    "NotApplicableError",
    "View",
    "draw",
    "figure",
    "marks_frame",
    "view",
]
