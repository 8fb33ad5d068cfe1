"""`kernels report`: what a packet costs in each kernel, measured, or of given runs and bundles."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from xdplab.cli.common import RunPath, print_json, show_frame, show_meaning, tell
from xdplab.cli.conduct import exit_code, measure_missing, study_run
from xdplab.cli.cost import settings_of
from xdplab.cli.lab import tested_kernels
from xdplab.cli.options import PATH, StudyRun, study_run_options
from xdplab.cli.plan import find_plan
from xdplab.cli.programs import ProgramSettings, user_program_options
from xdplab.cli.study import request_options, requested
from xdplab.errors import FigureError, PlanError
from xdplab.lazy import lazily
from xdplab.run.disk import write_whole
from xdplab.studies.cost.points import AF_XDP, MODES, CostRequest, smallest

with lazily():
    from xdplab.studies import bundle as bundles
    from xdplab.studies import kinds as openable
    from xdplab.studies.cost import kernel_page, kernels

DISAGREE = 1
STUDY = "cost"
_OF_RUNS = ("named", "write", "as_json")
"""Parameters that have a meaning for runs that are there."""


@click.command()
@click.argument("named", nargs=-1, metavar="[PROGRAM|RUN|BUNDLE]…")
@request_options(CostRequest)
@user_program_options
@click.option("--write", type=PATH, metavar="FILE.md", help="Write the page, with its figure FILE.svg.")
@study_run_options
def report(
    named: tuple[str, ...], programs: ProgramSettings, write: Path | None, choices: StudyRun, **chosen: Any
) -> int:
    """What does a packet cost in each kernel, and which kernel functions make the difference?

    Counts PROGRAM (as `xdplab cost` takes it; the gallery by default) in each kernel that is tested, or --kernel. A
    kernel that does not boot is a row with its reason. RUNs and BUNDLEs of `xdplab cost` or of this command are joined,
    and nothing is measured. Exit codes: 0; 1 a packet has no count, or runs disagree about a kernel and an object.
    """
    paths = [RunPath().convert(name, None, None) for name in named]
    if any(map(_is_counted, paths)):
        _require_only_runs(named, paths)
        return _show(paths, write, 0, choices)
    chosen |= {"programs": named or (str(find_plan("kernels")),), "settings": settings_of(programs)}
    chosen["kernels"] = chosen["kernels"] or tested_kernels()
    chosen["modes"] = chosen["modes"] or tuple(mode for mode in MODES if mode != AF_XDP)
    request = replace(requested(CostRequest, chosen, smallest), any_kernel=True)
    run, measure = study_run(openable.kind_named(STUDY), lambda: request, choices)
    measure_missing(run, measure, new=choices.resume is None, as_json=choices.as_json)
    return _show([run.directory.path], write, exit_code(run), choices)


def _is_counted(path: Path) -> bool:
    """Tell a bundle or a run of counts from what is to be counted, such as the programs of a run of traffic."""
    return path.suffix == ".zip" or (path.is_dir() and openable.open_run(path).kind.name == STUDY)


def _require_only_runs(named: tuple[str, ...], paths: list[Path]) -> None:
    if others := [name for name, path in zip(named, paths, strict=True) if not _is_counted(path)]:
        raise PlanError(f"{others[0]} is no run or bundle of counts", remedy="count it first: `xdplab cost`")
    context = click.get_current_context()
    given = [name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if options := [name for name in given if name not in _OF_RUNS]:
        option = next(one for one in context.command.params if one.name == options[0])
        raise PlanError(f"{option.opts[0]}: runs are shown as they were counted", remedy="leave it out")


def _show(paths: list[Path], write: Path | None, code: int, choices: StudyRun) -> int:
    """Print the report on runs, and write its page; return the exit code."""
    with ExitStack() as stack:
        made = kernels.report_of(stack.enter_context(bundles.opened(path)) for path in paths)
    for line in made.disagreements:
        tell(f"runs disagree: {line}", err=choices.as_json)
    files = [] if write is None else _written(made, write)
    if choices.as_json:
        print_json(made.to_json() | {"files": [str(file) for file in files]})
    else:
        for table in kernel_page.tables(made).values():
            show_frame(table.frame, title=table.title)
            show_meaning(table.meaning, ())
        for number, reason in enumerate(made.reasons, 1):
            tell(f"[{number}] {reason}")
        tell(kernel_page.CELLS)
    for file in files:
        tell(f"written: {file}", err=choices.as_json)
    return DISAGREE if made.disagreements else code


def _written(made: kernels.KernelReport, page: Path) -> list[Path]:
    """Write the page, and its figure beside it if there is one."""
    image, files = page.with_suffix(".svg"), []
    try:
        files.append(write_whole(image, kernel_page.figure(made)))
    except FigureError as error:
        tell(f"no figure: {error}", err=True)
    return [write_whole(page, kernel_page.page(made, image.name if files else None).encode()), *files]
