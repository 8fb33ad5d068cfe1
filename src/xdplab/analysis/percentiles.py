"""Percentiles of latencies, where enough frames were stamped to tell them from the maximum."""

from __future__ import annotations

from xdplab.absent import Absent, required
from xdplab.formats.generator import Histogram
from xdplab.text import many

NO_STAMP = "no stamped frame came back"


def resolved_percentile(times: Histogram, percent: float) -> float:
    """Return a percentile in ns. Raises Absent for so few frames that it would be their maximum, whatever the
    percentile: with fewer stamped frames, a lower load would seem to have a shorter tail.
    """
    needed = round(100 / (100 - percent))
    if 0 < times.count < needed:
        raise Absent(f"{many(times.count, 'stamped frame')}, and this takes {needed:,}: `stamp: 1`, or a longer window")
    return float(required(times.percentile(percent), NO_STAMP))
