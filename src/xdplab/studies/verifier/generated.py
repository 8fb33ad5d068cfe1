"""Programs that grow: C text from the templates in `programs/` by one size N, compiled by each installed clang."""

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from xdplab.errors import PlanError, ProgramError
from xdplab.lazy import lazily
from xdplab.programs.source import templates

with lazily():
    import jinja2
    from jinja2 import sandbox

PROGRAMS = Path(__file__).parent / "programs"

MOST_N = 5000
"""Largest size: from 8,192 pending branches on, some kernels fail in the verifier instead of refusing the program."""


@dataclass(frozen=True)
class ProgramFamily:
    """A template, and its options with their values, the default first.

    ``usual``: a request measures it unless it names other families.
    """

    name: str
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    constants: Mapping[str, int] = field(default_factory=dict)
    usual: bool = True


FAMILIES: dict[str, ProgramFamily] = {
    family.name: family
    for family in (
        ProgramFamily(
            "double_strcmp", {"form": ("rolled", "unrolled"), "exit": ("<", "!="), "maps": ("btf", "legacy")}
        ),
        ProgramFamily("strcmp_return", {"form": ("rolled", "unrolled"), "exit": ("<", "!=")}, usual=False),
        ProgramFamily("branches"),
        ProgramFamily("pruning", constants={"scalars": 4}),
    )
}


@dataclass(frozen=True)
class Member:
    """One program of a family: ``options`` as (name, value) pairs; other options have their default.

    ``template``: the text of a user's own family, which has no options.
    """

    family: str
    n: int
    options: tuple[tuple[str, str], ...] = ()
    template: str | None = field(default=None, repr=False)

    @property
    def chosen(self) -> dict[str, str]:
        """Every option of the family with its value. Raises PlanError for an unknown family, option or value."""
        if self.template is None and self.family not in FAMILIES:
            raise PlanError(f"no family {self.family!r}", remedy=f"families are {', '.join(FAMILIES)}")
        options = FAMILIES[self.family].options if self.template is None else {}
        given = dict(self.options)
        for name, value in given.items():
            if value not in options.get(name, ()):
                raise PlanError(
                    f"{self.family}: {name}={value} is not one of its options", remedy=f"it takes {dict(options)}"
                )
        return {name: given.get(name, values[0]) for name, values in options.items()}

    @property
    def label(self) -> str:
        """``double_strcmp 100 rolled <``."""
        return " ".join((self.family, str(self.n), *self.chosen.values()))


def source(member: Member) -> str:
    """Return the C text of one member. Raises PlanError for options it does not have."""
    values = member.chosen | {"n": member.n}
    if member.template is not None:
        return _rendered(member, values)
    constants = FAMILIES[member.family].constants
    return templates(PROGRAMS).get_template(f"{member.family}.bpf.c.j2").render(values | dict(constants))


def _rendered(member: Member, values: Mapping[str, str | int]) -> str:
    try:
        return templates(PROGRAMS, sandbox.SandboxedEnvironment).from_string(member.template or "").render(values)
    except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, jinja2.TemplateSyntaxError) else ""
        raise PlanError(
            f"the template of {member.family}{line}: {error}", remedy="it is Jinja2 text, with {{ n }} for the size"
        ) from error


def is_file(family: str) -> bool:
    """Tell whether a family is given as the file of a template: names contain neither dot nor slash."""
    return "/" in family or "." in family


def own_members(paths: Sequence[Path], sizes: Sequence[int]) -> list[Member]:
    """Return the programs of a user's templates, each a family named after its file. Raises PlanError if unusable."""
    members: list[Member] = []
    for path in paths:
        name = path.name.partition(".")[0]
        if name in FAMILIES or name in {member.family for member in members}:
            whose = "of the study's own" if name in FAMILIES else "of another file"
            raise PlanError(f"--family {path}: {name} is a family {whose}", remedy="give the file another name")
        if not sizes:
            raise PlanError(f"--family {path}: your template has no sizes", remedy="give them, such as --size 10")
        text = _text_of(path)
        members += [Member(name, n, template=text) for n in dict.fromkeys(sizes)]
    return members


def _text_of(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"--family {path}: {getattr(error, 'strerror', None) or 'not text'}") from error


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
