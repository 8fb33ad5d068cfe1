"""What a machine needs (packages.tsv), with each distribution's package names, and the versions that were tested
(versions.tsv), with the comparison of a found version with them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

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
    return _first_known([values.get("ID", ""), *values.get("ID_LIKE", "").split()])


def _first_known(words: Iterable[str]) -> str | None:
    return next((word for word in words if word in INSTALLERS), None)


VERSIONS = Path(__file__).with_name("versions.tsv")
Number = tuple[int, ...]


@dataclass(frozen=True)
class Tried:
    """One line of the table: a tool's version, as exact as necessary, and the Debian suites that have it."""

    tool: str
    version: str
    suites: tuple[str, ...]

    @property
    def number(self) -> Number:
        return number(self.version)


@cache
def tried(tool: str) -> tuple[Tried, ...]:
    """Return the table's lines of a tool, oldest first."""
    lines = [line.split("\t") for line in VERSIONS.read_text().splitlines() if line and not line.startswith("#")]
    table = [Tried(name, version, tuple(suites.split())) for name, version, suites in lines if name == tool]
    return tuple(sorted(table, key=lambda line: line.number))


def number(version: str) -> Number:
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
    digits = number(version)[: len(table[0].number)]
    older = [line.version for line in table if line.number < digits]
    newer = [line.version for line in table if line.number > digits]
    if len(older) + len(newer) < len(table):
        return None
    if older and newer:
        return f"between {older[-1]} and {newer[0]}, which were tried"
    span = " to ".join(dict.fromkeys([table[0].version, table[-1].version]))
    return f"{'newer' if older else 'older'} than any tried ({span})"
