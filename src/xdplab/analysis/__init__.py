"""What the trials mean: verdicts, derived columns, intervals, fits, findings, comparison. Pure functions on tables."""

MARGIN = 0.02
"""Ratios from 1/(1 + margin) to 1 + margin count as equivalent."""
QUEUED = "at maximum load, or above what is reached, a latency is that of a full queue"
OFFERED = "both carry all that is offered, so their rates are the sender's: more load would tell them apart"
