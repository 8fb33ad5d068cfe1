"""The state of a guest, saved by QEMU before the guest had an identity; later guests start from it.

Standard library only: read and written by a guest's keeper. A file contains QEMU's data and its SHA-256. The
file's name is a hash of everything the state depends on, so an outdated state is never found. The state holds no key.
"""

import contextlib
import hashlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

KEPT = 4
"""States that are kept, of 100 MB each: the ones used last."""
_LEFT_S = 600.0
"""Age after which a half-written file counts as left by a killed process."""
_CHUNK = 1 << 20
_DIGEST_BYTES = hashlib.sha256().digest_size


class SavedError(Exception):
    """The reason why a saved state cannot be used, or stored."""


def name(argv: list[str], *contents: str | bytes) -> str:
    """Return the name of the state of a guest with this ``argv``, these contents, and this build of QEMU."""
    qemu = Path(argv[0]).resolve()
    build = qemu.stat()
    digest = hashlib.sha256(json.dumps([str(qemu), build.st_size, build.st_mtime_ns, argv]).encode())
    for content in contents:
        data = content.encode() if isinstance(content, str) else content
        digest.update(f" {len(data)} ".encode() + data)
    return digest.hexdigest()[:32]


class Saved:
    """One such file, which may not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self, into: socket.socket) -> None:
        """Send the state to QEMU. Raises SavedError if it is damaged, or QEMU refuses it."""
        with contextlib.suppress(OSError):  # it then counts as unused, and is removed sooner
            os.utime(self.path)
        try:
            with self.path.open("rb") as file:
                left = self.path.stat().st_size - _DIGEST_BYTES
                digest = hashlib.sha256()
                while left > 0 and (chunk := file.read(min(left, _CHUNK))):
                    digest.update(chunk)
                    into.sendall(chunk)
                    left -= len(chunk)
                if file.read() != digest.digest():
                    raise SavedError("it is not what was saved")
        except OSError as error:
            raise SavedError(str(error)) from error

    def keep(self, stream: socket.socket, is_whole: Callable[[], bool]) -> None:
        """Store QEMU's data if it is complete. Otherwise raise SavedError, and store nothing."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _appearing(self.path) as file:
                digest = hashlib.sha256()
                while chunk := stream.recv(_CHUNK):
                    digest.update(chunk)
                    file.write(chunk)
                file.write(digest.digest())
                if not is_whole():
                    raise SavedError("QEMU did not save all of it")
        except OSError as error:
            raise SavedError(str(error)) from error
        self.prune()

    def discard(self) -> None:
        with contextlib.suppress(OSError):  # the next guest would find it damaged too
            self.path.unlink()

    def prune(self) -> None:
        """Remove half-written files, and all states except those used last."""
        states = []
        for path in self.path.parent.iterdir():
            with contextlib.suppress(FileNotFoundError):  # by another keeper, just now
                used = path.stat().st_mtime
                if not path.name.startswith("."):
                    states.append((used, path))
                elif used < time.time() - _LEFT_S:
                    path.unlink()
        for _, path in sorted(states)[:-KEPT]:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def _appearing(path: Path) -> Iterator[BinaryIO]:
    """Give a new file that gets its name once it is complete, and is removed if it does not get there."""
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with half.open("wb") as file:
            half.chmod(0o600)
            yield file
        half.rename(path)
    finally:
        half.unlink(missing_ok=True)
