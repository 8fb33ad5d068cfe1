"""Kernels in their order, and one program: which of them is the first in which a packet costs otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from xdplab.bisect.search import Answer, Candidate, Revision
from xdplab.errors import PlanError
from xdplab.labs.base import ARCHITECTURE_MARK
from xdplab.studies.guests import counting_kernel, kernel_release
from xdplab.text import natural


def in_order(good: str, bad: str, between: Sequence[str], tested: Sequence[str]) -> tuple[str, ...]:
    """Return the kernels from good to bad: with those ``between``, in the order given, or else with the ``tested`` ones
    whose versions lie between. Raises PlanError for a kernel that is named twice, LabError for one that is none."""
    version, _, architecture = good.partition(ARCHITECTURE_MARK)
    if not between:
        last = bad.partition(ARCHITECTURE_MARK)[0]
        mark = f"{ARCHITECTURE_MARK}{architecture}" if architecture else ""
        inside = [one for one in tested if natural(version) < natural(one) < natural(last)]
        between = [f"{one}{mark}" for one in sorted(inside, key=natural)]
    names = tuple(map(counting_kernel, (good, *between, bad)))
    if len(set(names)) != len(names):
        raise PlanError(f"a kernel is named twice: {', '.join(names)}", remedy="--good OLD --bad NEW, each once")
    return names


def revision(name: str) -> Revision:
    return Revision(name, f"Linux {kernel_release(name)}")


class Kernels:
    """Kernels of which the first is good and the last bad."""

    def __init__(self, revisions: Sequence[Revision], file: Path) -> None:
        self._all, self._file = list(revisions), file
        self._good, self._bad = 0, len(revisions) - 1
        self._skipped: set[str] = set()
        self.good, self.bad, self.total = self._all[0], self._all[-1], self._bad

    def choose(self) -> Revision | None:
        """Return the one nearest to the middle."""
        left = [n for n in range(self._good + 1, self._bad) if self._all[n].key not in self._skipped]
        middle = (self._good + self._bad) / 2
        return self._all[min(left, key=lambda n: abs(n - middle))] if left else None

    def mark(self, revision: Revision, answer: Answer) -> None:
        number = self._all.index(revision)
        if answer == "good":
            self._good = number
        elif answer == "bad":
            self._bad = number
        else:
            self._skipped.add(revision.key)

    def suspects(self) -> list[Revision]:
        return self._all[self._good + 1 : self._bad + 1]

    def before(self) -> Revision:
        return self._all[self._good]

    @contextmanager
    def candidate(self, revision: Revision) -> Iterator[Candidate]:
        yield Candidate(self._file, revision.key)

    def close(self) -> None:
        """Nothing was made."""
