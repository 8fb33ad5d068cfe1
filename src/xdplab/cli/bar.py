"""The progress of a run on a terminal."""

from __future__ import annotations

from rich import progress as bars

from xdplab.cli.screen import console
from xdplab.run.progress import PlainObserver, to_go
from xdplab.run.state import AnyTrial, Attempt, RunState
from xdplab.text import visible


class BarObserver(PlainObserver):
    """A bar with the remaining time; only trials that failed, or are invalid, get a line."""

    def __init__(self) -> None:
        out = console()
        super().__init__(lambda text: out.print(visible(text), markup=False, highlight=False, soft_wrap=True))
        columns = (
            bars.TextColumn("{task.description}"),
            bars.BarColumn(),
            bars.MofNCompleteColumn(),
            bars.TextColumn("{task.fields[left]}"),
        )
        self._progress = bars.Progress(*columns, console=out, transient=True)
        self._task = self._progress.add_task("", total=None, left="")

    def started(self, state: RunState, trial: AnyTrial) -> None:
        super().started(state, trial)
        self._progress.start()
        text, done = visible(str(trial.point)), len(state.last)
        self._progress.update(self._task, description=text, completed=done, total=state.total, left=to_go(state))

    def finished(self, trial: AnyTrial, attempt: Attempt) -> None:
        self._progress.advance(self._task)
        if attempt.status == "failed" or (attempt.status == "measured" and attempt.reason is not None):
            super().finished(trial, attempt)

    def interrupted(self, how: str) -> None:
        self._progress.stop()
        super().interrupted(how)

    def ended(self, state: RunState) -> None:
        self._progress.stop()
        super().ended(state)
