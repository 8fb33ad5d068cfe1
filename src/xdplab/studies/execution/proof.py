"""The proof that a wrapper measures the algorithm's work: what a guest counted of it, compared with the algorithm."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from xdplab.errors import ProgramError
from xdplab.studies.execution.benchmarks import BPF, CLOCK_READS, USER, Benchmark
from xdplab.studies.execution.counted import Counts
from xdplab.studies.execution.microbench import TimedCall

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
