"""PREVAIL, the other verifier: an external command, run one program at a time under hard limits.

Its command line and its output have three generations:

* ``check FILE SECTION --domain=zoneCrab`` (2019, as in its paper, until May 2024): one line ``1,0.012,4512``: accepted
  or not, seconds of the analysis, resident kB. ``-l`` lists the sections on one line, with blanks between.
* ``check FILE SECTION [FUNCTION] --domain=zoneCrab`` (until 2025): the same; ``-l`` lists ``section=… function=…``.
* ``prevail FILE SECTION FUNCTION`` (2026): ``PASS: section/function`` or ``FAIL: …`` and the first error; exit codes
  0 passed, 1 failed or not readable, 2 its own bug, 64 no such program. Neither time nor memory.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from xdplab.errors import PlanError
from xdplab.formats.reading import as_object, json_of, refuse
from xdplab.hosts.local import LocalHost

TOOL = "PREVAIL"
Generation = Literal["section", "check", "prevail"]
Answer = Literal["accepted", "rejected", "complexity", "loader"]

_ROW = re.compile(r"^([01]),([0-9.eE+-]+),(\d+)$", re.MULTILINE)
_VERDICT = re.compile(r"^(PASS|FAIL): ?(.*)$", re.MULTILINE)
_LISTED = re.compile(r"^section=(\S*) function=(\S+)(?: \[reject_load: .*\])?$", re.MULTILINE)
_FILE = re.compile(r" in (?:ELF )?file \S+")  # the path of the object is irrelevant
_BUG_EXIT = 2
_NO_PROGRAM_EXIT = 64

COMMANDS = ("prevail", "check")
_HELP = "eBPF verifier"
_OLD_OPTION = "--domain"
_BY_FUNCTION = re.compile(r"\bfunction\b", re.IGNORECASE)


@dataclass(frozen=True)
class ResourceLimits:
    """Limits of one run, because it may loop endlessly."""

    wall_s: float = 60.0
    memory_bytes: int = 4 << 30


@dataclass(frozen=True)
class Prevail:
    """One installed PREVAIL; several may be compared side by side."""

    name: str
    path: str
    generation: Generation


@dataclass(frozen=True)
class PrevailRun:
    """One program's run. Times in seconds, memory in bytes, of the whole process; ``analysis_s`` of the analysis alone
    and ``resident_bytes``, as only the old generation prints them."""

    section: str
    name: str
    verdict: str
    cause: str | None
    wall_s: float
    user_s: float
    peak_bytes: int
    analysis_s: float | None
    resident_bytes: int | None
    argv: tuple[str, ...]
    exit_code: int
    stdout: str
    stderr: str


def find_prevails(given: Sequence[str] = ()) -> list[Prevail]:
    """Return the given ones (PATH or NAME=PATH), else those on PATH. Raises PlanError for one that is not a PREVAIL."""
    if given:
        named = [_named(text) for text in given]
        twice = sorted({p.name for p in named if sum(q.name == p.name for q in named) > 1})
        if twice:
            raise PlanError(f"--prevail: {', '.join(twice)} is named twice", remedy="write NAME=PATH for each")
        return named
    commands = [(command, shutil.which(command)) for command in COMMANDS]
    answers = [_identify(command, path) for command, path in commands if path]
    return [prevail for prevail in answers if prevail is not None]


def version_of(prevail: Prevail) -> str:
    """Return what its ``--version`` says, where it has one, and the SHA-256 of its file, which is always known."""
    digest = hashlib.sha256(Path(prevail.path).read_bytes()).hexdigest()
    try:
        done = subprocess.run([prevail.path, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        done = None
    lines = done.stdout.splitlines() if done and done.returncode == 0 else []
    return f"{lines[0] if lines else 'tells no version'}, {prevail.generation}, sha256 {digest[:16]}"


def _named(text: str) -> Prevail:
    name, _, path = text.rpartition("=")
    command = shutil.which(path)
    prevail = _identify(name, command) if command else None
    if prevail is None:
        raise PlanError(
            f"--prevail: {path} is not a PREVAIL", remedy="give the path of its `prevail` or `check` command"
        )
    return prevail


def _identify(name: str, path: str) -> Prevail | None:
    """Other tools are called ``check``, too. Its help identifies it, and its options show its generation."""
    try:
        done = subprocess.run([path, "--help"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if _HELP not in done.stdout:
        return None
    generation: Generation = "prevail"
    if _OLD_OPTION in done.stdout:
        generation = "check" if _BY_FUNCTION.search(done.stdout) else "section"
    return Prevail(name or f"PREVAIL ({Path(path).name})", path, generation)


class Runner:
    """Runs a PREVAIL of this machine through ``bpfverify --run``, which measures it and enforces its limits."""

    def __init__(self, bpfverify: str, limits: ResourceLimits) -> None:
        self._command = [bpfverify, "--run", str(int(limits.wall_s)), str(limits.memory_bytes)]
        self._limits = limits

    def programs(self, prevail: Prevail, path: Path) -> tuple[tuple[str, str], ...]:
        """Return the (section, function) pairs that PREVAIL finds in an object; none if it cannot read it.

        The first generation knows only sections: its functions are empty.
        """
        return parse_list(prevail.generation, self._run([prevail.path, str(path), "-l"])[0])

    def verify(self, prevail: Prevail, path: Path, section: str, function: str) -> PrevailRun:
        """Run PREVAIL on one program. A run over its limits is a verdict, ``complexity``, not an error."""
        argv = [prevail.path, str(path), section, *([function] if function else [])]
        argv += [] if prevail.generation == "prevail" else [f"{_OLD_OPTION}=zoneCrab"]
        stdout, stderr, used = self._run(argv)
        over = self._over(stderr, used)
        answer = over or parse_answer(prevail.generation, stdout, stderr, used["exit_code"])
        kb = answer.resident_kb
        return PrevailRun(
            section=section,
            name=function,
            verdict=answer.verdict,
            cause=answer.cause,
            wall_s=used["wall_ns"] / 1e9,
            user_s=used["user_ns"] / 1e9,
            peak_bytes=used["peak_bytes"],
            analysis_s=answer.analysis_s,
            resident_bytes=None if kb is None else kb * 1024,
            argv=(Path(prevail.path).name, path.name, *argv[2:]),
            exit_code=used["exit_code"],
            stdout=stdout[-2000:],
            stderr=stderr[-2000:],
        )

    def _over(self, stderr: str, used: dict[str, Any]) -> PrevailAnswer | None:
        """Return the answer of a run that did not end by itself, or None. A crash says nothing about the program."""
        if used["late"]:
            return PrevailAnswer("complexity", f"still at it after {self._limits.wall_s:g} s", None, None)
        if "bad_alloc" in stderr:
            return PrevailAnswer("complexity", f"more than {self._limits.memory_bytes >> 20} MiB", None, None)
        if used["signal"] is not None:
            return PrevailAnswer("loader", f"PREVAIL broke on it (signal {used['signal']})", None, None)
        return None

    def _run(self, argv: Sequence[str]) -> tuple[str, str, dict[str, Any]]:
        """Return the command's two outputs, and what it used."""
        done = LocalHost().run([*self._command, *argv], deadline_s=self._limits.wall_s + 10)
        stdout, _, last = done.text.rstrip("\n").rpartition("\n")
        return stdout, done.error_text, as_object(json_of(last, TOOL), TOOL)


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
