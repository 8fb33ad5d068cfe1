"""Reads the counters of one host: at rest by one request, or by recorders that run during the window.

Files are named as in a run's `counters/` folder and contain the tools' output; `columns` needs only them. A tool
that is missing or fails leaves a `.err` file with its message.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.resources import files as package_files
from types import TracebackType

from xdplab.counters.table import (
    COLLECTORS,
    LAGS_S,
    SCRIPTS,
    Collector,
    Recorder,
    Role,
    When,
    record_file,
    recorder,
    snapshot_file,
)
from xdplab.errors import HostError
from xdplab.formats.ethtool import parse_driver
from xdplab.hosts import Host, Process, Result, run_together
from xdplab.hosts.tool import HostReading, Reader
from xdplab.plan import UserMetric

Files = dict[str, bytes]
METRIC_DEADLINE_S = 10
CLOCK = "clock"
START_DEADLINE_S = 10.0
STOP_DEADLINE_S = 10.0
ABANDON_DEADLINE_S = 1.0
_STARTED = "started"


@dataclass(frozen=True)
class CounterProbe:
    """The counters of ``device`` on ``host``; ``directory`` holds the scripts there.

    ``reader`` makes the readings at rest. ``sampler`` is the path of the C tool there, which only a host with recorders
    needs.
    ``lag_s``: how far the device's counters may lag behind; a reading at rest waits this long.
    """

    host: Host
    role: Role
    device: str
    directory: str
    reader: Reader
    lag_s: float = 0.0
    sampler: str = ""

    def snapshot(self, when: When, metrics: Sequence[UserMetric] = (), *, clock: Sequence[str] = ()) -> Files:
        """Read all collectors, and the user's metrics of this ``when``, by one request. Raises HostError.

        ``clock`` measures the CPUs' clock: it keeps them busy, so it runs outside the time that the others span.
        """
        time.sleep(self.lag_s)
        clocks = {CLOCK: (HostReading(tuple(clock)), "jsonl")} if clock else {}
        readings = dict(clocks) if when == "before" else {}
        readings |= {row.name: (row.reading(self.device), row.extension) for row in _in_order(when)}
        for metric in (metric for metric in metrics if metric.when == when):
            # A user's command may hang; the counters after it are still read.
            argv = ("timeout", str(METRIC_DEADLINE_S), *metric.argv)
            readings[metric_collector(metric.name)] = (HostReading(argv), "txt")
        readings |= clocks
        deadline_s = 30.0 + METRIC_DEADLINE_S * len(metrics)
        results = self.reader.take([reading for reading, _ in readings.values()], deadline_s=deadline_s)
        files: Files = {}
        for (name, (_, extension)), result in zip(readings.items(), results, strict=True):
            if result.ok:
                files[snapshot_file(self.role, name, when, extension)] = result.stdout
            else:
                message = _output(result.stderr, result.stdout, result.exit_code)
                files[snapshot_file(self.role, name, when, "err")] = message
        return files

    def start(self, names: Sequence[str], *, events: Sequence[str] = (), deadline_s: float) -> Recording:
        """Start recorders (`perf`, `samples`, `sar`) and return once each records or has given up.

        ``events`` are perf's. The host itself ends them after ``deadline_s`` at the latest.
        """
        recording = self.make_ready(names, events=events, deadline_s=deadline_s)
        try:
            recording.await_started()
        except BaseException:
            recording.abandon()
            raise
        return recording

    def make_ready(self, names: Sequence[str], *, events: Sequence[str] = (), deadline_s: float) -> Recording:
        """Start the recorders as `start` does, without waiting; `Recording.await_started` does that.

        The sampler takes its first note then; the others record as soon as they can.
        """
        recording = Recording(self.role)
        try:
            for row in [recorder(name) for name in names]:
                argv = row.command(device=self.device, events=events, directory=self.directory, sampler=self.sampler)
                recording.start(self.host, row, argv, deadline_s)
        except BaseException:
            recording.abandon()
            raise
        return recording

    def close(self) -> None:
        """End what makes the readings; it is started again with the next one."""
        with suppress(HostError):  # it may not run, or its connection is lost
            self.reader.finish()


def install(host: Host, role: Role, device: str, directory: str, *, reader: str, sampler: str = "") -> CounterProbe:
    """Put the scripts into ``directory`` on the host (once per host) and return its probe.

    ``reader`` and ``sampler`` are the paths of the C tools there. The probe must be closed.
    """
    scripts = {f"{directory}/{name}": package_files(__package__).joinpath(name).read_bytes() for name in SCRIPTS}
    answer, *sums = run_together(host, [["ethtool", "-i", device], *(["sha256sum", path] for path in scripts)])
    for (path, script), shown in zip(scripts.items(), sums, strict=True):
        if not shown.text.startswith(hashlib.sha256(script).hexdigest()):
            host.put(script, path, mode=0o755)
    lag = LAGS_S.get(parse_driver(answer.stdout), 0.0) if answer.ok else 0.0
    return CounterProbe(host, role, device, directory, Reader(host, reader), lag, sampler)


def metric_collector(name: str) -> str:
    return f"metric_{name}"


@dataclass
class Recording:
    """Recorders that run on one host. The end of its block ends those that were not stopped."""

    role: Role
    processes: dict[str, Process] = field(default_factory=dict)
    failures: dict[str, tuple[Sequence[str], str]] = field(default_factory=dict)

    def start(self, host: Host, row: Recorder, argv: Sequence[str], deadline_s: float) -> None:
        """Start one recorder. If the host cannot start it, its error is kept."""
        try:
            self.processes[row.name] = host.start(argv, deadline_s=deadline_s)
        except HostError as error:
            self.failures[row.name] = (argv, error.message)

    def await_started(self) -> None:
        """Wait until each recorder echoes one line, which means that it records. `stop` says why one ended instead."""
        signalled = [process for process in self.processes.values() if _tell(process)]
        for process in signalled:
            process.read_line(START_DEADLINE_S)

    def stop(self) -> Files:
        """End the recorders and return their files."""
        for process in self.processes.values():
            process.close_stdin()
        files: Files = {}
        for name, process in self.processes.items():
            files.update(self._files(recorder(name), process.wait(STOP_DEADLINE_S)))
        for name, (argv, message) in self.failures.items():
            files[record_file(self.role, name, "run.json")] = _run_json(argv, None)
            files[record_file(self.role, name, "err")] = message.encode()
        self.processes, self.failures = {}, {}
        return files

    def _files(self, row: Recorder, result: Result) -> Files:
        record = result.stdout.removeprefix(_STARTED.encode() + b"\n")
        files = {record_file(self.role, row.name, "run.json"): _run_json(result.argv, result.exit_code)}
        if result.ok:
            files[record_file(self.role, row.name)] = record
        else:
            files[record_file(self.role, row.name, "err")] = _output(result.stderr, record, result.exit_code)
        return files

    def abandon(self) -> None:
        """End every recorder and discard its record. Recorders clean up after themselves, unless they must be
        killed."""
        for process in self.processes.values():
            process.close_stdin()
        for process in self.processes.values():
            process.wait(ABANDON_DEADLINE_S)
        self.processes = {}

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.abandon()


def _tell(process: Process) -> bool:
    try:
        process.write_line(_STARTED)
    except HostError:
        return False
    return True


def _run_json(argv: Sequence[str], exit_code: int | None) -> bytes:
    return json.dumps({"argv": list(argv), "exit_code": exit_code}).encode() + b"\n"


def _output(error: bytes, output: bytes, exit_code: int | None) -> bytes:
    """Return the tool's own error message; if it printed none, a description of its end."""
    how = "it was ended at its deadline" if exit_code in (None, 124) else f"it exited with {exit_code}"
    return error.strip() or output.strip() or how.encode()


def _in_order(when: When) -> Sequence[Collector]:
    return COLLECTORS if when == "before" else [row for row in COLLECTORS[::-1] if not row.once]
