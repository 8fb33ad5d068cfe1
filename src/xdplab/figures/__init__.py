"""Figures: a view of the trials makes a marks table, and the marks table is drawn."""

from xdplab.later import former

__getattr__ = former(
    __name__,
    {
        "CATALOGUE": "xdplab.figures.catalogue",
        "COLUMNS": "xdplab.figures.marks",
        "STYLES": "xdplab.figures.styles",
        "Drawn": "xdplab.figures.album",
        "Look": "xdplab.figures.marks",
        "Panels": "xdplab.figures.draw",
        "View": "xdplab.figures.marks",
        "compare_view": "xdplab.figures.comparing",
        "draw_all": "xdplab.figures.album",
        "figure": "xdplab.figures.catalogue",
        "FigureError": "xdplab.errors:FigureError",
        "NotApplicableError": "xdplab.errors:NotApplicableError",
        "marks_frame": "xdplab.figures.marks",
        "view": "xdplab.figures.catalogue",
    },
    functions=("draw", "save"),
)
