"""Tables for readers with a title: Markdown, CSV."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from xdplab.run.disk import write_whole


class Table(NamedTuple):
    """A table with its title; null cells are shown empty.

    ``values``: the same for a program, where ``frame`` is text for a person (mean ± half). ``meaning``: what it means,
    in a line made from it.
    """

    title: str
    frame: pd.DataFrame
    values: pd.DataFrame | None = None
    meaning: str = ""

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
        text = "\n\n".join(filter(None, (f"# {table.title}", table.meaning, markdown(table.frame))))
        paths.append(write_whole(folder / f"{name}.md", text.encode()))
        paths.append(write_whole(folder / f"{name}.csv", csv.encode()))
    return paths


def markdown(frame: pd.DataFrame) -> str:
    """Return a table as Markdown; null is an empty cell."""
    cells = [[str(name) for name in frame.columns]]
    cells += [["" if pd.isna(value) else str(value) for value in row] for row in frame.itertuples(index=False)]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells]
    return "\n".join([lines[0], "|" + " --- |" * len(frame.columns), *lines[1:]]) + "\n"
