"""What every verb needs: one console, one way to fail, one way to print rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from xdplab.errors import PlanError, XdplabError

console = Console(emoji=False)
errors = Console(stderr=True, emoji=False)


def fail(error: XdplabError) -> int:
    """Print an expected failure on one line and return its exit code."""
    errors.print(f"xdplab: {' '.join(str(error).split())}", markup=False, highlight=False, soft_wrap=True, style="red")
    return error.exit_code


def show(rows: Sequence[Mapping[str, Any]], *, as_json: bool, title: str | None = None) -> None:
    """Print rows as a table for a person, or as JSON for a script."""
    if as_json:
        click.echo(json.dumps(list(rows), indent=1, default=str))
        return
    table = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for name in rows[0] if rows else ():
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*("" if value is None else escape(str(value)) for value in row.values()))
    console.print(table)


def parse_only(text: str | None) -> dict[str, str]:
    """Turn ``mode=native,queues=1`` into a mapping. Raises PlanError."""
    only: dict[str, str] = {}
    for part in filter(None, (text or "").split(",")):
        key, equals, value = part.partition("=")
        if not equals or not value:
            raise PlanError(f"--only: {part!r} is not FACTOR=VALUE", remedy="write --only mode=native,queues=1")
        only[key.strip()] = value.strip()
    return only
