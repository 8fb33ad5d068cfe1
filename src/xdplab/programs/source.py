"""C text from the templates in xdp_progs: a BPF program, and its twin for user space.

And the contents of a working set before the first packet: seeded, the same in the kernel and in user space. Their
layouts are those of ``struct workload_state`` and of the tables in xdp_progs.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from xdplab.errors import ProgramError
from xdplab.lazy import lazily
from xdplab.programs.spec import BLOCK, OUT_PORT, SLOT_BYTES, WORD_BYTES, ProgramSpec
from xdplab.resources import shipped

with lazily():
    import jinja2
    import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Words = npt.NDArray[np.uint64]


USER_FLAGS = ("-O2", "-fPIC", "-shared")
"""Flags that compile the twin: ``cc`` with these, its source, ``-o workload.so``."""


def source(spec: ProgramSpec) -> str:
    """Return the BPF program's C text."""
    return _render("program.bpf.c.j2", spec)


def user_source(spec: ProgramSpec) -> str:
    """Return the C text of the same workload for user space; exports ``xdplab_workload`` and ``xdplab_state_bytes``.

    Raises ProgramError where it has no twin there.
    """
    if not spec.in_user_space:
        raise ProgramError(f"{spec.name} has no twin in user space", remedy="an array or a hash whose lookups hit has")
    in_one_piece = spec.frags and spec.kernel == "packet"
    return _render("user.c.j2", replace(spec, frags=False), in_one_piece=in_one_piece)


def kernel_source(spec: ProgramSpec) -> str:
    """Return the C text of the workload alone, as a kernel of microbench: BPF, a module or user space includes it."""
    return _render("kernel.h.j2", spec)


def hash_bits(entries: int) -> int:
    """Return log2 of the places in the user-space hash table: at least twice the entries."""
    return (2 * entries - 1).bit_length()


def _render(template: str, spec: ProgramSpec, **more: object) -> str:
    entries = spec.table_entries
    return (
        templates(shipped("xdp_progs"))
        .get_template(template)
        .render(
            spec.canonical() | {"entries": entries, "block": spec.block},
            workload=spec.kernel,
            workload_name=spec.workload,
            section=spec.section,
            out_port=OUT_PORT if spec.action == "redirect" else None,
            has_state=spec.has_state,
            hash_bits=hash_bits(entries) if entries else None,
            misses=spec.misses,
            group=GROUP,
            odd=ODD,
            name=spec.name.replace("-", "_"),
            summary=_summary(spec),
            **more,
        )
    )


def _summary(spec: ProgramSpec) -> str:
    end = "sent back" if spec.action == "tx" else "forwarded"
    if not spec.accesses:
        return f"The baseline: no access; MAC addresses swapped, frame {end}."
    where = f" in {spec.working_set_bytes} bytes" if spec.working_set_bytes else ""
    if spec.entries:
        where = f" in a map ({spec.map_type}) of {spec.entries}"
    if spec.misses:
        where += f", {spec.hit} % with an entry"
    plural = "es" if spec.accesses > 1 else ""
    return f"{spec.workload}, {spec.op}: {spec.accesses} access{plural} per packet{where}, then the frame is {end}."


@cache
def templates(folder: Path, kind: type[jinja2.Environment] | None = None) -> jinja2.Environment:
    """Return the environment of a folder's templates of C; ``kind``: a sandbox for those that may come from anyone."""
    return (kind or jinja2.Environment)(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # C, not HTML
    )


SEED = 2022
HEADER_BYTES = 64
"""The cursor, and what fills its cache line; the working set begins behind it."""


def map_contents(spec: ProgramSpec) -> dict[str, bytes]:
    """Return what fills the program's maps, by map, as xdpload's ``--init`` takes it."""
    if not spec.has_state:
        return {}
    if spec.kernel == "lookup":
        return {"table": _table(spec)}
    return {"working_set": _state(spec)}


