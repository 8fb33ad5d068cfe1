"""The kernel's own test_bpf module: which tests it has, which of them are classic BPF, and how it is run.

The log does not say whether a test is classic. The module does: its array ``tests`` has one entry per test, a buffer of
512 instructions behind a pointer to its name, then one byte of flags, of which bit 6 is CLASSIC and bit 7 is
INTERNAL (eBPF). In 6.1 they are 134 and 892; 12 of the classic ones must be refused, and 122 are run: the "about 120
tests" of the work this study repeats.
"""

from __future__ import annotations

import io
import lzma
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from xdplab.errors import FormatError, HostError, LabError, MissingToolError, PlanError, ProgramError, UnsupportedError
from xdplab.studies.guests import uml_tests_module
from xdplab.studies.places import Place

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


MODULE = "test_bpf"
UML = "uml"
CHUNK = 64
"""Tests in one run of the module: the smallest log, that of user-mode Linux, has room for twice their lines. And no run
takes too long where a CPU is emulated: 256 tests of riscv64 took 975 s on a busy machine."""

DEADLINE_S = 300.0
"""Seconds of one run where the clock is time; a place that counts has its patience times as many."""

_RANGE = re.compile(r"(\d+)-(\d+)")


@dataclass(frozen=True)
class KernelTests:
    """The tests of a place's module, and the command that loads it (without its options)."""

    tests: list[KnownTest]
    load: tuple[str, ...]


def find_tests(place: Place) -> KernelTests:
    """Return the tests of the place's module. Raises UnsupportedError if there is no module."""
    if place.name == UML:
        path = _built()
        return KernelTests(read_module(path.read_bytes()), ("insmod", place.put(path)))
    return KernelTests(read_module(place.module(MODULE)), ("modprobe", MODULE))


def _built() -> Path:
    try:
        return uml_tests_module()
    except MissingToolError:
        raise
    except (LabError, ProgramError) as error:
        raise UnsupportedError(f"{UML}: its module {MODULE} cannot be built: {error}") from error


def chosen_range(tests: str) -> tuple[int, int] | None:
    """Return first and last test of ``0-33``; None for all of them. Raises PlanError for anything else."""
    if not tests:
        return None
    match = _RANGE.fullmatch(tests)
    if match is None or int(match[1]) > int(match[2]):
        raise PlanError(f"--tests {tests}: not a range", remedy="such as 0-33")
    return int(match[1]), int(match[2])


def run_suite(place: Place, kernel_tests: KernelTests, suite: str, tests: str) -> Iterator[str]:
    """Yield the kernel log of each run of the module, until the suite (or the range of it) is through.

    Raises UnsupportedError if the place's module has no such tests.
    """
    count = sum(test.suite == suite for test in kernel_tests.tests)
    first, last = chosen_range(tests) or (0, count - 1)
    if not count or last >= count:
        raise UnsupportedError(f"{place.label}: suite {suite} has {count} tests, {tests or 'one'} is wanted")
    for start in range(first, last + 1, CHUNK):
        yield _run(place, kernel_tests.load, suite, start, min(start + CHUNK - 1, last))


def _run(place: Place, load: tuple[str, ...], suite: str, first: int, last: int) -> str:
    """Load the module: it runs its tests during the load, and the load fails if a test fails."""
    host, mark = place.host, f"xdplab {secrets.token_hex(8)}"
    host.run(["tee", "/dev/kmsg"], stdin=f"{mark}\n".encode())
    command = [*load, f"test_suite={suite}", f"test_range={first},{last}"]
    loaded = host.run(command, deadline_s=DEADLINE_S * place.patience, check=False)
    host.run(["rmmod", MODULE], check=False)
    _, mark_seen, log = host.run(["dmesg"]).text.rpartition(f"{mark}\n")
    if not mark_seen:
        raise HostError(f"{place.label}: the kernel log does not reach back to before the tests")
    if f"{MODULE}: " not in log:
        loaded.require()
    return log
