"""Writes that are on disk when they return, or raise an error with the reason."""

from __future__ import annotations

import errno
import fcntl
import functools
import io
import os
import re
import shutil
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from xdplab.errors import ResultsError
from xdplab.trust import users

REMEDY = "free some space, then `xdplab resume`; finished trials are kept"
LOOK_S = 0.05
_OF_A_COPY = re.compile(r"^\[Errno \d+\] |: '.*")  # the number and the files around the words of one failed copy
_OF_THE_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG}


def reason(error: Exception) -> str:
    """Return an error's words; of an OSError without its number: `shutil` and pyarrow keep these elsewhere."""
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list):
        return "; ".join(dict.fromkeys(_OF_A_COPY.sub("", str(failed[-1])) for failed in error.args[0]))
    return getattr(error, "strerror", None) or str(error)


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

    One syncfs(2) of an attempt's 21 files and their directories takes 7 ms; an fsync(2) of each takes 71 ms.
    """
    with disk_errors(path):
        folder = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if number := _syncfs()(folder):
                raise OSError(number, os.strerror(number), str(path))
        finally:
            os.close(folder)


def sync_one(path: Path) -> None:
    """Wait until a file, or a folder's names, are on disk, and nothing that others write. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems cannot wait for a folder
            raise
    finally:
        os.close(descriptor)


def allocate(file: int, start: int, length: int) -> None:
    """Give an open file blocks of the disk from byte ``start`` on; its size stays. Raises OSError (full disk).

    A file system that cannot do this gives none.
    """
    keep_size = 1  # FALLOC_FL_KEEP_SIZE of linux/falloc.h
    if (number := _fallocate()(file, keep_size, start, length)) not in (0, errno.EOPNOTSUPP, errno.ENOSYS):
        raise OSError(number, os.strerror(number))


@functools.cache
def _syncfs() -> Callable[[int], int]:
    """Return syncfs(2) as a function that returns 0 or the error's number. Only those who write load ctypes."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    return lambda folder: ctypes.get_errno() if libc.syncfs(folder) else 0


@functools.cache
def _fallocate() -> Callable[[int, int, int, int], int]:
    """Return fallocate(2) as a function that returns 0 or the error's number."""
    import ctypes

    call = ctypes.CDLL(None, use_errno=True).fallocate
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return lambda *arguments: ctypes.get_errno() if call(*arguments) else 0


@contextmanager
def replacing(target: Path, remedy: str = REMEDY, *, wait: bool = True) -> Iterator[Path]:
    """Give the path of an open file that replaces ``target`` in one step when the block ends. Raises ResultsError.

    The file is on disk before it gets its name (unless ``wait`` is False), so a power cut leaves either the old or the
    new file, whole. This is the one way to write a file into a folder that others may have made: see `opened`.
    Only a file, or a link to one, is replaced: root's must not take the place of /dev/null or of the link /dev/stdout.
    """
    scratch = f".{target.name}.{os.urandom(4).hex()}.partial"
    try:
        with opened(target.parent, make=True) as folder:
            with suppress(FileNotFoundError):
                here = os.stat(target.name, dir_fd=folder, follow_symlinks=False).st_mode
                to = os.readlink(target.name, dir_fd=folder) if stat.S_ISLNK(here) else ""
                if to.startswith("/proc/") or not stat.S_ISREG(os.stat(target.name, dir_fd=folder).st_mode):
                    raise OSError(errno.EEXIST, "a folder or a device has this name")
            file = os.open(scratch, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder)
            try:
                yield Path(f"/proc/self/fd/{file}")
                if wait:
                    os.fsync(file)
                os.replace(scratch, target.name, src_dir_fd=folder, dst_dir_fd=folder)
            finally:
                os.close(file)
                with suppress(FileNotFoundError):
                    os.unlink(scratch, dir_fd=folder)
    except OSError as error:
        remedy = remedy if is_of_the_disk(error) else "name another file or folder"
        raise ResultsError(f"{target} cannot be written: {reason(error)}", remedy=remedy) from error


MOST_LINKS = 40  # as the kernel


