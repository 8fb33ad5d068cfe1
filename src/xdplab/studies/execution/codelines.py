"""Compiled code as lines of one form, each with its jump target and callee: what `enclosure` decides on.

They are read from ``objdump -dr --no-show-raw-insn`` of machine code, and from the instructions of a BPF object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Literal

from xdplab.formats.reading import lines_of, refuse
from xdplab.programs.disassembly import disassemble
from xdplab.programs.image import Image, Insn, read_image

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
        if parts[0] in self.dialect.indirect:
            callee, target = callee or "?", None
        self.steps.append(self._line(at, text, parts, callee, int(target["at"], 16) if target else None))

    def _line(self, at: int, text: str, parts: list[str], callee: str | None, target: int | None) -> CodeLine:
        kind = self.dialect.kind(parts[0])
        if kind == "call":
            return CodeLine(at, kind, text, callee=callee)
        if kind == "return" or (kind in ("jump", "branch") and callee in _RETURNS):
            return CodeLine(at, "return", text)
        if kind in ("jump", "branch"):
            if callee != self.name or target is None:
                return CodeLine(at, "return", text, callee=callee or "?")
            return CodeLine(at, kind, text, target=target)
        loads, stores = self.dialect.memory(parts[0], " ".join(parts[1:]))
        return CodeLine(at, kind, text, loads=loads, stores=stores)

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


HELPERS = {
    1: "bpf_map_lookup_elem",
    5: "bpf_ktime_get_ns",
    7: "bpf_get_prandom_u32",
    8: "bpf_get_smp_processor_id",
    12: "bpf_tail_call",
    195: "bpf_map_lookup_percpu_elem",
}
_LD_IMM64, _JUMPS, _WIDE = 0x18, (5, 6), 7
_ARITHMETIC = (4, _WIDE)
_GOTO, _CALL, _EXIT, _DIVIDE, _REMAINDER, _MULTIPLIES = 0x00, 0x80, 0x90, 0x30, 0x90, 0x20


def lines_of_bpf(content: bytes) -> tuple[list[CodeLine], dict[str, int], str]:
    """Return the steps of an object's XDP programs and subprograms, where each function begins, and all as text."""
    image = read_image(content, several=True)  # the chain has two, and is loaded by name
    return _bpf_lines(image), {name: at for at, name in image.functions.items()}, disassemble(image)


def _bpf_lines(image: Image) -> list[CodeLine]:
    steps, skip = [], False
    for at, insn in enumerate(image.insns):
        if not skip:
            steps.append(_bpf_line(image, at, insn))
        skip = insn.code == _LD_IMM64 and not skip
    return steps


def _bpf_line(image: Image, at: int, insn: Insn) -> CodeLine:
    kind = insn.code & 7
    if kind in _JUMPS:
        return _bpf_branch(image, at, insn)
    memory = insn.code & 0xE0 == 0x60
    return CodeLine(at, "divide" if divides(insn) else "other", "", loads=kind == 1 and memory, stores=kind in (2, 3))


def divides(insn: Insn) -> bool:
    """Tell whether an instruction is a division or takes a remainder."""
    return insn.code & 7 in _ARITHMETIC and insn.code & 0xF0 in (_DIVIDE, _REMAINDER)


def gives_quotient(insn: Insn) -> bool:
    """Tell whether an instruction divides and gives no remainder: a program that wants it has to multiply."""
    return insn.code & 7 in _ARITHMETIC and insn.code & 0xF0 == _DIVIDE


def multiplies(insn: Insn) -> bool:
    return insn.code & 7 in _ARITHMETIC and insn.code & 0xF0 == _MULTIPLIES


def widely(insn: Insn) -> bool:
    """Tell whether an instruction of arithmetic works on 64 bits."""
    return insn.code & 7 == _WIDE


def _bpf_branch(image: Image, at: int, insn: Insn) -> CodeLine:
    operation = insn.code & 0xF0
    if operation == _EXIT:
        return CodeLine(at, "return", "")
    if operation == _CALL:
        inside = image.functions.get(at + 1 + insn.imm, "?")
        return CodeLine(at, "call", "", callee=inside if insn.src == 1 else HELPERS.get(insn.imm, f"helper {insn.imm}"))
    offset = insn.imm if insn.code == 0x06 else insn.off  # the long jump of -mcpu=v4
    kind: Kind = "jump" if operation == _GOTO else "branch"
    return CodeLine(at, kind, "", target=at + 1 + offset)


def entry_of(steps: Sequence[CodeLine], at: int) -> int:
    """Return the index of the step at an instruction's place."""
    return next(i for i, step in enumerate(steps) if step.at == at)
