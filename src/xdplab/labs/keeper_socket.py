"""The path of a keeper's socket, and who may connect to it. Standard library only: keepers are scripts.

It lies in a folder of the lab's owner, of mode 0700: in `/run/xdplab/UID`, which root makes, else in the owner's
runtime folder, else in the owner's cache (``XDPLAB_RUNTIME_DIR`` names another parent of the UID's folder). A name in
the abstract namespace of sockets would be open to each container that shares the network namespace, and to each user.

Labs of one user in different network namespaces are separate: each namespace has its own folder below the owner's.
Beside a socket lies the lock of its keeper; the kernel releases it when the keeper ends. So a socket whose lock
is free belongs to a dead keeper, and the next keeper removes both.
"""

import contextlib
import fcntl
import os
import pwd
import socket
import stat
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote

ROOT = Path("/run/xdplab")
"""The parent of the folders that root makes."""
PATH_BYTES = 107
"""The longest path of a socket, Linux's ``sun_path`` less its zero."""
TAKEN_S = 0.5
"""Seconds for which a keeper tries to take its name: a process that removes a dead keeper's socket holds its lock
briefly."""
_LOCK = "hhqqi4x"  # struct flock of a 64-bit Linux, in its native order


def owners_folders(uid: int) -> list[Path]:
    """Return the folders in which a user's sockets may lie, the one that root makes first."""
    if named := os.environ.get("XDPLAB_RUNTIME_DIR"):
        return [Path(named).absolute() / str(uid)]
    mine = uid == os.geteuid()
    runtime = os.environ.get("XDG_RUNTIME_DIR") if mine else None
    cache = os.environ.get("XDG_CACHE_HOME") if mine else None
    return [
        ROOT / str(uid),
        Path(runtime or f"/run/user/{uid}") / "xdplab",
        Path(cache or _home(uid) / ".cache").absolute() / "xdplab/run",
    ]


def other_owners(uid: int) -> list[int]:
    """Return the other users who may have a lab up: they have a folder for its socket. `/run/xdplab/UID`
    goes with their last lab."""
    named = os.environ.get("XDPLAB_RUNTIME_DIR")
    parents = [Path(named)] if named else [ROOT, Path("/run/user")]
    owners = {int(folder.name) for parent in parents for folder in parent.glob("*") if folder.name.isdigit()}
    return sorted(owner for owner in owners - {uid} if any(map(_is_seen, owners_folders(owner))))


def _is_seen(folder: Path) -> bool:
    try:
        return folder.is_dir()
    except OSError:
        return False


def _home(uid: int) -> Path:
    if uid == os.geteuid() and "HOME" in os.environ:
        return Path(os.environ["HOME"])
    try:
        return Path(pwd.getpwuid(uid).pw_dir)
    except KeyError:
        return Path("/nonexistent")


def namespace() -> str:
    """Return the number of this process's network namespace."""
    return str(Path("/proc/self/ns/net").stat().st_ino)


def file_name(kind: str, instance: str) -> str:
    return f"{kind}-{quote(instance, safe=':')}"


def keepers_of(uid: int, kind: str) -> dict[str, Path]:
    """Return the sockets of a user's labs of one kind that are up or coming up, by instance.

    A dead keeper's files are removed, if they are this user's own.
    """
    sockets: dict[str, Path] = {}
    for owners in owners_folders(uid):
        folder = owners / namespace()
        if is_private(owners, uid) and is_private(folder, uid):
            for lock in sorted(folder.glob(f"{kind}-*.lock")):
                place = lock.with_suffix("")
                if _is_locked(lock):
                    sockets.setdefault(unquote(place.name.removeprefix(f"{kind}-")), place)
                elif uid == os.geteuid():
                    _remove_dead(place)
    return sockets


def place_for(uid: int, kind: str, instance: str) -> Path:
    """Return the path for the socket of a new keeper of this process: in the first usable folder."""
    candidates = owners_folders(uid)
    by_root = os.geteuid() == 0 or kind == "netns"  # sudo starts the keeper of a netns lab
    usable = [owners for owners in candidates if by_root or is_private(owners, uid) or _can_make(owners)]
    return (usable or candidates)[0] / namespace() / file_name(kind, instance)


def _can_make(folder: Path) -> bool:
    parent = next(parent for parent in folder.parents if parent.exists())
    return not folder.exists() and os.access(parent, os.W_OK)


