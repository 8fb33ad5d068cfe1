"""`tables`, `figures`, `compare` and `audit`: they need no lab and no root, only a run directory."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from xdplab.analysis.compare import MARGIN, POINT
from xdplab.cli.common import console, show
from xdplab.cli.conduct import draw as draw_study
from xdplab.figures import CATALOGUE, STYLES
from xdplab.run.rundir import RunDirectory
from xdplab.studies.catalogue import kind_of
from xdplab.studies.traffic import runs
from xdplab.studies.traffic.comparison import Comparison, compared
from xdplab.studies.traffic.explain import explain

RUN = click.argument("directory", metavar="RUN", type=click.Path(path_type=Path))


@click.command()
@RUN
def tables(directory: Path) -> None:
    """Derive RUN's tables from its journal and raw files, where they are absent, older than these, or of older rules.

    They go into RUN, or where it cannot be written into the cache directory. Rows whose raw files are gone stay.
    """
    run = RunDirectory.open(directory)
    kind = kind_of(run)
    folder = kind.open(directory).keep_tables() if kind else runs.keep_tables(run)
    runs.check_raw(run)
    console.print(f"tables: {folder}", markup=False, highlight=False, soft_wrap=True)


@click.command()
@RUN
@click.option("--only", "name", type=click.Choice(sorted(CATALOGUE)), help="One figure; all that apply by default.")
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

    A study's run takes --style only: all of its figures and tables are written into it.
    """
    run = RunDirectory.open(directory)
    if kind := kind_of(run):
        draw_study(kind.open(directory), style)
        return
    if mark is not None:
        for line in explain(run, runs.trials_table(run), *mark, data):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        return
    for line in runs.draw_figures(run, names=[name] if name else [], style=style, out=out):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


@click.command()
@RUN
@click.argument("other", type=click.Path(path_type=Path))
@click.option("--metric", default="forwarded_pps", show_default=True, help="Column to compare.")
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
def compare(directory: Path, other: Path, metric: str, margin: float, equal: tuple[Path, ...], as_json: bool) -> None:
    """Did it change? OTHER over RUN, by point and over all: faster, slower, equivalent or undecided.

    Ends with exit code 0 (equivalent), 1 (differs) or 2 (undecided).
    """
    old, new, *same = (RunDirectory.open(path) for path in (directory, other, *equal))
    found = compared(old, new, metric, equal=same, margin=margin)
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=1, default=str))
    else:
        _show_comparison(found)
    sys.exit(found.exit_code)


def _show_comparison(found: Comparison) -> None:
    for line in found.lines():
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    points = found.decision.points
    told = [name for name in points if name in TOLD or (name in POINT and points[name].nunique() > 1)]
    show(json.loads(points[told].to_json(orient="records")), as_json=False)


TOLD = ("n_a", "n_b", "ratio", "low", "high", "verdict", "detectable", "needed", "reason")


@click.command()
@RUN
@click.option("--json", "as_json", is_flag=True, help="For a script.")
def audit(directory: Path, as_json: bool) -> None:
    """What in RUN is not to be believed: each finding, where, how it was found; and the fits of t0 + c N.

    Also written into RUN, as audit.md and audit.json (into the cache directory, where RUN is read-only).
    """
    run = RunDirectory.open(directory)
    runs.check_raw(run)
    found = runs.full_audit(run)
    written = found.write(run)
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=1))
        return
    console.print(found.to_markdown(), markup=False, highlight=False, soft_wrap=True)
    console.print(f"written: {', '.join(map(str, written))}", soft_wrap=True, highlight=False)
