"""What a check is: where it is asked, what is asked, what the answer means, and the remedy. It makes a row a host.

What doctor found, as lines for a person: what needs the reader first, and what is right folded into one line.

What a machine needs (packages.tsv), with each distribution's package names, and the versions that were tested
(versions.tsv), with the comparison of a found version with them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Flag, auto
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from xdplab.errors import HostError
from xdplab.hosts import Host
from xdplab.text import many

TABLE = Path(__file__).with_name("packages.tsv")
INSTALLERS = {"debian": "apt-get install", "ubuntu": "apt-get install", "fedora": "dnf install"}


@dataclass(frozen=True)
class Need:
    """One line of the table. ``packages`` is keyed by distribution; A|B means that releases without package A have
    B."""

    look: str
    name: str
    use: str
    packages: dict[str, str]
    why: str

    def remedy(self, distribution: str | None) -> str:
        """Return the command to type or, if the distribution is unknown, the package to look for."""
        if distribution is None:
            return f"install what has {self.name} (Debian: {self.packages['debian']})"
        here, _, older = self.packages[distribution].partition("|")
        return f"{INSTALLERS[distribution]} {here}" + (f" (in older releases {older})" if older else "")


def needs(use: str | None = None) -> list[Need]:
    """Return the table's lines, all or those of one use."""
    lines = [line.split("\t") for line in TABLE.read_text().splitlines() if line and not line.startswith("#")]
    table = [
        Need(look, name, use_, {"debian": debian, "ubuntu": ubuntu, "fedora": fedora}, why)
        for look, name, use_, debian, ubuntu, fedora, why in lines
    ]
    return [need for need in table if use in (None, need.use)]


def distribution(os_release: str) -> str | None:
    """Return the column for the machine of this /etc/os-release, or None."""
    lines = (line.partition("=") for line in os_release.splitlines())
    values = {key: value.strip("\"'") for key, _, value in lines}
    names = [values.get("ID", ""), *values.get("ID_LIKE", "").split()]
    return next((name for name in names if name in INSTALLERS), None)


VERSIONS = Path(__file__).with_name("versions.tsv")


@cache
def tried(tool: str) -> tuple[str, ...]:
    """Return the versions of a tool in the table, as exact as necessary, oldest first."""
    lines = [line.split("\t") for line in VERSIONS.read_text().splitlines() if line and not line.startswith("#")]
    return tuple(sorted((version for name, version, _ in lines if name == tool), key=number))


def number(version: str) -> tuple[int, ...]:
    """Return a version's leading numbers: ``19.1.7-3~deb12u1`` is (19, 1, 7)."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


def untried(tool: str, version: str) -> str | None:
    """Return a remark on a version, such as ``newer than any tried (14 to 23)``; None if it was tried.

    Versions are compared as exactly as the table names them: 19.1.7 is clang's 19, and 12.6.1 is sysstat's 12.6.
    Raises ValueError for a tool without a line, and for a version that does not begin with a number.
    """
    table = tried(tool)
    if not table or not number(version):
        raise ValueError(f"{tool} {version}: the table has no line of it, or it is no version")
    digits = number(version)[: len(number(table[0]))]
    older = [one for one in table if number(one) < digits]
    newer = [one for one in table if number(one) > digits]
    if len(older) + len(newer) < len(table):
        return None
    if older and newer:
        return f"between {older[-1]} and {newer[0]}, which were tried"
    span = " to ".join(dict.fromkeys([table[0], table[-1]]))
    return f"{'newer' if older else 'older'} than any tried ({span})"


Verdict = Literal["ok", "warn", "missing"]
T = TypeVar("T")

_PROBE = Path(__file__).with_name("probe.py")
_ENV = ("env", "LC_ALL=C", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
PORT = "{port}"
"""In a command or a path: the name of the host's interface."""


@dataclass(frozen=True)
class Row:
    """One check. ``found`` is the result; ``remedy`` is null if nothing needs to be done."""

    host: str
    check: str
    found: str
    verdict: Verdict
    remedy: str | None = None


_ORDER: dict[Verdict, int] = {"missing": 0, "warn": 1, "ok": 2}


def problems_first(rows: Iterable[Row]) -> list[Row]:
    """Return the rows in the order of their urgency."""
    return sorted(rows, key=lambda row: _ORDER[row.verdict])


class CheckedHost:
    """One host, with facts that several checks need."""

    def __init__(self, host: Host, name: str, interface: str | None = None) -> None:
        self.host, self.name, self.interface = host, name, interface

    def read(self, path: str) -> str | None:
        try:
            return self.host.get(self._at_port(path)).decode(errors="replace").strip()
        except HostError:
            return None

    def output(self, *argv: str) -> str | None:
        """Return the output of a command, or None if it fails."""
        result = self.host.run([*_ENV, *map(self._at_port, argv)], check=False, deadline_s=10)
        return result.text.strip() if result.ok else None

    def _at_port(self, text: str) -> str:
        return text.replace(PORT, str(self.interface))

    @cached_property
    def distribution(self) -> str | None:
        return distribution(self.read("/etc/os-release") or "")

    @cached_property
    def probes(self) -> dict[str, dict[str, Any]]:
        """The results of probe.py, by probe; empty if the host has no python3."""
        return self._tried(*([self.interface] if self.interface else []), deadline_s=20)

    @cached_property
    def kernel_probes(self) -> dict[str, dict[str, Any]]:
        """The results of probe.py for a guest's kernel. An emulated guest took 64 s on a busy machine."""
        return self._tried("--kernel", deadline_s=180)

    def _tried(self, *text: str, deadline_s: float) -> dict[str, dict[str, Any]]:
        argv = [*_ENV, "python3", "-I", "-", *text]
        result = self.host.run(argv, stdin=_PROBE.read_bytes(), check=False, deadline_s=deadline_s)
        answers = [json.loads(line) for line in result.text.splitlines()]
        return {answer["probe"]: answer for answer in answers}