@contextmanager
def opened(folder: Path, *, make: bool = False) -> Iterator[int]:
    """Give the descriptor of a folder, found step by step: whoever changes a link meanwhile changes nothing.

    Links of the user and of root are followed up to a run directory, and none below it. ``make``: make what is absent.
    Raises ResultsError for another link, OSError.
    """
    steps, links = deque(folder.absolute().parts[1:]), 0
    inside, in_run = os.open("/", os.O_PATH | os.O_CLOEXEC), False
    try:
        while steps:
            at, inside = inside, _step(inside, steps.popleft(), make)
            status = os.fstat(inside)
            if stat.S_ISLNK(status.st_mode):
                links += 1
                if in_run or status.st_uid not in users() or links > MOST_LINKS:
                    os.close(at)
                    raise ResultsError(
                        f"{folder} leads over a symbolic link: writes would go elsewhere",
                        remedy="a run directory must contain no links, and no other user's may lead to it; remove it",
                    )
                to = Path(os.readlink("", dir_fd=inside))
                steps.extendleft(reversed(to.parts[1:] if to.is_absolute() else to.parts))
                os.close(inside)
                inside = os.open("/", os.O_PATH | os.O_CLOEXEC) if to.is_absolute() else os.dup(at)
            os.close(at)
            in_run = in_run or _is_run(inside)
        yield inside
    finally:
        os.close(inside)


def _step(inside: int, name: str, make: bool) -> int:
    """Return the descriptor of what a folder has under a name, of the link itself if it is one."""
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags, dir_fd=inside)
    except FileNotFoundError:
        if not make:
            raise
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=inside)
    return os.open(name, flags, dir_fd=inside)


def _is_run(folder: int) -> bool:
    with suppress(FileNotFoundError, NotADirectoryError):
        return bool(os.stat("journal.jsonl", dir_fd=folder, follow_symlinks=False))
    return False


def open_file(path: Path, mode: str) -> io.FileIO:
    """Open a file of a run, without a buffer; not by way of a link in its place. Raises OSError."""
    return io.FileIO(path, mode, opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o666))


LOCK = ".lock"
"""The lock file of a folder: its holder is the folder's only writer. It is removed when the holder releases it."""


def is_locked(folder: Path) -> bool:
    """Tell whether a process holds a folder (`locked`), even if the caller may not open its lock."""
    try:
        looked = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    except PermissionError:
        return is_listed(folder / LOCK)
    try:
        fcntl.flock(looked, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(looked)
    return False


def is_listed(lock: Path) -> bool:
    """Tell whether the kernel's list of locks has this file's inode."""
    return bool(_holders(lock))


def holder(folder: Path) -> int | None:
    """Return the process that holds a folder (`locked`); None if there is none that this one can see."""
    with suppress(FileNotFoundError):
        return next((number for number in _holders(folder / LOCK) if number > 0), None)
    return None


def _holders(lock: Path) -> list[int]:
    number = lock.stat().st_ino
    lines = (line.split() for line in Path("/proc/locks").read_text().splitlines())
    return [int(words[4]) for words in lines if words[1] == "FLOCK" and words[5].rpartition(":")[2] == str(number)]


@contextmanager
def locked(folder: Path) -> Iterator[bool]:
    """Hold a folder in this block, even if it is renamed meanwhile; gives False if another process has it.

    A process that can open a lock can hold it for ever, so only its maker and root can open this one. Raises OSError.
    """
    with opened(folder) as inside:
        held = _held(inside)
        try:
            yield held is not None
        finally:
            if held is not None:
                with suppress(OSError):  # the folder is gone, or its disk is broken
                    if _is_there(held, inside):
                        os.unlink(LOCK, dir_fd=inside)
                os.close(held)


def _held(inside: int) -> int | None:
    """Return the descriptor of the held lock, or None if another process has it."""
    until = time.monotonic() + LOOK_S
    while True:
        lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=inside)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_there(lock, inside):
                return lock
        except BlockingIOError:
            if time.monotonic() > until:
                os.close(lock)
                return None
            time.sleep(LOOK_S / 5)  # `is_locked` holds it for a moment
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)


def _is_there(lock: int, inside: int) -> bool:
    """Tell whether this is still the folder's lock: its former holder removes it before letting go."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(lock), os.stat(LOCK, dir_fd=inside, follow_symlinks=False))
    return False


def write_whole(path: Path, data: bytes, *, wait: bool = False) -> Path:
    """Write a whole file or none, so that a reader never opens a half; return its path. ``wait``: see `replacing`."""
    with replacing(path, "free some space, or name another file or folder", wait=wait) as scratch:
        scratch.write_bytes(data)
    return path
