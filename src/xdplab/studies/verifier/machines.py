"""The machine of a kernel's verifier: this machine, or a guest of the VM lab; and the meaning of its clock.

What a user gives a run's programs: flags, tables (types, global variables, attach targets), modules of guests.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from xdplab.errors import HostError, LabError, PlanError, UnsupportedError
from xdplab.labs.base import HOST, MITIGATED
from xdplab.studies import guests
from xdplab.studies.guests import driver, place_of
from xdplab.studies.places import Place, require_rights
from xdplab.studies.verifier.generated import PROGRAMS
from xdplab.studies.verifier.points import PROGRAM_FLAGS, Given

GLOBALS, TARGETS = "globals.txt", "targets.txt"
"""A run's tables of global variables and of attach targets."""
TOOLS = ("program flags", "global variables", "attach targets", "modules of guests")
"""The names among a run's tools of what the user gave."""

_INTEGER = re.compile(r"-?(0[xX][0-9a-fA-F]+|[0-9]+)")


@dataclass(frozen=True)
class AttachTarget:
    """One rule: programs of ``section`` in ``object`` (patterns) attach to ``function`` of ``program`` in ``path``."""

    object: str
    section: str
    path: str
    program: str
    function: str


def tables_of(given: Given, names: Collection[str]) -> dict[str, bytes]:
    """Return the run's tables of global variables and of attach targets, and each target beside them.

    A target's path is relative to the folder of its table. Raises PlanError for a line that is not a rule, for one that
    matches none of the objects' file ``names``, and for a target that cannot be read.
    """
    files: dict[str, bytes] = {}
    if given.variables:
        path = Path(given.variables)
        for where, parts in _rules(path, "--globals", "OBJECT-PATTERN VARIABLE INTEGER", _is_variable):
            _require_match(where, parts[0], names)
        files[GLOBALS] = path.read_bytes()
    if given.attached:
        files |= _targets(Path(given.attached), names)
    return files


def given_in(run: Path, given: Given) -> Given:
    """Return what the user gave, with the tables that the run's folder keeps."""
    variables, attached = given.variables and str(run / GLOBALS), given.attached and str(run / TARGETS)
    return replace(given, variables=variables, attached=attached)


def put_targets(path: Path, place: Place) -> str:
    """Return the path of a run's table of targets at the place; its targets are beside it there."""
    for _, target in _targets_of(path):
        place.put(path.parent / target.path)
    return place.put(path)


def given_words(given: Given, files: Mapping[str, bytes]) -> str | None:
    """Return what tells the points of this request from those of another with the same objects; null for nothing.

    ``files``: those of the run. A table is named by its content, as in the manifest.
    """
    parts = sorted(set(given.flags))
    parts += [f"types {_digest(Path(given.types).read_bytes())}"] if given.types else []
    parts += [f"globals {_digest(files[GLOBALS])}"] if given.variables else []
    parts += [f"targets {_digest(files[TARGETS])}"] if given.attached else []
    parts += [f"module {name}" for name in sorted(set(given.loaded))]
    return ", ".join(parts) or None


def given_tools(given: Given, run: Path) -> dict[str, str]:
    """Return what the user gave, by its names among the run's tools (`TOOLS`); ``run``: its folder, with its tables."""
    values = (
        ", ".join(given.flags),
        f"sha256 {_digest((run / GLOBALS).read_bytes())}" if given.variables else "",
        f"sha256 {_digest((run / TARGETS).read_bytes())}" if given.attached else "",
        ", ".join(given.loaded),
    )
    return {name: value for name, value in zip(TOOLS, values, strict=True) if value}


def _digest(table: bytes) -> str:
    """Return what tells one table from another: the beginning of its SHA-256."""
    return hashlib.sha256(table).hexdigest()[:12]


def _targets(path: Path, names: Collection[str]) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    lines = []
    for where, target in _targets_of(path):
        _require_match(where, target.object, names)
        target_path = path.parent / target.path
        try:
            content = target_path.read_bytes()
        except OSError as error:
            raise PlanError(f"{where}: {target_path}: {error.strerror}") from error
        stem = target_path.stem.replace(" ", "-")[:60]
        name = f"target-{stem}-{_digest(content)}.o"
        files[name] = content
        lines.append(" ".join(astuple(replace(target, path=name))) + "\n")
    return files | {TARGETS: "".join(lines).encode()}


def _targets_of(path: Path) -> Iterator[tuple[str, AttachTarget]]:
    form = "OBJECT-PATTERN SECTION-PATTERN TARGET-OBJECT PROGRAM FUNCTION"
    for where, parts in _rules(path, "--targets", form, lambda parts: len(parts) == 5):
        yield where, AttachTarget(*parts)


def _is_variable(parts: list[str]) -> bool:
    return len(parts) == 3 and _INTEGER.fullmatch(parts[2]) is not None


