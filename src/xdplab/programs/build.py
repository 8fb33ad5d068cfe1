"""From a program to its object: compiled on the controller, cached by content.

The name of a cache directory has the first 16 hex digits of a SHA-256 over source, compile command and compiler
version. It appears by one rename, so its files are complete; later results (proof, load report) are added to it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from xdplab.compiler import FLAGS, bpf_include_flags, compiler_version, find_clang, run_tool, words_of
from xdplab.lazy import lazy
from xdplab.plan.factors import constants
from xdplab.programs.image import Image, named_by, read_image
from xdplab.programs.source import map_contents, source, user_source, user_state
from xdplab.programs.spec import ProgramSpec, UserProgram
from xdplab.programs.steps import disassemble

maps = lazy("xdplab.programs.maps")  # few programs have entries

DEVICE_BOUND = "--device-bound"
"""The loader's option for a program that calls its driver's kfuncs."""
_OF_A_LAB = ("xlated.*", "jited.*", "load.json", "proof*.json", "work.json", "workload_user.txt")
# Without it clang stops unrolling at 16384 instructions and keeps a loop.
_UNROLL_FLAGS = ("-Werror=pass-failed", "-mllvm", "-pragma-unroll-threshold=1000000000")


@dataclass(frozen=True)
class Filling:
    """What fills a program's maps: the bytes of all keys and then of all values, by map; and entries that name
    programs, devices or CPUs, which the loader resolves, as ``MAP=KEY=VALUE``."""

    data: Mapping[str, bytes]
    named: tuple[str, ...]


@dataclass(frozen=True)
class BuiltProgram:
    """A compiled program and the directory that holds everything about it."""

    program: ProgramSpec | UserProgram
    hash: str
    directory: Path

    @property
    def object(self) -> Path:
        return self.directory / "program.bpf.o"

    @property
    def image(self) -> Image:
        """The program's instructions."""
        return _image_of(self.program, self.object.read_bytes())

    @property
    def load_options(self) -> list[str]:
        """What xdpload is told of the program: which one it is, those loaded with it, and its constants and maps.

        Raises PlanError for a constant or a map that it does not have.
        """
        program = self.program
        bound = [DEVICE_BOUND] * self.image.reads_metadata + ["--tc"] * (program.hook == "tc")
        if isinstance(program, ProgramSpec):
            return ["--section", program.section, *bound]
        options = ["--program", program.function] if program.function else ["--section", program.section]
        options += bound
        for name in self.also:
            options += ["--also", name]
        maps.require_constants(program.rodata, self.object.read_bytes(), Path(program.file).name)
        for place, number in constants(program.rodata):
            options += ["--rodata", f"{place}={number}"]
        for entry in self.filling.named:
            options += ["--map", entry]
        return [*options, "--keep-pins"] if program.pinned == "keep" else options

    @property
    def also(self) -> list[str]:
        """The other programs of a user's object that are loaded: a static table of programs or its setup names them."""
        program = self.program
        if isinstance(program, ProgramSpec):
            return []
        texts = [word for argv in program.setup for word in argv]
        texts += [Path(path).read_text(errors="replace") for path in program.setup_files.values()]
        words = [word for text in texts for word in re.findall(r"\w+", text)]
        return named_by(self.object.read_bytes(), words, self.image.name)

    @cached_property
    def filling(self) -> Filling:
        """What the plan puts into the maps of a user's program. Raises PlanError naming map, field and range."""
        program = self.program
        if isinstance(program, ProgramSpec) or not program.maps:
            return Filling({}, ())
        filled: Filling = maps.filling(program.maps, self.object.read_bytes(), Path(program.file).name)
        return filled

    @property
    def init_files(self) -> dict[str, Path]:
        """What fills the program's maps, by map name: xdpload's ``--init``."""
        names = map_contents(self.program) if isinstance(self.program, ProgramSpec) else {}
        return dict.fromkeys(names, self.directory / "init.bin")

    @property
    def max_entries(self) -> dict[str, str]:
        """Sizes of maps that the loader sets: xdpload's ``--max-entries``."""
        return {"working_set": "cpus"} if "working_set" in self.init_files else {}

    @property
    def user_source(self) -> Path:
        """The C text of the user-space twin."""
        return self.directory / "workload_user.c"

    @property
    def user_state(self) -> Path | None:
        """What fills the state of the user-space twin, or None if it has none: afxdp_user's ``--init``."""
        path = self.directory / "state.bin"
        return path if path.is_file() else None

    def add(self, name: str, content: bytes | str) -> Path:
        """Add a file to the directory, in one step or not at all."""
        path = self.directory / name
        handle, temporary = tempfile.mkstemp(dir=self.directory, prefix=f".{name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
        return path

    def alone(self, folder: Path) -> BuiltProgram:
        """Copy the program without what other labs added, and return the copy: the cache serves several at once."""
        shutil.copytree(self.directory, folder, ignore=shutil.ignore_patterns(".*", *_OF_A_LAB), dirs_exist_ok=True)
        return replace(self, directory=folder)

    def copy_to(self, folder: Path) -> None:
        """Copy the finished files: a hidden file is still being written, and may vanish before it is read."""
        shutil.copytree(self.directory, folder, ignore=shutil.ignore_patterns(".*"), dirs_exist_ok=True)


def build(program: ProgramSpec | UserProgram, cache_dir: Path) -> BuiltProgram:
    """Compile, or take from the cache. Raises ProgramError with the compiler's message."""
    clang = find_clang()
    if isinstance(program, UserProgram) and program.is_object:
        command: list[str] = []
        text = Path(program.file).read_bytes()
    else:
        command = compile_command(clang, program)
        text = _text(program, command)
    digest = _content_hash(text, command, clang, program)
    directory = cache_dir / digest
    if not directory.is_dir():
        _fill_and_rename(program, command, text, directory)
    return BuiltProgram(program, digest, directory)


def compile_command(clang: str, program: ProgramSpec | UserProgram, *extra: str) -> list[str]:
    """Return the command that compiles ``program.c`` to ``program.bpf.o``, to be run in their directory."""
    if isinstance(program, UserProgram):
        flags = words_of(program.cflags, Path(program.file).resolve().parent)
    else:
        flags = [*_UNROLL_FLAGS] if program.form == "unrolled" else []
    return [clang, *FLAGS, *flags, *bpf_include_flags(), *extra, "-c", "program.c", "-o", "program.bpf.o"]


def _text(program: ProgramSpec | UserProgram, command: list[str]) -> bytes:
    """Return the compiler's input: a user's file after the preprocessor, because its headers count too."""
    if isinstance(program, ProgramSpec):
        return source(program).encode()
    file = Path(program.file).resolve()
    arguments = command[: command.index("-c")]
    return run_tool([*arguments, "-E", "-P", file.name], file.parent).encode()


def _content_hash(text: bytes, command: list[str], clang: str, program: ProgramSpec | UserProgram) -> str:
    version = compiler_version(clang) if command else ""
    # Equal objects of other contents or sections are other programs: the name says what directory it is.
    extra = "" if isinstance(program, ProgramSpec) else f"{program.section} {program.function or ''}".strip()
    parts = [text, "\0".join(command).encode(), version.encode(), extra.encode()]
    if isinstance(program, ProgramSpec):
        parts += [content for _, content in sorted(map_contents(program).items())]
    return hashlib.sha256(b"\0\0".join(parts)).hexdigest()[:16]


def _fill_and_rename(program: ProgramSpec | UserProgram, command: list[str], text: bytes, directory: Path) -> None:
    directory.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=directory.parent, prefix=".building-"))
    try:
        if isinstance(program, ProgramSpec):
            _fill_generated(program, command, work)
        else:
            _fill_user(program, command, text, work)
        _describe(program, command, work)
        work.chmod(0o755)
        work.rename(directory)
    except OSError:
        if not directory.is_dir():  # else another process was quicker, and its content is the same
            raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _fill_generated(program: ProgramSpec, command: list[str], work: Path) -> None:
    (work / "program.c").write_text(source(program))
    if program.in_user_space:
        (work / "workload_user.c").write_text(user_source(program))
    fewer = f"fewer than {program.accesses:,} accesses, or `form: bounded`: only unrolled code grows with N"
    run_tool(command, work, if_late=fewer if program.form == "unrolled" else None)
    for content in map_contents(program).values():
        (work / "init.bin").write_bytes(content)
    if program.in_user_space and (state := user_state(program)):
        (work / "state.bin").write_bytes(state)


