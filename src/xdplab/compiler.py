"""The compiler of BPF programs on this machine: its command, and the files that it reads."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from xdplab.errors import MissingToolError, ProgramError

COMPILE_DEADLINE_S = 120.0
FLAGS = ("-O2", "-g", "-Wall", "-target", "bpf", "-mcpu=v3", "-fdebug-compilation-dir=.")
_CLANG_VERSIONS = range(25, 13, -1)
_SYSTEM = ("/usr/include", "/usr/local/include", "/usr/lib", "/usr/lib64", "/usr/share", "/lib", "/nix/store")
_PLACES = re.compile(r"(-I|-iquote|-isystem|-idirafter|-include)(.*)")
# No flag that runs code of a plan's (-fplugin=, -Xclang -load), or that writes another file.
_ALLOWED = re.compile(rf"{_PLACES.pattern}|-[DU]\w.*|-std=[\w+]+|-O[0-3sz]|-mcpu=\w+|-w|-W[a-z][^,]*|-f[a-z-]+|-g")


def flags_of(given: str | Iterable[str]) -> list[str]:
    """Return the compiler flags of a plan, one part each: ``-I DIR`` becomes ``-IDIR``. Raises ValueError."""
    parts = shlex.split(given) if isinstance(given, str) else list(given)
    flags: list[str] = []
    for part in parts:
        if flags and (place := _PLACES.fullmatch(flags[-1])) and not place[2]:
            flags[-1] += part
        elif _ALLOWED.fullmatch(part):
            flags.append(part)
        else:
            raise ValueError(f"{part!r} is not a flag for a program: -I, -D, -U, -include, -std, -O, -W, -f… are")
    return flags


def place_of(flag: str) -> tuple[str, str] | None:
    """Return a flag that names a folder or a file as its option and the path; None for another flag."""
    match = _PLACES.fullmatch(flag)
    return (match[1], match[2]) if match else None


def placed(flags: Iterable[str], folders: Sequence[Path]) -> list[str]:
    """Return ``flags`` with absolute paths: each is taken relative to the first of ``folders`` that has it.

    Raises ProgramError where none has it.
    """
    absolute = []
    for flag in flags:
        option, path = place_of(flag) or (flag, None)
        if path is None:
            absolute.append(flag)
            continue
        existing = next((folder / path for folder in folders if (folder / path).exists()), None)
        if existing is None:
            raise ProgramError(
                f"cflags: {flag}: there is no {path} in {' or '.join(map(str, dict.fromkeys(folders)))}",
                remedy="its path is relative to the plan, or to the program's folder",
            )
        absolute.append(option + os.path.normpath(existing.absolute()))
    return absolute


def words_of(flags: Iterable[str], folder: Path) -> list[str]:
    """Return ``flags`` for a compiler that runs in ``folder``: relative paths, as the folder may be a copy."""
    places = [(flag, place_of(flag)) for flag in flags]
    return [f"{one[0]}{os.path.relpath(folder / one[1], folder)}" if one else flag for flag, one in places]


def sources_of(file: Path, flags: Sequence[str] = ()) -> tuple[Path, ...]:
    """Return the files that the compiler reads for a C file, itself first, without those of the system.

    An object is alone. Raises ProgramError with the compiler's words.
    """
    if file.suffix != ".c":
        return (file,)
    folder = file.resolve().parent
    command = [find_clang(), *FLAGS, *words_of(flags, folder), *bpf_include_flags(), "-M", "-MT", "x", file.name]
    try:
        rule = run_tool(command, folder)
    except ProgramError as error:
        if "file not found" not in error.message:
            raise
        raise ProgramError(error.message, remedy="name its folder in `cflags: [-IFOLDER]`") from None
    names = re.findall(r"(?:\\[ #]|\S)+", rule.partition(":")[2].replace("\\\n", " "))
    read = (folder / re.sub(r"\\([ #])", r"\1", name).replace("$$", "$") for name in names)
    sources = dict.fromkeys(Path(os.path.normpath(path)) for path in read)
    return tuple(path for path in sources if path.is_relative_to(folder) or not of_system(path))


def of_system(path: Path) -> bool:
    """Tell whether a path is in a folder of headers that belongs to the system or to the compiler."""
    return any(path.is_relative_to(folder) for folder in (*_SYSTEM, f"{sys.prefix}/include", _resource_folder()))


@cache
def _resource_folder() -> str:
    return run_tool([find_clang(), "-print-resource-dir"], Path("/")).strip()


def bpf_include_flags() -> list[str]:
    """Return the folder of this machine's kernel headers, which `-target bpf` does not search."""
    multiarch = Path(f"/usr/include/{platform.machine()}-linux-gnu")
    return [f"-I{multiarch}"] if multiarch.is_dir() else []


@cache
def find_clang() -> str:
    """Return $CLANG, ``clang``, or the newest ``clang-N`` from 14 on. Raises MissingToolError if there is none."""
    candidates = [os.environ.get("CLANG", "clang"), *(f"clang-{version}" for version in _CLANG_VERSIONS)]
    clang = next((name for name in candidates if shutil.which(name)), None)
    if clang is None:
        raise MissingToolError("there is no clang on this machine", remedy="install clang 14 or newer")
    return clang


@cache
def compiler_version(compiler: str) -> str:
    """Return the first line of ``COMPILER --version``."""
    return run_tool([compiler, "--version"], Path.cwd()).splitlines()[0]


def run_tool(command: Sequence[str], directory: Path, *, if_late: str | None = None) -> str:
    """Run a compiler or a similar tool and return its output.

    Raises ProgramError with its message; ``if_late`` is the remedy where it does not end within COMPILE_DEADLINE_S.
    """
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env=os.environ | {"LC_ALL": "C"},  # gcc translates its words
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMPILE_DEADLINE_S,
        )
    except FileNotFoundError:
        raise ProgramError(f"there is no {command[0]} on this machine", remedy=f"install {command[0]}") from None
    except subprocess.TimeoutExpired:
        raise ProgramError(f"{command[0]} did not end within {COMPILE_DEADLINE_S:.0f} s", remedy=if_late) from None
    if done.returncode:
        raise ProgramError(f"{command[0]} refuses the program: {_first_complaint(done.stderr)}")
    return done.stdout


# FILE:LINE:COLUMN: error: …, clang: error: …, ld.lld: error: …; a file or a variable may be called error, too.
_COMPLAINT = re.compile(r"^(?:[^\s:][^:\n]*(?::\d+){1,2}: |[\w./+-]+: )?(?:fatal )?error: .*", re.MULTILINE)


def _first_complaint(output: str) -> str:
    match = _COMPLAINT.search(output)
    return (match[0] if match else output[-400:]).strip() or "it printed nothing"
