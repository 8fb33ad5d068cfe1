"""The frame of the studies besides XDP traffic: a request becomes points, and the points become a run. A study is one
`StudyKind`: its request, its measurement, and the functions for its table, tables and figures. The runner has order,
journal, resume and progress; all output is derived from the journal and the raw files of a run.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, Unpack

import pandas as pd
import yaml

from xdplab.analysis import MARGIN
from xdplab.analysis.findings import Finding
from xdplab.errors import FigureError, LabError, NotApplicableError, ResultsError, XdplabError
from xdplab.figures.album import Drawn
from xdplab.figures.marks import View
from xdplab.figures.save import save
from xdplab.later import later
from xdplab.run.derived import Recipe, Tables, all_gone, derive, is_owed, table, warn_gone
from xdplab.run.disk import write_whole
from xdplab.run.engine import F, OfT, Session, run_in_lanes, run_trials
from xdplab.run.progress import Observer, ending, silent
from xdplab.run.rundir import RunDirectory, read_json
from xdplab.run.state import Attempt, RunState, last_attempts, read_state, record_planned
from xdplab.run.waiting import WAITS, warn
from xdplab.studies import provenance
from xdplab.studies.comparing import ComparedRuns, compared_rows, differences
from xdplab.studies.every import AnyRun, PlainAudit, Where, not_measured, require_same_kind
from xdplab.studies.places import Place, measures_apart
from xdplab.studies.points import Gathered, P, R, StudyTrial, place_in, schedule, study_of
from xdplab.studies.provenance import Around
from xdplab.studies.published import Experiment
from xdplab.studies.tables import Table, markdown, write_tables
from xdplab.yaml_file import read_yaml

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from xdplab.figures import draw as drawer
    from xdplab.figures.draw import Drawing, Panels
else:
    drawer = later("xdplab.figures.draw")

MakeView = Callable[[pd.DataFrame], View]


class PlacedStudy(Session[OfT, F], Protocol[OfT, F]):
    """Measures a block's trials at one place."""

    @property
    def place(self) -> Place | None:
        """The place between ``enter_block`` and ``leave_block``; None if only this machine is needed."""


@dataclass(frozen=True)
class StudyKind(Generic[R, P]):
    """A kind of study.

    ``gather`` may raise PlanError; ``measurer`` makes what the runner drives; ``table`` gives one row per measurement,
    ``tables`` what is printed; ``views`` gives each figure by name, and raises NotApplicableError where the table holds
    nothing for it.
    """

    name: str
    request: type[R]
    point: type[P]
    gather: Callable[[R], Gathered[P]]
    measurer: Callable[[StudyRun[R, P]], PlacedStudy[StudyTrial[P], Any]]
    table: Callable[[StudyRun[R, P]], pd.DataFrame]
    tables: Callable[[StudyRun[R, P], pd.DataFrame], dict[str, Table]]
    views: Mapping[str, MakeView]
    _: KW_ONLY  # several of the following have similar types: by position, one could be taken for another
    version: str = "1"
    """The version of its table: it changes whenever the same raw files would give another table."""
    smallest: Callable[[R], R] = lambda request: request
    """Makes a request as small as still shows everything: a minute or two."""
    possible: Callable[[StudyRun[R, P]], Container[str]] | None = None
    """The figures that a run's points can give; ``draw`` does not report that others are missing."""
    tools: Callable[[StudyRun[R, P]], Mapping[str, str]] = lambda _: {}
    """The tools that only this study uses, by name, with their versions: kept in each session's manifest."""
    published: Sequence[Experiment] = ()
    """The published experiments that this study repeats."""

    def start(self, request: R, parent: Path, name: str | None = None) -> StudyRun[R, P]:
        """Gather the points and make a run directory in ``parent``; nothing is measured yet.

        Raises PlanError for unusable options.
        """
        found = self.gather(request)
        plan = {"study": self.name} | json.loads(json.dumps(asdict(request)))
        text = yaml.safe_dump(plan, sort_keys=False)
        points, notes = tuple(found.points), tuple(found.notes)

        def fill(directory: RunDirectory) -> None:
            for relative, content in found.files.items():
                directory.write_bytes(relative, content)
            directory.write_json("points.json", {"points": [asdict(p) for p in points], "notes": notes})
            record_planned(directory, schedule(points, request.repetitions, request.seed))

        directory = RunDirectory.create(
            parent, name or self.name, run_id=secrets.token_hex(4), plan_yaml=text, fill=fill
        )
        return StudyRun(self, directory, request, points, notes)

    def open(self, directory: RunDirectory) -> StudyRun[R, P]:
        """Open a run of this study. Raises ResultsError if it is not one."""
        if study_of(directory) != self.name:
            path = directory.path
            raise ResultsError(f"{path} is not a run of study {self.name}", remedy="its plan.yaml names its study")
        plan = read_yaml(directory.plan_text)
        asked: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in plan.items() if k != "study"}

        def made(known: Any) -> StudyRun[R, P]:
            points = tuple(self.point(**fields) for fields in known["points"])
            return StudyRun(self, directory, self.request(**asked), points, tuple(known["notes"]))

        return read_json(directory.path / "points.json", made)


