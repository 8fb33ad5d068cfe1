"""For whom a run waits: told by whatever waits, and heard by the run that it holds up."""

from __future__ import annotations

import pwd
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from xdplab.errors import ResultsWarning
from xdplab.run.rundir import RunDirectory

AGAIN_S = 30.0
"""Seconds until a run says again that it waits: two that take turns wait at each trial."""


def warn(why: str | None) -> None:
    """Say the reason of a wait as a warning; None, its end, needs no word."""
    if why is not None:
        warnings.warn(f"waiting: {why}", ResultsWarning, stacklevel=2)


WAITS: ContextVar[Callable[[str | None], None]] = ContextVar("WAITS", default=warn)
"""Called when something waits, with the reason, and with None when it continues. A run sets it to record the wait."""
MEASURED: ContextVar[RunDirectory | None] = ContextVar("MEASURED", default=None)
"""The run that this process measures."""


@contextmanager
def recorded(run: RunDirectory) -> Iterator[None]:
    """Write down, and say, for whom ``run`` waits in this block: the journal is all that a notebook sees of it."""
    last: str | None = None
    next_s = 0.0

    def tell(why: str | None) -> None:
        nonlocal last, next_s
        if why != last:
            run.journal.append("waiting", why=why)
        if why is not None and time.monotonic() >= next_s:
            next_s = time.monotonic() + AGAIN_S
            warn(why)
        last = why

    waits, measured = WAITS.set(tell), MEASURED.set(run)
    try:
        yield
    finally:
        WAITS.reset(waits)
        MEASURED.reset(measured)


def words_of(run: RunDirectory) -> str:
    """Return a run for those who find its lab in use: whose it is, its folder, and when it was begun."""
    owner = f"user {(number := run.path.stat().st_uid)}"
    with suppress(KeyError):
        owner = pwd.getpwuid(number).pw_name
    return f"{owner}'s run {run.path.resolve()}, begun at {_clock(run.begun)}"


def _clock(moment: float) -> str:
    return time.strftime("%H:%M", time.localtime(moment))
