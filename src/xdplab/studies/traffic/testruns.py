"""Test runs of an attached program, by BPF_PROG_TEST_RUN, with the frames that its trial sends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from xdplab.deploy.xdp import FreshRuns, XdpLoader
from xdplab.programs.onhost import calibrated_testrun
from xdplab.studies.traffic.own_frames import TestFrames
from xdplab.studies.trial_facts import TestRuns

# Many short test runs in each trial: the minimum is free of other work. With 2 ms each, the minimum was the same within
# 0.5 % and spread as much.
TESTRUNS, TESTRUN_S = 9, 0.001
FEWEST_RUNS, MANY_FRAMES = 3, 64
"""Each frame is measured so often; up to ``MANY_FRAMES`` as often as one alone."""
FRAME_S = 60e-6
"""The shortest time of a frame: below, the system call's own time would show."""
LEAST_REPEAT = 3
"""Packets in one buffer from which xdpload takes off what the system call costs."""
OUTCOMES, FEWEST_OUTCOMES = 2048, 8
"""How often a program is seen to decide, over all frames: the shares of one that decides by chance are within 3 %."""
CALL_S, FEWEST_CALLS = 2e-6, 4
"""A call with one packet, and how many of them are a run."""


def run_frames(loader: XdpLoader, test: TestFrames) -> TestRuns:
    """Measure ``loader``'s program at rest, each time as the mean over the frames of ``test``.

    BPF_PROG_TEST_RUN repeats on one buffer: from the second packet on, a program sees what it made of the first. A
    generated program proves that this changes nothing. If a user's program changes a frame, each packet is a call of
    its own; what a call costs beside the program is measured with an empty program, and taken off.

    Raises ProgramError if the kernel refuses to run the program in this way.
    """
    frames, count = test.frames, len(test.frames)
    seconds = max(TESTRUN_S / count, FRAME_S)
    if not all(isinstance(one.frame, bytes) for one in frames):
        # An attached program is in the kernel's XDP dispatcher already: the calls do not wait for all CPUs.
        done = [calibrated_testrun(loader.testrun, f.frame, runs=TESTRUNS, seconds=seconds).runs_ns for f in frames]
        return TestRuns(mean_runs(done, []), count, test.sent)
    runs = max(FEWEST_RUNS, TESTRUNS * MANY_FRAMES // max(count, MANY_FRAMES))
    outcomes = loader.outcomes(frames, max(FEWEST_OUTCOMES, OUTCOMES // count))
    alike = [
        (f, max(3, int(seconds * 1e9 / o.call_ns))) for f, o in zip(frames, outcomes, strict=True) if not o.changed
    ]
    changed = [f for f, o in zip(frames, outcomes, strict=True) if o.changed]
    repeated = loader.testruns([f for f, _ in alike], [repeat for _, repeat in alike], runs) if alike else []
    calls = max(FEWEST_CALLS, int(TESTRUN_S / CALL_S / count))
    fresh = loader.fresh_runs(changed, calls, runs) if changed else []
    actions = sum((Counter(outcome.actions) for outcome in outcomes), Counter[str]())
    return TestRuns(mean_runs(repeated, fresh), count, test.sent, test.seed, len(fresh), dict(actions))


def mean_runs(repeated: Sequence[Sequence[float]], fresh: Sequence[FreshRuns]) -> tuple[float, ...]:
    """Return the mean over all frames in each run, in ns per packet."""
    values = [list(ns) for ns in repeated]
    if fresh:
        call = min(map(fmean, zip(*(one.empty_call_ns for one in fresh), strict=True)))
        values += [[ns - call + one.empty_ns for ns in one.call_ns] for one in fresh]
    return tuple(map(fmean, zip(*values, strict=True)))
