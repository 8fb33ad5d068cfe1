"""What the trials mean: verdicts, derived columns, intervals, fits, findings, comparison. Pure functions on tables."""
