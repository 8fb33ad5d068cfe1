"""`runs`: the existing runs, their state, and the user's tags and notes on them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from xdplab.cli.common import AS_JSON, FORMAT, RunPath, print_json, show, show_frame, tell
from xdplab.cli.options import options_as
from xdplab.errors import PlanError
from xdplab.lazy import lazy
from xdplab.run.rundir import RunDirectory

if TYPE_CHECKING:
    import pandas as pd

    from xdplab.run import listing
else:
    pd, listing = lazy("pandas"), lazy("xdplab.run.listing")


@dataclasses.dataclass(frozen=True)
class Marks:
    """A note and tags that a run is to have or to lose: the run, and the text."""

    note: tuple[Path, str] | None
    tag: tuple[Path, str] | None
    untag: tuple[Path, str] | None

    def write(self) -> bool:
        """Write them; return whether there were any."""
        if self.note is not None:
            listing.write_note(RunDirectory.open(self.note[0]), self.note[1])
            tell(f"noted: {self.note[0]}")
        for given, away in ((self.tag, False), (self.untag, True)):
            if given is not None:
                listing.write_tag(RunDirectory.open(given[0]), given[1], away=away)
                tell(f"tags of {given[0]}: {' '.join(listing.tags_of(given[0])) or 'none'}")
        return bool(self.note or self.tag or self.untag)


marks_options = options_as(
    "marks",
    Marks,
    click.option(
        "--note", nargs=2, metavar="RUN TEXT", type=(RunPath(), str), help="Store TEXT as a note of RUN; '' clears it."
    ),
    click.option(
        "--tag", nargs=2, metavar="RUN TAG", type=(RunPath(), str), help="Give RUN a tag, a word to find it by."
    ),
    click.option("--untag", nargs=2, metavar="RUN TAG", type=(RunPath(), str), help="Take a tag away from RUN."),
)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path("results"), required=False)
@marks_options
@click.option("--tagged", metavar="TAG", help="List only the runs that have this tag.")
@FORMAT
@AS_JSON
def runs(folder: Path, marks: Marks, tagged: str | None, form: str, as_json: bool) -> None:
    """List the runs in FOLDER (results), the latest first. Commands that take RUN accept `latest` for the first of
    them."""
    if marks.write():
        return
    if as_json and form != "table":
        raise PlanError(f"--json and --format {form} are two formats", remedy="choose one")
    listed = [run for run in listing.known_runs(folder) if tagged is None or tagged in run.tags]
    if as_json:
        print_json([dataclasses.asdict(run) for run in listed])
    elif form != "table":
        show_frame(pd.DataFrame([run.row for run in listed], columns=list(listing.ROW)), form=form)
    elif listed:
        show([run.row for run in listed])
    elif tagged is not None:
        tell(f"{folder} holds no run with the tag {tagged} (`xdplab runs` lists all)")
    else:
        tell(f"{folder} holds no run (`xdplab run smoke` makes one)")
