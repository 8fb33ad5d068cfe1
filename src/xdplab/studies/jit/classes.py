"""Programs of one instruction class: the same body K times, so that two values of K give the cost of one body.

The operands come from the packet, because the verifier computes known values itself and removes known branches. The
bodies that call helpers come first: maps of every kind looked up and changed, ring buffers, helpers without a map.

eBPF instructions by function: the few forms that the class programs use.

Encoding: Documentation/bpf/standardization/instruction-set.rst of the Linux kernel (RFC 9669).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from xdplab.programs.image import Image, Insn, Reference
from xdplab.programs.machine import LOOKUP_ELEM, SMP_PROCESSOR_ID, Interpreter, Map

ADD, SUB, MUL, DIV, OR, AND, LSH, RSH, NEG, MOD, XOR, MOV, ARSH = (number << 4 for number in range(13))
JA, JEQ, JGT, JGE, JSET, JNE, JSGT = (number << 4 for number in range(7))
JLE = 0xB0
WORD, HALF, BYTE, DOUBLE = 0x00, 0x08, 0x10, 0x18
FETCH, XCHG, CMPXCHG = 0x01, 0xE1, 0xF1
"""Atomic operations: `ADD` may have `FETCH` beside it, the other two have it."""

_IMM, _REG = 0x00, 0x08
_LDX, _ST, _STX, _ALU32, _JMP, _JMP32, _ALU64 = 1, 2, 3, 4, 5, 6, 7
_MEM, _ATOMIC, _END, _CALL, _EXIT = 0x60, 0xC0, 0xD0, 0x80, 0x90
_MAP, _SUBPROGRAM = 1, 1
_ALU = {64: _ALU64, 32: _ALU32}
_JUMP = {64: _JMP, 32: _JMP32}


def encode(insns: Iterable[Insn]) -> bytes:
    """Return the bytes the kernel takes, eight an instruction."""
    return b"".join(struct.pack("<BBhi", i.code, i.src << 4 | i.dst, i.off, i.imm) for i in insns)


def alu(operation: int, dst: int, src: int, bits: int = 64) -> Insn:
    return Insn(operation | _REG | _ALU[bits], dst, src, 0, 0)


def alu_imm(operation: int, dst: int, imm: int, bits: int = 64) -> Insn:
    return Insn(operation | _IMM | _ALU[bits], dst, 0, 0, imm)


def swap(dst: int, bits: int, *, big: bool) -> Insn:
    """``dst`` to big endian, or (which only cuts it on a little-endian machine) to little endian."""
    return Insn(_END | (_REG if big else _IMM) | _ALU32, dst, 0, 0, bits)


def load(size: int, dst: int, src: int, off: int) -> Insn:
    return Insn(_MEM | size | _LDX, dst, src, off, 0)


def store(size: int, dst: int, off: int, src: int) -> Insn:
    return Insn(_MEM | size | _STX, dst, src, off, 0)


def store_imm(size: int, dst: int, off: int, imm: int) -> Insn:
    return Insn(_MEM | size | _ST, dst, 0, off, imm)


def atomic(operation: int, dst: int, off: int, src: int, size: int = DOUBLE) -> Insn:
    return Insn(_ATOMIC | size | _STX, dst, src, off, operation)


def jump(condition: int, dst: int, src: int, off: int, bits: int = 64) -> Insn:
    return Insn(condition | _REG | _JUMP[bits], dst, src, off, 0)


def jump_imm(condition: int, dst: int, imm: int, off: int, bits: int = 64) -> Insn:
    return Insn(condition | _IMM | _JUMP[bits], dst, 0, off, imm)


def always(off: int) -> Insn:
    return Insn(JA | _JMP, 0, 0, off, 0)


def helper(number: int) -> Insn:
    return Insn(_CALL | _JMP, 0, 0, 0, number)


def call(distance: int) -> Insn:
    """Call the subprogram ``distance`` instructions behind the next one."""
    return Insn(_CALL | _JMP, 0, _SUBPROGRAM, 0, distance)


def leave() -> Insn:
    return Insn(_EXIT | _JMP, 0, 0, 0, 0)


def imm64(dst: int, value: int) -> tuple[Insn, Insn]:
    return Insn(DOUBLE, dst, 0, 0, value & 0x7FFFFFFF), Insn(0, 0, 0, 0, value >> 32 & 0x7FFFFFFF)


def map_handle(dst: int) -> tuple[Insn, Insn]:
    """The program's one map; the loader fills in the descriptor."""
    return Insn(DOUBLE, dst, _MAP, 0, 0), Insn(0, 0, 0, 0, 0)


