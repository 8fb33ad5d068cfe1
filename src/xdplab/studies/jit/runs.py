"""Study jit, as a kind of run: what it gathers; a block is a place, a trial is one thing that BPF does in one mode."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from xdplab.errors import HostError, PlanError, UnsupportedError
from xdplab.labs.base import HOST
from xdplab.run.rundir import read_json
from xdplab.studies.guests import PlacedSession, compiler_of, driver, require_places
from xdplab.studies.jit import classes, subjects, views
from xdplab.studies.jit.classes import CLASSES
from xdplab.studies.jit.filters import EXPRESSIONS, PACKET_FILTERS, SECCOMP_FILTERS, Op, compiled, tcpdump
from xdplab.studies.jit.kerneltests import (
    FIRST_SUITE,
    MODULE,
    KernelTests,
    Sizes,
    chosen_range,
    find_tests,
    parse_test_bpf,
    run_suite,
    watched,
)
from xdplab.studies.jit.points import (
    AMPLIFIED,
    ASKED,
    BENCH,
    FILTERS,
    INSN_CLASSES,
    JIT,
    LOG,
    SIZES_FILE,
    SUITES,
    TCP,
    TEST_BPF,
    TESTS,
    TRAFFIC,
    JitPoint,
    JitRequest,
    hardenings_of,
    modes_of,
    parts_of,
    smallest,
    subjects_of,
)
from xdplab.studies.jit.rows import table_of
from xdplab.studies.jit.subjects import parse_jitbench
from xdplab.studies.jit.summaries import TABLES, results
from xdplab.studies.meaning import tables_by
from xdplab.studies.places import Place, PlaceFacts, require_rights
from xdplab.studies.points import Gathered, StudyPlan, StudyPlanning, StudyTrial
from xdplab.studies.study_kind import study_kind

NATIVE = "jitbench"
NOT_HERE = "freed programs are watched only in guests"


@dataclass(frozen=True)
class Effort:
    """Runs in a round, and rounds.

    In a guest that counts, a round is short compared with the pause between two timer ticks (four million
    instructions): a tick falls into some rounds, and the minimum is a round without one.
    """

    times: int
    rounds: int


EFFORTS: dict[tuple[str, str], Effort] = {
    ("programs", "instructions"): Effort(50, 15),
    ("sockets", "instructions"): Effort(50, 15),
    ("seccomp", "instructions"): Effort(50, 9),
    ("traffic", "instructions"): Effort(20, 15),
    ("amplified", "instructions"): Effort(5, 9),
    ("tcp-rr", "instructions"): Effort(20, 15),
    ("tcp-stream", "instructions"): Effort(20, 15),
    ("programs", "time"): Effort(1000, 41),
    ("sockets", "time"): Effort(500, 41),
    ("seccomp", "time"): Effort(2000, 21),
    ("traffic", "time"): Effort(200, 41),
    ("amplified", "time"): Effort(200, 101),
    ("tcp-rr", "time"): Effort(200, 41),
    ("tcp-stream", "time"): Effort(200, 41),
}


@dataclass(frozen=True)
class BenchCall:
    """One call of jitbench: its command, what it runs, the end of its raw files' names, and its row of `EFFORTS`."""

    command: str
    loads: Sequence[subjects.JitLoad]
    end: str = ""
    effort: str = ""


