"""A process beside the one that measures: it loads the libraries of tables, then makes a run's tables and answer.

Two threads of one process cannot: whoever loads keeps the other from asking hosts. What it makes is where anyone keeps
it (`xdplab.run.derived`, `xdplab.studies.kept`); whatever it cannot make, its caller makes, and says why.
"""

from __future__ import annotations

import gc
import importlib
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any, cast

from xdplab.errors import ResultsWarning
from xdplab.studies.kept import answer_of
from xdplab.studies.kinds import open_run
from xdplab.text import step

LIBRARIES = ("xdplab.studies.traffic.results", "xdplab.studies.traffic.audits", "pyarrow.parquet", "pyarrow.dataset")
"""What derives a run's tables and answer: most of it is libraries of tables."""
_MAKER: ContextVar[subprocess.Popen[str] | None] = ContextVar("_MAKER", default=None)


@contextmanager
def beside() -> Iterator[None]:
    """Have a maker beside what measures in this block."""
    argv = [sys.executable, "-P", "-c", f"from {__name__} import serve; serve()"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(argv, **pipes, text=True, errors="surrogateescape", process_group=0) as maker:
        before = _MAKER.set(maker)
        try:
            yield
        finally:
            _MAKER.reset(before)
            if not _has_begun(maker):
                maker.kill()


def await_loaded(run: Path) -> None:
    """Return when the libraries are loaded, and the run's plan is read: nothing of it goes on while a window is
    measured."""
    with step("loading the libraries of tables"):
        if (maker := _MAKER.get()) is not None:
            _tell(maker, str(run))
            _line(maker)
            return
        for name in LIBRARIES:
            importlib.import_module(name)


def begin() -> None:
    """Let the maker, if there is one, make the tables and the answer of that run: it gets no more trials."""
    if (maker := _MAKER.get()) is not None:
        _tell(maker, "make", last=True)


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


def _has_begun(maker: subprocess.Popen[str]) -> bool:
    return cast("IO[str]", maker.stdin).closed


def _line(maker: subprocess.Popen[str]) -> str:
    return cast("IO[str]", maker.stdout).readline()


def serve() -> None:
    """Load the libraries and read the plan of the run that the first line names; make the rest at the second line."""
    warnings.simplefilter("error", ResultsWarning)  # what there is to say, the caller says
    gc.disable()  # an import makes many objects that stay
    for name in LIBRARIES:
        importlib.import_module(name)
    gc.enable()
    path = Path(sys.stdin.readline().removesuffix("\n"))
    _ = open_run(path).plan
    print("loaded", flush=True)  # noqa: T201
    if sys.stdin.readline():
        run = open_run(path)
        run.keep_tables()
        answer_of(run.directory, run)
        print("made", flush=True)  # noqa: T201
