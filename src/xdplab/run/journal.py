"""The journal: one JSON line a fact, append-only, the one source of truth for what a run has measured."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from xdplab.errors import ResultsError


class Journal:
    """``journal.jsonl`` of a run. A line is on disk before ``append`` returns; a torn last line counts as absent."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, event: str, **facts: Any) -> None:
        """Write one line ``{"event", "time", …}`` and wait until it is on disk. Raises ResultsError (full disk)."""
        line = json.dumps({"event": event, "time": time.time(), **facts}, separators=(",", ":")) + "\n"
        before = self.path.stat().st_size if self.path.exists() else 0
        try:
            with self.path.open("ab", buffering=0) as file:
                file.write(line.encode())
                os.fsync(file.fileno())
        except OSError as error:
            self._cut(before)
            raise ResultsError(
                f"{self.path} cannot be written: {error.strerror}",
                remedy="free some space, then `xdplab resume`; what was measured is kept",
            ) from error

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

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield every whole line. Raises ResultsError for a line in the middle that is not JSON."""
        if not self.path.exists():
            raise ResultsError(f"{self.path} is absent", remedy="name a run directory")
        lines = self.path.read_bytes().split(b"\n")
        for number, line in enumerate(lines[:-1], 1):
            try:
                yield json.loads(line)
            except ValueError:
                raise ResultsError(
                    f"{self.path}: line {number} is not JSON: the journal was edited or damaged"
                ) from None
