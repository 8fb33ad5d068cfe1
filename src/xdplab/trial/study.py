"""XDP traffic as a study of the runner: a session in a lab, its blocks, and what is put back afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from xdplab import counters
from xdplab.deploy.device import apply, remember, restore_remembered
from xdplab.deploy.queues import Endpoint, queue_limit, set_queues
from xdplab.errors import PlanError
from xdplab.formats.ethtool import parse_rings
from xdplab.hosts import Host
from xdplab.labs import Lab
from xdplab.plan import Plan, Trial, points_of
from xdplab.store import RunDirectory
from xdplab.trial.life import TrialContext, measure
from xdplab.trial.prepare import build_tools, prepare_programs

# GRO keeps every mode on one path into the DUT: by NAPI. Without it the generic path depends on the sender.
LINK_SETTINGS = {"features.gro": True}


def endpoints(lab: Lab) -> tuple[Endpoint, Endpoint]:
    """The DUT's and the TG's end of the link."""
    return Endpoint(lab.dut, lab.dut_interface), Endpoint(lab.tg, lab.tg_interface)


def state_dir(lab: Lab, host: Host) -> str:
    """Where a host keeps the original state of its device until it is put back."""
    return f"{lab.work_dir(host)}/state"


def check_plan(plan: Plan, lab: Lab) -> None:
    """Raise PlanError naming the field of ``plan`` that this lab cannot have; nothing is changed."""
    most = min(queue_limit(end) for end in endpoints(lab))
    for point in points_of(plan, lab.arrangement):
        if point.queues > most:
            raise PlanError(f"queues: {point.queues} is more than {lab.dut_interface} can have: {most}")
        if point.arrangement == "hosts" and lab.virtual:
            raise PlanError("arrangement: hosts means two machines; this lab is one", remedy="write auto")
        if point.arrangement == "split" and len(lab.cpus().dut) < 2:
            raise PlanError("arrangement: split needs two CPUs at least; this lab has one", remedy="write auto")


def _rx_ring_entries(lab: Lab) -> int | None:
    """Entries of one receive ring of the DUT; None where the driver does not say (veth)."""
    answer = lab.dut.run(["ethtool", "-g", lab.dut_interface], check=False)
    return parse_rings(answer.stdout).current.rx if answer.ok else None


class TrialStudy:
    """One session of measuring in a lab: made before the first trial, everything put back after the last."""

    def __init__(self, lab: Lab, run: RunDirectory, plan: Plan, trials: Sequence[Trial]) -> None:
        self._lab, self._run, self._plan, self._trials = lab, run, plan, trials
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._remember(stack)
            lab, run = self._lab, self._run
            tools = build_tools(lab, [t.point for t in self._trials])
            self._context = TrialContext(
                lab=lab,
                plan=self._plan,
                tools=tools,
                programs=prepare_programs(lab, run, tools, self._trials),
                dut_probe=counters.install(lab.dut, "dut", lab.dut_interface, f"{lab.work_dir(lab.dut)}/counters"),
                tg_probe=counters.install(lab.tg, "tg", lab.tg_interface, f"{lab.work_dir(lab.tg)}/counters"),
                run_id=run.run_id,
                kernel=lab.dut.run(["uname", "-r"]).text.strip(),
                rx_ring_entries=_rx_ring_entries(lab),
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _remember(self, stack: ExitStack) -> None:
        """Both ends as they are now; their host keeps a copy, so that a later process can put them back too."""
        for end in endpoints(self._lab):
            where = state_dir(self._lab, end.host)
            remember(end.host, end.interface, where)
            stack.callback(restore_remembered, end.host, end.interface, where)

    def enter_block(self, trials: Sequence[Trial]) -> None:
        ends = endpoints(self._lab)
        applied = [apply(end.host, end.interface, LINK_SETTINGS).require() for end in ends]
        applied += set_queues(*ends, trials[0].point.queues)
        self._context.applied = [done.to_json() for done in applied]

    def measure(self, trial: Trial, raw: Path, facts: dict[str, Any]) -> None:
        measure(self._context, trial, raw, facts)

    def leave_block(self) -> None:
        """Nothing: the next block sets everything anew, and the end of the session puts it back."""
