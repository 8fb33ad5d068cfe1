"""`import`: published measurements and other people's runs as a run directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from xdplab.cli.common import Verb, Verbs, tell
from xdplab.lazy import lazy
from xdplab.text import many

if TYPE_CHECKING:
    from xdplab.studies import bundle as bundles
else:
    bundles = lazy("xdplab.studies.bundle")

FORMATS = {
    "thesis": Verb("cli", "thesis", "Import the raw logs of the thesis.", package="xdplab.thesis"),
    "bundle": Verb("imports", "bundle", "Import a run that `xdplab export` wrote."),
}


@click.command(name="import", cls=Verbs, verbs=FORMATS)
def import_() -> None:
    """Turn published raw measurements into a run directory."""


@click.command()
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--name", help="Name of the run directory; the bundle's by default.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("results"), show_default=True, help="Its parent.")
def bundle(path: Path, name: str | None, out: Path) -> int:
    """Import a run that `xdplab export` wrote: every checksum is checked, its rows are derived again and compared.

    Ends with exit code 1 if the rows differ from the exported ones.
    """
    taken = bundles.import_bundle(path, out, name=name)
    equality = (
        "they are byte-equal to the exported ones" if taken.equal else f"they differ from the exported: {taken.why}"
    )
    files, rows = many(taken.files, "file"), many(taken.rows, "row")
    tell(f"imported into {taken.path}: {files}, every checksum is right; {rows} derived here: {equality}")
    return 0 if taken.equal else 1
