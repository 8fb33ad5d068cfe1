"""The machines whose code the proof executes: how unicorn runs a function of it, and how its code refers elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import unicorn
from unicorn import arm64_const, riscv_const, x86_const

from xdplab.errors import ProgramError

PAGE = 1 << 12


@dataclass(frozen=True)
class Relocation:
    """How a reference is filled in: ``size`` in bytes, ``relative`` to where it stands (or to its ``page``).

    ``symbol``: whether the symbol counts, ``addend``: whether the addend does. ``put`` makes the new bytes of the old
    ones and the value; by default they are the value.
    """

    size: int
    relative: bool = False
    symbol: bool = True
    addend: bool = True
    page: bool = False
    put: Callable[[int, int], int] = lambda old, value: value


@dataclass(frozen=True)
class CallRegisters:
    """What a call has in which register: ``link``: the way back, null if the stack has it; ``second``: the second
    argument of what it calls; ``others``: nothing, of at most 64 bits or their lowest 64."""

    arguments: tuple[int, int, int]
    result: int
    stack: int
    link: int | None
    second: int
    others: tuple[int, ...]


@dataclass(frozen=True)
class InstructionSet:
    """``code``: a return to the caller.

    ``divides`` tells whether an instruction is a division, ``is_wide`` whether a division has 64 bits, ``multiplies``
    whether it is a multiplication and nothing else, ``dividend`` which register has the lowest 64 bits of what is
    divided. ``idles`` tells whether an instruction takes time without doing a kernel's work: a pause, a fence, an
    atomic or a privileged one. On x86-64, where times are measured, it is any that compilers do not make of a kernel.
    """

    name: str
    architecture: int
    mode: int
    code: bytes
    registers: CallRegisters
    relocations: Mapping[int, Relocation]
    divides: Callable[[bytes], bool]
    multiplies: Callable[[bytes], bool]
    is_wide: Callable[[bytes], bool]
    dividend: Callable[[bytes], int]
    idles: Callable[[bytes], bool]

    def start(self) -> Any:
        return _UC.Uc(self.architecture, self.mode)


CLOCK_INSTRUCTIONS = {"riscv64": 15}
"""Instructions of a wrapper per clock call, where it is not `USUAL`: 10⁹ and the way to the C library take more."""
USUAL = 10
"""On the others: user space computes nanoseconds from two numbers."""


def clock_instructions(machine: str) -> int:
    return CLOCK_INSTRUCTIONS.get(machine, USUAL)


def share(machine: str, family: str) -> float:
    """Return how many times the instructions of BPF and x86-64 a benchmark's step comes to on a machine."""
    return FEWER.get(machine, {}).get(family, 1.0)


def is_known(name: str) -> bool:
    """Tell whether the proof can execute the code of an architecture, by Debian's name for it."""
    return any(machine.name == name for machine in MACHINES.values())


def machine_of(elf_machine: str) -> InstructionSet:
    """Return the machine by ELF's name for it. Raises ProgramError for one that is not known."""
    if elf_machine not in MACHINES:
        raise ProgramError(f"the proof of equal work does not know machine {elf_machine}")
    return MACHINES[elf_machine]


