"""One run at several places at the same time: each place has a lane, a thread that measures its blocks one by one.

For places that do not disturb each other, such as guests that count instructions. Only one lane at a time writes the
run directory, its journal and the run's state; a lane lets the others go on while it measures.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic

from xdplab.run.engine import AllAlike, F, OfT, Study, T, in_rounds, measure_round
from xdplab.run.progress import Observer
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import RunState


class _Over(Exception):
    """Another lane has ended with an error: this one measures nothing more."""


class Turns:
    """The right to write the run; a lane has it except while it measures."""

    def __init__(self) -> None:
        self._writes = threading.Lock()
        self._over = threading.Event()

    @contextmanager
    def held(self) -> Iterator[None]:
        with self._writes:
            yield

    @contextmanager
    def given_away(self) -> Iterator[None]:
        """Let other lanes write in this block."""
        self._writes.release()
        try:
            yield
        finally:
            self._writes.acquire()

    def end(self) -> None:
        self._over.set()

    def require_running(self) -> None:
        """Raise _Over if another lane, or Ctrl-C, has ended the run."""
        if self._over.is_set():
            raise _Over


@dataclass(frozen=True)
class _Lane(Generic[OfT, F]):
    """A study that gives its turn away while it measures."""

    inner: Study[OfT, F]
    turns: Turns

    @property
    def facts(self) -> Callable[[], F]:
        return self.inner.facts

    def enter_block(self, trials: Sequence[OfT]) -> None:
        self.turns.require_running()
        with self.turns.given_away():
            self.inner.enter_block(trials)

    def measure(self, trial: OfT, raw: Path, facts: F) -> None:
        self.turns.require_running()
        with self.turns.given_away():
            self.inner.measure(trial, raw, facts)

    def leave_block(self) -> None:
        with self.turns.given_away():
            self.inner.leave_block()


def run_in_lanes(
    run: RunDirectory,
    trials: Sequence[T],
    lanes: Mapping[str, Study[T, Any]],
    lane_of: Callable[[T], str],
    rest: Study[T, Any],
    observer: Observer,
) -> RunState:
    """Measure every trial the run still owes and return its state, as `run_trials` does.

    Each of ``lanes`` measures the trials that ``lane_of`` gives it, all at the same time; afterwards ``rest`` measures
    the trials of no lane. After Ctrl-C or an error in one lane, each other lane ends with its trial under way.
    """

    def one(state: RunState, owed: list[T], alike: AllAlike) -> None:
        own = {name: [trial for trial in owed if lane_of(trial) == name] for name in lanes}
        state.labs = sum(bool(some) for some in own.values()) or 1
        turns = Turns()

        def drive(name: str) -> None:
            with turns.held():
                measure_round(run, state, own[name], _Lane(lanes[name], turns), observer, alike)

        _together([partial(drive, name) for name in lanes if own[name]], turns)
        state.labs = 1
        measure_round(run, state, [t for t in owed if lane_of(t) not in lanes], rest, observer, alike)

    return in_rounds(run, trials, one, observer, retries=0)


def _together(work: Sequence[Callable[[], None]], turns: Turns) -> None:
    """Do all of it at once, each in a thread; what the first error was, is raised when all have ended."""
    with ThreadPoolExecutor(max(len(work), 1)) as pool:
        tasks = [pool.submit(copy_context().run, one) for one in work]
        try:
            wait(tasks, return_when=FIRST_EXCEPTION)
        finally:
            turns.end()
    errors = [error for task in tasks if (error := task.exception()) is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, _Over)):
        raise error
