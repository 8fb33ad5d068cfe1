"""The generator printed latency as a running mean over frames: this computes it back, with the rounding error.

The sum behind the mean after n frames is n * mean; between two rows the frames took
(n * mean - n' * mean') / (n - n'). A foreign frame carries no time stamp and shows as a jump of many
seconds, also below zero: such frames in the first second stay in every later running mean, so that no printed mean is
taken as it stands.

If many digits were printed, each second is undone, and the median leaves out the seconds that hold a foreign frame.
Where most seconds are far off their median, and not at two levels, there is no latency to name: foreign frames came all
the time, or the mean was not over the frames that were counted.
With few digits, a long stretch is undone. If frames took b seconds each and foreign frames added a seconds before the
stretch, row k printed b + a / n within half of its last digit: the least and the most b that all rows allow are the
interval (a line through vertical segments, solved exactly). If no such b exists, the latency changed: then the sums
at both ends of the run give the mean, provided that no second shows a jump.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xdplab.thesis.generator_log import COLUMNS, DIGITS_SHARE, GeneratorRun, between_rows

Array = NDArray[np.float64]
_PACKETS, _MEAN = COLUMNS.index("rx_packets"), COLUMNS.index("latency_mean_s")
SETTLING_ROWS = 2
LEAST_ROWS = 10
STRETCH_SHARE = 0.4  # of a run's rows: a shorter stretch does not speak for the run
JUMP_SHARE = 0.5  # of the mean: what a second may differ from it, digits aside, without a foreign frame
LEVEL_SHARE = 0.2  # of the seconds that either of two levels has
LEVELS_APART = 0.1  # of the lower level
LIKE_SHARE = 0.25  # of the median: how far a second may be off it and still have the same latency
DRIFT = 0.1  # of the median, from a run's first third to its last
ROUNDING = 1 + 1e-6  # half a digit, and the float's own


@dataclass(frozen=True)
class Latency:
    """Mean round trip in ns or None, and why there is none; ``how`` says what was done to the printed mean.

    ``open_ns``: by how much the printed digits leave the mean open to either side. ``levels_ns``: the two means of a
    run whose seconds have two levels.
    """

    mean_ns: float | None
    how: str
    open_ns: float | None = None
    levels_ns: tuple[float, float] | None = None


def latency(run: GeneratorRun) -> Latency:
    """Return what the running mean says about the time per frame."""
    if run.latency_decimals is None:
        return Latency(None, "the log has no latency column")
    packets, mean = run.rows[:, _PACKETS], run.rows[:, _MEAN]
    measured = ~(np.isnan(packets) | np.isnan(mean))
    if not measured.any():
        return Latency(None, "nothing was received: a mean over no frame")
    seconds = run.seconds_s[SETTLING_ROWS:]
    readable = seconds[~np.isnan(seconds)]
    if len(readable) >= max(3, len(seconds) / 2) and _median(readable) > 0:
        return _of_seconds(readable, run.half_digit_s)
    return _of_stretch(packets[measured], mean[measured], run)


def _of_seconds(seconds: Array, half_digit: float) -> Latency:
    typical = _median(seconds)
    levels = two_levels(seconds)
    how = "running mean undone, median of the seconds"
    if levels:
        how += f"; the seconds have two levels, {levels[0] * 1e3:.3g} and {levels[1] * 1e3:.3g} ms"
    elif np.mean(np.abs(seconds - typical) <= LIKE_SHARE * typical) < 0.5:
        return Latency(None, "the seconds have no latency in common: most are more than 25 % off their median")
    else:
        how += _drift(seconds, typical)
    open_ns = 1e9 * half_digit * 2 * len(seconds)
    return Latency(1e9 * typical, how, open_ns, (1e9 * levels[0], 1e9 * levels[1]) if levels else None)


def _median(values: Array) -> float:
    """np.median takes ten times as long for a minute's seconds."""
    ordered, middle = np.sort(values), len(values) // 2
    return float(ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) / 2)


