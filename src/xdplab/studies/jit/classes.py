"""Programs of one instruction class: the same body K times, so that two values of K give the cost of one body.

The operands come from the packet, because the verifier computes known values itself and removes known branches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdplab.programs.image import Image, Insn, Reference
from xdplab.programs.machine import SMP_PROCESSOR_ID
from xdplab.studies.jit import ebpf as e
from xdplab.studies.jit import mapclasses
from xdplab.studies.jit.mapclasses import MapUse, lookup, model

A_AT, B_AT, LOADED_AT, STORED_AT = 6, 14, 22, 30
"""Packet offsets at which bodies find A and B, load and store; aligned if frames begin two bytes off, as in UML."""

FRAME = bytes(A_AT) + bytes.fromhex("efcdab896745230115cd5b0700000000") + bytes(range(42))
"""The packet: A and B, 64 bytes in all; a kernel's test run takes no shorter one of every program type."""

SIZES = (64, 256)
"""Values of K. The larger one keeps a run in the interpreter short against the pause between two timer ticks."""

A, B, SUM, PACKET, END, STACK = 0, 7, 6, 8, 9, 10
"""Registers: two operands, a sum across calls (which lose 0 to 5), the packet, its end, the frame pointer."""

Body = Sequence[Insn]


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
    e.store_imm(e.WORD, STACK, mapclasses.KEY_AT, mapclasses.MAP_ENTRIES - 1),
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
        InsnClass("map lookup", "map lookup", lambda to_end: lookup(), map=mapclasses.MAPS["array"]),
    ]


def _maps() -> list[InsnClass]:
    """Every kind of map and helper in `mapclasses`."""
    forget = (e.alu_imm(e.MOV, A, 0),)
    return [
        InsnClass(name, group, _always(body), forget, map=mapclasses.MAPS.get(kind), before=before)
        for name, group, kind, body, before in mapclasses.BODIES
    ]


def _always(body: Body) -> Callable[[int], Body]:
    return lambda to_end: body


CLASSES: dict[str, InsnClass] = {
    each.name: each for each in (*_arithmetic(), *_swaps(), *_memory(), *_jumps(), *_atomics(), *_calls(), *_maps())
}
"""Every class by name, in the order figures have."""
