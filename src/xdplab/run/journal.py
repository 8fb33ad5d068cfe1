"""The journal: one JSON line per fact, append-only, the one source of truth about a run's measurements.

What each line of a journal holds: every verb reads journals through this one check.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from xdplab.errors import ResultsError
from xdplab.lazy import lazily
from xdplab.run.disk import REMEDY, allocate, disk_errors, open_file, reason

with lazily():
    import pydantic_core

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""What a journal may call a run, a trial, a program: a part of a path that leads nowhere else."""
_PLAN = re.compile(r"plan(-\d+)?\.yaml")
_MOST = 1e15


@dataclass(frozen=True)
class ValueKind:
    """A kind of value: its name in messages, and the test for it."""

    text: str
    fits: Callable[[Any], bool]


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and NAME.fullmatch(value) is not None


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and -_MOST < value < _MOST


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MOST


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_files(value: Any) -> bool:
    """Whether it has the bytes of files by their names in a folder: a journal has hundreds of thousands of them."""
    if not isinstance(value, dict):
        return False
    sizes = value.values()
    return not value or (set(map(type, sizes)) == {int} and 0 <= min(sizes) <= max(sizes) < _MOST and _inside(*value))


@lru_cache(maxsize=256)  # the attempts of a run have files of the same names
def _inside(*files: str) -> bool:
    return not any(name.startswith("/") or ".." in name.split("/") for name in files)


def _list_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(fits, value))


