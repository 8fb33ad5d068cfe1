"""`cost`: what a packet costs in instructions, by source line and kernel function; and the gate against a baseline."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xdplab.cli.common import format_option, print_json, results_facts, show_frame, show_meaning, tell
from xdplab.cli.conduct import exit_code, measure_missing, show_results, study_run
from xdplab.cli.options import PATH, StudyRun, options_as, study_run_options
from xdplab.cli.programs import ProgramSettings, user_program_options
from xdplab.cli.study import request_options, requested
from xdplab.errors import PlanError, ProgramError, UnsupportedError, XdplabError
from xdplab.lazy import lazily
from xdplab.studies.cost import trackers
from xdplab.studies.cost.points import KERNEL, MODES, CostRequest, kernel_of, smallest
from xdplab.text import step

with lazily():
    from xdplab.cli import ktap
    from xdplab.run import progress
    from xdplab.studies import kind as kinds
    from xdplab.studies import kinds as openable
    from xdplab.studies.cost import gate, gathering, stacks

if TYPE_CHECKING:
    from xdplab.studies.cost.gate import Case
    from xdplab.studies.kind import Run

DIFFERS = 1
EXIT_CODES = {"no more": 0, "more": DIFFERS, "not comparable": 2}
_COMMIT = "git:"


@dataclass(frozen=True)
class Baseline:
    """What a cost is compared with, what growth is let through, in instructions, and what is written of it."""

    against: str | None = None
    tolerance: float = 0.0
    write: Path | None = None
    stacks: Path | None = None


baseline_options = options_as(
    "baseline",
    Baseline,
    click.option("--against", metavar="FILE|RUN|git:COMMIT", help="Compare, and fail if a packet costs more."),
    click.option("--tolerance", type=float, default=0.0, show_default=True, help="Instructions that it may grow by."),
    click.option("--write", type=PATH, metavar="FILE", help="Write a baseline to compare with."),
    click.option("--stacks", type=PATH, metavar="DIR", help="Write call stacks for flame graphs and speedscope."),
)


@click.command()
@click.argument("words", nargs=-1, metavar="PROGRAM…")
@request_options(CostRequest)
@user_program_options
@baseline_options
@study_run_options
@format_option("table", "markdown", "json", "ktap", *trackers.TRACKERS)
def cost(
    words: tuple[str, ...], programs: ProgramSettings, choices: StudyRun, baseline: Baseline, form: str, **chosen: Any
) -> int:
    """What does a packet cost in PROGRAM (a C file, an object, a workload such as array:100, a plan, a run)?

    Instructions per packet, exactly, counted in a guest under emulation: no root, no KVM, no noise. With --against it
    is a gate. Exit codes: 0 it costs no more, 1 it costs more, 2 compiler, kernel or what became of the frames differ
    from the baseline's; others: nothing was compared (64: the command line).
    """
    chosen |= {"programs": words, "settings": settings_of(programs)}
    request = requested(CostRequest, chosen, smallest)
    old = None if baseline.against is None else _cases_in(baseline.against, request)
    run, measure = study_run(openable.kind_named("cost"), lambda: request, choices)
    is_text = choices.as_json or form == "markdown"  # for somebody else: nothing else is printed
    measure_missing(run, measure, new=choices.resume is None, as_json=is_text)
    code = exit_code(run)
    cases = [] if code else gate.cases_of(run.rows())
    compared = None if old is None or code else gate.Gate(gate.compared(old, cases), Fraction(baseline.tolerance))
    for line in [] if compared is None else compared.made_otherwise:
        tell(f"not comparable: {line}", err=is_text)
    if form in trackers.TRACKERS:
        print_json(trackers.TRACKERS[form](run.rows()))
    elif choices.as_json:
        against = None if compared is None else {"baseline": baseline.against, **compared.to_json()}
        answers = (_case(one, baseline) for one in ([] if compared is None else compared.differences))
        print_json(results_facts(run.directory) | {"figures": [], "against": against}, answers)
    else:
        if form == "table":
            show_results(run)
        if form == "table" or compared is None:
            _show_tables(run, form)
        _show_differences(compared, str(baseline.against), form)
    if code:
        return ProgramError.exit_code if code == DIFFERS else code
    if baseline.write is not None:
        gate.write_baseline(cases, baseline.write)
        tell(f"written: {baseline.write}", err=is_text)
    if baseline.stacks is not None:
        tell(f"written: {', '.join(map(str, stacks.write_stacks(run.plan, baseline.stacks)))}", err=is_text)
    if compared is None:
        return 0
    tell(compared.text(str(baseline.against)), err=choices.as_json)
    return EXIT_CODES[compared.verdict]


def _case(one: gate.CostDifference, baseline: Baseline) -> ktap.KtapCase:
    """Return the gate's answer on one packet as a test; one that cannot be compared is skipped."""
    name, (more, total) = f"{one.new.title} against {baseline.against}", one.growth
    if one.made_otherwise:
        return ktap.KtapCase(name, "skip", "; ".join(one.made_otherwise))
    grew = f"{float(more):+.3f} instructions per packet, {total}{one.most_changed(more)}" if more > 0 else ""
    return ktap.KtapCase(name, "not ok" if more > Fraction(baseline.tolerance) else "ok", grew)


