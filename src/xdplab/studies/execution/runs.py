"""Study execution, as a kind of run. A block is a place, a trial is one benchmark through one backend."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from xdplab.errors import LabError, MissingToolError, PlanError, ProgramError, UnsupportedError, XdplabError
from xdplab.hosts.local import LocalHost
from xdplab.labs.guests import modules
from xdplab.labs.guests.keepers import evicted_bytes
from xdplab.studies.execution import user_pair
from xdplab.studies.execution.backends import absent, left_out
from xdplab.studies.execution.benchmarks import (
    MODULE,
    MODULE_NAME,
    NATIVE,
    USER,
    Benchmark,
    Microbench,
    build,
    build_for,
    build_module,
    object_name,
    parse_microbench,
)
from xdplab.studies.execution.points import (
    BACKENDS,
    CALLS,
    ExecutionFacts,
    ExecutionPoint,
    ExecutionRequest,
    Trial,
    calls_of,
    chosen,
    own_points,
    points,
    smallest,
)
from xdplab.studies.execution.proof import Proofs, require_results, steps
from xdplab.studies.execution.rows import table_of
from xdplab.studies.execution.summaries import TABLES, results
from xdplab.studies.execution.views import VIEWS
from xdplab.studies.guests import PlacedSession, architecture_of, build_tree, driver, require_places
from xdplab.studies.meaning import tables_by
from xdplab.studies.places import Place, is_foreign
from xdplab.studies.points import Gathered, StudyPlan, StudyPlanning
from xdplab.studies.study_kind import study_kind

OBJECTS, REFERENCE = "objects", "reference.json"


class ExecutionStudy(PlacedSession):
    """Measures trials of the execution study; one place is up at a time."""

    facts = ExecutionFacts

    def __init__(self, plan: StudyPlan[ExecutionRequest, ExecutionPoint]) -> None:
        super().__init__()
        self._plan = plan
        self._objects = plan.directory.path / OBJECTS
        self._no_module: dict[str, XdplabError] = {}

    @cached_property
    def _benchmarks(self) -> dict[str, Benchmark]:
        return {} if self._plan.request.config else chosen(self._plan.request)

    @cached_property
    def _reference(self) -> dict[str, list[int]]:
        text = (self._objects / REFERENCE).read_text()
        return dict(json.loads(text))

    @cached_property
    def _proofs(self) -> Proofs:
        with_module = any(BACKENDS[point.backend] == MODULE for point in self._plan.points)
        wanted = [
            (benchmark, wrapper)
            for benchmark in self._benchmarks.values()
            for wrapper in benchmark.wrappers
            if wrapper != MODULE or with_module
        ]
        return Proofs(self._plan.directory, wanted, self._module)

    def enter_block(self, trials: Sequence[Trial]) -> None:
        name = trials[0].point.place
        self.enter(name, driver(NATIVE, name), files=self._files(name, trials) if is_foreign(name) else ())

    def _files(self, place: str, trials: Sequence[Trial]) -> Iterator[Path]:
        """Yield what the trials load: a guest of another architecture boots with it."""
        files: dict[Path, None] = {}
        for point in (trial.point for trial in trials):
            with contextlib.suppress(XdplabError):  # what cannot be built is told by its trials
                files[self._object(place, point)] = None
            state = self._objects / f"{self._benchmarks[point.benchmark].kernel}.state"
            files |= {state: None} if state.exists() else {}
        yield from files

    def measure(self, trial: Trial, raw: Path, facts: ExecutionFacts) -> None:
        point, place = trial.point, self.at(facts, trial.point.harden)
        if point.backend in _JIT:
            self.compile_bpf(_JIT[point.backend])
        with place.hardened(point.harden if point.backend == "jit" else None):
            self._call(trial, place, raw, facts)

    def _call(self, trial: Trial, place: Place, raw: Path, facts: ExecutionFacts) -> None:
        point = trial.point
        argv = self._own_argv(place, point) if point.own else self._argv(place, point, facts)
        output = called(place, point.backend, [self.tool, *argv])
        (raw / CALLS).write_bytes(output)
        bench = parse_microbench(output)
        facts.jited_bytes, facts.xlated_bytes = bench.jited_bytes, bench.xlated_bytes
        _require_backend(point, bench)
        if not point.own:
            expected = self._reference.get(point.benchmark, [])
            require_results(self._benchmarks[point.benchmark], bench.calls, expected, point.cold)

    def _argv(self, place: Place, point: ExecutionPoint, facts: ExecutionFacts) -> list[str]:
        """Prove the wrapper, put its object on the place, and return how the driver calls it."""
        benchmark, wrapper = self._benchmarks[point.benchmark], BACKENDS[point.backend]
        first, *_ = self._proofs.counts(benchmark, wrapper)
        facts.work_steps, facts.work_instructions = steps(benchmark, wrapper, first), first.instructions
        path = self._object(place.name, point)
        state = self._objects / f"{benchmark.kernel}.state"
        argv = ["--backend", wrapper, "--benchmark", benchmark.kernel, "--object", place.put(path)]
        argv += ["--input", str(benchmark.input), "--calls", str(calls_of(self._plan.request, point))]
        argv += ["--pause-us", str(point.pause_us)]
        argv += ["--state", place.put(state)] if state.exists() else []
        return argv + (self._cold(place, facts) if point.cold else [])

    def _users(self, place: str) -> Path:
        """Return the folder of the user-space objects of a place's architecture."""
        architecture = architecture_of(place)
        return self._objects / architecture.name if architecture else self._objects

    def _object(self, place: str, point: ExecutionPoint) -> Path:
        """Return the file that a point's backend loads at a place. Raises XdplabError for a module without one."""
        wrapper = BACKENDS[point.backend]
        if wrapper == MODULE:
            return self._module(place)
        folder = self._users(place) if wrapper == USER else self._objects
        return folder / object_name(self._benchmarks[point.benchmark], wrapper)

    def _cold(self, place: Place, facts: ExecutionFacts) -> list[str]:
        """A guest that counts instructions has no caches: there, cold only means loaded again."""
        facts.evicted_bytes = 0 if place.clock == "instructions" else evicted_bytes()
        return ["--cold", "--evict-bytes", str(facts.evicted_bytes)]

    def _own_argv(self, place: Place, point: ExecutionPoint) -> list[str]:
        pair = user_pair.read(self._objects)
        (self._objects / user_pair.EVENT).chmod(0o755)
        event = place.put(self._objects / user_pair.EVENT, mode=0o755)
        if BACKENDS[point.backend] != MODULE:
            path = place.put(self._objects / user_pair.BPF_OBJECT)
            return ["--backend", "own-bpf", "--object", path, "--map", pair.bpf.map, "--", event]
        built = modules.build(build_tree(place.name), pair.module.name, user_pair.module_sources(self._objects))
        return ["--backend", "own-module", "--object", place.put(built), "--file", pair.module.file, "--", event]

    def _module(self, place: str) -> Path:
        """Return the module for a place's kernel, kept in the run; one that could not be built is not tried again."""
        if place in self._no_module:
            raise self._no_module[place]
        try:
            return self._built_module(place)
        except MissingToolError:
            raise
        except LabError as error:  # such as headers made by a newer compiler than this machine has
            self._no_module[place] = UnsupportedError(error.message, remedy=error.remedy)
        except XdplabError as error:
            self._no_module[place] = error
        raise self._no_module[place]

    def _built_module(self, place: str) -> Path:
        relative = f"{OBJECTS}/{place.replace(':', '-')}/{MODULE_NAME}.ko"
        path = self._plan.directory.path / relative
        if not path.exists():
            built = build_module(build_tree(place), self._benchmarks.values())
            self._plan.directory.write_bytes(relative, built.read_bytes())
        return path