def _drift(seconds: Array, typical: float) -> str:
    """Say from where to where the latency went, if it did not stay; else nothing."""
    third = -(-len(seconds) // 3)
    first, last = _median(seconds[:third]), _median(seconds[-(len(seconds) // 3) :])
    if abs(last - first) <= DRIFT * typical:
        return ""
    return f"; it went from {first * 1e3:.3g} to {last * 1e3:.3g} ms in the run"


def two_levels(seconds: Array) -> tuple[float, float] | None:
    """Return the means of two groups of seconds, each a fifth of them, with a gap wider than either group; else None.

    The gap is the widest between neighbours in order of size; a group's width leaves out its outermost tenth.
    """
    ordered = np.sort(seconds[seconds > 0])
    least = max(3, int(LEVEL_SHARE * len(ordered)))
    if len(ordered) < 2 * least:
        return None
    cut = least + int(np.argmax(np.diff(ordered[least - 1 : len(ordered) - least + 1])))
    low, high = ordered[:cut], ordered[cut:]
    gap = high[0] - low[-1]
    if gap <= LEVELS_APART * low.mean():  # in most runs: quantiles take long
        return None
    widths = [float(np.subtract(*np.quantile(part, (0.95, 0.05)))) for part in (low, high)]
    if gap <= max(widths):
        return None
    return float(low.mean()), float(high.mean())


def _of_stretch(packets: Array, mean: Array, run: GeneratorRun) -> Latency:
    """Undo the mean over the longest stretch that its digits allow."""
    growing = np.concatenate([[True], (packets[1:] - packets[:-1]) > 0]) & (packets > 0)
    n, m = packets[growing], mean[growing]
    few = f"printed with {run.latency_decimals} decimals of a second: too few digits"
    if len(n) < LEAST_ROWS:
        return Latency(None, f"{len(n)} rows with new frames: too few to undo the running mean")
    half_digit = run.half_digit_s * ROUNDING
    tried = [_one_latency(n, m, half_digit), _whole_run(n, m, half_digit)]
    for attempt in tried:
        if attempt is not None and 0 < attempt[1] <= DIGITS_SHARE * attempt[0]:
            value, open_s, how = attempt
            return Latency(1e9 * value, how, 1e9 * open_s)
    if m[-1] < 0:
        return Latency(None, f"frames of others drove the running mean below zero; {few} to take them out")
    return Latency(None, few)


def _one_latency(n: Array, m: Array, half_digit: float) -> tuple[float, float, str] | None:
    """Return (mean, half its interval, how) of the longest stretch in whose every row one latency fits, else None."""
    x, high, low = 1 / n, m + half_digit, m - half_digit
    apart = x[:, None] - x[None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        # The foreign seconds `a` that a pair of rows allows, at most and at least.
        most = np.where(apart > 0, (high[:, None] - low[None, :]) / apart, np.inf)
        least = np.where(apart > 0, (low[:, None] - high[None, :]) / apart, -np.inf)
    shortest = max(LEAST_ROWS, int(STRETCH_SHARE * len(n)))
    best: tuple[float, float, str] | None = None
    for begins_late in (True, False):
        turn = slice(None, None, -1 if begins_late else 1)
        # Later rows hold smaller x: a pair is above the diagonal, and in the turned tables below it.
        up = np.minimum.accumulate(most.min(axis=int(begins_late))[turn])
        down = np.maximum.accumulate(least.max(axis=int(begins_late))[turn])
        length = int((up >= down).argmin()) if not (up >= down).all() else len(n)
        if length < shortest:
            continue
        rows = slice(len(n) - length, None) if begins_late else slice(0, length)
        a_most, a_least = up[length - 1], down[length - 1]
        bottom = float((low[rows] - a_most * x[rows]).max())
        top = float((high[rows] - a_least * x[rows]).min())
        middle = ((bottom + top) / 2, (top - bottom) / 2)
        if best is None or middle[1] < best[1]:
            best = (
                *middle,
                f"running mean undone over {length} of {len(n)} rows: one latency fits every printed digit",
            )
    return best


def _whole_run(n: Array, m: Array, half_digit: float) -> tuple[float, float, str] | None:
    """Return (mean, what the digits leave open, how) from the sums in the first and the last row; None with a jump."""
    mean = float((n[-1] * m[-1] - n[0] * m[0]) / (n[-1] - n[0]))
    open_s = float(half_digit * (n[-1] + n[0]) / (n[-1] - n[0]))
    value, seconds_open = between_rows(n, m, half_digit)
    if np.any(np.abs(value - mean) > seconds_open + JUMP_SHARE * abs(mean)):
        return None
    return mean, open_s, "running mean undone from the first row to the last"
