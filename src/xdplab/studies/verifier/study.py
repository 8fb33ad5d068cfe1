"""The verifier study for the runner: a block is a machine, a trial is one object on it, or a search.

A search looks for the largest N of a family that a verifier still accepts. Loads near the limit cost most (a second
here, minutes in a guest that counts), so three small ones predict it: their processed instructions give a parabola.
From there, doubling steps and then bisection find it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from xdplab.errors import HostError, ProgramError
from xdplab.formats.verifier import lines_by_object, parse_bpfverify
from xdplab.programs.program import cache_directory
from xdplab.studies.guests import PlacedSession, driver
from xdplab.studies.places import PlaceFacts
from xdplab.studies.verifier.generated import Member, compile_object, find_compilers, source
from xdplab.studies.verifier.machines import NATIVE, LoaderPlace, given_in, machine_of
from xdplab.studies.verifier.points import LINUX, VerifierPlan, VerifierPoint, VerifierTrial
from xdplab.studies.verifier.prevail import ResourceLimits, Runner, find_prevails

OBJECT_DEADLINE_S = 120.0
WATCHED_TOGETHER = 20
"""How many objects one process watches: it sets up for 0.4 s, and for 10 s in a guest, longer than most loads take."""

TIMED, WATCHED, PREVAIL_RAW, PROBES = "bpfverify.jsonl", "watch.jsonl", "prevail.jsonl", "largest.jsonl"


@dataclass
class VerifierFacts(PlaceFacts):
    """What a trial learns: the generation of PREVAIL that it asked."""

    generation: str | None = None


class VerifierStudy(PlacedSession):
    """Measures trials of the verifier study; one machine is up at a time."""

    facts = VerifierFacts

    def __init__(self, plan: VerifierPlan) -> None:
        super().__init__()
        self._request = plan.request
        self._objects, self._types = plan.directory.path / "objects", plan.directory.path / "known.types"
        self._given = given_in(plan.directory.path, plan.request)
        self._compilers = {compiler.name: compiler for compiler in find_compilers()}
        self._prevails = {prevail.name: prevail for prevail in find_prevails(plan.request.prevails)}
        self._machine: LoaderPlace | None = None
        self._to_come: list[VerifierPoint] = []
        self._put: dict[VerifierPoint, str] = {}
        self._watched: dict[str, bytes] = {}

    def enter_block(self, trials: Sequence[VerifierTrial]) -> None:
        point = trials[0].point
        if point.verifier == LINUX:
            context = machine_of(point.kernel, self._types, self._given)
            self._machine = self.stack.enter_context(context)
            self.place = self._machine.place
            self._to_come = [trial.point for trial in trials if trial.point.task == "verify"]

    def leave_block(self) -> None:
        super().leave_block()
        self._machine = None
        self._to_come, self._put, self._watched = [], {}, {}

    def measure(self, trial: VerifierTrial, raw: Path, facts: VerifierFacts) -> None:
        point = trial.point
        if point.verifier != LINUX:
            self._prevail(point, raw, facts)
        elif self._machine is not None:
            self.at(facts)
            (self._largest if point.task == "largest" else self._verify)(self._machine, point, raw)

    def _verify(self, machine: LoaderPlace, point: VerifierPoint, raw: Path) -> None:
        """Time the loads; memory and branches are counted in loads of their own, because tracing costs time."""
        path = self._path(machine, point)
        request = self._request
        most = request.loads if machine.place.clock == "time" else min(request.guest_loads, request.loads)
        loads = ("--loads", str(most), "--budget-ms", str(request.budget_ms))
        (raw / TIMED).write_bytes(machine.verify([path], *loads, deadline_s=OBJECT_DEADLINE_S))
        (raw / WATCHED).write_bytes(self._watch(machine, point))

    def _path(self, machine: LoaderPlace, point: VerifierPoint) -> str:
        """Return the path of a point's object on the machine, which gets it once: a guest takes a second for it."""
        if point not in self._put:
            self._put[point] = machine.place.put(self._objects / point.file_name)
        return self._put[point]

    def _watch(self, machine: LoaderPlace, point: VerifierPoint) -> bytes:
        """Return what the watched load of a point printed; the points to come are watched by the same process."""
        path = self._path(machine, point)
        if path not in self._watched:
            rank = self._to_come.index(point) if point in self._to_come else 0
            next_points = self._to_come[rank : rank + WATCHED_TOGETHER]
            paths = list(dict.fromkeys([path, *(self._path(machine, one) for one in next_points)]))
            output = machine.verify(paths, "--watch", deadline_s=OBJECT_DEADLINE_S)
            self._watched = lines_by_object(output)
        try:
            return self._watched.pop(path)
        except KeyError:
            raise HostError(f"{machine.place.label}: bpfverify printed nothing about {path}") from None

    def _largest(self, machine: LoaderPlace, point: VerifierPoint, raw: Path) -> None:
        def load(n: int) -> SizeTried:
            path = machine.place.put(self._compile(point, n))
            program = parse_bpfverify(machine.verify([path], deadline_s=OBJECT_DEADLINE_S))[0]
            if program.verdict not in ("accepted", "complexity"):
                by = f", compiled by {program.compiler}" if program.compiler else ""
                why = program.complaint or program.cause
                raise ProgramError(f"N = {n}{by}, is {program.verdict}: {why}; there is no limit to find")
            return SizeTried(n, program.verdict == "accepted", program.stats.processed_insns, program.stats.limit_insns)

        with (raw / PROBES).open("w") as file:
            for probe in search(load):
                file.write(json.dumps(asdict(probe)) + "\n")

    def _compile(self, point: VerifierPoint, n: int) -> Path:
        options = {"form": point.form, "exit": point.exit, "maps": point.maps}
        member = Member(str(point.family), n, tuple((k, v) for k, v in options.items() if v is not None))
        compiler = self._compilers.get(str(point.compiler))
        if compiler is None:
            raise ProgramError(f"{point.compiler} is not here any more", remedy="install it and resume")
        return compile_object(source(member), compiler, str(point.mcpu), cache_directory().parent / "verifier")

    def _prevail(self, point: VerifierPoint, raw: Path, facts: VerifierFacts) -> None:
        prevail = self._prevails.get(point.verifier)
        if prevail is None:
            raise ProgramError(f"{point.verifier} is not here any more", remedy="name it with --prevail and resume")
        facts.generation, facts.clock = prevail.generation, "time"
        runner = Runner(str(driver(NATIVE)), ResourceLimits(wall_s=self._request.limit_s))
        path = self._objects / point.file_name
        with (raw / PREVAIL_RAW).open("w") as file:
            for section, name in runner.programs(prevail, path):
                file.write(json.dumps(asdict(runner.verify(prevail, path, section, name))) + "\n")


