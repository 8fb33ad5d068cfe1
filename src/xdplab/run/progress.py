"""What a person sees while a run goes on: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from xdplab.run.state import Attempt, RunState


class AnyTrial(Protocol):
    """What the runner must know of a trial; `xdplab.plan.Trial` is one. ``point`` is told by its ``str()``."""

    @property
    def trial_id(self) -> str: ...

    @property
    def point(self) -> object: ...

    @property
    def repetition(self) -> int: ...

    @property
    def block(self) -> int: ...


class Observer(Protocol):
    def started(self, state: RunState, trial: AnyTrial) -> None: ...

    def finished(self, trial: AnyTrial, attempt: Attempt) -> None: ...

    def interrupted(self) -> None: ...

    def ended(self, state: RunState) -> None: ...


def ending(state: RunState) -> str:
    """One line on how a run stands."""
    counts = {s: sum(a.status == s for a in state.last.values()) for s in ("measured", "unsupported", "failed")}
    words = ", ".join(f"{n} {s}" for s, n in counts.items() if n)
    owed = len([t for t in state.planned if t not in state.last])
    return f"{len(state.planned)} trials: {words or 'none measured'}" + (f", {owed} still owed" if owed else "")


class PlainObserver:
    """A line a trial: for logs, pipes and CI."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._place = ""

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def started(self, state: RunState, trial: AnyTrial) -> None:
        number = len(state.last.keys() & set(state.planned) | {trial.trial_id})
        eta = "" if state.eta_s is None else f", {state.eta_s:.0f} s to go"
        self._place = f"[{number}/{len(state.planned)}{eta}]"

    def finished(self, trial: AnyTrial, attempt: Attempt) -> None:
        said = attempt.status if attempt.reason is None else f"{attempt.status}: {attempt.reason}"
        self._print(f"{self._place} {trial.point}, repetition {trial.repetition}: {said} ({attempt.duration_s:.2f} s)")

    def interrupted(self) -> None:
        self._print("interrupted; what was measured is kept: `xdplab resume` goes on")

    def ended(self, state: RunState) -> None:
        self._print(ending(state))


class RichObserver(PlainObserver):
    """A bar with the time that is left; only what did not go well gets a line."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=console, transient=True)
        self._task = self._progress.add_task("", total=None)

    def started(self, state: RunState, trial: AnyTrial) -> None:
        super().started(state, trial)
        self._progress.start()
        done = len(state.last.keys() & set(state.planned))
        self._progress.update(self._task, description=str(trial.point), completed=done, total=len(state.planned))

    def finished(self, trial: AnyTrial, attempt: Attempt) -> None:
        self._progress.advance(self._task)
        if attempt.status == "failed":
            super().finished(trial, attempt)

    def interrupted(self) -> None:
        self._progress.stop()
        super().interrupted()

    def ended(self, state: RunState) -> None:
        self._progress.stop()
        super().ended(state)


def observer_for(console: Console) -> Observer:
    """A bar where ``console`` is a terminal, plain lines elsewhere."""
    return RichObserver(console) if console.is_terminal else PlainObserver(console)
