"""Programs of one instruction class: the same body K times, so that two values of K give the cost of one body.

The operands come from the packet, because the verifier computes known values itself and removes known branches. The
bodies that call helpers come first: maps of every kind looked up and changed, ring buffers, helpers without a map.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from xdplab.programs.image import Image, Insn, Reference
from xdplab.programs.machine import LOOKUP_ELEM, SMP_PROCESSOR_ID, Interpreter, Map
from xdplab.studies.jit import ebpf as e

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
    return (*e.map_handle(1), e.alu(e.MOV, 2, STACK), e.alu_imm(e.ADD, 2, at))


def lookup(at: int = KEY_AT) -> tuple[Insn, ...]:
    """Look up a key that lies on the stack, and add its value."""
    return (
        *_key(at),
        e.helper(LOOKUP_ELEM),
        e.jump_imm(e.JEQ, A, 0, 2),
        e.load(e.DOUBLE, A, A, 0),
        e.alu(e.ADD, SUM, A),
    )


_ADD_ERROR = e.alu(e.ADD, SUM, A)
_UPDATE = (
    *_key(),
    e.alu(e.MOV, 3, STACK),
    e.alu_imm(e.ADD, 3, VALUE_AT),
    e.alu_imm(e.MOV, 4, 0),
    e.helper(UPDATE_ELEM),
    _ADD_ERROR,
)
_DELETE = (*_key(), e.helper(DELETE_ELEM), _ADD_ERROR)
_OUTPUT = (
    *e.map_handle(1),
    e.alu(e.MOV, 2, STACK),
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
    e.jump_imm(e.JNE, A, 0, 2),
    e.alu_imm(e.MOV, A, _UNMATCHED),
    e.leave(),
    e.store(e.DOUBLE, A, 0, B),
    e.alu(e.MOV, 1, A),
    e.alu_imm(e.MOV, 2, _NO_WAKEUP),
    e.helper(RING_SUBMIT),
)
_PREFIX = (e.store_imm(e.WORD, STACK, PREFIX_AT, 32),)
_LOOKED_UP = ("percpu_array", "hash", "percpu_hash", "lru_hash")
_UPDATED = ("array", "percpu_array", "hash", "percpu_hash", "lru_hash")

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
        places = [at for at, insn in enumerate(insns) if insn.code == e.DOUBLE and insn.src == 1]
        image = Image(self.name, "xdp", insns, {}, dict.fromkeys(places, _THE_MAP), {})
        return model(image, self.map).run(FRAME).verdict


_THE_MAP = Reference(".maps", "map", 0)
_PROLOGUE = (
    e.load(e.WORD, PACKET, 1, 0),
    e.load(e.WORD, END, 1, 4),
    e.alu(e.MOV, 2, PACKET),
    e.alu_imm(e.ADD, 2, len(FRAME)),
    e.alu_imm(e.MOV, A, 0),
    e.jump(e.JLE, 2, END, 1),
    e.leave(),
    e.load(e.DOUBLE, A, PACKET, A_AT),
    e.load(e.DOUBLE, B, PACKET, B_AT),
    e.alu_imm(e.MOV, SUM, 0),
    e.store(e.DOUBLE, STACK, -8, A),
    e.store_imm(e.WORD, STACK, KEY_AT, MAP_ENTRIES - 1),
)
_EPILOGUE = (
    e.alu(e.XOR, A, SUM),
    e.load(e.DOUBLE, 1, STACK, -8),
    e.alu(e.XOR, A, 1),
    e.load(e.DOUBLE, 1, PACKET, STORED_AT),
    e.alu(e.XOR, A, 1),
    e.alu(e.MOV, 1, A),
    e.alu_imm(e.RSH, 1, 32),
    e.alu(e.XOR, A, 1),
    e.leave(),
)
"""The result includes everything that a body may have changed: A, `SUM`, the word on the stack and the one in the
packet."""


def _one(name: str, group: str, *body: Insn) -> InsnClass:
    return InsnClass(name, group, lambda to_end: body)


def _arithmetic() -> list[InsnClass]:
    classes = []
    for bits, group in ((64, "alu64"), (32, "alu32")):
        for word, operation in (("add", e.ADD), ("sub", e.SUB), ("and", e.AND), ("or", e.OR), ("xor", e.XOR)):
            classes.append(_one(f"{word}{bits} reg", group, e.alu(operation, A, B, bits)))
        classes.append(_one(f"add{bits} imm", group, e.alu_imm(e.ADD, A, 12345, bits)))
        classes.append(_one(f"mov{bits} reg", group, e.alu(e.MOV, A, B, bits)))
        classes.append(_one(f"neg{bits}", group, e.alu_imm(e.NEG, A, 0, bits)))
        for word, operation in (("mul", e.MUL), ("div", e.DIV), ("mod", e.MOD)):
            classes.append(_one(f"{word}{bits} reg", "mul, div", e.alu(operation, A, B, bits)))
        for word, operation in (("lsh", e.LSH), ("rsh", e.RSH), ("arsh", e.ARSH)):
            classes.append(_one(f"{word}{bits} imm", "shift", e.alu_imm(operation, A, 1, bits)))
        classes.append(_one(f"rsh{bits} reg", "shift", e.alu(e.RSH, A, B, bits)))
    return [*classes, _one("load imm64", "alu64", *e.imm64(A, 0x1234567890ABCDEF))]


def _swaps() -> list[InsnClass]:
    swaps = [_one(f"be{bits}", "byte swap", e.swap(A, bits, big=True)) for bits in (16, 32, 64)]
    return [*swaps, _one("le32", "byte swap", e.swap(A, 32, big=False))]


_SIZES = {8: e.BYTE, 16: e.HALF, 32: e.WORD, 64: e.DOUBLE}


def _memory() -> list[InsnClass]:
    classes = []
    for bits, size in _SIZES.items():
        classes.append(_one(f"packet load {bits}", "packet", e.load(size, A, PACKET, LOADED_AT)))
        classes.append(_one(f"packet store {bits}", "packet", e.store(size, PACKET, STORED_AT, B)))
    for bits, size in _SIZES.items():
        classes.append(_one(f"stack store {bits}", "stack", e.store(size, STACK, -8, B)))
    return [
        *classes,
        _one("stack load 64", "stack", e.load(e.DOUBLE, A, STACK, -8)),
        _one("stack store imm", "stack", e.store_imm(e.DOUBLE, STACK, -8, 77)),
    ]


def _jumps() -> list[InsnClass]:
    """Both ways of a branch lead to the next body. The verifier removes a jump that always leads there."""
    return [
        _one("jump not taken", "jump", e.jump(e.JEQ, A, B, 0)),
        _one("jump taken", "jump", e.jump(e.JNE, A, B, 0)),
        _one("jump signed", "jump", e.jump(e.JSGT, A, B, 0)),
        _one("jump set imm", "jump", e.jump_imm(e.JSET, A, 0x100, 0)),
        _one("jump not taken, always", "jump", e.jump(e.JEQ, A, B, 1), e.always(1), e.alu_imm(e.ADD, SUM, 1)),
        _one("jump32 not taken", "jump32", e.jump(e.JEQ, A, B, 0, 32)),
        _one("jump32 taken", "jump32", e.jump(e.JNE, A, B, 0, 32)),
    ]


def _atomics() -> list[InsnClass]:
    return [
        _one("atomic add 64", "atomic", e.atomic(e.ADD, STACK, -8, B)),
        _one("atomic add 32", "atomic", e.atomic(e.ADD, STACK, -8, B, e.WORD)),
        _one("atomic fetch add", "atomic", e.atomic(e.ADD | e.FETCH, STACK, -8, B)),
        _one("atomic exchange", "atomic", e.atomic(e.XCHG, STACK, -8, B)),
        _one("atomic compare", "atomic", e.atomic(e.CMPXCHG, STACK, -8, B)),
    ]


def _calls() -> list[InsnClass]:
    subprogram = (e.alu_imm(e.MOV, A, 1), e.leave())
    return [
        InsnClass(
            "call helper", "call", lambda to_end: (e.helper(SMP_PROCESSOR_ID),), forget=(e.alu_imm(e.MOV, A, 0),)
        ),
        InsnClass("call bpf-to-bpf", "call", lambda to_end: (e.call(to_end - 1),), after=subprogram),
        InsnClass("map lookup", "map lookup", lambda to_end: lookup(), map=MAPS["array"]),
    ]


def _maps() -> list[InsnClass]:
    """Every kind of map and helper in `BODIES`."""
    forget = (e.alu_imm(e.MOV, A, 0),)
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
