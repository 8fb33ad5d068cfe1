"""The search: revisions are judged, one after the other, until one is left, or only some that nobody can judge.

Its folder holds what it was asked, each verdict as soon as there is one, and what was counted. A verdict is a file of
its own, written in one step, so a kill leaves each whole or absent. To continue is to search anew: what is judged
already answers at once.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from datetime import date
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from xdplab import trust
from xdplab.absent import Absent
from xdplab.errors import PlanError, ProgramError, ResultsError, UnsupportedError
from xdplab.run.disk import locked, write_whole
from xdplab.run.rundir import read_json
from xdplab.text import many

if TYPE_CHECKING:
    from xdplab.studies.cost.gate import CostDifference


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


Answer = Literal["good", "bad", "skip"]


@dataclass(frozen=True)
class Revision:
    """A commit or a kernel: ``key`` names it in files, ``title`` to a person."""

    key: str
    title: str


@dataclass(frozen=True)
class Judged:
    """What a revision is, in ``words`` why; ``value`` is what was measured, in instructions or as a ratio to good."""

    answer: Answer
    words: str
    value: float | None = None


class Candidate(NamedTuple):
    """What is measured of a revision: a program, in a kernel; and ``settings`` of the program, as JSON."""

    program: Path
    kernel: str
    settings: str


class Revisions(Protocol):
    """Commits or kernels between a good end and a bad one, and what is known of each."""

    good: Revision
    bad: Revision

    @property
    def total(self) -> int:
        """How many may be the first bad one before any is judged, the bad end included."""

    def choose(self) -> Revision | None:
        """Return the one to judge next; None if no judgement would tell more."""

    def mark(self, revision: Revision, answer: Answer) -> None: ...

    def suspects(self) -> Sequence[Revision]:
        """Return those that may be the first bad one; the last is bad."""

    def before(self) -> Revision:
        """Return the good one that is nearest to the suspects."""

    def candidate(self, revision: Revision) -> AbstractContextManager[Candidate]:
        """Give what is measured of a revision. Raises ProgramError where it has no program, or does not build."""

    def close(self) -> None:
        """Remove what was made to reach the revisions."""


def search(
    revisions: Revisions, judge: Callable[[Revision], Judged], show: Callable[[Revision, Judged], None]
) -> dict[str, Judged]:
    """Judge until no judgement would tell more; return all verdicts by the revision's key."""
    verdicts: dict[str, Judged] = {}
    while (revision := revisions.choose()) is not None:
        verdicts[revision.key] = judge(revision)
        show(revision, verdicts[revision.key])
        revisions.mark(revision, verdicts[revision.key].answer)
    return verdicts


MOST_LINES = 8
"""Changed lines, and changed functions, that are printed; `--json` has them all."""


@dataclass(frozen=True)
class Culprit:
    """The suspects, of which the last is bad, and the good revision ``before`` them. ``total``: how many there were.

    ``ends``: the verdicts of the good and the bad end; bad begins ``at`` so much. ``difference``: from before to the
    last suspect.
    """

    folder: Path
    what: str
    suspects: Sequence[Revision]
    before: Revision
    total: int
    ends: tuple[Judged, Judged]
    at: float
    verdicts: Mapping[str, Judged]
    difference: CostDifference | Absent

    @property
    def is_one(self) -> bool:
        return len(self.suspects) == 1

    @property
    def text(self) -> str:
        good, bad = self.ends
        skipped = sum(verdict.answer == "skip" for verdict in self.verdicts.values())
        effort = f"{many(len(self.verdicts), self.what)} of {self.total - 1} between the ends judged"
        effort += f", {skipped} of them skipped" if skipped else ""
        ends = f"good: {good.words}; bad: {bad.words}, and from {self.at:.3f} on"
        if self.is_one:
            return f"The first bad {self.what} is {self.suspects[0].title}.\n{ends}. {effort}."
        listed = "\n".join(f"  {one.title}" for one in self.suspects)
        why = "all but the last cannot be judged"
        return f"The first bad {self.what} is one of {len(self.suspects)}; {why}:\n{listed}\n{ends}. {effort}."

    def to_json(self) -> dict[str, Any]:
        good, bad = self.ends
        return {
            "folder": str(self.folder),
            "suspects": [asdict(one) for one in self.suspects],
            "before": asdict(self.before),
            "good": good.value,
            "bad": bad.value,
            "bad_from": self.at,
            "judged": [{"key": key, **asdict(verdict)} for key, verdict in self.verdicts.items()],
            "difference": None if isinstance(self.difference, Absent) else self.difference.to_json(),
            "not_counted": str(self.difference) if isinstance(self.difference, Absent) else None,
        }
