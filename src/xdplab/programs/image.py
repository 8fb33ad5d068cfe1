"""A BPF object as the kernel would see it: one program, its subprograms, and what its instructions refer to."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from xdplab.errors import ProgramError, XdplabError
from xdplab.lazy import lazily

with lazily():  # who reads tables reads no object
    from elftools import construct
    from elftools.common import exceptions
    from elftools.elf import elffile, sections
    from elftools.elf import relocation as relocations

T = TypeVar("T")
INSN_BYTES = 8
KEPT_NAME = 15
"""Characters that the kernel keeps of the name of a program or a map."""
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
    """What a 64-bit immediate means: a map by name, or ``offset`` bytes into a data section. What a call means: the
    kernel's function (kfunc) ``symbol``, in no section."""

    section: str
    symbol: str
    offset: int


METADATA = "bpf_xdp_metadata_"
"""How the names begin of the kfuncs that read what a driver knows of a frame."""
KFUNC_CALL = 2
"""The source register of a call of a kernel's function (BPF_PSEUDO_KFUNC_CALL)."""
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

    @property
    def reads_metadata(self) -> bool:
        """Whether it calls kfuncs of a driver, so that the kernel loads it for one device only."""
        return any(one.symbol.startswith(METADATA) for one in self.references.values() if not one.section)


def decode(code: bytes) -> tuple[Insn, ...]:
    """Return the instructions of raw bytes, as of an ELF section or of a kernel dump. Little-endian objects only."""
    if len(code) % INSN_BYTES:
        raise ProgramError(f"{len(code)} bytes are no BPF instructions")
    return tuple(Insn(op, regs & 15, regs >> 4, off, imm) for op, regs, off, imm in struct.iter_unpack("<BBhi", code))


def read_image(data: bytes, section: str = "xdp", function: str | None = None) -> Image:
    """Return the program in ``section`` of an ELF object, or the one that ``function`` names, wherever it is.

    Raises ProgramError if there is none, or more than one.
    """
    return _reading(data, lambda reader: reader.image(section, function))


def named_by(data: bytes, names: Iterable[str], besides: str) -> list[str]:
    """Return the programs of an object that a static table of programs or ``names`` name, but not ``besides``.

    A name may be the beginning of a name that the kernel keeps: 15 characters.
    """
    named = {*names}
    return _reading(
        data,
        lambda reader: [
            name
            for name in reader.programs()
            if name != besides and (name in named or name[:KEPT_NAME] in named or name in reader.in_tables())
        ],
    )


def section_of(data: bytes, name: str) -> bytes:
    """Return a section of an ELF object, empty if it has none. Raises ProgramError."""
    return _reading(data, lambda reader: reader.section(name))


def damages() -> tuple[type[Exception], ...]:
    """Return what pyelftools raises: a file that was cut, or has other bytes, breaks it anywhere."""
    usual = ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError
    return exceptions.ELFError, construct.ConstructError, *usual


def _reading(data: bytes, ask: Callable[[_Reader], T]) -> T:
    if data[:4] != b"\x7fELF":
        raise ProgramError("this is no BPF object: it is no ELF file", remedy="compile it with `clang -target bpf -c`")
    try:
        elf = elffile.ELFFile(io.BytesIO(data))
        if elf["e_machine"] == "EM_BPF" and not elf.little_endian:
            raise ProgramError(
                "this is a big-endian BPF object",
                remedy="compile it with `clang -target bpfel`; of bpf2go's pair take *_bpfel.o",
            )
        if elf["e_machine"] != "EM_BPF":
            raise ProgramError("this is no BPF object", remedy="compile it with `clang -target bpf`")
        return ask(_Reader(elf))
    except XdplabError:
        raise
    except damages() as error:
        message = str(error) or type(error).__name__
        raise ProgramError(f"this is no whole BPF object: {message}", remedy="copy it again, or compile it") from None


