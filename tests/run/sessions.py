"""Sessions that need no lab: what the engine calls, and a helper that runs it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from xdplab.run.engine import InTurn, Policy, run_trials
from xdplab.run.progress import Observer, silent
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import RunState

QUIET = silent()


class Session:
    """It measures nothing; a test overrides what it needs."""

    facts: Callable[[], Any] = dict

    def enter_block(self, trials: Sequence[Any]) -> None: ...

    def measure(self, trial: Any, raw: Path, facts: Any) -> None: ...

    def leave_block(self) -> None: ...


def gone_through(
    run: RunDirectory, trials: Sequence[Any], session: Session, policy: Policy | None = None, *, watch: Observer = QUIET
) -> RunState:
    """Measure a run's trials in a session."""
    return run_trials(run, trials, InTurn(lambda _: session), watch, policy or Policy())
