"""What a run has planned, measured and still owes, read only from its journal.

The facts that a trial records besides its raw files: a dataclass of its study, and a JSON object in the journal.

Every field is None by default: a failed trial has fewer facts.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast

from xdplab.errors import ResultsError
from xdplab.run.rundir import RunDirectory
from xdplab.text import many

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from pydantic import TypeAdapter

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
    """A full attempt: ``facts`` are those that its study recorded; `xdplab.run.state.facts_of` gives them types.

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


FEW_S = 3.0
"""Planned seconds that count as kept: what a few seconds of trials exceeded says little about hours of others."""


@dataclass
class Took:
    """How many trials have ended, the seconds planned for them, and those that they took, waits included."""

    ended: int = 0
    planned_s: float = 0.0
    took_s: float = 0.0

    def add(self, planned_s: float, took_s: float) -> None:
        self.ended += 1
        self.planned_s += planned_s
        self.took_s += took_s

    @property
    def mean_s(self) -> float:
        return self.took_s / self.ended

    def longer_s(self, planned_s: float) -> float:
        """Return by how much another trial will exceed its plan, never less than 0: by the mean, but a short trial by
        no larger share than these."""
        longer_s = max(0.0, self.took_s - self.planned_s)
        return min(longer_s / max(self.ended, 1), planned_s * longer_s / (self.planned_s + FEW_S))


class Costs:
    """The expected time of the remaining trials.

    Trials of one block for which one time is planned are alike: another will take what these took on average, the plan
    being one of them. Where none of them has ended, it will exceed its plan as the others of its block have, or those
    of all blocks.

    A block's first trial may start the place of all, and build what they use: it is counted only where nothing else
    tells how long they take.
    """

    def __init__(self) -> None:
        self._left: Counter[tuple[Block, float]] = Counter()
        self._alike: defaultdict[tuple[Block, float], Took] = defaultdict(Took)
        self._blocks: defaultdict[Block, Took] = defaultdict(Took)
        self._all = Took()
        self._firsts: dict[Block, Took] = {}

    def owe(self, block: Block, cost_s: float, *, trials: int = 1) -> None:
        self._left[block, cost_s] += trials

    def spend(self, block: Block, cost_s: float, ended: Ended) -> None:
        if block not in self._firsts:
            self._firsts[block] = Took(1, cost_s, ended.duration_s)
            return
        for took in (self._alike[block, cost_s], self._blocks[block], self._all):
            took.add(cost_s, ended.wall_s)

    @property
    def left_s(self) -> float | None:
        """Remaining seconds in one lab; None before any trial ended."""
        if not self._firsts:
            return None
        return sum(count * self._one_s(block, cost_s) for (block, cost_s), count in self._left.items() if count)

    def _one_s(self, block: Block, cost_s: float) -> float:
        """Return how long another trial of a block will take for which this time is planned; 0: none is."""
        alike, same_block = self._alike[block, cost_s], self._blocks[block]
        if alike.ended:
            return (alike.took_s + cost_s) / (alike.ended + (cost_s > 0))
        if cost_s:
            return cost_s + (same_block if same_block.ended else self._all).longer_s(cost_s)
        averaged = (same_block, self._firsts.get(block, self._all), self._all, *self._firsts.values())
        return next(took for took in averaged if took.ended).mean_s


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
    for event in run.journal.events(without=("facts", "files")):
        match event["event"]:
            case "planned":
                state.plan(event["trials"], event["blocks"], event.get("costs_s", ()))
                state.open_ended |= event.get("open_ended", False)
            case "finished":
                state.add(Ended(*_of_ended(event)))
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


_of_ended, _of_attempt = (itemgetter(*(field.name for field in fields(kind))) for kind in (Ended, Attempt))


def attempts_of(run: RunDirectory, *, without: Sequence[str] = ()) -> Iterator[Attempt]:
    """Yield every finished attempt in order, in less time ``without`` its facts."""
    return (Attempt(*_of_attempt(event)) for event in run.journal.events("finished", without=without))


def last_attempts(run: RunDirectory) -> dict[str, Attempt]:
    """Return the attempt that counts of each trial, with its facts."""
    return {attempt.trial_id: attempt for attempt in attempts_of(run)}


F = TypeVar("F")


def as_json(facts: DataclassInstance | dict[str, Any]) -> dict[str, Any]:
    """Return the known fields as plain values, for the journal."""
    fields = facts if isinstance(facts, dict) else asdict(facts)
    return {name: value for name, value in fields.items() if value is not None}


def facts_of(kind: type[F], attempt: Attempt) -> F:
    """Return an attempt's facts as ``kind``.

    Raises ResultsError naming a field that ``kind`` lacks, or whose value has the wrong type: the journal was edited.
    """
    from pydantic import ValidationError  # imported here, because `status` reads journals too, but no facts

    facts = {name: value for name, value in attempt.facts.items() if value not in (None, {})}
    for name in facts.keys() - {field.name for field in fields(cast(Any, kind))}:
        raise _edited(attempt, name, "there is no such fact")
    try:
        return cast(F, _adapter(cast(Any, kind)).validate_python(facts))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _edited(attempt, ".".join(map(str, first["loc"])), first["msg"]) from error


def _edited(attempt: Attempt, name: str, why: str) -> ResultsError:
    return ResultsError(
        f"{attempt.trial_id}, attempt {attempt.attempt}: facts.{name} in the journal: {why}",
        remedy="was the journal edited? a run of another version needs that version",
    )


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
