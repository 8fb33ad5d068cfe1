"""`tables`, `figures`, `compare` and `audit`: they need no lab and no root, only a run directory."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xdplab.analysis import MARGIN
from xdplab.cli.common import (
    AS_JSON,
    FORMAT,
    SHARE,
    RunPath,
    figure_facts,
    print_json,
    results_facts,
    show_answer,
    show_frame,
    tell,
    tell_unfinished,
)
from xdplab.cli.common import show as show_rows
from xdplab.cli.compare_programs import Judging, Which, judging_options, show_programs, sides, which_options
from xdplab.cli.options import PATH, PICTURE_FORMATS, options_as
from xdplab.errors import FigureError, PlanError, ResultsError
from xdplab.figures.styles import STYLES, VENUES
from xdplab.lazy import lazily
from xdplab.run.gone import warn_gone
from xdplab.run.rundir import RunDirectory
from xdplab.studies import kept
from xdplab.studies.kinds import open_run

with lazily():
    from xdplab.figures import album, outcome
    from xdplab.run import frames
    from xdplab.studies import plain_audit
    from xdplab.studies.traffic import comparison as comparisons
    from xdplab.studies.traffic import kind as traffic_kind

if TYPE_CHECKING:
    from xdplab.studies.comparing import ComparedRuns
    from xdplab.studies.kind import Run

RUN = click.argument("directory", metavar="RUN", type=RunPath())


@click.command()
@RUN
def tables(directory: Path) -> None:
    """Derive RUN's tables from its journal and raw files, if they are absent, out of date, or made by older rules.

    The tables go into RUN, or into the cache directory if RUN is read-only. Rows whose raw files are gone stay.
    """
    run = open_run(directory)
    folder = run.keep_tables()
    run.check_raw(anew=True)
    tell(f"tables: {folder}")


@click.command()
@RUN
@click.option("--table", "name", help="One table of a study (default: all).")
@FORMAT
@AS_JSON
def show(directory: Path, name: str | None, form: str, as_json: bool) -> None:
    """Show the results of RUN, of any kind; for XDP traffic one row per point: mean ± interval, n, verdicts.

    With csv and --json, the ends of the intervals are columns of their own.
    """
    if as_json and (name is not None or form not in ("table", "json")):
        raise PlanError("--json prints every table", remedy="omit --table and --format")
    run = RunDirectory.open(directory)
    kept.progress_of(run)  # first: it checks each line of the journal, and what follows checks none again
    answer = kept.answer_of(run)
    if answer.needs_raw:
        warn_gone(run, kept.gone(run))
    if as_json:
        print_json(results_facts(run))
        return
    tell_unfinished(run)
    if name is not None and name not in answer.tables:
        raise ResultsError(f"{directory} has no table {name!r}", remedy=f"it has {', '.join(answer.tables) or 'none'}")
    chosen = {name: answer.tables[name]} if name is not None else answer.tables
    if form == "table":
        show_answer(replace(answer, tables=chosen, summary=answer.summary if name is None else []))
        return
    if form == "csv" and len(chosen) > 1:
        raise ResultsError(f"{form} is one table's: {directory} has {', '.join(chosen)}", remedy="choose with --table")
    of_run = open_run(directory).tables()
    for table in (of_run[one] for one in chosen):
        show_frame(table.numbers if form == "csv" else table.frame, form=form, title=table.title)


def _traffic(run: Run[Any]) -> Run[Any]:
    """Return the run. Raises PlanError if it is none of XDP traffic."""
    if run.kind.name != "traffic":
        raise PlanError(f"a baseline is of XDP traffic: {run.directory.path} is of kind {run.kind.name}")
    return run


def _where(context: click.Context, parameter: click.Parameter, text: str | None) -> dict[str, list[str]] | None:
    """Turn ``mode=native,mode=generic,load=max`` into the values of each factor. Raises FigureError."""
    values: dict[str, list[str]] = {}
    for part in (text or "").split(",") if text is not None else ():
        factor, equals, value = part.partition("=")
        if not (factor.strip() and equals and value):
            raise FigureError(f"--where: {part!r} is not FACTOR=VALUE", remedy="write --where load=max,mode=native")
        values.setdefault(factor.strip(), []).append(value.strip())
    return values or None


@dataclass(frozen=True)
class Drawing:
    """Which figures are drawn, what they show, how large they are, and their files: `xdplab.figures.factors.filed`."""

    names: tuple[str, ...]
    gallery: bool
    style: str | None
    width: str | None
    height: str | None
    caption: bool | None
    hue: str | None
    panel: str | None
    where: dict[str, list[str]] | None
    value: str | None
    formats: tuple[str, ...]
    out: Path | None
    why: bool

    @property
    def options(self) -> dict[str, Any]:
        """What is given, by the names that `Run.draw_figures` takes."""
        given = {name: value for name, value in vars(self).items() if value not in (None, (), False)}
        given |= {} if self.caption is None else {"caption": self.caption}
        return {name: value for name, value in given.items() if name not in ("names", "gallery")}


drawing_options = options_as(
    "drawing",
    Drawing,
    click.option(
        "--only", "names", multiple=True, metavar="FIGURE", help="This figure; repeatable (default: all that apply)."
    ),
    click.option("--style", type=click.Choice(sorted(STYLES)), help="Sizes of type and lines, by where it will stand."),
    click.option("--width", metavar="LENGTH|VENUE", help=f"3.3in, 84mm, 241pt, or {', '.join(VENUES)}."),
    click.option("--height", metavar="LENGTH", help="By default, what the panels need."),
    click.option("--hue", metavar="FACTOR", help="The factor that is shown by colours."),
    click.option("--panel", metavar="FACTOR,FACTOR", help="The factors of panels: one, or those of rows and columns."),
    click.option("--where", metavar="FACTOR=VALUE,…", callback=_where, help="Draw only these trials."),
    click.option("--value", metavar="COLUMN", help="Another column, such as forwarded_l2_bps."),
    click.option("--caption/--no-caption", default=None, help="On the picture (default: not in a paper's styles)."),
    PICTURE_FORMATS,
    click.option("--out", type=PATH, help="Folder (default: RUN/figures)."),
    click.option("--gallery", is_flag=True, help="Draw every style, and a page with them all (OUT/gallery.html)."),
    click.option("--why", is_flag=True, help="Draw nothing: say what is missing for the others."),
)


@click.command()
@RUN
@drawing_options
@click.option(
    "--explain", "mark", nargs=2, metavar="FIGURE MARK", help="Show the files and lines behind a mark (PANEL|HUE|X)."
)
@click.option("--data", multiple=True, type=PATH, help="With --explain: the folder of an import's logs.")
@AS_JSON
def figures(
    directory: Path, drawing: Drawing, mark: tuple[str, str] | None, data: tuple[Path, ...], as_json: bool
) -> None:
    """Draw RUN's figures as SVG, PDF or PNG, each with its caption and the table of its marks.

    RUN is of any kind: XDP traffic, a search, a study. --hue, --panel, --where, --value and --explain are for XDP
    traffic. A figure that --only names and that cannot be drawn is an error.
    """
    if mark is not None and (drawing.options or drawing.names or drawing.gallery):
        raise PlanError("--explain prints lines", remedy="omit --only and the options of drawing")
    if as_json and (mark is not None or drawing.gallery):
        raise PlanError("--json lists figures and their files", remedy="leave --explain and --gallery out, or --json")
    if drawing.gallery and (drawing.style or drawing.width or drawing.height):
        raise PlanError("--gallery draws every style", remedy="leave --style, --width and --height out, or --gallery")
    run = open_run(directory)
    if not as_json:
        tell_unfinished(run.directory)
    if mark is not None:
        for line in run.kind.pictures.explain(run, *mark, data):
            tell(line)
        return
    if drawing.gallery:
        page = album.write_gallery(
            run.directory.name,
            lambda style, folder: run.draw_figures(drawing.names, **drawing.options | {"style": style, "out": folder}),
            drawing.out or run.directory.figures,
        )
        tell(f"written: {page}")
        return
    drawn = run.draw_figures(drawing.names, **drawing.options)
    if as_json:
        print_json({"run": run.directory.name, "figures": figure_facts(drawn)})
    elif not drawn and (drawing.why or not run.figure_names):
        tell(_why_none(run))
    absent = [one for one in drawn if not one.files and (drawing.names or drawing.why)]
    for line in () if as_json else outcome.lines([one for one in drawn if one not in absent], directory):
        tell(line)
    if drawing.why:
        for one in () if as_json else absent:
            tell(outcome.line(one))
    elif absent:
        raise FigureError("; ".join(map(outcome.line, absent)))


def _why_none(run: Run[Any]) -> str:
    """Return why there is nothing to draw, or no figure that lacks anything."""
    if not run.figure_names:
        where = f"`xdplab show {run.directory.path}` has its tables"
        return f"no figure: a run of kind {run.kind.name} is drawn in none; {where}"
    if traffic_kind.is_race(run):
        return "a race has one point a side: figures over several points are of a plan, `xdplab run PLAN`"
    return "no figure lacks what it needs"


@dataclass(frozen=True)
class Versus:
    """What RUN is compared with, by which column, how near is equal, and whether a script reads the answer."""

    baseline: Path | None
    save: Path | None
    metric: str | None
    margin: float
    equal: tuple[Path, ...]
    as_json: bool


versus_options = options_as(
    "versus",
    Versus,
    click.option(
        "--baseline", type=PATH, metavar="FILE", help="Compare RUN with the baseline in FILE, instead of with OTHER."
    ),
    click.option("--save-baseline", "save", type=PATH, metavar="FILE", help="Write RUN's baseline into FILE and exit."),
    click.option(
        "--metric", help="Column to compare (default: forwarded_pps, pdr_pps, or a study's first column of numbers)."
    ),
    click.option(
        "--margin",
        default=MARGIN,
        show_default=True,
        type=SHARE,
        help="Two runs whose ratio differs from 1 by less than this share (0.02 or 2%) are equivalent.",
    ),
    click.option(
        "--equal",
        multiple=True,
        type=PATH,
        metavar="RUN",
        help="Runs that measured the same thing: they show how much equal runs differ. Give at least two.",
    ),
    AS_JSON,
)


@click.command()
@RUN
@click.argument("other", required=False, type=RunPath())
@which_options
@judging_options
@versus_options
def compare(directory: Path, other: Path | None, which: Which, judging: Judging, versus: Versus) -> None:
    """Did it change? Compare OTHER with RUN, point by point and overall: faster, slower, equivalent or undecided.

    Exit codes: 0 equivalent, 1 differs, 2 undecided, 64 the command line is wrong. With --baseline, RUN is compared
    with a file that --save-baseline wrote. Counts of `cost` are exact: no margin.

    --programs compares runs of study verifier, or CSVs that veristat wrote, per program; of one run alone its two
    kernels or two corpora. Exit codes: 0 within the thresholds, 1 beyond one or accepted no longer, 2 not judged.
    """
    if which.given or judging.given:
        if versus.baseline or versus.save or versus.metric or versus.equal:
            raise PlanError("--programs compares what --show names", remedy="omit --metric, --equal and baselines")
        sys.exit(show_programs(*sides(directory, other, which.kernels), judging, as_json=versus.as_json))
    if sum(given is not None for given in (other, versus.baseline, versus.save)) != 1:
        raise PlanError("compare RUN with one of OTHER, --baseline FILE and --save-baseline FILE")
    run, *same = (open_run(path) for path in (directory, *versus.equal))
    if other is not None:
        compared: ComparedRuns = run.compare(open_run(other), versus.metric, equal=same, margin=versus.margin)
    elif versus.save is not None:
        first, *others = (_traffic(one) for one in (run, *same))
        comparisons.save_baseline(first, versus.metric or run.metric, versus.save, equal=others)
        tell(f"written: {versus.save}")
        return
    elif versus.baseline is not None:
        if versus.metric or same:
            raise PlanError("--baseline takes its metric and its equal runs from the file", remedy="omit them")
        compared = comparisons.against_baseline(versus.baseline, _traffic(run), margin=versus.margin)
    if versus.as_json:
        print_json(compared.to_json())
    else:
        _show_comparison(compared)
    sys.exit(compared.exit_code)


def _show_comparison(compared: ComparedRuns) -> None:
    for line in compared.lines():
        tell(line)
    rows = frames.records(compared.readable)
    show_rows([{name: _rounded(name, value) for name, value in row.items()} for row in rows])


def _rounded(column: str, value: Any) -> Any:
    """Return a ratio with four decimals, a share as per cent, anything else as it is; `--json` has all digits."""
    if value is None or column not in ("ratio", "low", "high", "detectable"):
        return value
    return f"{value:.1%}" if column == "detectable" else f"{value:.4f}"


@click.command()
@RUN
@AS_JSON
def audit(directory: Path, as_json: bool) -> None:
    """List what in RUN is not trustworthy: each finding, where, how it was found; for XDP traffic, fits of t0 + c N.

    The findings are also written into RUN as audit.md and audit.json (into the cache directory if RUN is read-only).
    """
    run = open_run(directory)
    run.check_raw()
    findings = run.audit()
    written = plain_audit.write_audit(run.directory, findings)
    if as_json:
        print_json(findings.to_json())
        return
    tell(written[0].read_text())  # made once, for the file
    tell(f"written: {', '.join(map(str, written))}")
