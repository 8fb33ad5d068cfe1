"""The offload study for the runner: a block is a guest with netdevsim, a trial is one question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xdplab.deploy.native import build_tool
from xdplab.hosts.local import LocalHost
from xdplab.labs import Lab
from xdplab.studies.guests import free_lab
from xdplab.studies.offload import netdevsim
from xdplab.studies.offload.bench import OffloadDevices, write
from xdplab.studies.offload.points import OffloadPoint, kernel_of
from xdplab.studies.offload.questions import QUESTIONS
from xdplab.studies.placed import PlacedSession
from xdplab.studies.places import Place, PlaceFacts
from xdplab.studies.points import StudyTrial

ONE, OTHER = 71, 72
CARDS = {ONE: 2, OTHER: 1}
"""Numbers of the cards, which nothing else in a guest is likely to use, and their ports."""

ANSWER, SAID = "answer.json", "said.jsonl"
PLAIN = "eth0"
_FOLDER = "/tmp/xdplab-offload"


@dataclass
class OffloadFacts(PlaceFacts):
    """A trial's facts: the lab, and the build of netdevsim."""

    lab: str | None = None
    module: str | None = None


class OffloadStudy(PlacedSession):
    """Asks questions; one guest is up at a time."""

    facts = OffloadFacts

    def __init__(self) -> None:
        super().__init__()
        self._bench: OffloadDevices | None = None
        self._module = ""

    def enter_block(self, trials: Sequence[StudyTrial[OffloadPoint]]) -> None:
        place = trials[0].point.place
        module = netdevsim.build(kernel_of(place))
        lab = self.stack.enter_context(free_lab(place))
        self._bench = self._prepared(lab, module)
        release = self._bench.host.run(["uname", "-r"]).text.strip()
        self.place = Place(place, self._bench.host, "time", release, lab.label)
        self._module = module.parent.name

    def _prepared(self, lab: Lab, module: Path) -> OffloadDevices:
        guest = lab.host("guest")
        cards = self.stack.enter_context(netdevsim.in_guest(guest, module, CARDS))
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
