"""A value that is not here, and why: `Absent` is the only way to say so.

Whatever computes a value raises it. A table's cell is then null, with the reason in `null_reasons`.
"""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


class Absent(Exception):
    """The value does not exist; the text is the reason."""


def or_absent(value: T | None, reason: str | None) -> T | Absent:
    """Return a value that is there, else an Absent with ``reason``: for the rows of a table."""
    return Absent(reason) if value is None else value


def required(value: T | None, reason: str) -> T:
    """Return a value that is there. Raises Absent with ``reason`` for None."""
    if value is None:
        raise Absent(reason)
    return value
