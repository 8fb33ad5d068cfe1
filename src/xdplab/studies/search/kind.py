"""Runs of a plan through the common interface: XDP traffic that is measured or searched.

A search is a plan whose trials are searched in the testbed of the traffic study: this module joins the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from xdplab.analysis import MARGIN
from xdplab.analysis.findings import Finding
from xdplab.analysis.summary import constant_words, for_people, points_summary, varying
from xdplab.errors import FigureError, PlanError, ResultsError
from xdplab.figures.catalogue import CATALOGUE
from xdplab.figures.catalogue import figure as traffic_figure
from xdplab.labs import Lab, use_lab
from xdplab.later import later
from xdplab.plan import Plan, Trial
from xdplab.run.derived import Recipe, Tables, table
from xdplab.run.progress import Observer
from xdplab.run.rundir import RunDirectory, read_json
from xdplab.run.state import RunState, last_attempts, read_state
from xdplab.studies.comparing import ComparedRuns, compared_rows
from xdplab.studies.every import AnyAudit, AnyRun, PlainAudit, Where, not_measured, require_same_kind
from xdplab.studies.frame import draw_views, said
from xdplab.studies.search.profile import Profile, Rfc2544Tests
from xdplab.studies.search.rows import TABLE, point_label, remarks, rfc2544_tables, search_table, shown
from xdplab.studies.search.study import SearchStudy
from xdplab.studies.search.views import VIEWS
from xdplab.studies.tables import Table
from xdplab.studies.traffic import pdr, runs
from xdplab.studies.traffic.bench import TrialBench
from xdplab.studies.traffic.calibrating import calibrated, usable
from xdplab.studies.traffic.comparison import around, compared
from xdplab.studies.traffic.planned import Files, run_trials_of
from xdplab.studies.traffic.runs import MEASURED, TrafficMethod

if TYPE_CHECKING:
    from xdplab.figures import draw as drawer
else:
    drawer = later("xdplab.figures.draw")

ASKED = "search.json"
"""The file with a search's options in its run: a continued search must use the same."""


class PlanRun:
    """A run of XDP traffic, measured here or imported."""

    kind_name = "traffic"
    metric = "forwarded_pps"

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory

    @property
    def way(self) -> TrafficMethod:
        return MEASURED

    @property
    def state(self) -> RunState:
        return read_state(self.directory)

    def measure(self, observer: Observer, where: Where) -> RunState:
        """Measure the missing trials where the run was, or in the lab or labs of ``where``.

        Raises StrangersFileError for another user's run.
        """
        self.directory.require_trust()
        labs = where.labs
        if not labs and where.lab is None:
            labs = runs.shared_by(self.directory)
        if labs:
            from xdplab.studies.traffic.fleet import joined  # Dask takes a second to load

            with joined(labs, where.scheduler) as together:
                return together.execute(self.directory, observer, self.way)
        with use_lab(where.lab or runs.lab_of(self.directory)) as lab:
            return runs.execute(self.directory, lab, observer, self.way, steal=where.steal)

    def complete(self) -> list[str]:
        return [] if self.directory.imported else runs.complete(self.directory, self.way.recipe)

    def keep_tables(self) -> Path:
        return runs.keep_tables(self.directory, self.way.recipe)

    def check_raw(self) -> None:
        runs.check_raw(self.directory)

    def rows(self) -> pd.DataFrame:
        """Return one row per trial: its last attempt, judged by the current rules."""
        return runs.settled_trials(self.directory)

    def samples(self) -> pd.DataFrame:
        """Return one row per interval of 100 ms."""
        return runs.samples_table(self.directory)

    def points_summary(self) -> pd.DataFrame:
        """Return one row per point: varying factors, n, means with their intervals, verdicts."""
        return points_summary(self.rows())

    def tables(self) -> dict[str, Table]:
        trials = self.rows()
        if trials.empty:
            return {}
        alike = constant_words(trials, varying(trials))
        title = f"{trials['point_id'].nunique()} points, mean ± half of its 95 % interval over n valid repetitions"
        return {"points": Table(f"{title}; {alike}", for_people(points_summary(trials)))}

    def summary(self) -> list[str]:
        return runs.summary(self.directory)

    def draw_figures(
        self, *, names: Sequence[str] = (), style: str = "paper-1col", out: Path | None = None
    ) -> list[str]:
        return runs.draw_figures(self.directory, names=names, style=style, out=out)

    @property
    def figure_names(self) -> list[str]:
        return list(CATALOGUE)

    def figure(self, name: str | None = None, **options: Any) -> Any:
        """Draw one figure; ``options``: hue, panel, where, value, style, ax, figsize, caption."""
        return traffic_figure(name or "throughput", self.rows(), **options)

    def findings(self) -> list[Finding]:
        return runs.audit(self.directory)

    def audit(self) -> AnyAudit:
        return runs.full_audit(self.directory)

    def compare(
        self, other: AnyRun, metric: str | None = None, *, equal: Sequence[AnyRun] = (), margin: float = MARGIN
    ) -> ComparedRuns:
        """Say whether ``other`` is faster than, slower than or the same as this run, point by point and over all."""
        require_same_kind(self, other, *equal)
        same, value = [run.directory for run in equal], metric or self.metric
        both = self.directory, other.directory
        kept = calibrated(*map(around, both)) if usable(value, same) else None
        return compared(*both, value, equal=same, margin=margin, calibration=kept)


