"""Study outage, as a kind of run: a block is a lab, a trial one change in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from xdplab.run.waiting import WAITS
from xdplab.studies.guests import PlacedSession
from xdplab.studies.outage.bench import OutageBench, OutageFacts
from xdplab.studies.outage.points import OutagePoint, OutageRequest, gather, smallest
from xdplab.studies.outage.rows import VIEWS, results, table_of, tables_of
from xdplab.studies.points import StudyPlanning, StudyTrial
from xdplab.studies.study_kind import study_kind


class OutageStudy(PlacedSession):
    """Changes programs; one lab is up at a time."""

    facts = OutageFacts

    def __init__(self) -> None:
        super().__init__()
        self._bench: OutageBench | None = None

    def enter_block(self, trials: Sequence[StudyTrial[OutagePoint]]) -> None:
        self._bench = OutageBench.at(self.enter_lab(trials[0].point.place))

    def measure(self, trial: StudyTrial[OutagePoint], raw: Path, facts: OutageFacts) -> None:
        assert self._bench is not None  # the runner enters the block first
        self.at(facts)
        with self._bench.lab.turn(WAITS.get()):
            self._bench.measure(trial.point, raw, facts)


STUDY = study_kind(
    StudyPlanning(
        "outage",
        "What is lost when an XDP program is attached, replaced or detached, or switches its mode?",
        OutageRequest,
        OutagePoint,
        gather,
        smallest,
    ),
    session=lambda _plan: OutageStudy(),
    table=table_of,
    tables=tables_of,
    views=VIEWS,
    results=results,
    version="2",
)
