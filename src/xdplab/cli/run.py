"""`run`, `resume` and `status`: measure a plan, continue after an interruption, show the progress."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xdplab.cli.common import RunPath, in_lab, parse_only, show, tell
from xdplab.cli.conduct import conduct, conduct_study, exit_code
from xdplab.cli.options import PATH, Sharing, StudyRun, options_as, sharing_options
from xdplab.cli.plan import PLAN_OR_NAME, find_plan, require_labs, tell_extent
from xdplab.errors import PlanError, ResultsError, XdplabError
from xdplab.lazy import lazy
from xdplab.run.disk import is_locked
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import RunState, is_beginning, read_state
from xdplab.studies import environment
from xdplab.studies.kinds import name_of, open_run, request_in

if TYPE_CHECKING:
    import xdplab.plan as plans
    from xdplab.plan import Plan, model
    from xdplab.run import progress
    from xdplab.run.progress import Observer
    from xdplab.run.state import AnyTrial, Attempt
    from xdplab.studies import pictures
    from xdplab.studies.kind import Run
    from xdplab.studies.search import kind as search_kind
    from xdplab.studies.traffic import fleet, run_files, runs
    from xdplab.studies.traffic import kind as traffic_kind
else:
    plans, run_files = lazy("xdplab.plan"), lazy("xdplab.studies.traffic.run_files")
    model, progress = lazy("xdplab.plan.model"), lazy("xdplab.run.progress")
    traffic_kind, pictures = lazy("xdplab.studies.traffic.kind"), lazy("xdplab.studies.pictures")
    search_kind = lazy("xdplab.studies.search.kind")
    fleet, runs = lazy("xdplab.studies.traffic.fleet"), lazy("xdplab.studies.traffic.runs")

FIRST, LEFT_S = "throughput", 30.0
"""The figure drawn after a run's first repetition, and the minimum remaining time for which it is drawn."""


@dataclass(frozen=True)
class PlannedRun:
    """What `run` makes of a plan: the run's name and place, its points, what it is added to, and what is drawn."""

    out: Path
    name: str | None = None
    only: str | None = None
    extend: Path | None = None
    draw: bool = True
    pdr_from: Path | None = None

    def of(self, file: Path) -> Plan:
        chosen = model.load_plan(file)
        return chosen if self.name is None else chosen.model_copy(update={"name": self.name})


planned_run_options = options_as(
    "new",
    PlannedRun,
    click.option("--name", help="Name of the run directory; the plan's name by default."),
    click.option("--out", type=PATH, default=Path("results"), show_default=True, help="Its parent."),
    click.option("--only", metavar="FACTOR=VALUE,…", help="Measure only these points, and their baselines."),
    click.option("--extend", type=RunPath(), metavar="RUN", help="Add the plan's points to an old run."),
    click.option(
        "--figures/--no-figures", "draw", default=True, show_default=True, help="Draw the figures at the end."
    ),
    click.option("--pdr-from", type=RunPath(), metavar="RUN", help="The search whose PDR loads in % refer to."),
)


@click.command()
@PLAN_OR_NAME
@planned_run_options
@sharing_options
@in_lab
def run(lab_name: str | None, plan: str, new: PlannedRun, sharing: Sharing) -> int:
    """Measure PLAN: a file, or one of quick (the default), smoke, thesis. A study's plan.yaml is measured again."""
    file = find_plan(plan)
    if study_request := request_in(file):
        study, request = study_request
        if new.only or new.extend or new.pdr_from or sharing.scheduler:
            raise PlanError(
                f"{file} is a plan of study {study.name}: it takes --name, --out, --labs and --no-figures only"
            )
        choices = StudyRun(new.out, new.name, labs=sharing.labs, figures=new.draw)
        return conduct_study(study, lambda: request, choices)[1]
    chosen = new.of(file)
    details: dict[str, Any] = {
        "only": parse_only(new.only),
        "extend": _extended(new.extend) if new.extend else None,
        "files": search_kind.pdr_files(open_run(new.pdr_from)) if new.pdr_from else None,
    }
    if sharing.labs:
        with fleet.joined(sharing.labs, sharing.scheduler) as joined:
            joined_run = traffic_kind.TRAFFIC.run(joined.start(chosen, new.out, **details))
            return conduct(joined_run, lambda seen: joined_run.measure_at(joined, seen), figures=new.draw)
    require_labs(lab_name, chosen)
    with runs.lab_for(lab_name or chosen.lab, chosen) as lab:
        planned_run = traffic_kind.TRAFFIC.run(runs.start(chosen, lab, new.out, **details))

        def measure(seen: Observer) -> RunState:
            owed = set(planned_run.state.owed)
            trials = run_files.run_trials_of(planned_run.directory)
            tell_extent(chosen, [trial for trial in trials if trial.trial_id in owed])
            early = new.draw and new.extend is None
            return planned_run.measure(FirstFigure(seen, planned_run) if early else seen, sharing.where(lab))

        return conduct(planned_run, measure, figures=new.draw)


