"""The verifier study for the runner: a block is a machine, a trial is one object on it, or a search.

A search looks for the largest N of a family that a verifier still accepts. Loads near the limit cost most (a second
here, minutes in a guest that counts), so three small ones predict it: their processed instructions give a parabola.
From there, doubling steps and then bisection find it.

The machine of a kernel's verifier is this one, or a guest of the VM lab. A user may give a run's programs flags, tables
(types, global variables, attach targets), and modules of guests.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from xdplab.errors import HostError, LabError, PlanError, ProgramError, UnsupportedError
from xdplab.formats.verifier import lines_by_object, parse_bpfverify
from xdplab.labs.base import HOST, MITIGATED
from xdplab.programs.program import cache_directory
from xdplab.studies import guests
from xdplab.studies.guests import PlacedSession, driver, place_of
from xdplab.studies.places import Place, PlaceFacts, require_rights
from xdplab.studies.verifier.generated import PROGRAMS, Member, compile_object, find_compilers, source
from xdplab.studies.verifier.points import LINUX, PROGRAM_FLAGS, Given, VerifierPlan, VerifierPoint, VerifierTrial
from xdplab.studies.verifier.prevail import ResourceLimits, Runner, find_prevails

GLOBALS, TARGETS = "globals.txt", "targets.txt"
"""A run's tables of global variables and of attach targets."""
TOOLS = ("program flags", "global variables", "attach targets", "modules of guests")
"""The names among a run's tools of what the user gave."""

_INTEGER = re.compile(r"-?(0[xX][0-9a-fA-F]+|[0-9]+)")


@dataclass(frozen=True)
class AttachTarget:
    """One rule: programs of ``section`` in ``object`` (patterns) attach to ``function`` of ``program`` in ``path``."""

    object: str
    section: str
    path: str
    program: str
    function: str


def tables_of(given: Given, names: Collection[str]) -> dict[str, bytes]:
    """Return the run's tables of global variables and of attach targets, and each target beside them.

    A target's path is relative to the folder of its table. Raises PlanError for a line that is not a rule, for one that
    matches none of the objects' file ``names``, and for a target that cannot be read.
    """
    files: dict[str, bytes] = {}
    if given.variables:
        path = Path(given.variables)
        for where, parts in _rules(path, "--globals", "OBJECT-PATTERN VARIABLE INTEGER", _is_variable):
            _require_match(where, parts[0], names)
        files[GLOBALS] = path.read_bytes()
    if given.attached:
        files |= _targets(Path(given.attached), names)
    return files


def given_in(run: Path, given: Given) -> Given:
    """Return what the user gave, with the tables that the run's folder keeps."""
    variables, attached = given.variables and str(run / GLOBALS), given.attached and str(run / TARGETS)
    return replace(given, variables=variables, attached=attached)


def put_targets(path: Path, place: Place) -> str:
    """Return the path of a run's table of targets at the place; its targets are beside it there."""
    for _, target in _targets_of(path):
        place.put(path.parent / target.path)
    return place.put(path)


def given_words(given: Given, files: Mapping[str, bytes]) -> str | None:
    """Return what tells the points of this request from those of another with the same objects; null for nothing.

    ``files``: those of the run. A table is named by its content, as in the manifest.
    """
    parts = sorted(set(given.flags))
    parts += [f"types {_digest(Path(given.types).read_bytes())}"] if given.types else []
    parts += [f"globals {_digest(files[GLOBALS])}"] if given.variables else []
    parts += [f"targets {_digest(files[TARGETS])}"] if given.attached else []
    parts += [f"module {name}" for name in sorted(set(given.loaded))]
    return ", ".join(parts) or None


def given_tools(given: Given, run: Path) -> dict[str, str]:
    """Return what the user gave, by its names among the run's tools (`TOOLS`); ``run``: its folder, with its tables."""
    values = (
        ", ".join(given.flags),
        f"sha256 {_digest((run / GLOBALS).read_bytes())}" if given.variables else "",
        f"sha256 {_digest((run / TARGETS).read_bytes())}" if given.attached else "",
        ", ".join(given.loaded),
    )
    return {name: value for name, value in zip(TOOLS, values, strict=True) if value}


def _digest(table: bytes) -> str:
    """Return what tells one table from another: the beginning of its SHA-256."""
    return hashlib.sha256(table).hexdigest()[:12]


def _targets(path: Path, names: Collection[str]) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    lines = []
    for where, target in _targets_of(path):
        _require_match(where, target.object, names)
        target_path = path.parent / target.path
        try:
            content = target_path.read_bytes()
        except OSError as error:
            raise PlanError(f"{where}: {target_path}: {error.strerror}") from error
        stem = target_path.stem.replace(" ", "-")[:60]
        name = f"target-{stem}-{_digest(content)}.o"
        files[name] = content
        lines.append(" ".join(astuple(replace(target, path=name))) + "\n")
    return files | {TARGETS: "".join(lines).encode()}