_JIT = {"interpreter": False, "jit": True}
NO_INTERPRETER = "requires BPF JIT compiler"
"""In the verifier's words on a program that this kernel only compiles, such as riscv64's 7.2 one that looks up in a
map of values by CPU."""


def called(place: Place, backend: str, argv: Sequence[str]) -> bytes:
    """Return what the driver printed. Raises UnsupportedError if the kernel only compiles what should be interpreted,
    HostError for any other refusal."""
    try:
        return place.work(argv).require().stdout
    except XdplabError as error:
        if backend == "interpreter" and NO_INTERPRETER in error.message:
            raise UnsupportedError(error.message, remedy=error.remedy) from error
        raise


def reference(benchmarks: dict[str, Benchmark], folder: Path, calls: int) -> dict[str, list[int]]:
    """Return the results of each benchmark's user-space function in this number of calls on this machine."""
    wanted = {name: b for name, b in benchmarks.items() if not b.trap and not b.clock_result}
    return {name: _results(benchmark, folder, calls) for name, benchmark in wanted.items()}


def _results(benchmark: Benchmark, folder: Path, calls: int) -> list[int]:
    argv = [str(driver(NATIVE)), "--backend", "user", "--benchmark", benchmark.kernel, "--pause-us", "0"]
    argv += ["--object", str(folder / object_name(benchmark, "user")), "--input", str(benchmark.input)]
    state = folder / f"{benchmark.kernel}.state"
    argv += ["--calls", str(calls), *(["--state", str(state)] if state.exists() else [])]
    return [call.result for call in parse_microbench(LocalHost().run(argv).stdout).calls]


