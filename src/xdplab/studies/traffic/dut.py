"""The DUT's side of one trial, with one interface for programs in the kernel and for the AF_XDP application.

Test runs of an attached program, by BPF_PROG_TEST_RUN, with the frames that its trial sends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean
from typing import Protocol

from xdplab.deploy.afxdp import AfxdpRequest, Stats, forward
from xdplab.deploy.deployment import Deployment
from xdplab.deploy.xdp import Decided, FreshRuns, RecordCounts, RunStats, XdpLoader, XdpRequest, attach, verify
from xdplab.errors import HostError, ProgramError, UnsupportedError
from xdplab.hosts import CommandRunner, Host
from xdplab.hosts.tool import ANSWER_S
from xdplab.plan.points import SLICES_S
from xdplab.programs.onhost import calibrated_testrun
from xdplab.studies.test_frames import TestFrames
from xdplab.studies.trial_facts import HintCounts, Missing, TestRuns

# Many short test runs in each trial: the minimum is free of other work. With 2 ms each, the minimum was the same within
# 0.5 % and spread as much.
TESTRUNS, TESTRUN_S = 9, 0.001
FEWEST_RUNS, SOME_FRAMES, MANY_FRAMES = 3, 64, 2048
"""Up to ``SOME_FRAMES`` are repeated in all `TESTRUNS`. More than ``MANY_FRAMES`` are not repeated one by one: their
number is a part of the work, as the program's tables and the caches may not hold them all."""
FRAME_S, LEAST_REPEAT = 60e-6, 3
"""The shortest time of a repeated frame: below, the system call's own time would show. xdpload takes most of it off,
from so many packets on."""
OUTCOMES = 2048
"""How often a program is seen to decide, over all frames: the shares of one that decides by chance are within 3 %."""
CALLS = 500
"""Calls with one packet in a run; each takes 2 us."""


def run_frames(loader: XdpLoader, test: TestFrames) -> TestRuns:
    """Measure ``loader``'s program at rest, each time as the mean over the frames of ``test``.

    BPF_PROG_TEST_RUN repeats on one buffer: from the second packet on, a program sees what it made of the first. A
    generated program proves that this changes nothing. If a user's program changes frames, or writes records, which
    have to be read meanwhile, each packet is a call of its own; what a call costs beside the program is measured with
    an empty program, and taken off.

    Raises ProgramError if the kernel refuses to run the program in this way, and if BPF statistics timed the runs: two
    readings of a clock in each cost more than a short program.
    """
    before = loader.runstats()
    whole = all(isinstance(one.frame, bytes) for one in test.frames)
    measured = (_run_whole if whole else _run_sizes)(loader, test, max(TESTRUN_S / len(test.frames), FRAME_S))
    if loader.runstats().run_cnt > before.run_cnt:
        raise ProgramError("BPF statistics were on in the test runs, and each run costs more then")
    return measured


def _run_sizes(loader: XdpLoader, test: TestFrames, seconds: float) -> TestRuns:
    # An attached program is in the kernel's XDP dispatcher already: the calls do not wait for all CPUs.
    done = [calibrated_testrun(loader.testrun, f.frame, runs=TESTRUNS, seconds=seconds).runs_ns for f in test.frames]
    return TestRuns(tuple(map(fmean, zip(*done, strict=True))), len(test.frames), test.sent)


