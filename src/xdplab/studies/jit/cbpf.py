"""Classic BPF: filters as instructions, and a model that says what they return.

Meaning of the instructions: Documentation/networking/filter.rst of the Linux kernel, after McCanne and Jacobson, "The
BSD Packet Filter" (1993).
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from xdplab.errors import ProgramError

LOAD, LOAD_X, ALU, JUMP, RETURN, MISC = 0, 1, 4, 5, 6, 7
WORD, HALF, BYTE = 0x00, 0x08, 0x10
IMM, ABS, IND, MEM, LEN, MSH = (mode << 5 for mode in range(6))
SHORT_OF_DATA = 0
"""The kernel's result of a filter that reads beyond the end: the packet is refused."""

_M32 = (1 << 32) - 1
_BYTES = {WORD: 4, HALF: 2, BYTE: 1}
_ALU: dict[int, Callable[[int, int], int]] = {
    0x00: operator.add,
    0x10: operator.sub,
    0x20: operator.mul,
    0x40: operator.or_,
    0x50: operator.and_,
    0x60: operator.lshift,
    0x70: operator.rshift,
    0xA0: operator.xor,
}
_COMPARE: dict[int, Callable[[int, int], bool]] = {
    0x10: operator.eq,
    0x20: operator.gt,
    0x30: operator.ge,
    0x40: lambda a, b: bool(a & b),
}


class Op(NamedTuple):
    """One instruction; ``jt`` and ``jf`` are how many to leave out."""

    code: int
    jt: int
    jf: int
    k: int


def encode(filter_: Iterable[Op]) -> bytes:
    """Return the bytes the kernel takes, eight an instruction."""
    return b"".join(struct.pack("<HBBI", *op) for op in filter_)


def load(size: int, offset: int) -> Op:
    return Op(LOAD | ABS | size, 0, 0, offset)


def load_after_header(size: int, offset: int) -> Op:
    return Op(LOAD | IND | size, 0, 0, offset)


def header_length(offset: int) -> Op:
    """X becomes the length of the IPv4 header that begins at ``offset``."""
    return Op(LOAD_X | MSH | BYTE, 0, 0, offset)


def alu(operation: int, k: int) -> Op:
    return Op(operation | ALU, 0, 0, k)


def equal(k: int, jt: int, jf: int) -> Op:
    return Op(0x10 | JUMP, jt, jf, k)


def any_bit(k: int, jt: int, jf: int) -> Op:
    return Op(0x40 | JUMP, jt, jf, k)


def ret(k: int) -> Op:
    return Op(RETURN, 0, 0, k)


def ret_a() -> Op:
    return Op(0x10 | RETURN, 0, 0, 0)


class _OutOfDataError(Exception):
    pass


@dataclass
class _State:
    """``little``: words of the data are the machine's own (seccomp) and not the network's."""

    data: bytes
    little: bool
    a: int = 0
    x: int = 0

    def read(self, offset: int, size: int) -> int:
        if offset + size > len(self.data):
            raise _OutOfDataError
        return int.from_bytes(self.data[offset : offset + size], "little" if self.little else "big")


def run(filter_: Sequence[Op], data: bytes, *, little: bool = False) -> int:
    """Return what the filter returns for a packet (or for a struct seccomp_data, with ``little``).

    Raises ProgramError for an instruction that the model does not know, or a filter without an end.
    """
    state, at = _State(data, little), 0
    scratch = [0] * 16
    try:
        while at < len(filter_):
            op = filter_[at]
            if op.code & 7 == RETURN:
                return state.a if op.code & 0x18 == 0x10 else op.k
            at += 1 + _step(op, state, scratch)
    except _OutOfDataError:
        return SHORT_OF_DATA
    raise ProgramError("the classic filter has no end")


def _step(op: Op, state: _State, scratch: list[int]) -> int:
    """Execute one instruction; returns how many to leave out."""
    kind = op.code & 7
    if kind == JUMP:
        return _jump(op, state)
    if kind in (LOAD, LOAD_X):
        value = _loaded(op, state, scratch)
        state.a, state.x = (value, state.x) if kind == LOAD else (state.a, value)
    elif kind in (2, 3):
        scratch[op.k] = state.a if kind == 2 else state.x
    elif kind == ALU:
        state.a = _computed(op, state)
    elif op.code & 0x80:
        state.a = state.x
    else:
        state.x = state.a
    return 0


def _loaded(op: Op, state: _State, scratch: list[int]) -> int:
    mode, size = op.code & 0xE0, _BYTES[op.code & 0x18]
    sources: dict[int, Callable[[], int]] = {
        IMM: lambda: op.k,
        ABS: lambda: state.read(op.k, size),
        IND: lambda: state.read(op.k + state.x, size),
        MEM: lambda: scratch[op.k],
        LEN: lambda: len(state.data),
        MSH: lambda: 4 * (state.read(op.k, 1) & 15),
    }
    return sources[mode]()


def _computed(op: Op, state: _State) -> int:
    operation, operand = op.code & 0xF0, state.x if op.code & 8 else op.k
    if operation == 0x80:
        return -state.a & _M32
    if operation in (0x30, 0x90):
        if not operand:
            raise _OutOfDataError  # the kernel returns 0
        return state.a // operand if operation == 0x30 else state.a % operand
    if operation not in _ALU:
        raise ProgramError(f"the model does not know the classic instruction {op.code:#04x}")
    return _ALU[operation](state.a, operand) & _M32


def _jump(op: Op, state: _State) -> int:
    if op.code & 0xF0 == 0:
        return op.k
    holds = _COMPARE[op.code & 0xF0](state.a, state.x if op.code & 8 else op.k)
    return op.jt if holds else op.jf


def parse_ddd(text: str) -> tuple[Op, ...]:
    """Return the filter that ``tcpdump -ddd`` printed: a count, then four decimal numbers per line.

    Raises ProgramError if the text is not a filter.
    """
    try:
        count, *rows = [[int(word) for word in line.split()] for line in text.splitlines()]
        filter_ = tuple(Op(*row) for row in rows)
    except (ValueError, TypeError):
        raise ProgramError(f"tcpdump -ddd printed no filter: {text[:60]!r}") from None
    if count != [len(filter_)] or not filter_:
        raise ProgramError(f"tcpdump -ddd says {count} instructions and prints {len(filter_)}")
    return filter_
