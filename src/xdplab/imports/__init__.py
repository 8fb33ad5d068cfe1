"""Measurements of others, read into this house's tables: what they printed, never what they concluded."""

from xdplab.imports.thesis import Imported, read_thesis
from xdplab.imports.thesis_columns import TRIAL_COLUMNS

__all__ = ["TRIAL_COLUMNS", "Imported", "read_thesis"]
