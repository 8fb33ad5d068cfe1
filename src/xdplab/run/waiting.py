"""For whom a run waits: told by whatever waits, and heard by the run that it holds up."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextvars import ContextVar

from xdplab.errors import ResultsWarning


def warn(why: str | None) -> None:
    """Say the reason of a wait as a warning; None, its end, needs no word."""
    if why is not None:
        warnings.warn(f"waiting: {why}", ResultsWarning, stacklevel=2)


WAITS: ContextVar[Callable[[str | None], None]] = ContextVar("WAITS", default=warn)
"""Called when something waits, with the reason, and with None when it continues. A run sets it to record the wait."""
