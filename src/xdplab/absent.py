"""A value that is not here, and why: `Absent` is the only way to say so.

Whatever computes a value raises it. A table's cell is then null, with the reason in `null_reasons`.
"""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


class Absent(Exception):
    """The value does not exist; the text is the reason."""


def required(value: T | None, reason: str) -> T:
    """Return a value that is there. Raises Absent with ``reason`` for None."""
    if value is None:
        raise Absent(reason)
    return value
