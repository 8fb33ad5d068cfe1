"""The search: revisions are judged, one after the other, until one is left, or only some that nobody can judge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

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
    """What is measured of a revision: a program, in a kernel."""

    program: Path
    kernel: str


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
