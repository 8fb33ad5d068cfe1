"""`run`, `resume` and `status`: measure a plan, go on after any end, say how far it is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from xdplab.cli.common import console, parse_only, show
from xdplab.cli.conduct import go_on
from xdplab.errors import LabError
from xdplab.labs import Lab
from xdplab.own import require_own
from xdplab.plan import Block, Plan, load_plan
from xdplab.resources import shipped
from xdplab.run.progress import Observer, ending, observer_for
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import RunState, read_state
from xdplab.studies.catalogue import kind_of
from xdplab.studies.traffic import runs
from xdplab.studies.traffic.pdr import keep_pdr

if TYPE_CHECKING:
    from xdplab.studies.traffic.fleet import JoinedLabs

LABS = click.option("--labs", metavar="A,B,…", help="Share the blocks among equal labs, all at once.")
SCHEDULER = click.option("--scheduler", metavar="ADDRESS", help="With --labs: a Dask scheduler that has workers there.")
PLAN_OR_NAME = click.argument("plan", metavar="PLAN", default="quick")


def own_plan(path: Path) -> Plan:
    """Read a plan to be measured. Raises PlanError, StrangersFileError where it names commands and is not one's own."""
    plan = load_plan(path)
    commands = [metric.name for metric in plan.metrics] + ["setup" for block in plan.blocks if _has_setup(block)]
    if commands:
        require_own(path, f"commands that run as root on the DUT ({', '.join(dict.fromkeys(commands))})")
    return plan


def _has_setup(block: Block) -> bool:
    return any(program.setup for program in block.points.program or [])


def find_plan(name: str) -> Path:
    """A plan file, or the name of a shipped plan (``quick``, ``smoke``, ``thesis``)."""
    path = Path(name)
    own = shipped("plans") / f"{name}.yaml"
    return own if not path.exists() and own.exists() else path


@click.command()
@PLAN_OR_NAME
@click.option("--name", help="Name of the run directory; the plan's name by default.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("results"), show_default=True, help="Its parent.")
@click.option("--only", metavar="FACTOR=VALUE,…", help="Measure only these points, and their baselines.")
@click.option("--extend", type=click.Path(path_type=Path), metavar="RUN", help="Add the plan's points to an old run.")
@click.option("--figures/--no-figures", "draw", default=True, show_default=True, help="Draw the figures at the end.")
@click.option("--pdr-from", type=click.Path(path_type=Path), metavar="RUN", help="A search: what loads in % are of.")
@LABS
@SCHEDULER
@click.pass_obj
def run(
    lab_name: str | None,
    plan: str,
    name: str | None,
    out: Path,
    only: str | None,
    extend: Path | None,
    draw: bool,
    pdr_from: Path | None,
    labs: str | None,
    scheduler: str | None,
) -> int:
    """Measure PLAN: a file, or one of quick (the default), smoke, thesis."""
    chosen = own_plan(find_plan(plan))
    if name is not None:
        chosen = chosen.model_copy(update={"name": name})
    wanted, old = parse_only(only), RunDirectory.open(extend) if extend else None
    if several := _several(labs, scheduler):
        with _joined(several, scheduler) as joined:
            directory = joined.start(chosen, out, only=wanted, extend=old)
            return _begin(directory, joined.execute, draw, pdr_from)
    with runs.lab_for(lab_name or chosen.lab) as lab:
        directory = runs.start(chosen, lab, out, only=wanted, extend=old)
        return _begin(directory, _in(lab), draw, pdr_from)


@click.command()
@click.argument("directory", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--figures/--no-figures", "draw", default=True, show_default=True, help="Draw the figures at the end.")
@LABS
@SCHEDULER
@click.pass_obj
def resume(lab_name: str | None, directory: Path, draw: bool, labs: str | None, scheduler: str | None) -> int:
    """Go on with RUN after Ctrl-C, a kill, or failed trials. A finished run stays as it is.

    It goes on in the lab, or the labs, where it was; --lab or --labs choose others. A study's places are its plan's.
    """
    run_directory = RunDirectory.open(directory)
    for part in (directory, run_directory.journal.path, directory / "plan.yaml"):
        require_own(part, "commands, programs and labs that are used")
    if kind := kind_of(run_directory):
        return go_on(kind.open(directory))
    if not read_state(run_directory).owed:
        done = runs.complete(run_directory)
        words = f"{directory}: {ending(read_state(run_directory))}; nothing is owed"
        console.print("; ".join([words, *done]), markup=False, highlight=False, soft_wrap=True)
        return 0
    several = _several(labs, scheduler)
    if not several and lab_name is None:
        several = runs.shared_by(run_directory)
    if several:
        with _joined(several, scheduler) as joined:
            return _measure(run_directory, joined.execute, draw)
    with runs.lab_for(lab_name or runs.lab_of(run_directory)) as lab:
        return _measure(run_directory, _in(lab), draw)


Execute = Callable[[RunDirectory, Observer], RunState]


def _several(labs: str | None, scheduler: str | None) -> tuple[str, ...]:
    names = tuple(lab for lab in (labs or "").split(",") if lab)
    if scheduler is not None and not names:
        raise LabError("--scheduler says where, --labs says which: both are needed", remedy="--labs a.yaml,b.yaml")
    return names


def _joined(labs: tuple[str, ...], scheduler: str | None) -> AbstractContextManager[JoinedLabs]:
    from xdplab.studies.traffic.fleet import joined

    return joined(labs, scheduler)


def _in(lab: Lab) -> Execute:
    return lambda directory, observer: runs.execute(directory, lab, observer)


def _begin(directory: RunDirectory, execute: Execute, draw: bool, pdr_from: Path | None) -> int:
    with runs.discarded_if_nothing_began(directory):
        if pdr_from is not None:
            keep_pdr(directory, pdr_from)
        return _measure(directory, execute, draw)


def _measure(directory: RunDirectory, execute: Execute, draw: bool) -> int:
    console.print(f"measuring into {directory.path}", highlight=False, soft_wrap=True)
    state = execute(directory, observer_for(console))
    for line in runs.summary(directory):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if draw:
        for line in runs.draw_figures(directory):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    return 1 if state.failed or state.owed else 0


@click.command()
@click.argument("directory", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="For a script.")
def status(directory: Path, as_json: bool) -> None:
    """How far RUN is, what failed, and how long the rest will take."""
    state = read_state(RunDirectory.open(directory))
    row = {
        "run": directory.name,
        "trials": state.total,
        **state.counts,
        "owed": len(state.owed),
        "state": state.ended or "under way, or killed",
        "eta_s": None if state.eta_s is None else round(state.eta_s),
    }
    show([row], as_json=as_json)
