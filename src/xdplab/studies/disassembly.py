"""Machine code of x86-64 and arm64 as text, by objdump; how often a pass through it reads and writes memory.

A repeated string instruction of x86-64 is one load and one store, as it is one instruction; so is a pair of registers
of arm64 one load. Sources: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2; Arm Architecture
Reference Manual for A-profile architecture, C3.2 "Loads and stores".
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from typing import NamedTuple

from xdplab.errors import MissingToolError
from xdplab.studies.plugin import AARCH64, X86_64


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
_READ_ONLY = ("cmp", "test", "bt", "ucomi", "comi", "mul", "imul", "div", "idiv")
_WRITE_ONLY = ("mov", "set", "stos", "vmov", "movnt", "fxsave", "xsave")
_IMPLICIT = {
    "push": (0, 1), "pop": (1, 0), "call": (0, 1), "ret": (1, 0), "leave": (1, 0), "iret": (5, 0),
    "movs": (1, 1), "stos": (0, 1), "lods": (1, 0), "cmps": (2, 0), "scas": (1, 0),
}  # fmt: skip
_STACK = ("push", "pop", "call", "ret", "leave", "iret")
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
    if name.startswith(_NEITHER):
        return 0, 0
    root = next((root for root in _STACK if name.startswith(root)), "")
    loads, stores = _IMPLICIT.get(root, (0, 0))
    if not _has_memory(name, operands):
        return loads, stores
    if root in ("push", "call") or (name.startswith(("jmp", *_READ_ONLY)) and not name.startswith("cmpxchg")):
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
