"""The loading study for the runner: a block is a place (or all compilations), a trial one program in it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from xdplab.deploy.native import build_tool
from xdplab.errors import LabError, MissingToolError, UnsupportedError
from xdplab.hosts.local import LocalHost
from xdplab.labs.modules import BuildTree
from xdplab.labs.vm import headers
from xdplab.programs.program import cache_directory
from xdplab.studies.frame import StudyRun
from xdplab.studies.loading import passes, subjects
from xdplab.studies.loading.passes import PLAIN, LoadRunner
from xdplab.studies.loading.points import BPF, MODULE, LoadingPoint, LoadingRequest, Trial, kernel_of
from xdplab.studies.places import Place, PlaceFacts, place_of

COMPILED, SECTIONS, OBJECT = "compiled.json", "sections.json", "program.bpf.o"


@dataclass
class LoadingFacts(PlaceFacts):
    """A trial's facts: the source of a load's parts, or why there is none, and the compiler of a program."""

    split_by: str | None = None
    split_reason: str | None = None
    compiler: str | None = None


class LoadingStudy:
    """Measures trials of the loading study; one place is up at a time."""

    facts = LoadingFacts

    def __init__(self, run: StudyRun[LoadingRequest, LoadingPoint]) -> None:
        self._request = run.request
        self._stack = ExitStack()
        self.place: Place | None = None
        self._driver = ""

    def enter_block(self, trials: Sequence[Trial]) -> None:
        point = trials[0].point
        if point.task != "compile":
            self.place = self._stack.enter_context(place_of(point.place))
            self._driver = self.place.put(Path(driver()), mode=0o755)

    def leave_block(self) -> None:
        self._stack.close()
        self.place = None

    def measure(self, trial: Trial, raw: Path, facts: LoadingFacts) -> None:
        point, place = trial.point, self.place
        if place is None:
            self._compile(point, raw, facts)
            return
        place.told(facts)
        if point.task == "start":
            LoadRunner(place, self._driver, "start", "", self._request).run(raw, PLAIN)
            return
        with tempfile.TemporaryDirectory(prefix="xdplab-loading-") as folder:
            path = _bpf(point, raw) if point.kind == BPF else _module(point, raw, Path(folder))
            runner = LoadRunner(place, self._driver, point.kind, place.put(path), self._request)
            facts.split_by, facts.split_reason = passes.measure(runner, raw)

    def _compile(self, point: LoadingPoint, raw: Path, facts: LoadingFacts) -> None:
        tree = _tree(point.kernel) if point.kind == MODULE else None
        facts.clock, facts.label, facts.compiler = "time", "this machine", subjects.compiler_of(point, tree)
        times = [
            subjects.compile_module(point, tree) if tree else subjects.compile_bpf(point)
            for _ in range(self._request.compiles)
        ]
        (raw / COMPILED).write_text(json.dumps({"compile_ns": times}) + "\n")


def driver() -> str:
    """Build loadbench on this machine, whose root every lab's guest has too; return its path."""
    return build_tool(LocalHost(), subjects.NATIVE, str(cache_directory().parent / "native"))


def _bpf(point: LoadingPoint, raw: Path) -> Path:
    built = subjects.bpf_object(point)
    (raw / OBJECT).write_bytes(built.object.read_bytes())
    return built.object


def _module(point: LoadingPoint, raw: Path, folder: Path) -> Path:
    module = subjects.module_file(point, _tree(kernel_of(point.place)), folder)
    (raw / SECTIONS).write_text(json.dumps(subjects.sections(module)) + "\n")
    return module


def _tree(kernel: str) -> BuildTree:
    """Return a guest's build tree. Raises UnsupportedError if this machine cannot build for that kernel."""
    try:
        return headers.tree(kernel)
    except MissingToolError:
        raise
    except LabError as error:
        raise UnsupportedError(str(error)) from error
