"""A trial's bookkeeping costs the same in a run of ten thousand as in one of a hundred; the time left is right."""

import json
import random
import sys
import tarfile
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.attempts import attempt_of
from tests.run.sessions import Session, gone_through

from xdplab.run import rundir
from xdplab.run.engine import Policy
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import Ended, RunState, read_state, record_planned

RECORDED = Path(__file__).parents[1] / "oracle" / "recorded"
OURS = str(Path(rundir.__file__).parent)
BLOCKS = 12
MOST_HELD = 800


@dataclass(frozen=True)
class Made:
    """A trial, as the runner sees it."""

    number: int
    repetition: int
    block: int

    @property
    def trial_id(self) -> str:
        return f"{self.number:012x}-r{self.repetition}"

    @property
    def point(self) -> str:
        return f"point {self.number}"


def made(repetitions: int, *, a_block: int = 10, seed: int = 1) -> list[Made]:
    """Every repetition visits every block again, blocks and their trials in a new order."""
    rng = random.Random(seed)
    trials = []
    for repetition in range(1, repetitions + 1):
        for block in rng.sample(range(BLOCKS), BLOCKS):
            numbers = range(block * a_block, (block + 1) * a_block)
            trials += [Made(number, repetition, block) for number in rng.sample(numbers, a_block)]
    return trials


@contextmanager
def instructions() -> Iterator[list[int]]:
    """Count the bytecode instructions that the package `run` executes: seconds would depend on the machine."""
    count = [0]

    def inside(frame: FrameType, event: str, _arg: Any) -> Callable[..., Any]:
        count[0] += event == "opcode"
        return inside

    def trace(frame: FrameType, _event: str, _arg: Any) -> Callable[..., Any] | None:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        frame.f_trace_opcodes = True
        return inside

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield count
    finally:
        sys.settrace(before)


def run_of(parent: Path, trials: Sequence[Made]) -> RunDirectory:
    return RunDirectory.create(parent, "t", run_id="ab12", plan_yaml="", fill=lambda run: record_planned(run, trials))


def counted(parent: Path, repetitions: int) -> float:
    """Return the instructions per trial of a whole run that a user watches, and of reading its state."""
    trials = made(repetitions)
    run = run_of(parent, trials)
    with instructions() as count:
        gone_through(run, trials, Session(), Policy(retries=1))
        read_state(run)
    return count[0] / len(trials)


def test_bookkeeping_costs_as_much_per_trial_in_a_large_run_as_in_a_small_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rundir, "sync", lambda path: None)
    counted(tmp_path, 1)  # Python 3.12 and later count a function's instructions from its second traced call on
    small, large = counted(tmp_path, 1), counted(tmp_path, 5)
    assert small > 0
    assert large < 1.05 * small, f"{small:.0f} instructions per trial of 120, {large:.0f} of 600"


