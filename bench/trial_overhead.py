"""The overhead of a trial: the wall time of an attempt minus the duration of its bursts, medians over smoke runs.

The table says where the time goes: milliseconds per trial (medians), each step without the steps inside it. A burst
counts only with the time beyond the requested duration: setting up, waiting for the last frames, reading out. Steps
marked "beside" run in a thread of their own; the time that the trial waits for them is in the rest. What a block does
between its trials is marked so, and is no trial's: it is told, not counted. CPU time is that of
the controller; commands are processes started on a host by SSH. The course shows one trial, the one with the median
overhead: each step, command and request, when it began and how long it took.

The aims: a median of 0.12 s in the netns lab, and one day of 0.08 s. Needs root.
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
from bounded import Aim, run, show

from xdplab.counters.probe import CounterProbe, Recording
from xdplab.generators import Generator
from xdplab.hosts.ssh import SshHost
from xdplab.hosts.tool import Reader
from xdplab.plan import load_plan
from xdplab.resources import shipped
from xdplab.run import rundir
from xdplab.run.engine import Engine
from xdplab.run.journal import Journal
from xdplab.run.progress import silent
from xdplab.run.state import read_state
from xdplab.studies.traffic import runs, trial, turns
from xdplab.studies.traffic.dut import KernelSide
from xdplab.studies.traffic.kind import TRAFFIC
from xdplab.studies.traffic.passes import RawFiles

MOST_S, SOME_DAY_S = 0.12, 0.08

BESIDE, BETWEEN, THE_TRIAL = "(beside)", "(between trials)", "the rest"
STEPS: tuple[tuple[str, Any, str], ...] = (
    (THE_TRIAL, Engine, "_attempt"),
    ("load and attach", trial, "attach"),
    ("start the generator", Generator, "start"),
    ("prove the path", trial, "prove"),
    ("warm up", trial, "warm_up"),
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
    began: float = field(default_factory=time.perf_counter)
    events: list[tuple[float, float, str]] = field(default_factory=list)
    """When each began, in seconds since the trial did, how long it took, and what it is."""

    @property
    def beyond_s(self) -> float:
        return sum(took for step, took in self.wall_s.items() if not step.endswith((BESIDE, BETWEEN)))


class Watch:
    """Times the steps of each attempt; attempts that have ended are in ``courses``."""

    def __init__(self) -> None:
        self.courses: list[Course] = []
        self.trial_runs = False
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
                course = self.courses[-1]
                key = f"{name} {BESIDE}" if beside else name if self.trial_runs else f"{name} {BETWEEN}"
                course.events.append((wall - course.began, took, key))
                course.wall_s[key] = course.wall_s.get(key, 0.0) + took - inner_wall - asked_s
                course.cpu_s[key] = course.cpu_s.get(key, 0.0) + used - inner_cpu

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if function is not engine_attempt:
                with self.step(name):
                    return function(*args, **kwargs)
            self.courses.append(Course())
            self.trial_runs = True
            try:
                with self.step(name):
                    return function(*args, **kwargs)
            finally:
                self.trial_runs = False

        return call

    def burst(self, generator: Generator, name: str, seconds: float) -> Any:
        if not self.trial_runs:
            return engine_burst(generator, name, seconds)
        self.courses[-1].bursts_s += seconds
        self.courses[-1].bursts += 1
        with self.step(f"burst {name}, beyond what was asked", asked_s=seconds):
            return engine_burst(generator, name, seconds)

    def channel(self, host: SshHost, argv: Any) -> Any:
        if self.trial_runs:
            self.courses[-1].commands += 1
        behind_guard = argv[7:] or argv  # of the shell and the `timeout` that each command runs under
        with self.event(f"- {host.name}: command {Path(behind_guard[0]).name}"):
            return ssh_channel(host, argv)

    def take(self, reader: Reader, readings: Any, **options: Any) -> Any:
        with self.event(f"- {reader.name}: {len(readings)} readings in one request"):
            return reader_take(reader, readings, **options)

    @contextmanager
    def event(self, name: str) -> Iterator[None]:
        """Put something into the course that is no step."""
        began = time.perf_counter()
        yield
        if self.courses and self.trial_runs:
            course = self.courses[-1]
            course.events.append((began - course.began, time.perf_counter() - began, name))


engine_attempt = Engine._attempt
engine_burst = Generator.burst
ssh_channel = SshHost.channel
reader_take = Reader.take


def courses() -> list[Course]:
    """Return the times of each attempt of one smoke run."""
    plan = load_plan(shipped("plans") / "smoke.yaml")
    watch = Watch()
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        lab = stack.enter_context(turns.lab_for("netns:bench"))
        started = runs.start(plan, lab, Path(folder))
        for name, owner, attribute in STEPS:
            stack.enter_context(mock.patch.object(owner, attribute, watch.timed(name, getattr(owner, attribute))))
        stack.enter_context(mock.patch.object(Generator, "burst", lambda *a: watch.burst(*a)))
        stack.enter_context(mock.patch.object(SshHost, "channel", lambda *a: watch.channel(*a)))
        stack.enter_context(mock.patch.object(Reader, "take", lambda *a, **k: watch.take(*a, **k)))
        TRAFFIC.run(started).measure_at(runs.InLab(lab), silent())
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


def rounded(steps: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table without those that take no time, in tenths of a millisecond."""
    kept = steps[steps["wall_ms"] >= 0.05]
    return [
        {str(name): value if name == "step" else round(value, 1) for name, value in row.items()}
        for row in kept.to_dict("records")
    ]


def course(one: Course) -> list[dict[str, Any]]:
    """Return all that a trial did, in the order in which it began."""
    return [
        {"began, ms": f"{1e3 * began:.1f}", "took, ms": f"{1e3 * took:.1f}", "what": what}
        for began, took, what in sorted(one.events)
        if took >= 5e-5
    ]


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=3, help="repetitions of the smoke plan (%(default)s)")


def measure(arguments: argparse.Namespace) -> list[Aim]:
    by_run = [courses() for _ in range(arguments.runs)]
    found = [course for one in by_run for course in one]
    show("Where a trial's time goes beyond its bursts, medians in ms", rounded(table(found)))
    typical = sorted(found, key=lambda one: one.beyond_s)[len(found) // 2]
    show(f"The course of one trial ({1e3 * typical.beyond_s:.0f} ms beyond its bursts)", course(typical))
    print(
        f"per trial: {statistics.median(c.bursts for c in found):g} bursts of "
        f"{statistics.median(c.bursts_s for c in found):.2f} s in all, "
        f"{statistics.median(c.commands for c in found):g} commands"
    )
    medians = [statistics.median(course.beyond_s for course in one) for one in by_run]
    print(pd.DataFrame({"run": range(1, len(by_run) + 1), "median_s": medians}).to_string(index=False))
    found_s = statistics.median(medians)
    return [
        Aim("a trial beyond its bursts, s", found_s, at_most=MOST_S),
        Aim("a trial beyond its bursts, s, some day", found_s, at_most=SOME_DAY_S),
    ]


if __name__ == "__main__":
    sys.exit(run(__doc__, measure, most_s=600, options=options))
