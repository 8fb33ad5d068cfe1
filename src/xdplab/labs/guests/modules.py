"""Kernel modules, built here for the kernel of a guest: `build` needs a `BuildTree`, which a kind of lab can fetch."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from xdplab.errors import LabError, MissingToolError, ProgramError
from xdplab.labs.cache import locked, mark_used, require_space
from xdplab.labs.tools import require_tools

BUILD_S = 120.0
"""Seconds a build may take; a small module takes two, on a busy machine ten."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_MAKES_OWN = re.compile(r"[\s$:#%;&|<>'\"`()*?\\]")
_ERROR = re.compile(r"^.*?(?:\berror:|\bERROR:|\*\*\* ).*$", re.MULTILINE)
_SPACE_MB = 50


@dataclass(frozen=True)
class BuildTree:
    """The build tree for modules of one kernel.

    ``release`` is what ``uname -r`` says there, ``version`` the package's, ``arch`` what kbuild calls ``ARCH``
    (``x86``, ``um``), ``compiler`` the command that builds for it here, ``cross`` how the names of the tools begin
    where it is of another architecture (``aarch64-linux-gnu-``).
    """

    release: str
    version: str
    path: Path
    arch: str
    compiler: str
    cross: str = ""


def compiler_for(kernel: str, config: str, cross: str = "") -> str:
    """Return the gcc of this machine that can build for the kernel of that configuration.

    That is the kernel's own, else a newer one: an older one lacks options its Makefiles use. ``cross``: how the
    compiler's name begins where the kernel is of another architecture. Raises LabError.
    """
    match = re.search(r"^CONFIG_GCC_VERSION=(\d+)$", config, re.MULTILINE)
    if match is None:
        raise LabError(f"kernel {kernel}: it was not built by gcc: its modules cannot be built here")
    wanted, gcc = int(match[1]) // 10000, f"{cross}gcc"
    if shutil.which(f"{gcc}-{wanted}"):
        return f"{gcc}-{wanted}"
    here = _gcc_version(gcc)
    what = f"kernel {kernel}: its modules cannot be built here: it was built by gcc {wanted}, and "
    package = f"gcc-{wanted}-{cross.rstrip('-')}" if cross else f"gcc-{wanted}"
    remedy = f"install {package} or newer; its Debian release has it"
    if here is None:
        raise MissingToolError(f"{what}there is no {gcc} here", remedy=remedy)
    if here < wanted:
        raise LabError(f"{what}{gcc} here is {here}, which lacks options it uses", remedy=remedy)
    return f"{gcc}-{here}" if shutil.which(f"{gcc}-{here}") else gcc


def _gcc_version(gcc: str) -> int | None:
    if shutil.which(gcc) is None:
        return None
    output = subprocess.run([gcc, "-dumpversion"], capture_output=True, text=True, check=False).stdout
    return int(output.split(".")[0])


def build(tree: BuildTree, name: str, sources: Mapping[str, bytes]) -> Path:
    """Build ``NAME.ko`` and return its path: in the cache, by content.

    ``sources`` maps relative paths to contents: ``NAME.c`` alone, or with a ``Kbuild`` (or ``Makefile``) that makes
    the module. Raises ProgramError with the compiler's first error, LabError where there is no make.
    """
    _require(name, sources)
    with locked("modules") as root:
        module = root / _key(tree, name, sources) / f"{name}.ko"
        if not module.exists():
            require_space(root, f"module {name}", _SPACE_MB)
            with tempfile.TemporaryDirectory(dir=root, prefix=".fetch-") as work:
                folder = Path(work)
                _write(folder, name, sources)
                _make(tree, name, folder)
                module.parent.mkdir(exist_ok=True)
                (folder / module.name).rename(module)
        mark_used(module.parent)
    return module


def _require(name: str, sources: Mapping[str, bytes]) -> None:
    if not _NAME.fullmatch(name):
        raise ProgramError(f"{name!r} cannot be a module's name", remedy="lower-case letters, digits and _")
    for path in map(PurePosixPath, sources):
        if path.is_absolute() or ".." in path.parts:
            raise ProgramError(f"module {name}: a source cannot lie at {path}", remedy="give relative paths")


def _key(tree: BuildTree, name: str, sources: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256(repr((tree.release, tree.version, tree.arch, tree.compiler, name)).encode())
    for path, content in sorted(sources.items()):
        digest.update(f"\0{path}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def _write(folder: Path, name: str, sources: Mapping[str, bytes]) -> None:
    if not {"Kbuild", "Makefile"} & set(sources):
        sources = {**sources, "Kbuild": f"obj-m := {name}.o\n".encode()}
    for relative, content in sources.items():
        path = folder / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _require_plain(path: Path) -> None:
    """Raise LabError for a folder name with make's special characters: the kernel's Makefiles do not quote."""
    if match := _MAKES_OWN.search(str(path)):
        raise LabError(
            f"no module can be built in {path}: {match[0]!r} is a special character of make",
            remedy="set XDG_CACHE_HOME to a folder without it",
        )


def _make(tree: BuildTree, name: str, folder: Path) -> None:
    for path in (tree.path, folder):
        _require_plain(path)
    require_tools("a kernel module", {"make": "make"})
    argv = ["make", "-C", str(tree.path), f"M={folder}", f"ARCH={tree.arch}", f"CC={tree.compiler}", "modules"]
    argv += [f"CROSS_COMPILE={tree.cross}"] if tree.cross else []
    clean = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR") if key in os.environ} | {"LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["timeout", "--kill-after=5", f"{BUILD_S:g}", *argv],  # the whole group: make's compilers too
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            env=clean,
        )
    except OSError as error:
        raise LabError(f"module {name}: make does not start: {error}") from error
    if done.returncode == 124:
        raise ProgramError(f"module {name} for {tree.release}: its build has not ended in {BUILD_S:g} s")
    if done.returncode or not (folder / f"{name}.ko").exists():
        complaint = _first_error(done.stderr + done.stdout).replace(f"{folder}/", "")
        raise ProgramError(f"module {name} for {tree.release} does not build: {complaint}")


def _first_error(output: str) -> str:
    """Return the compiler's first error, or the last line of output."""
    match = _ERROR.search(output)
    lines = [match[0]] if match else output.strip().splitlines()[-1:]
    return lines[0].strip()[:400] if lines else "no .ko was made, and nothing was said"
