"""Tables: a study's table with typed columns, and tables for readers, with a title, as Markdown and CSV."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from xdplab.run.disk import write_whole


@dataclass(frozen=True)
class StudyColumn:
    """A column of a study's table: its pandas dtype, and its meaning with its unit.

    ``kind``, if a study gives it, is ``factor``, ``count``, ``time``, ``memory`` or ``verdict``.
    """

    name: str
    dtype: str
    text: str
    kind: str = ""


def typed(rows: Iterable[Mapping[str, Any]], columns: Sequence[StudyColumn]) -> pd.DataFrame:
    """Return rows as a table with these columns, in their order; missing values are null."""
    table = pd.DataFrame(list(rows), columns=[column.name for column in columns])
    return table.astype({column.name: column.dtype for column in columns})


class Table(NamedTuple):
    """A table with its title; null cells are shown empty.

    ``values``: the same for a program, where ``frame`` is text for a person (mean ± half).
    """

    title: str
    frame: pd.DataFrame
    values: pd.DataFrame | None = None

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
