"""The kinds of run besides XDP traffic. A study says how a request becomes points, how these are measured at a place,
and how the table is made; all else is the same for each."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol

import pandas as pd

from xdplab.analysis.sentences import sentence
from xdplab.errors import LabError, ResultsError
from xdplab.run.derived import Before, Recipe, Tables
from xdplab.run.engine import Engine, F, OfT, Session, run_trials
from xdplab.run.gone import look_at_raw, warn_gone
from xdplab.run.progress import Observer
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import RunState
from xdplab.studies import environment
from xdplab.studies.comparing import ComparedRuns, compared_rows, differences
from xdplab.studies.figure_table import MakeView, Views
from xdplab.studies.kind import Kind, Run, Where
from xdplab.studies.places import Place, measures_apart
from xdplab.studies.plain_audit import audit, findings
from xdplab.studies.points import P, R, StudyPlan, StudyPlanning, StudyTrial, place_in
from xdplab.studies.provenance import Around
from xdplab.studies.tables import Table


class StudySession(Session[OfT, F], Protocol[OfT, F]):
    """Measures a block's trials at one place."""

    @property
    def place(self) -> Place | None:
        """The place between ``enter_block`` and ``leave_block``; None if only this machine is needed."""


@dataclass(frozen=True)
class AtOnce(Generic[P]):
    """Threads of this process, one per lane, for places that do not disturb each other, such as guests that count.

    ``sessions``: one by each of these places; that of None measures the other trials afterwards. After Ctrl-C or an
    error in one lane, each other lane ends with its trial under way.
    """

    sessions: Mapping[str | None, Session[StudyTrial[P], Any]]

    def measure(self, engine: Engine[StudyTrial[P]], trials: Sequence[StudyTrial[P]]) -> None:
        lanes: dict[str | None, list[StudyTrial[P]]] = {}
        for trial in trials:
            lanes.setdefault(self._lane_of(trial), []).append(trial)
        alone = lanes.pop(None, [])
        engine.measure_at_once(list(lanes.values()), self._session_of)
        engine.measure(alone, self._session_of)

    def _lane_of(self, trial: StudyTrial[P]) -> str | None:
        return place if (place := place_in(trial)) in self.sessions else None

    def _session_of(self, trial: StudyTrial[P]) -> Session[StudyTrial[P], Any]:
        return self.sessions[self._lane_of(trial)]


Compare = Callable[[Run[StudyPlan[R, P]], Run[StudyPlan[R, P]], str, Sequence[Run[StudyPlan[R, P]]], float], Any]
SessionOfRun = Callable[[StudyPlan[R, P]], StudySession[StudyTrial[P], Any]]


def study_kind(
    planning: StudyPlanning[R, P],
    *,
    session: SessionOfRun[R, P],
    table: Callable[[StudyPlan[R, P]], pd.DataFrame],
    tables: Callable[[StudyPlan[R, P], pd.DataFrame], dict[str, Table]],
    views: Mapping[str, MakeView],
    results: Callable[[StudyPlan[R, P], pd.DataFrame], Iterable[str]] = lambda *_: (),
    version: str = "1",
    possible: Callable[[StudyPlan[R, P]], Container[str]] | None = None,
    tools: Callable[[StudyPlan[R, P]], Mapping[str, str]] = lambda _: {},
    compare: Compare[R, P] | None = None,
    at_once: bool = False,
) -> Kind[StudyPlan[R, P]]:
    """Return the kind of a study.

    ``session`` makes what the engine drives; ``table`` gives one row per measurement, and ``version`` changes whenever
    the same raw files would give another one; ``results``: a few sentences that the table answers, as `sentence` takes
    them, empty where it has no answer; of a table without rows none are asked for, and no tables. ``views`` gives each
    figure by name, and raises NotApplicableError where the table holds nothing for it; ``possible``: the figures that a
    run's points can give. ``tools``: those that only this study uses, by name, with their versions: kept in each
    session's manifest. ``compare``: of a study whose repetitions do not differ. ``at_once``: all its places measure at
    the same time, unless some are named.
    """
    name = planning.study

    def summary(run: Run[StudyPlan[R, P]]) -> list[str]:
        rows = run.rows()
        answers = map(sentence, filter(None, results(run.plan, rows) if len(rows) else ()))
        return [*answers, *failures(run.plan), *run.plan.notes, run.state.text]

    @contextmanager
    def at(run: Run[StudyPlan[R, P]], where: Where) -> Iterator[Places[R, P]]:
        if where.scheduler is not None:
            raise LabError("--scheduler: a study measures on this machine and in its guests", remedy="leave it out")
        _require_apart(run.plan.trials, where.labs)
        places = tuple(dict.fromkeys(map(place_in, run.plan.trials)) if at_once else ())
        yield Places(session, tools, where.labs or places * (len(places) > 1))

    return Kind(
        name=name,
        read=planning.read,
        at=at,
        recipe=lambda run: _recipe(run, f"{name}.parquet", table, version),
        tables=lambda run: tables(run.plan, run.rows()),
        summary=summary,
        pictures=Views(views, possible, with_tables=True),
        metric=_first_numbers,
        around=environment.around,
        compare=compare or _compare,
        findings=findings,
        audit=audit,
        one_row_a_trial=False,
        planning=planning,
    )