def _fill_user(program: UserProgram, command: list[str], text: bytes, work: Path) -> None:
    file = Path(program.file).resolve()
    if not command:
        (work / "program.bpf.o").write_bytes(text)
        return
    (work / "program.c").write_bytes(file.read_bytes())
    (work / "preprocessed.c").write_bytes(text)
    arguments = command[: command.index("-c")]
    run_tool([*arguments, "-c", file.name, "-o", str(work / "program.bpf.o")], file.parent)


def _image_of(program: ProgramSpec | UserProgram, data: bytes) -> Image:
    if isinstance(program, ProgramSpec):
        return read_image(data, program.section)
    return read_image(data, program.section, program.function)


def _describe(program: ProgramSpec | UserProgram, command: list[str], work: Path) -> None:
    image = _image_of(program, (work / "program.bpf.o").read_bytes())
    # A user's file may lie anywhere, and equal contents have one directory, whatever their names and actions.
    identity = program.canonical() if isinstance(program, ProgramSpec) else {"section": program.section}
    facts = {
        "program": identity,
        "command": command,
        "compiler": compiler_version(command[0]) if command else None,
        "function": image.name,
        "insns": len(image.insns),
        "maps": list(image.maps),
    }
    (work / "disassembly.txt").write_text(disassemble(image))
    (work / "build.json").write_text(json.dumps(facts, indent=1) + "\n")
