"""Readings of one host over one channel that stays open: an SSH command of its own costs 4 ms before it runs.

    reader = Reader(host, path)       # `path`: the C tool there, built by `deploy.native`
    reader.run(["ip", "-j", "link"])  # a Result, as of `Host.run`
    reader.close()

The tool is started with the first reading, and again after one that failed. Between two readings it sleeps.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from xdplab.errors import HostError
from xdplab.hosts.base import Host, Process, Result

ANSWER_S = 30.0
SESSION_S = 14 * 86400.0
"""The longest time that it stays open. The end of its connection ends it sooner."""
RENEWED_BYTES = 1 << 24
"""Characters of answers after which the tool is started anew: a process's output is kept until it ends."""
END_S = 5.0
NEW_DROP_IN = "`xdplab lab sudoers INVENTORY` prints what /etc/sudoers.d/xdplab needs"


@dataclass(frozen=True)
class HostReading:
    """What is read: ``run`` a command, a ``file``, or ``settings`` of a port and of files by their patterns."""

    words: tuple[str, ...]
    kind: Literal["run", "file", "settings"] = "run"

    @property
    def spoken(self) -> tuple[str, ...]:
        """The command that it stands for."""
        return {"run": (), "file": ("cat",), "settings": ("reader", "settings")}[self.kind] + self.words

    def line(self) -> str:
        """Return the tool's line for it."""
        return " ".join([self.kind, *(word.encode(errors="surrogateescape").hex() for word in self.words)])


class Reader:
    """One host's readings; one thread at a time."""

    def __init__(self, host: Host, binary: str) -> None:
        self._host, self._binary = host, binary
        self._process: Process | None = None
        self._said = 0

    @property
    def name(self) -> str:
        """The host's name."""
        return self._host.name

    def run(self, argv: Sequence[str], *, deadline_s: float = ANSWER_S, check: bool = True) -> Result:
        """Run a short command to its end. ``check`` raises HostError if it fails."""
        (result,) = self.read([HostReading(tuple(argv))], deadline_s=deadline_s)
        return result.require() if check else result

    def read(self, readings: Sequence[HostReading], *, deadline_s: float = ANSWER_S) -> list[Result]:
        """Make the readings one after another, by one request; return each one's result.

        Raises HostError if the tool ends, or has not made all of them after ``deadline_s``.
        """
        until = time.monotonic() + deadline_s
        try:
            process = self._started()
            self._ask(process, readings)
            return [self._result(process, reading, until) for reading in readings]
        except BaseException:
            if self._process is not None:
                self._process.kill()  # a command may hang
            self.close()
            raise

    def _ask(self, process: Process, readings: Sequence[HostReading]) -> None:
        try:
            process.send("".join(f"{reading.line()}\n" for reading in readings).encode())
        except HostError as error:
            if error.__cause__ is None:  # it runs, and does not read
                raise
            # It has ended, and why is what it printed: `_answer` reads that.

    def _started(self) -> Process:
        if self._process is not None and self._said > RENEWED_BYTES:
            self.close()
        if self._process is None:
            self._process = self._host.start([self._binary], deadline_s=SESSION_S)
            self._said = 0
        return self._process

    def _result(self, process: Process, reading: HostReading, until: float) -> Result:
        began = time.monotonic()
        try:
            line = process.read_line(until - began)
        except HostError:
            if time.monotonic() < until:
                raise
            Result(self.name, reading.spoken, None, b"", b"", time.monotonic() - began, timed_out=True).require()
            raise
        answer = self._answer(process, line)
        self._said += len(line or "")
        output, error = (bytes.fromhex(answer[stream]) for stream in ("output", "error"))
        return Result(self.name, reading.spoken, answer["exit_code"], output, error, time.monotonic() - began)

    def _answer(self, process: Process, line: str | None) -> dict[str, Any]:
        if line is None:
            result = process.wait(END_S)
            words = result.error_text[-400:] or "it printed nothing more"
            remedy = NEW_DROP_IN if "sudo: " in words else None
            raise HostError(
                f"{self.name}: {self._binary} ended with exit code {result.exit_code}: {words}", remedy=remedy
            )
        try:
            answer = json.loads(line)
        except ValueError:
            raise HostError(f"{self.name}: a reading came back cut: {line[-200:]!r}") from None
        if answer["type"] != "answer":
            raise HostError(f"{self.name}: {self._binary}: {answer.get('message', line)}")
        return dict(answer)

    def close(self) -> None:
        """End the tool; harmless if it does not run."""
        process, self._process = self._process, None
        if process is not None:
            process.close_stdin()
            process.wait(END_S)
