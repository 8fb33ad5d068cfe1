"""The journal: one JSON line per fact, append-only, the one source of truth about a run's measurements."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from xdplab.errors import ResultsError
from xdplab.run.disk import REMEDY, allocate, disk_errors, open_file, reason
from xdplab.run.events import CheckedLines, NotAnEventError, parsed

RESERVE = 65_536
"""Bytes on disk kept for the lines of the trial that is measured next; its longest line so far had 8 kB."""

_BEGINNING = re.compile(rb'{"event":"(\w+)",')
"""How `append` begins a line: the kind of a line that was checked before is known without reading it all."""
_READS = threading.Lock()
_WRITES = threading.Lock()
"""Threads of one process write a line each: a line that the disk did not take is cut off, and no other."""


class Journal:
    """``journal.jsonl`` of a run. A line is on disk before ``append`` returns; a torn last line counts as absent."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._checked = CheckedLines()

    def append(self, event: str, *, wait: bool = True, **facts: Any) -> None:
        """Write one line ``{"event", "time", …}`` and wait until it is on disk. Raises ResultsError (full disk).

        A line that no later reader needs can do without ``wait``, which takes milliseconds.
        """
        line = json.dumps({"event": event, "time": time.time(), **facts}, separators=(",", ":")) + "\n"
        with _WRITES:
            before = self.path.stat().st_size if self.path.exists() else 0
            try:
                with open_file(self.path, "a") as file:
                    rest = memoryview(line.encode())
                    while rest:  # a disk that becomes full takes a part, and refuses the rest
                        rest = rest[file.write(rest) :]
                    if wait:
                        os.fsync(file.fileno())
            except OSError as error:
                self._cut(before)
                raise ResultsError(f"{self.path} cannot be written: {reason(error)}", remedy=REMEDY) from error

    def reserve(self) -> None:
        """Keep room on the disk for the next lines, so that a trial whose raw files fit is journalled too.

        The file's size stays. File systems without fallocate(2) reserve nothing. Raises ResultsError (full disk).
        """
        with disk_errors(self.path), open_file(self.path, "a") as file:
            allocate(file.fileno(), file.tell(), RESERVE)

    def _cut(self, size: int) -> None:
        if self.path.exists() and self.path.stat().st_size > size:
            with open_file(self.path, "r+") as file:
                file.truncate(size)

    def mend(self) -> None:
        """Cut a last line that a kill left unfinished, so that the next line does not join it."""
        if not self.path.exists():
            return
        data = self.path.read_bytes()
        if data and not data.endswith(b"\n"):
            self._cut(data.rfind(b"\n") + 1)

    def events(self, *kinds: str) -> Iterator[dict[str, Any]]:
        """Yield every whole line, or those of these ``kinds``. Each line is checked when it is first read.

        Raises ResultsError for a line that is not an event.
        """
        for line, event in self._lines():
            if event is None:
                if kinds and (begun := _BEGINNING.match(line)) and begun[1].decode() not in kinds:
                    continue
                event = parsed(line)
            if not kinds or event["event"] in kinds:
                yield event

    def count(self, kind: str) -> int:
        """Return how many whole lines are of this kind."""
        deque(self._lines(), maxlen=0)
        return self._checked.counts[kind]

    def last(self) -> dict[str, Any] | None:
        """Return the last event; None if there is none."""
        deque(self._lines(), maxlen=0)
        return self._checked.last

    def _lines(self) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
        """Yield every whole line; with its event, if this is the first reading of it."""
        try:
            with self.path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._checked.size:
                    self._checked = CheckedLines()  # another journal took its place
                end = 0
                for line in file:
                    if not line.endswith(b"\n"):
                        return
                    with _READS:
                        event = self._taken(line) if end == self._checked.size else None
                    end += len(line)
                    yield line, event
        except FileNotFoundError:
            raise ResultsError(f"{self.path} is absent", remedy="name a run directory") from None

    def _taken(self, line: bytes) -> dict[str, Any]:
        try:
            return self._checked.take(line)
        except NotAnEventError as error:
            raise ResultsError(
                f"{self.path}: line {self._checked.lines + 1} is not an event: {error}",
                remedy="the journal was edited or damaged: put it back, or import the run again",
            ) from None
