"""Phrases that every layer uses in the same way."""

from __future__ import annotations


def many(count: int, what: str) -> str:
    """Return ``1 trial``, or ``3 trials``."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
