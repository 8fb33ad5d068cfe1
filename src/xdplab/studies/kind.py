"""One `Run` for every kind of run, and `Kind`: what is particular to one. The command line and the notebook use only
these."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from xdplab.analysis import MARGIN
from xdplab.errors import ResultsError, XdplabError
from xdplab.labs import Lab
from xdplab.lazy import lazy
from xdplab.run.derived import Recipe, derive, is_owed, table
from xdplab.run.progress import Observer, silent
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import RunState, read_state
from xdplab.run.waiting import recorded
from xdplab.text import step

if TYPE_CHECKING:
    import pandas as pd

    from xdplab.analysis.findings import Finding
    from xdplab.studies.tables import Table

kept, provenance = lazy("xdplab.studies.kept"), lazy("xdplab.studies.provenance")
maker, gone = lazy("xdplab.studies.maker"), lazy("xdplab.run.gone")
P = TypeVar("P")
Reader = Callable[[Path], "pd.DataFrame"]
"""Reads a table's file, for callers that need only a part."""
SAMPLES = "samples.parquet"


@dataclass(frozen=True)
class Where:
    """Where a run is measured: in a lab (its name, or one that is up), or in several at once; by default where it was.

    ``steal`` takes one lab's servers from a run that is silent.
    """

    lab: str | Lab | None = None
    labs: tuple[str, ...] = ()
    scheduler: str | None = None
    steal: bool = False


class Workplace(Protocol):
    """What can measure a run's missing trials: labs that are up, or places that a study brings up itself."""

    def measure(self, run: Run[Any], observer: Observer) -> RunState: ...


class Planning(Protocol):
    """How a study's request becomes the points of a run: `xdplab.studies.points.StudyPlanning`."""

    @property
    def smallest(self) -> Callable[[Any], Any]:
        """Makes a request as small as still shows everything: a minute or two."""

    @property
    def question(self) -> str: ...

    @property
    def not_shown(self) -> str: ...

    def request_of(self, values: Mapping[str, Any], where: str = "") -> Any:
        """Return the request with these fields. Raises PlanError for a name that is none."""

    def start(self, request: Any, parent: Path, name: str | None = None) -> RunDirectory: ...


class Pictures(Protocol):
    """The figures of a kind of run, each by its name."""

    def names(self, run: Run[Any]) -> list[str]: ...

    def draw(self, run: Run[Any], names: Sequence[str], **options: Any) -> list[Any]:
        """Draw all figures that apply, or ``names``; return each with its files, or with why it was not drawn."""

    def figure(self, run: Run[Any], name: str | None, **options: Any) -> Any:
        """Draw one figure for a notebook, the first by default. Raises FigureError."""

    def explain(self, run: Run[Any], figure: str, mark: str, data: Sequence[Path]) -> list[str]:
        """Return what is behind the marks of a figure; ``data`` are an import's logs. Raises FigureError, PlanError."""


class RunAudit(Protocol):
    """The results of a run that are not trustworthy."""

    def to_json(self) -> dict[str, Any]: ...

    def to_markdown(self) -> str: ...


def first_table(run: Run[Any], read: Reader | None = None) -> pd.DataFrame:
    """Return the first of a run's tables: its own if it is current, else derived again."""
    return table(run.directory, run.recipe, run.recipe.files[0], read)


@dataclass(frozen=True)
class Kind(Generic[P]):
    """What is particular to a kind of run. Everything that all have in common is in `Run`."""

    name: str
    read: Callable[[RunDirectory], P]
    """Reads a run's plan. Raises ResultsError, PlanError."""
    at: Callable[[Run[P], Where], AbstractContextManager[Workplace]]
    """Gives the place that measures a run: where it was, or as `Where` says."""
    recipe: Callable[[Run[P]], Recipe]
    """How its tables are derived."""
    tables: Callable[[Run[P]], dict[str, Table]]
    """The printed tables, by name."""
    summary: Callable[[Run[P]], list[str]]
    """The results in a few lines."""
    pictures: Pictures
    metric: Callable[[Run[P]], str]
    """The column that is compared by default."""
    around: Callable[[RunDirectory], Mapping[str, str]]
    """What was recorded of the places before a run, by name."""
    compare: Callable[[Run[P], Run[P], str, Sequence[Run[P]], float], Any]
    findings: Callable[[Run[P]], list[Finding]]
    """What in a run is not trustworthy."""
    audit: Callable[[Run[P]], RunAudit]
    """The findings with all that belongs to them."""
    attempts: Callable[[Run[P], Reader | None], pd.DataFrame] = first_table
    """The rows of its first table."""
    of_results: Reader | None = None
    """Reads the columns that its results are made of."""
    one_row_a_trial: bool = True
    """Whether the last row of a trial is the one that counts."""
    planning: Planning | None = None
    """How a study's request becomes points; None for plans of XDP traffic."""

    def start(self, request: Any, parent: Path, name: str | None = None) -> Run[P]:
        """Make the run directory of a study's request in ``parent``; nothing is measured yet. Raises PlanError."""
        assert self.planning is not None
        return Run(self, self.planning.start(request, parent, name))

    def run(self, directory: RunDirectory) -> Run[P]:
        return Run(self, directory)