@dataclass(frozen=True)
class SearchRequest:
    """The options of a search; ``share``: also find the largest N that keeps this share of the throughput at N = 0."""

    profile: Profile
    share: float | None = None

    def to_json(self) -> dict[str, Any]:
        return {"profile": asdict(self.profile), "share": self.share}

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> SearchRequest:
        profile = {**kept["profile"], "frame_bytes": tuple(kept["profile"]["frame_bytes"])}
        if tests := profile.get("rfc2544"):
            profile["rfc2544"] = Rfc2544Tests(**tests)
        return cls(Profile(**profile), kept["share"])


class SearchRun(PlanRun):
    """A run whose points were searched: NDR, PDR, MRR, and latency at shares of the PDR."""

    kind_name = "search"
    metric = "pdr_pps"

    def __init__(self, directory: RunDirectory) -> None:
        super().__init__(directory)
        self.asked = read_json(directory.path / ASKED, SearchRequest.of)

    @property
    def way(self) -> TrafficMethod:
        return TrafficMethod(partial(_session, self.asked), RECIPE, patient=False)

    def rows(self) -> pd.DataFrame:
        """Return one row per point and repetition: its last attempt; rates in frames per second, latencies in ns."""
        found = table(self.directory, RECIPE, TABLE)
        return found.drop_duplicates("trial_id", keep="last", ignore_index=True) if len(found) else found

    def samples(self) -> pd.DataFrame:
        raise ResultsError(f"{self.directory.path} is a search: it has bursts, but no samples", remedy="see its raw/")

    def check_raw(self) -> None:
        """A search's table is made only from the journal."""

    def tables(self) -> dict[str, Table]:
        rows = self.rows()
        found = {"searches": Table("Rates without loss, with little loss, and the maximum", pd.DataFrame(shown(rows)))}
        rfc = {name: pd.DataFrame(own) for name, own in rfc2544_tables(rows).items() if own}
        return found | {f"rfc2544-{name}": Table(_RFC2544[name], frame) for name, frame in rfc.items()}

    def summary(self) -> list[str]:
        return remarks(self.rows())

    def draw_figures(
        self, *, names: Sequence[str] = (), style: str = "paper-1col", out: Path | None = None
    ) -> list[str]:
        for name in names:
            _require(name)
        views = {name: make for name, make in VIEWS.items() if not names or name in names}
        folder = out or self.directory.figures
        return said(draw_views(views, self.rows(), folder, style=style, run=self.directory.run_id))

    @property
    def figure_names(self) -> list[str]:
        return list(VIEWS)

    def figure(self, name: str | None = None, **options: Any) -> Any:
        """Draw one figure; ``options``: style, ax, figsize, caption."""
        _require(name or "rates")
        return drawer.draw(VIEWS[name or "rates"](self.rows()), **options)

    def findings(self) -> list[Finding]:
        return not_measured(last_attempts(self.directory).values(), self.state)

    def audit(self) -> AnyAudit:
        return PlainAudit(self.directory.name, tuple(self.findings()))

    def compare(
        self, other: AnyRun, metric: str | None = None, *, equal: Sequence[AnyRun] = (), margin: float = MARGIN
    ) -> ComparedRuns:
        """Say whether ``other`` found the same as this search, point by point and over all."""
        every: tuple[AnyRun, ...] = (self, other, *equal)
        require_same_kind(*every)
        tables = [run.rows() for run in every]
        words = {str(row["point_id"]): point_label(row) for table in tables for row in table.to_dict("records")}
        return compared_rows([run.directory for run in every], tables, metric or self.metric, words, margin)


