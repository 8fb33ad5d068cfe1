"""Points of the neighbour study: one arm, a program in a mode or none, in one lab. A repetition measures every arm."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from xdplab.errors import UnsupportedError
from xdplab.labs import counts, require_name
from xdplab.lazy import lazy
from xdplab.programs.spec import UserProgram
from xdplab.studies.points import Gathered, StudyPoint, StudyRequest, option

programs = lazy("xdplab.programs.build")
cache = lazy("xdplab.programs.program")

NONE, PASS, TC_PASS, YOURS = "no program", "XDP_PASS", "pass", "yours"
OBJECT = "programs/yours.bpf.o"
"""Where a run keeps the user's program."""


class Arm(NamedTuple):
    """``mode`` is xdpload's; None: nothing is attached."""

    program: str
    mode: str | None

    @property
    def name(self) -> str:
        return self.program if self.mode is None else f"{self.program} {self.mode}"


ARMS = {
    arm.name: arm
    for arm in (
        Arm(NONE, None),
        *(Arm(PASS, mode) for mode in ("native", "generic")),
        Arm(TC_PASS, "tcx"),
        *(Arm(YOURS, mode) for mode in ("native", "generic")),
    )
}
"""The arms in the order of tables and figures; the others are compared with the first."""


@dataclass(frozen=True)
class NeighbourRequest(StudyRequest):
    """``seconds`` is how long TCP is sent at full rate in one trial; ``file`` is a C file or an object."""

    repetitions: int = option(10, "Each measures all arms, in random order.", bounds=(1, 1000))
    smallest: bool = option(False, "Five repetitions of a second: a minute.")
    places: tuple[str, ...] = option(("netns",), "The lab: netns by default.", "--place", metavar="LAB")
    file: str | None = option(None, "Your own program, C or an object.", file=True)
    seconds: int = option(3, "Of TCP at full rate in each trial.", bounds=(1, 60))

    def within(self, folder: Path) -> NeighbourRequest:
        return self if self.file is None else replace(self, file=str(folder / self.file))


def smallest(request: NeighbourRequest) -> NeighbourRequest:
    """Return the least request whose differences have an interval."""
    return replace(request, repetitions=5, seconds=1, smallest=True)


@dataclass(frozen=True)
class NeighbourPoint(StudyPoint):
    """``arm`` is a key of `ARMS`; ``sha256`` that of the user's program, None in the other arms."""

    place: str
    arm: str
    seconds: int
    sha256: str | None = None

    IF_SET = ("sha256",)

    @property
    def cost_s(self) -> float:
        return self.seconds + 2.5

    def __str__(self) -> str:
        return f"{self.arm}, {self.place}"


def gather(request: NeighbourRequest) -> Gathered[NeighbourPoint]:
    """Return every arm in every lab. Raises LabError for an invalid lab, UnsupportedError for one that counts,
    ProgramError for a file that is no program."""
    for place in request.places:
        require_name(place)
        if counts(place):
            raise UnsupportedError(f"--place {place}: its clock shows instructions, and TCP needs time")
    files: dict[str, bytes] = {}
    if request.file is not None:
        program = UserProgram(request.file, action="pass")
        files[OBJECT] = programs.build(program, cache.cache_directory()).object.read_bytes()
    digest = {YOURS: hashlib.sha256(files[OBJECT]).hexdigest() if files else None}
    arms = [arm for arm in ARMS.values() if files or arm.program != YOURS]
    points = [
        NeighbourPoint(place, arm.name, request.seconds, digest.get(arm.program))
        for place in request.places
        for arm in arms
    ]
    return Gathered(points, files)
