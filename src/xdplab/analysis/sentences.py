"""Sentences that answer a run, and a value in them: with its interval over points and repetitions."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan, sqrt

import numpy as np
import pandas as pd

from xdplab.analysis.intervals import CONFIDENCE, Spread, t_quantile
from xdplab.analysis.values import three_digits

MOST = 3
"""Sentences that answer a study; the tables have the rest."""
APART = 0.10
"""Share by which points must differ to be told as a range."""
WIDEST = 3.0
"""Largest quotient of an interval's ends: beyond it the repetitions are too few to tell one."""
Values = dict[Hashable, dict[float, float]]
"""A value of each point and repetition; the mean of each point is above 0."""


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval (NaN if there is none); ``least`` and ``most`` are those of the points, if these
    differ by more than their noise, else NaN."""

    value: float
    low: float
    high: float
    least: float = nan
    most: float = nan

    @classmethod
    def of(cls, values: Values) -> Estimate:
        """Return the geometric mean over points and repetitions; its interval is that of the repetitions' means.

        A cost that is 0 or less in a repetition has no logarithm: the mean is arithmetic then.
        """
        rows = pd.DataFrame(
            [(point, repetition, value) for point, by in values.items() for repetition, value in by.items()],
            columns=["point", "repetition", "value"],
        )
        geometric = bool(rows["value"].gt(0).all())
        rows["term"] = np.log(rows["value"]) if geometric else rows["value"]
        joint = Spread.of(rows.groupby("repetition")["term"].mean())
        of_points = rows.groupby("point", sort=False)["term"]
        terms = np.array([joint.mean, joint.low, joint.high, of_points.mean().min(), of_points.mean().max()])
        value, low, high, least, most = (np.exp(terms) if geometric else terms).tolist()
        if most <= least * (1 + APART) or _alike([Spread.of(group) for _, group in of_points]):
            least = most = nan
        return cls(value, low, high, least, most)

    @property
    def is_known(self) -> bool:
        return self.high <= WIDEST * self.low  # False for NaN, and for an interval with 0 in it

    def text(self, unit: str = "", scale: float = 1.0) -> str:
        """Return ``2.31 ns [2.2, 2.4]``; ``1.7 to 2.0 ns`` of points that differ; ``about 2 ns`` without interval."""
        if not isnan(self.least):  # points that were measured once may differ by chance
            about = "" if self.is_known else "about "
            return f"{about}{three_digits(self.least / scale)} to {three_digits(self.most / scale)}{unit}"
        value = f"{three_digits(self.value / scale)}{unit}"
        if not self.is_known:
            return f"about {value}"
        return f"{value} [{three_digits(self.low / scale)}, {three_digits(self.high / scale)}]"


def _alike(points: Sequence[Spread]) -> bool:
    """Tell whether the intervals of all points have a common value, by the noise of each and by that of all together;
    points with one repetition have none.

    By its own noise alone a point of two repetitions has an interval of 13 times that noise, and differs from none.
    """
    if any(isnan(point.low) for point in points):
        return False
    freedom = sum(point.n - 1 for point in points)
    noise = sqrt(sum((point.n - 1) * point.sd**2 for point in points) / freedom)
    half = t_quantile(0.5 + CONFIDENCE / 2, freedom) * noise
    pooled = [(point.mean - half / sqrt(point.n), point.mean + half / sqrt(point.n)) for point in points]
    return all(_meet(ends) for ends in ([(point.low, point.high) for point in points], pooled))


def _meet(intervals: Sequence[tuple[float, float]]) -> bool:
    return max(low for low, _ in intervals) <= min(high for _, high in intervals)


def estimate(value: float, low: float | None = None, high: float | None = None) -> Estimate:
    """Return a value with its 95 % interval, whose ends may be null."""
    ends = [nan if end is None or pd.isna(end) else float(end) for end in (low, high)]
    return Estimate(float(value), *ends)


def span(values: Sequence[tuple[str, Estimate]], unit: str = "", *, exact: bool = False) -> str:
    """Return ``1.04 [1.02, 1.06] (matrix) to 2.13 (primes)``: the least and the most with their names; of one, it.

    Two with the same name, such as repetitions, stand without it.

    A measurement without an interval is ``about`` so much; a count that a repetition gives again is ``exact``.
    """
    if len(values) == 1:
        return _text(values[0][1], unit, exact)
    (first, least), *_, (last, most) = sorted(values, key=lambda item: item[1].value)
    if three_digits(least.value) == three_digits(most.value):
        return _text(most, unit, exact)
    names = ("", "") if first == last else (f" ({first})", f" ({last})")
    return f"{_text(least, '', exact)}{names[0]} to {_text(most, unit, exact or not most.is_known)}{names[1]}"


def _text(one: Estimate, unit: str, exact: bool) -> str:
    if exact:
        return f"{three_digits(one.value)}{unit}"
    if isnan(one.low) or not one.is_known:
        return f"about {three_digits(one.value)}{unit}"
    return one.text(unit)


def percent(share: float) -> str:
    """Return a share with two digits: ``0.29 %``, ``80 %``."""
    return f"{share * 100:.2g} %" if share < 1 else f"{share * 100:.0f} %"


def short_place(label: str) -> str:
    """Return a place in a sentence: without what its clock is."""
    return label.removesuffix(", instructions counted").removesuffix(", time")


def one_of_places(parts: Mapping[str, str]) -> str:
    """Return ``this (host); that (vm)``: what is to say of each place, by its label; of one place without its name."""
    return "; ".join(text if len(parts) == 1 else f"{text} ({short_place(label)})" for label, text in parts.items())


def sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