_RFC2544 = {
    "throughput": "Throughput (RFC 2544, 26.1)",
    "latency": "Latency at the throughput (26.2), from when a frame was due until it was received",
    "loss": "Frame loss rate by share of the maximum rate (26.3)",
    "back_to_back": "Back-to-back frames (26.4 and RFC 9004)",
}


def _require(name: str) -> None:
    if name not in VIEWS:
        raise FigureError(f"no figure {name!r}", remedy=f"figures of a search are {', '.join(VIEWS)}")


def _searched(run: RunDirectory, _before: Tables) -> Tables:
    return {TABLE: search_table(run, {trial.trial_id: trial for trial in run_trials_of(run)})}


RECIPE = Recipe((TABLE,), "1", _searched)


@contextmanager
def _session(
    asked: SearchRequest, lab: Lab, run: RunDirectory, plan: Plan, trials: Sequence[Trial]
) -> Iterator[SearchStudy]:
    with TrialBench(lab, run, plan, trials) as bench:
        yield SearchStudy(bench, asked.profile, share=asked.share)


def start_search(
    plan: Plan, asked: SearchRequest, lab: Lab, parent: Path, *, only: Mapping[str, str] | None = None
) -> SearchRun:
    """Make the run directory of a search of every point of ``plan``; nothing is measured yet. Raises PlanError."""
    wanted = as_searched(plan, asked.profile)
    return SearchRun(runs.start(wanted, lab, parent, only=only, files={ASKED: asked.to_json()}))


def as_searched(plan: Plan, chosen: Profile) -> Plan:
    """A search finds the load itself; a standard's profile has its own frame sizes. Raises PlanError."""
    if plan.open_ended:
        raise PlanError("a search repeats each point a given number of times", remedy="give `repetitions` a number")
    frames = {"frame_bytes": list(chosen.frame_bytes)} if chosen.frame_bytes else {}
    blocks = [
        block.model_copy(
            update={
                "points": block.points.model_copy(update=frames),
                "traffic": block.traffic.model_copy(update={"load": ["max"]}),
            }
        )
        for block in plan.blocks
    ]
    return plan.model_copy(update={"blocks": blocks})


def pdr_files(search: AnyRun) -> Files:
    """Return the file that gives a run the PDRs of ``search``. Raises ResultsError if it is not a search."""
    if search.kind_name != "search":
        raise ResultsError(f"{search.directory.path} is not a search", remedy="`xdplab search PLAN` makes one")
    return {pdr.FILE: pdr.of_search(search.directory.name, search.rows())}


@dataclass(frozen=True)
class PlanKind:
    """A kind of run that a plan makes."""

    name: str
    run: type[PlanRun]

    def open(self, path: Path) -> AnyRun:
        return self.run(RunDirectory.open(path))


TRAFFIC, SEARCH = PlanKind("traffic", PlanRun), PlanKind("search", SearchRun)
