"""Study offload, as a kind of run: a block is a guest with netdevsim, a trial is one question."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from xdplab.deploy.native import build_tool
from xdplab.hosts.local import LocalHost
from xdplab.labs import Lab
from xdplab.studies.guests import PlacedSession, free_lab
from xdplab.studies.offload import bench
from xdplab.studies.offload.bench import ANSWER, OffloadDevices, OffloadFacts, write
from xdplab.studies.offload.points import OffloadPoint, OffloadRequest, gather, kernel_of, smallest
from xdplab.studies.offload.questions import QUESTIONS
from xdplab.studies.offload.rows import results, table_of, tables_of
from xdplab.studies.places import Place
from xdplab.studies.points import StudyPlanning, StudyTrial
from xdplab.studies.study_kind import study_kind

ONE, OTHER = 71, 72
CARDS = {ONE: 2, OTHER: 1}
"""Numbers of the cards, which nothing else in a guest is likely to use, and their ports."""

SAID = "said.jsonl"
PLAIN = "eth0"
_FOLDER = "/tmp/xdplab-offload"


class OffloadStudy(PlacedSession):
    """Asks questions; one guest is up at a time."""

    facts = OffloadFacts

    def __init__(self) -> None:
        super().__init__()
        self._bench: OffloadDevices | None = None
        self._module = ""

    def enter_block(self, trials: Sequence[StudyTrial[OffloadPoint]]) -> None:
        place = trials[0].point.place
        module = bench.build_module(kernel_of(place))
        lab = self.stack.enter_context(free_lab(place))
        self._bench = self._prepared(lab, module)
        release = self._bench.host.run(["uname", "-r"]).text.strip()
        self.place = Place(place, self._bench.host, "time", release, lab.label)
        self._module = module.parent.name

    def _prepared(self, lab: Lab, module: Path) -> OffloadDevices:
        guest = lab.host("guest")
        cards = self.stack.enter_context(bench.in_guest(guest, module, CARDS))
        xdpload = f"{_FOLDER}/xdpload"
        guest.put(Path(build_tool(LocalHost(), "xdpload", str(lab.native_dir))), xdpload, mode=0o755)
        return OffloadDevices(guest, xdpload, _FOLDER, cards[ONE], cards[OTHER], PLAIN)

    def measure(self, trial: StudyTrial[OffloadPoint], raw: Path, facts: OffloadFacts) -> None:
        assert self._bench is not None  # the runner enters the block first
        facts.lab, facts.module = self.at(facts).label, self._module
        try:
            write(raw / ANSWER, QUESTIONS[trial.point.question].ask(self._bench))
        finally:
            (raw / SAID).write_bytes(self._bench.raw())


STUDY = study_kind(
    StudyPlanning(
        "offload",
        "What does a card that offloads XDP accept, and what does it refuse?",
        OffloadRequest,
        OffloadPoint,
        gather,
        smallest,
    ),
    session=lambda _plan: OffloadStudy(),
    table=table_of,
    tables=tables_of,
    views={},
    results=results,
)
