"""A BPF object as the kernel would see it: one program, its subprograms, and what its instructions refer to."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass, field

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import SymbolTableSection

from xdplab.errors import ProgramError

INSN_BYTES = 8
_R_BPF_64_64 = 1  # a 64-bit immediate: a map, or a variable's address
_R_BPF_64_32 = 10  # a call


@dataclass(frozen=True)
class Insn:
    """One instruction; a 64-bit immediate takes two places, the second holding its upper half."""

    code: int
    dst: int
    src: int
    off: int
    imm: int


@dataclass(frozen=True)
class Reference:
    """What a 64-bit immediate means: a map by name, or ``offset`` bytes into a data section."""

    section: str
    symbol: str
    offset: int


MAP_SECTIONS = (".maps", "maps")
"""Maps described by BTF, and those of libbpf before 1.0."""


@dataclass(frozen=True)
class Image:
    """A program at instruction 0, the object's subprograms behind it; calls are already resolved."""

    name: str
    section: str
    insns: tuple[Insn, ...]
    functions: dict[int, str]
    references: dict[int, Reference]
    data: dict[str, bytes] = field(repr=False)

    @property
    def maps(self) -> tuple[str, ...]:
        """Names of the maps that it refers to."""
        return tuple(dict.fromkeys(r.symbol for r in self.references.values() if r.section in MAP_SECTIONS))


def decode(code: bytes) -> tuple[Insn, ...]:
    """Return the instructions of raw bytes, as of an ELF section or of a kernel dump. Little-endian objects only."""
    if len(code) % INSN_BYTES:
        raise ProgramError(f"{len(code)} bytes are no BPF instructions")
    return tuple(Insn(op, regs & 15, regs >> 4, off, imm) for op, regs, off, imm in struct.iter_unpack("<BBhi", code))


def read_image(data: bytes, section: str = "xdp", *, several: bool = False) -> Image:
    """Return what is in ``section`` of an ELF object.

    Raises ProgramError if it has no program, or more than one and not ``several`` are allowed.
    """
    try:
        elf = ELFFile(io.BytesIO(data))
    except ELFError as error:
        raise ProgramError(f"this is no BPF object: {error}") from None
    if elf["e_machine"] != "EM_BPF" or not elf.little_endian:
        raise ProgramError("this is no little-endian BPF object", remedy="compile it with `clang -target bpf`")
    return _Reader(elf).image(section, several=several)


class _Reader:
    def __init__(self, elf: ELFFile) -> None:
        self.elf = elf
        self.sections = list(elf.iter_sections())
        self.names = [part.name for part in self.sections]
        table = next((part for part in self.sections if isinstance(part, SymbolTableSection)), None)
        self.symbols = list(table.iter_symbols()) if table else []

    def image(self, section: str, *, several: bool) -> Image:
        if section not in self.names or section == ".text":
            raise ProgramError(f"the object has no program in section {section!r}", remedy=f"it has {self._programs()}")
        main = decode(self._bytes(section))
        parts = {section: 0}
        insns = list(main)
        if ".text" in self.names and section != ".text":
            parts[".text"] = len(main)
            insns += decode(self._bytes(".text"))
        references: dict[int, Reference] = {}
        for name, start in parts.items():
            self._relocate(name, start, parts, insns, references)
        functions = self._functions(parts)
        if not several:
            self._require_one(section, [name for at, name in sorted(functions.items()) if at < len(main)])
        data = {name: self._bytes(name) for name in self.names if name.startswith((".bss", ".data", ".rodata"))}
        return Image(functions.get(0, section), section, tuple(insns), functions, references, data)

    @staticmethod
    def _require_one(section: str, names: list[str]) -> None:
        """With several programs in one section, their order would decide which is loaded; subprograms are in .text."""
        if len(names) > 1:
            raise ProgramError(
                f"section {section!r} has {len(names)} programs: {', '.join(names)}",
                remedy=f'give each a section of its own, such as SEC("xdp/{names[1]}"), and name one in `section`',
            )

    def _programs(self) -> str:
        executable = [part.name for part in self.sections if part["sh_flags"] & 4 and part.name != ".text"]
        return ", ".join(executable) or "none"

    def _bytes(self, name: str) -> bytes:
        part = self.sections[self.names.index(name)]
        return bytes(part["sh_size"]) if part["sh_type"] == "SHT_NOBITS" else bytes(part.data())

    def _functions(self, parts: dict[str, int]) -> dict[int, str]:
        return {
            parts[self._section_of(symbol)] + symbol["st_value"] // INSN_BYTES: symbol.name
            for symbol in self.symbols
            if symbol["st_info"]["type"] == "STT_FUNC" and self._section_of(symbol) in parts
        }

    def _section_of(self, symbol: object) -> str:
        index = symbol["st_shndx"]  # type: ignore[index]
        return self.names[index] if isinstance(index, int) else ""

    def _relocate(
        self, name: str, start: int, parts: dict[str, int], insns: list[Insn], references: dict[int, Reference]
    ) -> None:
        wanted = self.names.index(name)
        for part in self.sections:
            if not isinstance(part, RelocationSection) or part["sh_info"] != wanted:
                continue
            for relocation in part.iter_relocations():
                at = start + relocation["r_offset"] // INSN_BYTES
                symbol = self.symbols[relocation["r_info_sym"]]
                where = self._section_of(symbol)
                if relocation["r_info_type"] == _R_BPF_64_64:
                    offset = symbol["st_value"] + insns[at].imm
                    references[at] = Reference(where, symbol.name or where, offset)
                elif relocation["r_info_type"] == _R_BPF_64_32 and where in parts:
                    target = parts[where] + symbol["st_value"] // INSN_BYTES + insns[at].imm + 1
                    old = insns[at]
                    insns[at] = Insn(old.code, old.dst, old.src, old.off, target - at - 1)