_LEGACY_PREFIXES = frozenset(b"\x66\xf2\xf3\xf0\x2e\x36\x3e\x26\x64\x65\x67")
_LOCK, _REPEATS, _MODE_REGISTER = 0xF0, (0xF2, 0xF3), 0xC0
_STRINGS = (*range(0xA4, 0xA8), *range(0xAA, 0xB0))
_NOP_OR_PAUSE, _EXCHANGES, _SHIFTS, _INDIRECT = 0x90, (0x86, 0x87), (0xC0, 0xC1, 0xD0, 0xD1, 0xD2, 0xD3), 0xFF
_ENDBR = b"\x0f\x1e\xfa"
_QUICK = frozenset(
    (
        *(first + one for first in range(0, 0x40, 8) for one in range(6)),
        *(*range(0x50, 0x60), 0x63, *range(0x68, 0x6C), *range(0x70, 0x82), *range(0x83, 0x8C), 0x8D),
        *(*range(0x90, 0x9A), *_STRINGS, 0xA8, 0xA9, *range(0xB0, 0xC2), 0xC3, 0xC6, 0xC7),
        *(*range(0xD0, 0xD4), 0xE8, 0xE9, 0xEB, 0xF6, 0xF7, 0xFE, _INDIRECT),
    )
)
"""Opcodes of one byte that a compiler makes of a kernel: arithmetic, stack, conditional jumps, moves, LEA, exchanges of
registers, sign extension, strings, TEST, shifts, RET, CALL, JMP. All others take long, or work on what no kernel has:
ports, x87, AVX, segments, flags, interrupts, tables."""
_QUICK_0F = frozenset(
    (
        *(0x10, 0x11, 0x12, 0x14, 0x16, 0x1F, 0x28, 0x29, *range(0x54, 0x58), *range(0x60, 0x77), 0x7E, 0x7F, 0xC6),
        *(*range(0x40, 0x50), *range(0x80, 0xA0), 0xA3, 0xA4, 0xA5, 0xAB, 0xAC, 0xAD, 0xAF, 0xB3, 0xB6, 0xB7),
        *(*range(0xBA, 0xC0), *range(0xC8, 0xD0), *range(0xD1, 0xD5), 0xD6, 0xDB, 0xDF, 0xEB, 0xEF),
        *(*range(0xF1, 0xF4), *range(0xF8, 0xFF)),
    )
)
"""Opcodes behind 0F: moves, logic, shifts and sums of whole numbers in XMM registers, NOP, CMOV, conditional jumps,
SETcc, bits, double shifts, IMUL, extension, BSWAP. Not the stores past the caches, multiplications, and conversions."""
_OF_REGISTERS_ONLY = (0xA3, 0xAB, 0xB3, 0xBB)
"""BT and the like: with a bit's number in a register and memory, they are made of many steps."""


def _x86_parts(code: bytes) -> tuple[set[int], int, bytes]:
    """Return an instruction's legacy prefixes, its REX prefix (0: none) and the rest."""
    at = next((at for at, byte in enumerate(code) if byte not in _LEGACY_PREFIXES), len(code))
    rex = code[at] if at < len(code) and code[at] & 0xF0 == 0x40 else 0
    return set(code[:at]), rex, code[at + bool(rex) :]


def _x86_divides(code: bytes) -> bool:
    """DIV and IDIV: opcodes F6 and F7 with /6 and /7."""
    _, _, rest = _x86_parts(code)
    return len(rest) > 1 and rest[0] in (0xF6, 0xF7) and rest[1] >> 3 & 7 in (6, 7)


def _x86_multiplies(code: bytes) -> bool:
    """MUL and IMUL: F6 and F7 with /4 and /5, 69, 6B, 0F AF."""
    _, _, rest = _x86_parts(code)
    by_accumulator = len(rest) > 1 and rest[0] in (0xF6, 0xF7) and rest[1] >> 3 & 7 in (4, 5)
    return by_accumulator or rest[:1] in (b"\x69", b"\x6b") or rest[:2] == b"\x0f\xaf"


def _x86_idles(code: bytes) -> bool:
    prefixes, _, rest = _x86_parts(code)
    repeats = any(prefix in prefixes for prefix in _REPEATS)
    if _LOCK in prefixes or not rest:
        return True
    if rest[0] == 0x0F:
        in_memory = rest[1] in _OF_REGISTERS_ONLY and rest[2] < _MODE_REGISTER
        return in_memory or (rest[1] not in _QUICK_0F and rest != _ENDBR)
    field = rest[1] >> 3 & 7 if len(rest) > 1 else 0
    exchanges_memory = rest[0] in _EXCHANGES and rest[1] < _MODE_REGISTER  # which locks it
    rotates_carry, is_far = rest[0] in _SHIFTS and field in (2, 3), rest[0] == _INDIRECT and field in (3, 5)
    waits = repeats and (rest[0] == _NOP_OR_PAUSE or rest[0] in _STRINGS)
    return rest[0] not in _QUICK or exchanges_memory or rotates_carry or is_far or waits


def _arm64_divides(code: bytes) -> bool:
    """UDIV and SDIV (Arm ARM, C4.1: data-processing, two sources)."""
    return int.from_bytes(code, "little") & 0x7FE0F800 == 0x1AC00800


def _arm64_multiplies(code: bytes) -> bool:
    """MUL: MADD that adds the zero register (Arm ARM, C4.1: data-processing, three sources)."""
    return int.from_bytes(code, "little") & 0x7FE0FC00 == 0x1B007C00


