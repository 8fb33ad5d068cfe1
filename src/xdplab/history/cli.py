"""`history`: the values of many runs over time."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xdplab.cli.common import AS_JSON, print_json, show, tell
from xdplab.errors import PlanError
from xdplab.lazy import lazily
from xdplab.text import size

with lazily():
    from xdplab.history import changes, shown, table
    from xdplab.history import page as pages
    from xdplab.run import disk, frames

if TYPE_CHECKING:
    import pandas as pd


def _where(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """Turn ``mode=native`` into a mapping. Raises PlanError."""
    chosen: dict[str, str] = {}
    for part in ",".join(given).split(",") if given else ():
        name, equals, value = part.partition("=")
        if not equals or not value or name in chosen:
            raise PlanError(f"--where: {part!r} is not FACTOR=VALUE", remedy="write --where mode=native,queues=1")
        chosen[name.strip()] = value.strip()
    return chosen


@click.command()
@click.argument("folders", metavar="DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--metric", "metrics", multiple=True, metavar="COLUMN", help="Only this metric; repeatable.")
@click.option("--where", multiple=True, callback=_where, metavar="FACTOR=VALUE,…", help="Only these points.")
@click.option(
    "--by",
    type=click.Choice(["date", "kernel", "commit", "program"]),
    default="date",
    show_default=True,
    help="What a point's rows are ordered by first.",
)
@click.option("--csv", "csv", type=click.Path(path_type=Path), metavar="FILE", help="Write the table as CSV.")
@click.option("--html", "page", type=click.Path(path_type=Path), metavar="FILE", help="Write a page with plots.")
@AS_JSON
def history(
    folders: tuple[Path, ...],
    metrics: tuple[str, ...],
    where: dict[str, str],
    by: Any,
    csv: Path | None,
    page: Path | None,
    as_json: bool,
) -> None:
    """Show every run and bundle below DIR as one table: each point's values over time.

    Each row has its interval, date, program, kernel, machine and xdplab's commit. The table is made from the runs, and
    kept in the user's cache: only runs that are new or have changed are read. What has changed is listed
    first.
    """
    made = table.history(*folders, metric=metrics, where=where, by=by)
    over_time = changes.changes(made.rows)
    remarks = [*made.remarks, *over_time.remarks]
    for remark in remarks:
        tell(remark, err=True)
    if csv is not None:
        disk.write_whole(csv, made.rows.to_csv(index=False, lineterminator="\n").encode())
        tell(f"{len(made.rows)} rows in {csv}", err=as_json)
    if page is not None:
        pages.write_page(made.rows, over_time, made.remarks, page)
        tell(f"{page}: {size(page.stat().st_size)}", err=as_json)
    if as_json:
        facts = {"rows": _facts(made.rows), "changes": [asdict(one) for one in over_time.changed]}
        print_json(facts | {"machines": over_time.machines, "remarks": remarks})
    elif csv is None and page is None:
        for line in (*(change.text for change in over_time.changed), *over_time.machines):
            tell(line)
        _show(made.rows, {(change.metric, change.point) for change in over_time.changed})


def _facts(rows: pd.DataFrame) -> list[dict[str, Any]]:
    objects = ("factors", "null_reasons")
    return [row | {name: json.loads(row[name]) for name in objects} for row in frames.records(rows)]


def _show(rows: pd.DataFrame, changed: Collection[tuple[str, str]]) -> None:
    for line in shown.everywhere(rows):
        tell(line)
    for title, series, meaning in shown.series(rows, changed):
        show(series, title)
        tell(f"{meaning}\n" if meaning else "")
