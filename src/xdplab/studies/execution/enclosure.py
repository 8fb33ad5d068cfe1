"""Whether the two clock calls enclose the work, decided by the control flow of the compiled code. Every path from a
function's entry must reach the same first clock call, from there the same last one, and from there the end. The work
(its loop, divisions, loads, calls) must be on the way between them, and none of it before or after.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdplab.studies.execution.codelines import CodeLine

MOST_LOADS_OUTSIDE = 8
"""What a wrapper itself reads: its arguments, the packet's bounds, the input."""


@dataclass(frozen=True)
class TimedWork:
    """What must at least be between the clock calls; ``calls`` may be called there.

    ``clocks``: looks at the clock that the work itself makes, as places in the code. ``outside``: what the wrapper may
    call before and behind.
    """

    loop: bool = False
    divides: bool = False
    loads: int = 0
    clocks: int = 0
    calls: frozenset[str] = frozenset()
    needs_call: str | None = None
    outside: frozenset[str] = frozenset()


class Flow:
    """The control flow of one function: steps by their place, and what may follow each."""

    def __init__(self, steps: Sequence[CodeLine], tail_calls: Mapping[str, int] | None = None) -> None:
        """``tail_calls``: callees that do not come back, and the address where they go on."""
        self.steps = list(steps)
        self._index = {step.at: i for i, step in enumerate(self.steps)}
        self._tail_calls = tail_calls or {}

    def following(self, i: int) -> list[int]:
        step = self.steps[i]
        if step.callee is not None and step.callee in self._tail_calls:
            return [self._index[self._tail_calls[step.callee]]]
        after = [i + 1] if i + 1 < len(self.steps) else []
        to = [self._index[step.target]] if step.target in self._index else []
        return {"return": [], "jump": to, "branch": to + after}.get(step.kind, after)

    def reachable(self, starts: Iterable[int], stops: Iterable[int] = ()) -> set[int]:
        """Return what is reachable from ``starts`` (included) without passing ``stops`` (excluded)."""
        stop, seen, todo = set(stops), set[int](), list(starts)
        while todo:
            i = todo.pop()
            if i not in seen and i not in stop:
                seen.add(i)
                todo += self.following(i)
        return seen

    def behind(self, i: int, stops: Iterable[int] = ()) -> set[int]:
        return self.reachable(self.following(i), stops)

    def has_loop(self, members: set[int]) -> bool:
        """Tell whether some step of ``members`` can come back to itself without leaving them."""
        outside = set(range(len(self.steps))) - members
        return any(i in self.behind(i, outside) for i in members)


def complaints(flow: Flow, entry: int, clock: str, work: TimedWork) -> list[str]:
    """Return what is wrong with a function that begins at step ``entry``; empty if the clocks enclose the work."""
    clocks = [i for i, step in enumerate(flow.steps) if step.callee == clock]
    before = flow.reachable([entry], clocks)
    first = _first_of(flow, before | {entry}, clocks, entry)
    last = [i for i in clocks if i not in before and not flow.behind(i) & set(clocks)]
    if len(clocks) != 2 + work.clocks or len(first) != 1 or len(last) != 1 or first == last:
        return [f"{clock} is called at {len(clocks)} places ({len(first)} first, {len(last)} last): the clock moved"]
    between = flow.behind(first[0], last)
    outside = before | flow.behind(last[0])
    return [*_escapes(flow, before, between), *_missing(flow, between, work, clock), *_strays(flow, outside, work)]


def _first_of(flow: Flow, before: set[int], clocks: Sequence[int], entry: int) -> list[int]:
    reached = {following for i in before if i not in clocks for following in flow.following(i)} | {entry}
    return [i for i in clocks if i in reached]


def _escapes(flow: Flow, before: set[int], between: set[int]) -> Iterator[str]:
    """A wrapper may return before it reads the clock; after the first reading it must reach the last one."""
    if any(flow.steps[i].kind == "return" for i in between):
        yield "a way leads from the first clock to the end without the last"
    if before & between:
        yield "a way leads back from the first clock to before it"


def _missing(flow: Flow, between: set[int], work: TimedWork, clock: str) -> Iterator[str]:
    steps = [flow.steps[i] for i in between]
    called = {step.callee for step in steps if step.kind == "call" or step.callee}
    if work.loop and not flow.has_loop(between):
        yield "there is no loop between the clocks"
    if work.divides and not any(step.kind == "divide" for step in steps):
        yield "there is no division between the clocks"
    if (loads := sum(step.loads for step in steps)) < work.loads:
        yield f"there are {loads} loads between the clocks instead of {work.loads} or more"
    if work.needs_call and work.needs_call not in called:
        yield f"{work.needs_call} is not called between the clocks"
    if strange := sorted(str(name) for name in called - work.calls - {work.needs_call, clock}):
        yield f"{', '.join(strange)} is called between the clocks, which is other work"


def _strays(flow: Flow, outside: set[int], work: TimedWork) -> Iterator[str]:
    steps = [flow.steps[i] for i in outside]
    if flow.has_loop(outside):
        yield "there is a loop outside of the clocks"
    if any(step.kind == "divide" for step in steps):
        yield "there is a division outside of the clocks"
    if (loads := sum(step.loads for step in steps)) > MOST_LOADS_OUTSIDE:
        yield f"there are {loads} loads outside of the clocks"
    called = {step.callee for step in steps if step.callee} - work.outside
    if called:
        yield f"{', '.join(sorted(called))} is called outside of the clocks"