class JitStudy(PlacedSession):
    """Measures trials; one place is up at a time. ``filters`` are the run's own, by name."""

    facts = PlaceFacts

    def __init__(self, filters: Mapping[str, Sequence[Op]]) -> None:
        super().__init__()
        self._filters = filters
        self._tests: KernelTests | None = None

    def enter_block(self, trials: Sequence[StudyTrial[JitPoint]]) -> None:
        name = trials[0].point.place
        benches = any(trial.point.part != TEST_BPF for trial in trials)
        self.enter(name, driver(NATIVE, name, libbpf=False) if benches else None, (MODULE,))
        self._tests = None

    def measure(self, trial: StudyTrial[JitPoint], raw: Path, facts: PlaceFacts) -> None:
        point, place = trial.point, self.at(facts, trial.point.harden)
        self.compile_bpf(point.mode == JIT)
        with place.hardened(point.harden):
            _PARTS[point.part](self, place, point, raw)

    def _test_bpf(self, place: Place, point: JitPoint, raw: Path) -> None:
        if self._tests is None:
            self._tests = find_tests(place)
        (raw / TESTS).write_text(json.dumps([asdict(t) for t in self._tests.tests if t.suite == point.subject]))
        with self._sizes(place, point) as sizes:
            for number, log in enumerate(run_suite(place, self._tests, point.subject, point.tests)):
                (raw / LOG.format(number)).write_text(log)
                if sizes is not None:
                    (raw / SIZES_FILE.format(number)).write_text(sizes.taken())
                ran = {test.jited for test in parse_test_bpf(log) if test.jited is not None}
                if ran - {point.mode == JIT} and not _still(place, point.mode):
                    raise HostError(
                        f"{place.label}: tests ran {_ran(ran)}: another process changed the kernel's setting"
                    )

    def _sizes(self, place: Place, point: JitPoint) -> AbstractContextManager[Sizes | None]:
        """Watch the sizes of compiled programs; on this machine, nothing is traced without a request."""
        if point.mode != JIT or point.subject != FIRST_SUITE:
            return nullcontext()
        return nullcontext(Sizes(place.host, NOT_HERE)) if place.name == HOST else watched(place.host)

    def _class(self, place: Place, point: JitPoint, raw: Path) -> None:
        self._bench(BenchCall("programs", subjects.of_class(CLASSES[point.subject], classes.encode)), point, raw)

    def _filter(self, place: Place, point: JitPoint, raw: Path) -> None:
        code = self._filters[point.subject]
        if point.subject == subjects.SECCOMP:
            bench = BenchCall("seccomp", subjects.of_seccomp(code, place.name, place.release))
        else:
            bench = BenchCall("sockets", subjects.of_filter(code))
        self._bench(bench, point, raw)

    def _traffic(self, place: Place, point: JitPoint, raw: Path) -> None:
        self._bench(BenchCall("traffic", subjects.of_traffic(self._filters[point.subject])), point, raw)

    def _amplified(self, place: Place, point: JitPoint, raw: Path) -> None:
        loads = subjects.of_many(self._filters[point.subject])
        self._bench(BenchCall("traffic", loads, effort="amplified"), point, raw)

    def _tcp(self, place: Place, point: JitPoint, raw: Path) -> None:
        for kind, (command, payload) in subjects.TCP_KINDS.items():
            loads = subjects.of_tcp(self._filters[point.subject], payload)
            self._bench(BenchCall(command, loads, f"-{kind}"), point, raw)

    def _bench(self, bench: BenchCall, point: JitPoint, raw: Path) -> None:
        """Run jitbench; every verdict must be the model's."""
        assert self.place is not None
        effort = EFFORTS[bench.effort or bench.command, self.place.clock]
        (raw / ASKED.format(bench.end)).write_text("".join(json.dumps(asdict(load)) + "\n" for load in bench.loads))
        stdin = "".join(load.line for load in bench.loads).encode()
        output = self.call([bench.command, str(effort.times), str(effort.rounds)], stdin)
        (raw / BENCH.format(bench.end)).write_bytes(output)
        answer = parse_jitbench(output)
        if answer.compiles != (point.mode == JIT):
            does = _DOES[answer.compiles]
            raise HostError(f"{self.place.label}: the kernel {does} what it loads, against its setting")
        for load in bench.loads:
            subject = answer.subjects[load.name]
            if subject.failed:
                raise UnsupportedError(f"{load.name}: {subject.failed}")
            if load.expected is not None and subject.verdict != load.expected:
                raise HostError(f"{load.name} returns {subject.verdict}; the model says {load.expected}")


def _still(place: Place, mode: str) -> bool:
    """Tell whether tests may run against the mode: a JIT leaves programs to the interpreter that it cannot compile.

    The reverse cannot happen: nothing is compiled while the setting forbids it.
    """
    return mode == JIT and place.jit_setting() == "1"


def _ran(modes: set[bool]) -> str:
    return " and ".join({True: "compiled", False: "interpreted"}[one] for one in sorted(modes))


_DOES = {True: "compiles", False: "interprets"}
_PARTS: dict[str, Callable[[JitStudy, Place, JitPoint, Path], None]] = {
    TEST_BPF: JitStudy._test_bpf,
    INSN_CLASSES: JitStudy._class,
    FILTERS: JitStudy._filter,
    TRAFFIC: JitStudy._traffic,
    AMPLIFIED: JitStudy._amplified,
    TCP: JitStudy._tcp,
}


FILTERS_FILE = "filters.json"
JitPlan = StudyPlan[JitRequest, JitPoint]


def _gather(request: JitRequest) -> Gathered[JitPoint]:
    require_places(request.places, any_architecture=True)
    require_rights(request.places, "--place vm:6.1:count")
    chosen_range(request.tests)
    for place in request.places:
        if set(parts_of(place, request)) - {TEST_BPF}:
            compiler_of(place)  # that it is missing is said before anything starts
    filters, notes = _filters(request)
    points = [
        JitPoint(place, part, subject, mode, request.tests if (part, subject) == (TEST_BPF, SUITES[0]) else "", harden)
        for place in request.places
        for part in parts_of(place, request)
        for subject in subjects_of(part, place, request, tuple(filters))
        for mode in modes_of(place, request)
        for harden in hardenings_of(mode, request)
    ]
    if not points:
        raise PlanError("there is nothing to measure", remedy="name a part, or leave --part out")
    kept = json.dumps(filters, indent=1).encode()
    return Gathered(points, files={FILTERS_FILE: kept}, notes=notes)


def _filters(request: JitRequest) -> tuple[dict[str, tuple[Op, ...]], list[str]]:
    """Return every filter of the run by name, and what is left out."""
    shipped = PACKET_FILTERS | SECCOMP_FILTERS
    chosen = {name: shipped[name] for name in request.filters or shipped}
    expressions, notes = request.expressions, []
    if not expressions and not request.filters:
        expressions = EXPRESSIONS if tcpdump() else ()
        if not expressions:
            notes.append("no tcpdump is here: no expression is compiled (apt install tcpdump)")
    return chosen | {expression: compiled(expression) for expression in expressions}, notes


def _session(plan: JitPlan) -> JitStudy:
    def session_of(kept: Any) -> JitStudy:
        return JitStudy({name: tuple(Op(*op) for op in code) for name, code in kept.items()})

    return read_json(plan.directory.path / FILTERS_FILE, session_of)


STUDY = study_kind(
    StudyPlanning("jit", "What does BPF cost, interpreted and compiled?", JitRequest, JitPoint, _gather, smallest),
    session=_session,
    table=table_of,
    tables=tables_by(TABLES),
    views=views.VIEWS,
    results=results,
    version="5",
    possible=lambda plan: views.possible(plan.points),
)
