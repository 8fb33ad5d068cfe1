"""Debian's user-mode Linux in the user's own cache: the kernel as a program, its modules, and a tree to build others.

Nothing is installed. The tree is Debian's source of exactly its version. The kernel itself gives its configuration,
which is complete, so kconfig (and flex and bison, which build it) is not needed; the exported symbols are read from
the kernel's own table.
"""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

from xdplab.errors import LabError
from xdplab.labs.cache import cache_dir, kept, locked
from xdplab.labs.guests.modules import BuildTree, build, compiler_for
from xdplab.labs.tools import require_tools
from xdplab.labs.vm import archive

PACKAGE = "user-mode-linux"
SUITES = ("bookworm",)
"""The suite whose package is 6.1, the version that the studies' figures name."""

_SPACE_MB = 200
_DESCRIPTION = "uml.json"


@dataclass(frozen=True)
class Package:
    """One user-mode Linux in the cache.

    ``release`` is what ``uname -r`` says in it, ``version`` the package's, ``source`` its source's.
    """

    release: str
    version: str
    source: str
    folder: Path

    @property
    def kernel(self) -> Path:
        return self.folder / "usr/bin/linux.uml"

    @property
    def modules(self) -> Path:
        return self.folder / "usr/lib/uml/modules" / self.release

    @property
    def series(self) -> str:
        """``6.1`` of ``6.1.176``."""
        return ".".join(self.release.split(".")[:2])


def package() -> Package:
    """Return the user-mode Linux of this machine's cache; fetch it if it is missing. Raises LabError."""
    folder = kept("uml-kernel", PACKAGE, _fill, what="user-mode Linux", space_mb=_SPACE_MB)
    description = json.loads((folder / _DESCRIPTION).read_text())
    return Package(description["release"], description["version"], description["source"], folder)


def _fill(folder: Path) -> None:
    options, version = archive.find_newest(cache_dir() / "uml-kernel/apt", PACKAGE, SUITES)
    (file,) = archive.download([f"{PACKAGE}={version}"], options, folder.parent)
    archive.extract(file, folder)
    kernel = folder / "usr/bin/linux.uml"
    try:
        release = subprocess.run([kernel, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise LabError(f"user-mode Linux does not start here: {error}", remedy="it runs on x86-64 only") from error
    description = {"release": release, "version": version, "source": archive.built_using(file, "linux")}
    (folder / _DESCRIPTION).write_text(json.dumps(description) + "\n")


ARCH = "um"
PREPARE_S = 300.0
"""Seconds the source may take to be prepared; it takes five, on a busy machine twenty."""

TOOLS = {"bc": "bc", "make": "make"}
"""The programs that its build calls besides the compiler; each is a package of that name."""

_TREE_MB = 400
# The part of the 1.3 GB of source that a module's build reads.
_KEPT = re.compile(
    r"[^/]+|(include|scripts|arch/um|arch/x86/(um|include|entry/syscalls)|security/selinux/include)/.*|arch/x86/Makefile.*"
    r"|kernel/bounds\.c|kernel/time/timeconst\.bc|lib/test_bpf\.c"
)
_TESTS = "lib/test_bpf.c"
_SYMBOL = struct.Struct("<QQQ")
"""An exported symbol: where it is, its name, its namespace (the kernel's include/linux/export.h)."""


def tree() -> BuildTree:
    """Return the build tree of the lab `uml`, fetched and prepared if it is not in the cache.

    Raises MissingToolError naming the packages that are missing, LabError where the archive no longer has that source,
    or this machine no compiler for it.
    """
    require_tools("a module for uml", TOOLS)
    kernel = package()
    argv = [str(kernel.kernel), "--showconfig"]
    config = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    compiler = compiler_for(f"uml {kernel.release}", config)
    name = f"linux-source-{kernel.series}"

    def fill(folder: Path) -> None:
        with locked("uml-kernel") as apt_root:
            options = archive.find_exactly(apt_root / "apt", name, kernel.source, SUITES)
            (file,) = archive.download([f"{name}={kernel.source}"], options, folder.parent)
        archive.extract(file, folder.parent)
        _unpack(folder.parent / "usr/src" / f"{name}.tar.xz", folder)
        _configure(folder, config)
        _prepare(folder, compiler)
        (folder / "Module.symvers").write_text("".join(_symvers(kernel)))

    what = f"the source of uml {kernel.release}"
    path = kept("headers", f"uml-{kernel.release}_{kernel.source}+tests", fill, what=what, space_mb=_TREE_MB)
    return BuildTree(kernel.release, kernel.source, path, ARCH, compiler)


def tests_module() -> Path:
    """Return the kernel's own test_bpf.ko, which the package of user-mode Linux lacks, built from its source.

    Raises like `tree`, and ProgramError with the compiler's message.
    """
    headers = tree()
    return build(headers, "test_bpf", {"test_bpf.c": (headers.path / _TESTS).read_bytes()})


def _unpack(source: Path, folder: Path) -> None:
    with tarfile.open(source, "r|xz") as members:
        for member in members:
            member.name = member.name.partition("/")[2]
            if member.isreg() and _KEPT.fullmatch(member.name):
                _write(members, member, folder / member.name)
            elif member.issym() and _KEPT.fullmatch(member.name):
                (folder / member.name).parent.mkdir(parents=True, exist_ok=True)
                (folder / member.name).symlink_to(member.linkname)


def _write(members: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    """Write one file; tarfile's own filters came with Python 3.11.4, and Debian 12 has 3.11.2."""
    content = members.extractfile(member)
    if content is None or ".." in target.parts:
        raise ValueError(f"{member.name} is not a file of a source")
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        shutil.copyfileobj(content, file)
    target.chmod(0o755 if member.mode & 0o100 else 0o644)


def _configure(folder: Path, config: str) -> None:
    """Write the files that kconfig would write for a complete configuration."""
    settings = [line.split("=", 1) for line in config.splitlines() if line.startswith("CONFIG_")]
    files = {
        ".config": config,
        "include/config/auto.conf": "".join(f"{name}={value.strip(chr(34))}\n" for name, value in settings),
        "include/config/auto.conf.cmd": "",
        "include/generated/autoconf.h": "".join(_define(name, value) for name, value in settings),
        "include/generated/rustc_cfg": "",
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _define(name: str, value: str) -> str:
    special = {"y": f"#define {name} 1\n", "m": f"#define {name}_MODULE 1\n"}
    return special.get(value, f"#define {name} {value}\n")


def _prepare(folder: Path, compiler: str) -> None:
    argv = ["make", "-j2", "-C", str(folder), f"ARCH={ARCH}", f"CC={compiler}", "modules_prepare"]
    done = subprocess.run(
        ["timeout", "--kill-after=5", f"{PREPARE_S:g}", *argv], capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise LabError(f"the source of uml cannot be prepared: {lines[0][:300]}")


def _symvers(kernel: Package) -> Iterator[str]:
    """Yield a line of Module.symvers for each symbol the kernel exports to modules."""
    with kernel.kernel.open("rb") as file:
        elf: Any = ELFFile(file)
        strings = elf.get_section_by_name("__ksymtab_strings")
        base, text = strings["sh_addr"], strings.data()
        for section, export in (("__ksymtab", "EXPORT_SYMBOL"), ("__ksymtab_gpl", "EXPORT_SYMBOL_GPL")):
            for _value, name, space in _SYMBOL.iter_unpack(elf.get_section_by_name(section).data()):
                names = [text[at - base : text.index(b"\0", at - base)].decode() if at else "" for at in (name, space)]
                yield f"0x00000000\t{names[0]}\tvmlinux\t{export}\t{names[1]}\n"