@dataclass(frozen=True)
class StudyRun(Generic[R, P]):
    """A run of a study on disk."""

    kind: StudyKind[R, P]
    directory: RunDirectory
    request: R
    points: tuple[P, ...]
    notes: tuple[str, ...]

    @property
    def trials(self) -> list[StudyTrial[P]]:
        return schedule(self.points, self.request.repetitions, self.request.seed)

    @property
    def state(self) -> RunState:
        return read_state(self.directory)

    def attempts(self) -> Iterator[tuple[StudyTrial[P], Attempt, Path]]:
        """Give each tried trial with its last attempt and the folder of that attempt's raw files."""
        by_id = {trial.trial_id: trial for trial in self.trials}
        for attempt in last_attempts(self.directory).values():
            yield by_id[attempt.trial_id], attempt, self.directory.raw_dir(attempt.trial_id, attempt.attempt)

    def execute(self, observer: Observer | None = None, at_once: Sequence[str] = ()) -> RunState:
        """Measure the missing trials. A trial that cannot be measured gets that verdict; the others continue.

        The places ``at_once`` measure at the same time, the others after them. Raises LabError for a place that this
        would disturb, or that the run has no trials for.
        """
        self.directory.require_trust()
        self._require_apart(at_once)
        with self.directory.writer():
            seen = observer or silent()
            around = Around(self.directory, self.kind.tools(self))
            around.begin()
            told = WAITS.set(_Waiting(self.directory))
            try:
                state = self._run(seen, around, at_once)
                around.end()
            except BaseException:
                with suppress(XdplabError):  # a full disk must not hide what happened first
                    self.keep_tables()
                raise
            finally:
                WAITS.reset(told)
            self.keep_tables()
        return state

    def _run(self, seen: Observer, around: Around, at_once: Sequence[str]) -> RunState:
        def session_of(trial: StudyTrial[P]) -> _Recorded[P]:
            return sessions[lane_of(trial)]

        def lane_of(trial: StudyTrial[P]) -> str | None:
            return place if (place := place_in(trial)) in at_once else None

        sessions = {lane: _Recorded(self.kind.measurer(self), around) for lane in (*at_once, None)}
        if not at_once:
            return run_trials(self.directory, self.trials, session_of, seen)
        self.directory.journal.append("shared", labs=at_once, scheduler=None)
        return run_in_lanes(self.directory, self.trials, lane_of, session_of, seen)

    def _require_apart(self, at_once: Sequence[str]) -> None:
        """Raise LabError unless the run measures at each of these places, and none of them measures time."""
        there = list(dict.fromkeys(place_in(trial) for trial in self.trials))
        fit = [place for place in there if measures_apart(place)]
        remedy = f"places of this run that can: {', '.join(fit) or 'none'}"
        for place in at_once:
            if place not in there:
                raise LabError(f"--labs: the run has no trials at {place}", remedy=remedy)
            if place not in fit:
                raise LabError(f"--labs: {place} measures time, so nothing else may run meanwhile", remedy=remedy)
        if len(set(at_once)) != len(at_once):
            raise LabError(f"--labs names a place twice: {', '.join(at_once)}")

    @property
    def _recipe(self) -> Recipe:
        return Recipe((f"{self.kind.name}.parquet",), self.kind.version, self._derived)

    def _derived(self, directory: RunDirectory, before: Tables) -> Tables:
        """If raw files are gone, the run's existing table stays as it is."""
        gone = all_gone(directory)
        warn_gone(directory, gone)
        if gone and before:
            return before
        return {f"{self.kind.name}.parquet": self.kind.table(self)}

    def table(self) -> pd.DataFrame:
        """Return one row per measurement. Writes nothing into the run."""
        return table(self.directory, self._recipe, f"{self.kind.name}.parquet")

    def keep_tables(self) -> Path:
        """Derive the table, ``STUDY.parquet``, if it is not current; return its folder."""
        return derive(self.directory, self._recipe)

    def complete(self) -> list[str]:
        """Complete what a kill after the last trial interrupted, and return a description of it."""
        done = []
        with self.directory.writer():
            if is_owed(self.directory, self._recipe):
                done.append(f"the tables were derived: {self.keep_tables()}")
            state = self.state
            if not state.owed and state.ended != "complete":
                self.directory.journal.append("ended", how="complete")
        return done

    def tables(self) -> dict[str, Table]:
        """Return title and content of every table that has content."""
        made = self.kind.tables(self, self.table())
        return {name: table for name, table in made.items() if not table.frame.empty}

    def draw(self, style: str = "paper-1col", names: Sequence[str] = (), out: Path | None = None) -> list[Drawn]:
        """Write every table and draw every figure (or ``names``) with data; say why others are not drawn."""
        for name in names:
            self._require(name)
        write_tables(self.tables(), self.directory.outputs / "tables")
        wanted = names or self._possible
        views = {name: make for name, make in self.kind.views.items() if name in wanted}
        folder = out or self.directory.figures
        around = provenance.summary(self.directory)
        return draw_views(views, self.table(), folder, style=style, run=self.directory.run_id, around=around)

    def draw_figures(
        self, *, names: Sequence[str] = (), style: str = "paper-1col", out: Path | None = None
    ) -> list[str]:
        return said(self.draw(style, names, out))

    @property
    def _possible(self) -> list[str]:
        possible = self.kind.possible(self) if self.kind.possible is not None else self.kind.views
        return [name for name in self.kind.views if name in possible]

    @property
    def figure_names(self) -> list[str]:
        return list(self.kind.views)

    def figure(self, name: str | None = None, **drawing: Unpack[Drawing]) -> Axes | Panels:
        """Draw one figure for a notebook, the first by default. Raises FigureError."""
        chosen = name or next(iter(self.kind.views), "")
        self._require(chosen)
        return drawer.draw(self.kind.views[chosen](self.table()), **drawing)

    def _require(self, name: str) -> None:
        if name not in self.kind.views:
            raise FigureError(f"no figure {name!r}", remedy=f"figures are {', '.join(self.kind.views)}")

    def failures(self) -> list[str]:
        """Return one line per reason why trials were not measured, with the first of their points."""
        points: dict[str, dict[str, None]] = {}
        for trial, last, _ in self.attempts():
            if last.status != "measured":
                points.setdefault(str(last.reason), {})[str(trial.point)] = None
        return [f"{_first_of(list(of))}: {reason}" for reason, of in points.items()]

    @property
    def kind_name(self) -> str:
        return self.kind.name

    @property
    def metric(self) -> str:
        """The first column of fractional numbers of its table; where there is none, the first time in nanoseconds."""
        rows = self.table()
        fractional = [str(name) for name in rows.columns if str(rows[name].dtype) == "Float64"]
        return next(iter([*fractional, *(str(name) for name in rows.columns if str(name).endswith("_ns"))]), "")

    def measure(self, observer: Observer, where: Where) -> RunState:
        """Measure the missing trials at the places that the plan names; those in ``where.labs`` at the same time.

        Raises LabError for other places, and for a scheduler: the places of a study are this machine's;
        StrangersFileError for another user's run.
        """
        if where.scheduler is not None:
            raise LabError("--scheduler: a study measures on this machine and in its guests", remedy="leave it out")
        return self.execute(observer, where.labs)

    def check_raw(self) -> None:
        """Warn (ResultsWarning) where raw files are gone."""
        warn_gone(self.directory, all_gone(self.directory))

    def rows(self) -> pd.DataFrame:
        """Return the measurements that count, a row each."""
        return self.table()

    def summary(self) -> list[str]:
        around = provenance.summary(self.directory)
        return [*self.notes, *([f"measured with {around}"] if around else []), *self.failures(), ending(self.state)]

    def findings(self) -> list[Finding]:
        """Return what was not measured, and why."""
        return not_measured(last_attempts(self.directory).values(), self.state)

    def audit(self) -> PlainAudit:
        return PlainAudit(self.directory.name, tuple(self.findings()))

    def around(self) -> Mapping[str, str]:
        """Return what was recorded of the places before the run, by name."""
        return provenance.around(self.directory)

    def compare(
        self, other: AnyRun, metric: str | None = None, *, equal: Sequence[AnyRun] = (), margin: float = MARGIN
    ) -> ComparedRuns:
        """Compare ``other`` with this run, row by row of its table and over all."""
        every: tuple[AnyRun, ...] = (self, other, *equal)
        require_same_kind(*every)
        words = {point.point_id: str(point) for point in self.points}
        directories, tables = [run.directory for run in every], [run.rows() for run in every]
        unlike = differences(self.around(), other.around())
        return compared_rows(directories, tables, metric or self.metric, words, margin, unlike)


