"""The kernel's own test_bpf module: which tests it has, which of them are classic BPF, how it is run, and what a run
leaves.

The log does not say whether a test is classic. The module does: its array ``tests`` has one entry per test, a buffer of
512 instructions behind a pointer to its name, then one byte of flags, of which bit 6 is CLASSIC and bit 7 is INTERNAL
(eBPF). In 6.1 they are 134 and 892; 12 of the classic ones must be refused, and 122 are run: the "about 120 tests" of
the work this study repeats.

A run leaves lines in the kernel log, and a trace of the programs that the module compiled. A line is ``test_bpf: #0 TAX
jited:1 185 61 59 PASS``: number and name, whether the program ran compiled, and what one run of each of its cases took
in nanoseconds (a case with a wrong result says so instead). A program that the kernel must refuse is not run. Each
suite ends with a line of totals. The module only says that a program was compiled. The program's structure, which
`bpf_prog_free` gets when the kernel frees it after its test, has its numbers of BPF instructions and of bytes of
machine code: a probe reads them.
"""

from __future__ import annotations

import io
import lzma
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from xdplab.errors import FormatError, HostError, LabError, MissingToolError, PlanError, ProgramError, UnsupportedError
from xdplab.formats.reading import count_of, lines_of, refuse
from xdplab.hosts import Host
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


TOOL = "test_bpf's log"
FIRST_SUITE = "test_bpf"
_SAID = re.compile(r"^(?:<\d+>)?(?:\[ *\d+\.\d+\](?:\[[ \w]+\])? )?test_bpf: (.*)$", re.ASCII)
_TEST = re.compile(r"^#(\d+) (.*?) ?(?:jited:([01]) (.*?))?((?:PASS|FAIL|UNEXPECTED_PASS|SKIP)\b.*)$", re.ASCII)
_SUMMARY = re.compile(r"^(?:(\w+): )?Summary: (\d+) PASSED, (\d+) FAILED(?:, \[(\d+)/(\d+) JIT'ed\])?$", re.ASCII)
_CASE = re.compile(r"ret -?\d+ != -?\d+ \([^)]*\)|\d+", re.ASCII)


@dataclass(frozen=True)
class TestLine:
    """One test. ``jited`` is null and ``ns`` empty if nothing was run.

    ``ns`` has one entry per case: nanoseconds of one run, or null if the result is wrong. ``ending`` ends the line.
    """

    __test__ = False  # pytest must not collect it

    suite: str
    number: int
    name: str
    jited: bool | None
    ns: tuple[int | None, ...]
    passed: bool
    ending: str


def parse_test_bpf(data: bytes | str) -> tuple[TestLine, ...]:
    """Return the tests of a log, in its order; other lines are ignored.

    Raises FormatError if a suite has no end, or its totals differ from its lines: then the log was truncated.
    """
    closed: list[TestLine] = []
    open_suite: list[TestLine] = []
    for number, line in enumerate(lines_of(data, TOOL), 1):
        match = _SAID.match(line)
        if match is None:
            continue
        if test := _TEST.match(match[1]):
            open_suite.append(_test(test, number))
        elif summary := _SUMMARY.match(match[1].strip()):
            closed += _closed(open_suite, summary, number)
            open_suite = []
    if open_suite or not closed:
        refuse(TOOL, "no suite has come to its end")
    return tuple(closed)


def _test(match: re.Match[str], line: int) -> TestLine:
    number, name, jited, cases, ending = match.groups()
    texts = _CASE.findall(cases or "")
    ns = tuple(count_of(case, TOOL, line=line) if case.isdecimal() else None for case in texts)
    passed = ending.strip() == "PASS"
    if passed and jited is not None and (not ns or None in ns):
        refuse(TOOL, "a test has passed without a result", line=line, text=match[0])
    return TestLine(
        "", count_of(number, TOOL, line=line), name, None if jited is None else jited == "1", ns, passed, ending
    )


def _closed(tests: list[TestLine], summary: re.Match[str], line: int) -> list[TestLine]:
    suite, *totals = summary.groups()
    seen = {
        "passed": sum(t.passed for t in tests),
        "failed": sum(not t.passed for t in tests),
        "compiled": sum(bool(t.jited) for t in tests),
        "run": sum(t.jited is not None for t in tests),
    }
    for (name, count), word in zip(seen.items(), totals, strict=True):
        if word is not None and count_of(word, TOOL, line=line) != count:
            refuse(TOOL, f"the suite counts {word[:20]} {name}, the log has {count}", line=line)
    return [replace(test, suite=suite or FIRST_SUITE) for test in tests]


