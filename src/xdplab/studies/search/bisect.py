"""The largest N at which throughput still reaches a share of that without accesses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

MOST_ACCESSES = 1 << 17
WIDTH = 0.05


@dataclass(frozen=True)
class Bisected:
    """``enough`` accesses still reach the share, ``too_many`` do not; null if there was no such N.

    ``measured`` holds (N, frames per second) in the order of trying, N = 0 first.
    """

    share: float
    enough: int
    too_many: int | None
    measured: tuple[tuple[int, float], ...]


def largest_accesses(
    throughput: Callable[[int], float], share: float, *, most: int = MOST_ACCESSES, width: float = WIDTH
) -> Bisected:
    """Find N within ``width`` of itself: doubled until the share is lost, then halved between the two.

    ``throughput(N)`` returns frames per second; it is taken to fall with N, which the caller's findings check.
    """
    measured = [(0, throughput(0))]

    def reaches(n: int) -> bool:
        measured.append((n, throughput(n)))
        return measured[-1][1] >= share * measured[0][1]

    most_kept, step = 0, 1
    while step <= most and reaches(step):
        most_kept, step = step, step * 2
    if step > most:
        return Bisected(share, most_kept, None, tuple(measured))
    too_many = step
    while too_many - most_kept > max(1, width * too_many):
        middle = (most_kept + too_many) // 2
        most_kept, too_many = (middle, too_many) if reaches(middle) else (most_kept, middle)
    return Bisected(share, most_kept, too_many, tuple(measured))
