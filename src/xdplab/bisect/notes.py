"""The folder of a bisection: what it was asked, each verdict as soon as there is one, and what was counted.

A verdict is a file of its own, written in one step, so a kill leaves each whole or absent. To continue is to search
anew: what is judged already answers at once.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import date
from itertools import count
from pathlib import Path

from xdplab import trust
from xdplab.bisect.search import Judged, Revision
from xdplab.errors import PlanError, ProgramError, ResultsError, UnsupportedError
from xdplab.run.disk import locked, write_whole
from xdplab.run.rundir import read_json

_REQUEST, _JUDGED = "bisect.json", "judged"


@dataclass(frozen=True)
class BisectRequest:
    """What is asked. ``good`` and ``bad`` are hashes of commits of ``repo``, or the ends of ``kernels``.

    ``file``: the program, in the repository or where it lies. ``settings``: JSON, as a plan's ``program:`` has them.
    """

    good: str
    bad: str
    file: str
    repo: str | None
    build: str | None
    kernels: tuple[str, ...]
    mode: str
    frame_bytes: int
    flows: int
    settings: str
    step: float | None
    by: str
    lab: str | None

    def require_trust(self, source: trust.SourceFile) -> None:
        """Raise StrangersFileError if others may have written the file that names a build command."""
        if self.build is not None:
            source.require_trust(f"`{self.build}`")


class Notes:
    """A bisection on disk."""

    def __init__(self, path: Path, request: BisectRequest) -> None:
        self.path, self.request = path, request
        self.costs, self.clone = path / "costs", path / "clone"

    @classmethod
    def start(cls, parent: Path, name: str, request: BisectRequest) -> Notes:
        """Make the folder of a new bisection. Raises ResultsError."""
        for number in count(1):
            path = parent / f"{date.today().isoformat()}-{name}{f'-{number}' if number > 1 else ''}"
            try:
                path.mkdir(parents=True)
                break
            except FileExistsError:
                continue
        write_whole(path / _REQUEST, (json.dumps(asdict(request), indent=1) + "\n").encode(), wait=True)
        return cls(path, request)

    @classmethod
    def open(cls, path: Path) -> Notes:
        """Open a folder to continue it. Raises ResultsError, StrangersFileError for a build command of others."""
        if not (path / _REQUEST).is_file():
            raise ResultsError(f"{path} is no folder of a bisection", remedy=f"it has a file {_REQUEST}")

        def request_of(facts: dict[str, object]) -> BisectRequest:
            return BisectRequest(**{**facts, "kernels": tuple(facts["kernels"])})  # type: ignore[arg-type]

        request = read_json(path / _REQUEST, request_of)
        request.require_trust(trust.read_source(path / _REQUEST))
        return cls(path, request)

    @contextmanager
    def writer(self) -> Iterator[None]:
        """Be the only one that works in it. Raises ResultsError. What is refused before anything is judged leaves no
        folder."""
        with locked(self.path) as alone:
            if not alone:
                raise ResultsError(f"{self.path} is in use by another process")
            try:
                yield
            except (PlanError, ProgramError, UnsupportedError):
                if not (self.path / _JUDGED).exists():
                    shutil.rmtree(self.path, ignore_errors=True)
                raise

    def verdict(self, revision: Revision) -> Judged | None:
        path = self._of(revision)
        return read_json(path, lambda facts: Judged(**facts)) if path.is_file() else None

    def keep(self, revision: Revision, verdict: Judged) -> None:
        write_whole(self._of(revision), (json.dumps(asdict(verdict)) + "\n").encode(), wait=True)

    def _of(self, revision: Revision) -> Path:
        return self.path / _JUDGED / f"{revision.key}.json"


def require_name(name: str) -> None:
    """Raise PlanError for what cannot name a folder."""
    if "/" in name or name.startswith("."):
        raise PlanError(f"{name!r} cannot name a folder", remedy="letters, digits, . _ -")
