"""Where a point's value changes from one run to the next.

An exact count needs no statistics: any difference is a change. A measured value changes at the split of its runs whose
means of the logarithms differ most, if not more than 3 % of random orders of the same runs have a split as great: a
permutation test holds for any distribution, and has looked at all splits, too. Values beyond three robust deviations
are drawn in, so that one slow run is no change. Runs of another machine begin a new series.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import exp, expm1, inf, sqrt
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from xdplab.analysis.change import ChangeOverTime
from xdplab.analysis.intervals import CONFIDENCE, t_quantile
from xdplab.analysis.values import is_null, records
from xdplab.history.machines import MACHINE

Numbers = NDArray[np.float64]
LEAST_RUNS = 3
"""Runs on each side of a change; fewer are not told from outliers."""
_ORDERS, _AT_ONCE, _SEED, _DEVIATIONS = 499, 50, 1, 3.0
_ALARMS = 0.03
"""The share of unchanged series in which a change is seen; of several simulations, none then has more than 5 %."""
_HASH, _DIGITS = re.compile(r"[0-9a-f]{12}"), 8
_AROUND = {"program_hash": "program", "kernel": "kernel", "commit": "xdplab", "window": "window"}


@dataclass(frozen=True)
class ChangesOverTime:
    """The changes, the largest share first; a line for each machine that begins a new series, and what else a reader
    has to know of the search."""

    changed: list[ChangeOverTime]
    machines: list[str]
    remarks: list[str]


def changes(rows: pd.DataFrame) -> ChangesOverTime:
    """Return what changes in the rows of many runs; those of a point and place follow each other by date."""
    dated = rows.assign(date=pd.to_datetime(rows["begun"], utc=True, format="ISO8601"))
    dated = dated[rows["value"].notna()].sort_values(["date", "path"], kind="stable", ignore_index=True)
    values, exact = dated["value"].to_numpy(dtype=float), dated["exact"].notna().to_numpy()
    machine = _numbered(dated, MACHINE)
    changed: list[ChangeOverTime] = []
    machines: dict[str, None] = {}
    for places in _split(_numbered(dated, ("metric", "point", "place"))):
        if exact[places].any():
            counts = records(dated.iloc[places[exact[places]]])  # nothing is said of one that holds to a range
            changed += [_exact(old, new) for old, new in pairwise(counts) if old["exact"] != new["exact"]]
            continue
        borders = np.flatnonzero(np.diff(machine[places])) + 1
        machines |= dict.fromkeys(_new_machine(*_rows(dated, places[end - 1], places[end])) for end in borders)
        for series in np.split(places, borders):
            positive = series[values[series] > 0]
            logs = np.log(values[positive])
            for begin, place, end in steps(logs):
                around = _rows(dated, *positive[[place - 1, place]])
                changed.append(_measured(*around, logs[begin:place], logs[place:end]))
    return ChangesOverTime(sorted(changed, key=_size, reverse=True), list(machines), _without_logarithm(dated, exact))


def _numbered(rows: pd.DataFrame, columns: Sequence[str]) -> NDArray[Any]:
    """Return the number of each row's cells among those of all rows; null is a cell as well."""
    numbers: NDArray[Any] = rows.groupby(list(columns), sort=False, dropna=False).ngroup().to_numpy()
    return numbers


def _split(numbers: NDArray[Any]) -> list[NDArray[np.int64]]:
    """Return where each number is."""
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1) if len(numbers) else []


def _rows(rows: pd.DataFrame, *places: int) -> list[Any]:
    return records(rows.iloc[list(places)])


def _without_logarithm(rows: pd.DataFrame, exact: NDArray[np.bool_]) -> list[str]:
    left_out = rows[(rows["value"] <= 0) & ~exact]
    if left_out.empty:
        return []
    first = left_out.iloc[0]
    which = f"{first['metric']} of {first['point']} in {first['run']}"
    more = f" and {len(left_out) - 1} more" if len(left_out) > 1 else ""
    return [f"{which}{more}: not above 0, so no change is searched in it"]


def _size(change: ChangeOverTime) -> float:
    """Return by what share a value changes; from 0 it changes without limit."""
    return inf if change.share is None else abs(change.share)


