"""`runs`: the existing runs, their state, and the user's tags and notes on them.

`report`, `export`, `import`: one HTML page for a colleague, one file for another machine, and its way back.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from xdplab.analysis import MARGIN
from xdplab.cli.common import AS_JSON, FORMAT, RunPath, Verb, Verbs, print_json, show, show_frame, tell
from xdplab.cli.options import options_as
from xdplab.errors import PlanError
from xdplab.lazy import lazily
from xdplab.run.rundir import RunDirectory
from xdplab.studies import kept
from xdplab.studies.kinds import open_run
from xdplab.text import many, size

with lazily():
    import pandas as pd

    from xdplab.run import listing
    from xdplab.studies import bundle as bundles
    from xdplab.studies import report as pages


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
    if as_json and form not in ("table", "json"):
        raise PlanError(f"--json and --format {form} are two formats", remedy="choose one")
    listed = [run for run in kept.listed_runs(folder) if tagged is None or tagged in run.tags]
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


@click.command()
@click.argument("directories", metavar="RUN...", type=RunPath(), nargs=-1, required=True)
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="RUN/report.html by default.")
@click.option("--author", help="For the citation.")
@click.option("--license", "licence", help="Licence of the data, for example CC-BY-4.0.")
@AS_JSON
def report(
    directories: tuple[Path, ...], out: Path | None, author: str | None, licence: str | None, as_json: bool
) -> None:
    """Write one HTML file: question, answer, verdicts, findings, figures, tables, how to reproduce and cite it.

    It needs no network, and RUN may be of any kind. Two runs of one kind are compared.
    """
    runs = [open_run(directory) for directory in directories]
    for run in runs:
        run.check_raw()
    path = out or runs[0].directory.outputs / "report.html"
    written = pages.write_report(runs, path, author=author, licence=licence, margin=MARGIN)
    if as_json:
        names = [run.directory.name for run in runs]
        print_json({"runs": names, "file": str(written), "bytes": written.stat().st_size})
    else:
        tell(f"report: {written} ({size(written.stat().st_size)})")


@click.command()
@click.argument("directory", metavar="RUN", type=RunPath())
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FILE", help="By default RUN's name and .zip, or artifact.zip."
)
@click.option("--author", help="For the citation.")
@click.option("--license", "licence", help="Licence of the data, for example CC-BY-4.0.")
@click.option("--anonymous", is_flag=True, help="Remove names of hosts and users, addresses, keys and serials.")
@click.option("--artifact", is_flag=True, help="For reviewers: RUN's claims and one command in its README, ≤ 50 MB.")
@AS_JSON
def export(
    directory: Path,
    out: Path | None,
    author: str | None,
    licence: str | None,
    anonymous: bool,
    artifact: bool,
    as_json: bool,
) -> None:
    """Write RUN as one zip file (an RO-Crate with checksums) for `xdplab import bundle` on another machine.

    It contains everything that was recorded, including names and addresses of hosts, and the derived rows. With
    --anonymous, the same name becomes the same pseudonym in every file. Sources of programs and your own notes stay
    unchanged: read them before you pass the file on. `xdplab reproduce` takes the file, and so an --artifact.
    """
    run = open_run(directory)
    run.check_raw(anew=True)
    if anonymous:
        path = out or Path("artifact.zip" if artifact else "anonymous-run.zip")
        lines = bundles.export_anonymous(run, path, author=author, licence=licence, artifact=artifact).lines()
    else:
        path, lines = out or Path("artifact.zip" if artifact else f"{run.directory.name}.zip"), []
        bundles.export(run, path, author=author, licence=licence, artifact=artifact)
    if as_json:
        print_json({"runs": [run.directory.name], "file": str(path), "bytes": path.stat().st_size})
        return
    for line in (*lines, f"exported: {path} ({size(path.stat().st_size)})"):
        tell(line)


FORMATS = {
    "thesis": Verb("cli", "thesis", "Import the raw logs of the thesis.", package="xdplab.thesis"),
    "bundle": Verb("runs", "bundle", "Import a run that `xdplab export` wrote."),
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