def _run_whole(loader: XdpLoader, test: TestFrames, seconds: float) -> TestRuns:
    frames, count = test.frames, len(test.frames)
    rounds = max(1, OUTCOMES // count)
    loader.give(frames)
    before = loader.records()
    outcomes = loader.outcomes(rounds)
    seen = _nothing_lost(before, loader.records())
    fresh = bool(outcomes.changed) or count > MANY_FRAMES or before is not None
    actions = outcomes.actions
    if fresh:
        timed = loader.fresh_runs(max(1, CALLS // count), _runs(count, MANY_FRAMES))
        runs_ns, actions = on_one_scale(timed), timed.actions
    else:
        repeat = max(LEAST_REPEAT, int(seconds * 1e9 / outcomes.call_ns))
        runs_ns = tuple(map(fmean, zip(*loader.testruns(frames, repeat, _runs(count, SOME_FRAMES)), strict=True)))
    _nothing_lost(before, loader.records())
    records = None if seen is None else seen / (rounds * count)
    return TestRuns(runs_ns, count, test.sent, test.seed, fresh, dict(actions), records)


def _runs(count: int, full: int) -> int:
    """Return `TESTRUNS` up to ``full`` frames, and fewer for more."""
    return max(FEWEST_RUNS, TESTRUNS * full // max(count, full))


def _nothing_lost(before: RecordCounts | None, after: RecordCounts | None) -> int | None:
    """Return the records of ring buffers between two counts; None if the program has none, or others read them.

    Raises ProgramError if some were lost: the program took the path of a write that fails.
    """
    if before is None or after is None or after.others:
        return None
    if after.ring_full > before.ring_full or after.perf_lost > before.perf_lost:
        raise ProgramError("records of the program were lost in test runs: their reader did not keep up")
    return after.ring_records - before.ring_records


def on_one_scale(fresh: FreshRuns) -> tuple[float, ...]:
    """Return the ns per packet that test runs of many packets would give, if the program saw each frame unchanged."""
    added = min(fresh.empty_call_ns) - fresh.empty_ns
    return tuple(round(ns - added, 3) for ns in fresh.call_ns)  # xdpload tells thousandths


SLICE_S, SLICE_PAIRS = 0.005, 100
"""Two programs take turns in slices this long: thousands of frames each, where an exchange takes 10 us.

A tenth of each slice passes unmeasured. `SLICES_S` leaves time for that, so that no slice outlasts the sender.
"""
SESSION_S = 14 * 86400.0
"""The longest time that a program is held: a search may take days. The end of its connection, or silence, ends it
sooner."""


class DutSide(Protocol):
    """An attached program, and its readings."""

    deployment: Deployment

    def counts(self) -> Stats | None:
        """Return the side's own cumulative counts, at rest; None if there are only the driver's counters."""

    def bpf_stats(self, enabled: bool) -> None: ...

    def stats_cost(self) -> float | None:
        """Return the time per run, in ns, that BPF statistics report for an empty program."""

    def runstats(self) -> RunStats | None:
        """Return how often the kernel program has run, and for how long; None if none does the work."""

    def records(self) -> RecordCounts | None:
        """Return what was read of the program's ring buffers and perf event arrays, at rest; None if it has none."""

    def testrun(self, frames: TestFrames) -> TestRuns | Missing:
        """Measure the attached program itself by BPF_PROG_TEST_RUN, at rest. A run is the mean over ``frames``."""

    def raw_files(self) -> dict[str, bytes]: ...

    def require(self) -> None:
        """Raise HostError unless the kernel still runs this program in this mode, and its holder answers."""

    def stop(self) -> None:
        """Detach, and wait until everything is released."""

    def close(self) -> None:
        """End it at once; harmless after `stop`."""


class KernelSide:
    """All modes but af_xdp: xdpload holds the program. ``reader`` asks the kernel what is attached."""

    def __init__(self, host: Host, reader: CommandRunner, binary: str, request: XdpRequest, *, queues: int) -> None:
        self._host = host
        self._loader = attach(host, binary, request, deadline_s=SESSION_S)
        self._verify = partial(self._loader.in_kernel, reader)
        self.deployment = Deployment.of_loader(self._loader, queues=queues)

    def require(self) -> None:
        self._verify()  # xdpload's link holds the program: when xdpload has ended, no program is attached

    def hints(self) -> HintCounts:
        """Return what a generated program counted of its driver's answers."""
        return HintCounts(*self._loader.count("working_set")[:4])

    def fill(self) -> None:
        """Put the plan's entries into the maps, whose devices may be made by the plan's commands."""
        self._loader.fill()

    def counts(self) -> Stats | None:
        return None

    def bpf_stats(self, enabled: bool) -> None:
        self._loader.bpf_stats(enabled)

    def stats_cost(self) -> float | None:
        return self._loader.stats_cost()

    def runstats(self) -> RunStats | None:
        return self._loader.runstats()

    def records(self) -> RecordCounts | None:
        return self._loader.records()

    def testrun(self, frames: TestFrames) -> TestRuns | Missing:
        try:
            return run_frames(self._loader, frames)
        except (ProgramError, UnsupportedError) as error:
            return Missing(error.message)

    def slices(self, binary: str, rival: XdpRequest, send: Callable[[], object], seed: int) -> None:
        """Have the program of ``rival`` take turns with this one while ``send`` sends for `SLICES_S`.

        Raises UnsupportedError if they cannot, ProgramError if the other one does not load.
        """
        other = attach(self._host, binary, replace(rival, mode="none"), deadline_s=SESSION_S)
        with other, ThreadPoolExecutor(1) as meanwhile:
            other.fill()
            self._loader.begin_slices(other, SLICE_S, SLICE_PAIRS, seed)
            measured = meanwhile.submit(self._loader.await_slices, SLICES_S + ANSWER_S)
            send()
            measured.result()

    def decided(self, binary: str, request: XdpRequest, send: Callable[[], object]) -> tuple[Decided, bytes]:
        """Return the program's actions on the frames of ``send``, and xdpload's output.

        A load of the program behind a counter takes its place, with its maps as the measured load left them. Raises
        ProgramError if it does not load, UnsupportedError if the kernel cannot exchange the two.
        """
        shares = replace(request, init={}, count_actions=True, share_maps=self._loader.loaded.map_ids)
        with attach(self._host, binary, shares, deadline_s=SESSION_S) as counting:
            self._loader.exchange(counting)
            send()
            counted = counting.decided()
            self._loader.exchange(self._loader)
            counting.detach()
        return counted, counting.raw.encode()

    def raw_files(self) -> dict[str, bytes]:
        return {"xdpload.jsonl": self._loader.raw.encode()}

    def stop(self) -> None:
        self._loader.detach()

    def close(self) -> None:
        self._loader.close()


class AfxdpSide:
    """af_xdp: the application forwards in user space, its own small program redirects."""

    def __init__(self, host: Host, reader: CommandRunner, binary: str, request: AfxdpRequest) -> None:
        self._forwarder = forward(host, binary, request, deadline_s=SESSION_S)
        try:
            ready = self._forwarder.ready
            if ready.bind_obtained != request.bind:
                raise HostError(f"{host.name}: the sockets are bound {ready.bind_obtained}, {request.bind} was asked")
            self._verify = partial(verify, reader, request.interface, program_id=ready.program_id, mode=request.attach)
            self.deployment = Deployment.of_forwarder(self._forwarder, self._verify())
        except BaseException:
            self._forwarder.close()
            raise

    def require(self) -> None:
        self._verify()
        self._forwarder.stats()

    def counts(self) -> Stats | None:
        return self._forwarder.stats()

    def bpf_stats(self, enabled: bool) -> None:
        """The kernel's program here only redirects: its run time is not the workload's."""

    def stats_cost(self) -> float | None:
        return None

    def runstats(self) -> RunStats | None:
        return None

    def records(self) -> RecordCounts | None:
        return None

    def testrun(self, frames: TestFrames) -> TestRuns | Missing:
        return Missing("the work is done in user space, where BPF_PROG_TEST_RUN does not reach")

    def raw_files(self) -> dict[str, bytes]:
        return {"afxdp.jsonl": self._forwarder.raw.encode()}

    def stop(self) -> None:
        self._forwarder.stop()

    def close(self) -> None:
        self._forwarder.close()


@dataclass(frozen=True)
class OnDut:
    """The paths of one program's files on the DUT, and xdpload's ``options`` for it. ``entries`` fill maps, by name.

    ``setup`` is the folder in which the plan's commands run, null if they name no file of the plan's. ``workload`` is
    null for programs that only the kernel can run.
    """

    object: str
    options: tuple[str, ...]
    init: Mapping[str, str]
    max_entries: Mapping[str, str]
    entries: Mapping[str, str] = field(default_factory=dict)
    setup: str | None = None
    workload: str | None = None
    workload_init: str | None = None
