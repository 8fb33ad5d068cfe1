"""Whether a rate was steady during the measurement: a step or a trend in the intervals of one window.

The intervals are described by one step (two means, split where least squares split them best) and by one line, and the
better of the two is taken. The rate was not steady where that changes it by more than CHANGE, and by more than SIGMAS
standard errors. Windows have 4 to some ten intervals: enough for one change point, not for the many that Barrett et al.
("Virtual machine warmup blows hot and cold", OOPSLA 2017) look for in thousands of iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import hypot, inf, sqrt
from statistics import fmean, linear_regression
from typing import Literal

LEAST_INTERVALS = 4
CHANGE = 0.1
SIGMAS = 5.0
SHORTEST = 0.5  # of the usual interval: a shorter rest at the window's end is ignored
ALONE = 0.5  # least change of a step after which, or before which, there is one interval: its noise is not known


@dataclass(frozen=True)
class Course:
    """The course of a rate: ``change`` is its change as a share of the mean, at or until ``at_s``; 0 if steady."""

    kind: Literal["steady", "step", "trend"]
    change: float
    at_s: float | None = None


def course(ends_s: Sequence[float], frames: Sequence[int], window_s: float) -> Course | None:
    """Return the course of a window's rate; None if it has fewer than LEAST_INTERVALS intervals.

    ``frames`` came in the intervals that end at ``ends_s``, counted from the window's start; the last interval may end
    after the window, whose frames then all came before its end.
    """
    edges = [0.0, *(min(end, window_s) for end in ends_s)]
    lengths = [after - before for before, after in pairwise(edges)]
    usual = sorted(lengths)[len(lengths) // 2] if lengths else 0.0
    while lengths and lengths[-1] <= SHORTEST * usual:
        lengths.pop()
    if len(lengths) < LEAST_INTERVALS:
        return None
    rates = [count / length for count, length in zip(frames, lengths, strict=False)]
    middles = [end - length / 2 for end, length in zip(edges[1:], lengths, strict=False)]
    if not any(rates):
        return Course("steady", 0.0)
    _, change, sigmas = min(_step(rates, edges), _trend(rates, middles, window_s), key=lambda fit: fit[0])
    return change if abs(change.change) > CHANGE and sigmas > SIGMAS else Course("steady", 0.0)


_Fit = tuple[float, Course, float]
"""The residual sum of squares, the description, and the change in standard errors."""


def _squares(values: Sequence[float]) -> float:
    """The sum of squared distances from the mean."""
    mean = fmean(values)
    return sum((value - mean) ** 2 for value in values)


def _step(rates: Sequence[float], begins_s: Sequence[float]) -> _Fit:
    mean, last = fmean(rates), len(rates) - 1

    def left_by(at: int) -> float:
        return _squares(rates[:at]) + _squares(rates[at:])

    def change_at(at: int) -> float:
        return fmean(rates[at:]) - fmean(rates[:at])

    alone = [at for at in (1, last) if abs(change_at(at)) > ALONE * mean]
    at = min([*range(2, last), *alone], key=left_by)
    left, change = left_by(at), change_at(at)
    noise = sqrt(left / (len(rates) - 2)) * hypot(1 / sqrt(at), 1 / sqrt(len(rates) - at))
    return left, Course("step", change / mean, begins_s[at]), abs(change) / noise if noise else inf


def _trend(rates: Sequence[float], middles: Sequence[float], window_s: float) -> _Fit:
    slope, start = linear_regression(middles, rates)
    left = sum((rate - (start + slope * middle)) ** 2 for rate, middle in zip(rates, middles, strict=True))
    noise = sqrt(left / (len(rates) - 2)) / sqrt(_squares(middles))
    return left, Course("trend", slope * window_s / fmean(rates), window_s), abs(slope) / noise if noise else inf
