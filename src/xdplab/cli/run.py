"""`run`, `resume` and `status`: measure a plan, continue after an interruption, show the progress."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xdplab.cli.common import (
    AS_JSON,
    SCRIPT_FORMAT,
    RunPath,
    in_lab,
    parse_only,
    print_json,
    results_facts,
    show,
    status_facts,
    tell,
)
from xdplab.cli.conduct import conduct, conduct_study, exit_code
from xdplab.cli.options import PATH, Sharing, StudyRun, options_as, sharing_options
from xdplab.cli.plan import PLAN_OR_NAME, find_plan, require_labs, require_timed, tell_extent
from xdplab.errors import PlanError, ResultsError, XdplabError
from xdplab.lazy import lazily

with lazily():
    from xdplab.figures import outcome
    from xdplab.plan import model
    from xdplab.run import listing, rundir
    from xdplab.studies import kept, kinds, maker
    from xdplab.studies.search import kind as search_kind
    from xdplab.studies.traffic import fleet, run_files, runs, turns
    from xdplab.studies.traffic import kind as traffic_kind

if TYPE_CHECKING:
    from xdplab.plan import Plan
    from xdplab.run.progress import Observer
    from xdplab.run.rundir import RunDirectory
    from xdplab.run.state import AnyTrial, Attempt, RunState
    from xdplab.studies.kind import Run

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
@AS_JSON
@SCRIPT_FORMAT
@sharing_options
@in_lab
def run(lab_name: str | None, plan: str, new: PlannedRun, as_json: bool, sharing: Sharing) -> int:
    """Measure PLAN: a file, or one of quick (the default), smoke, thesis. A study's plan.yaml is measured again."""
    return measure_plan(lab_name, find_plan(plan), new, as_json, sharing)[1]


def measure_plan(
    lab_name: str | None, file: Path, new: PlannedRun, as_json: bool, sharing: Sharing
) -> tuple[Run[Any], int]:
    """Measure a plan of any kind and show its results; return the run with the exit code."""
    if study_request := kinds.request_in(file):
        study, request = study_request
        if new.only or new.extend or new.pdr_from or sharing.scheduler:
            raise PlanError(
                f"{file} is a plan of study {study.name}: it takes --name, --out, --labs and --no-figures only"
            )
        choices = StudyRun(new.out, new.name, labs=sharing.labs, as_json=as_json, figures=new.draw)
        return conduct_study(study, lambda: request, choices)
    with nullcontext() if sharing.labs else maker.beside(new.draw):
        return _measure_traffic(lab_name, new.of(file), new, as_json, sharing)


def _measure_traffic(
    lab_name: str | None, chosen: Plan, new: PlannedRun, as_json: bool, sharing: Sharing
) -> tuple[Run[Any], int]:
    details: dict[str, Any] = {
        "only": parse_only(new.only),
        "extend": _extended(new.extend) if new.extend else None,
        "files": search_kind.pdr_files(kinds.open_run(new.pdr_from)) if new.pdr_from else None,
    }
    if sharing.labs:
        require_timed(*sharing.labs)
        with fleet.joined(sharing.labs, sharing.scheduler) as joined:
            joined_run = traffic_kind.TRAFFIC.run(joined.start(chosen, new.out, **details))
            return joined_run, conduct(
                joined_run, lambda seen: joined_run.measure_at(joined, seen), figures=new.draw, as_json=as_json
            )
    require_labs(lab_name, chosen)
    with turns.lab_for(lab_name or chosen.lab, chosen) as lab:
        planned_run = traffic_kind.TRAFFIC.run(runs.start(chosen, lab, new.out, **details))

        def measure(seen: Observer) -> RunState:
            owed = set(planned_run.state.owed)
            trials = run_files.run_trials_of(planned_run.directory)
            if not as_json:
                tell_extent(chosen, [trial for trial in trials if trial.trial_id in owed])
            early = new.draw and new.extend is None and not as_json
            return planned_run.measure(FirstFigure(seen, planned_run) if early else seen, sharing.where(lab))

        return planned_run, conduct(planned_run, measure, figures=new.draw, as_json=as_json)


def _extended(path: Path) -> RunDirectory:
    """Return the old run. Raises ResultsError if its trials are not of XDP traffic that was measured here, and
    StrangersFileError."""
    old = rundir.RunDirectory.open(path)
    if (name := kinds.name_of(old)) != "traffic":
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
            lines = [outcome.line(one) for one in self._run.draw_figures(names=(FIRST,))]
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
@AS_JSON
@sharing_options
@in_lab
def resume(lab_name: str | None, directory: Path, draw: bool, as_json: bool, sharing: Sharing) -> int:
    """Continue RUN, of any kind, after Ctrl-C, a kill, or failed trials. A finished run stays unchanged.

    It continues in its lab or labs; --lab or --labs choose others. A study uses the places of its plan; --labs names
    those that measure at the same time.
    """
    run = kinds.open_run(directory)
    if not run.state.owed:
        done = run.complete()
        if as_json:
            print_json(results_facts(run.directory) | {"figures": []})
        else:
            tell("; ".join([f"{directory}: {run.state.text}; nothing is missing", *done]))
        return exit_code(run)
    measure = lambda seen: run.measure(seen, sharing.where(lab_name))  # noqa: E731
    return conduct(run, measure, new=False, figures=draw, as_json=as_json)


@click.command()
@click.argument("directory", metavar="RUN", type=RunPath())
@AS_JSON
def status(directory: Path, as_json: bool) -> None:
    """How far RUN is, what failed, and how long the rest will take.

    A run is beginning (planned a moment ago), under way, complete, ended with failed trials, interrupted, stopped
    (nothing could be measured), or killed.
    """
    run = rundir.RunDirectory.open(directory)
    facts = status_facts(run)
    if as_json:
        print_json(facts)
        return
    names = ("run", "trials", "measured", "unsupported", "failed", "not_needed", "owed")
    left = None if facts["eta_s"] is None else round(facts["eta_s"])
    show([{name: facts[name] for name in names} | {"state": _in_words(run, facts), "eta_s": left}])
    if facts["measured_with"]:
        tell(f"measured with {facts['measured_with']}")


def _in_words(run: RunDirectory, facts: Mapping[str, Any]) -> str:
    """Return the state of a run, with what to do about it."""
    resume = f"`xdplab resume {run.path}`"
    if facts["state"] == "no plan":
        return "without its plan.yaml (`resume` needs that file)"
    if facts["state"] == "ended":
        return f"ended, {facts['failed']} of {facts['trials']} trials failed ({resume} tries them again)"
    if facts["state"] == "complete" and kept.progress_of(run).ended is None:
        return f"complete (killed after its last trial: {resume} writes what is missing)"
    return listing.state_text(facts["state"], facts["owed"], facts["trials"])
