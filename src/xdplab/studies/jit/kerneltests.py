"""Runs the kernel's own test_bpf module and reads its lines in the kernel log."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from xdplab.errors import HostError, LabError, MissingToolError, PlanError, ProgramError, UnsupportedError
from xdplab.studies.guests import uml_tests_module
from xdplab.studies.jit.module import KnownTest, read_module
from xdplab.studies.places import Place

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
