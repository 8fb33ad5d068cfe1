"""Debian's clang of each release: fetched by apt into the user's own cache and run from there, never installed.

A release newer than this machine's Debian needs a newer C library too. Each compiler therefore lies beside the
libraries of its own suite, and their dynamic linker starts it.
"""

import functools
import platform
import re
import shutil
import subprocess
from pathlib import Path

from xdplab.doctor.checks import VERSIONS
from xdplab.errors import LabError
from xdplab.labs.cache import cache_dir, locked, make
from xdplab.labs.vm import archive

LINKER = "ld-linux-x86-64.so.2"
START = f"""#!/bin/sh
here=${{0%/*}}
case $1 in
-cc1*) ;; # the driver starts the compiler proper, by this name too
*) set -- -no-canonical-prefixes -resource-dir "$here/resource" "$@" ;;
esac
exec "$here/lib/{LINKER}" --argv0 "$0" --library-path "$here/lib" "$here/bin/clang" "$@"
"""
NOT_TO_RUN = re.compile(r".*-(dev|tools|base)|binutils|libclang1-.*")
"""Packages that clang depends on for linking or for other languages."""
SPACE_MB = 1500


def releases() -> dict[int, tuple[str, ...]]:
    """Return the releases that xdplab was tried with, and the suites that have each."""
    lines = [line.split("\t") for line in VERSIONS.read_text().splitlines() if line.startswith("clang\t")]
    return {int(version): tuple(suites.split()) for _, version, suites in lines}


def clang(release: int) -> Path:
    """Return the command of a release's clang, fetched if it is not in the cache. Raises LabError."""
    if platform.machine() != "x86_64":
        raise LabError(f"Debian's amd64 compilers do not run on {platform.machine()}")
    folder = cache_dir() / "compilers" / f"clang-{release}"
    if not folder.exists():
        with locked("compilers") as root:
            if not folder.exists():  # if not, another process has just fetched it
                fill = functools.partial(_fill, root / "apt", release)
                make(folder, fill, what=folder.name, space_mb=SPACE_MB)
    return folder / "clang"


def _fill(apt: Path, release: int, folder: Path) -> None:
    package = f"clang-{release}"
    options, version = _newest(apt, package, releases()[release])
    tree = folder.parent / "tree"
    names = _with_libraries([package, f"libclang-common-{release}-dev"], options)
    for file in archive.download(names, options, folder.parent):
        archive.extract(file, tree)
        file.unlink()
    _keep(tree, tree / f"usr/lib/llvm-{release}", folder)
    (folder / "version").write_text(f"{package} {version}\n")


def _newest(apt: Path, package: str, suites: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Look in one suite after the other: the mirror may have an old copy of one, whose signature has expired."""
    complaints = []
    for suite in suites:
        try:
            return archive.find_newest(apt, package, (suite,), with_base=True)
        except LabError as error:
            complaints.append(error.message)
    raise LabError("; ".join(complaints))


def _with_libraries(packages: list[str], options: tuple[str, ...]) -> list[str]:
    """Return packages and their dependencies."""
    needs = archive.dependencies(options, packages)
    found: list[str] = []
    left = list(packages)
    while left:
        name = left.pop()
        if name in needs and name not in found and (name in packages or not NOT_TO_RUN.fullmatch(name)):
            found.append(name)
            left += needs[name]
    return found


def _keep(tree: Path, llvm: Path, folder: Path) -> None:
    """Copy a compiler, its headers and the libraries that it loads, a tenth of the packages."""
    for part in ("bin", "lib"):
        (folder / part).mkdir()
    shutil.copy(llvm / "bin/clang", folder / "bin/clang")
    (headers,) = llvm.glob("lib/clang/*/include/stddef.h")
    shutil.copytree(headers.parent, folder / "resource/include")
    (linker,) = tree.glob(f"**/x86_64-linux-gnu/{LINKER}")
    shutil.copy(linker, folder / "lib" / LINKER)
    places = [linker.parent, tree / "usr/lib/x86_64-linux-gnu", llvm / "lib"]
    argv = [str(linker), "--library-path", ":".join(map(str, places)), "--list", str(llvm / "bin/clang")]
    listed = subprocess.run(argv, capture_output=True, text=True, check=False)
    if listed.returncode or "not found" in listed.stdout:
        raise LabError(f"{folder.name} does not find its libraries: {(listed.stdout + listed.stderr).strip()[-300:]}")
    for name, path in re.findall(r"(\S+) => (\S+) \(", listed.stdout):
        if not name.endswith(LINKER):
            shutil.copy(path, folder / "lib" / name)
    (folder / "clang").write_text(START)
    (folder / "clang").chmod(0o755)
