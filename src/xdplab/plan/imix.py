"""Frames of several sizes in one trial (IMIX): how many of each size a cycle has, and in which order they are sent.

All sizes are bytes of L2 with the FCS, as everywhere. RFC 6985 calls such an order the IMIX genome.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

Imix = tuple[tuple[int, int], ...]
"""(size, frames of this size in a cycle), smallest size first."""

SIMPLE: Imix = ((64, 7), (594, 4), (1518, 1))
"""The simple IMIX of the field: 7, 4 and 1 IPv4 packets of 40, 576 and 1500 bytes, here in Ethernet frames."""

MOST_FRAMES = 64
"""How many frames a cycle has at most (native/common/frame_sizes.h)."""


def imix_of(given: str | Mapping[int, int]) -> Imix | str:
    """Return a plan's value in canonical form: equal mixes are equal; ``none`` stays."""
    if isinstance(given, str):
        return SIMPLE if given == "simple" else given
    divisor = gcd(*given.values())
    return tuple((size, frames // divisor) for size, frames in sorted(given.items()))


def require_mix(given: Mapping[int, int]) -> Mapping[int, int]:
    """Raise ValueError if there is one size only, or if the cycle is longer than generators can hold."""
    if len(given) < 2:
        raise ValueError("a mix has two sizes at least: one size is `points: {frame_bytes: …}`")
    frames = sum(given.values()) // gcd(*given.values())
    if frames > MOST_FRAMES:
        raise ValueError(f"{frames} frames in a cycle; at most {MOST_FRAMES} are possible")
    return given


def words_of(imix: Imix | str) -> str:
    """Return the mix as a column has it: ``none``, ``simple``, or ``128:3 1518:1``."""
    if isinstance(imix, str):
        return imix
    return "simple" if imix == SIMPLE else " ".join(f"{size}:{frames}" for size, frames in imix)


def cycle_of(imix: Imix) -> tuple[int, ...]:
    """Return the sizes of one cycle in the order in which they are sent: each is spread evenly over the cycle.

    The k-th of n frames of a size stands at (k + 1/2) / n of the cycle, the smaller size first where two meet.
    """
    places = [((2 * k + 1) / (2 * frames), size) for size, frames in imix for k in range(frames)]
    return tuple(size for _, size in sorted(places))


def mean_bytes(imix: Imix) -> float:
    """Return the mean size of a whole cycle's frames."""
    return sum(size * frames for size, frames in imix) / sum(frames for _, frames in imix)
