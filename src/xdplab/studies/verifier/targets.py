"""The table of what programs attach to that attach to a BPF program: as given, in a run, and at a place."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from xdplab.errors import PlanError
from xdplab.studies.places import Place

TARGETS = "targets.txt"
_FIELDS = "OBJECT-PATTERN SECTION-PATTERN TARGET-OBJECT PROGRAM FUNCTION"


@dataclass(frozen=True)
class AttachTarget:
    """One line: programs of ``section`` in ``object`` (patterns) attach to ``function`` of ``program`` in ``path``."""

    object: str
    section: str
    path: str
    program: str
    function: str


def read(path: Path) -> Iterator[AttachTarget]:
    """Yield the table's lines. Raises PlanError for one that is none."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        if len(fields) != 5:
            raise PlanError(f"--targets {path}, line {number}: a line is {_FIELDS}")
        yield AttachTarget(*fields)


def gathered(path: Path) -> dict[str, bytes]:
    """Return the files of a run: the table, which names the targets relative to it, and each target.

    A target's path in ``path`` is relative to its folder. Raises PlanError for a target that cannot be read.
    """
    files: dict[str, bytes] = {}
    lines = []
    for target in read(path):
        found = path.parent / target.path
        try:
            content = found.read_bytes()
        except OSError as error:
            raise PlanError(f"--targets {path}: {found}: {error.strerror}") from error
        name = f"targets/{found.stem.replace(' ', '-')}-{hashlib.sha256(content).hexdigest()[:12]}.o"
        files[name] = content
        lines.append(_line(replace(target, path=name)))
    return files | {TARGETS: "".join(lines).encode()}


def put(path: Path, place: Place, folder: Path) -> str:
    """Return the path of the table at the place, with the targets there; ``folder`` keeps it until then."""
    there = [replace(target, path=place.put(path.parent / target.path)) for target in read(path)]
    table = folder / TARGETS
    table.write_text("".join(map(_line, there)))
    return place.put(table)


def _line(target: AttachTarget) -> str:
    return " ".join(astuple(target)) + "\n"