def _map_of(name: Callable[[Any], bool], fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(map(name, value)) and all(map(fits, value.values()))


def _or_null(kind: ValueKind) -> ValueKind:
    return ValueKind(f"{kind.text} or null", lambda value: value is None or kind.fits(value))


ID, TEXT = ValueKind("a name of letters, digits, . _ -", _is_name), ValueKind("text", _is_text)
NUMBER, COUNT = ValueKind("a number", _is_number), ValueKind("a whole number from 0 on", _is_count)
IDS, TEXTS = ValueKind("a list of names", _list_of(_is_name)), ValueKind("a list of texts", _list_of(_is_text))
COUNTS, NUMBERS = (
    ValueKind("a list of whole numbers", _list_of(_is_count)),
    ValueKind("a list of numbers", _list_of(_is_number)),
)
FACTS = ValueKind("a mapping", lambda value: isinstance(value, dict))
FLAG = ValueKind("true or false", lambda value: isinstance(value, bool))
FILES = ValueKind("file names in the attempt with their bytes", _are_files)
WORDS = ValueKind("a mapping of texts", _map_of(_is_text, _is_text))
PLAN = ValueKind("the name of a plan in the run", lambda value: _is_text(value) and _PLAN.fullmatch(value) is not None)
STATUS = ValueKind("measured, unsupported or failed", lambda value: value in ("measured", "unsupported", "failed"))
WHEN = ValueKind("before or after", lambda value: value in ("before", "after"))

EVENTS: Mapping[str, Mapping[str, ValueKind]] = {
    "created": {"run_id": ID, "kind?": TEXT},
    "planned": {
        "trials": IDS, "blocks?": COUNTS, "costs_s?": NUMBERS, "open_ended?": FLAG, "plan?": PLAN, "sha256?": ID,
        "lab?": TEXT, "arrangement?": TEXT, "only?": _or_null(WORDS),
    },
    "hosts": {"when": WHEN, "session": COUNT, "state": FACTS, "place?": TEXT},
    "started": {"trial_id": ID, "attempt": COUNT},
    "finished": {
        "trial_id": ID, "attempt": COUNT, "status": STATUS, "reason": _or_null(TEXT), "duration_s": NUMBER,
        "facts": FACTS, "wall_s?": _or_null(NUMBER), "files": FILES,
    },
    "released": {"trials": IDS, "why": TEXT},
    "ended": {"how": TEXT},
    "shared": {"labs": TEXTS, "scheduler": _or_null(TEXT)},
    "lab_lost": {"lab": TEXT, "reason": TEXT},
    "waiting": {"why": _or_null(TEXT)},
}  # fmt: skip
"""The fields of each event; those with a question mark may be absent. Other fields, and other events, are let be."""

_FIELDS = {
    event: {name.rstrip("?"): (kind, not name.endswith("?")) for name, kind in fields.items()}
    for event, fields in EVENTS.items()
}
"""The same for reading: a field's kind, and whether it is needed."""

_ARE_ANSWERS = _map_of(_is_text, _map_of(_is_text, _is_text))


def _is_of_a_lab(state: Mapping[str, Any]) -> bool:
    sides = (state.get(name) for name in ("dut", "tg"))
    mappings = _map_of(_is_text, FACTS.fits)
    return _is_text(state.get("lab")) and FACTS.fits(state.get("xdplab")) and all(map(mappings, sides))


class NotAnEventError(ValueError):
    """A line of a journal is none of its events; the message says why."""


@dataclass
class CheckedLines:
    """How much of a journal was checked: its bytes and lines, how often each event came, the last one, and the trials
    it planned."""

    size: int = 0
    lines: int = 0
    last: dict[str, Any] | None = None
    counts: Counter[str] = field(default_factory=Counter)
    planned: set[str] = field(default_factory=set)

    def take(self, line: bytes) -> dict[str, Any]:
        """Return the event of the next line. Raises NotAnEventError."""
        event = parsed(line)
        kind = event["event"]
        for name, (wanted, needed) in _FIELDS.get(kind, {}).items():
            if name not in event:
                if needed:
                    raise NotAnEventError(f"{kind}.{name} is missing")
            elif not wanted.fits(event[name]):
                raise NotAnEventError(f"{kind}.{name} is not {wanted.text}")
        self._require_sense(event)
        self.size += len(line)
        self.lines += 1
        self.counts[kind] += 1
        self.last = event
        return event

    def _require_sense(self, event: Mapping[str, Any]) -> None:
        """Raise NotAnEventError if fields contradict each other, or what the journal said before."""
        match event["event"]:
            case "planned":
                for name in ("blocks", "costs_s"):
                    if name in event and len(event[name]) != len(event["trials"]):
                        raise NotAnEventError(f"planned.{name} is not of as many trials as planned.trials")
                self.planned.update(event["trials"])
                lacks = [name for name in ("sha256", "lab", "arrangement", "only") if name not in event]
                if "plan" in event and lacks:
                    raise NotAnEventError(f"planned.{lacks[0]} is missing")
            case "hosts":
                if not (_ARE_ANSWERS if "place" in event else _is_of_a_lab)(event["state"]):
                    raise NotAnEventError("hosts.state has not the answers of hosts")
            case "started" | "finished":
                if event["trial_id"] not in self.planned:
                    raise NotAnEventError(f"trial {event['trial_id']} was not planned")


def parsed(line: bytes) -> dict[str, Any]:
    """Return the event that a line is, unchecked. Raises NotAnEventError."""
    try:
        event = pydantic_core.from_json(line)  # in half the time of Python's own; it refuses half a character
    except ValueError:
        event = None
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        raise NotAnEventError("it is no JSON object with an `event`")
    if not _is_number(event.get("time")):
        raise NotAnEventError("its time is not a number")
    return event


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
        self.checked = CheckedLines()

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
        """Yield every whole line, or those of these ``kinds``. Each line that was not ``checked`` is when it is read.

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
        self._check()
        return self.checked.counts[kind]

    def last(self) -> dict[str, Any] | None:
        """Return the last event; None if there is none."""
        self._check()
        return self.checked.last

    def _check(self) -> None:
        """Check the lines that are new."""
        if not self.path.exists() or self.path.stat().st_size != self.checked.size:
            deque(self._lines(), maxlen=0)

    def _lines(self) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
        """Yield every whole line; with its event, if this is the first reading of it."""
        try:
            with self.path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self.checked.size:
                    self.checked = CheckedLines()  # another journal took its place
                end = 0
                for line in file:
                    if not line.endswith(b"\n"):
                        return
                    with _READS:
                        event = self._taken(line) if end == self.checked.size else None
                    end += len(line)
                    yield line, event
        except FileNotFoundError:
            raise ResultsError(f"{self.path} is absent", remedy="name a run directory") from None

    def _taken(self, line: bytes) -> dict[str, Any]:
        try:
            return self.checked.take(line)
        except NotAnEventError as error:
            raise ResultsError(
                f"{self.path}: line {self.checked.lines + 1} is not an event: {error}",
                remedy="the journal was edited or damaged: put it back, or import the run again",
            ) from None