def _arm64_idles(code: bytes) -> bool:
    """YIELD, WFE, WFI; CLREX, DSB, DMB, ISB; exclusive loads and stores (Arm ARM, C4.1)."""
    word = int.from_bytes(code, "little")
    waits = word in (0xD503203F, 0xD503205F, 0xD503207F)
    return waits or word & 0xFFFFF01F == 0xD503301F or word & 0x3F000000 == 0x08000000


def _riscv_divides(code: bytes) -> bool:
    """DIV, DIVU, REM, REMU and their 32-bit forms (The RISC-V Instruction Set Manual, M extension)."""
    word = int.from_bytes(code, "little")
    return len(code) == 4 and word & 0x77 == 0x33 and word >> 25 == 1 and word >> 14 & 1 == 1


def _riscv_multiplies(code: bytes) -> bool:
    """MUL, MULH, MULHSU, MULHU, MULW."""
    word = int.from_bytes(code, "little")
    return len(code) == 4 and word & 0x77 == 0x33 and word >> 25 == 1 and not word >> 14 & 1


def _riscv_idles(code: bytes) -> bool:
    """FENCE and PAUSE, atomic ones, SYSTEM: by the opcode of 32-bit instructions."""
    return len(code) == 4 and code[0] & 0x7F in (0x0F, 0x2F, 0x73)


def _bits(mask: int, at: int, shift: int) -> Callable[[int, int], int]:
    """Put a value, without its lowest ``shift`` bits, into an instruction."""
    return lambda old, value: old & ~(mask << at) | (value >> shift & mask) << at


