"""The search: revisions are judged, one after the other, until one is left, or only some that nobody can judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from xdplab.absent import Absent
from xdplab.text import many

if TYPE_CHECKING:
    from xdplab.studies.cost.gate import CostDifference

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
