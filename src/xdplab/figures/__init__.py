"""Figures: a view of the trials makes a marks table, and the marks table is drawn."""

FORMATS = ("svg", "pdf", "png")
"""What a figure can be written as."""
DEFAULT_FORMATS = ("svg",)
"""Others on request: they cost time, and few readers need them."""
