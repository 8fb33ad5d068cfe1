"""The loop: round by round, blocks go to workers. An attempt is kept whole or not at all; failed trials are repeated.

`Workers` are of three kinds: this process (`InTurn`), its threads (`AtOnce`), and other processes, which hand back
results (`run.fleet`). Only one thread at a time writes the run directory, its journal and the run's state; it lets the
others go on while it measures.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from xdplab.errors import (
    CutOffError,
    HostLostError,
    MissingToolError,
    ResultsError,
    StoppedError,
    UnsupportedError,
    XdplabError,
)
from xdplab.run.progress import Observer
from xdplab.run.rundir import RunDirectory, sizes
from xdplab.run.state import AnyTrial, Attempt, Ended, RunState, Status, as_json, read_state

# Full disk, lost lab, missing tool: the attempt stays absent, and `resume` measures it later.
_ENDS_THE_RUN = (ResultsError, HostLostError, MissingToolError)

CUTS = 3
"""How often one trial is repeated at once after a lost connection. The trial itself may break connections."""

T = TypeVar("T", bound=AnyTrial)
OfT = TypeVar("OfT", bound=AnyTrial, contravariant=True)
F = TypeVar("F")


class Session(Protocol[OfT, F]):
    """Measures points at one place: of XDP traffic, or of any study."""

    @property
    def facts(self) -> Callable[[], F]:
        """Makes a trial's record of facts: a dataclass whose fields are all None at first."""

    def enter_block(self, trials: Sequence[OfT]) -> None:
        """Apply the settings that the trials of a block share."""

    def measure(self, trial: OfT, raw: Path, facts: F) -> None:
        """Measure one trial: write raw files into ``raw``, and record what was requested and obtained in ``facts``.

        Raises UnsupportedError if the lab cannot measure it, CutOffError if a connection was lost meanwhile (it is
        measured again at once), another XdplabError if something broke.
        """

    def leave_block(self) -> None:
        """Undo ``enter_block``; called after an error too."""


SessionOf = Callable[[T], Session[T, Any]]
"""Gives the session that measures a trial; all trials of a block have the same."""


class StopRule(Protocol[OfT]):
    """Tells which trials a run no longer needs, from the attempts that have ended so far."""

    def ended(self, trial: OfT, attempt: Attempt) -> None: ...

    def released(self) -> Mapping[str, Sequence[str]]:
        """Return the ids of trials that need not be measured, grouped by reason."""


class NothingWorks:
    """Stops a run in which nothing can be measured; it sees the end of each attempt of a session.

    If only one block or a few points cannot be measured, the run continues. So the run stops only if `A_FEW` trials of
    each block have failed (or are unsupported), all for the same reason, and no trial was measured.
    """

    A_FEW = 3

    def __init__(self, owed: Iterable[AnyTrial]) -> None:
        blocks = Counter(trial.block for trial in owed)
        self._wanted = {block: min(count, self.A_FEW) for block, count in blocks.items()}
        self._tried: Counter[int] = Counter()
        self._failed = 0
        self._groups: set[tuple[int, int]] = set()
        self._reason: str | None = None
        self.refuted = False
        """Whether the run continues to its end: a trial was measured, or failed for a different reason."""

    def ended(self, trial: AnyTrial, attempt: Ended) -> None:
        """Take in an attempt. Raises StoppedError with the reason if the run must end."""
        if self.refuted:
            return
        self._tried[trial.block] += 1
        if attempt.status == "failed":
            self.refuted |= attempt.reason != (self._reason or attempt.reason)
            self._reason = attempt.reason
            self._failed += 1
            self._groups.add((trial.repetition, trial.block))
        self.refuted |= attempt.status == "measured"
        tried = all(self._tried[block] >= count for block, count in self._wanted.items())
        if tried and len(self._groups) > 1 and not self.refuted:
            raise StoppedError(
                f"stopped: nothing could be measured, each of {self._failed} trials failed alike: {self._reason}",
                remedy="fix that, then `xdplab resume`",
            )

    def puts_off(self, block: int) -> bool:
        """Whether so many trials of this block have failed that other blocks should be tried before the rest of it."""
        return not self.refuted and self._failed > 0 and self._tried[block] >= self.A_FEW


