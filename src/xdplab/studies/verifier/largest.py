"""The largest N of a family that a verifier still accepts.

Loads near the limit cost most (a second here, minutes in a guest that counts), so three small ones predict it: their
processed instructions give a parabola. From there, doubling steps and then bisection find it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

MOST_N = 1 << 16
FIRST_N = (8, 16, 32)


@dataclass(frozen=True)
class SizeTried:
    """One N that was tried; ``processed`` instructions, of ``limit`` (both None if the kernel did not say)."""

    n: int
    accepted: bool
    processed: int | None = None
    limit: int | None = None


Load = Callable[[int], SizeTried]


def search(load: Load) -> Iterator[SizeTried]:
    """Yield the probes; the last accepted N below the first refused one is the answer (see `answer`).

    The search assumes that acceptance ends at one N; `answer` checks every probe, so it notices exceptions.
    """
    low, high, small = 0, MOST_N + 1, []
    for n in FIRST_N:
        small.append(load(n))
        yield small[-1]
        if not small[-1].accepted:
            high = n
            break
        low = n
    if high > MOST_N:
        for probe in _close_in(load, _predict(small), low):
            yield probe
            low, high = (max(low, probe.n), high) if probe.accepted else (low, min(high, probe.n))
    while high <= MOST_N and high - low > 1:
        probe = load((low + high) // 2)
        yield probe
        low, high = (probe.n, high) if probe.accepted else (low, probe.n)


def _close_in(load: Load, guess: int, least: int) -> Iterator[SizeTried]:
    """Yield probes from the guess on, away from it in doubling steps, until the verdict changes."""
    first = probe = load(guess)
    yield first
    step = 1 if first.accepted else -1
    while probe.accepted == first.accepted and least < probe.n + step <= MOST_N:
        probe = load(probe.n + step)
        yield probe
        step *= 2


def _predict(small: list[SizeTried]) -> int:
    """Return the N at which the parabola through the processed instructions reaches the limit; None if it is far
    away."""
    counts, limit = [p.processed for p in small if p.processed is not None], small[-1].limit
    nearest, farthest = small[-1].n + 1, 16 * small[-1].n
    if len(counts) < len(FIRST_N) or limit is None:
        return nearest
    roots = np.roots(np.polyfit(FIRST_N, counts, 2) - [0, 0, limit])
    ahead = [root.real for root in roots if abs(root.imag) < 1 and root.real > 0]
    return max(nearest, min(int(min(ahead, default=nearest)), farthest))


def answer(probes: list[SizeTried]) -> int | None:
    """Return the largest accepted N, or None if none was refused (the limit was not reached) or none accepted."""
    accepted = [p.n for p in probes if p.accepted]
    refused = [p.n for p in probes if not p.accepted]
    return max(accepted) if accepted and refused and min(refused) == max(accepted) + 1 else None
