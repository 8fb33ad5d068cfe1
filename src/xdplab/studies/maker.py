"""A process beside the one that measures: it loads the libraries of tables, then makes a run's tables, answer and
figures.

Two threads of one process cannot: whoever loads keeps the other from asking hosts. What it makes is where anyone keeps
it (`xdplab.run.derived`, `xdplab.studies.kept`); whatever it cannot make, its caller makes, and says why.
"""

from __future__ import annotations

import gc
import importlib
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from xdplab.errors import ResultsWarning
from xdplab.lazy import lazily
from xdplab.text import step

with lazily():  # a maker begins before its caller has loaded more
    from xdplab import figures as drawing
    from xdplab.figures import save
    from xdplab.run import watching
    from xdplab.studies import kept, kinds

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from xdplab.figures.outcome import Drawn
    from xdplab.run.rundir import RunDirectory
    from xdplab.studies.kind import Run

LIBRARIES = ("xdplab.studies.traffic.results", "xdplab.studies.traffic.audits", "pyarrow.parquet", "pyarrow.dataset")
"""What derives a run's tables and answer: most of it is libraries of tables."""
PICTURES = "xdplab.studies.traffic.pictures"
LONG = 1_000
"""Attempts from which on a run is long."""
KEEP, MAKE = "keep", "make"


class _Maker(subprocess.Popen[str]):
    loaded = False
    """Whether it has said that its libraries are loaded."""


_MAKER: ContextVar[_Maker | None] = ContextVar("_MAKER", default=None)


@contextmanager
def beside(figures: bool = False) -> Iterator[None]:
    """Have a maker beside what measures in this block, which draws, too, if there are to be ``figures``."""
    argv = [sys.executable, "-P", "-c", f"from {__name__} import serve; serve({figures})"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with _Maker(argv, **pipes, text=True, errors="surrogateescape", process_group=0) as maker:
        before = _MAKER.set(maker)
        try:
            yield
        finally:
            _MAKER.reset(before)
            if not _has_begun(maker):
                maker.kill()
            maker.send_signal(signal.SIGINT)  # figures that nobody waits for any more; tables are made whole


def prepare(run: Path) -> None:
    """Let the maker, if there is one, read that run's plan once its libraries are loaded."""
    if (maker := _MAKER.get()) is not None:
        _tell(maker, str(run))


def load() -> None:
    """Load the libraries here, if there is no maker, which loads them."""
    if _MAKER.get() is None:
        with step("loading the libraries of tables"):
            for name in LIBRARIES:
                importlib.import_module(name)


def await_loaded() -> None:
    """Return when the maker, if there is one, has loaded its libraries and read the plan: nothing of it goes on while a
    burst is measured."""
    if (maker := _MAKER.get()) is not None and not maker.loaded:
        with step("loading the libraries of tables"):
            _read(maker)
        maker.loaded = True


def keep_up(attempts: int) -> None:
    """Let the maker, if there is one, make the tables of a long run's first ``attempts``, if many are new, and wait for
    it: a kill leaves few to be derived, and so does the run's end. They are written anew each time, so the more there
    are, the seldomer."""
    due = attempts >= LONG and attempts % (10 ** (len(str(attempts)) - 1) // 2) == 0
    if due and (maker := _MAKER.get()) is not None:
        _tell(maker, KEEP)
        _line(maker)


def keep_soon() -> None:
    """Let the maker, if there is one, make the tables, since nothing more is measured, and wait for nothing."""
    if (maker := _MAKER.get()) is not None:
        _tell(maker, "keep soon")


def begin() -> None:
    """Let the maker, if there is one, make the tables and the answer of that run: it gets no more trials."""
    if (maker := _MAKER.get()) is not None:
        _tell(maker, MAKE, last=True)


def _tell(maker: subprocess.Popen[str], line: str, *, last: bool = False) -> None:
    stdin = cast("IO[str]", maker.stdin)
    with suppress(OSError):  # it has died
        print(line, file=stdin, flush=not last)
        if last:
            stdin.close()


def has_made() -> bool:
    """Wait for what was begun, and return whether it is made."""
    maker = _MAKER.get()
    if maker is None or not _has_begun(maker):
        return False
    with step("deriving the tables"):
        return _line(maker) == "made\n"


def drawn(run: RunDirectory) -> list[Drawn] | None:
    """Wait for the figures, and return them; None if the maker has drawn none of what the run is now."""
    maker = _MAKER.get()
    return kept.kept_figures(run) if maker is not None and _has_begun(maker) and _line(maker) == "drawn\n" else None


def _has_begun(maker: subprocess.Popen[str]) -> bool:
    return cast("IO[str]", maker.stdin).closed


def _line(maker: subprocess.Popen[str]) -> str:
    """Return the next line behind the one that says that the libraries are loaded; empty if the maker has died."""
    await_loaded()
    return _read(maker)


def _read(maker: subprocess.Popen[str]) -> str:
    return cast("IO[str]", maker.stdout).readline()


def serve(figures: bool) -> None:
    """Load the libraries and read the plan of the run that the first line names; make the rest at the last line, and
    tables of what has ended at each line before it."""
    warnings.simplefilter("error", ResultsWarning)  # what there is to say, the caller says
    try:
        _serve(figures)
    finally:
        gc.freeze()  # the interpreter ends without looking for cycles among all that was imported


def _serve(figures: bool) -> None:
    gc.disable()  # an import makes many objects that stay
    for name in (*LIBRARIES, *[PICTURES] * figures):
        importlib.import_module(name)
    if figures:
        save.load_libraries(drawing.DEFAULT_FORMATS, intervals=False)
    gc.enable()
    path = Path(sys.stdin.readline().removesuffix("\n"))
    run = kinds.open_run(path)
    _ = run.plan
    print("loaded", flush=True)  # noqa: T201
    while line := sys.stdin.readline():
        if line == f"{MAKE}\n":
            _make(kinds.open_run(path), figures)
            return
        run.keep_tables()
        if line == f"{KEEP}\n":
            print("kept", flush=True)  # noqa: T201


def _make(run: Run[Any], figures: bool) -> None:
    """Draw in this process, and make tables and answer in another."""
    from multiprocessing import get_context

    context = get_context("fork")
    ready, tables = context.Pipe(duplex=False)
    making = context.Process(target=_make_tables, args=(run, tables))
    making.start()
    tables.close()
    if figures and ready.recv():
        run.draw_figures()
    making.join()
    print("drawn", flush=True)  # noqa: T201


def _make_tables(run: Run[Any], ready: Connection) -> None:
    run.keep_tables()
    ready.send(not kept.is_in_vain(watching.counted(run.rows())))
    kept.answer_of(run.directory, run)
    print("made", flush=True)  # noqa: T201
