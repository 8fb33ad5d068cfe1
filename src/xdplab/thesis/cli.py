"""`import thesis` and `regenerate`: raw logs as a run directory; published figures, printed and corrected."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from xdplab.cli.common import echo, tell
from xdplab.cli.options import PICTURE_FORMATS
from xdplab.errors import FigureError
from xdplab.figures import DEFAULT_FORMATS
from xdplab.lazy import lazily
from xdplab.thesis.language import LANGUAGES

with lazily():
    from xdplab.run import disk
    from xdplab.studies import kinds
    from xdplab.thesis import album as thesis_album
    from xdplab.thesis import conclusions, imported, published, views

F = TypeVar("F", bound=Callable[..., object])
PATHS = click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))


def say(lines: Iterable[str]) -> None:
    """Print lines unchanged."""
    for line in lines:
        tell(line)


TELL_EVERY_S = 2.0


def telling(what: str) -> Callable[[int], None]:
    """Return a function that prints the progress on stderr every two seconds."""
    last = time.monotonic()

    def tell(count: int) -> None:
        nonlocal last
        if time.monotonic() - last >= TELL_EVERY_S:
            last = time.monotonic()
            echo(f"{count} {what}", err=True)

    return tell


@click.command()
@PATHS
@click.option("--name", default="thesis", show_default=True, help="Name of the run directory.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("results"), show_default=True, help="Its parent.")
def thesis(paths: tuple[Path, ...], name: str, out: Path) -> None:
    """Import the raw logs of the thesis: a clone of its repository, a folder of it, or archives of it."""
    import_ = imported.import_thesis(paths, out, name=name, progress=telling("logs read"))
    say([f"imported into {import_.run.path}", *import_.summary()])


_EDITION = (
    click.option(
        "--lang", type=click.Choice(LANGUAGES), default="en", show_default=True, help="Language of the figures."
    ),
    click.option("--only", "name", metavar="FIGURE", help="One figure, by path or by its number in the thesis."),
    PICTURE_FORMATS,
    click.option("--csv", "csv_only", is_flag=True, help="Write only the marks, and draw nothing."),
    click.option("--out", type=click.Path(path_type=Path), default=Path("results/thesis-figures"), show_default=True),
)


def edition_options(command: F) -> F:
    """Add the options of which figures are drawn, and into which files."""
    for option in reversed(_EDITION):
        command = option(command)
    return command


def _edition(options: Mapping[str, Any]) -> thesis_album.Edition:
    name = options["name"]
    figures = [published.figure_named(name)] if name else published.published_figures()
    formats = () if options["csv_only"] else options["formats"] or DEFAULT_FORMATS
    return thesis_album.Edition(options["out"], options["lang"], formats, figures)


@click.command()
@click.argument("paths", metavar="[PATH...]", nargs=-1, type=click.Path(path_type=Path))
@click.option("--from", "own_run", type=click.Path(path_type=Path), help="Draw the figures from your own run.")
@click.option("--as-published", "as_published", is_flag=True, help="Only as printed.")
@click.option("--corrected", "corrected", is_flag=True, help="Draw only the corrected figures.")
@click.option(
    "--check",
    "reference",
    type=click.Path(path_type=Path),
    help="Marks (CSV) to compare the as-published figures with.",
)
@edition_options
def regenerate(
    paths: tuple[Path, ...], own_run: Path | None, reference: Path | None, as_published: bool, **options: Any
) -> int:
    """Draw every published figure of the thesis again: as printed, and corrected.

    PATH is the raw data (a clone, a folder, archives) or a run directory that `import thesis` made. Each figure has
    its marks beside it as CSV.

    With --from RUN the figures are drawn from RUN's trials, with PATH's published marks in grey behind them, and the
    thesis' conclusions are checked against the published, the corrected and RUN's data. Without PATH, only RUN is used.
    """
    edition = _edition(options)
    if own_run is not None:
        say(_repeated(own_run, paths, edition))
        return 0
    if not paths:
        raise click.UsageError("name the raw data, or a run with --from")
    out = edition.folder
    run = imported.import_or_open(paths, out, telling("logs read"))
    chosen = {"as-published": as_published, "corrected": options["corrected"]}
    which = [kind for kind in thesis_album.WHICH if chosen[kind]] or thesis_album.WHICH
    drawn = thesis_album.regenerate(imported.imported_trials(run), edition, which, progress=telling("figures drawn"))
    marks = sum(figure.marks for figure in drawn)
    say([f"run {run.path}", f"{len(drawn)} figures with {marks} marks in {out}"])
    return _checked(out / "as-published.csv", reference) if reference else 0


def _repeated(folder: Path, paths: tuple[Path, ...], edition: thesis_album.Edition) -> list[str]:
    """Draw the user's folder run as the thesis' figures, and return the table of conclusions."""
    measured, out = kinds.open_run(folder), edition.folder
    if measured.kind.name != "traffic":
        raise FigureError(f"--from is for XDP traffic: {folder} is of kind {measured.kind.name}")
    mine = thesis_album.own_run(folder.name, measured.attempts())
    run = imported.import_or_open(paths, out, telling("logs read")) if paths else None
    source = views.source_of(imported.imported_trials(run)) if run else None
    drawn = thesis_album.repeat(mine, edition, published=source, progress=telling("figures drawn"))
    readings = [conclusions.published_reading(source), conclusions.corrected_reading(source)] if source else []
    table = conclusions.conclusions([*readings, conclusions.own_reading(mine)])
    thesis_album.write_csv(out / "conclusions.csv", table)
    lines = conclusions.in_markdown(table)
    disk.write_whole(out / "conclusions.md", "\n".join([*lines, ""]).encode())
    marks = sum(figure.marks for figure in drawn)
    return [
        f"{len(drawn)} figures with {marks} marks of {folder} in {out / thesis_album.REPEATED}",
        f"conclusions: {out / 'conclusions.md'}",
    ]


def _checked(marks: Path, reference: Path) -> int:
    """Say how each figure compares with its reference; return 1 if one differs, else 0."""
    checks = published.check_marks(published.read_marks(marks), published.read_marks(reference))
    say(
        f"{'equal' if c.equal else 'DIFFERS'} {c.file}: {c.marks} marks, worst {c.worst:.2e} of the axis, {c.off} off, "
        f"{c.absent} absent here, {c.extra} here only"
        for c in checks
    )
    return 0 if all(check.equal for check in checks) else 1
