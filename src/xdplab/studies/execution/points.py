"""The request, and its points: one benchmark, backend and place; warm, after a pause, or cold."""

from __future__ import annotations

from dataclasses import dataclass, replace

from xdplab.errors import PlanError
from xdplab.labs.base import HOST
from xdplab.lazy import lazily
from xdplab.studies.execution.benchmarks import BPF, MODULE, USER, Benchmark, all_benchmarks
from xdplab.studies.places import PlaceFacts, counts, harden_words
from xdplab.studies.points import StudyPoint, StudyRequest, StudyTrial, option

with lazily():
    from xdplab.studies.execution import backends

BACKENDS = {"interpreter": BPF, "jit": BPF, "module": MODULE, "user": USER}
"""Each backend, and the wrapper it runs."""

REFERENCE = ("module", "user")
"""The reference of the others: the first of these that a place has."""

PLACES = (HOST, "uml", "vm:6.1:count")
FEWEST_CALLS = 15
"""Calls of a warm trial: as many as in the published prime table."""

SMALLEST = ("empty", "clock sum", "matrix", "primes", "chain 1", "chain 32", "array 100")


@dataclass(frozen=True)
class ExecutionRequest(StudyRequest):
    """What is asked for. ``benchmarks``: by name; if empty, all. ``accesses``: N of the testbed's workloads.

    ``calls``: warm calls per trial; a tenth as many are cold. If instructions are counted, few calls do: counts repeat.
    ``pauses_us``: sleep before each call, in µs; 0 means back to back, that is, warm. ``host_module``: insert the
    module into this machine's own kernel too. ``executions``: of a kernel between two looks at the clock;
    ``hardenings``: values of net.core.bpf_jit_harden (if empty, it is left as it is).
    """

    repetitions: int = option(5, "", bounds=(1, 1000))
    smallest: bool = option(False, "Few benchmarks, one repetition, warm: a minute or two.")
    places: tuple[str, ...] = option(
        PLACES, f"{', '.join(PLACES)} by default; vm:6.1@arm64 …", "--place", metavar="PLACE"
    )
    backends: tuple[str, ...] = option(tuple(BACKENDS), "All by default.", "--backend", choices=tuple(BACKENDS))
    benchmarks: tuple[str, ...] = option((), 'Such as "chain 32"; all by default.', "--benchmark", metavar="NAME")
    accesses: tuple[int, ...] = option((100,), "N of the testbed's workloads: 100.", bounds=(1, 10000))
    calls: int = option(100, "Warm.", bounds=(FEWEST_CALLS, 100000))
    pauses_us: tuple[int, ...] = option((0,), "Before each call: 0.", "--pause-us", bounds=(0, 1000000))
    cold: bool = option(True, "Also loaded anew, with caches evicted.")
    host_module: bool = option(False, "Insert the module into this machine's own kernel too.")
    config: str | None = option(None, "Your own BPF and module.", metavar="FILE")
    executions: tuple[int, ...] = option((1,), "Between two looks at the clock: 1.", bounds=(1, 64))
    hardenings: tuple[int, ...] = option((), "net.core.bpf_jit_harden.", "--harden", bounds=(0, 2))


@dataclass(frozen=True)
class ExecutionPoint(StudyPoint):
    """``benchmark`` by name; ``own``: a user's own pair, of that name; ``pause_us``: asleep before each call.

    ``harden``: net.core.bpf_jit_harden, None if it is left as it is.
    """

    place: str
    backend: str
    benchmark: str
    cold: bool = False
    own: bool = False
    pause_us: int = 0
    harden: int | None = None

    IF_SET = ("harden",)

    @property
    def cost_s(self) -> float:
        """A guest that counts is emulated, and a module is inserted for each trial."""
        return (2.0 if self.backend == "module" else 1.0) if counts(self.place) else 0.3

    @property
    def setting(self) -> str:
        return self.backend if counts(self.place) and self.backend in ("interpreter", "jit") else ""

    @property
    def once(self) -> bool:
        """A counting guest gives the same counts again."""
        return counts(self.place)

    def __str__(self) -> str:
        hardened = "" if self.harden is None else f", {harden_words(self.harden)}"
        return f"{self.place}, {self.backend}: {self.benchmark}, {state_words(self.cold, self.pause_us)}{hardened}"


Trial = StudyTrial[ExecutionPoint]
CALLS = "calls.jsonl"
"""The raw file of a trial: what the driver printed."""


@dataclass
class ExecutionFacts(PlaceFacts):
    """A trial's facts: sizes of the program in the kernel, the counts of its proof, and the evicted cache."""

    jited_bytes: int | None = None
    xlated_bytes: int | None = None
    work_steps: int | None = None
    work_instructions: int | None = None
    evicted_bytes: int | None = None


def state_words(cold: bool, pause_us: int) -> str:
    """Return what a call finds: warm, cold, or what a pause of so many µs leaves."""
    if cold:
        return "cold"
    return f"after {pause_us:,} µs asleep" if pause_us else "warm"


def smallest(request: ExecutionRequest) -> ExecutionRequest:
    """Return the smallest request that still shows everything: few benchmarks, warm, once, with few calls."""
    benchmarks = request.benchmarks or SMALLEST
    return replace(request, benchmarks=benchmarks, repetitions=1, calls=20, cold=False, smallest=True)


def chosen(request: ExecutionRequest) -> dict[str, Benchmark]:
    """Return the benchmarks asked for. Raises PlanError for one that does not exist."""
    benchmarks = all_benchmarks(request.accesses, executions=request.executions)
    if unknown := [name for name in request.benchmarks if name not in benchmarks]:
        raise PlanError(f"--benchmark: there is no {', '.join(unknown)}", remedy=f"there are {', '.join(benchmarks)}")
    return {name: benchmarks[name] for name in request.benchmarks} if request.benchmarks else benchmarks


def points(request: ExecutionRequest, benchmarks: dict[str, Benchmark]) -> list[ExecutionPoint]:
    """Return every point: backends that a place cannot have are left out, what is only missing is found by trying."""
    chosen_points = []
    for place in request.places:
        for benchmark in benchmarks.values():
            for backend in _backends(request, place):
                if BACKENDS[backend] in benchmark.wrappers:
                    chosen_points += [
                        ExecutionPoint(place, backend, benchmark.name, cold, pause_us=pause_us, harden=harden)
                        for cold, pause_us in _states(request, place)
                        for harden in request.hardenings or (None,)
                    ]
    return chosen_points


def own_points(request: ExecutionRequest, name: str) -> list[ExecutionPoint]:
    """Return the points of a user's own pair, which has no user-space function; its event says how it is called."""
    return [
        ExecutionPoint(place, backend, name, own=True)
        for place in request.places
        for backend in _backends(request, place)
        if backend != "user"
    ]


def calls_of(request: ExecutionRequest, point: ExecutionPoint) -> int:
    """Return how many calls a trial of that point makes."""
    if counts(point.place):
        return 3 if point.cold else FEWEST_CALLS
    return max(3, request.calls // 10) if point.cold else request.calls


def _backends(request: ExecutionRequest, place: str) -> list[str]:
    return [backend for backend in request.backends if backend not in backends.absent(place, request.host_module)]


def _states(request: ExecutionRequest, place: str) -> list[tuple[bool, int]]:
    """Return (cold, pause in µs): a cold call finds nothing to cool, and a guest that counts has no caches."""
    pauses = (0,) if counts(place) else request.pauses_us
    return [*((False, pause) for pause in dict.fromkeys(pauses)), *([(True, 0)] if request.cold else [])]
