"""The proof that a wrapper measures the algorithm's work: what a guest counted of it, compared with the algorithm.

All wrappers of a run's plan are executed in one guest before the first of them is measured.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from xdplab.errors import ProgramError, UnsupportedError
from xdplab.run.rundir import RunDirectory, read_json
from xdplab.run.waiting import WAITS
from xdplab.studies.execution.benchmarks import BPF, CLOCK_READS, MODULE, USER, Benchmark, TimedCall, object_name
from xdplab.studies.execution.counted import KERNEL, Counts, Wrapped, counted

MOST_APART = 1.3
"""How many times the algorithm's instructions a wrapper may execute, or the reverse."""

LOOK, OWN_LOOK, OUTSIDE = 90, 12, 80
"""Most instructions of a look at the clock, of them the wrapper's own, and of all before the first look and of all
behind the last; 69, 12 and 51 are the most that were counted."""

ELSEWHERE, OF_LINK = 8, 3
"""Most loads, and most stores, beside the algorithm's, and of a link."""

APART = 2
"""By how many nanoseconds a guest's clock rounds a count."""

UP_NS = 3_600_000_000_000
"""The guest has been up for less: a clock that was set, or another one, says more."""


def steps(benchmark: Benchmark, wrapper: str, counts: Counts) -> int:
    """Return how many steps of the algorithm a call made."""
    kind = benchmark.task.kind
    if kind == "loads":  # what is stored was loaded: where the walk goes on
        return _loads(wrapper, counts) - counts.stores
    return counts.most if kind == "links" else int(getattr(counts, kind))


def _loads(wrapper: str, counts: Counts) -> int:
    """In user space, a look loads its function's address."""
    return counts.loads - (1 + counts.clocks if wrapper == USER else 0)


def differences(benchmark: Benchmark, wrapper: str, calls: Sequence[Counts]) -> list[str]:
    """Return what differs from the algorithm in the first call that differs, and which call it is unless it is the
    first; empty if each call does the algorithm's work between its looks at the clock, and no more."""
    for number, counts in enumerate(calls, 1):
        if wrong := list(_of_call(benchmark, wrapper, counts)):
            return wrong if number == 1 else [f"in call {number}, {difference}" for difference in wrong]
    return []


def _of_call(benchmark: Benchmark, wrapper: str, counts: Counts) -> Iterator[str]:
    task, looks = benchmark.task, 1 + counts.clocks
    made = steps(benchmark, wrapper, counts)
    if task.count and made != task.count:
        yield f"a call makes {made:,} {task.kind} between its clocks, and the algorithm {task.count:,}"
    expected = task.count * (task.jited if wrapper == BPF and task.jited else task.per_step)
    if not expected / MOST_APART <= counts.instructions <= expected * MOST_APART + task.around + OWN_LOOK * looks:
        of_algorithm = f"the algorithm about {expected:,.0f}"
        yield f"a call executes {counts.instructions:,} instructions between its clocks, and {of_algorithm}"
    if task.kind != "clocks" and counts.clocks:
        yield f"a call looks at its clock {2 + counts.clocks:,} times"
    yield from _memory(benchmark, wrapper, counts)
    if counts.stalls:
        yield f"a call executes {counts.stalls:,} pauses, fences or the like, which do no work"
    for part, where in ((counts.before, "before its first clock"), (counts.behind, "behind its last clock")):
        if part > OUTSIDE:
            yield f"a call executes {part:,} instructions {where}"
    if benchmark.trap:
        return
    if counts.called > LOOK * looks + task.called * task.count:
        yield f"a call calls other functions, of {counts.called:,} instructions, between its clocks"
    interrupts = counts.elapsed - counts.instructions - counts.called  # the clock counts their repeated stores each
    if abs(counts.stated - counts.elapsed) > APART + interrupts or not 0 < counts.began < UP_NS:
        yield f"a call says: it took {counts.stated:,} from {counts.began:,} on, and {counts.elapsed:,} were counted"


def unlike(benchmark: Benchmark, calls: Sequence[Counts], partner: Sequence[Counts]) -> list[str]:
    """Return the first result that is another one than that of the same call of another wrapper; empty if all agree,
    and of benchmarks whose result is of their clock or of random numbers."""
    if benchmark.trap or benchmark.clock_result:
        return []
    pairs = enumerate(zip(calls, partner, strict=True), 1)
    apart = ((number, one.result, other.result) for number, (one, other) in pairs if one.result != other.result)
    return [f"call {number} gives {one}, and its partner {other}" for number, one, other in apart][:1]


def _memory(benchmark: Benchmark, wrapper: str, counts: Counts) -> Iterator[str]:
    task = benchmark.task
    of_links = OF_LINK * task.count if task.kind == "links" else 0
    loads = (task.count if task.kind in ("loads", "stores") else of_links) + ELSEWHERE
    stores = (task.count if task.kind == "stores" else of_links) + ELSEWHERE
    if _loads(wrapper, counts) > loads or counts.stores > stores:
        yield f"a call loads {counts.loads:,} times and stores {counts.stores:,} times between its clocks"


