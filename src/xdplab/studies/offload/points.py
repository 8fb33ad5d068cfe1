"""Points of the offload study: one question, put to one guest's kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace

from xdplab.errors import PlanError
from xdplab.lazy import lazily
from xdplab.studies.guests import require_places
from xdplab.studies.points import Gathered, StudyPoint, StudyRequest, option

with lazily():
    from xdplab.studies.offload import questions

PLACES = ("vm:5.10", "vm:6.1", "vm:6.12", "vm:7.2")
SMALLEST_PLACES = ("vm:6.1",)


@dataclass(frozen=True)
class OffloadRequest(StudyRequest):
    """``places`` are labs in guests; nothing is repeated, because each answer is a word, not a time."""

    repetitions: int = 1
    smallest: bool = option(False, "One kernel, and one question of each kind: a minute.")
    places: tuple[str, ...] = option(PLACES, f"{', '.join(PLACES)} by default.", "--place", metavar="vm:KERNEL")


def smallest(request: OffloadRequest) -> OffloadRequest:
    """Return the request for one kernel, unless places were chosen, and one question of each kind."""
    places = SMALLEST_PLACES if request.places == PLACES else request.places
    return replace(request, places=places, smallest=True)


@dataclass(frozen=True)
class OffloadPoint(StudyPoint):
    """``question`` is a key of `QUESTIONS`."""

    place: str
    question: str

    @property
    def once(self) -> bool:
        return True

    def __str__(self) -> str:
        return f"{self.question}, {self.place}"


def gather(request: OffloadRequest) -> Gathered[OffloadPoint]:
    """Return every question for every place. Raises PlanError for a place that is not a guest."""
    require_places(request.places)
    for place in request.places:
        kernel_of(place)
    names = [question.name for question in questions.QUESTIONS.values() if question.smallest or not request.smallest]
    return Gathered([OffloadPoint(place, name) for place in request.places for name in names])


def kernel_of(place: str) -> str:
    """Return the kernel's name in a place such as ``vm:6.1`` or ``vm:6.1:count``. Raises PlanError."""
    kind, _, rest = place.partition(":")
    kernel = rest.partition(":")[0]
    if kind != "vm" or not kernel:
        raise PlanError(f"--place: {place} is not a guest: netdevsim is loaded into its kernel", remedy="write vm:6.1")
    return kernel