def name_what_runs(error: XdplabError, run: RunDirectory, *, and_its_path: bool = True) -> None:
    """Put the run's lab, and its path, into the commands of an error's remedy: the code that raised it knew neither."""
    if error.remedy is None or "`xdplab " not in error.remedy:
        return
    commands = {"resume": f"resume {run.path}"} if and_its_path else {}
    for lab in (event["lab"] for event in run.journal.events("planned") if "lab" in event):
        commands |= {"doctor": f"doctor --lab {lab}", "lab status": f"lab status --lab {lab}"}
    for short, whole in commands.items():
        error.remedy = error.remedy.replace(f"`xdplab {short}`", f"`xdplab {whole}`")


@dataclass(frozen=True)
class Policy:
    """How a run goes on: how often a trial that failed is tried again, the pause after each trial in seconds, and the
    rule that releases trials, which is asked before the first block and after each one."""

    retries: int = 0
    pause_s: float = 0.0
    stop: StopRule[Any] | None = None


class Workers(Protocol[OfT]):
    """Measure the trials of a round."""

    def measure(self, engine: Engine[Any], trials: Sequence[OfT]) -> None:
        """Try each of these trials once."""


def run_trials(
    run: RunDirectory, trials: Sequence[T], workers: Workers[T], observer: Observer, policy: Policy = Policy()
) -> RunState:
    """Measure every trial the run still owes and return its state.

    The journal records how the run ends, however it does. KeyboardInterrupt (Ctrl-C, SIGTERM) leaves the attempts under
    way absent, everything before them kept. Raises StoppedError if nothing can be measured (`NothingWorks`).
    """
    engine = Engine(run, trials, observer, policy)
    try:
        for _ in range(policy.retries + 1):
            owed = set(engine.state.owed)
            workers.measure(engine, [trial for trial in trials if trial.trial_id in owed])
    except BaseException as error:
        if isinstance(error, XdplabError):
            name_what_runs(error, run)
        how = "stopped" if isinstance(error, StoppedError) else "interrupted"
        observer.interrupted(how)
        with suppress(ResultsError):  # a full disk must not hide what happened first
            run.journal.append("ended", how=how)
        raise
    run.journal.append("ended", how="complete")
    observer.ended(engine.state)
    return engine.state


@dataclass(frozen=True)
class InTurn(Generic[T]):
    """This process, one trial after the other."""

    session_of: SessionOf[T]

    def measure(self, engine: Engine[T], trials: Sequence[T]) -> None:
        engine.measure(trials, self.session_of)


def blocks_of(trials: Iterable[T]) -> deque[list[T]]:
    """Return the blocks of a round, in the order of the trials."""
    return deque(list(group) for _, group in groupby(trials, key=lambda t: (t.repetition, t.block)))


class _Over(Exception):
    """Another lane has ended with an error: this one measures nothing more."""


