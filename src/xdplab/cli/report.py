"""`report`: one HTML file of a run, or of several, for a colleague."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from xdplab.analysis import MARGIN
from xdplab.cli.common import RunPath, tell
from xdplab.later import later
from xdplab.studies.catalogue import open_run

if TYPE_CHECKING:
    from xdplab.studies import report as pages
else:
    pages = later("xdplab.studies.report")


@click.command()
@click.argument("directories", metavar="RUN...", type=RunPath(), nargs=-1, required=True)
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="RUN/report.html by default.")
@click.option("--author", help="For the citation.")
@click.option("--license", "licence", help="Licence of the data, for example CC-BY-4.0.")
def report(directories: tuple[Path, ...], out: Path | None, author: str | None, licence: str | None) -> None:
    """Write one HTML file: question, answer, verdicts, findings, figures, tables, how to reproduce and cite it.

    It needs no network, and RUN may be of any kind. Two runs of one kind are compared.
    """
    runs = [open_run(directory) for directory in directories]
    for run in runs:
        run.check_raw()
    path = out or runs[0].directory.outputs / "report.html"
    written = pages.write_report(runs, path, author=author, licence=licence, margin=MARGIN)
    tell(f"report: {written} ({written.stat().st_size / 1e6:.1f} MB)")