MAP_ENTRIES = 4
"""Entries of every map but a ring buffer; the last one is looked up or changed."""

RING_BYTES = 1 << 24
"""A round of the study's largest program writes four million bytes."""

KEY_AT, VALUE_AT, PREFIX_AT = -16, -8, -20
"""Where the stack has the key, a value, and in front of the key the length of its prefix."""

A, B, SUM, PACKET, END, STACK = 0, 7, 6, 8, 9, 10
"""Registers: two operands, a sum across calls (which lose 0 to 5), the packet, its end, the frame pointer."""

Body = Sequence[Insn]


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
    return (*map_handle(1), alu(MOV, 2, STACK), alu_imm(ADD, 2, at))


def lookup(at: int = KEY_AT) -> tuple[Insn, ...]:
    """Look up a key that lies on the stack, and add its value."""
    return (
        *_key(at),
        helper(LOOKUP_ELEM),
        jump_imm(JEQ, A, 0, 2),
        load(DOUBLE, A, A, 0),
        alu(ADD, SUM, A),
    )


_ADD_ERROR = alu(ADD, SUM, A)
_UPDATE = (
    *_key(),
    alu(MOV, 3, STACK),
    alu_imm(ADD, 3, VALUE_AT),
    alu_imm(MOV, 4, 0),
    helper(UPDATE_ELEM),
    _ADD_ERROR,
)
_DELETE = (*_key(), helper(DELETE_ELEM), _ADD_ERROR)
_OUTPUT = (
    *map_handle(1),
    alu(MOV, 2, STACK),
    alu_imm(ADD, 2, VALUE_AT),
    alu_imm(MOV, 3, 8),
    alu_imm(MOV, 4, _NO_WAKEUP),
    helper(RING_OUTPUT),
    _ADD_ERROR,
)
_RESERVE = (
    *map_handle(1),
    alu_imm(MOV, 2, 8),
    alu_imm(MOV, 3, 0),
    helper(RING_RESERVE),
    jump_imm(JNE, A, 0, 2),
    alu_imm(MOV, A, _UNMATCHED),
    leave(),
    store(DOUBLE, A, 0, B),
    alu(MOV, 1, A),
    alu_imm(MOV, 2, _NO_WAKEUP),
    helper(RING_SUBMIT),
)
_PREFIX = (store_imm(WORD, STACK, PREFIX_AT, 32),)
_LOOKED_UP = ("percpu_array", "hash", "percpu_hash", "lru_hash")
_UPDATED = ("array", "percpu_array", "hash", "percpu_hash", "lru_hash")

