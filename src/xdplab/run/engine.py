"""The loop: one trial at a time, block by block. An attempt is kept whole or not at all; failed trials are repeated."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol, TypeVar

from xdplab.errors import (
    CutOffError,
    HostLostError,
    MissingToolError,
    ResultsError,
    StoppedError,
    UnsupportedError,
    XdplabError,
)
from xdplab.run.facts import as_json
from xdplab.run.progress import Observer
from xdplab.run.rundir import RunDirectory, sizes
from xdplab.run.state import AnyTrial, Attempt, Ended, RunState, Status, read_state

# Full disk, lost lab, missing tool: the attempt stays absent, and `resume` measures it later.
_ENDS_THE_RUN = (ResultsError, HostLostError, MissingToolError)

CUTS = 3
"""How often one trial is repeated at once after a lost connection. The trial itself may break connections."""

T = TypeVar("T", bound=AnyTrial)
OfT = TypeVar("OfT", bound=AnyTrial, contravariant=True)
F = TypeVar("F")


class Study(Protocol[OfT, F]):
    """Measures points: of XDP traffic, or of any study."""

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


class EnoughKnown(Protocol[OfT]):
    """Tells which trials a run no longer needs, from the attempts that have ended so far."""

    def ended(self, trial: OfT, attempt: Attempt) -> None: ...

    def enough(self) -> Mapping[str, Sequence[str]]:
        """Return the ids of trials that need not be measured, grouped by reason."""


class AllAlike:
    """Stops a run in which nothing can be measured; it sees the end of each attempt of a session.

    If only one block or a few points cannot be measured, the run continues. So the run stops only if `A_FEW` trials of
    each block have failed (or are unsupported), all for the same reason, and no trial was measured.
    """

    A_FEW = 3

    def __init__(self, owed: Iterable[AnyTrial]) -> None:
        blocks = Counter(trial.block for trial in owed)
        self._wanted = {block: min(count, self.A_FEW) for block, count in blocks.items()}
        self._asked: Counter[int] = Counter()
        self._failed = 0
        self._groups: set[tuple[int, int]] = set()
        self._reason: str | None = None
        self.over = False
        """Whether the run continues to its end: a trial was measured, or failed for a different reason."""

    def ended(self, trial: AnyTrial, attempt: Ended) -> None:
        """Take in an attempt. Raises StoppedError with the reason if the run must end."""
        if self.over:
            return
        self._asked[trial.block] += 1
        if attempt.status == "failed":
            self.over |= attempt.reason != (self._reason or attempt.reason)
            self._reason = attempt.reason
            self._failed += 1
            self._groups.add((trial.repetition, trial.block))
        self.over |= attempt.status == "measured"
        asked = all(self._asked[block] >= count for block, count in self._wanted.items())
        if asked and len(self._groups) > 1 and not self.over:
            raise StoppedError(
                f"stopped: nothing could be measured, each of {self._failed} trials failed alike: {self._reason}",
                remedy="fix that, then `xdplab resume`",
            )

    def enough(self, trial: AnyTrial) -> bool:
        """Whether so many trials of this block have failed that other blocks should be tried before the rest of it."""
        return not self.over and self._failed > 0 and self._asked[trial.block] >= self.A_FEW


def run_trials(
    run: RunDirectory,
    trials: Sequence[T],
    study: Study[T, Any],
    observer: Observer,
    *,
    retries: int,
    pause_s: float,
    known: EnoughKnown[T] | None = None,
) -> RunState:
    """Measure every trial the run still owes and return its state. A trial that failed is tried ``retries`` more times.

    ``known`` is asked before the first block and after each one.

    KeyboardInterrupt (Ctrl-C, SIGTERM) leaves the attempt under way absent, everything before it kept.
    """

    def one_round(state: RunState, owed: list[T], alike: AllAlike) -> None:
        measure_round(run, state, owed, study, observer, alike, pause_s=pause_s, known=known)

    return in_rounds(run, trials, one_round, observer, retries=retries)


def name_what_runs(error: XdplabError, run: RunDirectory, *, and_its_path: bool = True) -> None:
    """Put the run's lab, and its path, into the commands of an error's remedy: the code that raised it knew neither."""
    if error.remedy is None or "`xdplab " not in error.remedy:
        return
    commands = {"resume": f"resume {run.path}"} if and_its_path else {}
    for lab in (event["lab"] for event in run.journal.events("planned") if "lab" in event):
        commands |= {"doctor": f"doctor --lab {lab}", "lab status": f"lab status --lab {lab}"}
    for short, whole in commands.items():
        error.remedy = error.remedy.replace(f"`xdplab {short}`", f"`xdplab {whole}`")


def in_rounds(
    run: RunDirectory,
    trials: Sequence[T],
    one_round: Callable[[RunState, list[T], AllAlike], None],
    observer: Observer,
    *,
    retries: int,
) -> RunState:
    """Call ``one_round`` with the trials that are owed, ``retries`` more times with those that failed.

    However it ends, the journal records it. Returns the run's state, which ``one_round`` keeps up to date. Raises
    StoppedError if nothing can be measured (`AllAlike`).
    """
    state = read_state(run)
    owed = set(state.owed)
    alike = AllAlike(t for t in trials if t.trial_id in owed)
    try:
        for _ in range(retries + 1):
            owed = set(state.owed)
            one_round(state, [t for t in trials if t.trial_id in owed], alike)
    except BaseException as error:
        if isinstance(error, XdplabError):
            name_what_runs(error, run)
        how = "stopped" if isinstance(error, StoppedError) else "interrupted"
        observer.interrupted(how)
        with suppress(ResultsError):  # a full disk must not hide what happened first
            run.journal.append("ended", how=how)
        raise
    run.journal.append("ended", how="complete")
    observer.ended(state)
    return state


def measure_round(
    run: RunDirectory,
    state: RunState,
    trials: Sequence[T],
    study: Study[T, Any],
    observer: Observer,
    alike: AllAlike,
    *,
    pause_s: float = 0.0,
    known: EnoughKnown[T] | None = None,
) -> None:
    """Try each of these trials once, block by block."""
    since = time.monotonic()
    waiting = deque(list(group) for _, group in groupby(trials, key=lambda t: (t.repetition, t.block)))
    put_off: list[list[T]] = []
    while waiting:
        if known is not None:
            _release(run, state, known)
        block = [trial for trial in waiting.popleft() if state.owes(trial.trial_id)]
        if not block:
            continue
        try:
            broken = _enter(study, block)
            cuts: Counter[str] = Counter()
            while block:
                trial = block.pop(0)
                since, cut = _attempt(run, state, trial, study, observer, broken, alike, since, known)
                cuts[trial.trial_id] += cut
                if cut and cuts[trial.trial_id] <= CUTS:
                    block.insert(0, trial)
                time.sleep(pause_s)
                if block and waiting and alike.enough(trial):
                    put_off.append(block)
                    break
        finally:
            study.leave_block()
        if alike.over or not waiting:
            waiting.extendleft(reversed(put_off))
            put_off = []


def _release(run: RunDirectory, state: RunState, known: EnoughKnown[T]) -> None:
    for words, trials in known.enough().items():
        if some := [trial for trial in trials if state.owes(trial) and trial not in state.last]:
            run.journal.append("released", why=words, trials=some)
            state.release(some)


def _enter(study: Study[T, Any], block: Sequence[T]) -> XdplabError | None:
    """Settings that the lab cannot apply make each trial of the block unsupported."""
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
    study: Study[T, Any],
    observer: Observer,
    broken: XdplabError | None,
    alike: AllAlike,
    since: float,
    known: EnoughKnown[T] | None,
) -> tuple[float, bool]:
    """Try one trial and return when it ended and whether it was cut off; ``since`` is when the one before it ended."""
    number = state.next_attempt(trial.trial_id)
    run.journal.append("started", wait=False, trial_id=trial.trial_id, attempt=number)
    run.journal.reserve()
    observer.started(state, trial)
    began = time.monotonic()
    facts = study.facts()
    status: Status = "measured"
    reason, cut = None, False
    with run.attempt(trial.trial_id, number) as raw:
        try:
            if broken is not None:
                raise broken
            study.measure(trial, raw, facts)
        except _ENDS_THE_RUN:
            raise
        except XdplabError as error:
            name_what_runs(error, run, and_its_path=False)  # the reason is kept in the run, which may be moved
            status = "unsupported" if isinstance(error, UnsupportedError) else "failed"
            reason, cut = str(error), isinstance(error, CutOffError)
        files = sizes(raw)
    now = time.monotonic()
    took, wall = round(now - began, 4), round(now - since, 4)
    attempt = Attempt(trial.trial_id, number, status, reason, took, as_json(facts), wall_s=wall, files=files)
    run.journal.append("finished", **vars(attempt))
    state.add(attempt.ended)
    observer.finished(trial, attempt)
    if known is not None:
        known.ended(trial, attempt)
    if not cut:
        alike.ended(trial, attempt)
    return now, cut
