"""eBPF instructions by function: the few forms that the class programs use.

Encoding: Documentation/bpf/standardization/instruction-set.rst of the Linux kernel (RFC 9669).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from xdplab.programs.image import Insn

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