TRACE = "the trace of bpf_prog_free"
ABSENT = "# absent: "
"""The beginning of a file without sizes; the reason follows."""

# From 6.6 on, the kernel finds the fields of a function's arguments by name. Before, they are at these offsets.
_WATCH = """
top=/sys/kernel/tracing
[ -e "$top/trace" ] || mount -t tracefs tracefs "$top" || exit
here=$top/instances/xdplab-jit
define() { echo "p:xdplab/freed bpf_prog_free $1" 2>/dev/null >>"$top/kprobe_events"; }
known() { grep -q xdplab/freed "$top/kprobe_events"; }
[ -e "$top/kprobe_events" ] || { echo 'the kernel has no probes' >&2; exit 1; }
known || define 'insns=fp->len:u32 bytes=fp->jited_len:u32' || {
    case $(uname -r) in
    5.* | 6.[0-5].*) define 'insns=+12($arg1):u32 bytes=+16($arg1):u32' ;;
    *) false ;;
    esac
} || { echo 'the kernel takes no probe of bpf_prog_free' >&2; exit 1; }
[ -d "$here" ] || mkdir "$here" || exit
echo 1 >"$here/events/xdplab/freed/enable"
"""
_READ = """
cat /sys/kernel/tracing/instances/xdplab-jit/trace && echo >/sys/kernel/tracing/instances/xdplab-jit/trace
"""
_END = """
top=/sys/kernel/tracing
echo 0 >"$top/instances/xdplab-jit/events/xdplab/freed/enable"
rmdir "$top/instances/xdplab-jit"
echo '-:xdplab/freed' >>"$top/kprobe_events"
"""
_WRITTEN = re.compile(r"# entries-in-buffer/entries-written: (\d+)/(\d+) .*", re.ASCII)
_FREED = re.compile(r" *(\S.*)-\d+ +\[\d+\] .*: freed: \(.*\) insns=(\d+) bytes=(\d+)", re.ASCII)
_LOADER = "modprobe"


@dataclass(frozen=True)
class Size:
    """The size of a compiled program: BPF instructions that the JIT got, and bytes of machine code."""

    insns: int
    machine_bytes: int


@dataclass
class Sizes:
    """The probe at a place; if there is none, ``reason`` says why."""

    host: Host
    reason: str = ""

    def taken(self) -> str:
        """Return the trace since the last call, and empty it; without a probe, return the reason."""
        if self.reason:
            return f"{ABSENT}{self.reason}\n"
        return self.host.run(["sh", "-c", _READ]).text


@contextmanager
def watched(host: Host) -> Iterator[Sizes]:
    """Watch freed programs within this block. If the kernel does not allow it, the result has the reason."""
    started = host.run(["sh", "-c", _WATCH], check=False)
    if not started.ok:
        yield Sizes(host, started.error_text.strip().splitlines()[-1] if started.error_text.strip() else "no tracefs")
        return
    try:
        yield Sizes(host)
    finally:
        host.run(["sh", "-c", _END], check=False)


def parse_sizes(data: bytes | str) -> tuple[Size, ...] | str:
    """Return the size of each compiled program that the module freed, in order; or the reason why there is none.

    Raises FormatError if the text is not such a trace, or if the kernel lost events.
    """
    sizes: list[Size] = []
    written = None
    for number, line in enumerate(lines_of(data, TRACE), 1):
        if line.startswith(ABSENT):
            return line.removeprefix(ABSENT)
        if header := _WRITTEN.fullmatch(line):
            written = header[1]
            if header[1] != header[2]:
                refuse(TRACE, f"the kernel kept {header[1]} of {header[2]} events", line=number)
        if line.startswith("#") or not line.strip():
            continue
        event = _FREED.fullmatch(line)
        if event is None:
            refuse(TRACE, "not an event of the probe", line=number, text=line)
        insns, size = (count_of(event[at], TRACE, line=number) for at in (2, 3))
        if event[1].strip() == _LOADER and size:
            sizes.append(Size(insns, size))
    if written is None:
        refuse(TRACE, "it has no number of events")
    return tuple(sizes)
