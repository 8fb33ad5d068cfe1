"""The table of the BPF programs to which programs attach (``--targets``): as given, in a run, and at a place."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import astuple, dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from xdplab.errors import PlanError
from xdplab.studies.places import Place

TARGETS = "targets.txt"
TARGETS_TOOL = "attach targets"
"""Their name among the tools of a run."""
_FORM = "OBJECT-PATTERN SECTION-PATTERN TARGET-OBJECT PROGRAM FUNCTION"


@dataclass(frozen=True)
class AttachTarget:
    """One rule: programs of ``section`` in ``object`` (patterns) attach to ``function`` of ``program`` in ``path``."""

    object: str
    section: str
    path: str
    program: str
    function: str


def gathered(path: Path, names: Collection[str]) -> dict[str, bytes]:
    """Return the files of a run: the table, and each target beside it.

    A target's path in ``path`` is relative to its folder. Raises PlanError for a line that is not a rule, for one that
    matches none of the objects' file ``names``, and for a target that cannot be read.
    """
    files: dict[str, bytes] = {}
    lines = []
    for number, target in _read(path):
        where = f"--targets {path}, line {number}"
        if not any(fnmatchcase(name, target.object) for name in names):
            raise PlanError(
                f"{where}: no object matches {target.object}",
                remedy=f"objects have names such as {next(iter(names), 'none')}",
            )
        target_path = path.parent / target.path
        try:
            content = target_path.read_bytes()
        except OSError as error:
            raise PlanError(f"{where}: {target_path}: {error.strerror}") from error
        stem = target_path.stem.replace(" ", "-")[:60]
        name = f"target-{stem}-{hashlib.sha256(content).hexdigest()[:12]}.o"
        files[name] = content
        lines.append(" ".join(astuple(replace(target, path=name))) + "\n")
    return files | {TARGETS: "".join(lines).encode()}


def put(path: Path, place: Place) -> str:
    """Return the path of a run's table at the place; its targets are beside it there."""
    for _, target in _read(path):
        place.put(path.parent / target.path)
    return place.put(path)


def _read(path: Path) -> Iterator[tuple[int, AttachTarget]]:
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        parts = line.split()
        if not parts or parts[0].startswith("#"):
            continue
        if len(parts) != 5:
            raise PlanError(f"--targets {path}, line {number}: not a rule: {line.strip()}", remedy=f"write {_FORM}")
        yield number, AttachTarget(*parts)