def _extended(path: Path) -> RunDirectory:
    """Return the old run. Raises ResultsError if its trials are not of XDP traffic that was measured here, and
    StrangersFileError."""
    old = RunDirectory.open(path)
    if (name := name_of(old)) != "traffic":
        raise ResultsError(
            f"--extend: {path} is a run of kind {name}: the trials of a plan do not belong into it",
            remedy="make a run of its own",
        )
    old.require_trust()
    return old


class FirstFigure:
    """An observer that draws one figure when each point was measured once, if the rest takes `LEFT_S` or more.

    Nothing is measured while it is drawn.
    """

    def __init__(self, seen: Observer, run: Run[Any]) -> None:
        self._seen, self._run = seen, run
        self._drawn = False

    def started(self, state: RunState, trial: AnyTrial) -> None:
        if trial.repetition == 2 and not self._drawn:
            self._drawn = True
            if (state.eta_s or 0) >= LEFT_S:
                self._draw()
        self._seen.started(state, trial)

    def _draw(self) -> None:
        try:
            lines = [pictures.line(one) for one in self._run.draw_figures(names=(FIRST,))]
        except XdplabError as error:  # a figure of the beginning must not end the measurement
            lines = [f"no figure {FIRST} yet: {error.message}"]
        for line in lines:
            tell(f"after one repetition: {line}")

    def finished(self, trial: AnyTrial, attempt: Attempt) -> None:
        self._seen.finished(trial, attempt)

    def interrupted(self, how: str) -> None:
        self._seen.interrupted(how)

    def ended(self, state: RunState) -> None:
        self._seen.ended(state)


@click.command()
@click.argument("directory", metavar="RUN", type=RunPath())
@click.option("--figures/--no-figures", "draw", default=True, show_default=True, help="Draw the figures at the end.")
@sharing_options
@in_lab
def resume(lab_name: str | None, directory: Path, draw: bool, sharing: Sharing) -> int:
    """Continue RUN, of any kind, after Ctrl-C, a kill, or failed trials. A finished run stays unchanged.

    It continues in its lab or labs; --lab or --labs choose others. A study uses the places of its plan; --labs names
    those that measure at the same time.
    """
    run = open_run(directory)
    if not run.state.owed:
        done = run.complete()
        tell("; ".join([f"{directory}: {progress.ending(run.state)}; nothing is missing", *done]))
        return exit_code(run)
    return conduct(run, lambda seen: run.measure(seen, sharing.where(lab_name)), new=False, figures=draw)


@click.command()
@click.argument("directory", metavar="RUN", type=RunPath())
@click.option("--json", "as_json", is_flag=True, help="For a script.")
def status(directory: Path, as_json: bool) -> None:
    """How far RUN is, what failed, and how long the rest will take.

    A run is beginning (planned a moment ago), under way, complete, ended with failed trials, interrupted, stopped
    (nothing could be measured), or killed.
    """
    run = RunDirectory.open(directory)
    state, around = read_state(run), environment.summary(run)
    row = {
        "run": directory.name,
        "trials": state.total,
        **state.counts,
        "not_needed": len(state.released),
        "owed": len(state.owed),
        "state": _standing(run, state),
        "eta_s": None if state.eta_s is None else round(state.eta_s),
    }
    if as_json:
        row["measured_with"] = around
    show([row], as_json=as_json)
    if around and not as_json:
        tell(f"measured with {around}")


def _standing(run: RunDirectory, state: RunState) -> str:
    """A run that measures holds its folder; a run that does not, and has not recorded how it ended, was killed."""
    if is_locked(run.path):
        return "under way"
    if not (run.path / "plan.yaml").exists():
        return "without its plan.yaml (`resume` needs that file)"
    if is_beginning(run):
        return "beginning"
    if state.ended == "complete" and state.failed:
        return (
            f"ended, {len(state.failed)} of {state.total} trials failed (`xdplab resume {run.path}` tries them again)"
        )
    if state.ended is not None:
        return state.ended
    if not state.owed:
        return f"complete (killed after its last trial: `xdplab resume {run.path}` writes what is missing)"
    return "killed" if state.attempts else "killed, or not begun"