class Engine(Generic[T]):
    """Measures block by block, attempt by attempt, and records what was measured."""

    def __init__(self, run: RunDirectory, trials: Sequence[T], observer: Observer, policy: Policy) -> None:
        self.run, self.observer, self.state = run, observer, read_state(run)
        self._pause_s, self._stop = policy.pause_s, policy.stop
        owed = set(self.state.owed)
        self.nothing_works = NothingWorks(trial for trial in trials if trial.trial_id in owed)
        self._writes = threading.Lock()
        self._over = threading.Event()

    def measure(self, trials: Sequence[T], session_of: SessionOf[T]) -> None:
        """Try each of these trials once, block by block."""
        with self._writes:
            self._measure(trials, session_of)

    def measure_at_once(self, lanes: Sequence[Sequence[T]], session_of: SessionOf[T]) -> None:
        """Try the trials of all lanes, each lane in a thread. Raises the first error when every lane has ended."""
        self.state.labs = len(lanes) or 1
        with ThreadPoolExecutor(max(len(lanes), 1)) as pool:
            tasks = [pool.submit(copy_context().run, self.measure, lane, session_of) for lane in lanes]
            try:
                wait(tasks, return_when=FIRST_EXCEPTION)
            finally:
                self._over.set()
        self._over.clear()
        self.state.labs = 1
        errors = [error for task in tasks if (error := task.exception()) is not None]
        for error in sorted(errors, key=lambda error: isinstance(error, _Over)):
            raise error

    def keep(self, trial: T, attempt: Attempt) -> None:
        """Record an attempt that has ended, whose raw files are in the run."""
        self.run.journal.append("finished", **vars(attempt))
        self.state.add(attempt.ended)
        self.observer.finished(trial, attempt)
        if self._stop is not None:
            self._stop.ended(trial, attempt)

    def _measure(self, trials: Sequence[T], session_of: SessionOf[T]) -> None:
        since = time.monotonic()
        waiting = blocks_of(trials)
        put_off: list[list[T]] = []
        while waiting:
            self._release()
            block = [trial for trial in waiting.popleft() if self.state.owes(trial.trial_id)]
            if not block:
                continue
            session, number = session_of(block[0]), block[0].block
            try:
                refused = self._enter(session, block)
                cuts: Counter[str] = Counter()
                while block:
                    trial = block.pop(0)
                    since, cut = self._attempt(trial, session, refused, since)
                    cuts[trial.trial_id] += cut
                    if cut and cuts[trial.trial_id] <= CUTS:
                        block.insert(0, trial)
                    if block or waiting or put_off:
                        time.sleep(self._pause_s)
                    if block and waiting and self.nothing_works.puts_off(number):
                        put_off.append(block)
                        break
            finally:
                with self._unlocked():
                    session.leave_block()
            if self.nothing_works.refuted or not waiting:
                waiting.extendleft(reversed(put_off))
                put_off = []

    @contextmanager
    def _unlocked(self) -> Iterator[None]:
        """Let other lanes write in this block."""
        self._writes.release()
        try:
            yield
        finally:
            self._writes.acquire()

    @contextmanager
    def _measuring(self) -> Iterator[None]:
        """Let other lanes write in this block, unless another lane, or Ctrl-C, has ended the run."""
        if self._over.is_set():
            raise _Over
        with self._unlocked():
            yield

    def _release(self) -> None:
        for reason, trials in ({} if self._stop is None else self._stop.released()).items():
            if owed := [trial for trial in trials if self.state.owes(trial) and trial not in self.state.last]:
                self.run.journal.append("released", why=reason, trials=owed)
                self.state.release(owed)

    def _enter(self, session: Session[T, Any], block: Sequence[T]) -> XdplabError | None:
        """Return the error of settings that the lab cannot apply: each trial of the block is unsupported."""
        try:
            with self._measuring():
                session.enter_block(block)
        except _ENDS_THE_RUN:
            raise
        except XdplabError as error:
            return error
        return None

    def _attempt(
        self, trial: T, session: Session[T, Any], refused: XdplabError | None, since: float
    ) -> tuple[float, bool]:
        """Try one trial and return when it ended and whether it was cut off; ``since``: when the one before ended."""
        number = self.state.next_attempt(trial.trial_id)
        self.run.journal.append("started", wait=False, trial_id=trial.trial_id, attempt=number)
        self.run.journal.reserve()
        self.observer.started(self.state, trial)
        began = time.monotonic()
        facts = session.facts()
        status: Status = "measured"
        reason, cut = None, False
        with self.run.attempt(trial.trial_id, number) as raw:
            try:
                if refused is not None:
                    raise refused
                with self._measuring():
                    session.measure(trial, raw, facts)
            except _ENDS_THE_RUN:
                raise
            except XdplabError as error:
                name_what_runs(error, self.run, and_its_path=False)  # the reason is kept in a run that may be moved
                status = "unsupported" if isinstance(error, UnsupportedError) else "failed"
                reason, cut = str(error), isinstance(error, CutOffError)
            files = sizes(raw)
        now = time.monotonic()
        took, wall = round(now - began, 4), round(now - since, 4)
        attempt = Attempt(trial.trial_id, number, status, reason, took, wall, as_json(facts), files)
        self.keep(trial, attempt)
        if not cut:
            self.nothing_works.ended(trial, attempt)
        return now, cut
