"""What the trials of one session share: its lab, tools, programs, probes, and what was read of its machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from xdplab.counters.probe import CounterProbe
from xdplab.generators import Staying
from xdplab.labs import Lab
from xdplab.plan import Plan, Point, ProgramFactors
from xdplab.studies.traffic.limits import FrameKey
from xdplab.studies.traffic.prepare import Prepared, Tools
from xdplab.studies.traffic.two_ports import SecondPort
from xdplab.studies.trial_facts import Limit, MachineFacts


@dataclass
class TrialContext:
    """What the trials of one session share."""

    lab: Lab
    plan: Plan
    tools: Tools
    programs: Mapping[ProgramFactors, Prepared]
    dut_probe: CounterProbe
    tg_probe: CounterProbe
    run_id: str
    machine: MachineFacts
    link: Limit
    pdr: Mapping[str, float] = field(default_factory=dict)
    rivals: Mapping[str, Point] = field(default_factory=dict)
    alone: dict[FrameKey, Limit] = field(default_factory=dict)
    staying: Staying = field(default_factory=Staying)
    second: SecondPort | None = None

    def close_probes(self) -> None:
        """End what reads the counters; the next reading starts it again."""
        self.dut_probe.close()
        self.tg_probe.close()
