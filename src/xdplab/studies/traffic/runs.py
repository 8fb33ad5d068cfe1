"""A run of XDP traffic: made from a plan, and measured in a lab."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from xdplab.errors import LabError
from xdplab.labs import Lab
from xdplab.lazy import lazy
from xdplab.plan import Plan, Trial
from xdplab.run.engine import CUTS, InTurn, Policy, run_trials
from xdplab.run.progress import Observer
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import AnyTrial, Attempt, RunState, read_state
from xdplab.run.waiting import words_of
from xdplab.studies.kind import Run
from xdplab.studies.provenance import SessionRecord, When, host_states
from xdplab.studies.traffic.checks import check_plan, require_machines
from xdplab.studies.traffic.prepare import tried_again
from xdplab.studies.traffic.run_files import Files, create_run, extend_run, run_plan, run_trials_of
from xdplab.studies.traffic.session import TrafficSession
from xdplab.studies.traffic.turns import PLAN_LAB, Labs, TrialSession, labs_of, sessions_in
from xdplab.text import step

race, trials = lazy("xdplab.studies.traffic.race"), lazy("xdplab.studies.traffic.trials")
maker = lazy("xdplab.studies.maker")


def lab_of(run: RunDirectory) -> str:
    """The lab a run was planned for."""
    return str(next(run.journal.events("planned"))["lab"])


def shared_by(run: RunDirectory) -> tuple[str, ...]:
    """Return the labs that last shared ``run``; none if a single lab measured it.

    Raises LabError if they were reached through a scheduler: the user must give its address, never a journal.
    """
    last = list(run.journal.events("shared"))[-1:]
    if last and last[0]["scheduler"] is not None:
        raise LabError(
            f"{run.path}: its labs were reached through a Dask scheduler, at {last[0]['scheduler']}",
            remedy=f"give its address: `--labs {','.join(last[0]['labs'])} --scheduler tls://…`",
        )
    return tuple(last[0]["labs"]) if last else ()


def start(
    plan: Plan,
    lab: Lab,
    parent: Path,
    *,
    only: Mapping[str, str] | None = None,
    extend: RunDirectory | None = None,
    files: Files | None = None,
) -> RunDirectory:
    """Check the plan against the lab, then make its run directory or add it to an old one. Nothing is measured yet.

    ``files`` are kept in the run, as JSON. Raises PlanError naming the field that this lab cannot have.
    """
    with labs_of(plan.blocks, lab) as labs:
        for own_name, one in labs.items():
            check_plan(plan, one, own_name)
    if extend is not None:
        require_machines(next(extend.journal.events("planned"))["arrangement"], lab)
        extend_run(extend, plan, only=only, files=files)
        return extend
    return create_run(plan, parent, lab=lab.name, arrangement=lab.arrangement, only=only, files=files)


@dataclass(frozen=True)
class TrafficMethod:
    """How the trials of a plan are measured.

    ``session(lab, run, plan, trials)`` is entered before the first trial and gives the measurer. If it ``searches``, a
    trial is tried only once, without a pause, in spite of the plan, and is not judged by the rules of trials.
    """

    session: Callable[[Lab, RunDirectory, Plan, Sequence[Trial]], AbstractContextManager[TrialSession]]
    searches: bool = False

    def retries(self, plan: Plan) -> int:
        return 0 if self.searches else plan.trial.retries

    def pause_s(self, plan: Plan) -> float:
        return 0.0 if self.searches else plan.trial.pause_s


MEASURED = TrafficMethod(TrafficSession)


@dataclass(frozen=True)
class InLab:
    """Measures a run in a lab that is up, and in the labs that its blocks name.

    ``steal`` takes the lab from a run that is silent.
    """

    lab: Lab
    method: TrafficMethod = MEASURED
    steal: bool = False

    def measure(self, run: Run[Any], observer: Observer) -> RunState:
        folder, method = run.directory, self.method
        plan, trials = run_plan(folder), run_trials_of(folder)
        ids = set(read_state(folder).owed)
        owed = [trial for trial in trials if trial.trial_id in ids]
        maker.prepare(folder.path)
        with ExitStack() as held:
            meanwhile = held.enter_context(ThreadPoolExecutor(1))
            labs = held.enter_context(labs_of([trial.point for trial in owed], self.lab)) or {PLAN_LAB: self.lab}
            for trial in owed:
                require_machines(trial.point.arrangement, labs[trial.point.lab])
            for lab in labs.values():
                held.enter_context(lab.lock(words_of(folder), steal=self.steal))
            hosts = SessionRecord(folder)
            before = meanwhile.submit(copy_context().run, _ask, hosts, "before", labs)
            if any(lab.generator.by_dpdk for lab in labs.values()):
                before.result()  # a session takes the port that they describe
            with sessions_in(labs, owed, lambda lab, turn: method.session(lab, folder, plan, turn)) as session_of:
                before.result()
                maker.load()
                stop = race.OpenEnded(folder, plan, trials) if plan.open_ended else None
                policy = Policy(method.retries(plan), method.pause_s(plan), stop)
                judged = JudgingObserver(observer, folder, plan.trial.window_s, method)
                state = run_trials(folder, trials, InTurn(session_of), judged, policy)
                _ask(hosts, "after", labs)
                maker.begin()  # the hosts get their settings back meanwhile
        return state


@dataclass
class JudgingObserver:
    """An observer that hands on to ``seen`` why trials of a user's program are invalid: the first one of a point tells
    what to expect of the others, so these are judged only behind an invalid one. Each is judged again, with the others,
    when the tables are derived.
    """

    seen: Observer
    run: RunDirectory
    window_s: float
    method: TrafficMethod = MEASURED
    invalid: set[str] = field(default_factory=set)
    """The points that have had an invalid trial."""
    state: RunState | None = None

    def started(self, state: RunState, trial: AnyTrial) -> None:
        self.state = state
        maker.keep_up(len(state.attempts))  # nothing is measured now
        self.seen.started(state, trial)

    def finished(self, trial: AnyTrial, attempt: Attempt) -> None:
        if self.state is not None and len(self.state.last) == self.state.total and not self.state.owed:
            maker.keep_soon()  # `owed` alone looks at each trial of the run
        if isinstance(trial, Trial) and self._is_judged(trial):
            row = trials.attempt_rows(self.run, trial, attempt, window_s=self.window_s).row
            if row["verdict"] == "invalid":
                self.invalid.add(trial.point.point_id)
                attempt = replace(attempt, reason=f"invalid: {row['reason']}")
        self.seen.finished(trial, attempt)

    def _is_judged(self, trial: Trial) -> bool:
        first = trial.point.program.file is not None and trial.repetition == 1
        return not self.method.searches and (first or trial.point.point_id in self.invalid)

    def interrupted(self, how: str) -> None:
        self.seen.interrupted(how)

    def ended(self, state: RunState) -> None:
        self.seen.ended(state)


def _ask(hosts: SessionRecord, when: When, labs: Labs) -> None:
    """Record the state of each lab's hosts. A connection that is lost between trials is made again."""
    for lab in labs.values():
        with step(f"asking the hosts of lab {lab.name} what they are"):
            hosts.note(when, tried_again(CUTS, partial(host_states, lab, when)))
    hosts.keep()
