"""The latency that the generator printed is a running mean over frames: undone where its digits allow.

The sum behind the mean after n frames is n * mean; between two rows the frames took
(n * mean - n' * mean') / (n - n'). A frame of somebody else's carries no time stamp and shows as a jump of many
seconds, also below zero: the seconds that hold one say nothing, and the median leaves them out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xdplab.thesis.generator_log import COLUMNS, GeneratorRun

Array = NDArray[np.float64]
_PACKETS, _MEAN = COLUMNS.index("rx_packets"), COLUMNS.index("latency_mean_s")
DIGITS_SHARE = 0.05  # of the value that the printed digits may leave open
SETTLING_ROWS = 2


@dataclass(frozen=True)
class Latency:
    """Mean round trip in ns or None, and why there is none; ``how`` says what was done to the printed mean."""

    mean_ns: float | None
    how: str


def by_second_s(run: GeneratorRun) -> Array:
    """Return the mean latency of the frames of each row in seconds; NaN where the printed digits do not allow it."""
    rows = run.rows
    result = np.full(len(rows), np.nan)
    if run.latency_decimals is None or len(rows) < 2:
        return result
    packets, mean = rows[:, _PACKETS], rows[:, _MEAN]
    more = np.diff(packets)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.diff(packets * mean) / more
        open_s = 0.5 * 10.0**-run.latency_decimals * (packets[1:] + packets[:-1]) / more
        readable = (more > 0) & (open_s <= DIGITS_SHARE * np.abs(value))
    result[1:][readable] = value[readable]
    return result


def latency(run: GeneratorRun) -> Latency:
    """Return what the running mean says of the time a frame took."""
    if run.latency_decimals is None:
        return Latency(None, "the log has no latency column")
    means = run.rows[:, _MEAN]
    known = np.flatnonzero(~np.isnan(means))
    if not len(known):
        return Latency(None, "nothing was received: a mean over no frame")
    seconds = by_second_s(run)[SETTLING_ROWS:]
    seconds = seconds[~np.isnan(seconds)]
    typical = float(np.median(seconds)) if len(seconds) >= 3 else 0.0
    if typical > 0:
        return Latency(1e9 * typical, "running mean undone, median of the seconds")
    last = float(means[known[-1]])
    if last < 0:
        return Latency(None, "frames of others drove the running mean below zero, too few digits to take them out")
    if 0.5 * 10.0**-run.latency_decimals > DIGITS_SHARE * last:
        return Latency(None, f"printed with {run.latency_decimals} decimals of a second: too few digits")
    return Latency(1e9 * last, "running mean as printed")
