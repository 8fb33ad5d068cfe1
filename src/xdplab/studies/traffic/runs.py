"""A run of XDP traffic: made from a plan, measured in a lab, and its tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from xdplab.analysis.derived import Visits, derive
from xdplab.analysis.verdicts import RULES_VERSION
from xdplab.errors import LabError
from xdplab.labs import Lab, use_lab
from xdplab.lazy import lazy
from xdplab.plan import Plan, Trial
from xdplab.run.derived import Recipe, Tables, all_gone, table, warn_gone
from xdplab.run.engine import CUTS, InTurn, Policy, run_trials
from xdplab.run.frames import frame
from xdplab.run.manifest import SessionRecord, When
from xdplab.run.progress import Observer
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import RunState, attempts_of, read_state
from xdplab.run.waiting import words_of
from xdplab.studies.kind import Run
from xdplab.studies.provenance import host_states
from xdplab.studies.traffic.checks import check_plan, require_machines
from xdplab.studies.traffic.columns import NAMES, SAMPLES, columns_version, trials_frame
from xdplab.studies.traffic.prepare import tried_again
from xdplab.studies.traffic.rows import Row, attempt_rows
from xdplab.studies.traffic.run_files import Files, create_run, extend_run, run_plan, run_trials_of
from xdplab.studies.traffic.session import TrafficSession
from xdplab.studies.traffic.turns import PLAN_LAB, Labs, TrialSession, labs_of, sessions_in
from xdplab.text import step

race = lazy("xdplab.studies.traffic.race")


@contextmanager
def lab_for(name: str, plan: Plan | None = None) -> Iterator[Lab]:
    """The lab of that name; if it is not up, it is brought up, and taken down at the end.

    The same holds for labs that blocks of ``plan`` name.
    """
    with _brought_up(name) as lab, labs_of(() if plan is None else plan.blocks, lab):
        yield lab


@contextmanager
def _brought_up(name: str) -> Iterator[Lab]:
    with ExitStack() as stack:
        with step(f"bringing lab {name} up"):
            lab = stack.enter_context(use_lab(name))
        yield lab


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

    ``session(lab, run, plan, trials)`` is entered before the first trial and gives the measurer. ``patient`` is False
    if a trial is tried only once and there is no pause between trials, in spite of the plan.
    """

    session: Callable[[Lab, RunDirectory, Plan, Sequence[Trial]], AbstractContextManager[TrialSession]]
    patient: bool = True

    def retries(self, plan: Plan) -> int:
        return plan.trial.retries if self.patient else 0

    def pause_s(self, plan: Plan) -> float:
        return plan.trial.pause_s if self.patient else 0.0


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
        with ExitStack() as held:
            labs = held.enter_context(labs_of([trial.point for trial in owed], self.lab)) or {PLAN_LAB: self.lab}
            for trial in owed:
                require_machines(trial.point.arrangement, labs[trial.point.lab])
            for lab in labs.values():
                held.enter_context(lab.lock(words_of(folder), steal=self.steal))
            with sessions_in(labs, owed, lambda lab, turn: method.session(lab, folder, plan, turn)) as session_of:
                hosts = SessionRecord(folder)
                _ask(hosts, "before", labs)
                stop = race.OpenEnded(folder, plan, trials) if plan.open_ended else None
                policy = Policy(method.retries(plan), method.pause_s(plan), stop)
                state = run_trials(folder, trials, InTurn(session_of), observer, policy)
                _ask(hosts, "after", labs)
        return state


def _ask(hosts: SessionRecord, when: When, labs: Labs) -> None:
    """Record the state of each lab's hosts. A connection that is lost between trials is made again."""
    for lab in labs.values():
        with step(f"asking the hosts of lab {lab.name} what they are"):
            hosts.note(when, tried_again(CUTS, partial(host_states, lab)))
    hosts.keep()


