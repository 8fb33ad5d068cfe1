"""Sentences of result, made from a study's data: what studies have in common."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan, nan

import pandas as pd

from xdplab.analysis.conclusions import Estimate
from xdplab.analysis.values import three_digits

MOST = 3
"""Sentences that answer a study; the tables have the rest."""


def estimate(value: float, low: float | None = None, high: float | None = None) -> Estimate:
    """Return a value with its 95 % interval, whose ends may be null."""
    ends = [nan if end is None or pd.isna(end) else float(end) for end in (low, high)]
    return Estimate(float(value), *ends)


def span(values: Mapping[str, Estimate], unit: str = "", *, exact: bool = False) -> str:
    """Return ``1.04 [1.02, 1.06] (matrix) to 2.13 (primes)``: the least and the most with their names; of one, it.

    A measurement without an interval is ``about`` so much; a count that a repetition gives again is ``exact``.
    """
    if len(values) == 1:
        return _text(next(iter(values.values())), unit, exact)
    (first, least), *_, (last, most) = sorted(values.items(), key=lambda item: item[1].value)
    if three_digits(least.value) == three_digits(most.value):
        return _text(most, unit, exact)
    return f"{_text(least, '', exact)} ({first}) to {_text(most, unit, exact or not most.is_known)} ({last})"


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