def counted_difference(
    words: tuple[str, str], programs: ProgramSettings, mode: str, frame_bytes: int, labs: tuple[str, str]
) -> gate.CostDifference:
    """Count two programs in guests, and return what a packet of the second takes more or less.

    Each is counted in the kernel of its lab; where a lab has none that a guest boots, in `KERNEL`, and that is told.
    Raises PlanError for a mode in which a guest does not count, UnsupportedError for a program that has no one count.
    """
    if mode not in MODES:
        raise PlanError(f"--cost: a guest counts no packet in mode {mode}", remedy=f"it does in {', '.join(MODES)}")
    for name in dict.fromkeys(lab for lab in labs if kernel_of(lab) is None):
        tell(f"instructions are counted in Linux {KERNEL}: no guest boots the kernel of lab {name}", err=True)
    request = CostRequest(
        programs=words,
        kernels=tuple(dict.fromkeys(kernel_of(lab) or KERNEL for lab in labs)),
        modes=(mode,),
        frame_bytes=(frame_bytes,),
        settings=settings_of(programs),
    )
    with tempfile.TemporaryDirectory(prefix="xdplab-cost-") as results, step("counting instructions in a guest"):
        cases = _cases(request, Path(results))
    return gate.CostDifference(cases[0], cases[-1])  # the first in the first kernel, the second in the second


def settings_of(programs: ProgramSettings) -> str:
    """Return a request's settings of the user's programs."""
    return json.dumps({name: value for name, value in programs.of(Path()).items() if name != "file"})


def _cases(request: CostRequest, results: Path) -> list[Case]:
    """Count the programs of a request into a run. Raises UnsupportedError with the reason of one that has no cost."""
    run = openable.kind_named("cost").start(request, results)
    run.measure(progress.silent(), kinds.Where())
    for ended in run.state.last.values():
        if ended.status != "measured":
            raise UnsupportedError(str(ended.reason))
    return gate.cases_of(run.rows())


def _show_tables(run: Run[Any], form: str) -> None:
    """Print the tables of a run; of the lines of several packets, unless --top was given, how they are printed."""
    tables, summary = run.tables(), run.summary()
    of_lines = [] if run.plan.request.top else [name for name in tables if name.startswith("lines") and name != "lines"]
    for name, table in tables.items():
        if name not in of_lines:
            show_frame(table.frame, form=form, title=table.title)
            if form == "table":
                show_meaning(table.meaning, summary)
    if of_lines and form == "table":
        last = f" (to {of_lines[-1]})" * (len(of_lines) > 1)
        tell(f"source lines of each: `xdplab show {run.directory.path} --table {of_lines[0]}`{last}")


def _show_differences(compared: gate.Gate | None, baseline: str, form: str) -> None:
    """Print what differs from a baseline; of what does not compare nothing, for its numbers are of other things."""
    differences = [] if compared is None else compared.differences
    for one in (one for one in differences if not one.made_otherwise):
        before = "" if one.old.name == one.new.name else f"{one.old.name} of "
        tell(f"\n{one.new.title} against {before}{baseline}:" + "\n" * (form == "markdown"))
        if one.inexact:
            tell(f"not judged, because it holds to a range only: {', '.join(one.inexact)}")
        for frame in (one.totals, one.lines, one.functions):
            if form == "markdown" and "line" in frame:
                frame["line"] = "`" + frame["line"] + "`"  # or a * of C would make it slanted
            if len(frame):
                show_frame(frame, form=form, title="")


def _cases_in(against: str, request: CostRequest) -> list[Case]:
    if against.startswith(_COMMIT):
        return _cases_at(against.removeprefix(_COMMIT), request)
    path = Path(against)
    return gate.cases_of(openable.open_run(path).rows()) if path.is_dir() else gate.read_baseline(path)


def _cases_at(commit: str, request: CostRequest) -> list[Case]:
    """Count the programs as they were at a commit, with today's compiler and kernel. Raises PlanError."""
    paths = [Path(word).resolve() for word in request.programs if Path(word).is_file()]
    with (
        _checked_out(commit, paths[0].parent if paths else Path()) as (top, then),
        tempfile.TemporaryDirectory(prefix="xdplab-cost-") as results,
    ):
        for path in paths:
            if not path.is_relative_to(top) or not (then / path.relative_to(top)).is_file():
                raise PlanError(f"--against git:{commit}: the commit has no {path.name}")
        files = [str(then / Path(word).resolve().relative_to(top)) if Path(word).is_file() else word
                 for word in request.programs]  # fmt: skip
        settings = gathering.settings_at(request.settings, top, then)
        try:
            return _cases(replace(request, programs=tuple(files), settings=settings), Path(results))
        except XdplabError as error:  # else it would be that of today's program
            error.message = f"--against git:{commit}: {error.message}"
            raise


@contextmanager
def _checked_out(commit: str, inside: Path) -> Iterator[tuple[Path, Path]]:
    """Give the top of the repository around a folder, and a folder with its files at a commit. Raises PlanError."""
    with tempfile.TemporaryDirectory(prefix="xdplab-commit-") as folder:
        of_repository = ["git", "-C", str(inside), "rev-parse", "--show-toplevel"]
        top = subprocess.run(of_repository, capture_output=True, text=True, check=False)
        archive = subprocess.run(
            ["git", "-C", top.stdout.strip() or ".", "archive", commit], capture_output=True, check=False
        )
        if top.returncode or archive.returncode:
            words = (top.stderr or archive.stderr.decode(errors="replace")).strip().splitlines()[-1]
            raise PlanError(f"--against git:{commit}: {words}")
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        yield Path(top.stdout.strip()), Path(folder)
