"""Draws in several processes: figures are independent of each other, and one takes half a second of a CPU.

There are no threads: an interrupt could catch one of those of `concurrent.futures` with a lock that nobody releases.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from xdplab.errors import HostError

J = TypeVar("J")
R = TypeVar("R")

LIBRARIES = ("xdplab.figures.draw", "scipy.special")
WRITERS = {name: f"matplotlib.backends.backend_{name}" for name in ("svg", "pdf")} | {"png": "PIL.PngImagePlugin"}
"""What writes each format."""
PR_SET_PDEATHSIG = 1
"""Of prctl(2): the signal that a process gets when the one that began it has ended."""
COLLECTED = 100_000
"""Objects after which cycles are looked for: a figure makes as many, and to look every 700 took 7 % of the time."""


def mapped(
    draw: Callable[[J], R],
    jobs: Sequence[J],
    processes: int | None = None,
    progress: Callable[[int], None] | None = None,
    formats: Sequence[str] = (),
) -> Iterator[R]:
    """Yield what ``draw`` returns of each job, in the jobs' order; by default a process draws on each CPU.

    What writes the ``formats`` is loaded once for all processes.
    ``progress`` is told how many jobs are done. An error of a job is raised in its turn; no job begins after it, or
    after an interrupt. Raises HostError if a process is killed.
    """
    processes = min(processes or len(os.sched_getaffinity(0)), len(jobs))
    if processes > 1:  # forked, a process has the libraries, the jobs, and what `draw` holds, already
        for name in (*LIBRARIES, *(WRITERS[name] for name in formats)):
            importlib.import_module(name)
    for count, drawn in enumerate(map(draw, jobs) if processes < 2 else _forked(draw, jobs, processes), 1):
        if progress is not None:
            progress(count)
        yield drawn


def _forked(draw: Callable[[J], R], jobs: Sequence[J], processes: int) -> Iterator[R]:
    context, workers = get_context("fork"), dict[Any, Any]()
    places, done = iter(range(len(jobs))), dict[int, tuple[Any, Exception | None]]()
    try:
        for _ in range(processes):
            near, far = context.Pipe()
            worker = context.Process(target=_work, args=(draw, jobs, far), daemon=True)
            worker.start()
            workers[near] = worker
            far.close()
            near.send(next(places))
        for place in range(len(jobs)):
            while place not in done:
                ready: Any = wait(workers)
                for end in ready:
                    number, *result = _received(end)
                    done[number] = (result[0], result[1])
                    if (following := next(places, None)) is not None:
                        end.send(following)
            drawn, error = done.pop(place)
            if error is not None:
                raise error
            yield drawn
    finally:  # what is in hand is completed: no file stays half written
        for end, worker in workers.items():
            with suppress(OSError):
                end.send(None)
            worker.join()


def _received(end: Any) -> Any:
    try:
        return end.recv()
    except (EOFError, OSError):
        raise HostError(
            "a process that drew figures was killed", remedy="`free` tells how much memory is left"
        ) from None


def _work(draw: Callable[[J], R], jobs: Sequence[J], end: Connection) -> None:
    """Draw what is asked for. A worker ends with the process that began it, to which alone Ctrl-C is said."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    gc.freeze()
    gc.set_threshold(COLLECTED)
    while (place := end.recv()) is not None:
        try:
            end.send((place, draw(jobs[place]), None))
        except Exception as error:  # noqa: BLE001 - raised in its turn
            error.add_note(traceback.format_exc())
            end.send((place, None, error))
