"""What a run has planned, measured and still owes, read only from its journal."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol

from xdplab.run.rundir import RunDirectory
from xdplab.text import many

Status = Literal["measured", "unsupported", "failed"]
Block = tuple[int, int]
"""A block of one of the run's plans (an old run may be extended by further plans)."""


class AnyTrial(Protocol):
    """What a run must know about a trial; `xdplab.plan.Trial` is one. ``str()`` describes its ``point``."""

    @property
    def trial_id(self) -> str: ...

    @property
    def point(self) -> object: ...

    @property
    def repetition(self) -> int: ...

    @property
    def block(self) -> int: ...


@dataclass(frozen=True)
class Ended:
    """A finished attempt of a trial. ``duration_s`` is its own time.

    ``wall_s`` is the time since the end of the attempt before it, including the pause and the settings of its block.
    """

    trial_id: str
    attempt: int
    status: Status
    reason: str | None
    duration_s: float
    wall_s: float


@dataclass(frozen=True)
class Attempt(Ended):
    """A full attempt: ``facts`` are those that its study recorded; `xdplab.run.facts.facts_of` gives them types.

    ``files`` are its raw files: paths with sizes in bytes.
    """

    facts: dict[str, Any]
    files: dict[str, int]

    @property
    def ended(self) -> Ended:
        return Ended(self.trial_id, self.attempt, self.status, self.reason, self.duration_s, self.wall_s)


