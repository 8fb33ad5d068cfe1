"""The summary of a run of XDP traffic: one row per point, with the interval over its repetitions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import repeat

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from xdplab.analysis.intervals import Spread
from xdplab.analysis.sentences import Estimate
from xdplab.analysis.series import levels, objects, only_text, places_by, reached, settled, with_integers
from xdplab.analysis.values import three_digits
from xdplab.plan.factors import FACTORS

_FIRST = ("program_name", "workload", "accesses", "mode", "imix", "frame_bytes", "queues", "load", "flows", "engine")
"""The mix stands before the frame size, which is null where frames have several; the engine stands before the settings
that only one of them has."""
VALUES = {
    "mpps": ("forwarded_pps", 1e6),
    "p50_us": ("latency_p50_ns", 1e3),
    "p99_us": ("latency_p99_ns", 1e3),
    "testrun_ns": ("testrun_raw_ns", 1.0),
}
"""Column of the summary: a trial's column and its divisor. Latency is shown only at paced loads that were reached."""


def is_latency(name: str) -> bool:
    return VALUES[name][0].startswith("latency")


ENDS = ("low", "high", "least", "most")
WORDS = {"mpps": "Mpps", "p50_us": "p50 µs", "p99_us": "p99 µs", "testrun_ns": "test run ns"}


def varying(trials: pd.DataFrame, shown: Sequence[str] = ()) -> list[str]:
    """Return the factors' columns that distinguish the points, the best known first, without redundant ones.

    ``shown``: columns that are shown in any case; only what distinguishes points beyond them is returned.
    """
    if len(trials) < 2:
        return []
    order = {name: rank for rank, name in enumerate(_FIRST)}
    here = (factor.column for factor in FACTORS if factor.column in trials)
    columns = [name for name in here if name in shown or only_text(trials[name]) is None]
    # A factor that some points lack follows another one: tx_stamp has a value with the engine afxdp only.
    lacking = set(trials[columns].columns[trials[columns].isna().any()])
    others = [column for column in columns if column not in shown]
    chosen, place, groups = list[str](), np.zeros(len(trials), dtype=np.int64), 1
    for name in [*shown, *sorted(others, key=lambda column: (order.get(column, len(order)), column in lacking))]:
        level, texts = levels(trials[name])
        apart, places = pd.factorize(place * len(texts) + level)
        if name in shown or len(places) > groups:
            chosen, place, groups = [*chosen, name], apart, len(places)
    return chosen[len(shown) :]


def points_summary(trials: pd.DataFrame, order: Sequence[str] = ()) -> pd.DataFrame:
    """Return one row per point and lab: varying factors, n, mean with 95 % interval of each value, limit, verdicts.

    Rows are ordered by the factors' values, or as the point ids in ``order``.

    Rates in Mpps, latencies in µs at paced loads that were reached, the test run in ns per packet. ``n`` are the valid
    trials, of which all values are.
    Means and intervals of latencies are geometric, as a latency is drawn: no end is below zero. ``least`` and ``most``
    are those of the repetitions.
    A value that some of them lack has its own, ``p99_us_n``.
    Equal labs that share a run measure the same points: a mean over them would be that of no lab.
    """
    last = that_count(trials)
    names = varying(last)
    if order:
        last = last.sort_values("point_id", kind="stable", key=lambda ids: ids.map(order.index))
    keys = ["point_id", *(name for name in ("lab",) if name in last)]
    if last.empty:
        return pd.DataFrame()
    of_point = [places for _, places in places_by(last.groupby(keys, sort=False, dropna=False).ngroup())]
    firsts = with_integers(last[names].iloc[[places[0] for places in of_point]])
    cells = map(_cells(last), of_point)
    table = pd.DataFrame([dict(firsts.iloc[row]) | values for row, values in enumerate(cells)])
    if not order:
        table = table.sort_values(names, kind="stable", key=_sortable, ignore_index=True)
    return table.dropna(axis=1, how="all")


