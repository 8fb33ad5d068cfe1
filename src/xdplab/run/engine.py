"""The loop: one trial at a time, blocks kept together, each attempt whole or absent, a failed one tried again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol, TypeVar

from xdplab.errors import HostLostError, ResultsError, UnsupportedError, XdplabError
from xdplab.run.progress import Observer
from xdplab.run.rundir import RunDirectory, sizes
from xdplab.run.state import AnyTrial, Attempt, RunState, Status, read_state

# A full disk or a lab that is gone: the attempt stays absent, `resume` measures it later.
_ENDS_THE_RUN = (ResultsError, HostLostError)

T = TypeVar("T", bound=AnyTrial)
OfT = TypeVar("OfT", bound=AnyTrial, contravariant=True)


class Study(Protocol[OfT]):
    """What can measure a point: XDP traffic, or any study of the execution side."""

    def enter_block(self, trials: Sequence[OfT]) -> None:
        """Apply what the trials of a block share."""

    def measure(self, trial: OfT, raw: Path, facts: dict[str, Any]) -> None:
        """Measure one trial: raw files into ``raw``, what was requested and obtained into ``facts`` as it is learnt.

        Raises UnsupportedError where the lab cannot, another XdplabError where something broke.
        """

    def leave_block(self) -> None:
        """Undo ``enter_block``; called after an error too."""


def run_trials(
    run: RunDirectory, trials: Sequence[T], study: Study[T], observer: Observer, *, retries: int, pause_s: float
) -> RunState:
    """Measure every trial the run still owes and return its state. A trial that failed is tried ``retries`` more times.

    KeyboardInterrupt (Ctrl-C, SIGTERM) leaves the attempt under way absent, everything before it kept.
    """

    def one_round(state: RunState, owed: list[T]) -> None:
        _one_round(run, state, owed, study, observer, pause_s)

    return in_rounds(run, trials, one_round, observer, retries=retries)


def in_rounds(
    run: RunDirectory,
    trials: Sequence[T],
    one_round: Callable[[RunState, list[T]], None],
    observer: Observer,
    *,
    retries: int,
) -> RunState:
    """Call ``one_round`` with the trials that are owed, ``retries`` more times with those that failed.

    However it ends, the journal says so. Returns the run's state, which ``one_round`` keeps up to date.
    """
    state = read_state(run)
    try:
        for _ in range(retries + 1):
            owed = set(state.owed)
            one_round(state, [t for t in trials if t.trial_id in owed])
    except BaseException:
        observer.interrupted()
        with suppress(ResultsError):  # a full disk must not hide what happened first
            run.journal.append("ended", how="interrupted")
        raise
    run.journal.append("ended", how="complete")
    observer.ended(state)
    return state


def _one_round(
    run: RunDirectory, state: RunState, trials: Sequence[T], study: Study[T], observer: Observer, pause_s: float
) -> None:
    since = time.monotonic()
    for _, group in groupby(trials, key=lambda t: (t.repetition, t.block)):
        block = list(group)
        try:
            broken = _enter(study, block)
            for trial in block:
                since = _attempt(run, state, trial, study, observer, broken, since)
                time.sleep(pause_s)
        finally:
            study.leave_block()


def _enter(study: Study[T], block: Sequence[T]) -> XdplabError | None:
    """What the block's settings cannot be is the verdict of each of its trials."""
    try:
        study.enter_block(block)
    except _ENDS_THE_RUN:
        raise
    except XdplabError as error:
        return error
    return None


def _attempt(
    run: RunDirectory,
    state: RunState,
    trial: T,
    study: Study[T],
    observer: Observer,
    broken: XdplabError | None,
    since: float,
) -> float:
    """Try one trial and return when it ended; ``since`` is when the one before it did."""
    number = state.next_attempt(trial.trial_id)
    run.journal.append("started", wait=False, trial_id=trial.trial_id, attempt=number)
    observer.started(state, trial)
    began = time.monotonic()
    facts: dict[str, Any] = {}
    status: Status = "measured"
    reason = None
    with run.attempt(trial.trial_id, number) as raw:
        try:
            if broken is not None:
                raise broken
            study.measure(trial, raw, facts)
        except _ENDS_THE_RUN:
            raise
        except UnsupportedError as error:
            status, reason = "unsupported", str(error)
        except XdplabError as error:
            status, reason = "failed", str(error)
        files = sizes(raw)
    now = time.monotonic()
    took, wall = round(now - began, 4), round(now - since, 4)
    attempt = Attempt(trial.trial_id, number, status, reason, took, facts, wall_s=wall, files=files)
    run.journal.append("finished", **vars(attempt))
    state.add(attempt.ended)
    observer.finished(trial, attempt)
    return now
