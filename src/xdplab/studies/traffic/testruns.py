"""Test runs of an attached program, by BPF_PROG_TEST_RUN, with the frames that its trial sends."""

from __future__ import annotations

from statistics import fmean

from xdplab.deploy.xdp import FreshRuns, RecordCounts, XdpLoader
from xdplab.errors import ProgramError
from xdplab.programs.onhost import calibrated_testrun
from xdplab.studies.test_frames import TestFrames
from xdplab.studies.trial_facts import TestRuns

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
