"""The number of accesses per packet: what is expected, and whether exactly that was counted."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xdplab.errors import ProgramError
from xdplab.programs.source import HEADER_BYTES, random_cycle
from xdplab.programs.spec import HINTS, SLOT_BYTES, WORD_BYTES, ProgramSpec

ETHERNET_BYTES = 14
XDP_TX, XDP_REDIRECT, TC_ACT_REDIRECT = 3, 4, 7
VERDICTS = {
    ("xdp", "tx"): ("XDP_TX", XDP_TX),
    ("xdp", "redirect"): ("XDP_REDIRECT", XDP_REDIRECT),
    ("tc", "tx"): ("TC_ACT_REDIRECT", TC_ACT_REDIRECT),
    ("tc", "redirect"): ("TC_ACT_REDIRECT", TC_ACT_REDIRECT),
}
"""What a generated program returns, by its hook and action."""
FRAME_LENGTHS = (60, 60, 1514, 61)
"""Lengths without FCS: the shortest, again to see where the walk continues, the longest, and one that no block
divides."""

SEVERAL_BUFFERS = 9212
"""And with several buffers the longest that a plan may ask for; the first one then has `FIRST_BUFFER` bytes."""
FIRST_BUFFER = 3520

Access = tuple[int, int, bool]
"""Offset, size in bytes, whether it is a store."""

# Loads and stores of one access, and calls of map_lookup_elem or of a kfunc in the kernel.
_PER_ACCESS = {
    ("array", "read"): (1, 0, 0),
    ("array", "write"): (0, 1, 0),
    ("packet", "read"): (1, 0, 0),
    ("packet", "write"): (1, 1, 0),
    ("chase", "read"): (1, 0, 0),
    ("chase", "write"): (1, 1, 0),
    ("lookup", "read"): (1, 0, 1),
    ("lookup", "write"): (0, 1, 1),
    **{(hint, "read"): (0, 0, 1) for hint in HINTS},
}


@dataclass(frozen=True)
class AccessCounts:
    """Loads and stores in the working set, and lookups, or kfuncs called; null if they cannot be told apart."""

    loads: int
    stores: int
    lookups: int | None


def expected(spec: ProgramSpec, hits: int | None = None) -> AccessCounts:
    """Return what one packet must do; ``hits`` of its lookups find an entry, by default all."""
    loads, stores, lookups = _PER_ACCESS[spec.workload, spec.op]
    reached = spec.accesses if hits is None else hits
    return AccessCounts(
        reached * loads, reached * stores, spec.accesses * lookups * (1 + (spec.map_type == "hash_of_maps"))
    )


def hits_by_packet(spec: ProgramSpec) -> Iterator[int]:
    """Yield how many lookups of each packet find an entry: those of the keys K with K * hit % 100 < hit.

    Blocks of keys follow one another, and the last one of the map ends with it.
    """
    hit, size = spec.hit or 0, spec.table_entries
    blocks = [spec.block] * (spec.accesses // spec.block) + [spec.accesses % spec.block]
    cursor = 0
    while True:
        hits = 0
        for count in filter(None, blocks):
            first = min(cursor, size - count)
            hits += sum(key * hit % 100 < hit for key in range(first, first + count))
            cursor = (cursor + count) * (cursor + count < size)
        yield hits


def frame_lengths(spec: ProgramSpec) -> tuple[int, ...]:
    """Return the lengths, without FCS, of the frames on which a program is proved."""
    return (*FRAME_LENGTHS, SEVERAL_BUFFERS) if spec.frags else FRAME_LENGTHS


def seen(accesses: Sequence[Access], lookups: int | None) -> AccessCounts:
    """Count loads and stores."""
    stores = sum(is_store for _, _, is_store in accesses)
    return AccessCounts(len(accesses) - stores, stores, lookups)


def require_width(spec: ProgramSpec, accesses: Sequence[Access], where: str) -> None:
    """Raise ProgramError unless every access is as wide as the workload says: two merged into one are one."""
    width = 1 if spec.workload == "packet" else WORD_BYTES
    wrong = {size for _, size, _ in accesses} - {width}
    if wrong:
        raise ProgramError(f"{where}: {spec.name} accesses {wrong.pop()} bytes at a time where {width} are promised")


def require(spec: ProgramSpec, counts: AccessCounts, where: str, hits: int | None = None) -> None:
    """Raise ProgramError unless these are exactly the accesses that the program promises."""
    wanted = expected(spec, hits)
    if counts.lookups is None:
        wanted = AccessCounts(wanted.loads, wanted.stores, None)
    if counts != wanted:
        raise ProgramError(f"{where}: {spec.name} promises {_as_text(wanted)} per packet and makes {_as_text(counts)}")


def _as_text(counts: AccessCounts) -> str:
    lookups = "" if counts.lookups is None else f", {counts.lookups} lookups"
    return f"{counts.loads} loads, {counts.stores} stores{lookups}"


def sample_frame(length: int) -> bytes:
    """Return a frame with two different MAC addresses and a payload in which every byte matters."""
    header = bytes.fromhex("0200000000020200000000010800")
    return header + random.Random(length).randbytes(length - len(header))


def require_reflected(spec: ProgramSpec, before: bytes, after: bytes, where: str) -> None:
    """Raise ProgramError unless the frame has changed only by its swapped MAC addresses."""
    if after != before[6:12] + before[:6] + before[12:]:
        raise ProgramError(
            f"{where}: {spec.name} changes more of the frame than its MAC addresses, or does not swap them"
        )


def in_frame(accesses: Sequence[Access]) -> list[Access]:
    """Keep the accesses behind the Ethernet header, in which the MAC swap works."""
    return [access for access in accesses if access[0] >= ETHERNET_BYTES]


def in_state(spec: ProgramSpec, accesses: Sequence[Access]) -> list[Access]:
    """Keep the accesses to the working set in a workload's state: behind the header, before the padding."""
    end = HEADER_BYTES + (spec.working_set_bytes or 0)
    return [access for access in accesses if HEADER_BYTES <= access[0] < end]


def require_cycle(spec: ProgramSpec, loads: Sequence[int], where: str) -> None:
    """Raise ProgramError unless ``loads`` (offsets in the state) follow the chase's links from slot 0 on.

    Each load's address is then what the load before it returned: they depend on each other.
    """
    following = random_cycle((spec.working_set_bytes or 0) // SLOT_BYTES)
    slot = 0
    for offset in loads:
        if offset != HEADER_BYTES + SLOT_BYTES * slot:
            raise ProgramError(f"{where}: {spec.name} leaves the cycle: slot {slot} was due")
        slot = int(following[slot])
