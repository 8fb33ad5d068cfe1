"""Runs the kernel's own test_bpf module and reads its lines in the kernel log."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from xdplab.errors import HostError, LabError, MissingToolError, PlanError, ProgramError, UnsupportedError
from xdplab.labs.uml import source as uml_source
from xdplab.studies.jit.module import KnownTest, read_module
from xdplab.studies.places import Place

MODULE = "test_bpf"
UML = "uml"
CHUNK = 256
"""Tests in one run of the module: the smallest log of a distribution's kernel has room for four times their lines."""

CHUNK_OF_UML = 64
"""The log of user-mode Linux has an eighth of that size."""

DEADLINE_S = 900.0
_RANGE = re.compile(r"(\d+)-(\d+)")


@dataclass(frozen=True)
class KernelTests:
    """The tests of a place's module, the command that loads it (without its options), and how many tests one load may
    run: the kernel log must hold all their lines.
    """

    tests: list[KnownTest]
    load: tuple[str, ...]
    chunk: int = CHUNK


def find_tests(place: Place) -> KernelTests:
    """Return the tests of the place's module. Raises UnsupportedError if there is no module."""
    if place.name == UML:
        path = _built()
        return KernelTests(read_module(path.read_bytes()), ("insmod", place.put(path)), CHUNK_OF_UML)
    return KernelTests(read_module(place.module(MODULE)), ("modprobe", MODULE))


def _built() -> Path:
    try:
        return uml_source.tests_module()
    except MissingToolError:
        raise
    except (LabError, ProgramError) as error:
        raise UnsupportedError(f"{UML}: its module {MODULE} cannot be built: {error}") from error


def chosen_range(tests: str) -> tuple[int, int] | None:
    """Return first and last test of ``0-33``; None for all of them. Raises PlanError for anything else."""
    if not tests:
        return None
    said = _RANGE.fullmatch(tests)
    if said is None or int(said[1]) > int(said[2]):
        raise PlanError(f"--tests {tests}: not a range", remedy="such as 0-33")
    return int(said[1]), int(said[2])


def run_suite(place: Place, known: KernelTests, suite: str, tests: str) -> Iterator[str]:
    """Yield the kernel log of each run of the module, until the suite (or the range of it) is through.

    Raises UnsupportedError if the place's module has no such tests.
    """
    count = sum(test.suite == suite for test in known.tests)
    first, last = chosen_range(tests) or (0, count - 1)
    if not count or last >= count:
        raise UnsupportedError(f"{place.label}: suite {suite} has {count} tests, {tests or 'one'} is wanted")
    for start in range(first, last + 1, known.chunk):
        yield _run(place, known.load, suite, start, min(start + known.chunk - 1, last))


def _run(place: Place, load: tuple[str, ...], suite: str, first: int, last: int) -> str:
    """Load the module: it runs its tests during the load, and the load fails if a test fails."""
    host, mark = place.host, f"xdplab {secrets.token_hex(8)}"
    host.run(["tee", "/dev/kmsg"], stdin=f"{mark}\n".encode())
    command = [*load, f"test_suite={suite}", f"test_range={first},{last}"]
    loaded = host.run(command, deadline_s=DEADLINE_S, check=False)
    host.run(["rmmod", MODULE], check=False)
    _, found, log = host.run(["dmesg"]).text.rpartition(f"{mark}\n")
    if not found:
        raise HostError(f"{place.label}: the kernel log does not reach back to before the tests")
    if f"{MODULE}: " not in log:
        loaded.require()
    return log
