"""x86-64 machine code as text, by objdump; how often a pass through it reads and writes memory.

A repeated string instruction is one load and one store, as it is one instruction. Source: Intel 64 and IA-32
Architectures Software Developer's Manual, volume 2.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from typing import NamedTuple

from xdplab.errors import MissingToolError

_ROW = re.compile(
    r"^\s*([0-9a-f]+):\t((?:(?:lock|rep[nz]*|repnz|notrack|data16|bnd|cs|ds|es|ss) +)*)(\S+)\s*([^#]*)(?:#.*)?$"
)


class Disassembled(NamedTuple):
    """An instruction in AT&T syntax; ``prefixes`` such as ``lock`` stand before its name."""

    address: int
    prefixes: str
    name: str
    operands: str

    def __str__(self) -> str:
        return f"{self.prefixes}{self.name} {self.operands}".strip()


def disassembled(code: bytes, start: int = 0) -> list[Disassembled]:
    """Return the instructions of code that begins at the address ``start``. Raises MissingToolError without objdump."""
    with tempfile.NamedTemporaryFile(prefix="xdplab-code-") as file:
        file.write(code)
        file.flush()
        argv = ["objdump", "-D", "-b", "binary", "-m", "i386:x86-64", "--no-show-raw-insn"]
        try:
            printed = subprocess.run(
                [*argv, f"--adjust-vma={start:#x}", file.name], capture_output=True, text=True, check=True
            ).stdout
        except FileNotFoundError:
            raise MissingToolError("costs are told by objdump", remedy="apt install binutils") from None
    rows = (_ROW.match(line) for line in printed.splitlines())
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


def accesses_of(pieces: Sequence[bytes]) -> list[tuple[int, int]]:
    """Return loads and stores of each piece of code. Raises MissingToolError without objdump."""
    counts = [[0, 0] for _ in pieces]
    owners: list[int] = [number for number, piece in enumerate(pieces) for _ in piece]
    for one in disassembled(b"".join(pieces)):
        loads, stores = accesses(one.name, one.operands)
        counts[owners[one.address]][0] += loads
        counts[owners[one.address]][1] += stores
    return [(loads, stores) for loads, stores in counts]


def accesses(name: str, operands: str) -> tuple[int, int]:
    """Return loads and stores of one instruction, in the AT&T syntax of objdump."""
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