def require_results(benchmark: Benchmark, calls: Sequence[TimedCall], expected: Sequence[int], cold: bool) -> None:
    """Raise ProgramError unless each call gave the reference's result; each cold call starts from the beginning.

    ``expected``: the results of as many warm calls of the user-space function on this machine.
    """
    if benchmark.trap:
        return
    if benchmark.clock_result:
        _require_sums(calls)
        return
    wanted = [expected[0]] * len(calls) if cold else list(expected[: len(calls)])
    for call, value in zip(calls, wanted, strict=True):
        if call.result != value:
            raise ProgramError(
                f"{benchmark.name}: call {call.index} gives {call.result}, user space gives {value} for the same input"
            )


def _require_sums(calls: Iterable[TimedCall]) -> None:
    """The sum of N looks at a clock lies between N times the first look and N times the last."""
    for call in calls:
        if not CLOCK_READS * call.begin_ns <= call.result <= CLOCK_READS * call.end_ns:
            raise ProgramError(f"clock sum: call {call.index} gives {call.result}, which no {CLOCK_READS} clocks make")


COUNTS = "objects/counts.json"
_COUNTING = threading.Lock()
"""Places that are measured at the same time have one guest that counts."""


class Proofs:
    """Of the wrappers ``wanted``, each a benchmark and a wrapper's name.

    ``module`` builds the module for a place; a machine that cannot build it has no proof of the module's wrappers.
    """

    def __init__(
        self, run: RunDirectory, wanted: Sequence[tuple[Benchmark, str]], module: Callable[[str], Path]
    ) -> None:
        self._run, self._wanted, self._module = run, wanted, module

    def counts(self, benchmark: Benchmark, wrapper: str) -> tuple[Counts, ...]:
        """Return what a wrapper's calls do, which is the algorithm's work.

        Raises ProgramError if it is other work, or of another object than the one that is there, UnsupportedError for a
        module that cannot be built, and as `counted` does.
        """
        results = self._all()
        name = _name(benchmark, wrapper)
        if name not in results:
            self._object(benchmark, wrapper)  # raises the module's own error
            raise ProgramError(f"{name}: it was not executed")
        calls = _calls(results[name])
        refused = [results[name]["refused"]] if results[name]["refused"] else differences(benchmark, wrapper, calls)
        for other in benchmark.wrappers:
            if not refused and _calls(results.get(_name(benchmark, other), {})):
                refused = unlike(benchmark, calls, _calls(results[_name(benchmark, other)]))
        if wrapper != MODULE and results[name]["object"] != _digest(self._object(benchmark, wrapper)):
            refused = ["its object is another one than that which was counted"]
        if refused:
            raise ProgramError(f"{name}: its proof fails: {'; '.join(refused)}")
        return calls

    def _all(self) -> Mapping[str, Any]:
        with _COUNTING:
            path = self._run.path / COUNTS
            if not path.exists():
                WAITS.get()(f"a guest executes {len(self._wanted)} wrappers, each to be proved")
                self._run.write_bytes(COUNTS, json.dumps(self._executed(), indent=0).encode() + b"\n")
                WAITS.get()(None)
            return read_json(path, dict)

    def _executed(self) -> dict[str, Any]:
        wrapped = [Wrapped(*pair, path) for pair in self._wanted if (path := self._existing(*pair))]
        results = {}
        for one, calls in zip(wrapped, executed(wrapped), strict=True):
            results[_name(one.benchmark, one.wrapper)] = {
                "object": _digest(one.object),
                "refused": calls.message if isinstance(calls, ProgramError) else "",
                "calls": [] if isinstance(calls, ProgramError) else [asdict(call) for call in calls],
            }
        return results

    def _existing(self, benchmark: Benchmark, wrapper: str) -> Path | None:
        """Return the object with a wrapper; None if it is not there, such as a module that cannot be built."""
        try:
            path = self._object(benchmark, wrapper)
        except UnsupportedError:
            return None
        return path if path.exists() else None

    def _object(self, benchmark: Benchmark, wrapper: str) -> Path:
        if wrapper == MODULE:
            return self._module(f"vm:{KERNEL}")
        return self._run.path / "objects" / object_name(benchmark, wrapper)


def executed(wrapped: Sequence[Wrapped]) -> list[tuple[Counts, ...] | ProgramError]:
    """Return what the calls of wrappers do, as `counted` does; what does other work is counted once more.

    Now and then a tick of the guest falls into a call, or its kernel reads the clock twice: that is not the wrapper's,
    and falls elsewhere in another guest. What a wrapper does itself, it does again.
    """
    results = counted(wrapped)
    again = [
        number
        for number, (one, calls) in enumerate(zip(wrapped, results, strict=True))
        if not isinstance(calls, ProgramError) and differences(one.benchmark, one.wrapper, calls)
    ]
    if again:
        for number, calls in zip(again, counted([wrapped[number] for number in again]), strict=True):
            results[number] = calls
    return results


def _name(benchmark: Benchmark, wrapper: str) -> str:
    return f"{benchmark.name}, {wrapper}"


def _calls(counted_wrapper: Mapping[str, Any]) -> tuple[Counts, ...]:
    return tuple(Counts(**call) for call in counted_wrapper.get("calls", ()))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
