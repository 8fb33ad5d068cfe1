"""Readings of one host over one channel that stays open: an SSH command of its own costs 4 ms before it runs.

    reader = Reader(host, path)       # `path`: the C tool there, built by `deploy.native`
    reader.run(["ip", "-j", "link"])  # a Result, as of `Host.run`
    reader.close()

The tool is started with the first reading, and again after one that failed. Between two readings it sleeps.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from xdplab.errors import HostError, XdplabError
from xdplab.hosts.base import Host, Result
from xdplab.hosts.tool import ANSWER_S, ToolSession

SESSION_S = 14 * 86400.0
"""The longest time that it stays open. The end of its connection ends it sooner."""
RENEWED_BYTES = 1 << 24
"""Characters of answers after which the tool is started anew: a process's output is kept until it ends."""
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


class Reader(ToolSession):
    """One host's readings; one thread at a time."""

    def __init__(self, host: Host, binary: str) -> None:
        super().__init__(host, [binary], deadline_s=SESSION_S)
        self._characters = 0

    @property
    def name(self) -> str:
        """The host's name."""
        return self.host.name

    def run(self, argv: Sequence[str], *, deadline_s: float = ANSWER_S, check: bool = True) -> Result:
        """Run a short command to its end. ``check`` raises HostError if it fails."""
        (result,) = self.take([HostReading(tuple(argv))], deadline_s=deadline_s)
        return result.require() if check else result

    def take(self, readings: Sequence[HostReading], *, deadline_s: float = ANSWER_S) -> list[Result]:
        """Take the readings one after another, by one request; return each one's result.

        Raises HostError if the tool ends, or has not taken all of them after ``deadline_s``.
        """
        until = time.monotonic() + deadline_s
        if self._characters > RENEWED_BYTES:
            self.finish()
            self._characters = 0
        self.open()
        try:
            self.send("\n".join(reading.line() for reading in readings))
            return [self._result(reading, until) for reading in readings]
        except BaseException:
            self.close()  # a command may hang
            raise

    def _result(self, reading: HostReading, until: float) -> Result:
        began = time.monotonic()
        try:
            answer = self.read("answer", until - began)
        except HostError:
            if self.running and time.monotonic() >= until:
                waited_s = time.monotonic() - began
                Result(self.name, reading.spoken, None, b"", b"", waited_s, timed_out=True).require()
            raise
        self._characters += len(self._lines.pop())
        output, error = (bytes.fromhex(answer[stream]) for stream in ("output", "error"))
        return Result(self.name, reading.spoken, answer["exit_code"], output, error, time.monotonic() - began)

    def failure(self, text: str) -> XdplabError:
        """The remedy if sudo refuses the tool."""
        error = super().failure(text)
        error.remedy = NEW_DROP_IN if "sudo: " in text else None
        return error
