"""From a point to its loadable object: a BPF object or a module of the same text, and the time to compile it."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from elftools.elf.elffile import ELFFile

from xdplab.compiler import find_clang, run_tool
from xdplab.errors import ProgramError
from xdplab.labs.guests import modules
from xdplab.labs.guests.modules import BuildTree
from xdplab.programs.build import BuiltProgram, build, compile_command
from xdplab.programs.program import cache_directory
from xdplab.programs.source import kernel_source
from xdplab.programs.spec import ProgramSpec, UserProgram
from xdplab.resources import shipped
from xdplab.studies.loading.points import CLOCK, LoadingPoint

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
