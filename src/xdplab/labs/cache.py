"""What labs keep for this user: kernels, headers, sources, modules. A folder appears by one rename, or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from xdplab.errors import LabError


def cache_dir() -> Path:
    """Return the folder of all that labs keep."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home).absolute() / "xdplab"


@contextlib.contextmanager
def locked(name: str) -> Iterator[Path]:
    """Give the cache's folder of that name to one maker at a time, rid of what an interrupted one has left.

    Raises LabError if it cannot be made.
    """
    root = cache_dir() / name
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = (root / ".lock").open("w")
    except OSError as error:
        raise LabError(f"nothing can be kept in {root}: {error.strerror}", remedy="set XDG_CACHE_HOME") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in root.glob(".fetch-*"):
            shutil.rmtree(left, ignore_errors=True)
        yield root


def make(folder: Path, fill: Callable[[Path], None], *, what: str, space_mb: int) -> Path:
    """Replace ``folder``, which lies in a `locked` one, by what ``fill`` leaves in the folder it is given.

    ``fill`` gets a folder named as the result will be, in a temporary one: it may put temporary files beside it.
    Raises LabError, naming ``what``, where less than ``space_mb`` is free, or where the disk or a file fails.
    """
    require_space(folder.parent, what, space_mb)
    try:
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as work:
            made = Path(work) / folder.name
            made.mkdir(mode=0o755)
            fill(made)
            if folder.exists():
                shutil.rmtree(folder)
            made.rename(folder)
    except (OSError, ValueError) as error:
        raise LabError(f"{what} cannot be made: {error}") from error
    return folder


def require_space(root: Path, what: str, space_mb: int) -> None:
    """Raise LabError where the disk of ``root`` has less than ``space_mb`` left."""
    free_mb = shutil.disk_usage(root).free // 1_000_000
    if free_mb < space_mb:
        raise LabError(
            f"{what}: {root} has {free_mb} MB left, and {space_mb} are needed",
            remedy="make room, or set XDG_CACHE_HOME",
        )
