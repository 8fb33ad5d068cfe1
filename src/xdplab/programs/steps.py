"""The meaning of each BPF instruction, as one small function per instruction: registers in, next instruction out.

Encoding and meaning: Documentation/bpf/standardization/instruction-set.rst of the Linux kernel (RFC 9669), cpu v3.

BPF instructions as text, in the kernel verifier's notation: of an object, and of the kernel's rewritten image.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from xdplab.errors import ProgramError
from xdplab.programs.image import KFUNC_CALL, Image, Insn

M64 = (1 << 64) - 1
M32 = (1 << 32) - 1
SIZES = {0x00: 4, 0x08: 2, 0x10: 1, 0x18: 8}

Registers = list[int]
Step = Callable[[Registers], "int | None"]


class InterpreterState(Protocol):
    """What an instruction needs besides registers: memory, helpers, and calls."""

    def load(self, address: int, size: int) -> int: ...

    def store(self, address: int, size: int, value: int) -> None: ...

    def address_of(self, image: Image, at: int) -> int: ...

    def call_helper(self, number: int, registers: Registers) -> None: ...

    def call_kfunc(self, at: int, registers: Registers) -> int: ...

    def enter(self, target: int, back: int, registers: Registers) -> int: ...

    def leave(self, registers: Registers) -> int | None: ...


def signed(value: int, bits: int) -> int:
    """Return the two's complement value of ``bits`` bits."""
    sign = 1 << (bits - 1)
    return (value & (sign - 1)) - (value & sign)


