"""The types of a BPF object: its section .BTF, as the kernel's Documentation/bpf/btf.rst describes it."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from xdplab.errors import ProgramError

_KINDS = (
    *("void", "int", "ptr", "array", "struct", "union", "enum", "fwd", "typedef", "volatile", "const", "restrict"),
    *("func", "func_proto", "var", "datasec", "float", "decl_tag", "type_tag", "enum64"),
)
_MAGIC = 0xEB9F
_HEADER = struct.Struct("<HBBIIIII")
_TYPE = struct.Struct("<III")
_AROUND = ("typedef", "volatile", "const", "restrict", "type_tag")
_MOST_AROUND = 32
"""Names and qualifiers around a type: more are a loop in a damaged object."""


@dataclass(frozen=True)
class BtfField:
    """A field of a struct or a union. ``bits`` is the width of a bit-field, 0 for any other field."""

    name: str
    type: int
    bit_offset: int
    bits: int


@dataclass(frozen=True)
class BtfType:
    """One type. ``size`` in bytes is that of int, enum, struct and union; ``type`` is what the others refer to.

    ``count`` is the number of an array's elements; ``values`` are an enum's, by name. ``signed`` is of int and enum,
    ``boolean`` of int.
    """

    kind: str
    name: str
    size: int = 0
    type: int = 0
    count: int = 0
    members: tuple[BtfField, ...] = ()
    values: Mapping[str, int] | None = None
    signed: bool = False
    boolean: bool = False


class Btf:
    """The types by their numbers. Raises ProgramError where the section is damaged."""

    def __init__(self, section: bytes) -> None:
        try:
            magic, _, _, length, types, types_length, strings, strings_length = _HEADER.unpack_from(section)
            if magic != _MAGIC:
                raise ProgramError(
                    "the object's BTF is not little-endian BTF", remedy="compile it with `-target bpfel`"
                )
            self._strings = section[length + strings :][:strings_length]
            self._types = [BtfType("void", "void"), *self._read(section[length + types :][:types_length])]
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise ProgramError(f"the object's BTF is damaged: {error}", remedy="compile it again") from None

    def __getitem__(self, number: int) -> BtfType:
        try:
            return self._types[number]
        except IndexError:
            raise ProgramError(f"the object's BTF has no type {number}: it is damaged", remedy="compile it") from None

    def bare(self, number: int) -> BtfType:
        """Return the type without names and qualifiers around it."""
        return self._unwrapped(number)[-1]

    def names(self, number: int) -> list[str]:
        """Return the names that typedefs give the type, the outermost first, and its own."""
        return [one.name for one in self._unwrapped(number) if one.name and one.kind != "type_tag"]

    def size(self, number: int) -> int:
        """Return the bytes of a type."""
        one = self.bare(number)
        if one.kind == "array":
            return one.count * self.size(one.type)
        return 8 if one.kind == "ptr" else one.size

    def called(self, kind: str, name: str) -> BtfType | None:
        """Return the first type of that kind and name."""
        return next((one for one in self._types if (one.kind, one.name) == (kind, name)), None)

    @cached_property
    def map_variables(self) -> dict[str, int]:
        """The type of each variable in the section of maps, by the variable's name."""
        section = self.called("datasec", ".maps")
        variables = [self[member.type] for member in section.members] if section else []
        return {variable.name: variable.type for variable in variables}

    @property
    def constants(self) -> list[str]:
        """The names of the variables in the sections of constants."""
        sections = [one for one in self._types if one.kind == "datasec" and one.name.startswith(".rodata")]
        return [self[member.type].name for section in sections for member in section.members]

    def _unwrapped(self, number: int) -> list[BtfType]:
        chain = [self[number]]
        while chain[-1].kind in _AROUND and len(chain) < _MOST_AROUND:
            chain.append(self[chain[-1].type])
        return chain

    def _read(self, section: bytes) -> Iterator[BtfType]:
        at = 0
        while at < len(section):
            name, info, size = _TYPE.unpack_from(section, at)
            at += _TYPE.size
            kind, count, flag = _KINDS[info >> 24 & 0x1F], info & 0xFFFF, bool(info >> 31)
            wide = {"int": 4, "array": 12, "var": 4, "decl_tag": 4}.get(kind, 0)
            wide += count * {"struct": 12, "union": 12, "enum": 8, "enum64": 12, "func_proto": 8, "datasec": 12}.get(
                kind, 0
            )
            words = struct.unpack_from(f"<{wide // 4}I", section, at)
            at += wide
            yield self._type(kind, self._text(name), size, words, flag)

    def _type(self, kind: str, name: str, size: int, words: tuple[int, ...], flag: bool) -> BtfType:
        match kind:
            case "int":
                return BtfType(kind, name, size, signed=bool(words[0] >> 24 & 1), boolean=bool(words[0] >> 26 & 1))
            case "array":
                return BtfType(kind, name, type=words[0], count=words[2])
            case "struct" | "union":
                return BtfType(kind, name, size, members=tuple(self._members(words, flag)))
            case "datasec":
                members = [BtfField("", words[i], 8 * words[i + 1], 0) for i in range(0, len(words), 3)]
                return BtfType(kind, name, size, members=tuple(members))
            case "enum" | "enum64":
                return BtfType(kind, name, size, values=dict(self._values(kind, words, flag)), signed=flag)
            case "float":
                return BtfType(kind, name, size)
        return BtfType(kind, name, type=size)

    def _members(self, words: tuple[int, ...], with_bits: bool) -> Iterator[BtfField]:
        for i in range(0, len(words), 3):
            name, number, offset = words[i : i + 3]
            at, bits = (offset & 0xFFFFFF, offset >> 24) if with_bits else (offset, 0)
            yield BtfField(self._text(name), number, at, bits)

    def _values(self, kind: str, words: tuple[int, ...], signed: bool) -> Iterator[tuple[str, int]]:
        step = 2 if kind == "enum" else 3
        for i in range(0, len(words), step):
            value = words[i + 1] if step == 2 else words[i + 1] | words[i + 2] << 32
            bits = 32 * (step - 1)
            yield self._text(words[i]), value - (1 << bits) if signed and value >> (bits - 1) else value

    def _text(self, offset: int) -> str:
        return self._strings[offset : self._strings.index(b"\0", offset)].decode() if offset else ""