def is_private(folder: Path, uid: int) -> bool:
    """Tell whether a folder is that user's own and closed to all others; a symbolic link never is."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == uid and not status.st_mode & 0o077


class ClaimedSocket:
    """A keeper's socket path, held until this process ends."""

    def __init__(self, path: Path, uid: int) -> None:
        """Take it, with the folders made. Raises FileExistsError if another keeper has it, else OSError."""
        self.path, self.uid = path, uid
        if len(os.fsencode(path)) > PATH_BYTES:
            raise OSError(f"{path} is too long for a socket: set XDPLAB_RUNTIME_DIR")
        until = time.monotonic() + TAKEN_S
        while not self._take():
            if time.monotonic() > until:
                raise FileExistsError(f"another keeper has {path}")
            time.sleep(0.01)

    def _take(self) -> bool:
        """Take the lock and remove a dead keeper's socket. Returns False if a live keeper, or a remover, has the
        lock."""
        owners = self.path.parents[1]
        if os.geteuid() == 0:
            _make_as_root(owners, self.uid)
        with as_owner(self.uid):
            owners.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.path.parent.mkdir(exist_ok=True, mode=0o700)
            for folder in (owners, self.path.parent):
                if not is_private(folder, self.uid):
                    raise OSError(f"{folder} is not a folder of mode 0700 of user {self.uid}")
            try:
                self.lock = os.open(_lock_of(self.path), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:
                return False  # the folder was empty for a moment, and removed
            if not _locked(self.lock, _lock_of(self.path)):
                os.close(self.lock)
                return False
            self.path.unlink(missing_ok=True)
        return True

    def bind(self, listener: socket.socket) -> None:
        with as_owner(self.uid):
            listener.bind(str(self.path))

    def leave(self) -> None:
        """Remove the socket, and the folders that are empty then."""
        with as_owner(self.uid), contextlib.suppress(OSError):
            _remove(self.path)
        if os.geteuid() == 0 and self.path.is_relative_to(ROOT):
            with contextlib.suppress(OSError):
                self.path.parents[1].rmdir()
                ROOT.rmdir()
        os.close(self.lock)


def _make_as_root(owners: Path, uid: int) -> None:
    """Make `/run/xdplab/UID`, or such a folder in another parent where only root can put anything."""
    parent = owners.parent
    if parent == ROOT:
        with contextlib.suppress(FileExistsError):
            ROOT.mkdir()
            ROOT.chmod(0o755)  # whatever the umask is
    status = parent.lstat() if parent.exists() else None
    if status is not None and status.st_uid == 0 and not status.st_mode & 0o022 and stat.S_ISDIR(status.st_mode):
        with contextlib.suppress(FileExistsError):
            owners.mkdir(mode=0o700)
            os.chown(owners, uid, -1)


@contextlib.contextmanager
def as_owner(uid: int) -> Iterator[None]:
    """Touch files with the owner's rights only: in the owner's folder a path may lead anywhere."""
    if os.geteuid() != 0 or uid == 0:
        yield
        return
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def _locked(lock: int, path: Path) -> bool:
    """Lock a file without waiting. Returns False where another has it, or has removed it meanwhile."""
    try:
        fcntl.fcntl(lock, fcntl.F_OFD_SETLK, struct.pack(_LOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        return os.fstat(lock).st_ino == path.stat().st_ino
    except OSError:
        return False


def _is_locked(path: Path) -> bool:
    """Tell whether a keeper has the lock; the check does not disturb a keeper that is just starting."""
    try:
        lock = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        lock_request = struct.pack(_LOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        return bool(struct.unpack(_LOCK, fcntl.fcntl(lock, fcntl.F_OFD_GETLK, lock_request))[0] != fcntl.F_UNLCK)
    finally:
        os.close(lock)


def _remove_dead(path: Path) -> None:
    """Remove the leftovers of a killed keeper, unless another keeper has just taken its path."""
    with contextlib.suppress(OSError):
        lock = os.open(_lock_of(path), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if _locked(lock, _lock_of(path)):
                _remove(path)
        finally:
            os.close(lock)


def _remove(path: Path) -> None:
    """Remove a socket and its lock, and its folder where it was the last one."""
    path.unlink(missing_ok=True)
    _lock_of(path).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        path.parent.rmdir()


def peer(connection: socket.socket) -> tuple[int, int]:
    """Return the process and the user at the other end; process 0 is outside of this PID namespace."""
    size = struct.calcsize("3i")
    pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return pid, uid


def in_our_pid_namespace(pid: int) -> bool:
    """Tell whether a process is in this PID namespace itself, not in a container's below it (or an invisible one)."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    return any(line.split() == ["NSpid:", str(pid)] for line in lines)