LARGEST_N = 1 << 16
FIRST_N = (8, 16, 32)


@dataclass(frozen=True)
class SizeTried:
    """One N that was tried; ``processed`` instructions, of ``limit`` (both None if the kernel did not say)."""

    n: int
    accepted: bool
    processed: int | None = None
    limit: int | None = None


Load = Callable[[int], SizeTried]


def search(load: Load) -> Iterator[SizeTried]:
    """Yield the probes; the last accepted N below the first refused one is the answer (see `answer`).

    The search assumes that acceptance ends at one N; `answer` checks every probe, so it notices exceptions.
    """
    low, high, small = 0, LARGEST_N + 1, []
    for n in FIRST_N:
        small.append(load(n))
        yield small[-1]
        if not small[-1].accepted:
            high = n
            break
        low = n
    if high > LARGEST_N:
        for probe in _close_in(load, _predict(small), low):
            yield probe
            low, high = (max(low, probe.n), high) if probe.accepted else (low, min(high, probe.n))
    while high <= LARGEST_N and high - low > 1:
        probe = load((low + high) // 2)
        yield probe
        low, high = (probe.n, high) if probe.accepted else (low, probe.n)


def _close_in(load: Load, guess: int, least: int) -> Iterator[SizeTried]:
    """Yield probes from the guess on, away from it in doubling steps, until the verdict changes."""
    first = probe = load(guess)
    yield first
    step = 1 if first.accepted else -1
    while probe.accepted == first.accepted and least < probe.n + step <= LARGEST_N:
        probe = load(probe.n + step)
        yield probe
        step *= 2


def _predict(small: list[SizeTried]) -> int:
    """Return the N at which the parabola through the processed instructions reaches the limit; None if it is far
    away."""
    counts, limit = [p.processed for p in small if p.processed is not None], small[-1].limit
    nearest, farthest = small[-1].n + 1, 16 * small[-1].n
    if len(counts) < len(FIRST_N) or limit is None:
        return nearest
    roots = np.roots(np.polyfit(FIRST_N, counts, 2) - [0, 0, limit])
    ahead = [root.real for root in roots if abs(root.imag) < 1 and root.real > 0]
    return max(nearest, min(int(min(ahead, default=nearest)), farthest))


def answer(probes: list[SizeTried]) -> int | None:
    """Return the largest accepted N, or None if none was refused (the limit was not reached) or none accepted."""
    accepted = [p.n for p in probes if p.accepted]
    refused = [p.n for p in probes if not p.accepted]
    return max(accepted) if accepted and refused and min(refused) == max(accepted) + 1 else None
