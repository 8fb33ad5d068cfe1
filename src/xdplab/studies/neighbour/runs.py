"""Study neighbour, as a kind of run: a block is a lab, a trial is one arm: TCP at full rate, then paced."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from xdplab.deploy.xdp import XdpRequest, attach, await_nothing_attached
from xdplab.errors import HostError, UnsupportedError
from xdplab.labs import Lab
from xdplab.programs.build import build
from xdplab.programs.program import cache_directory
from xdplab.programs.spec import UserProgram
from xdplab.run.waiting import WAITS
from xdplab.studies.guests import PlacedSession, tool_in
from xdplab.studies.neighbour.points import (
    ARMS,
    OBJECT,
    YOURS,
    NeighbourPoint,
    NeighbourRequest,
    gather,
    smallest,
)
from xdplab.studies.neighbour.rows import VIEWS, NeighbourFacts, results, table_of, tables_of
from xdplab.studies.neighbour.tcp import hold_addresses, offloads, require_tool, transfer
from xdplab.studies.points import ONE_MACHINE, StudyPlan, StudyPlanning, StudyTrial
from xdplab.studies.study_kind import study_kind

_PASS = Path(__file__).parent / "programs" / "pass.bpf.c"
_SETTLE_S = 0.3
"""A driver may restart its queues when a native program comes or goes, and TCP would pay for that: all arms wait."""


class NeighbourStudy(PlacedSession):
    """Sends TCP through the link of a lab, with each arm's program attached to the DUT's port or with none."""

    facts = NeighbourFacts

    def __init__(self, plan: StudyPlan[NeighbourRequest, NeighbourPoint]) -> None:
        super().__init__()
        self._yours = plan.directory.path / OBJECT
        self._lab: Lab | None = None

    def enter_block(self, trials: Sequence[StudyTrial[NeighbourPoint]]) -> None:
        name = trials[0].point.place
        lab = self._lab = self.enter_lab(name)
        if lab.clock != "time":
            raise UnsupportedError(f"{name}: {lab.label}: TCP needs time", remedy="netns, vm:KERNEL:kvm, an inventory")
        require_tool(lab)
        self.tool = tool_in(lab, lab.dut, "xdpload")
        await_nothing_attached(lab.dut, lab.dut_interface)
        hold_addresses(lab, self.stack)

    def measure(self, trial: StudyTrial[NeighbourPoint], raw: Path, facts: NeighbourFacts) -> None:
        lab, point = self._lab, trial.point
        assert lab is not None  # the runner enters the block first
        self.at(facts)
        with lab.turn(WAITS.get()), self._attached(lab, point, facts):
            time.sleep(_SETTLE_S)
            facts.dut_offloads = offloads(lab.dut, lab.dut_interface)
            facts.tg_offloads = offloads(lab.tg, lab.tg_interface)
            try:
                transfer(lab, point.seconds, lambda name, data: (raw / name).write_bytes(data))
            except HostError as error:
                if ARMS[point.arm].program != YOURS:
                    raise
                raise UnsupportedError(f"TCP does not get through your program: {error.message}") from error

    @contextmanager
    def _attached(self, lab: Lab, point: NeighbourPoint, facts: NeighbourFacts) -> Iterator[None]:
        """Hold the arm's program on the DUT's port, read back; nothing for the arm without one."""
        arm = ARMS[point.arm]
        if arm.mode is None:
            yield
            return
        file, section = (self._yours, "xdp") if arm.program == YOURS else (_PASS, "tc" if arm.mode == "tcx" else "xdp")
        built = build(UserProgram(str(file), section, action="pass"), cache_directory())
        path = f"{lab.work_dir(lab.dut)}/{built.hash}.bpf.o"
        lab.dut.put(built.object, path)
        request = XdpRequest(path, lab.dut_interface, arm.mode, options=tuple(built.load_options))
        with attach(lab.dut, self.tool, request) as loader:
            facts.mode_obtained = loader.in_kernel(lab.dut).mode
            yield
            loader.detach()


STUDY = study_kind(
    StudyPlanning(
        "neighbour",
        "What does a program on a port cost the host that goes on serving TCP through it?",
        NeighbourRequest,
        NeighbourPoint,
        gather,
        smallest,
        not_shown=f"{ONE_MACHINE} One stream of TCP, in one direction: to the port with the program.",
    ),
    session=NeighbourStudy,
    table=table_of,
    tables=tables_of,
    views=VIEWS,
    results=results,
    version="2",
)
