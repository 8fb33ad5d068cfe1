"""The progress of a run: who watches it, and a plain line for each trial."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from xdplab.run.state import AnyTrial, Attempt, RunState


class Observer(Protocol):
    def started(self, state: RunState, trial: AnyTrial) -> None: ...

    def finished(self, trial: AnyTrial, attempt: Attempt) -> None: ...

    def interrupted(self, how: str) -> None:
        """The run ends early: ``interrupted``, or ``stopped`` because nothing could be measured."""

    def ended(self, state: RunState) -> None: ...


def to_go(state: RunState) -> str:
    """The remaining time as text; empty before the first trial has ended."""
    if state.eta_s is None:
        return ""
    seconds = round(state.eta_s)
    minutes, hours = divmod(seconds, 60), divmod(seconds // 60, 60)
    return ("at most " if state.open_ended else "") + (
        f"{seconds} s to go"
        if seconds < 120
        else f"{minutes[0]} min to go"
        if hours[0] < 2
        else f"{hours[0]} h {hours[1]} min to go"
    )


class PlainObserver:
    """One line per trial, given to ``write``: for logs, pipes and CI."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._place = ""
        self._last: str | None = None

    def started(self, state: RunState, trial: AnyTrial) -> None:
        number = len(state.last) + (trial.trial_id not in state.last)
        self._place = f"[{', '.join(filter(None, (f'{number}/{state.total}', to_go(state))))}]"

    def finished(self, trial: AnyTrial, attempt: Attempt) -> None:
        outcome = attempt.status if attempt.reason is None else f"{attempt.status}: {self._once(attempt.reason)}"
        self._write(
            f"{self._place} {trial.point}, repetition {trial.repetition}: {outcome} ({attempt.duration_s:.2f} s)"
        )

    def _once(self, reason: str) -> str:
        """A long reason is printed once, not after every trial that has it."""
        again, self._last = reason == self._last, reason
        return "same reason as before" if again else reason

    def interrupted(self, how: str) -> None:
        """Print nothing: the measuring command knows the run, and says how to continue."""

    def ended(self, state: RunState) -> None:
        self._write(state.text)


def silent() -> Observer:
    """An observer that prints nothing."""
    return PlainObserver(lambda _: None)
