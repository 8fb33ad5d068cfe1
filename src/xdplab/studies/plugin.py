"""What the plugin wrote of one measurement (native/costplugin/plugin.c has the format).

Machine code of x86-64 and arm64 as text, by objdump; how often a pass through it reads and writes memory.

A repeated string instruction of x86-64 is one load and one store, as it is one instruction; so is a pair of registers
of arm64 one load. Sources: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2; Arm Architecture
Reference Manual for A-profile architecture, C3.2 "Loads and stores".
"""

from __future__ import annotations

import bisect
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from xdplab.errors import MissingToolError

Numbers = np.ndarray[Any, np.dtype[np.int64]]

INTERRUPTS = (
    *("asm_sysvec_", "asm_common_interrupt", "irq_entries_start", "common_interrupt_return", "restore_regs"),
    *("early_xen_iret_patch", "error_return", "native_irq_return_iret"),
    *("vectors", "el1h_64_irq", "el0t_64_irq", "ret_to_kernel", "ret_to_user"),  # arm64's
)
"""How the kernel's functions begin below which a CPU answers an interrupt."""

X86_64, AARCH64 = "x86_64", "aarch64"
"""The machines of guests that are counted."""


class CodeBlock(NamedTuple):
    """Code that runs as one piece: the addresses of its instructions, what it ends with, and its bytes."""

    addresses: tuple[int, ...]
    ending: str
    code: bytes


_ALIKE = re.compile(
    rb"(?:ran [^\n]*\n)+|(?:block [^\n]*\n)+|(?:path [^\n]*\n)+|(?:took [^\n]*\n)+|(?:touched [^\n]*\n)+|"
    rb"window\n|look [^\n]*\n|shorter [^\n]*\n|machine [^\n]*\n"
)
"""Lines of one kind that follow each other."""


@dataclass
class Ran:
    """What ran between two marks. ``blocks``: how often each block on each call path, shape (n, 3): numbers of paths
    and blocks, and times. ``took``: runs of the program, by their instructions with those of what they called.
    ``touched``: path, block and address of a cache line that it read or wrote, if this was noted."""

    blocks: Numbers = field(default_factory=lambda: np.empty((0, 3), dtype=np.int64))
    took: dict[int, int] = field(default_factory=dict)
    touched: list[tuple[int, int, int]] = field(default_factory=list)


@dataclass
class ClockLook(Ran):
    """What ran up to a look at the clock, which was on a call ``path``: so many ``instructions``."""

    path: int = 0
    instructions: int = 0


class Plugin:
    """What the plugin wrote of one measurement. ``looks``: of each window, those at the clock; the window itself has
    what ran after the last."""

    def __init__(self, text: bytes) -> None:
        self.blocks: list[CodeBlock] = []
        self.paths: list[tuple[int, int]] = [(-1, 0)]
        self.windows: list[Ran] = []
        self.looks: list[list[ClockLook]] = []
        self.machine = X86_64
        self._window: list[ClockLook] = []
        self._filled = Ran()
        for lines in _ALIKE.findall(text):
            self._read(lines)

    def _read(self, lines: bytes) -> None:
        """Read lines of one kind that follow each other."""
        kind = lines[: lines.index(b" ")] if b" " in lines[:10] else lines
        if kind == b"ran":
            numbers = np.array(lines.replace(b"ran ", b"").split(), dtype=np.int64)
            self._filled.blocks = numbers.reshape(-1, 3)
        elif kind == b"took":
            took = (map(int, line.split()[1:]) for line in lines.splitlines())
            self.windows[-1].took.update((instructions, times) for instructions, times in took)
        elif kind == b"touched":
            rows = (line.split() for line in lines.splitlines())
            self.windows[-1].touched += [(int(path), int(block), int(line, 16)) for _, path, block, line in rows]
        elif lines == b"window\n":
            self._filled = Ran()
            self.windows.append(self._filled)
            self.looks.append(self._window)
            self._window = []
        elif kind == b"look":
            _, path, instructions = map(int, lines.replace(b"look", b"0").split())
            self._filled = look = ClockLook(path=path, instructions=instructions)
            self._window.append(look)
        elif kind == b"block":
            for line in lines.decode().splitlines():
                _, start, ending, sizes, code = line.split()
                addresses = tuple(_addresses(int(start, 16), sizes))
                self.blocks.append(CodeBlock(addresses, ending, bytes.fromhex(code)))
        elif kind == b"shorter":
            block = self.blocks[number := int(lines.split()[1])]
            size = block.addresses[-1] - block.addresses[0]
            self.blocks[number] = CodeBlock(block.addresses[:-1], "on", block.code[:size])
        elif kind == b"machine":
            self.machine = lines.split()[1].decode()
        elif kind == b"path":
            for line in lines.decode().splitlines():
                _, parent, address = line.split()
                self.paths.append((int(parent), int(address, 16)))

    def path(self, number: int) -> list[int]:
        """Return the addresses of a call path, outermost first: a call's, what it calls, a call's again."""
        addresses = []
        while number > 0:
            number, address = self.paths[number]
            addresses.append(address)
        return addresses[::-1]


def _addresses(start: int, sizes: str) -> Iterator[int]:
    for size in sizes.split(","):
        yield start
        start += int(size)