def _page(old: int, value: int) -> int:
    """Put a distance in pages into ADRP."""
    pages = value >> 12
    return old & ~(3 << 29 | 0x7FFFF << 5) | (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5


# psABI of x86-64, table 4.10.
_X86: dict[int, Relocation] = {
    1: Relocation(8),  # R_X86_64_64
    2: Relocation(4, relative=True),  # PC32
    4: Relocation(4, relative=True),  # PLT32
    6: Relocation(8, addend=False),  # GLOB_DAT
    7: Relocation(8, addend=False),  # JUMP_SLOT
    8: Relocation(8, symbol=False),  # RELATIVE
    10: Relocation(4),  # 32
    11: Relocation(4),  # 32S
    24: Relocation(8, relative=True),  # PC64
}

# ELF for the Arm 64-bit Architecture, 5.7.
_ARM64: dict[int, Relocation] = {
    257: Relocation(8),  # R_AARCH64_ABS64
    258: Relocation(4),  # ABS32
    260: Relocation(8, relative=True),  # PREL64
    261: Relocation(4, relative=True),  # PREL32
    275: Relocation(4, relative=True, page=True, put=_page),  # ADR_PREL_PG_HI21
    277: Relocation(4, put=_bits(0xFFF, 10, 0)),  # ADD_ABS_LO12_NC
    278: Relocation(4, put=_bits(0xFFF, 10, 0)),  # LDST8_ABS_LO12_NC
    282: Relocation(4, relative=True, put=_bits(0x3FFFFFF, 0, 2)),  # JUMP26
    283: Relocation(4, relative=True, put=_bits(0x3FFFFFF, 0, 2)),  # CALL26
    284: Relocation(4, put=lambda old, value: _bits(0x7FF, 10, 1)(old, value & 0xFFF)),  # LDST16_ABS_LO12_NC
    285: Relocation(4, put=lambda old, value: _bits(0x3FF, 10, 2)(old, value & 0xFFF)),  # LDST32_ABS_LO12_NC
    286: Relocation(4, put=lambda old, value: _bits(0x1FF, 10, 3)(old, value & 0xFFF)),  # LDST64_ABS_LO12_NC
    1025: Relocation(8),  # GLOB_DAT
    1026: Relocation(8),  # JUMP_SLOT
    1027: Relocation(8, symbol=False),  # RELATIVE
}

# RISC-V ELF psABI, "Relocations": those of a shared object.
_RISCV: dict[int, Relocation] = {
    2: Relocation(8),  # R_RISCV_64
    3: Relocation(8, symbol=False),  # RELATIVE
    5: Relocation(8),  # JUMP_SLOT
}

FEWER: dict[str, dict[str, float]] = {
    "arm64": {
        "matrix": 0.52,
        "matrix_random": 0.63,
        "matrix_random_bytes": 0.88,
        "primes": 0.69,
        "primes_narrow": 0.69,
        "primes_clang": 0.64,
        "primes_narrow_clang": 0.64,
        "chain": 0.88,
        "chase": 0.7,
        "lookup": 0.79,
    },
    "riscv64": {
        "matrix": 0.83,
        "primes": 0.49,
        "primes_narrow": 0.61,
        "primes_clang": 0.48,
        "primes_narrow_clang": 0.48,
        "chain": 1.1,
    },
}
"""How many times the instructions of a step (`Task.per_step`) a machine's code has, by the benchmark's family, where it
is not about as many: what gcc 12 and clang 14 make. arm64 multiplies and adds in one instruction, RISC-V has a
remainder of its own.
"""


def _registers(constants: Any, prefix: str, single: str, **numbered: range) -> tuple[int, ...]:
    names = [*single.split(), *(f"{name}{n}" for name, numbers in numbered.items() for n in numbers)]
    return tuple(getattr(constants, f"UC_{prefix}_REG_{name}") for name in names)


_ARM64_NUMBERED = _registers(arm64_const, "ARM64", "", X=range(31)) + _registers(arm64_const, "ARM64", "XZR")
_RISCV_NUMBERED = _registers(riscv_const, "RISCV", "", X=range(32))
"""The registers by their number in an instruction."""

_UC: Any = unicorn
MACHINES: dict[str, InstructionSet] = {
    "EM_X86_64": InstructionSet(
        "x86-64",
        _UC.UC_ARCH_X86,
        _UC.UC_MODE_64,
        b"\xc3",
        CallRegisters(
            (x86_const.UC_X86_REG_RDI, x86_const.UC_X86_REG_RSI, x86_const.UC_X86_REG_RDX),
            x86_const.UC_X86_REG_RAX,
            x86_const.UC_X86_REG_RSP,
            None,
            x86_const.UC_X86_REG_RSI,
            _registers(x86_const, "X86", "RAX RBX RCX RBP GS_BASE", R=range(8, 16), XMM=range(16)),
        ),
        _X86,
        _x86_divides,
        _x86_multiplies,
        lambda code: bool(_x86_parts(code)[1] & 8),
        lambda code: x86_const.UC_X86_REG_RAX,
        _x86_idles,
    ),
    "EM_AARCH64": InstructionSet(
        "arm64",
        _UC.UC_ARCH_ARM64,
        _UC.UC_MODE_ARM,
        bytes.fromhex("c0035fd6"),
        CallRegisters(
            (arm64_const.UC_ARM64_REG_X0, arm64_const.UC_ARM64_REG_X1, arm64_const.UC_ARM64_REG_X2),
            arm64_const.UC_ARM64_REG_X0,
            arm64_const.UC_ARM64_REG_SP,
            arm64_const.UC_ARM64_REG_X30,
            arm64_const.UC_ARM64_REG_X1,
            _registers(arm64_const, "ARM64", "", X=range(3, 30), D=range(32)),
        ),
        _ARM64,
        _arm64_divides,
        _arm64_multiplies,
        lambda code: bool(code[3] & 0x80),
        lambda code: _ARM64_NUMBERED[int.from_bytes(code, "little") >> 5 & 31],
        _arm64_idles,
    ),
    "EM_RISCV": InstructionSet(
        "riscv64",
        _UC.UC_ARCH_RISCV,
        _UC.UC_MODE_RISCV64,
        bytes.fromhex("8280"),
        CallRegisters(
            (riscv_const.UC_RISCV_REG_A0, riscv_const.UC_RISCV_REG_A1, riscv_const.UC_RISCV_REG_A2),
            riscv_const.UC_RISCV_REG_A0,
            riscv_const.UC_RISCV_REG_SP,
            riscv_const.UC_RISCV_REG_RA,
            riscv_const.UC_RISCV_REG_A1,
            _registers(riscv_const, "RISCV", "", T=range(7), S=range(12), A=range(3, 8), F=range(32)),
        ),
        _RISCV,
        _riscv_divides,
        _riscv_multiplies,
        lambda code: not code[0] & 8,
        lambda code: _RISCV_NUMBERED[int.from_bytes(code, "little") >> 15 & 31],
        _riscv_idles,
    ),
}
"""By ELF's name."""
