"""Differences of cumulative counters, and their evenness."""

from __future__ import annotations

from xdplab.absent import Absent


def difference(before: int, after: int) -> int:
    """Return the increase of a cumulative counter. Raises Absent if it went back: it wrapped or was reset."""
    if after < before:
        raise Absent(f"the counter went back from {before} to {after}: it wrapped or was reset")
    return after - before


def jain_index(counts: tuple[int, ...]) -> float:
    """Return Jain's fairness index (sum x)^2 / (n sum x^2): 1 is even, 1/n is all on one. Raises Absent on no count.

    R. Jain, D. Chiu, W. Hawe: A Quantitative Measure of Fairness and Discrimination for Resource Allocation in
    Shared Computer Systems, DEC-TR-301, 1984.
    """
    squares = sum(count * count for count in counts)
    if squares == 0:
        raise Absent("no packet on any queue")
    return float(sum(counts) ** 2 / (len(counts) * squares))
