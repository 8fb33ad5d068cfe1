"""The paths of a program that differs from packet to packet: the share of packets that take so many instructions."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

Shares = Mapping[int, Fraction]
"""Of all packets, by the instructions of the program with what it calls."""

_MOST = 4


def shares_of(took: Mapping[int, int]) -> Shares:
    """Return the shares of runs, counted by their instructions, the largest first."""
    total = sum(took.values())
    return {count: Fraction(times, total) for count, times in sorted(took.items(), key=lambda one: (-one[1], one[0]))}


def shares_text(shares: Shares) -> str:
    """Return the largest shares in words, and the range of the others."""
    first = [*shares.items()][:_MOST]
    parts = [f"{100 * float(share):.3g} % of packets {count} instructions" for count, share in first[:1]]
    parts += [f"{100 * float(share):.3g} % {count}" for count, share in first[1:]]
    if rest := [*shares][_MOST:]:
        share = 100 * float(sum(shares[count] for count in rest))
        parts.append(f"{share:.3g} % {min(rest)} to {max(rest)}, {len(rest)} ways")
    return ", ".join(parts)
