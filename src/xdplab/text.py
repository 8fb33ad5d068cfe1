"""What every layer says and shows in the same way."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Literal


def colour_system() -> Literal["auto"] | None:
    """Return rich's colour system: None, which leaves bold and italic out too, where NO_COLOR asks (no-color.org)."""
    return None if os.environ.get("NO_COLOR") else "auto"


def many(count: int, what: str) -> str:
    """Return ``1 trial``, or ``3 trials``."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


SOON_S = 0.5
"""Seconds after which a wait, or a step that is no trial, is named: a person then asks what is going on."""
STEPS: ContextVar[Callable[[str], None]] = ContextVar("STEPS", default=lambda _: None)
"""Called with the name of a step that takes longer than `SOON_S`; the command line prints it."""


@contextmanager
def step(name: str) -> Iterator[None]:
    """Name what goes on in this block, if it takes long."""
    timer = threading.Timer(SOON_S, STEPS.get(), [name])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def duration(seconds: float) -> str:
    """Return a time as a person says it: ``8 s``, ``3.4 minutes``, ``2.5 hours``."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def size(taken: int) -> str:
    """Return bytes as a person says them: ``840 bytes``, ``38 kB``, ``0.4 MB``."""
    if taken < 1000:
        return f"{taken} bytes"
    return f"{taken / 1e3:.0f} kB" if taken < 100_000 else f"{taken / 1e6:.1f} MB"


def iso(seconds: float) -> str:
    """Return a time, in seconds since 1970, as ISO 8601 with the zone of this machine."""
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")


def natural(text: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key that puts ``6.12`` after ``6.2``."""
    return tuple((int(digits or 0), other) for digits, other in re.findall(r"(\d+)|(\D+)", text))


_STEERS = re.compile(
    "[\\0-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069\\ud800-\\udfff\\ufffe\\uffff]"
)


def visible(text: str) -> str:
    """Return a text with its control characters written out, such as ``\\x1b``: what others wrote steers no terminal,
    turns no line around, and is valid in XML. Line breaks and tabs stay."""
    return _STEERS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


_UNITS = {
    **{"ns_per_packet": "ns", "_per_ns": "1/ns", "_pps": "1/s", "_bps": "bit/s", "_bytes": "B", "_percent": "%"},
    **{"_per_s": "1/s", "_ns": "ns", "_us": "us", "_ms": "ms", "_s": "s"},
}


def unit_of(name: str) -> str:
    """Return the unit in which the name of a column ends; empty if it has none."""
    return next((unit for end, unit in _UNITS.items() if name.endswith(end)), "")
