"""``objdump -dr --no-show-raw-insn``: one step per instruction, with its jump target and callee."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Literal

from xdplab.formats.reading import lines_of, refuse

TOOL = "objdump"
Kind = Literal["call", "jump", "branch", "return", "divide", "other"]

_FUNCTION = re.compile(r"^(?P<at>[0-9a-f]+) <(?P<name>[^>]+)>:$")
_INSTRUCTION = re.compile(r"^\s*(?P<at>[0-9a-f]+):\t\s*(?P<text>[^#\s](?:.*\S)?)\s*$")
_RELOCATION = re.compile(r"^\s*(?P<at>[0-9a-f]+): R_\w+\s+(?P<symbol>[^\s+-]+)(?P<offset>[+-]0x[0-9a-f]+)?")
_TARGET = re.compile(r"[\s,](?P<at>[0-9a-f]+) <(?P<symbol>[^>+]+)(?P<offset>\+0x[0-9a-f]+)?>")
_ADDRESS_TO = re.compile(r"^movabs \$0x0,(?P<register>%\w+)$")
_PREFIXES = ("bnd", "notrack", "rep", "repz", "lock", "cs", "ds", "data16")
_RETURNS = ("__x86_return_thunk",)
"""Where a kernel jumps to instead of returning."""


@dataclass(frozen=True)
class Dialect:
    """How one machine's instructions are written: the mnemonics of each kind (``*``: and all that begin so).

    ``comment`` begins what objdump adds. ``relocated``: at which bytes of an instruction its relocation may stand;
    one further on belongs to another. ``memory``: whether an instruction reads and writes memory.
    """

    objdump: str
    comment: str
    relocated: range
    kinds: tuple[tuple[Kind, tuple[str, ...]], ...]
    indirect: tuple[str, ...]
    memory: Callable[[str, str], tuple[bool, bool]]

    def kind(self, mnemonic: str) -> Kind:
        for kind, names in self.kinds:
            if any(mnemonic == name or (name[-1] == "*" and mnemonic.startswith(name[:-1])) for name in names):
                return kind
        return "other"


@dataclass(frozen=True)
class CodeLine:
    """One instruction: ``target`` is the address a jump or branch goes to, ``callee`` what a call calls.

    A jump to another function is a call and then a return: a ``return`` with a ``callee``. ``loads`` and ``stores``:
    whether it reads or writes memory; what pushes and pops is neither.
    """

    at: int
    kind: Kind
    text: str
    target: int | None = None
    callee: str | None = None
    loads: bool = False
    stores: bool = False


def parse_objdump(data: bytes | str, machine: str = "x86-64") -> dict[str, list[CodeLine]]:
    """Return the steps of each function of a machine in `DIALECTS`. Raises FormatError naming the line."""
    dialect = DIALECTS[machine]
    lines = lines_of(data, TOOL)
    named = {int(match["at"], 16): _plain(match["name"]) for line in lines if (match := _FUNCTION.match(line))}
    functions: dict[str, list[CodeLine]] = {}
    reader = None
    for number, line in enumerate(lines, start=1):
        if match := _FUNCTION.match(line):
            reader = _Reader(_plain(match["name"]), named, dialect)
            functions[reader.name] = reader.steps
        elif match := _INSTRUCTION.match(line):
            if reader is None:
                refuse(TOOL, "an instruction outside of any function", line=number, text=line)
            relocations = takewhile(bool, map(_RELOCATION.match, islice(lines, number, None)))
            reader.read(int(match["at"], 16), match["text"], relocations)
    if not functions:
        refuse(TOOL, "no function", text=lines[0])
    return functions


def _plain(name: str) -> str:
    """Return a function's name without the compiler's suffix (``.isra.0``) and the linker's ``@plt``."""
    return name.removesuffix("@plt").split(".")[0] or name


class _Reader:
    """Reads one function. ``named`` are the listing's functions by their address.

    A kernel may be built to call through registers (user-mode Linux is): ``registers`` are those that hold a known
    function's address, since the last instruction that wrote them.
    """

    def __init__(self, name: str, named: Mapping[int, str], dialect: Dialect) -> None:
        self.name, self.named, self.dialect = name, named, dialect
        self.steps: list[CodeLine] = []
        self.registers: dict[str, str] = {}

    def read(self, at: int, text: str, relocations: Iterable[re.Match[str] | None]) -> None:
        symbol = self._relocated(at, relocations)
        target = _TARGET.search(text)
        callee = symbol or (_plain(target["symbol"]) if target else None)
        parts = _parts(text, self.dialect.comment)
        if parts[0].startswith("call") and parts[-1].startswith("*%"):
            callee = self.registers.get(parts[-1][1:], "?")
        self._remember(text, symbol)
        self.steps.append(_step(at, text, parts, target, callee, self.name, self.dialect))

    def _relocated(self, at: int, relocations: Iterable[re.Match[str] | None]) -> str | None:
        """Return the symbol of this instruction's relocation; objdump also prints those of earlier ones beside it."""
        relocation = next((r for r in relocations if r and int(r["at"], 16) - at in self.dialect.relocated), None)
        if relocation is None:
            return None
        if not relocation["symbol"].startswith("."):
            return _plain(relocation["symbol"])
        # into a section; a relative one counts from behind its four bytes
        offset = int(relocation["offset"] or "0", 16)
        return self.named.get(offset) or self.named.get(offset + 4, "?")

    def _remember(self, text: str, symbol: str | None) -> None:
        written = text.split("#")[0].split(",")[-1].split()
        self.registers.pop(written[-1] if written else "", None)
        match = _ADDRESS_TO.match(" ".join(text.split()))
        if match and symbol:
            self.registers[match["register"]] = symbol