def _targets_of(path: Path) -> Iterator[tuple[str, AttachTarget]]:
    form = "OBJECT-PATTERN SECTION-PATTERN TARGET-OBJECT PROGRAM FUNCTION"
    for where, parts in _rules(path, "--targets", form, lambda parts: len(parts) == 5):
        yield where, AttachTarget(*parts)


def _is_variable(parts: list[str]) -> bool:
    return len(parts) == 3 and _INTEGER.fullmatch(parts[2]) is not None


def _rules(path: Path, option: str, form: str, fits: Callable[[list[str]], bool]) -> Iterator[tuple[str, list[str]]]:
    """Yield the parts of each rule, and where it stands. Raises PlanError for a line that is not one."""
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        parts = line.split()
        if not parts or parts[0].startswith("#"):
            continue
        where = f"{option} {path}, line {number}"
        if not fits(parts):
            raise PlanError(f"{where}: not a rule: {line.strip()}", remedy=f"write {form}")
        yield where, parts


def _require_match(where: str, pattern: str, names: Collection[str]) -> None:
    if not any(fnmatchcase(name, pattern) for name in names):
        raise PlanError(
            f"{where}: no object matches {pattern}", remedy=f"objects have names such as {next(iter(names), 'none')}"
        )


NATIVE = "bpfverify"
_BPF_SETTING = "/proc/sys/kernel/unprivileged_bpf_disabled"
"""There with every kernel from 4.4 on that has bpf(2), which CONFIG_BPF_SYSCALL builds."""


@dataclass(frozen=True)
class LoaderPlace:
    """A place with the study's loader: ``command`` and its table of ``types`` are paths there.

    ``options``: those of bpfverify for all objects.
    """

    place: Place
    command: str
    types: str
    options: tuple[str, ...] = ()

    def verify(self, paths: Sequence[str], *options: str, deadline_s: float) -> bytes:
        """Return bpfverify's lines on objects, each with that deadline. Raises HostError if it did not end well."""
        fixed = [self.command, *self.options, "--types", self.types, "--deadline", str(int(deadline_s))]
        most_s = deadline_s * self.place.patience * len(paths) + 10
        done = self.place.host.run([*fixed, *options, *paths], deadline_s=most_s)
        if not done.stdout:
            raise HostError(f"{self.place.label}: bpfverify printed nothing about {', '.join(paths)}")
        return done.stdout


@contextmanager
def machine_of(kernel: str, types: Path, given: Given) -> Iterator[LoaderPlace]:
    """Give the machine that runs a kernel; a guest boots for it, and ends with the block. ``types``: its table of
    types, instead of the one ``given``.

    Raises UnsupportedError if a guest does not have a module that is to be loaded, or if this user may not load
    programs into this machine's kernel.
    """
    require_rights((kernel,), "--kernel 6.1")
    command = driver(NATIVE)
    with place_of(kernel if kernel == HOST else f"vm:{kernel}:count") as place:
        if kernel != HOST:
            # If it cannot be mounted, the charged peak is null with that reason.
            place.host.run(["mount", "-t", "cgroup2", "none", "/sys/fs/cgroup"], check=False)
            _load_modules(place, given.loaded)
        options = ["--program-flags", str(sum({PROGRAM_FLAGS[flag] for flag in given.flags}))] if given.flags else []
        options += ["--globals", place.put(Path(given.variables))] if given.variables else []
        options += ["--targets", put_targets(Path(given.attached), place)] if given.attached else []
        yield LoaderPlace(place, place.put(command, mode=0o755), place.put(types), tuple(options))


def _load_modules(place: Place, names: Iterable[str]) -> None:
    for name in names:
        done = place.host.run(["modprobe", name], check=False)
        if not done.ok:
            raise UnsupportedError(f"{place.label}: module {name} cannot be loaded: {done.error_text.strip()}")


def require_kernels(names: Iterable[str]) -> None:
    """Raise LabError for an invalid or unavailable kernel, before anything runs."""
    for name in names:
        if name == HOST:
            continue
        try:
            guests.require_kernel(name)
        except LabError as error:
            why = error.message.removeprefix(f"kernel {name.removesuffix(MITIGATED)}: ")
            raise LabError(f"--kernel {name}: {why}", remedy=error.remedy) from error


def own_kernel(path: Path, modules: Path | None) -> str:
    """Return the name of a kernel that the user built, taken into the cache; a guest of it has shown bpf(2).

    Raises LabError for one that does not boot, UnsupportedError for one without bpf(2).
    """
    name = guests.adopt_kernel(path, modules)
    with place_of(f"vm:{name}:count") as place:
        if not place.host.run(["test", "-e", _BPF_SETTING], check=False).ok:
            raise UnsupportedError(f"{path}: this kernel has no bpf(2)", remedy="build it with CONFIG_BPF_SYSCALL=y")
    return name


def own_kernels(names: Iterable[str]) -> dict[str, str]:
    """Return version string and SHA-256 of each user's own kernel among ``names``."""
    return {f"kernel {name}": version for name in names if (version := guests.own_kernel_version(name))}


def known_types() -> str:
    """Return the table of types that comes with the study."""
    return (PROGRAMS / "known.types").read_text()


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