def _recipe(
    run: Run[StudyPlan[R, P]], file: str, table: Callable[[StudyPlan[R, P]], pd.DataFrame], version: str
) -> Recipe:
    def derived(directory: RunDirectory, before: Before) -> Tables:
        """If raw files are gone, the run's existing table stays as it is."""
        gone = look_at_raw(directory).gone
        warn_gone(directory, gone)
        return before.tables if gone and before.tables else {file: table(run.plan)}

    return Recipe((file,), version, derived)


@dataclass(frozen=True)
class Places(Generic[R, P]):
    """The places that a study's plan names; those ``at_once`` measure at the same time, the others after them."""

    session: SessionOfRun[R, P]
    tools: Callable[[StudyPlan[R, P]], Mapping[str, str]]
    at_once: tuple[str, ...]

    def measure(self, run: Run[StudyPlan[R, P]], observer: Observer) -> RunState:
        plan, trials = run.plan, run.plan.trials
        around = Around(run.directory, self.tools(plan))
        around.begin()
        sessions = {lane: _Asking(self.session(plan), around) for lane in (*self.at_once, None)}
        if self.at_once:
            run.directory.journal.append("shared", labs=self.at_once, scheduler=None)
        state = run_trials(run.directory, trials, AtOnce(sessions), observer)
        around.end()
        return state


def _require_apart(trials: Sequence[StudyTrial[Any]], at_once: Sequence[str]) -> None:
    """Raise LabError unless the run measures at each of these places, and none of them measures time."""
    places = list(dict.fromkeys(map(place_in, trials)))
    fit = [place for place in places if measures_apart(place)]
    remedy = f"places of this run that can: {', '.join(fit) or 'none'}"
    for place in at_once:
        if place not in places:
            raise LabError(f"--labs: the run has no trials at {place}", remedy=remedy)
        if place not in fit:
            raise LabError(f"--labs: {place} measures time, so nothing else may run meanwhile", remedy=remedy)
    if len(set(at_once)) != len(at_once):
        raise LabError(f"--labs names a place twice: {', '.join(at_once)}")


@dataclass(frozen=True)
class _Asking(Generic[P]):
    """A session whose places are asked what they are as they are entered."""

    inner: StudySession[StudyTrial[P], Any]
    around: Around

    @property
    def facts(self) -> Callable[[], Any]:
        return self.inner.facts

    def enter_block(self, trials: Sequence[StudyTrial[P]]) -> None:
        self.inner.enter_block(trials)
        if self.inner.place is not None:
            self.around.at(self.inner.place)

    def measure(self, trial: StudyTrial[P], raw: Path, facts: Any) -> None:
        self.inner.measure(trial, raw, facts)

    def leave_block(self) -> None:
        self.inner.leave_block()


_NAMED = 3
"""Points that a line names; of more it says how many there are."""


def _first_of(points: Sequence[str]) -> str:
    more = len(points) - _NAMED
    return "; ".join(points) if more <= 1 else f"{'; '.join(points[:_NAMED])} and {more} more points"


def failures(plan: StudyPlan[Any, Any]) -> list[str]:
    """Return one line per reason why trials were not measured, with the first of their points."""
    points: dict[str, dict[str, None]] = {}
    for trial, last, _ in plan.attempts():
        if last.status != "measured":
            points.setdefault(str(last.reason), {})[str(trial.point)] = None
    return [f"{_first_of(list(of))}: {reason}" for reason, of in points.items()]


def _first_numbers(run: Run[Any]) -> str:
    """Return the first column of fractional numbers; where there is none, the first time in nanoseconds."""
    rows = run.rows()
    fractional = [str(name) for name in rows.columns if str(rows[name].dtype) == "Float64"]
    return next(iter([*fractional, *(str(name) for name in rows.columns if str(name).endswith("_ns"))]), "")


def _compare(
    first: Run[StudyPlan[R, P]],
    second: Run[StudyPlan[R, P]],
    metric: str,
    equal: Sequence[Run[StudyPlan[R, P]]],
    margin: float,
) -> ComparedRuns:
    if not metric:
        raise ResultsError(
            f"a run of kind {first.kind.name} has no number to compare: its answers are words",
            remedy="`xdplab show` prints them",
        )
    runs = (first, second, *equal)
    labels = {point.point_id: str(point) for point in first.plan.points}
    unlike = differences(first.around(), second.around())
    directories, tables = [run.directory for run in runs], [run.rows() for run in runs]
    return compared_rows(directories, tables, metric, labels, margin, unlike)
