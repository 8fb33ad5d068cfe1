"""The proofs of a run: all wrappers of its plan are executed in one guest before the first of them is measured."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from xdplab.errors import ProgramError, UnsupportedError
from xdplab.run.rundir import RunDirectory, read_json
from xdplab.run.waiting import WAITS
from xdplab.studies.execution.benchmarks import MODULE, Benchmark
from xdplab.studies.execution.counted import KERNEL, Counts, Wrapped, counted
from xdplab.studies.execution.objects import object_name
from xdplab.studies.execution.proof import differences, unlike

COUNTS = "objects/counts.json"
_COUNTING = threading.Lock()
"""Places that are measured at the same time have one guest that counts."""


class Proofs:
    """Of the wrappers ``wanted``, each a benchmark and a wrapper's name.

    ``module`` builds the module for a place; a machine that cannot build it has no proof of the module's wrappers.
    """

    def __init__(
        self, run: RunDirectory, wanted: Sequence[tuple[Benchmark, str]], module: Callable[[str], Path]
    ) -> None:
        self._run, self._wanted, self._module = run, wanted, module

    def counts(self, benchmark: Benchmark, wrapper: str) -> tuple[Counts, ...]:
        """Return what a wrapper's calls do, which is the algorithm's work.

        Raises ProgramError if it is other work, or of another object than the one that is there, UnsupportedError for a
        module that cannot be built, and as `counted` does.
        """
        results = self._all()
        name = _name(benchmark, wrapper)
        if name not in results:
            self._object(benchmark, wrapper)  # raises the module's own error
            raise ProgramError(f"{name}: it was not executed")
        calls = _calls(results[name])
        refused = [results[name]["refused"]] if results[name]["refused"] else differences(benchmark, wrapper, calls)
        for other in benchmark.wrappers:
            if not refused and _calls(results.get(_name(benchmark, other), {})):
                refused = unlike(benchmark, calls, _calls(results[_name(benchmark, other)]))
        if wrapper != MODULE and results[name]["object"] != _digest(self._object(benchmark, wrapper)):
            refused = ["its object is another one than that which was counted"]
        if refused:
            raise ProgramError(f"{name}: its proof fails: {'; '.join(refused)}")
        return calls

    def _all(self) -> Mapping[str, Any]:
        with _COUNTING:
            path = self._run.path / COUNTS
            if not path.exists():
                WAITS.get()(f"a guest executes {len(self._wanted)} wrappers, each to be proved")
                self._run.write_bytes(COUNTS, json.dumps(self._executed(), indent=0).encode() + b"\n")
                WAITS.get()(None)
            return read_json(path, dict)

    def _executed(self) -> dict[str, Any]:
        wrapped = [Wrapped(*pair, path) for pair in self._wanted if (path := self._existing(*pair))]
        results = {}
        for one, calls in zip(wrapped, executed(wrapped), strict=True):
            results[_name(one.benchmark, one.wrapper)] = {
                "object": _digest(one.object),
                "refused": calls.message if isinstance(calls, ProgramError) else "",
                "calls": [] if isinstance(calls, ProgramError) else [asdict(call) for call in calls],
            }
        return results

    def _existing(self, benchmark: Benchmark, wrapper: str) -> Path | None:
        """Return the object with a wrapper; None if it is not there, such as a module that cannot be built."""
        try:
            path = self._object(benchmark, wrapper)
        except UnsupportedError:
            return None
        return path if path.exists() else None

    def _object(self, benchmark: Benchmark, wrapper: str) -> Path:
        if wrapper == MODULE:
            return self._module(f"vm:{KERNEL}")
        return self._run.path / "objects" / object_name(benchmark, wrapper)


def executed(wrapped: Sequence[Wrapped]) -> list[tuple[Counts, ...] | ProgramError]:
    """Return what the calls of wrappers do, as `counted` does; what does other work is counted once more.

    Now and then a tick of the guest falls into a call, or its kernel reads the clock twice: that is not the wrapper's,
    and falls elsewhere in another guest. What a wrapper does itself, it does again.
    """
    results = counted(wrapped)
    again = [
        number
        for number, (one, calls) in enumerate(zip(wrapped, results, strict=True))
        if not isinstance(calls, ProgramError) and differences(one.benchmark, one.wrapper, calls)
    ]
    if again:
        for number, calls in zip(again, counted([wrapped[number] for number in again]), strict=True):
            results[number] = calls
    return results


def _name(benchmark: Benchmark, wrapper: str) -> str:
    return f"{benchmark.name}, {wrapper}"


def _calls(counted_wrapper: Mapping[str, Any]) -> tuple[Counts, ...]:
    return tuple(Counts(**call) for call in counted_wrapper.get("calls", ()))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