@dataclass(frozen=True)
class Run(Generic[P]):
    """A run on disk, of any kind."""

    kind: Kind[P]
    directory: RunDirectory

    @cached_property
    def plan(self) -> P:
        """What the run was asked to measure. Raises ResultsError, PlanError for a file that was edited or damaged."""
        return self.kind.read(self.directory)

    @cached_property
    def recipe(self) -> Recipe:
        return self.kind.recipe(self)

    @property
    def state(self) -> RunState:
        return read_state(self.directory)

    @cached_property
    def _made(self) -> dict[object, tuple[object, Any]]:
        return {}

    def _once(self, name: object, make: Callable[[], Any]) -> Any:
        """Return what is made of the run, and is made again only after its journal has changed."""
        written = self.directory.journal.path.stat()
        stamp = written.st_size, written.st_mtime_ns
        if name not in self._made or self._made[name][0] != stamp:
            self._made[name] = stamp, make()
        return self._made[name][1]

    def measure(self, observer: Observer | None = None, where: Where | None = None) -> RunState:
        """Measure the missing trials, where the run was or at ``where``, and derive the tables.

        A trial that cannot be measured gets that verdict; the others continue. Raises StrangersFileError for another
        user's run, LabError for a place that cannot measure it.
        """
        self.directory.require_trust()
        with self.kind.at(self, where or Where()) as place:
            return self.measure_at(place, observer or silent())

    def measure_at(self, place: Workplace, observer: Observer) -> RunState:
        """Measure the missing trials at a place, then derive the tables, also after an interrupt."""
        self.directory.require_trust()
        with self.directory.writer(), recorded(self.directory):
            try:
                state = place.measure(self, observer)
            except BaseException:
                with suppress(XdplabError):  # a full disk must not hide what happened first
                    if self.state.last:
                        self.keep_tables()
                raise
            if not maker.has_made():
                self.keep_tables()
        return state

    def complete(self) -> list[str]:
        """Complete what a kill after the last trial interrupted, and return a description of it.

        Tables, the manifest, and the journal's line that the run is complete may be missing.
        """
        done: list[str] = []
        if not self.state.total:  # an import has planned nothing
            return done
        with self.directory.writer():
            if provenance.is_old(self.directory):
                provenance.keep(self.directory)
                done.append("the manifest was written")
            if is_owed(self.directory, self.recipe):
                done.append(f"the tables were derived: {self.keep_tables()}")
            state = self.state
            if not state.owed and state.ended != "complete":
                self.directory.journal.append("ended", how="complete")
        return done

    def keep_tables(self) -> Path:
        """Derive the tables if they are not current; return their folder."""
        with step("deriving the tables"):
            return derive(self.directory, self.recipe)

    def check_raw(self, *, anew: bool = False) -> None:
        """Warn (ResultsWarning) where raw files are gone that tables are made from; ``anew``: look at every file."""
        if self.recipe.needs_raw:
            gone.warn_gone(self.directory, kept.gone(self.directory, anew=anew))

    def attempts(self, read: Reader | None = None) -> pd.DataFrame:
        """Return the rows of the first table; of XDP traffic every attempt that ended. Writes nothing into the run.

        What ``read`` has read is not to be changed: it is the same every time.
        """
        table: pd.DataFrame = self._once(("attempts", read), lambda: self.kind.attempts(self, read))
        return table.copy() if read is None else table

    def rows(self, read: Reader | None = None) -> pd.DataFrame:
        """Return the measurements that count, a row each. Writes nothing into the run."""
        attempts = self.attempts(read)
        if not self.kind.one_row_a_trial or attempts.empty or attempts["trial_id"].is_unique:
            return attempts
        return attempts.drop_duplicates("trial_id", keep="last", ignore_index=True)

    def samples(self) -> pd.DataFrame:
        """Return one row per interval of 100 ms. Raises ResultsError for a run without samples."""
        if SAMPLES not in self.recipe.files:
            raise ResultsError(f"{self.directory.path} is a run of kind {self.kind.name}: it has no samples")
        return table(self.directory, self.recipe, SAMPLES)

    def tables(self) -> dict[str, Table]:
        """Return every printed table that has content, by name."""
        return {name: content for name, content in self.kind.tables(self).items() if not content.frame.empty}

    def summary(self) -> list[str]:
        return self.kind.summary(self)

    @property
    def metric(self) -> str:
        return self.kind.metric(self)

    @property
    def figure_names(self) -> list[str]:
        return self.kind.pictures.names(self)

    def draw_figures(self, names: Sequence[str] = (), **options: Any) -> list[Any]:
        """Draw all figures that apply, or ``names``; return each (`xdplab.figures.outcome.Drawn`): files, or why not.

        ``options`` are those of `xdplab.figures.factors.filed`. Without any, what was drawn is kept for a report.
        Raises FigureError.
        """
        source = kept.made_from(self.directory)
        drawn = self.kind.pictures.draw(self, names, **options)
        if not (names or options):
            kept.keep_figures(self.directory, drawn, source)
        return drawn

    def figure(self, name: str | None = None, **options: Any) -> Any:
        """Draw one figure for a notebook, the first by default. Raises FigureError."""
        return self.kind.pictures.figure(self, name, **options)

    def findings(self) -> list[Finding]:
        return list(self._once("findings", lambda: self.kind.findings(self)))

    def audit(self) -> RunAudit:
        return self.kind.audit(self)

    def around(self) -> Mapping[str, str]:
        return self.kind.around(self.directory)

    def compare(
        self, other: Run[Any], metric: str | None = None, *, equal: Sequence[Run[Any]] = (), margin: float = MARGIN
    ) -> Any:
        """Return `xdplab.studies.comparing.ComparedRuns`: whether ``other`` is faster than, slower than or the same as
        this run, point by point and over all.

        ``equal``: runs that measured the same as each other. Raises ResultsError for another kind of run, PlanError
        where there is no such column.
        """
        for one in (other, *equal):
            if one.kind.name != self.kind.name:
                raise ResultsError(
                    f"{self.directory.name} is a run of kind {self.kind.name}, {one.directory.name} of {one.kind.name}",
                    remedy="compare two runs of one kind",
                )
        return self.kind.compare(self, other, metric or self.metric, equal, margin)