@pytest.mark.thorough
def test_a_trial_s_bookkeeping_holds_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run keeps each trial's status, to know what it owes, but none of its files, facts or messages."""
    monkeypatch.setattr(rundir, "sync", lambda path: None)
    held: dict[int, int] = {}

    class Facts(Session):
        def measure(self, trial: Made, raw: Path, facts: dict[str, Any]) -> None:
            facts["of the trial"] = [trial.trial_id] * 1000
            (raw / "file").write_bytes(bytes(1000))
            held[len(held)] = tracemalloc.get_traced_memory()[0]

    trials = made(20)
    run = run_of(tmp_path, trials)
    tracemalloc.start()
    try:
        gone_through(run, trials, Facts(), Policy(retries=1))
    finally:
        tracemalloc.stop()
    grown = held[len(trials) - 1] - held[len(trials) // 2]
    assert grown < MOST_HELD * len(trials) / 2, f"{grown / (len(trials) / 2):.0f} bytes per trial"


def shown(planned: dict[str, Any], finished: Sequence[dict[str, Any]]) -> Iterator[float]:
    """Give the time left that is shown as a share of the true one, after each trial from a tenth of the work on until
    nine tenths."""
    state = RunState("ab12")
    state.plan(planned["trials"], planned["blocks"], planned["costs_s"])
    whole, done = sum(event["wall_s"] for event in finished), 0.0
    for event in finished:
        state.add(Ended(**{one.name: event[one.name] for one in fields(Ended)}))
        done += event["wall_s"]
        if 0.1 * whole <= done <= 0.9 * whole:
            yield state.eta_s / (whole - done)


@pytest.mark.parametrize("name", ["live", "ports", "windows"])
def test_the_time_left_of_recorded_runs_is_right_from_a_tenth_of_their_work_on(name: str) -> None:
    with tarfile.open(RECORDED / f"{name}.tar.xz") as archive:
        file = archive.extractfile(f"{name}/journal.jsonl")
        events = [json.loads(line) for line in file]
    planned = next(event for event in events if event["event"] == "planned")
    shares = list(shown(planned, [event for event in events if event["event"] == "finished"]))
    assert 1 / 1.5 < min(shares) <= max(shares) < 1.5


def test_a_first_trial_that_builds_what_the_others_use_does_not_lengthen_them() -> None:
    """As of the execution study: 16 of its 68 seconds; eleven times the true rest was shown then."""
    costs_s = [0.4] * 14 + [17.4] + [1.2] * 27
    took_s = [16.6] + [0.02] * 13 + [1.2] * 28
    waits_s = [0.0] * 14 + [14.7] + [0.0] * 27
    planned = {"trials": [f"t{n}" for n in range(42)], "blocks": [0] * 14 + [1] * 28, "costs_s": costs_s}
    ended = [attempt_of(f"t{n}", took_s=took_s[n], wall_s=took_s[n] + waits_s[n]) for n in range(42)]
    shares = list(shown(planned, [vars(one) for one in ended]))
    assert 1 / 1.5 < min(shares) <= max(shares) < 1.5


def test_nothing_is_left_of_a_finished_run() -> None:
    state = RunState("ab12")
    state.plan(["a", "b", "c"], [0, 0, 1], [0.1, 0.2, 0.3])
    for trial in "abc":
        state.add(attempt_of(trial, took_s=0.7))
    assert state.eta_s == 0  # and not 2e-15


def test_a_failed_trial_is_owed_and_counted_once_more() -> None:
    state = RunState("ab12")
    state.plan(["a", "b", "c"], [0, 0, 0])
    state.add(attempt_of("a", status="failed", reason="the wire was cut", took_s=2.0))
    assert (state.owed, state.eta_s, state.counts["failed"]) == (["a", "b", "c"], 6.0, 1)
    state.add(attempt_of("a", 2, took_s=2.0))
    assert (state.owed, state.eta_s, state.counts["failed"]) == (["b", "c"], 4.0, 0)
    assert state.next_attempt("a") == 3


@pytest.mark.parametrize(
    ("took", "labs", "left_s"),
    [
        ((48.2, 0.2, 0.2), 1, 97 * 0.2),  # a guest starts: 3 h 48 min were shown where 2 were left
        ((3.0,), 2, 99 * 3.0 / 2),
    ],
)
def test_the_time_left_goes_by_a_usual_trial_and_is_shared_by_labs(
    took: tuple[float, ...], labs: int, left_s: float
) -> None:
    state = RunState("ab12")
    state.plan([f"t{n}" for n in range(100)], [0] * 100)
    state.labs = labs
    for number, one in enumerate(took):
        state.add(attempt_of(f"t{number}", took_s=one))
    assert state.eta_s == pytest.approx(left_s)


def test_a_run_that_is_extended_keeps_the_blocks_of_its_plans_apart(tmp_path: Path) -> None:
    first, second = [Made(1, 1, 0), Made(2, 1, 0)], [Made(3, 1, 0), Made(4, 1, 0)]
    run = run_of(tmp_path, first)
    record_planned(run, second, costs_s=[10.0, 10.0])
    state = read_state(run)
    state.add(attempt_of(first[0].trial_id, took_s=1.0))
    state.add(attempt_of(second[0].trial_id, took_s=12.0))
    assert state.owed == [first[1].trial_id, second[1].trial_id]
    assert state.eta_s == 1.0 + 10.0


def test_a_place_that_starts_is_planned_once_and_an_unlike_trial_lengthens_the_others_by_its_share() -> None:
    state = RunState("ab12")
    state.plan([f"t{n}" for n in range(100)], [0] * 100, [13.0, *[1.0] * 98, 20.0])  # the first: a guest of 12 s
    state.add(attempt_of("t0", took_s=1.0, wall_s=30.0))
    assert state.eta_s == 98 * 1.0 + 20.0
    state.add(attempt_of("t99", took_s=40.0))
    assert state.eta_s == pytest.approx(98 * 2, rel=0.5)  # not 20 s more for each
