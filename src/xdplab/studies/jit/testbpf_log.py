"""The kernel log of module test_bpf: the kernel's own tests of its BPF interpreter and JIT, with the cost of each.

A line is ``test_bpf: #0 TAX jited:1 185 61 59 PASS``: number and name, whether the program ran compiled, and what one
run of each of its cases took in nanoseconds (a case with a wrong result says so instead). A program that the kernel
must refuse is not run. Each suite ends with a line of totals.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from xdplab.formats.reading import count_of, lines_of, refuse

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
