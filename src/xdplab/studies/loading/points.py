"""Points of the loading study: a program as BPF or as a module, compiled here, or loaded in a place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from xdplab.errors import PlanError
from xdplab.labs.base import HOST, MITIGATED
from xdplab.programs.spec import ACCESSING, FORMS
from xdplab.studies.guests import compiler_of, module_refusal, require_places
from xdplab.studies.places import is_foreign, require_rights
from xdplab.studies.points import Gathered, StudyPoint, StudyRequest, StudyTrial, option

BPF, MODULE, LOADER = "bpf", "module", "loader"
INSMOD, BUSYBOX, LIBBPF, BPFTOOL = "insmod", "busybox", "libbpf", "bpftool"
"""Whole processes that insert the simple program: kinds of task ``process``."""

CLOCK = "clock"
"""The program of one clock read: the simple program of "eBPF against modules"."""

ACCESSES = (1, 100, 400, 1600, 6400, 12800)
DEFAULT_PLACES = (HOST, "vm:6.1:count")
Task = Literal["load", "compile", "start", "process"]
Trial = StudyTrial["LoadingPoint"]


@dataclass(frozen=True)
class LoadingRequest(StudyRequest):
    """``loads`` is how often each program is loaded in a process; ``budget_s`` what one pass of them may take.

    ``repetitions`` are trials: processes, and guests booted, anew.
    """

    repetitions: int = 1
    smallest: bool = option(False, "One kernel that counts, three programs, few repetitions: a minute.")
    loads: int = option(100, "Of each program, in one process.", bounds=(1, 10_000))
    compiles: int = option(5, "Of each program.", bounds=(1, 1000))
    budget_s: float = option(5.0, "Of one pass.", bounds=(0.1, 3600))
    places: tuple[str, ...] = option(
        DEFAULT_PLACES, f"{', '.join(DEFAULT_PLACES)} by default; uml, vm:6.1@arm64 …", "--place"
    )
    workload: str = option("array", "", choices=ACCESSING)
    forms: tuple[str, ...] = option(("bounded", "unrolled"), "bounded and unrolled.", "--form", choices=FORMS)
    accesses: tuple[int, ...] = option(
        ACCESSES, f"{','.join(map(str, ACCESSES))}.", bounds=(1, 1_000_000), listed=True, metavar="N,N,…"
    )


def smallest(request: LoadingRequest) -> LoadingRequest:
    """Return the smallest request that still shows everything: one kernel that counts, two sizes, a minute."""
    places = request.places if request.places != DEFAULT_PLACES else DEFAULT_PLACES[1:]
    return replace(
        request,
        places=places,
        loads=min(request.loads, 25),
        compiles=1,
        budget_s=2.0,
        forms=("unrolled",),
        accesses=(1, 1600),
        smallest=True,
    )


@dataclass(frozen=True)
class LoadingPoint(StudyPoint):
    """``kind``: ``bpf``, ``module``, ``loader`` (the process alone), or the tool of a whole process. ``program``:
    ``clock``, or the workload.

    ``kernel`` is whose headers a module is compiled against, and '' elsewhere.
    """

    task: Task
    place: str
    kind: str
    program: str
    form: str | None = None
    accesses: int | None = None
    kernel: str = ""

    @property
    def cost_s(self) -> float:
        if self.task == "compile":
            return 3.0 if self.kind == MODULE else 0.3
        return super().cost_s

    @property
    def block(self) -> tuple[str, ...]:
        return ("compile" if self.task == "compile" else self.place,)

    def __str__(self) -> str:
        if self.task == "process":
            return f"{PROCESS_WORDS[self.kind]} {self.program}, {self.place}"
        size = "" if self.accesses is None else f" {self.form}, N = {self.accesses}"
        what = (
            f"{self.task} {self.kind} {self.program}{size}" if self.task != "start" else "a process that does nothing"
        )
        return f"{what}, {f'for {self.kernel}' if self.kernel else self.place}"


PROCESS_WORDS = {INSMOD: "insmod", BUSYBOX: "busybox insmod", LIBBPF: "a libbpf loader", BPFTOOL: "bpftool prog load"}


def gather(request: LoadingRequest) -> Gathered[LoadingPoint]:
    """Return the points of a request.

    Raises PlanError, and LabError for a place that cannot exist or lacks a compiler.
    """
    require_places(request.places, any_architecture=True)
    require_rights(request.places, "--place vm:6.1:count")
    for place in request.places:
        if kind_of(place) == "vm" and not kernel_of(place):
            raise PlanError(f"--place: {place} names no kernel", remedy="write vm:KERNEL:count, or vm:KERNEL@ARCH")
        compiler_of(place)  # without one, not even the driver can be built
    programs: list[tuple[str, str | None, int | None]] = [(CLOCK, None, None)]
    programs += [(request.workload, form, n) for form in request.forms for n in request.accesses]
    points = [point for place in request.places for point in _loads(place, programs)]
    points += [LoadingPoint("compile", HOST, BPF, *program) for program in programs]
    kernels = dict.fromkeys(kernel_of(p) for p in request.places if takes_modules(p))
    points += [LoadingPoint("compile", HOST, MODULE, *program, k) for k in kernels for program in programs]
    return Gathered(points, notes=[why for place in request.places for why in _left_out(place)])


def _loads(place: str, programs: list[tuple[str, str | None, int | None]]) -> Iterator[LoadingPoint]:
    yield LoadingPoint("start", place, LOADER, "")
    for kind in _processes(place):
        yield LoadingPoint("process", place, kind, CLOCK)
    for kind in (BPF, MODULE) if takes_modules(place) else (BPF,):
        for program in programs:
            yield LoadingPoint("load", place, kind, *program)


def _processes(place: str) -> tuple[str, ...]:
    """Return the tools that insert in a place; a guest of another architecture has its own busybox and our loader."""
    if is_foreign(place):
        return (BUSYBOX, LIBBPF) if takes_modules(place) else (LIBBPF,)
    return tuple(PROCESS_WORDS) if kind_of(place) != HOST else (LIBBPF, BPFTOOL)


def _left_out(place: str) -> Iterator[str]:
    """Yield notes on what is not measured in a place, and why."""
    if is_foreign(place):
        yield f"{place}: insmod and bpftool are left out: the guest has no programs of its architecture but busybox"
        if why := module_refusal(place):
            yield f"{place}: modules are left out: {why}"
    elif kind_of(place) in _LEFT_OUT:
        yield _LEFT_OUT[kind_of(place)]


def kind_of(place: str) -> str:
    """Return ``host``, ``vm`` or ``uml``."""
    return place.partition(":")[0]


def takes_modules(place: str) -> bool:
    """Return whether modules are measured in a place."""
    return module_refusal(place) is None if is_foreign(place) else kind_of(place) not in _LEFT_OUT


def kernel_of(place: str) -> str:
    """Return the kernel's name in ``vm:KERNEL:WAY``."""
    return place.split(":")[1].removesuffix(MITIGATED) if ":" in place else ""


_LEFT_OUT = {
    HOST: "host: no module is loaded into this machine's own kernel: a fault in it would take the machine down",
    "uml": "uml: no part of a module's insertion is timed, only insmod as a whole: user-mode Linux maps a module's "
    "memory by system calls of this machine, which a kernel does not make",
}
"""Kinds of places where modules are not measured, and why."""
