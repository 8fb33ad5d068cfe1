"""`run`, `resume` and `status`: measure a plan, go on after any end, say how far it is."""

from __future__ import annotations

from pathlib import Path

import click

from xdplab.cli.common import console, parse_only, show
from xdplab.labs import Lab
from xdplab.plan import load_plan
from xdplab.resources import room
from xdplab.runner import RunState, observer_for, read_state
from xdplab.runner.progress import ending
from xdplab.store import RunDirectory
from xdplab.trial import fleet, runs
from xdplab.trial.pdr import keep_pdr

PLAN_OR_NAME = click.argument("plan", metavar="PLAN", default="quick")


def find_plan(name: str) -> Path:
    """A plan file, or the name of one of the house's plans (``quick``, ``smoke``, ``thesis``)."""
    path = Path(name)
    own = room("plans") / f"{name}.yaml"
    return own if not path.exists() and own.exists() else path


@click.command()
@PLAN_OR_NAME
@click.option("--name", help="Name of the run directory; the plan's name by default.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("results"), show_default=True, help="Its parent.")
@click.option("--only", metavar="FACTOR=VALUE,…", help="Measure only these points, and their baselines.")
@click.option("--extend", type=click.Path(path_type=Path), metavar="RUN", help="Add the plan's points to an old run.")
@click.option("--figures/--no-figures", "draw", default=True, show_default=True, help="Draw the figures at the end.")
@click.option("--pdr-from", type=click.Path(path_type=Path), metavar="RUN", help="A search: what loads in % are of.")
@click.option("--labs", metavar="A,B,…", help="Share the blocks among equal labs, all at once.")
@click.option("--scheduler", metavar="ADDRESS", help="With --labs: a Dask scheduler whose workers have these labs.")
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
    chosen = load_plan(find_plan(plan))
    if name is not None:
        chosen = chosen.model_copy(update={"name": name})
    wanted, several = parse_only(only), [lab for lab in (labs or "").split(",") if lab]
    with runs.lab_for(several[0] if several else lab_name or chosen.lab) as lab:
        directory = runs.start(chosen, lab, out, only=wanted, extend=RunDirectory.open(extend) if extend else None)
        with runs.discarded_if_nothing_began(directory):
            if pdr_from is not None:
                keep_pdr(directory, pdr_from)
            if not several:
                return _measure(directory, lab, draw)
    console.print(f"measuring into {directory.path}", highlight=False, soft_wrap=True)
    return _ended(directory, fleet.execute_on(directory, several, observer_for(console), scheduler=scheduler), draw)


@click.command()
@click.argument("directory", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--figures/--no-figures", "draw", default=True, show_default=True, help="Draw the figures at the end.")
@click.pass_obj
def resume(lab_name: str | None, directory: Path, draw: bool) -> int:
    """Go on with RUN after Ctrl-C, a kill, or failed trials. A finished run stays as it is."""
    run_directory = RunDirectory.open(directory)
    if not read_state(run_directory).owed:
        console.print(f"{directory}: {ending(read_state(run_directory))}; nothing is owed", highlight=False)
        return 0
    with runs.lab_for(lab_name or runs.lab_of(run_directory)) as lab:
        return _measure(run_directory, lab, draw)


def _measure(directory: RunDirectory, lab: Lab, draw: bool) -> int:
    console.print(f"measuring into {directory.path}", highlight=False, soft_wrap=True)
    return _ended(directory, runs.execute(directory, lab, observer_for(console)), draw)


def _ended(directory: RunDirectory, state: RunState, draw: bool) -> int:
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
    counts = {s: sum(a.status == s for a in state.last.values()) for s in ("measured", "unsupported", "failed")}
    row = {
        "run": directory.name,
        "trials": len(state.planned),
        **counts,
        "owed": len(state.owed),
        "state": state.ended or "under way, or killed",
        "eta_s": None if state.eta_s is None else round(state.eta_s),
    }
    show([row], as_json=as_json)
