"""`tables`, `figures`, `compare` and `audit`: they need no lab and no root, only a run directory."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from xdplab.analysis.compare import MARGIN, POINT
from xdplab.cli.common import show
from xdplab.cli.conduct import tell
from xdplab.figures import STYLES
from xdplab.figures.factors import FigureError
from xdplab.studies.catalogue import open_run
from xdplab.studies.comparing import ComparedRuns
from xdplab.studies.every import write_audit
from xdplab.studies.traffic import runs
from xdplab.studies.traffic.explain import explain

RUN = click.argument("directory", metavar="RUN", type=click.Path(path_type=Path))


@click.command()
@RUN
def tables(directory: Path) -> None:
    """Derive RUN's tables from its journal and raw files, where they are absent, older than these, or of older rules.

    They go into RUN, or where it cannot be written into the cache directory. Rows whose raw files are gone stay.
    """
    run = open_run(directory)
    folder = run.keep_tables()
    run.check_raw()
    tell(f"tables: {folder}")


@click.command()
@RUN
@click.option("--only", "name", help="One figure; all that apply by default.")
@click.option("--style", type=click.Choice(sorted(STYLES)), default="paper-1col", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="Folder; RUN/figures by default.")
@click.option("--explain", "mark", nargs=2, metavar="FIGURE MARK", help="From a mark (PANEL|HUE|X) to files and lines.")
@click.option("--data", multiple=True, type=click.Path(path_type=Path), help="With --explain: an import's logs.")
def figures(
    directory: Path,
    name: str | None,
    style: str,
    out: Path | None,
    mark: tuple[str, str] | None,
    data: tuple[Path, ...],
) -> None:
    """Draw RUN's figures as SVG, PDF and PNG, each with the table of its marks.

    RUN is of any kind: XDP traffic, a search, a study. --explain is for XDP traffic.
    """
    run = open_run(directory)
    if mark is not None:
        if run.kind_name != "traffic":
            raise FigureError(f"--explain is for XDP traffic: {directory} is of kind {run.kind_name}")
        for line in explain(run.directory, runs.trials_table(run.directory), *mark, data):
            tell(line)
        return
    for line in run.draw_figures(names=[name] if name else [], style=style, out=out):
        tell(line)


@click.command()
@RUN
@click.argument("other", type=click.Path(path_type=Path))
@click.option("--metric", help="Column to compare; forwarded_pps, pdr_pps, or a study's first column of numbers.")
@click.option(
    "--margin",
    default=MARGIN,
    show_default=True,
    type=click.FloatRange(0, 1, min_open=True),
    help="Share within which two runs are the same.",
)
@click.option(
    "--equal",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="Give it twice or more: runs that measured the same as each other show how far equal runs lie apart.",
)
@click.option("--json", "as_json", is_flag=True, help="For a script.")
def compare(
    directory: Path, other: Path, metric: str | None, margin: float, equal: tuple[Path, ...], as_json: bool
) -> None:
    """Did it change? OTHER over RUN, of one kind, by point and over all: faster, slower, equivalent or undecided.

    Ends with exit code 0 (equivalent), 1 (differs) or 2 (undecided).
    """
    old, new, *same = (open_run(path) for path in (directory, other, *equal))
    found = old.compare(new, metric, equal=same, margin=margin)
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=1, default=str))
    else:
        _show_comparison(found)
    sys.exit(found.exit_code)


def _show_comparison(found: ComparedRuns) -> None:
    for line in found.lines():
        tell(line)
    points = found.decision.points
    told = [name for name in points if name in TOLD or (name in POINT and points[name].nunique() > 1)]
    show(json.loads(points[told].to_json(orient="records")), as_json=False)


TOLD = ("n_a", "n_b", "ratio", "low", "high", "verdict", "detectable", "needed", "reason")


@click.command()
@RUN
@click.option("--json", "as_json", is_flag=True, help="For a script.")
def audit(directory: Path, as_json: bool) -> None:
    """What in RUN is not to be believed: each finding, where, how it was found; for XDP traffic, the fits of t0 + c N.

    Also written into RUN, as audit.md and audit.json (into the cache directory, where RUN is read-only).
    """
    run = open_run(directory)
    run.check_raw()
    found = run.audit()
    written = write_audit(run.directory, found)
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=1))
        return
    tell(found.to_markdown())
    tell(f"written: {', '.join(map(str, written))}")