def _derive(run: RunDirectory, before: Tables) -> Tables:
    """Make the rows of every attempt from the journal and the raw files.

    If raw files are gone, the run's existing rows stay as they are, and their reason says so.
    """
    trials = {t.trial_id: t for t in run_trials_of(run)}
    window_s = run_plan(run).trial.window_s
    gone = all_gone(run)
    warn_gone(run, gone)
    kept = {(attempt.trial_id, attempt.attempt) for attempt in gone}
    old_rows, old_samples = (_by_attempt(before.get(name), kept) for name in (TRIALS, SAMPLES_FILE))
    rows: list[Row] = []
    samples: list[Row] = []
    for attempt in attempts_of(run):
        key = (attempt.trial_id, attempt.attempt)
        if key in old_rows:
            # If a column is newer than the table and is a factor, the plan gives its value.
            rows += map(_marked, old_rows[key])
            samples += old_samples.get(key, [])
        else:
            derived = attempt_rows(run, trials[attempt.trial_id], attempt, window_s=window_s)
            rows.append(derived.row)
            samples += derived.samples
    table = derive(trials_frame(rows), _visits(run, trials))
    return {TRIALS: with_own_metrics(table), SAMPLES_FILE: frame(samples, SAMPLES)}


def _visits(run: RunDirectory, trials: Mapping[str, Trial]) -> Visits:
    """Return which attempts a block had in a row: another block in the same lab, or another session, ends a visit.

    Labs at once measure different blocks, and their attempts end in between each other.
    """
    visits: dict[tuple[str, int], tuple[int, float]] = {}
    at: dict[str | None, tuple[tuple[int, int], int]] = {}  # by lab: the block and repetition, and the visit's number
    number = 0
    for event in run.journal.events("planned", "hosts", "shared", "finished"):
        if event["event"] != "finished":
            at.clear()
            continue
        trial, lab = trials[event["trial_id"]], (event.get("facts") or {}).get("lab")
        place = trial.block, trial.repetition
        if lab not in at or at[lab][0] != place:
            number += 1
            at[lab] = place, number
        visits[trial.trial_id, event["attempt"]] = at[lab][1], float(event["time"])
    return visits


GONE = "its raw files are gone: the verdict is the one of before"


def _marked(row: Row) -> Row:
    reason = row.get("reason")
    return row if GONE in str(reason) else row | {"reason": f"{reason}; {GONE}" if reason else GONE}


def _by_attempt(table: pd.DataFrame | None, kept: set[tuple[str, int]]) -> dict[tuple[str, int], list[Row]]:
    """Return the rows of these attempts, nulls as None, without columns of the plan's own."""
    by_attempt: dict[tuple[str, int], list[Row]] = {}
    if table is None or not kept:
        return by_attempt
    names = [name for name in table.columns if name in NAMES or name in SAMPLE_NAMES]
    for row in table[names].astype(object).where(table[names].notna(), None).to_dict("records"):
        if (key := (row["trial_id"], row["attempt"])) in kept:
            by_attempt.setdefault(key, []).append({str(name): value for name, value in row.items()})
    return by_attempt


TRIALS, SAMPLES_FILE = "trials.parquet", "samples.parquet"
SAMPLE_NAMES = {column.name for column in SAMPLES}
RECIPE = Recipe((TRIALS, SAMPLES_FILE), f"rules {RULES_VERSION}, visits 2, columns {columns_version()}", _derive)


def with_own_metrics(table: pd.DataFrame) -> pd.DataFrame:
    """Give each metric of the plan's own a column; null if its command printed no number."""
    values = [json.loads(text) if isinstance(text, str) else {} for text in table["metrics"]]
    names = sorted({name for row in values for name in row})
    return table.assign(**{n: pd.array([row.get(n) for row in values], dtype="Float64") for n in names})


def trials_table(run: RunDirectory, read: Callable[[Path], pd.DataFrame] | None = None) -> pd.DataFrame:
    """Every finished attempt, one row each, judged by the current rules. Writes nothing into the run.

    ``read`` reads a file of the table, for callers that need only a part.
    """
    return table(run, RECIPE, TRIALS, read)


def settled_trials(run: RunDirectory) -> pd.DataFrame:
    """The attempt that counts of each trial: its last."""
    return last_of_each(trials_table(run))


def last_of_each(attempts: pd.DataFrame) -> pd.DataFrame:
    """The attempt that counts of each trial: its last."""
    return attempts.drop_duplicates("trial_id", keep="last", ignore_index=True)
