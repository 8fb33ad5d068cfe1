"""From the benchmarks' C to loadable objects: BPF objects, user-space functions, and the module of all benchmarks."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from xdplab.compiler import find_clang
from xdplab.errors import ProgramError
from xdplab.labs.guests import modules
from xdplab.labs.guests.modules import BuildTree
from xdplab.resources import shipped
from xdplab.studies.execution.benchmarks import BPF, MODULE, NATIVE, USER, Benchmark

MODULE_NAME = "xdplab_microbench"
MAKE_S = 300.0
_KBUILD_FLAGS = "-std=gnu11 -Wno-declaration-after-statement $(call cc-option,-fno-fuse-ops-with-volatile-access)"
"""Kernels before 5.18 are built as C89; the benchmarks have the same text for all. The last one: see the Makefile."""


def object_name(benchmark: Benchmark, wrapper: str) -> str:
    """Return the file that a wrapper loads."""
    return {BPF: f"{benchmark.kernel}.bpf.o", USER: f"{benchmark.kernel}.so", MODULE: f"{MODULE_NAME}.ko"}[wrapper]


def build(benchmarks: Iterable[Benchmark]) -> dict[str, bytes]:
    """Compile the BPF objects and user-space functions; return them, with the kernels' texts and states, by name.

    Raises ProgramError with the compiler's first error.
    """
    chosen = list(benchmarks)
    files = _compiled(chosen, sorted({object_name(b, w) for b in chosen for w in b.wrappers if w != MODULE}))
    files |= {f"{b.kernel}.h": b.header for b in chosen}
    return files | {f"{b.kernel}.state": b.state for b in chosen if b.state}


def _compiled(chosen: Iterable[Benchmark], wanted: Iterable[str], *variables: str) -> dict[str, bytes]:
    """Return the products by name; ``variables`` are make's."""
    with tempfile.TemporaryDirectory(prefix="xdplab-microbench-") as name:
        folder = Path(name)
        for relative, content in (_sources(chosen) | _common()).items():
            (folder / relative).parent.mkdir(parents=True, exist_ok=True)
            (folder / relative).write_bytes(content)
        _make(folder, [*variables, *wanted])
        return {file: (folder / file).read_bytes() for file in wanted}


def build_for(compiler: str, benchmarks: Iterable[Benchmark]) -> dict[str, bytes]:
    """Compile the user-space functions by the compiler of another architecture; return them by name.

    Raises ProgramError with the compiler's first error.
    """
    chosen = list(benchmarks)
    return _compiled(chosen, sorted({object_name(b, USER) for b in chosen if USER in b.wrappers}), f"CC={compiler}")


def build_module(tree: BuildTree, benchmarks: Iterable[Benchmark]) -> Path:
    """Build the module of all benchmarks against a kernel's tree. Raises ProgramError, LabError."""
    kernels = sorted({b.kernel for b in benchmarks if MODULE in b.wrappers})
    chosen = {b.kernel: b for b in benchmarks}
    sources = {path: text for path, text in _sources(chosen.values()).items() if path.endswith(".h")}
    sources["module/main.c"] = (shipped(NATIVE) / "module/main.c").read_bytes()
    sources["module/list.h"] = "".join(f"BENCHMARK({kernel})\n" for kernel in kernels).encode()
    for kernel in kernels:
        source = f'#define NAME {kernel}\n#define KERNEL "../kernels/{kernel}.h"\n#include "module/bench.h"\n'
        sources[f"bench_{kernel}.c"] = source.encode()
    parts = " ".join(f"bench_{kernel}.o" for kernel in kernels)
    kbuild = f"ccflags-y := {_KBUILD_FLAGS}\nobj-m := {MODULE_NAME}.o\n{MODULE_NAME}-y := module/main.o {parts}\n"
    return modules.build(tree, MODULE_NAME, sources | {"Kbuild": kbuild.encode()})


def _sources(benchmarks: Iterable[Benchmark]) -> dict[str, bytes]:
    """Return the C of the benchmarks by relative path, generated kernels included."""
    folder = shipped(NATIVE)
    parts = ("kernels/*.h", "bpf/*", "user/*.c", "module/*.h", "record.h", "Makefile")
    files = {p.relative_to(folder).as_posix(): p.read_bytes() for part in parts for p in sorted(folder.glob(part))}
    return files | {f"kernels/{b.kernel}.h": b.header for b in benchmarks}


def _common() -> dict[str, bytes]:
    """Return what a build uses of `native/common`, by relative path."""
    return {f"common/{name}": (shipped("common") / name).read_bytes() for name in ("rules.mk", "clock.h")}


def _make(folder: Path, wanted: Iterable[str]) -> None:
    """Run make; ``wanted`` are what to make, and variables."""
    try:
        done = subprocess.run(
            ["make", "-s", f"CLANG={find_clang()}", *wanted],
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=MAKE_S,
        )
    except FileNotFoundError:
        raise ProgramError("there is no make on this machine", remedy="apt install make") from None
    except subprocess.TimeoutExpired:
        raise ProgramError(f"the benchmarks have not been compiled in {MAKE_S:.0f} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()[-1:]
        raise ProgramError(f"a benchmark does not compile: {lines[0] if lines else 'make said nothing'}")
