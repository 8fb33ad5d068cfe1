"""What every verb needs: one console, one way to fail, one way to print rows."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from xdplab.errors import PlanError, XdplabError
from xdplab.run.listing import run_named

if TYPE_CHECKING:
    import pandas as pd

WIDE = 10_000
"""Columns of what is no terminal: a file or a pipe takes a line as it is."""


def _console(*, stderr: bool = False) -> Console:
    told = (sys.stderr if stderr else sys.stdout).isatty() or "COLUMNS" in os.environ
    return Console(stderr=stderr, emoji=False, width=None if told else WIDE)


console, errors = _console(), _console(stderr=True)


def fail(error: XdplabError) -> int:
    """Print an expected failure on one line and return its exit code."""
    errors.print(f"xdplab: {' '.join(str(error).split())}", markup=False, highlight=False, soft_wrap=True, style="red")
    return error.exit_code


def show(rows: Sequence[Mapping[str, Any]], *, as_json: bool, title: str | None = None) -> None:
    """Print rows as a table for a person, or as JSON for a script."""
    if as_json:
        click.echo(json.dumps(list(rows), indent=1, default=str))
        return
    table = _table(rows, title)
    shared = next(iter(rows[0])) if rows else ""
    values = list(dict.fromkeys(row[shared] for row in rows))
    if _fits(table) or len(values) > len(rows) // 2:
        console.print(table)
        return
    if title:
        console.print(title, style="italic", markup=False)
    for value in values:  # what many rows share becomes their heading, which leaves the others more room
        same = [row for row in rows if row[shared] == value]
        heading = _leading(same)
        console.print(", ".join(f"{n}: {same[0][n]}" for n in heading), style="bold", markup=False, highlight=False)
        console.print(_table([{name: row[name] for name in row if name not in heading} for row in same]))


class RunPath(click.ParamType[Path]):
    """A run directory, or the word ``latest``."""

    name = "run"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        return run_named(Path(value))


FORMAT = click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json", "markdown"]),
    default="table",
    show_default=True,
    help="For a person, or for a program.",
)


def show_frame(frame: pd.DataFrame, *, form: str = "table", title: str | None = None) -> None:
    """Print a data frame in one of the forms of FORMAT; null cells are empty, and null in JSON."""
    from xdplab.studies.tables import (
        markdown,
    )  # pandas takes half a second to load, which `lab status` need not wait for

    rows = [dict(zip(map(str, frame.columns), row, strict=True)) for row in frame.astype(object).values]
    there = frame.notna().rename(columns=str).to_dict("records")
    rows = [{k: v if filled[k] else None for k, v in row.items()} for row, filled in zip(rows, there, strict=True)]
    if form == "csv":
        click.echo(frame.to_csv(index=False, lineterminator="\n"), nl=False)
    elif form == "markdown":
        click.echo(markdown(frame))
    else:
        show(rows, as_json=form == "json", title=title)
        if form == "table":
            console.print()


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


def _fits(table: Table) -> bool:
    return Measurement.get(console, console.options.update(max_width=WIDE), table).maximum <= console.width


def parse_only(text: str | None) -> dict[str, str]:
    """Turn ``mode=native,queues=1`` into a mapping. Raises PlanError."""
    only: dict[str, str] = {}
    for part in filter(None, (text or "").split(",")):
        key, equals, value = part.partition("=")
        if not equals or not value:
            raise PlanError(f"--only: {part!r} is not FACTOR=VALUE", remedy="write --only mode=native,queues=1")
        only[key.strip()] = value.strip()
    return only
