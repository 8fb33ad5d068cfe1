"""The journal: one JSON line per fact, append-only, the one source of truth about a run's measurements."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from xdplab.errors import ResultsError
from xdplab.run.disk import REMEDY, allocate, disk_errors, reason

RESERVE = 65_536
"""Bytes on disk kept for the lines of the trial that is measured next; its longest line so far had 8 kB."""

_WRITES = threading.Lock()
"""Threads of one process write a line each: a line that the disk did not take is cut off, and no other."""


class Journal:
    """``journal.jsonl`` of a run. A line is on disk before ``append`` returns; a torn last line counts as absent."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, event: str, *, wait: bool = True, **facts: Any) -> None:
        """Write one line ``{"event", "time", …}`` and wait until it is on disk. Raises ResultsError (full disk).

        A line that no later reader needs can do without ``wait``, which takes milliseconds.
        """
        line = json.dumps({"event": event, "time": time.time(), **facts}, separators=(",", ":")) + "\n"
        with _WRITES:
            before = self.path.stat().st_size if self.path.exists() else 0
            try:
                with self.path.open("ab", buffering=0) as file:
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
        with disk_errors(self.path), self.path.open("ab", buffering=0) as file:
            allocate(file.fileno(), file.tell(), RESERVE)

    def _cut(self, size: int) -> None:
        if self.path.exists() and self.path.stat().st_size > size:
            os.truncate(self.path, size)

    def mend(self) -> None:
        """Cut a last line that a kill left unfinished, so that the next line does not join it."""
        if not self.path.exists():
            return
        data = self.path.read_bytes()
        if data and not data.endswith(b"\n"):
            os.truncate(self.path, data.rfind(b"\n") + 1)

    def events(self, *kinds: str) -> Iterator[dict[str, Any]]:
        """Yield every whole line, or those of these ``kinds``; the others are not parsed.

        Raises ResultsError for a line that is not an event.
        """
        wanted = tuple(f'{{"event":"{kind}",'.encode() for kind in kinds)
        for number, line in enumerate(self._lines(), 1):
            if wanted and not line.startswith(wanted):
                continue
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                event = None
            if not isinstance(event, dict) or "event" not in event:
                raise ResultsError(f"{self.path}: line {number} is not an event: the journal was edited or damaged")
            yield event

    def count(self, kind: str) -> int:
        """Return how many whole lines are of this kind."""
        start = f'{{"event":"{kind}",'.encode()
        return sum(line.startswith(start) for line in self._lines())

    def _lines(self) -> Iterator[bytes]:
        try:
            with self.path.open("rb") as file:
                yield from (line for line in file if line.endswith(b"\n"))
        except FileNotFoundError:
            raise ResultsError(f"{self.path} is absent", remedy="name a run directory") from None
