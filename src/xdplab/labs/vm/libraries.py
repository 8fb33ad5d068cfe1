"""The libraries that programs in guests need; libbpf for those of another architecture, from Debian's packages.

A guest without this machine's root boots with the libraries that its programs need. Those of another architecture are
unpacked into the cache; this machine's cross compiler links the programs with them.
"""

from __future__ import annotations

import io
import platform
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

from xdplab.errors import LabError
from xdplab.labs.cache import locked, make, mark_used
from xdplab.labs.vm import archive
from xdplab.labs.vm.architectures import Architecture

HEADERS, LIBRARY = "libbpf-dev", "libbpf1"
PACKAGES = "packages.txt"
"""The packages that a folder was made of, one a line."""

_TRIPLET = f"{platform.machine()}-linux-gnu"
HERE = tuple(
    Path(folder) / inside for folder in ("/usr/local/lib", "/usr/lib", "/usr/lib64") for inside in (_TRIPLET, "")
)
"""The folders of this machine's libraries."""

_SPACE_MB = 60
_KEPT = ("*.so", "*.so.*")
_LEFT_OUT = "gconv"
"""The folder of the C library's 250 character sets."""


def folder(architecture: Architecture) -> Path:
    """Return a folder with ``include/bpf`` and ``lib``, fetched if it is not in the cache. Raises LabError."""
    with locked("libraries") as root:
        path = root / architecture.name
        if not path.exists():
            what = f"the libraries of {architecture.name}"
            make(path, lambda target: _fill(root, architecture, target), what=what, space_mb=_SPACE_MB)
        mark_used(path)
    return path


def _fill(root: Path, architecture: Architecture, target: Path) -> None:
    options, _ = archive.find_newest(root / "apt", HEADERS, architecture.shells, architecture.name)
    needed = archive.dependencies(options, [LIBRARY])
    tree = target.parent / "tree"
    packages = archive.download([HEADERS, *needed], options, target.parent)
    for package in packages:
        archive.extract(package, tree)
    (target / PACKAGES).write_text("".join(f"{package.name}\n" for package in packages))
    shutil.copytree(tree / "usr/include/bpf", target / "include/bpf")
    (target / "lib").mkdir()
    for pattern in _KEPT:
        for path in sorted(tree.rglob(pattern)):
            if path.is_file() and path.parent.name != _LEFT_OUT:  # nor a link to what another package has
                shutil.copyfile(path, target / "lib" / path.name)


def is_program(content: bytes) -> bool:
    """Tell whether a file is started by a loader, which finds its libraries."""
    return content.startswith(b"\x7fELF") and _loader(ELFFile(io.BytesIO(content))) is not None


def needed(program: bytes, folders: Sequence[Path] = HERE) -> dict[str, bytes]:
    """Return the files that a program is started with, by their path in a guest.

    ``folders`` have the libraries. None are needed by a program that has its libraries inside. Raises LabError naming a
    library that is not there.
    """
    loader, names = _wants(program)
    if loader is None:
        return {}
    files = {loader.lstrip("/"): _library(folders, Path(loader).name)}
    todo = list(names)
    while todo:
        if (path := f"lib/{todo.pop()}") not in files:
            files[path] = _library(folders, Path(path).name)
            todo += _wants(files[path])[1]
    return files


def _library(folders: Sequence[Path], name: str) -> bytes:
    path = next((path for folder in folders if (path := folder / name).is_file()), None)
    if path is None:
        raise LabError(f"a program needs {name}, which is not in {', '.join(map(str, folders))}")
    return path.read_bytes()


def _wants(program: bytes) -> tuple[str | None, Iterable[str]]:
    """Return the program's loader, and the names of the libraries that it asks for."""
    elf = ELFFile(io.BytesIO(program))
    sections = (s for s in elf.iter_sections() if isinstance(s, DynamicSection))
    tags = (tag for section in sections for tag in section.iter_tags("DT_NEEDED"))
    return _loader(elf), [tag.needed for tag in tags]  # type: ignore[attr-defined]


def _loader(elf: ELFFile) -> str | None:
    segments: list[Any] = [segment for segment in elf.iter_segments() if segment["p_type"] == "PT_INTERP"]
    return str(segments[0].get_interp_name()) if segments else None
