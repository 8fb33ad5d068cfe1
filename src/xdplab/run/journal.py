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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

from xdplab.errors import ResultsError
from xdplab.lazy import lazily
from xdplab.run.disk import REMEDY, allocate, disk_errors, open_file, reason

with lazily():
    import pydantic_core

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""What a journal may call a run, a trial, a program: a part of a path that leads nowhere else."""
_MOST = 10**15
Schema = Mapping[str, Any]
Without = Sequence[str] | Callable[[Mapping[str, Any]], Sequence[str]]


@dataclass(frozen=True)
class ValueKind:
    """A kind of value: its name in messages, and its schema for pydantic_core, which is loaded where a line is read."""

    text: str
    schema: Schema

    @cached_property
    def validator(self) -> pydantic_core.SchemaValidator:
        return pydantic_core.SchemaValidator(self.schema)

    def fits(self, value: Any) -> bool:
        return self.validator.isinstance_python(value, strict=True)


def _map_of(names: Schema, values: Schema) -> Schema:
    return {"type": "dict", "keys_schema": names, "values_schema": values}


def _keys(schemas: Mapping[str, Schema]) -> Schema:
    """Return what has these keys; it may have others, which are not read."""
    fields = {name: {"type": "typed-dict-field", "schema": schema} for name, schema in schemas.items()}
    return {"type": "typed-dict", "fields": fields}


def _or_null(kind: ValueKind) -> ValueKind:
    return ValueKind(f"{kind.text} or null", {"type": "nullable", "schema": kind.schema})


TEXT = ValueKind("text", {"type": "str"})
ID = ValueKind("a name of letters, digits, . _ -", {"type": "str", "pattern": f"^{NAME.pattern}$"})
NUMBER = ValueKind("a number", {"type": "float", "gt": -_MOST, "lt": _MOST, "allow_inf_nan": False})
COUNT = ValueKind("a whole number from 0 on", {"type": "int", "ge": 0, "lt": _MOST})
IDS, TEXTS, COUNTS, NUMBERS = (
    ValueKind(f"a list of {of}", {"type": "list", "items_schema": kind.schema})
    for of, kind in (("names", ID), ("texts", TEXT), ("whole numbers", COUNT), ("numbers", NUMBER))
)
FACTS = ValueKind("a mapping", {"type": "dict"})
FLAG = ValueKind("true or false", {"type": "bool"})
_INSIDE = {"type": "str", "pattern": r"^(\.|\.?[^/.][^/]*|\.\.[^/]+)(/(\.?|\.?[^/.][^/]*|\.\.[^/]+))*$"}
FILES = ValueKind("file names in the attempt with their bytes", _map_of(_INSIDE, COUNT.schema))
WORDS = ValueKind("a mapping of texts", _map_of(TEXT.schema, TEXT.schema))
PLAN = ValueKind("the name of a plan in the run", {"type": "str", "pattern": r"^plan(-\d+)?\.yaml$"})
STATUS, WHEN = (
    ValueKind(f"{', '.join(words[:-1])} or {words[-1]}", {"type": "literal", "expected": list(words)})
    for words in (("measured", "unsupported", "failed"), ("before", "after"))
)

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
OF_TRIALS = ("started", "finished")

_SIDE = _map_of(TEXT.schema, FACTS.schema)
_ANSWERS = ValueKind("answers of a place", _map_of(TEXT.schema, WORDS.schema))
_STATE = ValueKind("answers of a lab", _keys({"lab": TEXT.schema, "xdplab": FACTS.schema, "dut": _SIDE, "tg": _SIDE}))


class NotAnEventError(ValueError):
    """A line of a journal is none of its events; the message says why."""


@dataclass
class CheckedLines:
    """How much of a journal was checked: its bytes and lines, how often each event came, where the last line begins,
    its kind and time, where the lines begin that are not `OF_TRIALS`, and the trials that it planned."""

    size: int = 0
    lines: int = 0
    last_place: int = 0
    last: dict[str, Any] | None = None
    counts: Counter[str] = field(default_factory=Counter)
    places: list[int] = field(default_factory=list)
    planned: set[str] = field(default_factory=set)

    def take(self, line: bytes, begun: re.Match[bytes] | None) -> dict[str, Any]:
        """Return the event of the next line, of an attempt that has ``begun`` so its trial. Raises NotAnEventError."""
        event = _attempt_in(begun) if begun else _checked(line)
        self._require_sense(event)
        if event["event"] not in OF_TRIALS:
            self.places.append(self.size)
        self.last_place = self.size
        self.size += len(line)
        self.lines += 1
        self.counts[event["event"]] += 1
        self.last = {"event": event["event"], "time": event["time"]}
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
                if not (_ANSWERS if "place" in event else _STATE).fits(event["state"]):
                    raise NotAnEventError("hosts.state has not the answers of hosts")
            case "started" | "finished":
                if event["trial_id"] not in self.planned:
                    raise NotAnEventError(f"trial {event['trial_id']} was not planned")


_NUMBER = rb"(-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]+)?(?:e-[0-9]+)?)"
_ATTEMPT = re.compile(
    rb'{"event":"(?:started|finished)","time":%b,"trial_id":"([\w.-]+)","attempt":(0|[1-9][0-9]{0,14})(?:}\n|'
    rb',"status":"(measured|unsupported|failed)","reason":(?:null|"([ !#-\[\]-~]*)"),'
    rb'"duration_s":%b,"wall_s":(?:null|%b),"facts":{)' % (_NUMBER, _NUMBER, _NUMBER)
)
"""How `append` begins the line of an attempt: its facts and files have a hundred times as many bytes."""
_FILES = b',"files":'


def _attempt_in(begun: re.Match[bytes]) -> dict[str, Any]:
    """Return the event of an attempt without its facts and files."""
    when, trial_id, attempt, status, reason, duration_s, wall_s = begun.groups()
    kind = "finished" if status else "started"
    event = {"event": kind, "time": float(when), "trial_id": trial_id.decode(), "attempt": int(attempt)}
    return event if status is None else event | {
        "status": status.decode(), "reason": None if reason is None else reason.decode(),
        "duration_s": float(duration_s), "wall_s": None if wall_s is None else float(wall_s),
    }  # fmt: skip


def _read_on(line: bytes, event: dict[str, Any], without: Without) -> dict[str, Any]:
    """Return the event of a finished attempt with all but what it is to be ``without``. Raises NotAnEventError."""
    if "files" in (lacks := without(event) if callable(without) else without) and line.endswith(b"}}\n"):
        return event | {"files": {}} if line.endswith(_FILES + b"{}}\n") else event
    if "facts" not in lacks or "files" in lacks:  # or they are not the last field, or damaged
        return _checked(line)
    try:
        files = FILES.validator.validate_json(line[line.rindex(_FILES) + len(_FILES) : -2], strict=True)
    except ValueError:  # another field is the last one, or it is damaged
        return _checked(line)
    return event | {"facts": {}, "files": files}


def _checked(line: bytes) -> dict[str, Any]:
    """Return the event that a line is, which has what `EVENTS` says. Raises NotAnEventError."""
    event = parsed(line)
    for needed, wanted in EVENTS.get(kind := event["event"], {}).items():
        if (name := needed.rstrip("?")) not in event:
            if name == needed:
                raise NotAnEventError(f"{kind}.{name} is missing")
        elif not wanted.fits(event[name]):
            raise NotAnEventError(f"{kind}.{name} is not {wanted.text}")
    return event


def parsed(line: bytes) -> dict[str, Any]:
    """Return the event that a line is, unchecked. Raises NotAnEventError."""
    try:
        event = pydantic_core.from_json(line)  # in half the time of Python's own; it refuses half a character
    except ValueError:
        event = None
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        raise NotAnEventError("it is no JSON object with an `event`")
    if not NUMBER.fits(event.get("time")):
        raise NotAnEventError("its time is not a number")
    return event


RESERVE = 65_536
"""Bytes on disk kept for the lines of the trial that is measured next; its longest line so far had 8 kB."""

AT_ONCE = 65_536
"""Bytes of a journal that are read at once: pieces of 8 kB take lines of 5 kB three times as long."""

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
        """Cut a last line that a kill left unfinished, so that the next line does not join it, and check the others."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            while end:
                start = file.seek(max(0, end - AT_ONCE))
                if whole := file.read(end - start).rfind(b"\n") + 1:
                    end = start + whole
                    break
                end = start
        self._cut(end)
        deque(self.events(), maxlen=0)

    def events(self, *kinds: str, without: Without = ()) -> Iterator[dict[str, Any]]:
        """Yield every whole line, or those of these ``kinds``. What is read of a line that was not ``checked`` is.

        ``without``: what attempts lack, facts, or facts and files (of no files an empty list stays), or a function of
        the event that tells it. Raises ResultsError for a line that is no event.
        """
        for number, place, line in self._lines(of_trials=not kinds or not {*OF_TRIALS}.isdisjoint(kinds)):
            try:
                begun = _ATTEMPT.match(line) if line.endswith(b"}\n") else None
                with _READS:
                    event = self.checked.take(line, begun) if place == self.checked.size else None
                event = event or (_attempt_in(begun) if begun else parsed(line))
                if not kinds or event["event"] in kinds:
                    yield _read_on(line, event, without) if begun and "status" in event else event
            except NotAnEventError as error:
                raise ResultsError(
                    f"{self.path}: line {number} is not an event: {error}",
                    remedy="the journal was edited or damaged: put it back, or import the run again",
                ) from None

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
            deque(self.events("created"), maxlen=0)  # events of few lines are made; each line is checked

    def _lines(self, *, of_trials: bool) -> Iterator[tuple[int, int, bytes]]:
        """Yield every whole line with its number and place; of those that were checked perhaps not those `OF_TRIALS`,
        and then without numbers."""
        try:
            with self.path.open("rb", buffering=AT_ONCE) as file:
                with _READS:
                    self._forget_another(file)
                    before = CheckedLines() if of_trials else replace(self.checked, places=self.checked.places[:])
                for place in before.places:
                    file.seek(place)
                    yield 0, place, file.readline()
                place = file.seek(before.size)
                for number, line in enumerate(file, before.lines + 1):
                    if not line.endswith(b"\n"):
                        return
                    yield number, place, line
                    place += len(line)
        except FileNotFoundError:
            raise ResultsError(f"{self.path} is absent", remedy="name a run directory") from None

    def _forget_another(self, file: BinaryIO) -> None:
        """Forget what was checked if another journal has taken its place: the last line is no longer there."""
        file.seek(self.checked.last_place)
        with suppress(NotAnEventError):
            event = parsed(file.readline())
            if self.checked.last == {"event": event["event"], "time": event["time"]}:
                return
        self.checked = CheckedLines()
