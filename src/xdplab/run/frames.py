"""Rows of a table's columns as a pandas data frame, and why a cell is null."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionArray

from xdplab.absent import Absent
from xdplab.run.columns import NULLABLE, Column

DTYPES = {"str": "string", "int": "Int64", "float": "Float64", "bool": "boolean", "json": "string"}
"""The pandas type of a column's ``dtype``; ``json`` is text."""
NULL_REASONS: Column[Any] = Column(
    "null_reasons", "json", "state", "reasons of null columns, a JSON object: column to reason"
)


def frame(rows: Sequence[Mapping[str, object]], table: Sequence[Column[Any]]) -> pd.DataFrame:
    """Return ``rows`` as a data frame with the table's columns and nullable types, in the table's order.

    A key that the table lacks raises KeyError: a column exists only once it is declared.
    """
    named = {key for row in rows for key in row}
    if unknown := named - {column.name for column in table}:
        raise KeyError(f"columns without a declaration: {sorted(unknown)}")
    # Columns without a value share one array: a table has a hundred of them.
    nulls = {dtype: pd.array([None] * len(rows), dtype=dtype) for dtype in dict.fromkeys(DTYPES.values())}  # type: ignore[call-overload]
    return pd.DataFrame(
        {
            c.name: _array([row.get(c.name) for row in rows], c) if c.name in named else nulls[DTYPES[c.dtype]]
            for c in table
        }
    )


def joined(pieces: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return tables of the same columns as one, the first of them if none has rows."""
    return pd.concat([piece for piece in pieces if not piece.empty] or pieces[:1], ignore_index=True)


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows for JSON: numbers with all their digits; null for what is null or not finite."""
    columns = {str(name): map(_plain, cells.tolist()) for name, cells in table.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    if value is pd.NA or value is pd.NaT or (isinstance(value, float) and not isfinite(value)):
        return None
    return value


def completed(table: pd.DataFrame, columns: Sequence[Column[Any]]) -> pd.DataFrame:
    """Return a table with those of ``columns`` that it lacks, as null."""
    missing = [column for column in columns if column.name not in table]
    return table.assign(**{c.name: pd.array([None] * len(table), dtype=DTYPES[c.dtype]) for c in missing})  # type: ignore[call-overload]


def _array(cells: list[object], column: Column[Any]) -> ExtensionArray:
    return texts(cells) if column.dtype == "json" else pd.array(cells, dtype=DTYPES[column.dtype])  # type: ignore[call-overload]


def texts(cells: Sequence[object]) -> ExtensionArray:
    """Return texts, None for null, as a nullable column, each text encoded once into a buffer of the exact size.

    Some texts have thousands of characters and stand in thousands of rows. Arrow's own builder expects texts of the
    mean length of the distinct ones, and doubles its buffer if the frequent ones are longer.
    """
    import pyarrow as pa

    codes, levels = pd.factorize(np.array(cells, dtype=object))
    encoded = [*(str(level).encode() for level in levels), b""]  # null has the code -1
    ends = np.zeros(len(codes) + 1, dtype=np.int64)
    np.cumsum(np.array([len(text) for text in encoded])[codes], out=ends[1:])
    valid = np.packbits(codes >= 0, bitorder="little")
    data = b"".join([encoded[code] for code in codes.tolist()])
    column = pa.LargeStringArray.from_buffers(len(codes), pa.py_buffer(ends), pa.py_buffer(data), pa.py_buffer(valid))
    return pd.arrays.ArrowStringArray(column)


def typed(rows: Iterable[Mapping[str, Any]], columns: Sequence[Column[Any]]) -> pd.DataFrame:
    """Return rows as a table with these columns, in their order, and `NULL_REASONS`.

    A cell may be `Absent` with its reason; one that a row lacks is null for its column's reason. Raises ValueError if
    that has none.
    """
    return frame([_completed(row, columns) for row in rows], (*columns, NULL_REASONS))


def _completed(row: Mapping[str, Any], columns: Sequence[Column[Any]]) -> dict[str, Any]:
    cells, reasons = {}, {}
    for column in columns:
        value = row.get(column.name)
        if isinstance(value, Absent) or (value is None and column.kind not in NULLABLE):
            reasons[column.name] = column.reason if value is None else str(value)
            value = None
        cells[column.name] = value
    return cells | {NULL_REASONS.name: json.dumps(reasons, sort_keys=True)}


def why_null(table: pd.DataFrame, column: str) -> pd.Series[Any]:
    """Return why a column is null, for each row; null where it has a value."""
    return table[NULL_REASONS.name].map(lambda text: json.loads(text).get(column)).astype("string")


def with_values(table: pd.DataFrame, column: str, values: pd.Series[Any]) -> pd.DataFrame:
    """Return the table with other values of a column, whose reasons to be null are gone where it has one now."""
    given = table[column].isna() & values.notna()
    reasons = table[NULL_REASONS.name].where(~given, table[NULL_REASONS.name].map(lambda text: _without(column, text)))
    return table.assign(**{column: values, NULL_REASONS.name: reasons.astype("string")})


def _without(column: str, text: str) -> str:
    return json.dumps({name: why for name, why in json.loads(text).items() if name != column}, sort_keys=True)
