"""What a check is: where it is asked, what is asked, what the answer means, and the remedy. It makes a row a host."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Flag, auto
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from xdplab.doctor.packages import distribution
from xdplab.errors import HostError
from xdplab.hosts import Host

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
