"""A search as a kind of run: a plan whose trials are searched in the testbed of the traffic study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from xdplab.errors import PlanError, ResultsError
from xdplab.labs import Lab
from xdplab.plan import Plan, Trial
from xdplab.run.derived import Before, Recipe, Tables
from xdplab.run.rundir import SEARCHED, RunDirectory, read_json
from xdplab.studies.comparing import ComparedRuns, compared_rows
from xdplab.studies.figure_table import Views
from xdplab.studies.kind import Kind, Run
from xdplab.studies.plain_audit import audit, findings
from xdplab.studies.search.profile import Profile, Rfc2544Tests
from xdplab.studies.search.rows import TABLE, answer, point_label, rfc2544_lines, rfc2544_tables, search_table, shown
from xdplab.studies.search.study import SearchStudy
from xdplab.studies.search.views import VIEWS
from xdplab.studies.tables import Table
from xdplab.studies.traffic import pdr, runs
from xdplab.studies.traffic.bench import TrialBench
from xdplab.studies.traffic.kind import TRAFFIC, at
from xdplab.studies.traffic.run_files import Files, run_trials_of
from xdplab.studies.traffic.runs import TrafficMethod


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


def _rows_as_tables(run: Run[SearchRequest]) -> dict[str, Table]:
    rows = run.rows()
    title = "Rates without loss, with little loss, and the maximum"
    tables_by_name = {"searches": Table(title, pd.DataFrame(shown(rows)), None, answer(rows)[0])}
    rfc = {name: pd.DataFrame(rows_of) for name, rows_of in rfc2544_tables(rows).items() if rows_of}
    lines = rfc2544_lines(rows)
    return tables_by_name | {
        f"rfc2544-{name}": Table(_RFC2544[name], frame, None, lines.get(name, "")) for name, frame in rfc.items()
    }


def _compare(
    first: Run[SearchRequest],
    second: Run[SearchRequest],
    metric: str,
    equal: Sequence[Run[SearchRequest]],
    margin: float,
) -> ComparedRuns:
    runs = (first, second, *equal)
    tables = [run.rows() for run in runs]
    labels = {str(row["point_id"]): point_label(row) for table in tables for row in table.to_dict("records")}
    return compared_rows([run.directory for run in runs], tables, metric, labels, margin)


_RFC2544 = {
    "throughput": "Throughput (RFC 2544, 26.1)",
    "latency": "Latency at the throughput (26.2), from when a frame was due until it was received",
    "loss": "Frame loss rate by share of the maximum rate (26.3)",
    "back_to_back": "Back-to-back frames (26.4 and RFC 9004)",
}


def _searched(run: RunDirectory, _before: Before) -> Tables:
    return {TABLE: search_table(run, {trial.trial_id: trial for trial in run_trials_of(run)})}


@contextmanager
def _session(
    request: SearchRequest, lab: Lab, run: RunDirectory, plan: Plan, trials: Sequence[Trial]
) -> Iterator[SearchStudy]:
    with TrialBench(lab, run, plan, trials) as bench:
        yield SearchStudy(bench, request.profile, share=request.share)


def method(request: SearchRequest) -> TrafficMethod:
    """Return how each trial is searched: once, as a search repeats its own bursts."""
    return TrafficMethod(partial(_session, request), searches=True)


SEARCH: Kind[SearchRequest] = Kind(
    name="search",
    read=lambda directory: read_json(directory.path / SEARCHED, SearchRequest.of),
    at=lambda run, where: at(run, where, method(run.plan)),
    recipe=lambda _: Recipe((TABLE,), "2", _searched, needs_raw=False),
    tables=_rows_as_tables,
    summary=lambda run: answer(run.rows()),
    pictures=Views(VIEWS),
    metric=lambda _: "pdr_pps",
    around=TRAFFIC.around,
    compare=_compare,
    findings=findings,
    audit=audit,
)
"""A run whose points were searched: NDR, PDR, MRR, and latency at shares of the PDR. Rates in frames per second,
latencies in ns."""


def start_search(
    plan: Plan, request: SearchRequest, lab: Lab, parent: Path, *, only: Mapping[str, str] | None = None
) -> Run[SearchRequest]:
    """Make the run directory of a search of every point of ``plan``; nothing is measured yet. Raises PlanError."""
    wanted = as_searched(plan, request.profile)
    return SEARCH.run(runs.start(wanted, lab, parent, only=only, files={SEARCHED: request.to_json()}))


def as_searched(plan: Plan, chosen: Profile) -> Plan:
    """A search finds the load itself; a standard's profile has its own frame sizes. Raises PlanError."""
    if plan.open_ended:
        raise PlanError("a search repeats each point a given number of times", remedy="give `repetitions` a number")
    if any(timing != "load" for block in plan.blocks for timing in block.traffic.timing):
        raise PlanError("a search finds the load itself, and `timing: recorded` has its own", remedy="omit it")
    if any(burst > 1 for block in plan.blocks for burst in block.traffic.burst):
        raise PlanError("a search spaces frames evenly", remedy="omit `burst`; a run's share of that PDR may have it")
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


def pdr_of(name: str, table: pd.DataFrame) -> dict[str, Any]:
    """Return the part of a search's table that a run stores: the median PDR over the repetitions of each point.

    ``labs`` are those that searched it, ``limited`` is what ended the search before the DUT's limit was reached.
    """
    by_key = table.dropna(subset=["pdr_pps"]).groupby("pdr_key")
    medians = {str(key): float(value) for key, value in by_key["pdr_pps"].median().items()}
    remarks: dict[str, dict[str, list[str]]] = {"labs": {}, "limited": {}}
    for key, rows in by_key:
        remarks["labs"][str(key)] = sorted(set(rows["lab"].dropna())) if "lab" in rows else []
        limits = set(rows["limited_by"].dropna()) if "limited_by" in rows else set()
        remarks["limited"][str(key)] = sorted(limits & {"generator"})
    return {"search": name, "pdr_pps": medians, **remarks}


def pdr_files(search: Run[Any]) -> Files:
    """Return the file that gives a run the PDRs of ``search``. Raises ResultsError if it is not a search."""
    if search.kind.name != "search":
        raise ResultsError(f"{search.directory.path} is not a search", remedy="`xdplab search PLAN` makes one")
    return {pdr.FILE: pdr_of(search.directory.name, search.rows())}
