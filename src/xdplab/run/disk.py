"""Writes that have reached the disk when they return, or raise an error that says why they could not."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from xdplab.errors import ResultsError

REMEDY = "free some space, then `xdplab resume`; what was measured is kept"
LOOK_S = 0.05
_OF_THE_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG}
_LIBC = ctypes.CDLL(None, use_errno=True)


def reason(error: OSError) -> str:
    """Return the system's words for the error; `shutil` and pyarrow keep them in different attributes."""
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list):
        return "; ".join(dict.fromkeys(str(failed[-1]) for failed in error.args[0]))
    return error.strerror or str(error)


def is_of_the_disk(error: OSError) -> bool:
    """True for a disk that is full, broken or read-only; False for a missing file, a lost connection and the like."""
    return isinstance(error, shutil.Error) or error.errno in _OF_THE_DISK


@contextmanager
def disk_errors(target: Path, remedy: str = REMEDY) -> Iterator[None]:
    """Raise ResultsError if the disk fails inside the block. It names the file, or ``target`` if the error has none."""
    try:
        yield
    except OSError as error:
        if not is_of_the_disk(error):
            raise
        raise ResultsError(f"{error.filename or target} cannot be written: {reason(error)}", remedy=remedy) from error


def sync(path: Path) -> None:
    """Wait until everything written to the file system of ``path`` is on its disk. Raises ResultsError.

    One syncfs(2) of an attempt's 21 files and their directories takes 7 ms where an fsync(2) of each takes 71 ms.
    """
    with disk_errors(path):
        folder = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if _LIBC.syncfs(folder):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), str(path))
        finally:
            os.close(folder)


@contextmanager
def replacing(target: Path, remedy: str = REMEDY) -> Iterator[Path]:
    """Give a scratch path whose file replaces ``target`` in one step when the block ends. Raises ResultsError.

    The file is on the disk before it takes its name, so that a power cut leaves the old one or the new one, whole.
    """
    scratch = target.with_name(f".{target.name}.{os.urandom(4).hex()}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield scratch
        with scratch.open("rb") as file:
            os.fsync(file.fileno())
        scratch.replace(target)
    except OSError as error:
        raise ResultsError(f"{target} cannot be written: {reason(error)}", remedy=remedy) from error
    finally:
        scratch.unlink(missing_ok=True)


def is_locked(path: Path) -> bool:
    """Tell whether a process holds a file or folder (`locked`)."""
    looked = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(looked, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(looked)
    return False


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Hold a file or folder in this block; gives False where another process has it."""
    held = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for again in (True, True, False):
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if not again:
                    yield False
                    return
                time.sleep(LOOK_S)  # `is_locked` holds it for a moment
            else:
                break
        yield True
    finally:
        os.close(held)