_NAMED = 3
"""Points that a line names; of more it says how many there are."""


def _first_of(points: Sequence[str]) -> str:
    more = len(points) - _NAMED
    return "; ".join(points) if more <= 1 else f"{'; '.join(points[:_NAMED])} and {more} more points"


class _Waiting:
    """Writes down, and says, for whom a run waits: the journal is all that a notebook sees of it."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._why: str | None = None

    def __call__(self, why: str | None) -> None:
        if why != self._why:
            self._directory.journal.append("waiting", why=why)
            warn(why)
        self._why = why


@dataclass(frozen=True)
class _Recorded(Generic[P]):
    """A measurer, whose places are asked what they are as they are entered."""

    inner: PlacedStudy[StudyTrial[P], Any]
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


def said(drawn: Sequence[Drawn]) -> list[str]:
    """Return a line per figure: where it is, or why it is not."""
    lines = []
    for figure in drawn:
        where = next((file for file in figure.files if file.suffix == ".png"), None)
        lines.append(f"figure {figure.stem}: {where}" if where else f"no figure {figure.stem}: {figure.reason}")
    return lines


def draw_views(
    views: Mapping[str, MakeView], table: pd.DataFrame, folder: Path, *, style: str, run: str, around: str | None = None
) -> list[Drawn]:
    """Draw every figure the table holds something for, its marks as CSV and Markdown; for the rest, the reason.

    ``around``, what the run was measured with, is the last line of each caption; it is not on the figure, where it
    would take half of the height.
    """
    drawn = []
    for name, make in views.items():
        try:
            view = make(table)
        except NotApplicableError as error:
            drawn.append(Drawn(name, name, (), str(error)))
            continue
        if around:
            short = view.look.words.short_caption or view.caption
            view = view.captioned((*view.caption, f"Measured with {around}."), short)
        files = save(view, folder, name, style=style, source={"run": run})
        shown = view.marks.drop(columns=["file", "limited_by"]).dropna(axis=1, how="all")
        caption = "\n".join(view.caption)
        text = f"# {view.look.axes.y_label}\n\n{markdown(shown)}\n{caption}\n"
        note = write_whole(folder / f"{name}.md", text.encode())
        drawn.append(Drawn(name, name, (*files, note)))
    return drawn
