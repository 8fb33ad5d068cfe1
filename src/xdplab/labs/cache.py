"""The user's cache of labs: kernels, headers, sources, modules. A folder appears by one rename, or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from pathlib import Path

from xdplab.errors import LabError, PlanError

PARTS = ("kernels", "headers", "libraries", "sources", "modules", "uml-kernel", "vm/states")
"""The folders whose entries are fetched or made again when missing; an entry is removed as a whole."""
LIMIT_MB = 4000
"""The default limit of their size; the variable `LIMIT_NAME` sets another one."""
LIMIT_NAME = "XDPLAB_CACHE_MB"
DAY_S = 86400.0
RESTS_S = 7 * DAY_S
"""Seconds after its last use in which an entry is not removed to keep the limit: a guest may still run from it."""
_KEPT_ALWAYS = ("apt",)


@dataclass(frozen=True)
class Entry:
    """One thing in the cache: a kernel, its headers, a module. ``used``: when, in seconds since 1970."""

    path: Path
    size: int
    used: float


def cache_dir() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home).absolute() / "xdplab"


def native_dir() -> Path:
    """Return the folder of tools compiled by this machine for its labs. Raises LabError."""
    folder = cache_dir() / "native"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"{folder} cannot be made: {error.strerror}", remedy="set XDG_CACHE_HOME") from error
    return folder


@contextlib.contextmanager
def locked(name: str) -> Iterator[Path]:
    """Lock the cache's folder of that name for one writer, and remove the leftovers of interrupted ones.

    Raises LabError if it cannot be made.
    """
    root = cache_dir() / name
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = os.fdopen(os.open(root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "w")
        os.fchmod(lock.fileno(), 0o600)  # a process that can open a lock can hold it for ever
    except OSError as error:
        raise LabError(f"nothing can be kept in {root}: {error.strerror}", remedy="set XDG_CACHE_HOME") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in root.glob(".fetch-*"):
            shutil.rmtree(left, ignore_errors=True)
        yield root


def make(folder: Path, fill: Callable[[Path], None], *, what: str, space_mb: int) -> Path:
    """Replace ``folder``, which is in a `locked` one, by the folder that ``fill`` fills.

    If the cache then exceeds its limit, the entries used longest ago are removed.

    ``fill`` gets a folder with the final name inside a temporary one: it may put temporary files beside it. Raises
    LabError, naming ``what``, if less than ``space_mb`` is free, or if the disk or a file fails.
    """
    require_space(folder.parent, what, space_mb)
    try:
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as work:
            target = Path(work) / folder.name
            target.mkdir(mode=0o755)
            fill(target)
            if folder.exists():
                shutil.rmtree(folder)
            target.rename(folder)
    except (OSError, ValueError) as error:
        raise LabError(f"{what} cannot be made: {error}") from error
    clean(to_bytes=limit_bytes(), unused_s=RESTS_S)
    return folder


def kept(part: str, name: str, fill: Callable[[Path], None], *, what: str, space_mb: int) -> Path:
    """Return a folder of one of `PARTS`, made if it is not there, which is used now. Raises as `make` does."""
    with locked(part) as root:
        folder = root / name
        if not folder.exists():
            make(folder, fill, what=what, space_mb=space_mb)
        mark_used(folder)
    return folder


def mark_used(path: Path) -> None:
    """Record that an entry of the cache is used now, unless it belongs to another user."""
    with contextlib.suppress(OSError):
        os.utime(path)


def entries() -> list[Entry]:
    """Return the entries that can be made again, the one used longest ago first."""
    entries_below = []
    for part in PARTS:
        folder = cache_dir() / part
        for path in folder.iterdir() if folder.is_dir() else ():
            if not path.name.startswith(".") and path.name not in _KEPT_ALWAYS:
                with contextlib.suppress(FileNotFoundError):  # another process has just removed it
                    entries_below.append(Entry(path, size_of(path), path.stat().st_mtime))
    return sorted(entries_below, key=lambda entry: entry.used)


def size_of(path: Path) -> int:
    """Return the disk space in bytes of a file, or of the files of a folder."""
    size = path.lstat().st_blocks * 512
    if path.is_dir() and not path.is_symlink():
        for child in path.iterdir():
            with contextlib.suppress(FileNotFoundError):
                size += size_of(child)
    return size


def limit_bytes() -> int:
    """Return the cache's limit in bytes. Raises PlanError for a limit that is not a number."""
    limit = os.environ.get(LIMIT_NAME, str(LIMIT_MB))
    if not limit.isdecimal():
        raise PlanError(f"{LIMIT_NAME}={limit}: not a number of MB", remedy=f"such as {LIMIT_MB}")
    return int(limit) * 1_000_000


def clean(*, to_bytes: int, unused_s: float, in_use: Container[str] = ()) -> list[Entry]:
    """Remove the entries used longest ago until the rest takes ``to_bytes``, and return the removed ones.

    Entries used in the last ``unused_s`` seconds, and those named in ``in_use``, stay. Raises LabError.
    """
    kept = entries()
    total, before, gone = sum(entry.size for entry in kept), time.time() - unused_s, []
    for entry in kept:
        if total <= to_bytes or entry.used > before:
            break
        if entry.path.name in in_use:
            continue
        try:
            shutil.rmtree(entry.path) if entry.path.is_dir() else entry.path.unlink()
        except OSError as error:
            raise LabError(f"{entry.path} cannot be removed: {error.strerror}", remedy="remove it by hand") from error
        gone.append(entry)
        total -= entry.size
    return gone


def require_space(root: Path, what: str, space_mb: int) -> None:
    """Raise LabError if the disk of ``root`` has less than ``space_mb`` left."""
    free_mb = shutil.disk_usage(root).free // 1_000_000
    if free_mb < space_mb:
        raise LabError(
            f"{what}: {root} has {free_mb} MB left, and {space_mb} are needed",
            remedy="make room, or set XDG_CACHE_HOME",
        )
