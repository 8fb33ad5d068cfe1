"""Study loading, as a kind of run: a block is a place (or all compilations), a trial one program in it."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from xdplab.errors import UnsupportedError
from xdplab.studies.guests import build_tree
from xdplab.studies.loading import passes, subjects
from xdplab.studies.loading.passes import COMPILED, PLAIN, SECTIONS, LoadingFacts, LoadRunner
from xdplab.studies.loading.points import (
    BPF,
    BPFTOOL,
    BUSYBOX,
    INSMOD,
    LIBBPF,
    MODULE,
    LoadingPoint,
    LoadingRequest,
    Trial,
    gather,
    smallest,
)
from xdplab.studies.loading.rows import table_of
from xdplab.studies.loading.summaries import results, tables_of
from xdplab.studies.loading.views import VIEWS
from xdplab.studies.placed import PlacedSession, driver
from xdplab.studies.places import Place, is_foreign
from xdplab.studies.points import StudyPlan, StudyPlanning
from xdplab.studies.study_kind import study_kind

OBJECT = "program.bpf.o"


class LoadingStudy(PlacedSession):
    """Measures trials of the loading study; one place is up at a time."""

    facts = LoadingFacts

    def __init__(self, plan: StudyPlan[LoadingRequest, LoadingPoint]) -> None:
        super().__init__()
        self._request = plan.request

    def enter_block(self, trials: Sequence[Trial]) -> None:
        point = trials[0].point
        if point.task != "compile":
            place = self.enter(point.place, driver(subjects.NATIVE, point.place), (VETH,))
            if is_foreign(point.place):  # its kernel finds no module by itself, and riscv64's begins without its JIT
                place.host.run(["modprobe", VETH])
                self.stack.enter_context(place.jit(True))

    def measure(self, trial: Trial, raw: Path, facts: LoadingFacts) -> None:
        point = trial.point
        if self.place is None:
            self._compile(point, raw, facts)
            return
        place = self.at(facts)
        if point.task == "start":
            LoadRunner(place, self.tool, "start", "", self._request).run(raw, PLAIN)
            return
        with tempfile.TemporaryDirectory(prefix="xdplab-loading-") as folder:
            if point.task == "process":
                self._process(point, place, raw, Path(folder))
                return
            path = _bpf(point, raw) if point.kind == BPF else _module(point, raw, Path(folder))
            runner = LoadRunner(place, self.tool, point.kind, place.put(path), self._request)
            facts.split_by, facts.split_reason = passes.measure(runner, raw)

    def _process(self, point: LoadingPoint, place: Place, raw: Path, folder: Path) -> None:
        """Insert by a process and remove by another, as many times as requested."""
        of_module = point.kind in (INSMOD, BUSYBOX)
        path = place.put(_module(point, raw, folder) if of_module else _bpf(point, raw))
        shell = [_OWN_SHELL] if is_foreign(point.place) else _tool("busybox") if point.kind == BUSYBOX else []
        pin = f"/sys/fs/bpf/xdplab-{secrets.token_hex(4)}"
        command = {
            INSMOD: lambda: [*_tool("insmod"), path, NETWORK, THEN, *_tool("rmmod"), subjects.MODULE_NAME],
            BUSYBOX: lambda: [*shell, "insmod", path, NETWORK, THEN, *shell, "rmmod", subjects.MODULE_NAME],
            LIBBPF: lambda: [self.tool, "loader", path],
            BPFTOOL: lambda: [*_tool("bpftool"), "prog", "load", path, pin, THEN, *_tool("rm"), pin],
        }[point.kind]()
        LoadRunner(place, self.tool, "process", "", self._request, tuple(command)).run(raw, PLAIN)

    def _compile(self, point: LoadingPoint, raw: Path, facts: LoadingFacts) -> None:
        tree = build_tree(f"vm:{point.kernel}") if point.kind == MODULE else None
        facts.clock, facts.label, facts.compiler = "time", "this machine", subjects.compiler_of(point, tree)
        times = [
            subjects.compile_module(point, tree) if tree else subjects.compile_bpf(point)
            for _ in range(self._request.compiles)
        ]
        (raw / COMPILED).write_text(json.dumps({"compile_ns": times}) + "\n")


NETWORK, THEN = "interface=veth0", "then"
VETH = "veth"
"""The kernel module of the link that programs are attached to."""
_OWN_SHELL = "/bin/busybox"
"""The one program of a guest of another architecture."""
_PACKAGES = {"insmod": "kmod", "rmmod": "kmod", "bpftool": "bpftool", "rm": "coreutils", "busybox": "busybox-static"}


def _tool(name: str) -> list[str]:
    """Return the path of a command of this machine, whose root file system guests have. Raises UnsupportedError."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/bin:/bin")
    if path is None:
        raise UnsupportedError(f"there is no {name}", remedy=f"apt install {_PACKAGES[name]}")
    return [path]


def _bpf(point: LoadingPoint, raw: Path) -> Path:
    built = subjects.bpf_object(point)
    (raw / OBJECT).write_bytes(built.object.read_bytes())
    return built.object


def _module(point: LoadingPoint, raw: Path, folder: Path) -> Path:
    module = subjects.module_file(point, build_tree(point.place), folder)
    (raw / SECTIONS).write_text(json.dumps(subjects.sections(module)) + "\n")
    return module


STUDY = study_kind(
    StudyPlanning(
        "loading",
        "What does it cost to load BPF, beside the same code as a module?",
        LoadingRequest,
        LoadingPoint,
        gather,
        smallest,
    ),
    session=LoadingStudy,
    table=table_of,
    tables=tables_of,
    views=VIEWS,
    results=results,
    version="4",
)
