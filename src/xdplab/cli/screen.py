"""A terminal of its width: rows as a table, with rich, which a help text and a line of words need not wait for."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

WIDE = 10_000
"""Columns of what is no terminal: a file or a pipe takes a line as it is."""


def colour_system() -> Literal["auto"] | None:
    """Return None, which leaves bold and italic out as well, where NO_COLOR asks for it (no-color.org)."""
    return None if os.environ.get("NO_COLOR") else "auto"


def console() -> Console:
    """Return standard output as it is now: as wide as the terminal or COLUMNS say, else as wide as a line needs."""
    told = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(emoji=False, width=None if told else WIDE, color_system=colour_system())


def print_table(rows: Sequence[Mapping[str, Any]], title: str | None = None) -> None:
    """Print rows as a table, or, where it is too wide, under headings of what they share."""
    out, table = console(), _table(rows, title)
    shared = next(iter(rows[0])) if rows else ""
    values = list(dict.fromkeys(row[shared] for row in rows))
    if _fits(table, out) or len(values) > len(rows) // 2:
        out.print(table)
        return
    if title:
        out.print(title, style="italic", markup=False)
    for value in values:  # what many rows share becomes their heading, which leaves the others more room
        same = [row for row in rows if row[shared] == value]
        heading = _leading(same)
        out.print(", ".join(f"{n}: {same[0][n]}" for n in heading), style="bold", markup=False, highlight=False)
        out.print(_table([{name: row[name] for name in row if name not in heading} for row in same]))


def _leading(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the first column, and those behind it up to the first in which the rows differ."""
    first, *others = rows[0]
    alike = itertools.takewhile(lambda name: len({str(row[name]) for row in rows}) == 1, others[:-1])
    return [first, *(alike if len(rows) > 1 else ())]


def _table(rows: Sequence[Mapping[str, Any]], title: str | None = None) -> Table:
    table = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for name in rows[0] if rows else ():
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*("" if value is None else escape(str(value)) for value in row.values()))
    return table


def _fits(table: Table, out: Console) -> bool:
    return Measurement.get(out, out.options.update(max_width=WIDE), table).maximum <= out.width
