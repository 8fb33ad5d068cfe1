"""Null-safe reading of one row: a row may come from a dict, from JSON or from a nullable pandas column."""

from __future__ import annotations

from collections.abc import Mapping

from xdplab.lazy import lazily

with lazily():  # who measures reads rows, too, but no table
    import pandas as pd

Row = Mapping[str, object]


def is_null(value: object) -> bool:
    """True for None, NaN and pd.NA: a value that was not measured."""
    if value is None or isinstance(value, (str, float, int)):  # most values are, and pandas takes ten times as long
        return value is None or value != value  # only NaN is not itself
    return bool(pd.isna(value))  # type: ignore[call-overload]


def number(row: Row, name: str) -> float | None:
    """Return the column as a float, or None if it was not measured."""
    value = row.get(name)
    if type(value) is float:  # most values; rules ask for a hundred of each trial
        return value if value == value else None  # only NaN is not itself
    return None if value is None or is_null(value) else float(value)  # type: ignore[arg-type]


def text(row: Row, name: str) -> str | None:
    """Return the column as text, or None if it has no value."""
    value = row.get(name)
    return value if type(value) is str else None if value is None or is_null(value) else str(value)


def records(trials: pd.DataFrame) -> list[Row]:
    """Return the rows as mappings, in order; DataFrame.to_dict takes five times as long, and columns one by one ten
    times where none has a type of pandas' own."""
    names = list(trials.columns)
    if not any(pd.api.types.is_extension_array_dtype(kind) for kind in set(trials.dtypes)):
        return [dict(zip(names, cells, strict=True)) for cells in trials.to_numpy(dtype=object).tolist()]
    return [
        dict(zip(names, cells, strict=True)) for cells in zip(*(trials[name].tolist() for name in names), strict=True)
    ]


def three_digits(value: float) -> str:
    """Return ``value`` to three significant digits for a sentence, a large one without an exponent: 2.42, 6,760."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:.3g}" if abs(rounded) < 1000 else f"{rounded:,.15g}"
