"""What is built for a guest's kernel, from Debian's packages in the cache.

The build tree for modules is Debian's headers, unpacked. Of the source, one folder of exactly that version is kept.

The libraries that programs in guests need; libbpf for those of another architecture, from Debian's packages.

A guest without this machine's root boots with the libraries that its programs need. Those of another architecture are
unpacked into the cache; this machine's cross compiler links the programs with them.
"""

from __future__ import annotations

import functools
import io
import platform
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

from xdplab.errors import LabError
from xdplab.labs.cache import cache_dir, kept, locked
from xdplab.labs.guests.modules import BuildTree, compiler_for
from xdplab.labs.vm import architectures, archive, kernels
from xdplab.labs.vm.architectures import Architecture

ARCH = "x86"
_SPACE_MB = 250
_BROUGHT = re.compile(r"linux-(headers-.*-common|kbuild-.*)")
"""The dependencies of the headers' package that are unpacked with it; the rest comes from the machine."""

_HERE = "$(dir $(lastword $(MAKEFILE_LIST)))"
# Paths in the headers' own Makefile, which must change because they are not in /usr/src.
_MOVED = (
    (re.compile(r"^(KBUILD_OUTPUT\s*:?=\s*)/usr/src/\S+$", re.MULTILINE), r"\1$(CURDIR)"),
    (re.compile(r"^include /usr/src/(\S+)$", re.MULTILINE), rf"include {_HERE}../\1"),
)


def tree(kernel: str) -> BuildTree:
    """Return the build tree of a guest's kernel (``6.1``, ``6.1@arm64``), fetched if it is not in the cache.

    Raises LabError if the archive no longer has the headers of just this kernel, or this machine lacks a compiler
    or C library new enough for them.
    """
    _, architecture = architectures.parted(kernel)
    cross = f"{architecture.triplet}-" if architecture else ""
    chosen = kernels.kernel(kernel)
    compiler = compiler_for(kernel, chosen.file("config").read_text(), cross)
    name, fill = f"{chosen.release}_{chosen.version}", functools.partial(_fill, chosen, architecture)
    folder = kept("headers", name, fill, what=f"the headers of {kernel}", space_mb=_SPACE_MB)
    path = folder / "usr/src" / f"linux-headers-{chosen.release}"
    _require_tools_run(kernel, path)
    return BuildTree(chosen.release, chosen.version, path, _kbuild(architecture), compiler, cross)


def _kbuild(architecture: Architecture | None) -> str:
    return architecture.kbuild if architecture else ARCH


def _fill(kernel: kernels.Kernel, architecture: Architecture | None, folder: Path) -> None:
    package = f"linux-headers-{kernel.release}"
    with locked("kernels") as root:  # apt's lists are there
        packages = _of_architecture(root / "apt", kernel, architecture, package, folder.parent)
    for file in packages:
        archive.extract(file, folder)
    shutil.rmtree(folder / "usr/share", ignore_errors=True)
    target = folder / "usr/src" / package
    (target / "vmlinux").unlink(missing_ok=True)  # only for a module's BTF, which needs pahole
    _adapt(target, kernel.release, _kbuild(architecture))


def _of_architecture(
    apt: Path, kernel: kernels.Kernel, architecture: Architecture | None, package: str, folder: Path
) -> list[Path]:
    """Download the headers and what they bring. Their programs run here: those of another architecture stay there."""
    suites = kernels.suites(kernel.name)
    lists, name = (apt / architecture.name, architecture.name) if architecture else (apt, archive.ARCHITECTURE)
    options = archive.find_exactly(lists, package, kernel.version, suites, name)
    brought = [one for one in archive.needed(options, package) if _BROUGHT.fullmatch(one)]
    programs = [one for one in brought if one.startswith("linux-kbuild-")] if architecture else []
    rest = [one for one in brought if one not in programs]
    packages = archive.download([f"{package}={kernel.version}", *rest], options, folder)
    if programs:
        here = archive.find_exactly(apt, programs[0], kernel.version, suites)
        packages += archive.download([f"{one}={kernel.version}" for one in programs], here, folder)
    return packages


def _adapt(folder: Path, release: str, arch: str) -> None:
    """Make the headers usable in their folder, with the compiler that `build` names."""
    makefile = folder / "Makefile"
    text = makefile.read_text()
    for pattern, moved in _MOVED:
        text = pattern.sub(moved, text)
    makefile.write_text(text)
    variables = {"override ARCH": arch, "override KERNELRELEASE": release, "DEBIAN_KERNEL_NO_CC_VERSION_CHECK": "y"}
    (folder / ".kernelvariables").write_text("".join(f"{name} = {value}\n" for name, value in variables.items()))


