"""x86-64 machine code as text, by objdump."""

from __future__ import annotations

import re
import subprocess
import tempfile
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
