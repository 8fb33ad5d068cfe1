"""PREVAIL's output in the three generations of its command line.

* ``check FILE SECTION --domain=zoneCrab`` (2019, as in its paper, until May 2024): one line ``1,0.012,4512``: accepted
  or not, seconds of the analysis, resident kB. ``-l`` lists the sections on one line, with blanks between.
* ``check FILE SECTION [FUNCTION] --domain=zoneCrab`` (until 2025): the same; ``-l`` lists ``section=… function=…``.
* ``prevail FILE SECTION FUNCTION`` (2026): ``PASS: section/function`` or ``FAIL: …`` and the first error; exit codes
  0 passed, 1 failed or not readable, 2 its own bug, 64 no such program. Neither time nor memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from xdplab.formats.reading import refuse

TOOL = "PREVAIL"
Generation = Literal["section", "check", "prevail"]
Answer = Literal["accepted", "rejected", "complexity", "loader"]

_ROW = re.compile(r"^([01]),([0-9.eE+-]+),(\d+)$", re.MULTILINE)
_VERDICT = re.compile(r"^(PASS|FAIL): ?(.*)$", re.MULTILINE)
_LISTED = re.compile(r"^section=(\S*) function=(\S+)(?: \[reject_load: .*\])?$", re.MULTILINE)
_FILE = re.compile(r" in (?:ELF )?file \S+")  # the path of the object is irrelevant
_BUG_EXIT = 2
_NO_PROGRAM_EXIT = 64


@dataclass(frozen=True)
class PrevailAnswer:
    """``analysis_s`` and ``resident_kb`` as the old generation prints them, None with the new one."""

    verdict: Answer
    cause: str | None
    analysis_s: float | None
    resident_kb: int | None


def parse_list(generation: Generation, text: str) -> tuple[tuple[str, str], ...]:
    """Return the (section, function) pairs that ``-l`` prints; the first generation has no functions."""
    if generation == "section":
        return tuple((section, "") for section in text.split())
    return tuple((section, function) for section, function in _LISTED.findall(text))


def parse_answer(generation: Generation, stdout: str, stderr: str, exit_code: int) -> PrevailAnswer:
    """Return the result of one run. Raises FormatError if it is not PREVAIL's output."""
    reader = {"section": _old_answer, "check": _old_answer, "prevail": _new_answer}[generation]
    return reader(stdout, stderr, exit_code)


def _old_answer(stdout: str, stderr: str, exit_code: int) -> PrevailAnswer:
    match = _ROW.search(stdout)
    if match:
        passed, seconds, memory = match.groups()
        cause = None if passed == "1" else "PREVAIL's own finding"
        return PrevailAnswer("accepted" if passed == "1" else "rejected", cause, _seconds(seconds), int(memory))
    return _no_answer(stdout, stderr, exit_code)


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        refuse(TOOL, "no time", text=text)


def _new_answer(stdout: str, stderr: str, exit_code: int) -> PrevailAnswer:
    match = _VERDICT.search(stdout)
    if match is None:
        return _no_answer(stdout, stderr, exit_code)
    passed = match[1] == "PASS"
    if passed != (exit_code == 0):
        refuse(TOOL, f"it says {match[1]} and exits with {exit_code}", text=stdout)
    return PrevailAnswer("accepted" if passed else "rejected", None if passed else _first_error(stdout), None, None)


def _first_error(stdout: str) -> str:
    after_verdict = stdout[stdout.index("FAIL:") :].splitlines()[1:]
    error = next((line.strip() for line in after_verdict if line.strip() and not line.startswith("Hint:")), "")
    return error[:200] or "PREVAIL's own finding"


def _no_answer(stdout: str, stderr: str, exit_code: int) -> PrevailAnswer:
    """It did not reach an analysis: an unreadable object is not a verdict on the program."""
    if exit_code == 0:
        refuse(TOOL, "it exits with 0 and says nothing of a verdict", text=stdout)
    if exit_code == _NO_PROGRAM_EXIT:
        return PrevailAnswer("loader", "PREVAIL finds no such program", None, None)
    first_line = next((line.strip() for line in (stderr or stdout).splitlines() if line.strip()), "it said nothing")
    prefix = "PREVAIL's own bug: " if exit_code == _BUG_EXIT else ""
    return PrevailAnswer("loader", (prefix + _FILE.sub("", first_line))[:200], None, None)
