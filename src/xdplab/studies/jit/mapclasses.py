"""Bodies that call helpers: maps of every kind looked up and changed, ring buffers, and helpers without a map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdplab.programs.image import Image, Insn
from xdplab.programs.machine import LOOKUP_ELEM, Interpreter, Map
from xdplab.studies.jit import ebpf as e

MAP_ENTRIES = 4
"""Entries of every map but a ring buffer; the last one is looked up or changed."""

RING_BYTES = 1 << 24
"""A round of the study's largest program writes four million bytes."""

KEY_AT, VALUE_AT, PREFIX_AT = -16, -8, -20
"""Where the stack has the key, a value, and in front of the key the length of its prefix."""

_A, _SUM, _STACK = 0, 6, 10
_B = 7


@dataclass(frozen=True)
class MapUse:
    """A kind of map as jitbench names it. ``number``: its entries, or bytes. ``key_at``: where its key is."""

    kind: str
    number: int = MAP_ENTRIES
    key_at: int = KEY_AT


MAPS: Mapping[str, MapUse] = {
    **{kind: MapUse(kind) for kind in ("array", "percpu_array", "hash", "percpu_hash", "lru_hash")},
    "lpm_trie": MapUse("lpm_trie", key_at=PREFIX_AT),
    "ringbuf": MapUse("ringbuf", RING_BYTES),
}

UPDATE_ELEM, DELETE_ELEM, KTIME, PRANDOM, NUMA, JIFFIES = 2, 3, 5, 7, 42, 118
RING_OUTPUT, RING_RESERVE, RING_SUBMIT = 130, 131, 132
_NO_WAKEUP = 1
_UNMATCHED = 77
"""What a program returns if a ring buffer was full: no model returns it."""


def _key(at: int = KEY_AT) -> tuple[Insn, ...]:
    return (*e.map_handle(1), e.alu(e.MOV, 2, _STACK), e.alu_imm(e.ADD, 2, at))


def lookup(at: int = KEY_AT) -> tuple[Insn, ...]:
    """Look up a key that lies on the stack, and add its value."""
    return (
        *_key(at),
        e.helper(LOOKUP_ELEM),
        e.jump_imm(e.JEQ, _A, 0, 2),
        e.load(e.DOUBLE, _A, _A, 0),
        e.alu(e.ADD, _SUM, _A),
    )


_ADD_ERROR = e.alu(e.ADD, _SUM, _A)
_UPDATE = (
    *_key(),
    e.alu(e.MOV, 3, _STACK),
    e.alu_imm(e.ADD, 3, VALUE_AT),
    e.alu_imm(e.MOV, 4, 0),
    e.helper(UPDATE_ELEM),
    _ADD_ERROR,
)
_DELETE = (*_key(), e.helper(DELETE_ELEM), _ADD_ERROR)
_OUTPUT = (
    *e.map_handle(1),
    e.alu(e.MOV, 2, _STACK),
    e.alu_imm(e.ADD, 2, VALUE_AT),
    e.alu_imm(e.MOV, 3, 8),
    e.alu_imm(e.MOV, 4, _NO_WAKEUP),
    e.helper(RING_OUTPUT),
    _ADD_ERROR,
)
_RESERVE = (
    *e.map_handle(1),
    e.alu_imm(e.MOV, 2, 8),
    e.alu_imm(e.MOV, 3, 0),
    e.helper(RING_RESERVE),
    e.jump_imm(e.JNE, _A, 0, 2),
    e.alu_imm(e.MOV, _A, _UNMATCHED),
    e.leave(),
    e.store(e.DOUBLE, _A, 0, _B),
    e.alu(e.MOV, 1, _A),
    e.alu_imm(e.MOV, 2, _NO_WAKEUP),
    e.helper(RING_SUBMIT),
)
_PREFIX = (e.store_imm(e.WORD, _STACK, PREFIX_AT, 32),)
_LOOKED_UP = ("percpu_array", "hash", "percpu_hash", "lru_hash")
_UPDATED = ("array", "percpu_array", "hash", "percpu_hash", "lru_hash")

Body = tuple[Insn, ...]
BODIES: Sequence[tuple[str, str, str, Body, Body]] = (
    *((f"map lookup {kind}", "map lookup", kind, lookup(), ()) for kind in _LOOKED_UP),
    ("map lookup lpm_trie", "map lookup", "lpm_trie", lookup(PREFIX_AT), _PREFIX),
    *((f"map update {kind}", "map update", kind, _UPDATE, ()) for kind in _UPDATED),
    ("map update hash, deleted first", "map update", "hash", (*_DELETE, *_UPDATE), ()),
    ("ring buffer output", "ring buffer", "ringbuf", _OUTPUT, ()),
    ("ring buffer reserve, submit", "ring buffer", "ringbuf", _RESERVE, ()),
    ("helper ktime_get_ns", "helper", "", (e.helper(KTIME),), ()),
    ("helper get_prandom_u32", "helper", "", (e.helper(PRANDOM),), ()),
    ("helper get_numa_node_id", "helper", "", (e.helper(NUMA),), ()),
    ("helper jiffies64", "helper", "", (e.helper(JIFFIES),), ()),
)
"""Name, group, kind of the map (or none), the body, and what comes once before the first."""


def model(image: Image, use: MapUse | None) -> Interpreter:
    """Return the model of a program with such a map, filled as jitbench fills it."""
    values = b"".join((key + 1).to_bytes(8, "little") for key in range(MAP_ENTRIES))
    return _Model(image, {"map": Map(bytearray(values), 8)}, use)


class _Model(Interpreter):
    """Helpers whose result nobody can know give 0, which the program forgets; all others succeed."""

    def __init__(self, image: Image, maps: Mapping[str, Map], use: MapUse | None) -> None:
        super().__init__(image, dict(maps))
        self._beyond_prefix = KEY_AT - use.key_at if use else 0

    def call_helper(self, number: int, registers: list[int]) -> None:
        if number == LOOKUP_ELEM:
            key = self.load(registers[2] + self._beyond_prefix, 4)
            registers[0] = self._lookup(registers[1], key)
        elif number == RING_RESERVE:
            registers[0] = self._value_bases[registers[1]]
        elif number in _SUCCEED:
            registers[0] = 0
        else:
            super().call_helper(number, registers)
            return
        registers[1:6] = [0xDEAD << 48] * 5


_SUCCEED = {UPDATE_ELEM, DELETE_ELEM, KTIME, PRANDOM, NUMA, JIFFIES, RING_OUTPUT, RING_SUBMIT}
