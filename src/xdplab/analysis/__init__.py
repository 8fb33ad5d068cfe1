"""What the trials mean: verdicts, derived columns, intervals, fits, findings, comparison. Pure functions on tables."""

MARGIN = 0.02
"""Ratios from 1/(1 + margin) to 1 + margin count as equivalent."""