def _require_backend(point: ExecutionPoint, bench: Microbench) -> None:
    """Raise ProgramError if a program is compiled that should be interpreted, or the reverse."""
    if point.backend in _JIT and _JIT[point.backend] != bool(bench.jited_bytes):
        obtained = f"compiled ({bench.jited_bytes} bytes)" if bench.jited_bytes else "interpreted"
        raise ProgramError(f"{point}: the kernel has it {obtained}")


def gather(request: ExecutionRequest) -> Gathered[ExecutionPoint]:
    """Compile the benchmarks (or a user's own pair) and let user space of this machine say what each must give.

    Raises PlanError for unusable options, ProgramError if a compiler refuses.
    """
    require_places(request.places, any_architecture=True)
    notes = left_out(request.places, request.backends, request.host_module)
    if request.config:
        if foreign := [place for place in request.places if is_foreign(place)]:
            raise PlanError(f"--config: the event of a pair of your own cannot run in {foreign[0]}, which has no files")
        pair, files = user_pair.load(Path(request.config))
        return _gathered(own_points(request, pair.name), files, notes)
    benchmarks = chosen(request)
    files = build(benchmarks.values())
    with tempfile.TemporaryDirectory(prefix="xdplab-reference-") as name:
        for file, content in files.items():
            (Path(name) / file).write_bytes(content)
        expected = reference(benchmarks, Path(name), max(3, request.calls))
    files[REFERENCE] = json.dumps(expected).encode()
    with_user_space = (place for place in request.places if "user" not in absent(place, request.host_module))
    others = {other.name: other for place in with_user_space if (other := architecture_of(place))}
    for architecture in others.values():
        theirs = build_for(architecture.compiler(), benchmarks.values())
        files |= {f"{architecture.name}/{name}": content for name, content in theirs.items()}
    return _gathered(points(request, benchmarks), files, notes)


def _gathered(
    chosen_points: Sequence[ExecutionPoint], files: Mapping[str, bytes], notes: Sequence[str]
) -> Gathered[ExecutionPoint]:
    if not chosen_points:
        raise PlanError(f"there is nothing to measure: {'; '.join(notes) or 'no benchmark is of this place'}")
    return Gathered(chosen_points, {f"{OBJECTS}/{name}": content for name, content in files.items()}, notes)


STUDY = study_kind(
    StudyPlanning(
        "execution",
        "What does BPF cost, beside the same code as a kernel module and in user space?",
        ExecutionRequest,
        ExecutionPoint,
        gather,
        smallest,
    ),
    session=ExecutionStudy,
    table=table_of,
    tables=tables_by(TABLES),
    views=VIEWS,
    results=results,
    version="4",
)
