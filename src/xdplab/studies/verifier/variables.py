"""The table of global variables (``--globals``), checked before a run begins: the loader on each kernel reads it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from xdplab.errors import PlanError

VARIABLES_TOOL = "global variables"
"""Their name among the tools of a run."""

_INTEGER = re.compile(r"-?(0[xX][0-9a-fA-F]+|[0-9]+)")


def require_matches(path: Path, names: Iterable[str]) -> None:
    """Raise PlanError for a line that is not a rule, and for one that no object's file name of the run matches."""
    object_names = list(names)
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        parts = line.split()
        if not parts or parts[0].startswith("#"):
            continue
        if len(parts) != 3 or not _INTEGER.fullmatch(parts[2]):
            raise PlanError(
                f"--globals {path}, line {number}: not a rule: {line.strip()}",
                remedy="write OBJECT-PATTERN VARIABLE INTEGER",
            )
        if not any(fnmatchcase(name, parts[0]) for name in object_names):
            raise PlanError(
                f"--globals {path}, line {number}: no object matches {parts[0]}",
                remedy=f"objects have names such as {object_names[0] if object_names else 'none'}",
            )


def digest(table: bytes) -> str:
    """Return what tells one table from another: the beginning of its SHA-256."""
    return hashlib.sha256(table).hexdigest()[:12]
