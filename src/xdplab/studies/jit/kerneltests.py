"""Runs the kernel's own test_bpf module and reads its lines in the kernel log."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator

from xdplab.errors import HostError, PlanError, UnsupportedError
from xdplab.studies.jit.module import KnownTest, read_module
from xdplab.studies.places import Place

MODULE = "test_bpf"
CHUNK = 256
"""Tests in one run of the module: their lines fit into the smallest log of a distribution's kernel four times."""

DEADLINE_S = 900.0
_RANGE = re.compile(r"(\d+)-(\d+)")


def find_tests(place: Place) -> list[KnownTest]:
    """Return the tests that the place's module has. Raises UnsupportedError if there is no module."""
    return read_module(place.module(MODULE))


def chosen_range(tests: str) -> tuple[int, int] | None:
    """Return first and last test of ``0-33``; None for all of them. Raises PlanError for anything else."""
    if not tests:
        return None
    said = _RANGE.fullmatch(tests)
    if said is None or int(said[1]) > int(said[2]):
        raise PlanError(f"--tests {tests}: not a range", remedy="such as 0-33")
    return int(said[1]), int(said[2])


def run_suite(place: Place, known: list[KnownTest], suite: str, tests: str) -> Iterator[str]:
    """Yield the kernel log of each run of the module, until the suite (or the range of it) is through.

    Raises UnsupportedError if the place's module has no such tests.
    """
    count = sum(test.suite == suite for test in known)
    first, last = chosen_range(tests) or (0, count - 1)
    if not count or last >= count:
        raise UnsupportedError(f"{place.label}: suite {suite} has {count} tests, {tests or 'one'} is wanted")
    for start in range(first, last + 1, CHUNK):
        yield _run(place, suite, start, min(start + CHUNK - 1, last))


def _run(place: Place, suite: str, first: int, last: int) -> str:
    """Load the module: it runs its tests during the load, and the load fails if a test fails."""
    host, mark = place.host, f"xdplab {secrets.token_hex(8)}"
    host.run(["tee", "/dev/kmsg"], stdin=f"{mark}\n".encode())
    command = ["modprobe", MODULE, f"test_suite={suite}", f"test_range={first},{last}"]
    loaded = host.run(command, deadline_s=DEADLINE_S, check=False)
    host.run(["modprobe", "-r", MODULE], check=False)
    _, found, log = host.run(["dmesg"]).text.rpartition(f"{mark}\n")
    if not found:
        raise HostError(f"{place.label}: the kernel log does not reach back to before the tests")
    if f"{MODULE}: " not in log:
        loaded.require()
    return log