def _require_tools_run(kernel: str, path: Path) -> None:
    """Raise LabError if the headers' own programs, made for their Debian release, do not run on this machine."""
    tool = path / "scripts/mod/modpost"
    done = subprocess.run([tool], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if "version `" in done.stderr or "shared libraries" in done.stderr:
        raise LabError(
            f"kernel {kernel}: its modules cannot be built here: {done.stderr.strip().rpartition(': ')[2]}",
            remedy="its headers need the C library of its Debian release",
        )


_SOURCE_MB = 300
"""The package is half of it, and is removed again."""


def folder_of(kernel: str, folder: str) -> dict[str, bytes]:
    """Return the files of one folder (``drivers/net/netdevsim``) of a kernel's source, by name.

    Fetched if it is not in the cache. Raises LabError if the archive has no source of just this kernel, or that has
    no such folder.
    """
    chosen = kernels.kernel(kernel)
    # Side by side: a folder inside its parent would be taken for a file of the parent, and the parent for complete.
    name = f"{chosen.release}_{chosen.version}+{folder.replace('/', '+')}"
    fill = functools.partial(_fill_source, chosen, folder)
    files = kept("sources", name, fill, what=f"source of {kernel}", space_mb=_SOURCE_MB).iterdir()
    return {path.name: path.read_bytes() for path in sorted(files)}


def _fill_source(kernel: kernels.Kernel, wanted: str, folder: Path) -> None:
    series = re.match(r"\d+\.\d+", kernel.release)
    package = f"linux-source-{series[0]}" if series else kernel.release
    with locked("kernels") as root:  # apt's lists are there
        options = archive.find_exactly(root / "apt", package, kernel.version, kernels.suites(kernel.name))
        (file,) = archive.download([f"{package}={kernel.version}"], options, folder.parent)
    _unpack(file, f"usr/src/{package}.tar.xz", f"{package}/{wanted}", folder)
    if not any(folder.iterdir()):
        raise LabError(f"kernel {kernel.name}: its source has no {wanted}")


def _unpack(package: Path, inner: str, wanted: str, folder: Path) -> None:
    """Write the files of one folder of the archive in a package; the rest of the archive is not unpacked."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE) as process:
        with tarfile.open(fileobj=process.stdout, mode="r|") as outer:
            member = next((member for member in outer if member.name.removeprefix("./") == inner), None)
            content = outer.extractfile(member) if member else None
            if content is None:
                raise LabError(f"{package.name} holds no {inner}")
            with tarfile.open(fileobj=content, mode="r|xz") as members:
                _write(members, wanted, folder)
        process.kill()


def _write(members: tarfile.TarFile, wanted: str, folder: Path) -> None:
    for member in members:
        path = Path(member.name)
        if str(path.parent) == wanted and member.isfile() and (content := members.extractfile(member)):
            (folder / path.name).write_bytes(content.read())
        if not path.is_relative_to(wanted) and any(folder.iterdir()):
            return  # its own folders lie among its files


HEADERS, LIBRARY = "libbpf-dev", "libbpf1"
PACKAGES = "packages.txt"
"""The packages that a folder was made of, one a line."""

_TRIPLET = f"{platform.machine()}-linux-gnu"
HERE = tuple(
    Path(folder) / inside for folder in ("/usr/local/lib", "/usr/lib", "/usr/lib64") for inside in (_TRIPLET, "")
)
"""The folders of this machine's libraries."""

_LIBRARIES_MB = 60
_KEPT = ("*.so", "*.so.*")
_LEFT_OUT = "gconv"
"""The folder of the C library's 250 character sets."""


def folder(architecture: Architecture) -> Path:
    """Return a folder with ``include/bpf`` and ``lib``, fetched if it is not in the cache. Raises LabError."""
    fill, what = functools.partial(_fill_libraries, architecture), f"the libraries of {architecture.name}"
    return kept("libraries", architecture.name, fill, what=what, space_mb=_LIBRARIES_MB)


def _fill_libraries(architecture: Architecture, target: Path) -> None:
    options, _ = archive.find_newest(cache_dir() / "libraries/apt", HEADERS, architecture.shells, architecture.name)
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