class _Reader:
    def __init__(self, elf: elffile.ELFFile) -> None:
        self.elf = elf
        self.sections = list(elf.iter_sections())
        self.names = [part.name for part in self.sections]
        table = next((part for part in self.sections if isinstance(part, sections.SymbolTableSection)), None)
        self.symbols = list(table.iter_symbols()) if table else []

    def image(self, section: str, function: str | None) -> Image:
        place = self._place(function) if function else section
        if place not in self.names or place == ".text":
            raise ProgramError(f"the object has no program in section {section!r}", remedy=f"it has {self._programs()}")
        if function and section not in ("xdp", place):
            raise ProgramError(
                f"function {function} is in section {place!r}, not in {section!r}", remedy="omit `section`"
            )
        if not function:
            self._require_one(place, [name for name, where in self.programs().items() if where == place])
        start, end = self._extent(place, function)
        main = decode(self._bytes(place)[start:end])
        parts = {place: -start // INSN_BYTES}
        insns = list(main)
        if ".text" in self.names:
            parts[".text"] = len(main)
            insns += decode(self._bytes(".text"))
        references: dict[int, Reference] = {}
        for name in parts:
            self._relocate(name, parts, (start, end), insns, references)
        functions = self._functions(parts, (start, end))
        data = {name: self._bytes(name) for name in self.names if name.startswith((".bss", ".data", ".rodata"))}
        return Image(functions.get(0, place), place, tuple(insns), functions, references, data)

    def programs(self) -> dict[str, str]:
        """Return the functions outside of .text, which has subprograms, each with its section."""
        return {
            symbol.name: self._section_of(symbol)
            for symbol in sorted(self.symbols, key=lambda symbol: symbol["st_value"])
            if symbol["st_info"]["type"] == "STT_FUNC" and self._section_of(symbol) not in ("", ".text")
        }

    def in_tables(self) -> set[str]:
        """Return the functions that the values of maps name: static tables of programs."""
        return {
            self.symbols[one["r_info_sym"]].name
            for part in self.sections
            if isinstance(part, relocations.RelocationSection) and self.names[part["sh_info"]] == ".maps"
            for one in part.iter_relocations()
        }

    def _place(self, function: str) -> str:
        programs = self.programs()
        if function not in programs:
            raise ProgramError(
                f"the object has no program {function}", remedy=f"it has {', '.join(programs) or 'none'}"
            )
        return programs[function]

    def _extent(self, section: str, function: str | None) -> tuple[int, int]:
        """Return where a section's program begins and ends in it, in bytes."""
        for symbol in self.symbols if function else ():
            if symbol.name == function and self._section_of(symbol) == section:
                return symbol["st_value"], symbol["st_value"] + symbol["st_size"]
        return 0, len(self._bytes(section))

    @staticmethod
    def _require_one(section: str, names: list[str]) -> None:
        """With several programs in one section, their order would decide which is loaded."""
        if len(names) > 1:
            raise ProgramError(
                f"section {section!r} has {len(names)} programs: {', '.join(names)}",
                remedy=f"name one: `function: {names[0]}` in a plan, `--function {names[0]}` of a command",
            )

    def _programs(self) -> str:
        executable = [part.name for part in self.sections if part["sh_flags"] & 4 and part.name != ".text"]
        return ", ".join(executable) or "none"

    def section(self, name: str) -> bytes:
        return self._bytes(name) if name in self.names else b""

    def _bytes(self, name: str) -> bytes:
        part = self.sections[self.names.index(name)]
        return bytes(part["sh_size"]) if part["sh_type"] == "SHT_NOBITS" else bytes(part.data())

    def _functions(self, parts: dict[str, int], main: tuple[int, int]) -> dict[int, str]:
        return {
            parts[self._section_of(symbol)] + symbol["st_value"] // INSN_BYTES: symbol.name
            for symbol in self.symbols
            if symbol["st_info"]["type"] == "STT_FUNC"
            and self._section_of(symbol) in parts
            and (self._section_of(symbol) == ".text" or main[0] <= symbol["st_value"] < main[1])
        }

    def _section_of(self, symbol: object) -> str:
        index = symbol["st_shndx"]  # type: ignore[index]
        return self.names[index] if isinstance(index, int) else ""

    def _relocate(
        self,
        name: str,
        parts: dict[str, int],
        main: tuple[int, int],
        insns: list[Insn],
        references: dict[int, Reference],
    ) -> None:
        """Resolve a section's references; of the main one, only those from byte ``main[0]`` to ``main[1]``."""
        wanted = self.names.index(name)
        for part in self.sections:
            if not isinstance(part, relocations.RelocationSection) or part["sh_info"] != wanted:
                continue
            for relocation in part.iter_relocations():
                if name != ".text" and not main[0] <= relocation["r_offset"] < main[1]:
                    continue
                at = parts[name] + relocation["r_offset"] // INSN_BYTES
                symbol = self.symbols[relocation["r_info_sym"]]
                where = self._section_of(symbol)
                if relocation["r_info_type"] == _R_BPF_64_64:
                    offset = symbol["st_value"] + insns[at].imm
                    references[at] = Reference(where, symbol.name or where, offset)
                elif relocation["r_info_type"] == _R_BPF_64_32 and not where:
                    references[at] = Reference("", symbol.name, 0)
                    insns[at] = replace(insns[at], src=KFUNC_CALL, imm=0)
                elif relocation["r_info_type"] == _R_BPF_64_32 and where in parts:
                    target = parts[where] + symbol["st_value"] // INSN_BYTES + insns[at].imm + 1
                    insns[at] = replace(insns[at], imm=target - at - 1)