class RunState:
    """The state of a run. Updating it after a trial costs the same for any number of trials.

    ``attempts`` are the finished ones in order, ``last`` has the one that counts of each trial. ``labs`` is the number
    of labs that measure at once. ``open_ended``: the run may release trials that it no longer needs, so it measures at
    most the trials that it owes.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.attempts: list[Ended] = []
        self.last: dict[str, Ended] = {}
        self.ended: str | None = None
        self.waiting: str | None = None
        """The process that the run waits for before it can continue."""
        self.labs = 1
        self.open_ended = False
        self.released: set[str] = set()
        self._planned: dict[str, tuple[Block, float]] = {}
        self._owed: set[str] = set()
        self._costs = Costs()
        self._counts: Counter[str] = Counter()
        self._plans = 0

    def __repr__(self) -> str:
        counts = ", ".join(f"{n} {status}" for status, n in self.counts.items() if n) or "none measured"
        left = f", {len(self.owed)} owed" if self.owed else ""
        eta = "" if self.eta_s is None or not self.owed else f", {self.eta_s:.0f} s to go"
        return f"{many(self.total, 'trial')}: {counts}{left}{eta}"

    @property
    def planned(self) -> list[str]:
        """Trial ids, in order."""
        return list(self._planned)

    def plan(self, trials: Sequence[str], blocks: Sequence[int], costs_s: Sequence[float] = ()) -> None:
        """Owe these trials too, except known ones. ``costs_s`` is the expected time of each, if known."""
        for number, trial_id in enumerate(trials):
            if trial_id not in self._planned:
                block = (self._plans, blocks[number])
                cost = costs_s[number] if costs_s else 0.0
                self._planned[trial_id] = block, cost
                self._owed.add(trial_id)
                self._costs.owe(block, cost)
        self._plans += 1
        self.ended = None

    def release(self, trials: Sequence[str]) -> None:
        """Stop owing these trials: their results are not needed any more. Trials with attempts stay."""
        for trial_id in trials:
            if trial_id in self._owed and trial_id not in self.last:
                block, cost = self._planned[trial_id]
                self._costs.owe(block, cost, trials=-1)
                self._owed.discard(trial_id)
                self.released.add(trial_id)

    def owes(self, trial_id: str) -> bool:
        return trial_id in self._owed

    def add(self, ended: Ended) -> None:
        """Add a finished attempt. A trial whose last attempt failed is still owed."""
        if before := self.last.get(ended.trial_id):
            self._counts[before.status] -= 1
        self._counts[ended.status] += 1
        self.attempts.append(ended)
        self.last[ended.trial_id] = ended
        self.ended = None
        if ended.trial_id in self._planned:
            self._count_cost(ended)

    def _count_cost(self, ended: Ended) -> None:
        block, cost = self._planned[ended.trial_id]
        self._costs.spend(block, cost, ended)
        owed = ended.status == "failed"
        self._costs.owe(block, cost, trials=owed - (ended.trial_id in self._owed))
        (self._owed.add if owed else self._owed.discard)(ended.trial_id)

    @property
    def total(self) -> int:
        """How many trials are planned and were not released."""
        return len(self._planned) - len(self.released)

    @property
    def counts(self) -> dict[str, int]:
        """How many trials were measured, are unsupported, and failed, by their last attempt."""
        return {status: self._counts[status] for status in ("measured", "unsupported", "failed")}

    @property
    def failed(self) -> list[str]:
        return [t for t, a in self.last.items() if a.status == "failed"]

    @property
    def settled(self) -> set[str]:
        return {t for t, a in self.last.items() if a.status != "failed"}

    @property
    def owed(self) -> list[str]:
        """Trials that have no attempt, or whose last one failed, in the order they are planned."""
        return [trial_id for trial_id in self._planned if trial_id in self._owed]

    @property
    def eta_s(self) -> float | None:
        """Seconds the owed trials will take; None before the first was measured."""
        left = self._costs.left_s
        return None if left is None else left / max(self.labs, 1)

    @property
    def text(self) -> str:
        """One line on the trials: ``9 trials: 8 measured, 1 still missing``."""
        if self.ended == "imported":
            return self.ended
        counts = self.counts | {"not needed": len(self.released)}
        text = ", ".join(f"{n} {status}" for status, n in counts.items() if n)
        missing = self.total - len(self.last)
        waiting = f", waiting: {self.waiting}" if self.waiting else ""
        return (
            f"{many(self.total, 'trial')}: {text or 'none measured'}"
            + (f", {missing} still missing" if missing else "")
            + waiting
        )

    def next_attempt(self, trial_id: str) -> int:
        return 1 + self.last[trial_id].attempt if trial_id in self.last else 1


FEW_S = 1.0
"""Planned seconds whose excess is counted by half."""


@dataclass
class BlockCosts:
    """The remaining time of a block, and how much longer than planned its trials took, in seconds: the first in its own
    time, without the wait for its place."""

    left: int = 0
    left_s: float = 0.0
    ended: int = 0
    longer_s: float = 0.0
    first_s: float = 0.0
    ended_s: float = 0.0

    @property
    def pace(self) -> float:
        """The share by which ended trials took longer than planned; a few seconds of them say little."""
        return max(0.0, self.longer_s + self.first_s) / (self.ended_s + FEW_S)

    @property
    def excess_s(self) -> float:
        """The mean; of the first trial, which waited for its place to start, alone until there are others."""
        return self.longer_s / (self.ended - 1) if self.ended > 1 else self.first_s


class Costs:
    """The expected time of the remaining trials: the planned time of each, plus their excess over the plan.

    A mean over all finished trials would be wrong if blocks differ, so each block has its own excess; a block without
    finished trials gets the excess of the others.
    """

    def __init__(self) -> None:
        self._blocks: defaultdict[Block, BlockCosts] = defaultdict(BlockCosts)
        self._all = BlockCosts()

    def owe(self, block: Block, cost_s: float, *, trials: int = 1) -> None:
        self._blocks[block].left += trials
        self._blocks[block].left_s += trials * cost_s

    def spend(self, block: Block, cost_s: float, ended: Ended) -> None:
        for costs in (self._blocks[block], self._all):
            costs.ended += 1
            costs.ended_s += cost_s
            if costs.ended > 1:
                costs.longer_s += ended.wall_s - cost_s
            else:
                costs.first_s = max(0.0, ended.duration_s - cost_s)

    @property
    def left_s(self) -> float | None:
        """Remaining seconds in one lab; None before any trial ended."""
        if not self._all.ended:
            return None
        return max(0.0, sum(self._left_of(block) for block in self._blocks.values()))

    def _left_of(self, block: BlockCosts) -> float:
        costs = block if block.ended else self._all
        longer_s = block.left * costs.excess_s
        if block.ended and block.left_s:  # of unlike trials, a short one is not longer by as much as a long one
            longer_s = min(longer_s, block.left_s * costs.pace)
        return block.left_s + longer_s


def record_planned(
    run: RunDirectory, trials: Sequence[AnyTrial], *, costs_s: Sequence[float] = (), **facts: Any
) -> None:
    """Record in the journal that ``run`` owes these trials. ``costs_s`` is the expected time of each in seconds, if
    known."""
    costs = {"costs_s": [round(cost, 3) for cost in costs_s]} if costs_s else {}
    ids, blocks = [trial.trial_id for trial in trials], [trial.block for trial in trials]
    run.record("planned", trials=ids, blocks=blocks, **costs, **facts)


START_S = 15.0
"""The longest time from planning a run to holding it: meanwhile, another process and a lab are started."""


def is_beginning(run: RunDirectory) -> bool:
    """Tell whether a run was planned a moment ago and has no other record yet."""
    last = run.journal.last()
    return last is not None and last["event"] == "planned" and time.time() - float(last["time"]) < START_S


def read_state(run: RunDirectory) -> RunState:
    """Read the journal of ``run``. Raises ResultsError if it is damaged."""
    state, session = RunState(run_id=run.run_id), None
    for event in run.journal.events(
        "planned", "finished", "released", "ended", "hosts", "shared", "lab_lost", "waiting"
    ):
        match event["event"]:
            case "planned":
                state.plan(event["trials"], event["blocks"], event.get("costs_s", ()))
                state.open_ended |= event.get("open_ended", False)
            case "finished":
                state.add(_attempt(event).ended)
            case "released":
                state.release(event["trials"])
            case "ended":
                state.ended, state.waiting = event["how"], None
            case "hosts":
                if event.get("session") != session:
                    state.labs, session = 1, event.get("session")
            case "shared":
                state.labs = len(event["labs"])
            case "lab_lost":
                state.labs -= 1
            case "waiting":
                state.waiting = event["why"]
    return state


def attempts_of(run: RunDirectory) -> Iterator[Attempt]:
    """Yield every finished attempt in order, with its facts."""
    return map(_attempt, run.journal.events("finished"))


def last_attempts(run: RunDirectory) -> dict[str, Attempt]:
    """Return the attempt that counts of each trial, with its facts."""
    return {attempt.trial_id: attempt for attempt in attempts_of(run)}


def _attempt(event: dict[str, Any]) -> Attempt:
    return Attempt(**{field.name: event[field.name] for field in fields(Attempt)})
