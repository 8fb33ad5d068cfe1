"""The frame of every script in this folder: its options, its time limit and its exit code.

When the time is over, the script and every process that it started are ended. The exit code is 0 if each aim that could
be measured is met, and 1 if one is missed or the time is over.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

GRACE_S = 15.0
"""The time between SIGTERM, after which the script takes down what it made, and SIGKILL for what is left."""
_PR_SET_CHILD_SUBREAPER = 36
AIMS = "XDPLAB_BENCH_AIMS"
"""The variable that names a file to which a script appends its aims and its tables, a JSON object each."""


@dataclass(frozen=True)
class Aim:
    """A value and the bound it must keep; ``value`` is None if it could not be measured, and ``reason`` says why."""

    name: str
    value: float | None
    at_least: float | None = None
    at_most: float | None = None
    reason: str = ""

    @property
    def missed(self) -> bool:
        if self.value is None:
            return False
        # Written so that NaN misses.
        least, most = self.at_least, self.at_most
        return not ((least is None or self.value >= least) and (most is None or self.value <= most))

    @property
    def bounds(self) -> str:
        both = (("≥", self.at_least), ("≤", self.at_most))
        return ", ".join(f"{sign} {bound:g}" for sign, bound in both if bound is not None)

    @property
    def obtained(self) -> str:
        return f"not measured: {self.reason}" if self.value is None else f"{self.value:.5g}"

    @property
    def verdict(self) -> str:
        return "MISSED" if self.missed else "skipped" if self.value is None else "met"

    def __str__(self) -> str:
        return f"aim {self.verdict}: {self.name}: {self.obtained} ({self.bounds})"


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """Print a table, which `make bench` puts on its page below the aims; a cell that is None was not measured."""
    columns = list(rows[0])
    cells = [[_cell(row[column]) for column in columns] for row in rows]
    lines = [columns, ["---"] * len(columns), *cells]
    text = "".join("| " + " | ".join(line) + " |\n" for line in lines)
    print(f"{title}\n\n{text}", flush=True)
    _keep([{"title": title, "table": text}])


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "\\|")


def _keep(found: list[dict[str, Any]]) -> None:
    if kept := os.environ.get(AIMS):
        with Path(kept).open("a") as file:
            file.writelines(json.dumps(one) + "\n" for one in found)


def by_chance(draws: int, least: float, most: float, *, rare: float) -> tuple[float, float]:
    """Return the lowest and the highest share that chance explains in so many draws.

    With a true rate of ``least``, a share below the first has a probability of at most ``rare``; with a true rate of
    ``most``, so has a share above the second.
    """
    from scipy.stats import binom

    return float(binom.ppf(rare, draws, least) / draws), float(binom.ppf(1 - rare, draws, most) / draws)


Measure = Callable[[argparse.Namespace], Iterable[Aim]]


def run(
    doc: str | None,
    measure: Measure,
    *,
    most_s: float,
    options: Callable[[argparse.ArgumentParser], None] | None = None,
) -> int:
    """Read the command line, measure for at most ``most_s`` seconds, print the aims and return the exit code."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most-s", type=float, default=most_s, help="seconds until the script is ended (%(default)g)")
    if options:
        options(parser)
    arguments = parser.parse_args()
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # whatever loses its parent becomes a child of ours
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # until both processes can end in order
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the ends of blocks are reached
    child = os.fork()
    if child:
        return _watch(child, arguments.most_s)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    return _judge(measure(arguments))


def _judge(aims: Iterable[Aim]) -> int:
    found = list(aims)
    for aim in found:
        print(aim, flush=True)
    _keep([asdict(aim) for aim in found])
    return int(not found or any(aim.missed for aim in found))


def _watch(child: int, most_s: float) -> int:
    """Return the exit code of the child; end it if its time is over or this process is told to end."""
    deadline = time.monotonic() + most_s
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        code = _wait(child, deadline)
        if code is None:
            print(f"ended: not finished after {most_s:g} s", file=sys.stderr)
        return 1 if code is None else code
    finally:
        _end(child)


def _wait(child: int, deadline: float) -> int | None:
    """Return the exit code, or None if it still runs at the deadline."""
    while time.monotonic() < deadline:
        with contextlib.suppress(ChildProcessError):
            pid, status = os.waitpid(child, os.WNOHANG)
            if not pid:
                time.sleep(0.05)
                continue
            return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 1
        return 1
    return None


def _end(child: int) -> None:
    """End the child, then everything that descends from it, in whatever session or process group it is."""
    if child in _descendants():
        os.kill(child, signal.SIGTERM)
        _wait(child, time.monotonic() + GRACE_S)
    while left := _descendants():
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.02)


def _descendants() -> list[int]:
    """Return the descendants of this process, including those that have ended and were not waited for yet."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            text = stat.read_text(errors="replace")
            parents[int(stat.parent.name)] = int(text.rpartition(")")[2].split()[1])
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {os.getpid()})
