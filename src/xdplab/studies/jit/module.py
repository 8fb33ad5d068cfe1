"""The test_bpf module itself: which tests it has, and which of them are classic BPF.

The log does not say whether a test is classic. The module does: its array ``tests`` has one entry per test, a buffer of
512 instructions behind a pointer to its name, then one byte of flags, of which bit 6 is CLASSIC and bit 7 is
INTERNAL (eBPF). In 6.1 they are 134 and 892; 12 of the classic ones must be refused, and 122 are run: the "about 120
tests" of the work this study repeats.
"""

from __future__ import annotations

import io
import lzma
from dataclasses import dataclass
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from xdplab.errors import FormatError

ARRAYS = {"test_bpf": "tests", "test_tail_calls": "tail_call_tests", "test_skb_segment": "skb_segment_tests"}
"""Suites, and the arrays of the module that hold them."""

_FLAGS_AT = 8 + 512 * 8
_CLASSIC, _INTERNAL = 0x40, 0x80
_STRINGS = (".rodata.str", ".rodata")
_XZ = b"\xfd7zXZ"


@dataclass(frozen=True)
class KnownTest:
    """A test as the module has it; ``classic`` is null in suites that do not say."""

    suite: str
    number: int
    name: str
    classic: bool | None


def read_module(content: bytes) -> list[KnownTest]:
    """Return the tests of a test_bpf.ko (or .ko.xz). Raises FormatError if it is laid out in another way."""
    try:
        elf = ELFFile(io.BytesIO(lzma.decompress(content) if content.startswith(_XZ) else content))
        symbols = {s.name: s for s in _symbol_table(elf).iter_symbols()}
        return [test for suite, array in ARRAYS.items() if array in symbols for test in _tests(elf, suite, symbols)]
    except (ELFError, lzma.LZMAError, AttributeError, ValueError, IndexError) as error:
        raise FormatError(f"test_bpf.ko cannot be read: {error}") from error


def _symbol_table(elf: ELFFile) -> Any:
    table = elf.get_section_by_name(".symtab")
    if table is None:
        raise FormatError("test_bpf.ko has no symbols: they were stripped")
    return table


def _tests(elf: ELFFile, suite: str, symbols: dict[str, Any]) -> list[KnownTest]:
    symbol = symbols[ARRAYS[suite]]
    start, size = symbol["st_value"], symbol["st_size"]
    names = {at - start: name for at, name in _names(elf, symbol["st_shndx"]).items() if 0 <= at - start < size}
    places = sorted(names)
    stride = places[1] - places[0]
    if size != stride * len(places) or any(at % stride for at in places):
        raise FormatError(f"test_bpf.ko: entries of {suite} are not laid out as they were up to Linux 7.2")
    data = elf.get_section(symbol["st_shndx"]).data()[start : start + size]
    return [KnownTest(suite, i, names[at], _classic(suite, data, at)) for i, at in enumerate(places)]


def _names(elf: ELFFile, section: int) -> dict[int, str]:
    """Return the texts that pointers of a section point at, by the pointer's place."""
    table: Any = _symbol_table(elf)
    part: Any
    names = {}
    for part in elf.iter_sections("SHT_RELA"):
        for relocation in part.iter_relocations() if part["sh_info"] == section else ():
            target = table.get_symbol(relocation["r_info_sym"])
            where = elf.get_section(target["st_shndx"])
            if where.name.startswith(_STRINGS):
                text = where.data()[target["st_value"] + relocation["r_addend"] :].partition(b"\0")[0]
                names[relocation["r_offset"]] = text.decode().strip()
    return names


def _classic(suite: str, data: bytes, at: int) -> bool | None:
    if suite != "test_bpf":
        return None
    kind = data[at + _FLAGS_AT] & (_CLASSIC | _INTERNAL)
    if kind not in (_CLASSIC, _INTERNAL):
        raise FormatError("test_bpf.ko: a test is neither classic nor not")
    return kind == _CLASSIC
