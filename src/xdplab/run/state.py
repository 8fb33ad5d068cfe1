"""What a run has planned, measured and still owes, read from its journal and nothing else."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any, Literal

from xdplab.run.rundir import RunDirectory

Status = Literal["measured", "unsupported", "failed"]


@dataclass(frozen=True)
class Attempt:
    """One try of a trial that ended; ``facts`` are what its study recorded."""

    trial_id: str
    attempt: int
    status: Status
    reason: str | None
    duration_s: float
    facts: dict[str, Any]


@dataclass
class RunState:
    """``planned``: trial ids in order; ``attempts``: those that ended, in the order they ended."""

    run_id: str
    planned: list[str] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    ended: str | None = None

    @property
    def last(self) -> dict[str, Attempt]:
        """The last attempt of each trial: the one that counts."""
        return {a.trial_id: a for a in self.attempts}

    @property
    def failed(self) -> list[str]:
        return [t for t, a in self.last.items() if a.status == "failed"]

    @property
    def settled(self) -> set[str]:
        return {t for t, a in self.last.items() if a.status != "failed"}

    @property
    def owed(self) -> list[str]:
        """Trials that have no attempt, or whose last one failed."""
        return [t for t in self.planned if t not in self.settled]

    @property
    def eta_s(self) -> float | None:
        """Seconds the owed trials will take at the median of those measured; None before the first."""
        took = [a.duration_s for a in self.attempts if a.status == "measured"]
        return statistics.median(took) * len(self.owed) if took else None

    def next_attempt(self, trial_id: str) -> int:
        return 1 + sum(a.trial_id == trial_id for a in self.attempts)


def read_state(run: RunDirectory) -> RunState:
    """Read the journal of ``run``. Raises ResultsError where it is damaged."""
    state = RunState(run_id=run.run_id)
    for event in run.journal.events():
        match event["event"]:
            case "planned":
                known = set(state.planned)
                state.planned += [t for t in event["trials"] if t not in known]
                state.ended = None
            case "finished":
                state.attempts.append(_attempt(event))
                state.ended = None
            case "ended":
                state.ended = event["how"]
    return state


def _attempt(event: dict[str, Any]) -> Attempt:
    keys = ("trial_id", "attempt", "status", "reason", "duration_s", "facts")
    return Attempt(**{key: event[key] for key in keys})
