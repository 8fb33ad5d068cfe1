"""`import` and `regenerate`: measurements of others, as a run directory; the published figures again, twice."""

from __future__ import annotations

from pathlib import Path

import click

from xdplab.cli.common import console
from xdplab.trial import imported

PATHS = click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))


def say(lines: list[str]) -> None:
    """Print lines as they are."""
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


@click.group(name="import")
def import_() -> None:
    """Turn measurements of others into a run directory."""


@import_.command()
@PATHS
@click.option("--name", default="thesis", show_default=True, help="Name of the run directory.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("results"), show_default=True, help="Its parent.")
def thesis(paths: tuple[Path, ...], name: str, out: Path) -> None:
    """Import the raw logs of the thesis: a clone of its repository, a folder of it, or archives of it."""
    made = imported.import_thesis(paths, out, name=name)
    say([f"imported into {made.run.path}", *made.summary()])
