"""What a study's table means, in one line made from its rows: of exact counts, or where an interval supports it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import pandas as pd

from xdplab.analysis.sentences import Estimate, estimate, one_of_places, sentence, span
from xdplab.studies.tables import Table

Make = Callable[[pd.DataFrame], pd.DataFrame]
Meaning = Callable[[pd.DataFrame, pd.DataFrame], str]
"""Says what a table means, of its rows as they are shown and of all rows of the run; nothing where it cannot."""


TableRows = Mapping[str, tuple[str, Make, Meaning]]
"""The tables of a study by name: the title, what makes one of the run's rows, and its line."""


def with_meanings(rows: TableRows, table: pd.DataFrame) -> dict[str, Table]:
    """Return each table with its line; one without content is empty. Of a run without rows there are none."""
    made = rows.items() if len(table) else ()
    return {name: table_with_line(title, make(table), meaning, table) for name, (title, make, meaning) in made}


def tables_by(rows: TableRows) -> Callable[[object, pd.DataFrame], dict[str, Table]]:
    """Return what makes the tables of a study, of its plan and its rows, where they are of the rows alone."""
    return lambda _plan, table: with_meanings(rows, table)


def table_with_line(title: str, shown: pd.DataFrame, meaning: Meaning, table: pd.DataFrame) -> Table:
    text = meaning(shown, table) if len(shown) else ""
    return Table(title, shown, None, sentence(text) if text else "")


def first_of(answers: Iterable[str]) -> str:
    """Return the first answer of a study's that is not empty, if there is one."""
    return next(filter(None, answers), "")


def by_place(rows: pd.DataFrame, begin: str, of: Callable[[pd.DataFrame], str], end: str = "") -> str:
    """Return what is to say of each place's rows, if anything, between ``begin`` and ``end``.

    Published rows are not this run's.
    """
    place = next((name for name in ("label", "place", "where") if name in rows), None)
    groups = [("", rows)] if place is None else rows.groupby(place, sort=False)
    parts = {str(label): text for label, each in groups if "published" not in str(label) and (text := of(each))}
    return " ".join(filter(None, (begin, one_of_places(parts)))) + end if parts else ""


def is_counted(shown: pd.DataFrame) -> bool:
    """Whether a place's numbers are of instructions, which a repetition gives again."""
    return "unit" not in shown or bool(shown["unit"].str.endswith(("instructions", "insns")).all())


def names_of(rows: pd.DataFrame, keys: Sequence[str]) -> pd.Series:
    """Name each row by the first of ``keys``, and by as many more as tell all rows apart."""
    first = (list(keys[:n]) for n in range(1, len(keys)))
    telling = next((some for some in first if not rows.duplicated(some).any()), list(keys))
    return rows[telling].astype("string").fillna("").agg(" ".join, axis=1).str.strip()


def ranging(value: str, names: Sequence[str], begin: str, end: str) -> Meaning:
    """Say the least and the most of a column of exact numbers with their `names_of`, between ``begin`` and ``end``."""

    def of(rows: pd.DataFrame) -> str:
        rows = rows.dropna(subset=[value])
        if rows.empty or not is_counted(rows):
            return ""
        values = map(estimate, rows[value].astype(float))
        return f"{span([*zip(names_of(rows, names), values, strict=True)], exact=True)} {end}"

    return lambda shown, _table: by_place(shown, begin, of)


def supported(values: Sequence[tuple[str, Estimate]], end: str) -> str:
    """Say the least and the most of values of which each has an interval; nothing of others."""
    return f"{span(values)} {end}" if values and all(one.is_known for _, one in values) else ""
