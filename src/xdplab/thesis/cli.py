"""`import thesis` and `regenerate`: raw logs as a run directory; published figures, printed and corrected."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from xdplab.cli.common import echo, tell
from xdplab.errors import FigureError
from xdplab.figures.styles import DEFAULT_FORMATS, FORMATS
from xdplab.later import later
from xdplab.thesis.language import LANGUAGES, Language

if TYPE_CHECKING:
    from xdplab.run import disk
    from xdplab.studies import kinds
    from xdplab.thesis import album as thesis_album
    from xdplab.thesis import conclusions, imported, published, repeated, views
else:
    disk, views = later("xdplab.run.disk"), later("xdplab.thesis.views")
    kinds = later("xdplab.studies.kinds")
    conclusions, repeated = later("xdplab.thesis.conclusions"), later("xdplab.thesis.repeated")
    thesis_album, imported = later("xdplab.thesis.album"), later("xdplab.thesis.imported")
    published = later("xdplab.thesis.published")

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
    made = imported.import_thesis(paths, out, name=name, progress=telling("logs read"))
    say([f"imported into {made.run.path}", *made.summary()])


@click.command()
@click.argument("paths", metavar="[PATH...]", nargs=-1, type=click.Path(path_type=Path))
@click.option("--from", "own", type=click.Path(path_type=Path), help="Draw the figures from your own run.")
@click.option("--as-published", "as_published", is_flag=True, help="Only as printed.")
@click.option("--corrected", "corrected", is_flag=True, help="Draw only the corrected figures.")
@click.option("--lang", type=click.Choice(LANGUAGES), default="en", show_default=True, help="Language of the figures.")
@click.option("--only", "name", metavar="FIGURE", help="One figure, by path or by its number in the thesis.")
@click.option(
    "--format",
    "formats",
    type=click.Choice(FORMATS),
    multiple=True,
    help="svg (the default), pdf or png; may be repeated.",
)
@click.option(
    "--check",
    "reference",
    type=click.Path(path_type=Path),
    help="Marks (CSV) to compare the as-published figures with.",
)
@click.option("--csv", "csv_only", is_flag=True, help="Write only the marks, and draw nothing.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("results/thesis-figures"), show_default=True)
def regenerate(
    paths: tuple[Path, ...], own: Path | None, as_published: bool, corrected: bool, lang: Language, name: str | None,
    formats: tuple[str, ...], csv_only: bool, reference: Path | None, out: Path,
) -> int:  # fmt: skip
    """Draw every published figure of the thesis again: as printed, and corrected.

    PATH is the raw data (a clone, a folder, archives) or a run directory that `import thesis` made. Each figure has
    its marks beside it as CSV.

    With --from RUN the figures are drawn from RUN's trials, with PATH's published marks in grey behind them, and the
    thesis' conclusions are checked against the published, the corrected and RUN's data. Without PATH, only RUN is used.
    """
    if own is not None:
        wanted = () if csv_only else formats or DEFAULT_FORMATS
        say(_repeated(own, paths, out, lang, wanted, [published.figure_named(name)] if name else None))
        return 0
    if not paths:
        raise click.UsageError("name the raw data, or a run with --from")
    run = imported.import_or_open(paths, out, telling("logs read"))
    which = [kind for kind, wanted in (("as-published", as_published), ("corrected", corrected)) if wanted]
    done = thesis_album.regenerate(
        imported.imported_trials(run),
        out,
        which=cast("list[thesis_album.Which]", which) or thesis_album.WHICH,
        language=lang,
        formats=() if csv_only else formats or DEFAULT_FORMATS,
        figures=[published.figure_named(name)] if name else None,
        progress=telling("figures drawn"),
    )
    marks = sum(made.marks for made in done)
    say([f"run {run.path}", f"{len(done)} figures with {marks} marks in {out}"])
    return _checked(out / "as-published.csv", reference) if reference else 0


def _repeated(
    own: Path, paths: tuple[Path, ...], out: Path, lang: Language, formats: tuple[str, ...],
    figures: list[published.Spec] | None,
) -> list[str]:  # fmt: skip
    """Draw the user's own run as the thesis' figures, and return the table of conclusions."""
    measured = kinds.open_run(own)
    if measured.kind.name != "traffic":
        raise FigureError(f"--from is for XDP traffic: {own} is of kind {measured.kind.name}")
    mine = repeated.own_run(own.name, measured.attempts())
    run = imported.import_or_open(paths, out, telling("logs read")) if paths else None
    source = views.source_of(imported.imported_trials(run)) if run else None
    told = telling("figures drawn")
    done = repeated.repeat(mine, out, published=source, language=lang, formats=formats, figures=figures, progress=told)
    readings = [conclusions.published_reading(source), conclusions.corrected_reading(source)] if source else []
    table = conclusions.conclusions([*readings, conclusions.own_reading(mine)])
    thesis_album.write_csv(out / "conclusions.csv", table)
    lines = conclusions.in_markdown(table)
    disk.write_whole(out / "conclusions.md", "\n".join([*lines, ""]).encode())
    marks = sum(made.marks for made in done)
    return [
        f"{len(done)} figures with {marks} marks of {own} in {out / repeated.WHICH}",
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
