"""A column of a table, declared once, and the row that a table's columns make of one source.

The parquet schema, the pages on columns and `null_reasons` come from the same declarations. A name ends in its unit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from xdplab.absent import Absent
from xdplab.text import unit_of

S = TypeVar("S")
Kind = Literal["id", "factor", "state", "count", "rate", "time", "share", "size", "verdict"]
Dtype = Literal["str", "int", "float", "bool", "json"]
NULLABLE = ("factor", "id")
"""Kinds of columns that may be null without a reason: a point need not have every factor."""


@dataclass(frozen=True)
class Column(Generic[S]):
    """A column: ``text`` is what a reader needs to know, ``kind`` groups columns of like meaning.

    ``value`` computes it from a source, and raises `Absent` with the reason where it does not exist. None for a column
    that something else than a source fills in; ``null`` is then the reason of rows without it.
    """

    name: str
    dtype: Dtype
    kind: Kind
    text: str
    value: Callable[[S], object] | None = None
    null: str | None = None

    @property
    def reason(self) -> str:
        """Why it is null where nothing says more. A null without a reason is an error of the column: ValueError."""
        if self.null is None:
            raise ValueError(f"{self.name} is null without a reason")
        return self.null

    @property
    def unit(self) -> str:
        return unit_of(self.name)


RATES = ("1/s", "bit/s", "1/ns")
TIMES = ("ns", "us", "ms", "s")


def by_name(*tables: Iterable[Column[S]]) -> dict[str, Column[S]]:
    """Return the columns of tables by their names."""
    return {column.name: column for table in tables for column in table}


class ColumnValues(Mapping[str, Any], Generic[S]):
    """The columns of one source, each computed once, when it is first asked for. An absent one is None.

    A column's ``value`` may ask the row of its source for others, in any order. A null without a reason is an error of
    the column: it raises ValueError.
    """

    def __init__(self, columns: Mapping[str, Column[S]], source: S) -> None:
        self._columns = columns
        self._source = source
        self._values: dict[str, object] = {}
        self._reasons: dict[str, str] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            self._values[name] = self._value(self._columns[name])
        return self._values[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self._columns else default

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def require(self, name: str) -> Any:
        """Return a column's value. Raises Absent with the column's own reason if it has none."""
        value = self[name]
        if value is None:
            raise Absent(self._reasons.get(name, f"{name} has no value"))
        return value

    def reason(self, name: str) -> str | None:
        """Return why a column is null; None if it has a value, or needs no reason."""
        return self._reasons.get(name) if self[name] is None else None

    @property
    def reasons(self) -> dict[str, str]:
        """Why each absent column is null, by its name."""
        return {name: why for name in self if (why := self.reason(name)) is not None}

    def _value(self, column: Column[S]) -> object:
        if column.value is None:
            raise KeyError(column.name)
        try:
            value = column.value(self._source)
        except Absent as absent:
            self._reasons[column.name] = str(absent)
            return None
        if value is None and column.kind not in NULLABLE:
            self._reasons[column.name] = column.reason
        return value


def version_of(*tables: Iterable[Column[Any]]) -> str:
    """Return a hash of the columns: tables with a different hash are derived again."""
    names = [f"{column.name} {column.dtype}" for table in tables for column in table]
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:8]
