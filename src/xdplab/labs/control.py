"""The owner's side of a keeper's socket: checks both ends, and exchanges one JSON line each way."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import socket
import struct
from collections.abc import Container
from pathlib import Path
from typing import Any

from xdplab.errors import LabError
from xdplab.labs import keeper_socket

ANSWER_S = 15.0
"""Seconds to wait for an answer; ``down`` takes longest, a few tenths."""


def owner(for_user: str | None = None) -> int:
    """Return the owner's uid: the given one, that of the user who called sudo, or the caller's."""
    if for_user is not None:
        return _uid(for_user)
    if os.geteuid() == 0 and os.environ.get("SUDO_UID", "").isdigit():
        return int(os.environ["SUDO_UID"])
    return os.getuid()


def user_name(uid: int) -> str:
    """Return what --for-user takes for a user: the name, or the number of one without a name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _uid(user: str) -> int:
    if user.isdigit():
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise LabError(f"--for-user: no user is called {user!r} here") from None


class WentDownError(LabError):
    """The lab went down while its keeper was asked."""


class Control:
    """One connection to a keeper. Its leases and locks end with it."""

    def __init__(self, connection: socket.socket, where: str) -> None:
        self._connection = connection
        self._where = where

    def ask(self, do: str, *, within_s: float = ANSWER_S, **more: Any) -> dict[str, Any]:
        """Send one request and return its answer.

        Raises WentDownError if the keeper ends instead, LabError with the keeper's message.
        """
        self._connection.settimeout(within_s)
        try:
            with contextlib.suppress(
                BrokenPipeError
            ):  # it may have refused the connection and closed it: its message says why
                self._connection.sendall(json.dumps({"do": do, **more}).encode() + b"\n")
            line = self._read_line()
        except ConnectionResetError:
            line = b""
        except OSError as error:
            raise LabError(f"{self._where}: its keeper does not answer `{do}`: {error}") from error
        if not line:
            raise WentDownError(f"{self._where}: it went down while asked to `{do}`")
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError:
            raise LabError(f"{self._where}: its keeper answers `{do}` with {line[:80]!r}") from None
        if "error" in answer:
            raise LabError(f"{self._where}: {answer['error']}")
        return answer

    def detach(self) -> socket.socket:
        """Return the socket, which is no longer a control connection."""
        self._connection.settimeout(None)
        return self._connection

    def wait_gone(self) -> None:
        """Return when the keeper has closed its end."""
        while self._connection.recv(4096):
            pass

    def close(self) -> None:
        self._connection.close()

    def _read_line(self) -> bytes:
        # Reading past the line would be wrong: after ``ssh`` the next byte belongs to sshd.
        line = bytearray()
        while not line.endswith(b"\n") and (byte := self._connection.recv(1)):
            line += byte
        return bytes(line)


def connect_to(keeper: Path, where: str, keepers: Container[int]) -> Control | None:
    """Return a connection to the keeper at a socket, or None. Raises LabError unless one of ``keepers`` runs it."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # With Python's own timeout, a keeper whose queue is briefly full would look absent.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(ANSWER_S), 0))
    try:
        connection.connect(str(keeper))
    except OSError:
        connection.close()
        return None
    if keeper_socket.peer(connection)[1] not in keepers:
        connection.close()
        raise LabError(f"{where}: another user's process is at its socket {keeper}", remedy="choose another name")
    return Control(connection, where)
