"""The facts that a trial of XDP traffic or of a search records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from xdplab.deploy.afxdp import Stats
from xdplab.deploy.deployment import Deployment
from xdplab.deploy.device import Applied
from xdplab.deploy.xdp import Decided, RecordCounts, RunStats
from xdplab.formats.generator import GeneratorReady
from xdplab.plan.factors import DeviceValue, device_value
from xdplab.programs.onhost import LoadReport
from xdplab.programs.work import AccessWork


@dataclass(frozen=True)
class Missing:
    """Why something was not measured."""

    missing: str


@dataclass(frozen=True)
class HintCounts:
    """Packets of a program that calls a kfunc; calls of it that the driver ``refused``, and the sums of their errnos
    and of the ``squares`` of these, or of more where they differ."""

    packets: int
    refused: int
    errors: int
    squares: int


@dataclass(frozen=True)
class Limit:
    """A rate (bits or frames per second), or None with the reason."""

    rate: float | None
    missing: str | None = None


@dataclass(frozen=True)
class TimingLimits:
    """The basis of a generator's times: its clock source, and how long of each second real-time tasks may run.

    ``rt_runtime_us`` is -1 for ever. None if the kernel does not say.
    """

    clocksource: str | None
    rt_runtime_us: int | None


@dataclass(frozen=True)
class TrialCpus:
    """The CPUs of DUT and TG, and those of them that do the DUT's ``working``."""

    dut: tuple[int, ...]
    tg: tuple[int, ...]
    working: tuple[int, ...]


@dataclass(frozen=True)
class WarmedUp:
    """Bursts before the measured one, and their seconds; ``steady`` is None if no burst was long enough to tell."""

    bursts: int
    seconds: float
    steady: bool | None


@dataclass(frozen=True)
class ProgramRuns:
    """BPF statistics around a burst; ``cost_ns`` is the time that they report per run of an empty program."""

    before: RunStats
    after: RunStats
    cost_ns: float | None = None


@dataclass(frozen=True)
class TestRuns:
    """Test runs of the attached program: means over ``frames_run`` of the ``frames_sent`` kinds of frames, in ns.

    ``seed`` drew them, if they are not all. ``actions`` are what a user's program did with unchanged frames; ``fresh``:
    each timed packet was one too, in a call of its own. ``ring_records`` are those that a frame put into ring buffers.
    """

    runs_ns: tuple[float, ...]
    frames_run: int | None = None
    frames_sent: int | None = None
    seed: int | None = None
    fresh: bool = False
    actions: Mapping[str, int] | None = None
    ring_records: float | None = None

    __test__ = False  # no test class, whatever pytest thinks of its name


@dataclass(frozen=True)
class HarnessPieces:
    """CPU time per frame of the sender alone, and of sender and receiver without a link between them, in ns."""

    sender_ns: float
    both_ns: float


@dataclass(frozen=True)
class Mended:
    """What a lost connection took, the hosts that were started anew, and the seconds until all was set again."""

    lost: str
    booted: tuple[str, ...]
    took_s: float


@dataclass
class AboutTrial:
    """Which trial it was, and where. ``times`` is False in a lab whose clock means nothing."""

    point: Mapping[str, Any] | None = None
    block: int | None = None
    order: int | None = None
    repetition: int | None = None
    lab: str | None = None
    label: str | None = None
    times: bool | None = None
    waited_s: float | None = None
    mended: Mended | None = None


@dataclass
class MachineFacts:
    """What was read of both machines, and set on them, for the trials of a block. ``device`` has the plan's own
    settings of the DUT's device, read back once the program is attached."""

    kernel: str | None = None
    rx_ring_entries: int | None = None
    tg_machine: TimingLimits | None = None
    xps: Mapping[str, str] | None = None
    xps_missing: str | None = None
    switched_off: Mapping[str, str] | None = None
    settings: tuple[Applied, ...] | None = None
    device: Applied | None = None


@dataclass
class SetupFacts:
    """What was set up for the trial, as obtained, and what limits its load."""

    cpus: TrialCpus | None = None
    link: Limit | None = None
    generator_alone: Limit | None = None
    program_hash: str | None = None
    load: LoadReport | None = None
    work: AccessWork | None = None
    deployment: Deployment | None = None
    generator: GeneratorReady | None = None
    placed: Mapping[str, Any] | None = None
    rate_requested_pps: float | None = None


@dataclass
class CountedFacts:
    """What was counted around the window and in passes of their own. ``path`` counts the frames sent ahead to see that
    they come back. ``dut_before`` and ``dut_after`` are the AF_XDP application's own counts around the window.
    """

    path: Mapping[str, int | None] | None = None
    warmup: WarmedUp | None = None
    dut_before: Stats | None = None
    dut_after: Stats | None = None
    runstats: ProgramRuns | None = None
    records_before: RecordCounts | None = None
    records_after: RecordCounts | None = None
    perf_before: Stats | None = None
    perf_after: Stats | None = None
    testrun: TestRuns | Missing | None = None
    decided_before: Decided | Missing | None = None
    decided: Decided | Missing | None = None
    harness: HarnessPieces | Missing | None = None
    sliced: Missing | None = None
    hints: HintCounts | None = None


@dataclass
class TrialFacts(AboutTrial, MachineFacts, SetupFacts, CountedFacts):
    """What is known of a trial, filled in as it is learnt; None is what was not, or what this trial does not have."""


def device_columns(device: Applied | None) -> dict[str, str]:
    """Return the columns on the plan's device settings; none where it sets nothing: the point's own word stands."""
    if device is None:
        return {}
    pairs = {name: (wanted, device.obtained.get(name)) for name, wanted in sorted(device.requested.items())}
    settings = {name: {"requested": wanted, "obtained": value} for name, (wanted, value) in pairs.items()}
    text = " ".join(f"{name}={_obtained(wanted, value)}" for name, (wanted, value) in pairs.items())
    return {"device": text, "device_settings": json.dumps(settings)}


def _obtained(wanted: DeviceValue, value: DeviceValue | None) -> str:
    word = "none" if value is None else device_value(value)
    return word if value == wanted else f"{word} ({device_value(wanted)} asked)"
