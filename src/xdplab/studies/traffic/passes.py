"""The measured bursts of one trial: the headline, and separate ones for passes that change what they measure; how the
rate went within a burst."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from xdplab.analysis.steady import Course, course
from xdplab.counters.probe import CounterProbe, Recording
from xdplab.counters.table import When
from xdplab.formats.generator import Burst, GeneratorInterval
from xdplab.generators import Sender
from xdplab.plan import Plan
from xdplab.studies.traffic.dut import DutSide
from xdplab.studies.trial_facts import ProgramRuns, TrialFacts, WarmedUp

RECORDER_MARGIN_S = 30.0
PERF_FOLDER = "counters_perf"
DECIDED_FOLDER = "counters_decided"
SECOND_FOLDER, SECOND_PERF_FOLDER = "counters_second", "counters_perf_second"
"""The readings of the second ports, in trials that have two."""


class RawFiles:
    """Writes the tools' output into the attempt's folder, unchanged."""

    def __init__(self, raw: Path) -> None:
        self._raw = raw

    def add(self, files: dict[str, bytes], folder: str = "") -> None:
        target = self._raw / folder
        target.mkdir(exist_ok=True)
        for name, data in files.items():
            (target / name).write_bytes(data)


@dataclass(frozen=True)
class Running:
    """A trial whose program is attached and whose generator is ready.

    ``clock`` is the command that measures the DUT's clock. ``samples`` returns the sampler, ready to record. ``second``
    are the probes of the second ports, if the DUT forwards between two.
    """

    plan: Plan
    dut_probe: CounterProbe
    tg_probe: CounterProbe
    side: DutSide
    generator: Sender
    files: RawFiles
    facts: TrialFacts
    clock: Sequence[str] = ()
    samples: Callable[[], Recording] | None = None
    second: Sequence[CounterProbe] = ()

    @property
    def window_s(self) -> float:
        return self.plan.trial.window_s

    def snapshot(self, when: When, *, clock: Sequence[str] = ()) -> dict[str, bytes]:
        """Both hosts' counters, read at the same time, without traffic. ``clock`` is the command that measures the
        clock of the DUT's CPUs.
        """
        with ThreadPoolExecutor(1) as meanwhile:
            tg = meanwhile.submit(self.tg_probe.snapshot, when)
            return self.dut_probe.snapshot(when, self.plan.metrics, clock=clock) | tg.result()

    def second_ports(self, when: When) -> dict[str, bytes]:
        """The counters of the second ports; none if the trial has one port."""
        return {name: data for probe in self.second for name, data in probe.snapshot(when).items()}

    def add_second(self, files: dict[str, bytes], folder: str) -> None:
        if self.second:
            self.files.add(files, folder)


WARMUPS = 5
"""Number of warm-up bursts within which the rate must become steady."""


def warm_up(generator: Sender, seconds: float) -> WarmedUp | None:
    """Send bursts of this many seconds until the rate is steady in one, at most five; return the result."""
    if not seconds:
        return None
    sent: list[float] = []
    steady: bool | None = False
    while steady is False and len(sent) < WARMUPS:
        burst = generator.burst("warmup", seconds)
        sent.append(burst.summary.duration_s)
        course = burst_course(burst)
        steady = None if course is None else course.kind == "steady"
    return WarmedUp(len(sent), sum(sent), steady)


def rate(trial: Running) -> None:
    """The headline: counters at rest before and after, CPU time sampled from inside the window."""
    assert trial.samples is not None
    with trial.samples() as recording:
        recording.await_started()
        second = trial.second_ports("before")
        before = trial.snapshot("before", clock=trial.clock)
        trial.facts.dut_before, trial.facts.records_before = trial.side.counts(), trial.side.records()
        trial.generator.burst("rate", trial.window_s)
        trial.facts.dut_after, trial.facts.records_after = trial.side.counts(), trial.side.records()
        after = trial.snapshot("after", clock=trial.clock)
        trial.files.add(before | after | recording.stop(), "counters")
        trial.add_second(second | trial.second_ports("after"), SECOND_FOLDER)


def bpf_stats(trial: Running) -> None:
    """The program's mean run time; it can halve the rate, so it never touches the headline."""
    trial.side.bpf_stats(True)
    cost_ns = trial.side.stats_cost()
    before = trial.side.runstats()
    trial.generator.burst("bpf_stats", trial.window_s)
    after = trial.side.runstats()
    trial.side.bpf_stats(False)
    if before is not None and after is not None:
        trial.facts.runstats = ProgramRuns(before, after, cost_ns)


def perf(trial: Running) -> None:
    """perf's events, system-wide, and sar's samples, through a burst of their own.

    The DUT's counters are read before perf begins and after it has ended: what they gained is what perf saw.
    """
    deadline_s = trial.window_s + RECORDER_MARGIN_S
    events = trial.plan.perf_events
    second = trial.second_ports("before")
    before, trial.facts.perf_before = trial.snapshot("before"), trial.side.counts()
    with trial.dut_probe.start(["perf", "sar"], events=events, deadline_s=deadline_s) as recording:
        trial.generator.burst("perf", trial.window_s)
        trial.files.add(recording.stop(), "counters")
    trial.facts.perf_after = trial.side.counts()
    trial.files.add(before | trial.snapshot("after"), PERF_FOLDER)
    trial.add_second(second | trial.second_ports("after"), SECOND_PERF_FOLDER)


PASSES: dict[str, Callable[[Running], None]] = {"rate": rate, "bpf_stats": bpf_stats, "perf": perf}


def burst_course(burst: Burst) -> Course | None:
    """Return the course of the received rate, or of the sent rate if no frame was received; None: too few intervals."""
    sent = [interval.tx_packets for interval in burst.intervals]
    back = _received(burst)
    heard = back is not None and any(back)
    intervals = burst.intervals if not heard or burst.summary.rx_window_packets is not None else burst.intervals[:-1]
    frames = back if back is not None and heard else sent
    s = burst.summary
    until = s.rx_window_s if heard and s.rx_window_packets is not None else None
    # the sender may have gone on until a slow kernel had taken its frames
    return course([interval.t_s for interval in intervals], frames, min(s.duration_s, until or s.duration_s))


def _received(burst: Burst) -> list[int] | None:
    """Frames that came back by interval, until the window ended; the last interval is omitted if it was not counted."""
    counts = [_back(interval) for interval in burst.intervals]
    if not counts or any(count < 0 for count in counts):
        return None
    whole = burst.summary.rx_window_packets
    return counts[:-1] if whole is None else [*counts[:-1], max(whole - sum(counts[:-1]), 0)]


def _back(interval: GeneratorInterval) -> int:
    return -1 if interval.rx_packets is None else interval.rx_packets