def that_count(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the last attempt of each trial, with its lab, and with ``paced``: at a paced load that was reached."""
    last = settled(trials)
    if "lab" in last and last["lab"].isna().any():  # a trial that failed early does not know its lab
        last = last.assign(lab=last["lab"].fillna(last.groupby("point_id")["lab"].transform("first")))
    return last.assign(paced=paced(last))


def paced(trials: pd.DataFrame) -> pd.Series[bool]:
    """Return which trials have a latency of their load: at maximum load, or above what is reached, it is a queue's."""
    return trials["rate_requested_pps"].notna() & reached(trials)


def spread_of(name: str, values: Sequence[float] | NDArray[np.float64]) -> Spread | None:
    """Return the spread of one of `VALUES` over a point's valid trials, of a latency the paced ones; None without any.

    The unit is that of ``values``.
    """
    return Spread.of(values, "geometric" if is_latency(name) else "linear") if len(values) else None


def _sortable(column: pd.Series) -> pd.Series:
    numbers = pd.to_numeric(column, errors="coerce")
    return numbers if numbers.notna().sum() == column.notna().sum() else column.astype("string").fillna("")


def _cells(trials: pd.DataFrame) -> Callable[[NDArray[np.intp]], dict[str, object]]:
    """Return what sums up the trials at the places of one point: columns are read once for all points."""
    numbers = {column: trials[column].to_numpy(dtype=float, na_value=math.nan) for column, _ in VALUES.values()}
    verdicts, limits = (objects(trials[name]).to_numpy() for name in ("verdict", "limited_by"))
    believed, at_paced = verdicts == "valid", trials["paced"].to_numpy(dtype=bool)

    def of_point(places: NDArray[np.intp]) -> dict[str, object]:
        valid = places[believed[places]]
        cells: dict[str, object] = {"n": len(valid)}
        for name, (column, unit) in VALUES.items():
            values = numbers[column][valid[at_paced[valid]] if is_latency(name) else valid]
            measured = values[~np.isnan(values)] / unit
            spread = spread_of(name, measured)
            cells[name] = None if spread is None else spread.mean
            ends = (None,) * 4 if spread is None else (spread.low, spread.high, measured.min(), measured.max())
            cells |= dict(zip((f"{name}_{end}" for end in ENDS), ends, strict=True))
            cells[f"{name}_n"] = spread.n if spread is not None and spread.n < len(valid) else None
        cells["limited_by"] = ", ".join(filter(None, dict.fromkeys(limits[valid]))) or None
        counts = Counter(filter(None, verdicts[places])).most_common()
        cells["verdicts"] = ", ".join(f"{count} {verdict}" for verdict, count in counts)
        return cells

    return of_point


def for_people(table: pd.DataFrame) -> pd.DataFrame:
    """Return the summary with each value beside its interval: ``7.52 ± 0.31``, of a latency ``61 [42, 89]``; null
    cells stay null.

    An interval that tells nothing, as of two repetitions that differ, gives way to their range: ``61 (12 to 310)``.
    A value that not all valid trials have names its own n: ``3.78 ± 0.02 (n = 2)``.
    """
    shown = pd.DataFrame(index=table.index)
    for name in table.columns:
        value, _, part = name.rpartition("_")
        if value in VALUES and part in (*ENDS, "n"):
            continue
        if name in VALUES:
            parts = (name, *(f"{name}_{end}" for end in ENDS), f"{name}_n")
            columns = (table[part].astype(float) if part in table else repeat(math.nan) for part in parts)
            cells = [
                None if math.isnan(row[0]) else _cell(Estimate(*row), is_latency(name)) + _of(n)
                for *row, n in zip(*columns, strict=False)
            ]
            shown[WORDS[name]] = pd.Series(cells, table.index, dtype="object")
        else:
            shown[name.replace("_", " ")] = table[name]
    return shown


def _of(n: float) -> str:
    return "" if math.isnan(n) else f" (n = {n:g})"


def _cell(one: Estimate, is_latency: bool) -> str:
    """Return the mean with the digits that its interval supports; with three digits if there is no interval."""
    mean, half = three_digits(one.value), (one.high - one.low) / 2
    if math.isnan(half) or not half:
        return mean
    if not one.is_known:
        return f"{mean} ({three_digits(one.least)} to {three_digits(one.most)})"
    if is_latency:  # its ends lie at unequal distances from it
        return f"{mean} [{three_digits(one.low)}, {three_digits(one.high)}]"
    digits = max(0, 1 - math.floor(math.log10(half)))
    return f"{one.value:.{digits}f} ± {half:.{digits}f}"


def constant_words(trials: pd.DataFrame, names: Sequence[str]) -> str:
    """Return the factors that are the same at all points, of those that a reader wants first."""
    parts = [("lab", "lab"), ("mode", "mode"), ("frame_bytes", "frame"), ("queues", "queues"), ("engine", "engine")]
    parts += [("load", "load"), ("arrangement", "arrangement")]
    shown = trials[[name for name, _ in parts]]
    if "verdict" in trials and (measured := trials["verdict"].isin(["valid", "invalid"])).any():
        shown = shown[measured]
    alike = {name for name, _ in parts if shown[name].notna().all() and shown[name].nunique() == 1}
    rest = [(name, word) for name, word in parts if name not in names and name in alike]
    first = with_integers(shown.iloc[:1])
    return ", ".join(f"{word} {first[name].iloc[0]}" for name, word in rest)
