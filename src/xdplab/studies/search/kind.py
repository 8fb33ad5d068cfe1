"""A search as a kind of run: a plan whose trials are searched in the testbed of the traffic study."""

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
from xdplab.errors import FigureError, PlanError, ResultsError
from xdplab.labs import Lab
from xdplab.later import later
from xdplab.plan import Plan, Trial
from xdplab.run.derived import Recipe, Tables, table
from xdplab.run.rundir import RunDirectory, read_json
from xdplab.run.state import last_attempts
from xdplab.studies.comparing import ComparedRuns, compared_rows
from xdplab.studies.every import AnyAudit, AnyRun, PlainAudit, not_measured, require_same_kind
from xdplab.studies.frame import draw_views, said
from xdplab.studies.kinds import SEARCHED
from xdplab.studies.search.profile import Profile, Rfc2544Tests
from xdplab.studies.search.rows import TABLE, point_label, remarks, rfc2544_tables, search_table, shown
from xdplab.studies.search.study import SearchStudy
from xdplab.studies.search.views import VIEWS
from xdplab.studies.tables import Table
from xdplab.studies.traffic import pdr, runs
from xdplab.studies.traffic.bench import TrialBench
from xdplab.studies.traffic.kind import PlanRun
from xdplab.studies.traffic.planned import Files, run_trials_of
from xdplab.studies.traffic.runs import TrafficMethod

if TYPE_CHECKING:
    from xdplab.figures import draw as drawer
else:
    drawer = later("xdplab.figures.draw")


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
    is_race = False

    def __init__(self, directory: RunDirectory) -> None:
        super().__init__(directory)
        self.asked = read_json(directory.path / SEARCHED, SearchRequest.of)

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
    return SearchRun(runs.start(wanted, lab, parent, only=only, files={SEARCHED: asked.to_json()}))


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
