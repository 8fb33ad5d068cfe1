"""A value that is not here, and why: whatever computes a value raises `Absent` with the reason."""

from __future__ import annotations


class Absent(Exception):
    """The value does not exist; the text is the reason."""
