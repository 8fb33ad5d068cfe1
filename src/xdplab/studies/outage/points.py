"""Points of the outage study: one change of an XDP program, from one mode, at one lab's DUT."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from xdplab.errors import PlanError
from xdplab.labs import require_name
from xdplab.studies.points import Gathered, StudyPoint, StudyRequest, option

PLACES = ("netns", "vm:6.12:tap", "vm:6.12:vmxnet3")
SMALLEST_PLACES = ("netns",)
MODES = ("native", "generic")
OTHER_MODE = dict(zip(MODES, reversed(MODES), strict=True))

BARE, FIRST, SECOND = 0, 1, 2
"""The marks of a frame: no program has had it, the program before the change, the one after it."""


class Change(NamedTuple):
    """The marks of frames before and after a change."""

    before: int
    after: int


CHANGES = {
    "control": Change(FIRST, FIRST),
    "attach": Change(BARE, FIRST),
    "replace": Change(FIRST, SECOND),
    "detach": Change(FIRST, BARE),
    "switch": Change(FIRST, SECOND),
}
"""``control``: nothing is done; ``replace``: the link is updated; ``switch`` (of mode): one program is
detached, and another attached in the other mode."""

MOST_FRAMES = 500_000
"""Of a burst: the listener keeps each."""


@dataclass(frozen=True)
class OutageRequest(StudyRequest):
    """``places`` are labs; ``rate_pps`` is the pace of the frames, ``window_s`` how long they come, with the change in
    the middle."""

    repetitions: int = option(10, "Of each change.", bounds=(1, 1000))
    smallest: bool = option(False, "The lab of namespaces, three repetitions: a minute and a half.")
    places: tuple[str, ...] = option(PLACES, f"A lab; {', '.join(PLACES)} by default.", "--place", metavar="LAB")
    rate_pps: int = option(10_000, "Frames per second.", bounds=(100, 1_000_000))
    window_s: float = option(1.5, "How long frames come.", bounds=(0.5, 60.0))


def smallest(request: OutageRequest) -> OutageRequest:
    """Return the request for namespaces alone, unless places were chosen, and three repetitions."""
    places = SMALLEST_PLACES if request.places == PLACES else request.places
    few = min(request.repetitions, 3)
    return replace(request, places=places, repetitions=few, window_s=min(request.window_s, 1.0), smallest=True)


@dataclass(frozen=True)
class OutagePoint(StudyPoint):
    """``mode`` is that of the program before the change, of ``attach`` the one after it; ``event`` one of `CHANGES`."""

    place: str
    mode: str
    event: str
    rate_pps: int
    window_s: float

    @property
    def cost_s(self) -> float:
        return self.window_s + 1.0

    def __str__(self) -> str:
        return f"{self.event}, {self.mode}, {self.place}"


def gather(request: OutageRequest) -> Gathered[OutagePoint]:
    """Return every change in both modes at every place. Raises PlanError, and LabError for what is no lab."""
    for place in request.places:
        require_name(place)
    if request.rate_pps * request.window_s > MOST_FRAMES:
        raise PlanError(
            f"--rate-pps {request.rate_pps}: a burst of {request.window_s:g} s has more than {MOST_FRAMES} frames",
            remedy="a lower rate, or a shorter --window-s",
        )
    return Gathered(
        [
            OutagePoint(place, mode, event, request.rate_pps, request.window_s)
            for place in request.places
            for mode in MODES
            for event in CHANGES
        ]
    )
