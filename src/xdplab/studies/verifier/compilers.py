"""The installed compilers, the instruction sets of each, and objects cached by content."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from xdplab.errors import ProgramError

INSTRUCTION_SETS = ("v1", "v2", "v3", "v4")
V4_SINCE = 18
"""clang 18 is the first that writes -mcpu=v4."""

COMPILE_DEADLINE_S = 120.0
_RELEASES = range(25, 10, -1)
_FLAGS = ("-O2", "-g", "-Wall", "-Wno-unused-command-line-argument", "-fdebug-compilation-dir=.")
_UNROLL_FLAGS = ("-mllvm", "-pragma-unroll-threshold=1000000000")  # else clang keeps a loop at some size


@dataclass(frozen=True)
class Compiler:
    """One clang: ``command`` is its argument vector up to its own options."""

    release: int
    command: tuple[str, ...]
    version: str

    @property
    def name(self) -> str:
        return f"clang {self.release}"

    @property
    def instruction_sets(self) -> tuple[str, ...]:
        return INSTRUCTION_SETS if self.release >= V4_SINCE else INSTRUCTION_SETS[:3]


@cache
def find_compilers() -> tuple[Compiler, ...]:
    """Return an installed clang of each release, oldest first: those on PATH, and PyPI's ziglang if installed."""
    names = ["clang", *(f"clang-{release}" for release in _RELEASES)]
    commands: list[tuple[str, ...]] = [(name,) for name in names if shutil.which(name)]
    if importlib.util.find_spec("ziglang"):
        commands.append((sys.executable, "-m", "ziglang", "clang"))
    elif shutil.which("zig"):
        commands.append(("zig", "clang"))
    by_release: dict[int, Compiler] = {}
    for command in commands:
        compiler = compiler_of(command)
        if compiler is not None:
            by_release.setdefault(compiler.release, compiler)
    return tuple(by_release[release] for release in sorted(by_release))


def compiler_of(command: Sequence[str]) -> Compiler | None:
    """Return the compiler behind a command, or None if it does not answer as a clang."""
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"clang version (\d+)\.", done.stdout)
    return Compiler(int(match[1]), tuple(command), done.stdout.splitlines()[0]) if match else None


def compile_object(text: str, compiler: Compiler, mcpu: str, cache_dir: Path) -> Path:
    """Return the object of a C text, compiled now or before. Raises ProgramError with the compiler's words."""
    flags = (*_FLAGS, *_UNROLL_FLAGS, *_includes(), "-target", "bpf", f"-mcpu={mcpu}")
    key = hashlib.sha256(repr((text, flags, compiler.version)).encode()).hexdigest()[:16]
    target = cache_dir / f"{key}.o"
    if not target.exists():
        cache_dir.mkdir(parents=True, exist_ok=True)
        _compile(text, [*compiler.command, *flags], target)
    return target


def _includes() -> tuple[str, ...]:
    multiarch = Path(f"/usr/include/{platform.machine()}-linux-gnu")
    return ("-I/usr/include", *((f"-I{multiarch}",) if multiarch.is_dir() else ()))


def _compile(text: str, command: Sequence[str], target: Path) -> None:
    """Compile into a temporary name and rename it: files in the cache are complete. A failing clang removes its
    output."""
    handle, partial = tempfile.mkstemp(dir=target.parent, suffix=".partial")
    os.close(handle)
    with tempfile.TemporaryDirectory() as work:
        (Path(work) / "program.c").write_text(text)
        argv = [*command, "-c", "program.c", "-o", partial]
        try:
            done = subprocess.run(
                argv, cwd=work, capture_output=True, text=True, errors="replace", timeout=COMPILE_DEADLINE_S
            )
        except subprocess.TimeoutExpired:
            Path(partial).unlink(missing_ok=True)
            raise ProgramError(f"{command[0]} did not end within {COMPILE_DEADLINE_S:.0f} s") from None
    if done.returncode:
        Path(partial).unlink(missing_ok=True)
        message = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[-300:].strip())
        raise ProgramError(f"{' '.join(command[:1])} refuses the program: {message}")
    Path(partial).chmod(0o644)
    Path(partial).replace(target)
