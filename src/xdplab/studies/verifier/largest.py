"""The largest N of a family that a verifier still accepts: doubling until it does not, then halving what is between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

MOST_N = 1 << 16


@dataclass(frozen=True)
class Probe:
    """One N that was tried."""

    n: int
    accepted: bool


def search(accepts: Callable[[int], bool], start: int = 16) -> Iterator[Probe]:
    """Yield what is tried; the last accepted N below the first refused one is the answer (see `answer`).

    Acceptance is taken to fall with N, once; `answer` looks at every probe, so that an exception is seen.
    """
    low, high = 0, start
    while high <= MOST_N:
        probe = Probe(high, accepts(high))
        yield probe
        if not probe.accepted:
            break
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        probe = Probe(middle, accepts(middle))
        yield probe
        low, high = (middle, high) if probe.accepted else (low, middle)


def answer(probes: list[Probe]) -> int | None:
    """Return the largest accepted N, or None where none was refused (the limit was not reached) or none accepted."""
    accepted = [p.n for p in probes if p.accepted]
    refused = [p.n for p in probes if not p.accepted]
    return max(accepted) if accepted and refused and min(refused) == max(accepted) + 1 else None
