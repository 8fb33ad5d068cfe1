"""What every layer says and shows in the same way."""

from __future__ import annotations

import os
from typing import Literal


def colour_system() -> Literal["auto"] | None:
    """Return rich's colour system: None, which leaves bold and italic out too, where NO_COLOR asks (no-color.org)."""
    return None if os.environ.get("NO_COLOR") else "auto"


def many(count: int, what: str) -> str:
    """Return ``1 trial``, or ``3 trials``."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
