"""`import` and `regenerate`: measurements of others, as a run directory; the published figures again, twice."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from xdplab.cli.common import tell
from xdplab.figures.styles import FORMATS
from xdplab.later import later
from xdplab.thesis.words import LANGUAGES, Language

if TYPE_CHECKING:
    from xdplab.thesis import album as thesis_album
    from xdplab.thesis import imported, published, published_check
else:
    thesis_album, imported = later("xdplab.thesis.album"), later("xdplab.thesis.imported")
    published, published_check = later("xdplab.thesis.published"), later("xdplab.thesis.published_check")

PATHS = click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))


def say(lines: Iterable[str]) -> None:
    """Print lines as they are."""
    for line in lines:
        tell(line)


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


@click.command()
@PATHS
@click.option("--as-published", "as_published", is_flag=True, help="Only as printed.")
@click.option("--corrected", "corrected", is_flag=True, help="Only as the data really say.")
@click.option("--lang", type=click.Choice(LANGUAGES), default="en", show_default=True, help="Words on the figures.")
@click.option("--only", "name", metavar="FIGURE", help="One figure: its path, or its number in the thesis.")
@click.option("--format", "formats", type=click.Choice(FORMATS), multiple=True, help="svg, pdf, png; all by default.")
@click.option("--check", "reference", type=click.Path(path_type=Path), help="Marks (CSV) to compare as-published with.")
@click.option("--csv", "csv_only", is_flag=True, help="Only the marks: nothing is drawn.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("results/thesis-figures"), show_default=True)
def regenerate(
    paths: tuple[Path, ...], as_published: bool, corrected: bool, lang: Language, name: str | None,
    formats: tuple[str, ...], csv_only: bool, reference: Path | None, out: Path,
) -> int:  # fmt: skip
    """Draw every published figure of the thesis again: as printed, and as the data really say.

    PATH is the raw data (a clone, a folder, archives) or a run directory that `import thesis` made. Each figure has
    its marks beside it as CSV.
    """
    run = imported.import_or_open(paths, out)
    which = [kind for kind, wanted in (("as-published", as_published), ("corrected", corrected)) if wanted]
    done = thesis_album.regenerate(
        imported.imported_trials(run),
        out,
        which=cast("list[thesis_album.Which]", which) or thesis_album.WHICH,
        language=lang,
        formats=() if csv_only else formats or FORMATS,
        figures=[published.figure_named(name)] if name else None,
    )
    marks = sum(made.marks for made in done)
    say([f"run {run.path}", f"{len(done)} figures with {marks} marks in {out}"])
    return _checked(out / "as-published.csv", reference) if reference else 0


def _checked(marks: Path, reference: Path) -> int:
    """Say how each figure compares with its reference; 1 where one differs."""
    checks = published_check.check_marks(published_check.read_marks(marks), published_check.read_marks(reference))
    say(
        f"{'equal' if c.equal else 'DIFFERS'} {c.file}: {c.marks} marks, worst {c.worst:.2e} of the axis, {c.off} off, "
        f"{c.absent} absent here, {c.extra} here only"
        for c in checks
    )
    return 0 if all(check.equal for check in checks) else 1
