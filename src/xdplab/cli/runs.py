"""`runs`: which runs there are, how they stand, and what was noted of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from xdplab.cli.common import RunPath, show, tell
from xdplab.later import later
from xdplab.run.rundir import RunDirectory

if TYPE_CHECKING:
    from xdplab.run import listing
else:
    listing = later("xdplab.run.listing")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path("results"), required=False)
@click.option("--note", nargs=2, metavar="RUN TEXT", type=(RunPath(), str), help="Write TEXT down for RUN; '' clears.")
@click.option("--json", "as_json", is_flag=True, help="For a script.")
def runs(folder: Path, note: tuple[Path, str] | None, as_json: bool) -> None:
    """List the runs in FOLDER (results), the last first. Where a command takes RUN, `latest` is the first of them."""
    if note is not None:
        listing.write_note(RunDirectory.open(note[0]), note[1])
        tell(f"noted: {note[0]}")
        return
    found = listing.known_runs(folder)
    if not found and not as_json:
        tell(f"{folder} holds no run (`xdplab run smoke` makes one)")
        return
    show([dataclasses.asdict(run) for run in found], as_json=as_json)
