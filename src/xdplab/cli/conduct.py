"""The part that all measuring commands share: start or resume a run of any kind, measure, show tables and figures."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from xdplab.cli.common import NOTHING_VALID, figure_facts, observer_of, print_json, results_facts, show_meaning, tell
from xdplab.errors import ResultsError, UnsupportedError
from xdplab.lazy import lazily
from xdplab.text import step

with lazily():
    from xdplab.cli import screen
    from xdplab.figures import outcome
    from xdplab.run import rundir, watching
    from xdplab.studies import kept, maker
    from xdplab.studies import kind as kinds
    from xdplab.studies import kinds as openable

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from xdplab.cli.options import StudyRun
    from xdplab.figures.outcome import Drawn
    from xdplab.run.progress import Observer
    from xdplab.run.state import RunState
    from xdplab.studies.kind import Kind, Run

D = TypeVar("D", bound="DataclassInstance")

MOST_ROWS = 100
"""Longer tables are not shown on a terminal; they are files of the run."""


def made_small(request: D, smallest: Callable[[D], D]) -> D:
    """Return a study's request with small values; options on the command line override these."""
    context = click.get_current_context()
    chosen = [
        field.name
        for field in fields(request)
        if field.name != "smallest" and context.get_parameter_source(field.name) is ParameterSource.COMMANDLINE
    ]
    return replace(smallest(request), **{name: getattr(request, name) for name in chosen})


Measure = Callable[["Observer"], "RunState"]


def conduct_study(kind: Kind[Any], request: Callable[[], Any], choices: StudyRun) -> tuple[Run[Any], int]:
    """Start the requested run of a study, or continue ``choices.resume``; return it with the exit code."""
    run, measure = study_run(kind, request, choices)
    return run, conduct(run, measure, new=choices.resume is None, figures=choices.figures, as_json=choices.as_json)


def study_run(kind: Kind[Any], request: Callable[[], Any], choices: StudyRun) -> tuple[Run[Any], Measure]:
    """Return the requested run of a study, or ``choices.resume``, and what measures it. Raises ResultsError."""
    old, where = choices.resume, kinds.Where(labs=choices.labs)
    if old is None:
        run = kind.start(request(), choices.out, choices.name)
    elif (run := openable.open_run(old)).kind.name != kind.name:
        raise ResultsError(f"{old} is not a run of study {kind.name}", remedy="its plan.yaml names its study")
    return run, lambda seen: run.measure(seen, where)


def conduct(run: Run[Any], measure: Measure, *, new: bool = True, figures: bool = True, as_json: bool = False) -> int:
    """Measure the missing trials of a run of any kind and show its results; return the exit code (`exit_code`)."""
    measure_missing(run, measure, new=new, as_json=as_json)
    if not as_json:
        show_results(run)
        if run.kind.planning:
            tell(f"tables: `xdplab show {run.directory.path}`")
    code = exit_code(run)
    drawn = _drawn(run) if figures and code != NOTHING_VALID else []
    for line in () if as_json else outcome.lines(drawn, run.directory.path):
        tell(line)
    if as_json:
        print_json(results_facts(run.directory) | {"figures": figure_facts(drawn)})
    else:
        tell(f"one page for a colleague: `xdplab report {run.directory.path}`")
    return code


def _drawn(run: Run[Any]) -> list[Drawn]:
    with step("drawing the figures"):
        made = maker.drawn(run.directory)
        return run.draw_figures() if made is None else made


def measure_missing(run: Run[Any], measure: Measure, *, new: bool, as_json: bool) -> None:
    """Measure the missing trials of a run. A ``new`` one is removed if an error ends it before its first trial."""
    with rundir.discarded_if_nothing_began(run.directory) if new else nullcontext():
        if not as_json:
            tell(f"{'searching' if run.kind.name == 'search' else 'measuring'} into {run.directory.path}")
        if run.state.owed:
            try:
                with _collecting():
                    measure(observer_of(as_json))
            except KeyboardInterrupt:
                tell(_interrupted(run), err=as_json)
                raise
        else:
            run.complete()


COLLECTIONS = (1_000, 0, 0)
"""Each third collection may be a full one, which alone empties Python's free lists: so one of 100 trials."""


@contextmanager
def _collecting() -> Iterator[None]:
    """Look for cycles of objects often, but not among those of the start. Each trial leaves 90 objects, 4 kB, in
    cycles, and 50 tuples, 3 kB, in the free lists: `tuple` of a generator takes none from there, and is freed to it."""
    before = gc.get_threshold()
    gc.freeze()
    gc.collect()  # none counts as old now: a full collection waits until a quarter as many as were old are new
    gc.set_threshold(*COLLECTIONS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def exit_code(run: Run[Any]) -> int:
    """Return 1 if a trial failed or is missing, the code of "unsupported" if every trial is unsupported, and
    `NOTHING_VALID` if no trial is valid."""
    state = run.state
    if state.failed or state.owed:
        return 1
    if any(ended.status != "unsupported" for ended in state.last.values()) or not state.last:
        return NOTHING_VALID if kept.is_in_vain(kept.answer_of(run.directory, run).verdicts) else 0
    tell("nothing was measured: no trial is supported here", err=True)
    return UnsupportedError.exit_code


def _interrupted(run: Run[Any]) -> str:
    state = run.state
    kept = f"{len(state.last)} of {state.total} trials are kept" if state.last else "no trial had finished"
    return f"interrupted; {kept}: `xdplab resume {run.directory.path}` continues"


def show_results(run: Run[Any]) -> None:
    """Print the tables and the answer; of a study, whose tables are many, the answer alone. How many trials were
    measured has been told as the last one ended."""
    answer = kept.answer_of(run.directory, run)
    if {"valid", "invalid"} <= answer.verdicts.keys():  # what was measured is not all valid
        tell(watching.progress_line(run.state, answer.verdicts))
    for table in () if answer.placed else answer.tables.values():
        if len(table["rows"]) > MOST_ROWS:
            tell(f"{table['title']}: {len(table['rows'])} rows, which `xdplab show {run.directory.path}` prints\n")
            continue
        screen.print_table(table["rows"], table["title"])
        tell("")
        show_meaning(table["meaning"], answer.summary)
    for line in answer.summary:
        if line != run.state.text:
            tell(line)