class Subject(Flag):
    """What a check is asked of. Settings of servers and NICs are read and never changed."""

    HERE = auto()  # the machine that xdplab runs on
    MACHINE = auto()  # a machine; no network interface is touched
    ROOT = auto()  # the same, if one may ask as root; an ordinary user's answer would mean nothing
    GUEST = auto()  # a guest's kernel, whose features are tried, which would disturb others on this machine
    LINK_END = auto()  # an interface; each XDP mode is attached for a moment
    SERVER = auto()
    DPDK = auto()  # a server whose port the kernel does not have
    NIC = auto()  # a server's port that the kernel has


class Judgement(NamedTuple):
    """What an answer means. ``remedy`` stands in the place of the check's, where it depends on the answer."""

    found: str
    verdict: Verdict = "ok"
    remedy: str | None = None


def warned(found: str, bad: bool) -> Judgement:
    """Return a finding that is a warning if ``bad``."""
    return Judgement(found, "warn" if bad else "ok")


NOT_UNDERSTOOD = "look at what the host's tool prints; another version may print it otherwise"


@dataclass(frozen=True)
class HostCheck(Generic[T]):
    """One line of a table: ``judge`` gets what ``ask`` returned, and returns None where there is nothing to say."""

    name: str
    where: Subject
    ask: Callable[[CheckedHost], T]
    judge: Callable[[T], Judgement | None]
    remedy: str = ""

    def rows(self, host: CheckedHost, place: str = "") -> list[Row]:
        """Return the check's row, or none; what the judge does not understand costs this row alone."""
        try:
            finding = self.judge(self.ask(host))
        except (ValueError, LookupError) as error:
            finding = Judgement(f"not understood: {error}", "warn", NOT_UNDERSTOOD)
        if finding is None:
            return []
        remedy = (finding.remedy or self.remedy).replace(PORT, str(host.interface)) or None
        ok = finding.verdict == "ok"
        return [Row(host.name, self.name + place, finding.found, finding.verdict, None if ok else remedy)]


def rows_of(table: Iterable[HostCheck[Any]], host: CheckedHost, where: Subject, *, named: bool = False) -> list[Row]:
    """Return the rows of a table's checks for this place; ``named``: each names the host's interface."""
    place = f" on {host.interface}" if named else ""
    return [row for check in table if check.where & where for row in check.rows(host, place)]


def itself(host: CheckedHost) -> CheckedHost:
    """Hand the host to the judge, who asks for several things."""
    return host


def command(*argv: str) -> Callable[[CheckedHost], str | None]:
    """Ask for a command's output; None if it fails."""
    return lambda host: host.output(*argv)


def shell(script: str) -> Callable[[CheckedHost], str]:
    """Ask for the output of a script; "" if it fails."""
    return lambda host: host.output("sh", "-c", script) or ""


def file(path: str) -> Callable[[CheckedHost], str | None]:
    """Ask for a file's text; None if it cannot be read."""
    return lambda host: host.read(path)


def files(folder: str, *names: str) -> Callable[[CheckedHost], list[str | None]]:
    """Ask for the texts of files in one folder."""
    return lambda host: [host.read(f"{folder}/{name}") for name in names]


def number_in(text: str | None) -> int:
    """Return the number that a command or a file told; 0 if it told none."""
    return int(text) if text and text.isdecimal() else 0


def headline(rows: Sequence[Row]) -> str:
    """Return the answer in one line: whether anything needed is missing, and how many `problems` are warnings."""
    listed_problems = [verdict for verdict, *_ in problems(rows)]
    missing, warnings = listed_problems.count("missing"), listed_problems.count("warn")
    needed = f"{many(missing, 'needed thing')} missing" if missing else "nothing that is needed is missing"
    return f"{needed}; {many(warnings, 'warning')}" if warnings else needed


def folded(rows: Sequence[Row], how: str) -> str:
    """Return the one line that stands for the checks without a problem; ``how`` says how to see them."""
    return f"{sum(row.verdict == 'ok' for row in rows)} ok ({how})"


def problems(rows: Sequence[Row]) -> list[tuple[Verdict, str, str, str]]:
    """Return verdict, checks, finding and remedy of each problem, most urgent first.

    Hosts on which a check ends alike share a line.
    """
    together: dict[tuple[Verdict, str, str], list[str]] = {}
    for row in problems_first(rows):
        if row.verdict != "ok":
            place = together.setdefault((row.verdict, row.found, row.remedy or ""), [])
            place.append(f"{row.host}: {row.check}")
    return [(verdict, ", ".join(names), finding, remedy) for (verdict, finding, remedy), names in together.items()]


def listed(rows: Sequence[Row], how: str | None) -> str:
    """Return the headline, the problems with their remedies, and the checks without a problem: folded, or each if
    ``how`` is None."""
    shown = [f"{verdict:8} {names}: {finding}" + (f"\n  {remedy}" if remedy else "")
             for verdict, names, finding, remedy in problems(rows)]  # fmt: skip
    right = [f"ok       {row.host}: {row.check}: {row.found}" for row in rows if row.verdict == "ok"]
    return "\n".join([headline(rows), *shown, *(right if how is None else [folded(rows, how)])])