BODIES: Sequence[tuple[str, str, str, Body, Body]] = (
    *((f"map lookup {kind}", "map lookup", kind, lookup(), ()) for kind in _LOOKED_UP),
    ("map lookup lpm_trie", "map lookup", "lpm_trie", lookup(PREFIX_AT), _PREFIX),
    *((f"map update {kind}", "map update", kind, _UPDATE, ()) for kind in _UPDATED),
    ("map update hash, deleted first", "map update", "hash", (*_DELETE, *_UPDATE), ()),
    ("ring buffer output", "ring buffer", "ringbuf", _OUTPUT, ()),
    ("ring buffer reserve, submit", "ring buffer", "ringbuf", _RESERVE, ()),
    ("helper ktime_get_ns", "helper", "", (helper(KTIME),), ()),
    ("helper get_prandom_u32", "helper", "", (helper(PRANDOM),), ()),
    ("helper get_numa_node_id", "helper", "", (helper(NUMA),), ()),
    ("helper jiffies64", "helper", "", (helper(JIFFIES),), ()),
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
            registers[0] = self._lookup(registers[1], registers[2] + self._beyond_prefix)
        elif number == RING_RESERVE:
            registers[0] = self._value_bases[registers[1]]
        elif number in _SUCCEED:
            registers[0] = 0
        else:
            super().call_helper(number, registers)
            return
        registers[1:6] = [0xDEAD << 48] * 5


_SUCCEED = {UPDATE_ELEM, DELETE_ELEM, KTIME, PRANDOM, NUMA, JIFFIES, RING_OUTPUT, RING_SUBMIT}


A_AT, B_AT, LOADED_AT, STORED_AT = 6, 14, 22, 30
"""Packet offsets at which bodies find A and B, load and store; aligned if frames begin two bytes off, as in UML."""

FRAME = bytes(A_AT) + bytes.fromhex("efcdab896745230115cd5b0700000000") + bytes(range(42))
"""The packet: A and B, 64 bytes in all; a kernel's test run takes no shorter one of every program type."""

SIZES = (64, 256)
"""Values of K. The larger one keeps a run in the interpreter short against the pause between two timer ticks."""


@dataclass(frozen=True)
class InsnClass:
    """``body`` is one instruction, or the few that it needs; it gets the distance to the end of the program.

    ``before`` and ``forget`` come once, before the first body, and after the last if a model cannot know A; ``after``
    are subprograms after the end; ``map`` is the kind of the program's map.
    """

    name: str
    group: str
    body: Callable[[int], Body]
    forget: Body = ()
    after: Body = ()
    map: MapUse | None = None
    before: Body = ()

    def program(self, k: int) -> tuple[Insn, ...]:
        """Return the instructions of a program with ``k`` bodies. It returns A and `SUM`, folded to 32 bits."""
        end = (*self.forget, *_EPILOGUE)
        length = len(self.body(0))
        bodies = [insn for i in range(k) for insn in self.body((k - i) * length + len(end))]
        return (*_PROLOGUE, *self.before, *bodies, *end, *self.after)

    def expected(self, k: int) -> int:
        """Return what the program of ``k`` bodies must return. Raises ProgramError if the model has no answer."""
        insns = self.program(k)
        places = [at for at, insn in enumerate(insns) if insn.code == DOUBLE and insn.src == 1]
        image = Image(self.name, "xdp", insns, {}, dict.fromkeys(places, _THE_MAP), {})
        return model(image, self.map).run(FRAME).verdict


_THE_MAP = Reference(".maps", "map", 0)
_PROLOGUE = (
    load(WORD, PACKET, 1, 0),
    load(WORD, END, 1, 4),
    alu(MOV, 2, PACKET),
    alu_imm(ADD, 2, len(FRAME)),
    alu_imm(MOV, A, 0),
    jump(JLE, 2, END, 1),
    leave(),
    load(DOUBLE, A, PACKET, A_AT),
    load(DOUBLE, B, PACKET, B_AT),
    alu_imm(MOV, SUM, 0),
    store(DOUBLE, STACK, -8, A),
    store_imm(WORD, STACK, KEY_AT, MAP_ENTRIES - 1),
)
_EPILOGUE = (
    alu(XOR, A, SUM),
    load(DOUBLE, 1, STACK, -8),
    alu(XOR, A, 1),
    load(DOUBLE, 1, PACKET, STORED_AT),
    alu(XOR, A, 1),
    alu(MOV, 1, A),
    alu_imm(RSH, 1, 32),
    alu(XOR, A, 1),
    leave(),
)
"""The result includes everything that a body may have changed: A, `SUM`, the word on the stack and the one in the
packet."""


def _one(name: str, group: str, *body: Insn) -> InsnClass:
    return InsnClass(name, group, lambda to_end: body)


def _arithmetic() -> list[InsnClass]:
    classes = []
    for bits, group in ((64, "alu64"), (32, "alu32")):
        for word, operation in (("add", ADD), ("sub", SUB), ("and", AND), ("or", OR), ("xor", XOR)):
            classes.append(_one(f"{word}{bits} reg", group, alu(operation, A, B, bits)))
        classes.append(_one(f"add{bits} imm", group, alu_imm(ADD, A, 12345, bits)))
        classes.append(_one(f"mov{bits} reg", group, alu(MOV, A, B, bits)))
        classes.append(_one(f"neg{bits}", group, alu_imm(NEG, A, 0, bits)))
        for word, operation in (("mul", MUL), ("div", DIV), ("mod", MOD)):
            classes.append(_one(f"{word}{bits} reg", "mul, div", alu(operation, A, B, bits)))
        for word, operation in (("lsh", LSH), ("rsh", RSH), ("arsh", ARSH)):
            classes.append(_one(f"{word}{bits} imm", "shift", alu_imm(operation, A, 1, bits)))
        classes.append(_one(f"rsh{bits} reg", "shift", alu(RSH, A, B, bits)))
    return [*classes, _one("load imm64", "alu64", *imm64(A, 0x1234567890ABCDEF))]


def _swaps() -> list[InsnClass]:
    swaps = [_one(f"be{bits}", "byte swap", swap(A, bits, big=True)) for bits in (16, 32, 64)]
    return [*swaps, _one("le32", "byte swap", swap(A, 32, big=False))]


_SIZES = {8: BYTE, 16: HALF, 32: WORD, 64: DOUBLE}


def _memory() -> list[InsnClass]:
    classes = []
    for bits, size in _SIZES.items():
        classes.append(_one(f"packet load {bits}", "packet", load(size, A, PACKET, LOADED_AT)))
        classes.append(_one(f"packet store {bits}", "packet", store(size, PACKET, STORED_AT, B)))
    for bits, size in _SIZES.items():
        classes.append(_one(f"stack store {bits}", "stack", store(size, STACK, -8, B)))
    return [
        *classes,
        _one("stack load 64", "stack", load(DOUBLE, A, STACK, -8)),
        _one("stack store imm", "stack", store_imm(DOUBLE, STACK, -8, 77)),
    ]


def _jumps() -> list[InsnClass]:
    """Both ways of a branch lead to the next body. The verifier removes a jump that always leads there."""
    return [
        _one("jump not taken", "jump", jump(JEQ, A, B, 0)),
        _one("jump taken", "jump", jump(JNE, A, B, 0)),
        _one("jump signed", "jump", jump(JSGT, A, B, 0)),
        _one("jump set imm", "jump", jump_imm(JSET, A, 0x100, 0)),
        _one("jump not taken, always", "jump", jump(JEQ, A, B, 1), always(1), alu_imm(ADD, SUM, 1)),
        _one("jump32 not taken", "jump32", jump(JEQ, A, B, 0, 32)),
        _one("jump32 taken", "jump32", jump(JNE, A, B, 0, 32)),
    ]


def _atomics() -> list[InsnClass]:
    return [
        _one("atomic add 64", "atomic", atomic(ADD, STACK, -8, B)),
        _one("atomic add 32", "atomic", atomic(ADD, STACK, -8, B, WORD)),
        _one("atomic fetch add", "atomic", atomic(ADD | FETCH, STACK, -8, B)),
        _one("atomic exchange", "atomic", atomic(XCHG, STACK, -8, B)),
        _one("atomic compare", "atomic", atomic(CMPXCHG, STACK, -8, B)),
    ]


def _calls() -> list[InsnClass]:
    subprogram = (alu_imm(MOV, A, 1), leave())
    return [
        InsnClass("call helper", "call", lambda to_end: (helper(SMP_PROCESSOR_ID),), forget=(alu_imm(MOV, A, 0),)),
        InsnClass("call bpf-to-bpf", "call", lambda to_end: (call(to_end - 1),), after=subprogram),
        InsnClass("map lookup", "map lookup", lambda to_end: lookup(), map=MAPS["array"]),
    ]


def _maps() -> list[InsnClass]:
    """Every kind of map and helper in `BODIES`."""
    forget = (alu_imm(MOV, A, 0),)
    return [
        InsnClass(name, group, _always(body), forget, map=MAPS.get(kind), before=before)
        for name, group, kind, body, before in BODIES
    ]


def _always(body: Body) -> Callable[[int], Body]:
    return lambda to_end: body


CLASSES: dict[str, InsnClass] = {
    each.name: each for each in (*_arithmetic(), *_swaps(), *_memory(), *_jumps(), *_atomics(), *_calls(), *_maps())
}
"""Every class by name, in the order figures have."""
