"""Study loading, as a kind of run: a block is a place (or all compilations), a trial one program in it. From a point to
its loadable object (a BPF object or a module of the same text), and the time to compile it.
"""

from __future__ import annotations

import json
import secrets
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from elftools.elf.elffile import ELFFile

from xdplab.compiler import find_clang, run_tool
from xdplab.errors import ProgramError, UnsupportedError
from xdplab.labs.guests import modules
from xdplab.labs.guests.modules import BuildTree
from xdplab.labs.tools import path_of
from xdplab.programs.build import BuiltProgram, build, compile_command
from xdplab.programs.program import cache_directory
from xdplab.programs.source import kernel_source
from xdplab.programs.spec import ProgramSpec, UserProgram
from xdplab.resources import shipped
from xdplab.studies.guests import PlacedSession, build_tree, driver
from xdplab.studies.loading import passes
from xdplab.studies.loading.passes import COMPILED, PLAIN, SECTIONS, LoadingFacts, LoadRunner
from xdplab.studies.loading.points import (
    BPF,
    BPFTOOL,
    BUSYBOX,
    CLOCK,
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
from xdplab.studies.loading.summaries import TABLES, results
from xdplab.studies.loading.views import VIEWS
from xdplab.studies.meaning import tables_by
from xdplab.studies.places import Place, is_foreign
from xdplab.studies.points import StudyPlan, StudyPlanning
from xdplab.studies.study_kind import study_kind

NATIVE = "loadbench"
MODULE_NAME = "xdplab_load"
_SUBJECTS = "subjects"
_KBUILD = f"ccflags-y := -std=gnu11 -Wno-declaration-after-statement\nobj-m := {MODULE_NAME}.o\n"
"""Kernels before 5.18 are built as gnu89; the workload's source is the same for every kernel, and is gnu11."""

_ALLOCATED, _EXECUTED, _WRITTEN = 2, 4, 1


def program_of(point: LoadingPoint) -> ProgramSpec | UserProgram:
    """Return what the point's program does."""
    if point.program == CLOCK:
        return UserProgram(str(shipped(NATIVE) / _SUBJECTS / "clock.bpf.c"), action="pass")
    return ProgramSpec(point.program, point.accesses or 0, "read", point.form or "bounded")


def bpf_object(point: LoadingPoint) -> BuiltProgram:
    """Return the point's BPF object, compiled once. Raises ProgramError with the compiler's words."""
    return build(program_of(point), cache_directory())


def module_sources(point: LoadingPoint) -> dict[str, bytes]:
    """Return the C text of the point's module by relative path."""
    folder, program = shipped(NATIVE) / _SUBJECTS, program_of(point)
    text = kernel_source(program).encode() if isinstance(program, ProgramSpec) else (folder / f"{CLOCK}.h").read_bytes()
    return {
        f"{MODULE_NAME}.c": (folder / "module.c").read_bytes(),
        "workload.h": text,
        "Kbuild": _KBUILD.encode(),
    }


def module_file(point: LoadingPoint, tree: BuildTree, folder: Path) -> Path:
    """Build the point's module against ``tree``; return it in ``folder``, without debug information.

    Distributions ship modules without it: with it a small module's file is forty times as large, and init_module(2)
    copies all of it. Raises ProgramError, LabError.
    """
    built = modules.build(tree, MODULE_NAME, module_sources(point))
    run_tool([f"{tree.cross}strip", "--strip-debug", "-o", str(folder / built.name), str(built)], folder)
    return folder / built.name


def sections(module: Path) -> dict[str, int]:
    """Return a module's bytes by what they become in memory: ``text``, ``rodata``, ``data``, ``bss``; and ``file``."""
    sizes = dict.fromkeys(("text", "rodata", "data", "bss"), 0)
    with module.open("rb") as file:
        for section in ELFFile(file).iter_sections():
            if section["sh_flags"] & _ALLOCATED:
                sizes[_group(section["sh_flags"], section["sh_type"])] += section["sh_size"]
    return sizes | {"file": module.stat().st_size}


def _group(flags: int, kind: str) -> str:
    if flags & _EXECUTED:
        return "text"
    if not flags & _WRITTEN:
        return "rodata"
    return "bss" if kind == "SHT_NOBITS" else "data"


def compile_bpf(point: LoadingPoint) -> int:
    """Compile the point's program from nothing; return nanoseconds of this machine. Raises ProgramError."""
    text = (bpf_object(point).directory / "program.c").read_bytes()
    with tempfile.TemporaryDirectory(prefix="xdplab-compile-") as name:
        folder = Path(name)
        (folder / "program.c").write_bytes(text)
        command = compile_command(find_clang(), program_of(point))
        start = time.monotonic_ns()
        run_tool(command, folder)
        return time.monotonic_ns() - start


def compile_module(point: LoadingPoint, tree: BuildTree) -> int:
    """Build the point's module from nothing; return nanoseconds of this machine. Raises ProgramError, LabError."""
    unlike_any = {"never.h": str(time.time_ns()).encode()}  # the cache does not have it
    start = time.monotonic_ns()
    built = modules.build(tree, MODULE_NAME, module_sources(point) | unlike_any)
    took = time.monotonic_ns() - start
    shutil.rmtree(built.parent, ignore_errors=True)
    return took


def compiler_of(point: LoadingPoint, tree: BuildTree | None) -> str:
    """Return the version string of the point's compiler, for the journal."""
    compiler = tree.compiler if tree else find_clang()
    try:
        return run_tool([compiler, "--version"], Path.cwd()).splitlines()[0]
    except ProgramError as error:
        return str(error)


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
            place = self.enter(point.place, driver(NATIVE, point.place), (VETH,))
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
            INSMOD: lambda: [*_tool("insmod"), path, NETWORK, THEN, *_tool("rmmod"), MODULE_NAME],
            BUSYBOX: lambda: [*shell, "insmod", path, NETWORK, THEN, *shell, "rmmod", MODULE_NAME],
            LIBBPF: lambda: [self.tool, "loader", path],
            BPFTOOL: lambda: [*_tool("bpftool"), "prog", "load", path, pin, THEN, *_tool("rm"), pin],
        }[point.kind]()
        LoadRunner(place, self.tool, "process", "", self._request, tuple(command)).run(raw, PLAIN)

    def _compile(self, point: LoadingPoint, raw: Path, facts: LoadingFacts) -> None:
        tree = build_tree(f"vm:{point.kernel}") if point.kind == MODULE else None
        facts.clock, facts.label, facts.compiler = "time", "this machine", compiler_of(point, tree)
        times = [compile_module(point, tree) if tree else compile_bpf(point) for _ in range(self._request.compiles)]
        (raw / COMPILED).write_text(json.dumps({"compile_ns": times}) + "\n")


NETWORK, THEN = "interface=veth0", "then"
VETH = "veth"
"""The kernel module of the link that programs are attached to."""
_OWN_SHELL = "/bin/busybox"
"""The one program of a guest of another architecture."""
_PACKAGES = {"insmod": "kmod", "rmmod": "kmod", "bpftool": "bpftool", "rm": "coreutils", "busybox": "busybox-static"}


def _tool(name: str) -> list[str]:
    """Return the path of a command of this machine, whose root file system guests have. Raises UnsupportedError."""
    path = path_of(name)
    if path is None:
        raise UnsupportedError(f"there is no {name}", remedy=f"apt install {_PACKAGES[name]}")
    return [path]


def _bpf(point: LoadingPoint, raw: Path) -> Path:
    built = bpf_object(point)
    (raw / OBJECT).write_bytes(built.object.read_bytes())
    return built.object


def _module(point: LoadingPoint, raw: Path, folder: Path) -> Path:
    module = module_file(point, build_tree(point.place), folder)
    (raw / SECTIONS).write_text(json.dumps(sections(module)) + "\n")
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
    tables=tables_by(TABLES),
    views=VIEWS,
    results=results,
    version="5",
)
