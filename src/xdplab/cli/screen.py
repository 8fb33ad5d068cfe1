"""Tables for a terminal. Those that are too wide for it are made with rich, which takes as long to load as click."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from xdplab.lazy import lazily
from xdplab.text import colour_system, visible

with lazily():
    from rich import cells as rich_cells

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 10_000
"""Width of an output that is not a terminal: in a file or a pipe, lines are not broken."""


def width() -> int:
    """Return how wide a line may be: as the terminal or COLUMNS says, else as wide as it needs."""
    has_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    return shutil.get_terminal_size().columns if has_width else WIDE


def console(columns: int | None = None) -> Console:
    """Return the current standard output for rich; by default as wide as a line may be."""
    from rich.console import Console

    return Console(emoji=False, width=columns or width(), color_system=colour_system())


def print_table(rows: Sequence[Mapping[str, Any]], title: str | None = None) -> None:
    """Print rows as a table; if it is too wide, put the values that rows share into headings."""
    columns = _columns(rows)
    title = visible(title) if title else None
    if _breadth(columns) <= width() and all(cell.isprintable() for cells in columns.values() for cell in cells):
        _print_unbroken(columns, title)
        return
    out = console()
    shared = next(iter(rows[0])) if rows else ""
    values = list(dict.fromkeys(row[shared] for row in rows))
    if title:
        out.print(title, style="italic", markup=False)
    if _breadth(columns) <= out.width or len(values) > len(rows) // 2:
        _print_rows(out, rows)
        return
    for value in values:  # a value that many rows share becomes their heading, which leaves more room for the others
        same = [row for row in rows if row[shared] == value]
        heading = _leading(same)
        heading_text = visible(", ".join(f"{n}: {same[0][n]}" for n in heading))
        out.print(heading_text, style="bold", markup=False, highlight=False)
        left = [name for name in same[0] if name not in heading and any(row[name] is not None for row in same)]
        _print_rows(out, [{name: row[name] for name in left} for row in same])


def print_placed_table(
    rows: Sequence[Mapping[str, Any]], above: Sequence[str], title: str | None, broadest: int
) -> None:
    """Print rows of at most so many columns, after a heading for those that have the same values ``above``."""
    out = console(min(width(), broadest))
    if title:
        out.print(visible(title), style="italic", markup=False, highlight=False)
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(_shown(row[name]) for name in above), []).append(row)
    for heading, same in groups.items():
        if above:
            parts = [text for text in heading[1:] if f", {text}" not in heading[0]]
            out.print(", ".join(filter(None, [heading[0], *parts])), style="bold", markup=False, highlight=False)
        left = [name for name in same[0] if name not in above and any(row[name] is not None for row in same)]
        placed = [{name: row[name] for name in left} for row in same]
        columns = _columns(placed)
        if _breadth(columns) <= out.width:
            _print_unbroken(columns, None)
        else:
            _print_rows(out, placed)


def _leading(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the first column, and the following ones up to the first in which the rows differ."""
    first, *others = rows[0]
    alike = itertools.takewhile(lambda name: len({str(row[name]) for row in rows}) == 1, others[:-1])
    return [first, *(alike if len(rows) > 1 else ())]


GAP = 2
"""Blanks between two columns."""
WORD = 12
"""A word of up to this many characters, or of up to a quarter of the width, is never broken (numbers above all)."""


def _shown(value: object) -> str:
    return "" if value is None else visible(str(value))


def _cell_len(text: str) -> int:
    """Return how many cells of a terminal a text takes; most texts need no library for it."""
    return len(text) if text.isascii() and text.isprintable() else rich_cells.cell_len(text)


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    return {name: [visible(name), *(_shown(row[name]) for row in rows)] for name in (rows[0] if rows else ())}


def _widths(columns: Mapping[str, list[str]]) -> list[int]:
    return [max(map(_cell_len, cells)) for cells in columns.values()]


def _breadth(columns: Mapping[str, list[str]]) -> int:
    """Return how wide a table is if no cell is broken."""
    return sum(_widths(columns)) + GAP * (len(columns) - 1)


def _print_unbroken(columns: Mapping[str, list[str]], title: str | None) -> None:
    """Print a table that fits, as rich does, without loading it."""
    widths = _widths(columns)
    lines = [
        (" " * GAP).join(cell + " " * (wide - _cell_len(cell)) for cell, wide in zip(row, widths, strict=True))
        for row in zip(*columns.values(), strict=True)
    ]
    head, *others = lines or [""]
    coloured = _has_colours()
    if title:
        click.echo(click.style(title, italic=True), color=coloured)
    click.echo(click.style(head, bold=True), color=coloured)
    for line in others:
        click.echo(line)


def is_terminal() -> bool:
    """Say whether rich would take standard output for a terminal."""
    return sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))


def _has_colours() -> bool:
    """Say whether rich would write bold and italic here."""
    dumb = colour_system() is None or os.environ.get("TERM", "").lower() in ("dumb", "unknown")
    return not dumb and is_terminal()


def _print_rows(out: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a table that breaks only very long words; if it is too wide, print a paragraph per row."""
    from rich.markup import escape
    from rich.table import Table

    columns = _columns(rows)
    longest = [max(_cell_len(word) for cell in cells for word in [*cell.split(), ""]) for cells in columns.values()]
    widths = [min(length, max(WORD, out.width // 4)) for length in longest]
    spare = out.width - sum(widths) - GAP * (len(widths) - 1)
    if spare < 0:
        for row in rows:
            length = ", ".join(f"{_shown(name)} {_shown(value)}" for name, value in row.items() if value is not None)
            lines = textwrap.wrap(length, out.width, subsequent_indent="  ", break_on_hyphens=False)
            out.print("\n".join(lines), markup=False, highlight=False)
        return
    cells = [max(map(_cell_len, column)) for column in columns.values()]
    for _ in range(spare):  # the highest cell sets the height of its row
        highest = max(range(len(widths)), key=lambda place: cells[place] / widths[place], default=0)
        if not widths or cells[highest] <= widths[highest]:
            break
        widths[highest] += 1
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name, width in zip(columns, widths, strict=True):
        table.add_column(visible(name), width=width, overflow="fold")
    for row in rows:
        table.add_row(*(escape(_shown(value)) for value in row.values()))
    out.print(table)