def _rules(path: Path, option: str, form: str, fits: Callable[[list[str]], bool]) -> Iterator[tuple[str, list[str]]]:
    """Yield the parts of each rule, and where it stands. Raises PlanError for a line that is not one."""
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        parts = line.split()
        if not parts or parts[0].startswith("#"):
            continue
        where = f"{option} {path}, line {number}"
        if not fits(parts):
            raise PlanError(f"{where}: not a rule: {line.strip()}", remedy=f"write {form}")
        yield where, parts


def _require_match(where: str, pattern: str, names: Collection[str]) -> None:
    if not any(fnmatchcase(name, pattern) for name in names):
        raise PlanError(
            f"{where}: no object matches {pattern}", remedy=f"objects have names such as {next(iter(names), 'none')}"
        )


NATIVE = "bpfverify"
_BPF_SETTING = "/proc/sys/kernel/unprivileged_bpf_disabled"
"""There with every kernel from 4.4 on that has bpf(2), which CONFIG_BPF_SYSCALL builds."""


@dataclass(frozen=True)
class LoaderPlace:
    """A place with the study's loader: ``command`` and its table of ``types`` are paths there.

    ``options``: those of bpfverify for all objects.
    """

    place: Place
    command: str
    types: str
    options: tuple[str, ...] = ()

    def verify(self, paths: Sequence[str], *options: str, deadline_s: float) -> bytes:
        """Return bpfverify's lines on objects, each with that deadline. Raises HostError if it did not end well."""
        fixed = [self.command, *self.options, "--types", self.types, "--deadline", str(int(deadline_s))]
        most_s = deadline_s * self.place.patience * len(paths) + 10
        done = self.place.host.run([*fixed, *options, *paths], deadline_s=most_s)
        if not done.stdout:
            raise HostError(f"{self.place.label}: bpfverify printed nothing about {', '.join(paths)}")
        return done.stdout


@contextmanager
def machine_of(kernel: str, types: Path, given: Given) -> Iterator[LoaderPlace]:
    """Give the machine that runs a kernel; a guest boots for it, and ends with the block. ``types``: its table of
    types, instead of the one ``given``.

    Raises UnsupportedError if a guest does not have a module that is to be loaded, or if this user may not load
    programs into this machine's kernel.
    """
    require_rights((kernel,), "--kernel 6.1")
    command = driver(NATIVE)
    with place_of(kernel if kernel == HOST else f"vm:{kernel}:count") as place:
        if kernel != HOST:
            # If it cannot be mounted, the charged peak is null with that reason.
            place.host.run(["mount", "-t", "cgroup2", "none", "/sys/fs/cgroup"], check=False)
            _load_modules(place, given.loaded)
        options = ["--program-flags", str(sum({PROGRAM_FLAGS[flag] for flag in given.flags}))] if given.flags else []
        options += ["--globals", place.put(Path(given.variables))] if given.variables else []
        options += ["--targets", put_targets(Path(given.attached), place)] if given.attached else []
        yield LoaderPlace(place, place.put(command, mode=0o755), place.put(types), tuple(options))


def _load_modules(place: Place, names: Iterable[str]) -> None:
    for name in names:
        done = place.host.run(["modprobe", name], check=False)
        if not done.ok:
            raise UnsupportedError(f"{place.label}: module {name} cannot be loaded: {done.error_text.strip()}")


def require_kernels(names: Iterable[str]) -> None:
    """Raise LabError for an invalid or unavailable kernel, before anything runs."""
    for name in names:
        if name == HOST:
            continue
        try:
            guests.require_kernel(name)
        except LabError as error:
            why = error.message.removeprefix(f"kernel {name.removesuffix(MITIGATED)}: ")
            raise LabError(f"--kernel {name}: {why}", remedy=error.remedy) from error


def own_kernel(path: Path, modules: Path | None) -> str:
    """Return the name of a kernel that the user built, taken into the cache; a guest of it has shown bpf(2).

    Raises LabError for one that does not boot, UnsupportedError for one without bpf(2).
    """
    name = guests.adopt_kernel(path, modules)
    with place_of(f"vm:{name}:count") as place:
        if not place.host.run(["test", "-e", _BPF_SETTING], check=False).ok:
            raise UnsupportedError(f"{path}: this kernel has no bpf(2)", remedy="build it with CONFIG_BPF_SYSCALL=y")
    return name


def own_kernels(names: Iterable[str]) -> dict[str, str]:
    """Return version string and SHA-256 of each user's own kernel among ``names``."""
    return {f"kernel {name}": version for name in names if (version := guests.own_kernel_version(name))}


def known_types() -> str:
    """Return the table of types that comes with the study."""
    return (PROGRAMS / "known.types").read_text()