def user_state(spec: ProgramSpec) -> bytes:
    """Return the initial state of the user-space twin: ``xdplab_state_bytes`` bytes, none where it has no state."""
    if not spec.has_state:
        return b""
    if spec.kernel != "lookup":
        return _state(spec)
    values = _words(spec)
    return bytes(HEADER_BYTES) + (_hash_table(values) if spec.map_type == "hash" else values.tobytes())


def random_cycle(slots: int) -> npt.NDArray[np.uint64]:
    """Return each slot's successor such that all slots are one cycle, in random order."""
    order = np.random.default_rng(SEED).permutation(slots).astype(np.uint64)
    following = np.empty(slots, np.uint64)
    following[order] = np.roll(order, -1)
    return following


def _words(spec: ProgramSpec) -> Words:
    count = spec.table_entries or (spec.working_set_bytes or 0) // WORD_BYTES
    return np.random.default_rng(SEED).integers(0, 1 << 64, count, np.uint64)


def _state(spec: ProgramSpec) -> bytes:
    if spec.kernel == "metadata":
        return bytes(HEADER_BYTES)
    if spec.kernel == "chase":
        slots = np.zeros(((spec.working_set_bytes or 0) // SLOT_BYTES, SLOT_BYTES // WORD_BYTES), np.uint64)
        slots[:, 0] = random_cycle(len(slots))
        return bytes(HEADER_BYTES) + slots.tobytes()
    beyond = (0 if spec.form == "loop" else BLOCK - 1) * WORD_BYTES  # BLOCK - 1 of the program's text
    return bytes(HEADER_BYTES) + _words(spec).tobytes() + bytes(beyond)


GROUP = 256
"""Entries of a map in the map of maps."""
ODD = 0x9E3779B1
"""Numbers times this one, in 24 or 32 bits, are all different, and far from their neighbours."""
PREFIXES = {"lpm_trie": (24, "<u4,>u4"), "lpm_trie_v6": (48, "<u4,>u2,>u4,V10")}
"""The bits of a prefix, and the layout of its key: a length and an address."""


def _table(spec: ProgramSpec) -> bytes:
    """Return keys and values of a lookup's map.

    The program looks up the numbers below the map's entries in turn; an entry that none of them shall find has a
    greater number.
    """
    at = np.arange(spec.table_entries, dtype=np.uint32)
    keys = np.where(at * np.uint64(spec.hit or 0) % 100 < (spec.hit or 0), at, at + spec.table_entries).astype("<u4")
    values = _words(spec).tobytes()
    if spec.map_type == "hash_of_maps":
        counts = np.bincount(at // GROUP).astype("<u4")
        groups = np.arange(len(counts), dtype="<u4")
        head = len(counts).to_bytes(8, "little") + groups.tobytes()
        return head + counts.tobytes() + keys.tobytes() + values
    return (_prefixes(keys, *PREFIXES[spec.map_type]) if spec.map_type in PREFIXES else keys.tobytes()) + values


def _prefixes(numbers: npt.NDArray[np.uint32], bits: int, layout: str) -> bytes:
    """Return the prefixes of such numbers: N * ODD in the 24 bits of an IPv4 one, or behind 2001 in an IPv6 one.

    They are sorted: a trie takes neighbours in half of the time.
    """
    prefixes = np.zeros(len(numbers), layout)
    prefixes["f0"] = bits
    spread = (numbers * np.uint64(ODD)).astype(np.uint32)
    if bits == 24:
        prefixes["f1"] = np.sort(spread << np.uint32(8))
    else:
        prefixes["f1"], prefixes["f2"] = 0x2001, np.sort(spread)
    return prefixes.tobytes()


def _hash_table(values: Words) -> bytes:
    bits = hash_bits(len(values))
    places = np.zeros(1 << bits, np.dtype([("key", "<u4"), ("used", "<u4"), ("value", "<u8")]))
    for key, value in enumerate(values):
        at = (key * 2654435769 & 0xFFFFFFFF) >> (32 - bits)
        while places[at]["used"]:
            at = (at + 1) % len(places)
        places[at] = (key, 1, value)
    return places.tobytes()