def _parts(text: str, comment: str) -> list[str]:
    parts = text.split(comment)[0].split()
    while len(parts) > 1 and parts[0] in _PREFIXES:
        parts.pop(0)
    return parts


def _step(
    at: int,
    text: str,
    parts: list[str],
    target: re.Match[str] | None,
    callee: str | None,
    function: str,
    dialect: Dialect,
) -> CodeLine:
    mnemonic = parts[0]
    kind = dialect.kind(mnemonic)
    if mnemonic in dialect.indirect:
        callee, target = callee or "?", None
    if kind == "call":
        return CodeLine(at, kind, text, callee=callee)
    if kind == "return":
        return CodeLine(at, kind, text)
    if kind in ("jump", "branch"):
        return _jump(at, text, kind, target, callee, function)
    loads, stores = dialect.memory(mnemonic, " ".join(parts[1:]))
    return CodeLine(at, kind, text, loads=loads, stores=stores)


def _jump(at: int, text: str, kind: Kind, target: re.Match[str] | None, callee: str | None, function: str) -> CodeLine:
    if callee in _RETURNS:
        return CodeLine(at, "return", text)
    if callee != function or target is None:
        return CodeLine(at, "return", text, callee=callee or "?")
    return CodeLine(at, kind, text, target=int(target["at"], 16))


def _x86_memory(mnemonic: str, operands: str) -> tuple[bool, bool]:
    """Return whether an instruction reads and whether it writes memory (AT&T order: the destination is the last)."""
    if "(" not in operands or mnemonic.startswith(("lea", "nop", "push", "pop")):
        return False, False
    written = operands.rstrip().endswith(")") and not mnemonic.startswith(("cmp", "test", "imul", "mul", "div", "idiv"))
    only_written = written and mnemonic.startswith(("mov", "set"))
    return not only_written, written


def _arm64_memory(mnemonic: str, operands: str) -> tuple[bool, bool]:
    """Loads and stores are instructions of their own; those of the stack save registers."""
    if "[" not in operands or "[sp" in operands:
        return False, False
    return mnemonic.startswith("ld"), mnemonic.startswith("st")


_RISCV_LOADS = frozenset({"lb", "lbu", "lh", "lhu", "lw", "lwu", "ld"})
_RISCV_STORES = frozenset({"sb", "sh", "sw", "sd"})


def _riscv_memory(mnemonic: str, operands: str) -> tuple[bool, bool]:
    """As on arm64."""
    if "(sp)" in operands:
        return False, False
    return mnemonic in _RISCV_LOADS, mnemonic in _RISCV_STORES


DIALECTS: dict[str, Dialect] = {
    "x86-64": Dialect(
        "objdump",
        "#",
        range(1, 15),
        (("call", ("call*",)), ("return", ("ret*",)), ("jump", ("jmp*",)), ("branch", ("j*",)),
         ("divide", ("div*", "idiv*"))),
        (),
        _x86_memory,
    ),
    "arm64": Dialect(
        "aarch64-linux-gnu-objdump",
        "//",
        range(1),
        (("call", ("bl", "blr")), ("return", ("ret*",)), ("jump", ("b", "br")),
         ("branch", ("b.*", "cbz", "cbnz", "tbz", "tbnz")), ("divide", ("udiv", "sdiv"))),
        ("blr", "br"),
        _arm64_memory,
    ),
    "riscv64": Dialect(
        "riscv64-linux-gnu-objdump",
        "#",
        range(1),
        (("call", ("jal", "jalr")), ("return", ("ret",)), ("jump", ("j", "jr")),
         ("branch", ("beq*", "bne*", "blt*", "bge*", "bgt*", "ble*")), ("divide", ("div*", "rem*"))),
        ("jalr", "jr"),
        _riscv_memory,
    ),
}  # fmt: skip
"""By the names of `machines`."""
