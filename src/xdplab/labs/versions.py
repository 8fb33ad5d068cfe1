"""The one table of versions that were tried (versions.tsv), and what it says of a version that is found."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TABLE = Path(__file__).with_name("versions.tsv")
Number = tuple[int, ...]


@dataclass(frozen=True)
class Tried:
    """One line of the table: a tool's version, as exactly as it matters, and the Debian suites that have it."""

    tool: str
    version: str
    suites: tuple[str, ...]

    @property
    def number(self) -> Number:
        return number(self.version)


@cache
def tried(tool: str) -> tuple[Tried, ...]:
    """Return the table's lines of a tool, oldest first."""
    lines = [line.split("\t") for line in TABLE.read_text().splitlines() if line and not line.startswith("#")]
    table = [Tried(name, version, tuple(suites.split())) for name, version, suites in lines if name == tool]
    return tuple(sorted(table, key=lambda line: line.number))


def number(version: str) -> Number:
    """Return a version's leading numbers: ``19.1.7-3~deb12u1`` is (19, 1, 7)."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def untried(tool: str, version: str) -> str | None:
    """Return what to tell of a version, such as ``newer than any tried (clang 14 to 23)``; None where it was tried.

    Versions are compared as exactly as the table names them: 19.1.7 is clang's 19, and 12.6.1 is sysstat's 12.6.
    """
    table = tried(tool)
    if not table or not number(version):
        return None
    found = number(version)[: len(table[0].number)]
    numbers = [line.number for line in table]
    if found in numbers:
        return None
    if len(table) == 1:
        return f"not the one tried ({tool} {table[0].version})"
    kind = "untried"
    if found > numbers[-1] or found < numbers[0]:
        kind = f"{'newer' if found > numbers[-1] else 'older'} than any tried"
    return f"{kind} ({tool} {table[0].version} to {table[-1].version})"