ARITHMETIC: dict[int, tuple[str, Callable[[int, int, int], int]]] = {
    0x00: ("+=", lambda a, b, bits: a + b),
    0x10: ("-=", lambda a, b, bits: a - b),
    0x20: ("*=", lambda a, b, bits: a * b),
    0x30: ("/=", lambda a, b, bits: a // b if b else 0),
    0x40: ("|=", lambda a, b, bits: a | b),
    0x50: ("&=", lambda a, b, bits: a & b),
    0x60: ("<<=", lambda a, b, bits: a << (b & (bits - 1))),
    0x70: (">>=", lambda a, b, bits: a >> (b & (bits - 1))),
    0x90: ("%=", lambda a, b, bits: a % b if b else a),
    0xA0: ("^=", lambda a, b, bits: a ^ b),
    0xB0: ("=", lambda a, b, bits: b),
    0xC0: ("s>>=", lambda a, b, bits: signed(a, bits) >> (b & (bits - 1))),
}
NEGATE, END = 0x80, 0xD0

COMPARE: dict[int, tuple[str, Callable[[int, int], bool], bool]] = {
    0x10: ("==", operator.eq, False),
    0x20: (">", operator.gt, False),
    0x30: (">=", operator.ge, False),
    0x40: ("&", lambda a, b: bool(a & b), False),
    0x50: ("!=", operator.ne, False),
    0x60: ("s>", operator.gt, True),
    0x70: ("s>=", operator.ge, True),
    0xA0: ("<", operator.lt, False),
    0xB0: ("<=", operator.le, False),
    0xC0: ("s<", operator.lt, True),
    0xD0: ("s<=", operator.le, True),
}
JUMP, CALL, EXIT = 0x00, 0x80, 0x90
LD_IMM64 = 0x18


def step(machine: InterpreterState, image: Image, at: int, insn: Insn) -> Step:
    """Return the function of the instruction at ``at``; an unknown one raises ProgramError when it is reached."""
    kind = insn.code & 7
    if insn.code == LD_IMM64:
        return _load_immediate(machine, image, at, insn)
    if kind == 1 and insn.code & 0xE0 == 0x60:
        return _load(machine, at, insn)
    if kind in (2, 3) and insn.code & 0xE0 == 0x60:
        return _store(machine, at, insn)
    if kind == 3 and insn.code & 0xE0 == 0xC0:
        return _atomic(machine, at, insn)
    if kind in (4, 7):
        return _arithmetic(at, insn)
    if kind in (5, 6):
        return _branch(machine, at, insn)
    return _unknown(at, insn)


def _unknown(at: int, insn: Insn) -> Step:
    def fail(r: Registers) -> int | None:
        raise ProgramError(f"the proof does not know the BPF instruction {insn.code:#04x} at {at}")

    return fail


def _load_immediate(machine: InterpreterState, image: Image, at: int, insn: Insn) -> Step:
    dst, address = insn.dst, machine.address_of(image, at)

    def run(r: Registers) -> int:
        r[dst] = address
        return at + 2

    return run


def _load(machine: InterpreterState, at: int, insn: Insn) -> Step:
    dst, src, off, size, load = insn.dst, insn.src, insn.off, SIZES[insn.code & 0x18], machine.load

    def run(r: Registers) -> int:
        r[dst] = load((r[src] + off) & M64, size)
        return at + 1

    return run


def _store(machine: InterpreterState, at: int, insn: Insn) -> Step:
    dst, src, off, imm = insn.dst, insn.src, insn.off, insn.imm
    size, store, from_register = SIZES[insn.code & 0x18], machine.store, insn.code & 7 == 3

    def run(r: Registers) -> int:
        store((r[dst] + off) & M64, size, r[src] if from_register else imm & M64)
        return at + 1

    return run


ATOMIC: dict[int, Callable[[int, int], int]] = {
    0x00: operator.add,
    0x40: operator.or_,
    0x50: operator.and_,
    0xA0: operator.xor,
}
FETCH, EXCHANGE, COMPARE_EXCHANGE = 0x01, 0xE1, 0xF1


def _atomic(machine: InterpreterState, at: int, insn: Insn) -> Step:
    dst, src, off, size, operation = insn.dst, insn.src, insn.off, SIZES[insn.code & 0x18], insn.imm
    mask = (1 << (8 * size)) - 1
    if size < 4 or not (operation in (EXCHANGE, COMPARE_EXCHANGE) or operation & ~FETCH in ATOMIC):
        return _unknown(at, insn)

    def new(old: int, r: Registers) -> int:
        if operation == COMPARE_EXCHANGE:
            return r[src] if old == r[0] & mask else old
        return r[src] if operation == EXCHANGE else ATOMIC[operation & ~FETCH](old, r[src])

    def run(r: Registers) -> int:
        address = (r[dst] + off) & M64
        old = machine.load(address, size)
        machine.store(address, size, new(old, r) & mask)
        if operation & FETCH:
            r[0 if operation == COMPARE_EXCHANGE else src] = old
        return at + 1

    return run


def _arithmetic(at: int, insn: Insn) -> Step:
    dst, src, imm, operation = insn.dst, insn.src, insn.imm, insn.code & 0xF0
    bits, mask = (64, M64) if insn.code & 7 == 7 else (32, M32)
    if operation == NEGATE:
        return _assign(at, dst, lambda r: -r[dst] & mask)
    if operation == END:
        return _swap_bytes(at, insn)
    if operation not in ARITHMETIC or insn.off:
        return _unknown(at, insn)
    apply = ARITHMETIC[operation][1]
    if insn.code & 8:
        return _assign(at, dst, lambda r: apply(r[dst] & mask, r[src] & mask, bits) & mask)
    value = imm & mask
    return _assign(at, dst, lambda r: apply(r[dst] & mask, value, bits) & mask)


def _assign(at: int, dst: int, value: Callable[[Registers], int]) -> Step:
    def run(r: Registers) -> int:
        r[dst] = value(r)
        return at + 1

    return run


def _swap_bytes(at: int, insn: Insn) -> Step:
    dst, size, to_big = insn.dst, insn.imm // 8, bool(insn.code & 8)
    mask = (1 << insn.imm) - 1

    def value(r: Registers) -> int:
        low = r[dst] & mask
        return int.from_bytes(low.to_bytes(size, "little"), "big") if to_big else low

    return _assign(at, dst, value)


def _branch(machine: InterpreterState, at: int, insn: Insn) -> Step:
    operation, wide = insn.code & 0xF0, insn.code & 7 == 5
    if operation == EXIT:
        return machine.leave
    if operation == CALL:
        return _call(machine, at, insn)
    if operation == JUMP:
        target = at + 1 + (insn.off if wide else insn.imm)
        return lambda r: target
    if operation not in COMPARE:
        return _unknown(at, insn)
    return _conditional(at, insn, 64 if wide else 32)


def _conditional(at: int, insn: Insn, bits: int) -> Step:
    dst, src, following, target = insn.dst, insn.src, at + 1, at + 1 + insn.off
    _, holds, is_signed = COMPARE[insn.code & 0xF0]
    mask = M64 if bits == 64 else M32
    constant = None if insn.code & 8 else insn.imm & mask

    def run(r: Registers) -> int:
        left, right = r[dst] & mask, r[src] & mask if constant is None else constant
        if is_signed:
            left, right = signed(left, bits), signed(right, bits)
        return target if holds(left, right) else following

    return run


def _call(machine: InterpreterState, at: int, insn: Insn) -> Step:
    if insn.src == 1:  # a subprogram
        target = at + 1 + insn.imm
        return lambda r: machine.enter(target, at + 1, r)
    if insn.src == KFUNC_CALL:
        return lambda r: machine.call_kfunc(at, r)
    if insn.src != 0:
        return _unknown(at, insn)

    def run(r: Registers) -> int:
        machine.call_helper(insn.imm, r)
        return at + 1

    return run


_HELPERS = {1: "bpf_map_lookup_elem", 8: "bpf_get_smp_processor_id"}


def disassemble(image: Image) -> str:
    """Return the object's program and subprograms, with the names of maps and functions."""
    notes = {at: f"{r.symbol}[{r.offset}]" if r.offset else r.symbol for at, r in image.references.items()}
    calls = {
        at: image.functions.get(at + 1 + insn.imm, f"pc{insn.imm:+d}")
        for at, insn in enumerate(image.insns)
        if insn.code == 0x85 and insn.src == 1
    }
    return _listing(image.insns, {**notes, **calls}, image.functions)


def disassemble_xlated(insns: Sequence[Insn], names: Mapping[int, str]) -> str:
    """Return the kernel's image. ``names``: the kernel function behind a call's immediate, if known."""
    calls = {at: names[i.imm] for at, i in enumerate(insns) if i.code == 0x85 and not i.src and i.imm in names}
    return _listing(insns, calls, {})


def _listing(insns: Sequence[Insn], notes: Mapping[int, str], functions: Mapping[int, str]) -> str:
    lines = []
    second_half = False
    for at, insn in enumerate(insns):
        if at in functions:
            lines.append(f"{functions[at]}:")
        if not second_half:
            following = insns[at + 1].imm if at + 1 < len(insns) else 0
            lines.append(f"{at:6}: {text(insn, following, notes.get(at))}")
        second_half = insn.code == LD_IMM64 and not second_half
    return "\n".join(lines) + "\n"


def text(insn: Insn, following_imm: int = 0, note: str | None = None) -> str:
    """Return one instruction. ``following_imm``: the immediate after it, the upper half of a 64-bit one."""
    kind, mode = insn.code & 7, insn.code & 0xE0
    if insn.code == LD_IMM64:
        value = note or hex((following_imm & 0xFFFFFFFF) << 32 | insn.imm & 0xFFFFFFFF)
        return f"r{insn.dst} = {value} ll"
    if kind == 1 and mode == 0x60:
        return f"r{insn.dst} = {_memory(insn, insn.src)}"
    if kind in (2, 3) and mode == 0x60:
        return f"{_memory(insn, insn.dst)} = {f'r{insn.src}' if kind == 3 else insn.imm}"
    if kind in (4, 7):
        return _arithmetic_text(insn)
    if kind in (5, 6):
        return _branch_text(insn, note)
    return f".insn {insn.code:#04x} dst={insn.dst} src={insn.src} off={insn.off} imm={insn.imm}"


def _memory(insn: Insn, base: int) -> str:
    return f"*(u{8 * SIZES[insn.code & 0x18]} *)(r{base} {insn.off:+d})"


def _arithmetic_text(insn: Insn) -> str:
    operation, letter = insn.code & 0xF0, "r" if insn.code & 7 == 7 else "w"
    left = f"{letter}{insn.dst}"
    if operation == NEGATE:
        return f"{left} = -{left}"
    if operation == END:
        return f"r{insn.dst} = {'be' if insn.code & 8 else 'le'}{insn.imm} r{insn.dst}"
    sign = ARITHMETIC[operation][0] if operation in ARITHMETIC else f"op{operation:#x}"
    return (
        f"{left} {sign} {f'{letter}{insn.src}' if insn.code & 8 else insn.imm}{f' off={insn.off}' if insn.off else ''}"
    )


def _branch_text(insn: Insn, note: str | None) -> str:
    operation, letter = insn.code & 0xF0, "r" if insn.code & 7 == 5 else "w"
    if operation == EXIT:
        return "exit"
    if operation == CALL:
        return f"call {note or (insn.src == 0 and _HELPERS.get(insn.imm)) or _pc(insn)}"
    if operation == JUMP:
        return f"goto {insn.off if letter == 'r' else insn.imm:+d}"
    sign = COMPARE[operation][0] if operation in COMPARE else f"op{operation:#x}"
    right = f"{letter}{insn.src}" if insn.code & 8 else insn.imm
    return f"if {letter}{insn.dst} {sign} {right} goto {insn.off:+d}"


def _pc(insn: Insn) -> str:
    return f"pc{insn.imm:+d}" if insn.src == 1 else str(insn.imm)
