"""For whom a run waits: told by whatever waits, and heard by the run that it holds up."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from xdplab.errors import ResultsWarning
from xdplab.run.rundir import RunDirectory


def warn(why: str | None) -> None:
    """Say the reason of a wait as a warning; None, its end, needs no word."""
    if why is not None:
        warnings.warn(f"waiting: {why}", ResultsWarning, stacklevel=2)


WAITS: ContextVar[Callable[[str | None], None]] = ContextVar("WAITS", default=warn)
"""Called when something waits, with the reason, and with None when it continues. A run sets it to record the wait."""


@contextmanager
def recorded(run: RunDirectory) -> Iterator[None]:
    """Write down, and say, for whom ``run`` waits in this block: the journal is all that a notebook sees of it."""
    last: str | None = None

    def tell(why: str | None) -> None:
        nonlocal last
        if why != last:
            run.journal.append("waiting", why=why)
            warn(why)
        last = why

    before = WAITS.set(tell)
    try:
        yield
    finally:
        WAITS.reset(before)
