"""How a study answers: a table with typed columns, tables for readers with a title (Markdown, CSV), and sentences."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from math import isnan, nan
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from xdplab.absent import Absent
from xdplab.analysis.estimate import Estimate
from xdplab.analysis.values import three_digits
from xdplab.run.columns import NULLABLE, Column
from xdplab.run.disk import write_whole
from xdplab.run.frames import frame

NULL_REASONS: Column[Any] = Column(
    "null_reasons", "json", "state", "reasons of null columns, a JSON object: column to reason"
)


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


class Table(NamedTuple):
    """A table with its title; null cells are shown empty.

    ``values``: the same for a program, where ``frame`` is text for a person (mean ± half).
    """

    title: str
    frame: pd.DataFrame
    values: pd.DataFrame | None = None

    @property
    def above(self) -> list[str]:
        """The columns that stand above the rows which have them in common: a place, and the unit of its clock."""
        place = next((name for name in ("place", "where") if name in self.frame), None)
        if place is None:
            return []
        units = self.frame.groupby(place)["unit"].nunique().max() if "unit" in self.frame else 0
        return [place, *(["unit"] if units == 1 else [])]

    @property
    def numbers(self) -> pd.DataFrame:
        """The table for a program."""
        return self.frame if self.values is None else self.values


def write_tables(tables: Mapping[str, Table], folder: Path) -> list[Path]:
    """Write each as Markdown and CSV. Raises ResultsError."""
    paths = []
    for name, table in tables.items():
        csv = table.frame.to_csv(index=False, lineterminator="\n")
        paths.append(write_whole(folder / f"{name}.md", f"# {table.title}\n\n{markdown(table.frame)}".encode()))
        paths.append(write_whole(folder / f"{name}.csv", csv.encode()))
    return paths


def markdown(frame: pd.DataFrame) -> str:
    """Return a table as Markdown; null is an empty cell."""
    cells = [[str(name) for name in frame.columns]]
    cells += [["" if pd.isna(value) else str(value) for value in row] for row in frame.itertuples(index=False)]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells]
    return "\n".join([lines[0], "|" + " --- |" * len(frame.columns), *lines[1:]]) + "\n"


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
