"""The overhead of a trial: the wall time of an attempt minus the duration of its bursts, medians over smoke runs.

The table says where the time goes: milliseconds per trial (medians), each step without the steps inside it. A burst
counts only with the time beyond the requested duration: setting up, waiting for the last frames, reading out. Steps
marked "beside" run in a thread of their own; the time that the trial waits for them is in the rest. CPU time is that of
the controller; commands are processes started on a host by SSH.

The aim: a median of 0.08 s in the netns lab. Needs root.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd
from bounded import Aim, run

from xdplab.counters.probe import CounterProbe, Recording
from xdplab.generators import Generator
from xdplab.hosts.ssh import SshHost
from xdplab.plan import load_plan
from xdplab.resources import shipped
from xdplab.run import engine, rundir
from xdplab.run.journal import Journal
from xdplab.run.state import read_state
from xdplab.studies.traffic import life, runs
from xdplab.studies.traffic.dut import KernelSide
from xdplab.studies.traffic.passes import RawFiles

MOST_S = 0.08

STEPS: tuple[tuple[str, Any, str], ...] = (
    ("the rest", engine, "_attempt"),
    ("load and attach", life, "attach"),
    ("start the generator", Generator, "start"),
    ("prove the path", life, "prove"),
    ("warm up", life, "warm_up"),
    ("samples", CounterProbe, "start"),
    ("samples", Recording, "stop"),
    ("counters at rest", CounterProbe, "snapshot"),
    ("read back what is attached", KernelSide, "require"),
    ("test run", KernelSide, "testrun"),
    ("detach", KernelSide, "stop"),
    ("end the generator", Generator, "stop"),
    ("raw files", RawFiles, "add"),
    ("sync", rundir, "sync"),
    ("journal", Journal, "append"),
)


@dataclass
class Course:
    """The times of one attempt in seconds: wall and CPU time by step, and the requested duration of its bursts."""

    wall_s: dict[str, float] = field(default_factory=dict)
    cpu_s: dict[str, float] = field(default_factory=dict)
    bursts_s: float = 0.0
    bursts: int = 0
    commands: int = 0

    @property
    def beyond_s(self) -> float:
        return sum(took for step, took in self.wall_s.items() if not step.endswith("(beside)"))


class Watch:
    """Times the steps of each attempt; attempts that have ended are in ``courses``."""

    def __init__(self) -> None:
        self.courses: list[Course] = []
        self._inside = threading.local()  # per thread, for each step that is running: the time of the steps inside it
        self._main = threading.main_thread()

    @contextmanager
    def step(self, name: str, *, asked_s: float = 0.0) -> Iterator[None]:
        """Time a step, without the steps inside it and without ``asked_s``."""
        stack: list[list[float]] = self._inside.__dict__.setdefault("stack", [])
        beside = threading.current_thread() is not self._main
        clock = time.thread_time if beside else time.process_time
        stack.append([0.0, 0.0])
        wall, cpu = time.perf_counter(), clock()
        try:
            yield
        finally:
            took, used = time.perf_counter() - wall, clock() - cpu
            inner_wall, inner_cpu = stack.pop()
            if stack:
                stack[-1][0] += took
                stack[-1][1] += used
            if self.courses:
                course, key = self.courses[-1], f"{name} (beside)" if beside else name
                course.wall_s[key] = course.wall_s.get(key, 0.0) + took - inner_wall - asked_s
                course.cpu_s[key] = course.cpu_s.get(key, 0.0) + used - inner_cpu

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if function is engine_attempt:
                self.courses.append(Course())
            with self.step(name):
                return function(*args, **kwargs)

        return call

    def burst(self, generator: Generator, name: str, seconds: float) -> Any:
        if not self.courses:
            return engine_burst(generator, name, seconds)
        self.courses[-1].bursts_s += seconds
        self.courses[-1].bursts += 1
        with self.step(f"burst {name}, beyond what was asked", asked_s=seconds):
            return engine_burst(generator, name, seconds)

    def channel(self, host: SshHost, argv: Any) -> Any:
        if self.courses:
            self.courses[-1].commands += 1
        return ssh_channel(host, argv)


engine_attempt = engine._attempt
engine_burst = Generator.burst
ssh_channel = SshHost.channel


def courses() -> list[Course]:
    """Return the times of each attempt of one smoke run."""
    plan = load_plan(shipped("plans") / "smoke.yaml")
    watch = Watch()
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        lab = stack.enter_context(runs.lab_for("netns:bench"))
        started = runs.start(plan, lab, Path(folder))
        for name, owner, attribute in STEPS:
            stack.enter_context(mock.patch.object(owner, attribute, watch.timed(name, getattr(owner, attribute))))
        stack.enter_context(mock.patch.object(Generator, "burst", lambda *a: watch.burst(*a)))
        stack.enter_context(mock.patch.object(SshHost, "channel", lambda *a: watch.channel(*a)))
        runs.execute(started, lab, runs.quiet())
        ended = read_state(started).attempts
    assert len(ended) == len(watch.courses)
    assert all(attempt.status == "measured" for attempt in ended), [attempt.reason for attempt in ended]
    return watch.courses


def table(found: list[Course]) -> pd.DataFrame:
    """Return medians per trial, in ms; a step that a trial does not have counts as 0 ms."""
    steps = dict.fromkeys(step for course in found for step in course.wall_s)

    def median_ms(part: str, step: str) -> float:
        return 1e3 * float(statistics.median(getattr(course, part).get(step, 0.0) for course in found))

    rows = [(step, median_ms("wall_s", step), median_ms("cpu_s", step)) for step in steps]
    return pd.DataFrame(rows, columns=["step", "wall_ms", "controller_cpu_ms"]).sort_values(
        "wall_ms", ascending=False, ignore_index=True
    )


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=3, help="repetitions of the smoke plan (%(default)s)")


def measure(arguments: argparse.Namespace) -> list[Aim]:
    by_run = [courses() for _ in range(arguments.runs)]
    found = [course for one in by_run for course in one]
    print(table(found).to_string(index=False, float_format="{:.1f}".format))
    print(
        f"per trial: {statistics.median(c.bursts for c in found):g} bursts of "
        f"{statistics.median(c.bursts_s for c in found):.2f} s in all, "
        f"{statistics.median(c.commands for c in found):g} commands"
    )
    medians = [statistics.median(course.beyond_s for course in one) for one in by_run]
    print(pd.DataFrame({"run": range(1, len(by_run) + 1), "median_s": medians}).to_string(index=False))
    return [Aim("a trial beyond its bursts, s", statistics.median(medians), at_most=MOST_S)]


if __name__ == "__main__":
    sys.exit(run(__doc__, measure, most_s=600, options=options))