def steps(logs: Numbers, start: int = 0) -> Iterator[tuple[int, int, int]]:
    """Yield each step of a series: where its runs begin, where those after it begin, and where they end."""
    place = _step(logs)
    if place is None:
        return
    before, after = list(steps(logs[:place], start)), list(steps(logs[place:], start + place))
    yield from before
    begin = before[-1][1] if before else start
    yield begin, start + place, after[0][1] if after else start + len(logs)
    yield from after


def _step(logs: Numbers) -> int | None:
    """Return where the mean changes; None if random orders of the runs have a step as great in more than 3 %."""
    if len(logs) < 2 * LEAST_RUNS:
        return None
    middle = np.median(logs)
    reach = _DEVIATIONS * np.median(np.abs(logs - middle)) / 0.6745  # of the normal distribution's deviations
    drawn_in = np.clip(logs, middle - reach, middle + reach) if reach else logs
    (greatest,), (place,) = _greatest(drawn_in[None])
    most, as_great = int(_ALARMS * (1 + _ORDERS)), 1
    for orders in np.split(_orders(len(logs)), range(_AT_ONCE, _ORDERS, _AT_ONCE)):
        as_great += int((_greatest(drawn_in[orders])[0] >= greatest * (1 - 1e-9)).sum())
        if as_great > most:
            return None  # most series have no step, and show it soon
    return int(place)


@lru_cache(maxsize=16)  # most series of a folder have as many runs
def _orders(runs: int) -> NDArray[np.int32]:
    """Return the random orders of so many runs."""
    return np.random.default_rng(_SEED).permuted(np.tile(np.arange(runs, dtype=np.int32), (_ORDERS, 1)), axis=1)


def _greatest(series: Numbers) -> tuple[Numbers, NDArray[np.int64]]:
    """Return of each series (a row) the greatest sum of squares that a split explains, and where that split is."""
    runs = series.shape[1]
    sizes = np.arange(LEAST_RUNS, runs - LEAST_RUNS + 1)
    sums = np.cumsum(series - series.mean(axis=1, keepdims=True), axis=1)[:, LEAST_RUNS - 1 : runs - LEAST_RUNS]
    explained = sums**2 * (runs / (sizes * (runs - sizes)))
    return explained.max(axis=1), sizes[explained.argmax(axis=1)]


def _exact(old: Any, new: Any) -> ChangeOverTime:
    before, after = Fraction(old["exact"]), Fraction(new["exact"])
    share = float((after - before) / before) if before else None
    return _change(old, new, (float(before), float(after), share, None, None))


def _measured(old: Any, new: Any, *sides: Numbers) -> ChangeOverTime:
    """Return a step with Welch's interval of the difference of the means of the logarithms before and after it."""
    errors = [float(side.var(ddof=1)) / len(side) for side in sides]
    means = [float(side.mean()) for side in sides]
    difference, variance = means[1] - means[0], sum(errors)
    freedom = variance**2 / sum(e**2 / (len(s) - 1) for e, s in zip(errors, sides, strict=True)) if variance else 1.0
    half = t_quantile(0.5 + CONFIDENCE / 2, freedom) * sqrt(variance)
    ends = expm1(difference - half), expm1(difference + half)
    return _change(old, new, (exp(means[0]), exp(means[1]), expm1(difference), *ends))


def _change(
    old: Any, new: Any, values: tuple[float, float, float | None, float | None, float | None]
) -> ChangeOverTime:
    pairs = ((word, _text(old[name]), _text(new[name])) for name, word in _AROUND.items())
    otherwise = tuple(f"{word} {_short(a, b)} → {_short(b, a)}" for word, a, b in pairs if a != b)
    runs = old["run"], new["run"], old["path"], new["path"]
    place = None if is_null(new["place"]) else new["place"]
    return ChangeOverTime(new["metric"], new["point"], place, *values, *runs, otherwise)


def _machine(run: Any) -> tuple[str, ...]:
    return tuple(_text(run[name]) for name in MACHINE)


def _new_machine(old: Any, new: Any) -> str:
    pairs = zip(MACHINE, _machine(old), _machine(new), strict=True)
    what = ", ".join(f"{name} {before} → {after}" for name, before, after in pairs if before != after)
    return f"Another machine from {old['run']} to {new['run']}, where a new series begins: {what}"


def _short(text: str, other: str) -> str:
    """Return the beginning of a hash, if it tells it from the other."""
    is_hash = _HASH.match(text) and text[:_DIGITS] != other[:_DIGITS]
    return text[:_DIGITS] if is_hash else text


def _text(value: object) -> str:
    return "not known" if is_null(value) else str(value)
