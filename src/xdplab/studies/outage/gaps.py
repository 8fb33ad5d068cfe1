"""What the runs of frames at the listener say about a change: what was lost, came bare, or was held up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from xdplab.errors import HostError
from xdplab.studies.outage.points import BARE, Change


class FrameRun(NamedTuple):
    """Frames whose numbers follow each other, with one mark, as `listen.py` prints them."""

    first: int
    last: int
    mark: int
    held_ns: int


@dataclass(frozen=True)
class Gaps:
    """``lost`` numbers are missing between the first and the last frame that came, ``longest`` of them in one run.

    ``bare`` frames came between the programs. ``held_ns`` is the most that a frame was later on its way than the frame
    before it.
    """

    came: int
    lost: int
    longest: int
    bare: int
    held_ns: int


def gaps_of(runs: Sequence[FrameRun], change: Change) -> Gaps:
    """Return what was lost. Raises HostError unless the change lies within these frames."""
    if not runs:
        raise HostError("no test frame reached the DUT's stack", remedy="`xdplab doctor` tests the lab")
    if (runs[0].mark, runs[-1].mark) != change:
        raise HostError(
            f"the first frame has mark {runs[0].mark}, the last {runs[-1].mark}, where {change.before} and "
            f"{change.after} are due: the change is not within the burst",
            remedy="a longer --window-s",
        )
    holes = _holes(runs)
    marked = [index for index, run in enumerate(runs) if run.mark != BARE]
    between = runs[marked[0] : marked[-1]] if marked else []
    return Gaps(
        came=sum(map(_size, runs)),
        lost=sum(holes),
        longest=max(holes, default=0),
        bare=sum(_size(run) for run in between if run.mark == BARE),
        held_ns=max(run.held_ns for run in runs),
    )


def _holes(runs: Sequence[FrameRun]) -> list[int]:
    """Return the sizes of the runs of numbers that did not come; a frame that was overtaken, or came twice, is none."""
    holes, last = [], min(run.first for run in runs) - 1
    for run in sorted(runs):
        if run.first > last + 1:
            holes.append(run.first - last - 1)
        last = max(last, run.last)
    return holes


def _size(run: FrameRun) -> int:
    return run.last - run.first + 1
