"""The verified programs: objects of directories, archives and this system, and members of the generated families."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from string import ascii_uppercase

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile

from xdplab.errors import PlanError
from xdplab.programs.build import build
from xdplab.programs.image import damages
from xdplab.programs.spec import ProgramSpec
from xdplab.studies.verifier.generated import Compiler, Member, compile_object, source

SYSTEM_FOLDERS = ("/usr/lib/bpf", "/usr/lib/*/bpf", "/usr/libexec/bpf", "/usr/local/lib/bpf", "/usr/share/bpf")
SYSTEM = "system"
TESTBED = "testbed"
"""The corpus of the XDP lab's own programs."""
SYSTEM_TOOLS = ("/usr/sbin", "/usr/lib/systemd")
"""Packages whose executables contain objects: bpfcc's libbpf-tools, systemd."""

_ELF = b"\x7fELF"
_HEADER_BYTES = 64
MACHINES = (0, 247)
"""EM_NONE, which early clangs wrote, and EM_BPF."""


@dataclass(frozen=True)
class CorpusObject:
    """One object. ``name`` is its path within ``corpus``; the last five are null if nothing generated it."""

    corpus: str
    name: str
    content: bytes
    member: Member | None = None
    compiler: str | None = None
    mcpu: str | None = None

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def collect(names: Sequence[str], *, apart: bool = False) -> list[CorpusObject]:
    """Return the BPF objects of files, directories, archives (tar, zip) and ``system``, each content once.

    Objects without a program are left out. ``apart``: each name is a separate corpus (``A: old.o``), with all its
    contents, to be compared with the others. Raises PlanError for a name of another kind, and for one without a BPF
    program.
    """
    subjects: dict[tuple[str, str], CorpusObject] = {}
    for rank, name in enumerate(names):
        objects = _system() if name == SYSTEM else _of_path(Path(name))
        members = [subject for subject in objects if may_hold_program(subject.content)]
        if not members:
            raise PlanError(f"{name} holds no BPF program", remedy="name an object, a directory, an archive, or system")
        for subject in members:
            corpus = f"{ascii_uppercase[rank]}: {Path(name).name}" if apart else ""
            subjects.setdefault((corpus, subject.sha256), replace(subject, corpus=corpus or subject.corpus))
    return list(subjects.values())


def is_bpf(content: bytes) -> bool:
    """Whether the bytes begin as a BPF object does: an ELF file for BPF, or for no machine."""
    return content[:4] == _ELF and int.from_bytes(content[18:20], "little") in MACHINES


def may_hold_program(content: bytes) -> bool:
    """Whether an object has executable bytes: the crti.o of a compiler for BPF has none, so nothing of it is verified.

    True for what cannot be read: its verdict says what it is.
    """
    try:
        sections = [section.header for section in ELFFile(io.BytesIO(content)).iter_sections()]
    except damages():
        return True
    return not sections or any(one.sh_flags & SH_FLAGS.SHF_EXECINSTR and one.sh_size for one in sections)


def _of_path(path: Path) -> Iterator[CorpusObject]:
    if path.is_dir():
        yield from _subjects(path.name or str(path), _files(path))
    elif path.is_file() and path.suffix != ".o" and tarfile.is_tarfile(path):
        yield from _subjects(path.name, _of_tar(path))
    elif path.is_file() and path.suffix != ".o" and zipfile.is_zipfile(path):
        yield from _subjects(path.name, _of_zip(path))
    elif path.is_file():
        yield CorpusObject("files", path.name, path.read_bytes())  # its verdict will say what it is
    else:
        raise PlanError(f"{path}: no such file or directory")


def _subjects(corpus: str, files: Iterable[tuple[str, bytes]]) -> Iterator[CorpusObject]:
    """Every file with an object's name: a damaged one gets a verdict too."""
    return (CorpusObject(corpus, name, content) for name, content in files)


def carve(content: bytes) -> Iterator[bytes]:
    """Yield the BPF objects inside another file: a libbpf skeleton contains its object as bytes of the executable."""
    at = content.find(_ELF, 1)
    while at > 0:
        if is_bpf(content[at : at + _HEADER_BYTES]) and content[at + 16] == 1:  # ET_REL
            table = int.from_bytes(content[at + 40 : at + 48], "little")
            count = int.from_bytes(content[at + 60 : at + 62], "little")
            size = table + 64 * count  # the section table ends what LLVM writes
            if at + size <= len(content):
                yield content[at : at + size]
        at = content.find(_ELF, at + 1)


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield objects, and those in executables (``tool#1``), by their path within the folder."""
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        name = path.relative_to(folder).as_posix()
        if path.suffix == ".o":
            yield name, path.read_bytes()
        elif _starts_as_elf(path):
            for rank, content in enumerate(carve(path.read_bytes()), 1):
                yield f"{name}#{rank}", content


def _starts_as_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == _ELF


def _of_tar(path: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path) as archive:
        for entry in archive:
            stream = archive.extractfile(entry) if entry.isfile() and entry.name.endswith(".o") else None
            if stream is not None:
                yield PurePosixPath(entry.name).as_posix(), stream.read()


def _of_zip(path: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as archive:
        for name in sorted(archive.namelist()):
            if name.endswith(".o"):
                yield name, archive.read(name)


def _system() -> Iterator[CorpusObject]:
    """Return the objects of this system's packages."""
    for pattern in (*SYSTEM_FOLDERS, *SYSTEM_TOOLS):
        for folder in sorted(Path("/").glob(pattern.lstrip("/"))):
            objects = ((f"{folder.name}/{name}", content) for name, content in _files(folder) if is_bpf(content))
            yield from _subjects(SYSTEM, objects)


def generated(
    members: Iterable[Member], compilers: Sequence[Compiler], mcpus: Sequence[str], cache_dir: Path
) -> Iterator[CorpusObject]:
    """Yield each member as each compiler writes it for each instruction set that it knows."""
    for member in members:
        text = source(member)
        for compiler in compilers:
            for mcpu in (m for m in mcpus if m in compiler.instruction_sets):
                content = compile_object(text, compiler, mcpu, cache_dir).read_bytes()
                name = f"{member.label}, {compiler.name} {mcpu}"
                yield CorpusObject(member.family, name, content, member, compiler.name, mcpu)


def testbed(accesses: Iterable[int], cache_dir: Path) -> Iterator[CorpusObject]:
    """Yield the XDP lab's own programs with N accesses per packet, one per workload, as loops."""
    for workload in ("array", "packet", "chase", "lookup"):
        for n in accesses:
            spec = ProgramSpec(workload, n)
            content = build(spec, cache_dir).object.read_bytes()
            yield CorpusObject(TESTBED, f"{workload}-{spec.op} N={n}", content)
