"""The measured bursts of one trial: the headline, and what changes what it measures and so has a burst of its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xdplab.counters import Probe
from xdplab.counters.table import When
from xdplab.generators import Generator
from xdplab.plan import Plan
from xdplab.studies.traffic.dut import DutSide

RECORDER_MARGIN_S = 30.0


class RawFiles:
    """Writes what the tools printed into the attempt's folder, untouched."""

    def __init__(self, raw: Path) -> None:
        self._raw = raw

    def add(self, files: dict[str, bytes], folder: str = "") -> None:
        target = self._raw / folder
        target.mkdir(exist_ok=True)
        for name, data in files.items():
            (target / name).write_bytes(data)


@dataclass(frozen=True)
class Running:
    """A trial whose program is attached and whose generator is ready."""

    plan: Plan
    dut_probe: Probe
    tg_probe: Probe
    side: DutSide
    generator: Generator
    files: RawFiles
    facts: dict[str, Any]

    @property
    def window_s(self) -> float:
        return self.plan.trial.window_s

    def snapshot(self, when: When) -> dict[str, bytes]:
        """Both hosts' counters, read at the same time: neither carries traffic."""
        with ThreadPoolExecutor(1) as meanwhile:
            tg = meanwhile.submit(self.tg_probe.snapshot, when)
            return self.dut_probe.snapshot(when, self.plan.metrics) | tg.result()


def rate(trial: Running) -> None:
    """The headline: counters at rest before and after, CPU time sampled from inside the window."""
    with trial.dut_probe.start(["samples"], deadline_s=trial.window_s + RECORDER_MARGIN_S) as recording:
        before = trial.snapshot("before")
        trial.facts["dut_before"] = trial.side.counts()
        trial.generator.burst("rate", trial.window_s)
        trial.facts["dut_after"] = trial.side.counts()
        trial.files.add(before | trial.snapshot("after") | recording.stop(), "counters")


def bpf_stats(trial: Running) -> None:
    """The program's mean run time; it can halve the rate, so it never touches the headline."""
    trial.side.bpf_stats(True)
    before = trial.side.runstats()
    trial.generator.burst("bpf_stats", trial.window_s)
    after = trial.side.runstats()
    trial.side.bpf_stats(False)
    trial.facts["runstats"] = None if before is None or after is None else {"before": before, "after": after}


def perf(trial: Running) -> None:
    """perf's events, system-wide, and sar's samples, through a burst of their own."""
    deadline_s = trial.window_s + RECORDER_MARGIN_S
    events = trial.plan.perf_events
    with trial.dut_probe.start(["perf", "sar"], events=events, deadline_s=deadline_s) as recording:
        trial.generator.burst("perf", trial.window_s)
        trial.files.add(recording.stop(), "counters")


PASSES: dict[str, Callable[[Running], None]] = {"rate": rate, "bpf_stats": bpf_stats, "perf": perf}
