"""What a run of module test_bpf leaves: lines in the kernel log, and a trace of the programs that it compiled.

A line is ``test_bpf: #0 TAX jited:1 185 61 59 PASS``: number and name, whether the program ran compiled, and what one
run of each of its cases took in nanoseconds (a case with a wrong result says so instead). A program that the kernel
must refuse is not run. Each suite ends with a line of totals.

The module only says that a program was compiled. The program's structure, which `bpf_prog_free` gets when the kernel
frees it after its test, has its numbers of BPF instructions and of bytes of machine code: a probe reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from xdplab.formats.reading import count_of, lines_of, refuse
from xdplab.hosts import Host

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