def functions_used(plugin: Plugin, symbols: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return of a kernel's functions (address and name, in order) those that were met: their starts and names."""
    starts = [address for address, _ in symbols]
    used = {bisect.bisect_right(starts, block.addresses[0]) - 1 for block in plugin.blocks}
    used |= {bisect.bisect_right(starts, address) - 1 for _, address in plugin.paths}
    return [symbols[index] for index in sorted(used) if index >= 0]


class _Tool(NamedTuple):
    """An objdump: its ``name``, the Debian package, the name it has for the machine, and what a row looks like."""

    name: str
    package: str
    machine: str
    row: re.Pattern[str]


_TOOLS = {
    X86_64: _Tool("objdump", "binutils", "i386:x86-64", re.compile(
        r"^\s*([0-9a-f]+):\t((?:(?:lock|rep[nz]*|repnz|notrack|data16|bnd|cs|ds|es|ss) +)*)(\S+)\s*([^#]*)(?:#.*)?$"
    )),
    AARCH64: _Tool("aarch64-linux-gnu-objdump", "binutils-aarch64-linux-gnu", "aarch64", re.compile(
        r"^\s*([0-9a-f]+):\t()(\S+)\s*(.*?)(?://.*)?$"
    )),
}  # fmt: skip


class Disassembled(NamedTuple):
    """An instruction, x86-64's in AT&T syntax; ``prefixes`` such as ``lock`` stand before its name."""

    address: int
    prefixes: str
    name: str
    operands: str

    def __str__(self) -> str:
        return f"{self.prefixes}{self.name} {self.operands}".strip()


def disassembled(code: bytes, start: int = 0, machine: str = X86_64) -> list[Disassembled]:
    """Return the instructions of code that begins at the address ``start``. Raises MissingToolError without objdump."""
    with tempfile.NamedTemporaryFile(prefix="xdplab-code-") as file:
        file.write(code)
        file.flush()
        tool = _TOOLS[machine]
        argv = [tool.name, "-D", "-b", "binary", "-m", tool.machine, "--no-show-raw-insn"]
        try:
            printed = subprocess.run(
                [*argv, f"--adjust-vma={start:#x}", file.name], capture_output=True, text=True, check=True
            ).stdout
        except FileNotFoundError:
            raise MissingToolError(f"costs are told by {tool.name}", remedy=f"apt install {tool.package}") from None
    rows = (tool.row.match(line) for line in printed.splitlines())
    return [Disassembled(int(row[1], 16), row[2], row[3], row[4].strip()) for row in rows if row]


_NEITHER = ("lea", "nop", "endbr", "prefetch", "lfence", "mfence", "sfence", "clflush")
_READ_ONLY = ("cmp", "test", "bt", "ucomi", "comi", "mul", "imul", "div", "idiv", "verw")
_READ_AND_WRITE = ("cmpxchg", "bts", "btr", "btc")
_WRITE_ONLY = ("mov", "set", "stos", "vmov", "movnt", "fxsave", "xsave")
_IMPLICIT = {
    "push": (0, 1), "pop": (1, 0), "call": (0, 1), "ret": (1, 0), "leave": (1, 0), "iret": (5, 0),
    "movs": (1, 1), "stos": (0, 1), "lods": (1, 0), "cmps": (2, 0), "scas": (1, 0),
}  # fmt: skip
_STACK = re.compile(r"^(push|pop|call|ret|leave|iret)f?[wlq]?$")
_STRING = re.compile(r"^(movs|stos|lods|cmps|scas)[bwlq]?$")

_ARM64_ATOMIC = re.compile(r"(?:ld|st)(?:add|clr|eor|set|[su]max|[su]min)|swp|cas")


def accesses_of(pieces: Sequence[bytes], machine: str = X86_64) -> list[tuple[int, int]]:
    """Return loads and stores of each piece of code. Raises MissingToolError without objdump."""
    counts = [[0, 0] for _ in pieces]
    owners: list[int] = [number for number, piece in enumerate(pieces) for _ in piece]
    kind = accesses if machine == X86_64 else arm64_accesses
    for one in disassembled(b"".join(pieces), machine=machine):
        loads, stores = kind(one.name, one.operands)
        counts[owners[one.address]][0] += loads
        counts[owners[one.address]][1] += stores
    return [(loads, stores) for loads, stores in counts]


def arm64_accesses(name: str, operands: str) -> tuple[int, int]:
    """Return loads and stores of one instruction of arm64."""
    if _ARM64_ATOMIC.match(name):
        return 1, 1
    clears_a_block = name == "dc" and operands.startswith("zva")
    return int(name.startswith("ld")), int(name.startswith("st") or clears_a_block)


def accesses(name: str, operands: str) -> tuple[int, int]:
    """Return loads and stores of one instruction of x86-64, in the AT&T syntax of objdump."""
    string = _STRING.match(name)
    if string and "s:(" in operands:
        return _IMPLICIT[string[1]]
    root = stack[1] if (stack := _STACK.match(name)) else ""
    if not root and name.startswith(_NEITHER):
        return 0, 0
    loads, stores = _IMPLICIT.get(root, (0, 0))
    if not _has_memory(name, operands):
        return loads, stores
    if root in ("push", "call") or (name.startswith(("jmp", *_READ_ONLY)) and not name.startswith(_READ_AND_WRITE)):
        return loads + 1, stores
    if root == "pop":
        return loads, stores + 1
    target = _parts(operands)[-1]
    if not _has_memory(name, target):
        return loads + 1, stores
    return (loads, stores + 1) if name.startswith(_WRITE_ONLY) else (loads + 1, stores + 1)


def _has_memory(name: str, operands: str) -> bool:
    """Tell whether an operand is in memory: a base in brackets, or an address; a jump's own address is none."""
    if name.startswith(("j", "call", "loop")):
        return operands.startswith("*") and not operands.startswith("*%r")
    return "(" in operands or "s:0x" in operands or re.search(r"(?:^|,)0x[0-9a-f]+(?:$|,)", operands) is not None


def _parts(operands: str) -> list[str]:
    return re.split(r",(?![^(]*\))", operands.partition("#")[0].strip())
