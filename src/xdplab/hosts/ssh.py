"""A host reached over SSH: one connection, a channel for each command, a pinned host key."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import io
import logging
import re
import shlex
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

from xdplab.errors import HostError, HostLostError, LabError
from xdplab.hosts import Result
from xdplab.hosts.lifeline import Lifeline, host_end
from xdplab.hosts.paramiko_alone import paramiko
from xdplab.hosts.process import StreamedProcess, guarded, within
from xdplab.text import duration, step

CONNECT_S = 10.0
"""Seconds for each step of connecting: TCP, key exchange, login."""

RETRY_S = 2.0
"""Seconds between two attempts to reach a lost host."""

with contextlib.suppress(AttributeError):  # M_ARENA_MAX of glibc: each of up to 16 keeps what its threads ever took
    ctypes.CDLL(None).mallopt(-8, 2)
logging.getLogger("paramiko").addHandler(logging.NullHandler())  # it prints tracebacks of what is raised anyway

ANSWER_S = 30.0
"""Seconds within which a connection must take a request: a new command, the end of its input, the end of a channel."""

DROP_S = 1.0
"""Seconds for closing a connection that does not answer."""

FILE_S = 30.0
SLOWEST_BYTES_S = 250_000
MOST_BYTES = 30_000_000
"""The size of the longest file that is waited for, over the slowest link."""

CHANNELS_KNOWN = 256
"""How many of the last commands' channels are kept, for late messages about ended ones."""

_CHUNK = 1 << 16
_LOST = (paramiko.SSHException, OSError, EOFError)

# Writes a file beside the target, syncs and checks it, and then renames it: a full disk leaves the old file or none.
# One that is there already, as a program's object from run to run, is let be.
_PUT = """
[ -f "$1" ] && [ ! -L "$1" ] && [ "$(sha256sum <"$1")" = "$3  -" ] && chmod "$2" "$1" && exit
part=$1.$$ folder=${1%/*}
case $1 in */*) mkdir -p -- "${folder:=/}" || exit 1 ;; *) folder=. ;; esac
umask 077
trap 'rm -f -- "$part"' EXIT
cat >"$part" && chmod "$2" "$part" && sync "$part" || exit 1
[ "$(sha256sum <"$part")" = "$3  -" ] || { echo "what arrived is not what was sent" >&2; exit 1; }
mv -fT -- "$part" "$1" && sync "$folder"
"""

# ``timeout`` makes itself the leader of a new group, and keeps the pid of the shell it replaces.
# The line of /proc has when it started: with its number, that is one process and no other.
# Each stream begins behind its mark: a login shell may greet, and warn of a locale, and sudo of a name, before it.
TELL_GROUP = 'read -r line </proc/$$/stat; echo "xdplab-group $$ $line" >&2; echo xdplab-output; exec "$@"'
_GROUP_LINE = re.compile(rb"xdplab-group (\d+) (?:.*\))?((?: \S+)*)\n")
_OUTPUT_LINE = re.compile(rb"xdplab-output\n")
_LONGEST_MARK = 1000
_START_FIELD = 19  # of those behind the name

# If another process has the PID now, both the command and its group have ended: the PID was free. While a member of
# the group lives, no other process gets it. So a PID without a process belongs to the group or is free.
KILL_GROUP = (
    'pid=$1 start=$2; if { read -r line <"/proc/$pid/stat"; } 2>/dev/null; then set -- ${line##*) }; '
    '[ "${20}" = "$start" ] || exit 0; fi; kill -s KILL -- "$pid" "-$pid"'
)


@dataclass(frozen=True)
class SshAddress:
    """How to reach a host, and the key that proves its identity.

    ``host_key`` is the server's public key (``ssh-ed25519 AAAA…``), ``known_hosts`` a file that holds it; one of
    them is needed. ``key`` is the private key, as text or as a file. ``connect`` makes the socket if host and port do
    not reach the host (a namespace behind a Unix socket). ``silence_s``: seconds of silence after which each end
    considers the other gone (`Lifeline`); None if both are on this machine and end with it. ``returns_s``: how long a
    lost host may take to come back (`SshHost.await_return`); a server's reboot takes minutes.
    """

    host: str
    user: str = "root"
    port: int = 22
    key: str | Path = field(default="", repr=False)
    host_key: str | None = None
    known_hosts: Path | None = None
    connect: Callable[[], socket.socket] | None = None
    silence_s: float | None = None
    returns_s: float = 0.0

    def open_socket(self) -> socket.socket:
        if self.connect is not None:
            return self.connect()
        connected = socket.create_connection((self.host, self.port), timeout=CONNECT_S)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else each command waits for a delayed ACK
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return connected

    @property
    def known_as(self) -> str:
        return self.host if self.port == 22 else f"[{self.host}]:{self.port}"


class SshProcess(StreamedProcess):
    """One channel: a command in a process group of its own on the far side."""

    def __init__(self, host: SshHost, argv: Sequence[str], deadline_s: float) -> None:
        super().__init__(host.name, argv, deadline_s)
        self._owner = host
        self._group: int | None = None
        self._started_at = ""
        self._group_told = threading.Event()
        self._channel = host.channel(["sh", "-c", TELL_GROUP, "xdplab", *guarded(argv, deadline_s)])
        output = self._behind(_OUTPUT_LINE, self._channel.recv)
        errors = self._behind(_GROUP_LINE, self._channel.recv_stderr)
        self._pump(self.stdout, lambda: next(output, b""))
        self._pump(self.stderr, lambda: next(errors, b""))

    def _behind(self, mark: re.Pattern[bytes], receive: Callable[[int], bytes]) -> Iterator[bytes]:
        """Yield what a stream brings behind its mark; all of it if there is none, as it says why no command ran."""
        head, match = bytearray(), None
        while match is None and (chunk := receive(_CHUNK)):
            head += chunk
            match = mark.search(bytes(head[-len(chunk) - _LONGEST_MARK :]))
        if mark is _GROUP_LINE:
            self._take_group(match)
        if rest := match.string[match.end() :] if match else bytes(head):
            yield rest
        while chunk := receive(_CHUNK):
            yield chunk

    def _take_group(self, match: re.Match[bytes] | None) -> None:
        if match is not None:
            self._started_at = b" ".join(match[2].split()[_START_FIELD : _START_FIELD + 1]).decode()
            self._group = int(match[1])
        self._group_told.set()

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[_send(self._channel, rest) :]

    def _close_stdin(self) -> None:
        within(ANSWER_S, lambda: _end_input(self._channel))

    def _kill_group(self) -> None:
        self._group_told.wait(CONNECT_S)
        if self._group is None or self._channel.closed:
            return
        # First the leader, by its own PID: before ``timeout`` makes the group, only the leader runs. After its end it
        # starts no more processes, and the group has all that it started.
        with contextlib.suppress(HostError):  # a dead connection: the host's own timeout ends the group
            killer = self._owner.channel(["sh", "-c", KILL_GROUP, "xdplab", f"{self._group}", self._started_at])
            killer.status_event.wait(1.0)
            _end(killer)

    def _exit_code(self, timeout_s: float) -> int | None:
        if not self._channel.status_event.wait(timeout_s):
            return None
        if self._channel.exit_status == -1 and not self._owner.connected:
            raise self._broken("was cut off: the connection is lost")
        return int(self._channel.exit_status)

    def _release(self) -> None:
        _end(self._channel)


def _send(channel: paramiko.Channel, data: memoryview) -> int:
    """Send a packet of input, and return how much of ``data`` it took. Raises OSError if the command has ended."""
    message = paramiko.Message()
    message.add_byte(paramiko.common.cMSG_CHANNEL_DATA)
    message.add_int(channel.remote_chanid)
    with channel.lock:
        size = channel._wait_for_send_window(len(data))  # type: ignore[attr-defined]  # 0 for a channel that is closed
    message.add_string(bytes(data[:size]))
    if not (size and _post(channel, message)):
        raise OSError("the command has ended")
    return int(size)


def _end_input(channel: paramiko.Channel) -> None:
    """Tell the far side that no input follows, unless its command has ended."""
    with channel.lock:
        message = channel._send_eof()  # type: ignore[attr-defined]  # None for a channel that is closed
    if message is not None:
        _post(channel, message)


def _post(channel: paramiko.Channel, message: paramiko.Message) -> bool:
    """Send input, or its end, on an open channel; return False if it is closed. Raises TimeoutError after ANSWER_S.

    sshd ends the whole connection if either comes behind a channel's close. paramiko's thread answers a command's end
    with that close: it marks the channel closed, then sends under the lock that is held here. The functions of paramiko
    look at the mark before they wait for that lock. The channel's own lock would not do: a key exchange needs it.
    """
    transport: Any = channel.transport
    until = time.monotonic() + ANSWER_S
    while transport.is_active() and not channel.closed:
        transport.clear_to_send.wait(0.1)  # not set in a key exchange
        with transport.clear_to_send_lock:
            if transport.clear_to_send.is_set() and not channel.closed:
                transport._send_message(message)
                return True
        if time.monotonic() > until:
            raise TimeoutError("the connection sends nothing")
    return False


def _end(channel: paramiko.Channel) -> None:
    with contextlib.suppress(*_LOST):
        within(ANSWER_S, channel.close)


class SshHost:
    """A `Host` behind one SSH connection, opened at once; login only by key, without agent or password."""

    def __init__(self, name: str, address: SshAddress) -> None:
        self.name = name
        self._address = address
        self._lifeline: Lifeline | None = None
        self._connecting = threading.Lock()
        self._client = self._connected()
        self._closed = False

    def _connected(self) -> paramiko.SSHClient:
        """Return a new connection, with a lifeline if one is asked for."""
        client = _connect(self.name, self._address)
        transport = client.get_transport()
        if (silence_s := self._address.silence_s) is not None and transport is not None:
            try:
                line = transport.open_session(timeout=CONNECT_S)
                within(ANSWER_S, lambda: line.exec_command(shlex.join(host_end(silence_s))))
                self._lifeline = Lifeline(self.name, line, silence_s)
            except (LabError, *_LOST) as error:
                client.close()
                raise _explained(self.name, self._address, error) from error
        return client

    @property
    def connected(self) -> bool:
        transport = self._client.get_transport()
        return transport is not None and transport.is_active()

    def channel(self, argv: Sequence[str]) -> paramiko.Channel:
        """Return a channel on which ``argv`` runs. Only here does an argument vector become a string."""
        try:
            transport = self._transport()
            channel = transport.open_session(timeout=CONNECT_S)
            _forget_old(transport)
            within(ANSWER_S, lambda: channel.exec_command(shlex.join(argv)))
        except TimeoutError as error:
            _drop(transport)
            raise HostError(f"{self.name}: cannot start `{argv[0]}`: {error}; the connection is closed") from error
        except _LOST as error:
            raise HostError(f"{self.name}: cannot start `{argv[0]}`: {_as_text(error)}") from error
        return channel

    def _transport(self) -> paramiko.Transport:
        """Return the connection; a lost connection is made again, once."""
        with self._connecting:  # the beats of a watchdog use it too
            if self._closed:
                raise HostError(f"{self.name}: the connection is closed")
            if not self.connected:
                try:
                    self._client = self._connected()
                except LabError as error:
                    raise HostLostError(
                        f"{self.name}: the connection is lost, and a new one cannot be made: {error.message}",
                        remedy="see `xdplab lab status`; `xdplab resume` continues a run",
                    ) from error
            transport = self._client.get_transport()
        assert transport is not None  # paramiko: set by connect()
        return transport

    def await_return(self) -> None:
        """Reconnect as soon as the host answers. Raises HostLostError after ``returns_s``."""
        until = time.monotonic() + self._address.returns_s
        waiting: contextlib.AbstractContextManager[None]
        waiting = step(f"{self.name} does not answer: waiting up to {duration(self._address.returns_s)} for it")
        while True:
            try:
                self._transport()
                return
            except HostLostError:
                if time.monotonic() >= until:
                    raise
            with waiting:
                time.sleep(RETRY_S)
            waiting = contextlib.nullcontext()

    def run(self, argv: Sequence[str], *, deadline_s: float = 30.0, stdin: bytes = b"", check: bool = True) -> Result:
        process = SshProcess(self, argv, deadline_s)
        process.feed(stdin)
        result = process.wait(deadline_s + 2.0)
        return result.require() if check else result

    def start(self, argv: Sequence[str], *, deadline_s: float) -> SshProcess:
        return SshProcess(self, argv, deadline_s)

    def put(self, data: bytes | Path, remote: str, *, mode: int = 0o644) -> None:
        content = data.read_bytes() if isinstance(data, Path) else data
        target = str(PurePosixPath(remote))
        argv = ["sh", "-c", _PUT, "sh", target, f"{mode:o}", hashlib.sha256(content).hexdigest()]
        self._done("write", remote, self.run(argv, stdin=content, deadline_s=_patience_s(len(content)), check=False))

    def get(self, remote: str) -> bytes:
        argv = ["cat", "--", remote]
        return self._done("read", remote, self.run(argv, deadline_s=_patience_s(MOST_BYTES), check=False)).stdout

    def _done(self, what: str, remote: str, result: Result) -> Result:
        if result.ok:
            return result
        why = "the host did not answer in time" if result.timed_out else result.error_text or f"{result.exit_code}"
        raise HostError(f"{self.name}: cannot {what} {remote}: {why}")

    def close(self) -> None:
        self._closed = True
        if self._lifeline is not None:
            self._lifeline.close()
        with contextlib.suppress(*_LOST):
            self._client.close()


def _drop(transport: paramiko.Transport) -> None:
    """Close a connection that no longer answers: the next command makes a new one."""
    with contextlib.suppress(*_LOST):
        within(DROP_S, transport.close)


def _forget_old(transport: paramiko.Transport) -> None:
    """Forget the numbers of channels that ended long ago: paramiko keeps each for late messages, 1 kB per trial."""
    with transport.lock:
        seen = transport.channels_seen
        # Seldom: to find the first key of a dict that was emptied from its front is slow.
        if len(seen) > 2 * CHANNELS_KNOWN:
            for number in list(seen)[:-CHANNELS_KNOWN]:
                del seen[number]


def _patience_s(size: int) -> float:
    """Return the longest time in s that this many bytes may take, over the slowest link (a guest's serial line)."""
    return FILE_S + size / SLOWEST_BYTES_S


def _connect(name: str, address: SshAddress) -> paramiko.SSHClient:
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(_RefuseUnknown(name))
    try:
        _pin(client, name, address)
        client.connect(
            address.host,
            address.port,
            address.user,
            pkey=_private_key(name, address.key),
            sock=address.open_socket(),
            timeout=CONNECT_S,
            banner_timeout=CONNECT_S,
            auth_timeout=CONNECT_S,
            allow_agent=False,
            look_for_keys=False,
        )
    except (HostError, *_LOST) as error:
        client.close()
        raise _explained(name, address, error) from error
    return client


def _explained(name: str, address: SshAddress, error: BaseException) -> HostError:
    if isinstance(error, HostError):
        return error
    if isinstance(error, paramiko.BadHostKeyException):
        return HostError(
            f"{name}: its host key has changed: {error.key.get_name()} {error.key.get_base64()}",
            remedy="the connection may be intercepted; if the host was reinstalled, replace the pinned key",
        )
    if isinstance(error, paramiko.AuthenticationException):
        return HostError(
            f"{name}: login of {address.user} with this key is refused",
            remedy="add its public half to the host's authorized_keys",
        )
    return HostError(f"{name}: cannot connect to {address.known_as}: {_as_text(error)}")


class _RefuseUnknown(paramiko.MissingHostKeyPolicy):
    def __init__(self, name: str) -> None:
        self._name = name

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> NoReturn:
        raise HostError(
            f"{self._name}: unknown host key of {hostname}: {key.get_name()} {key.get_base64()}",
            remedy="check it on the host's console, then add it as host_key or to known_hosts",
        )


def _pin(client: paramiko.SSHClient, name: str, address: SshAddress) -> None:
    if address.known_hosts is not None:
        try:
            client.load_host_keys(str(address.known_hosts))
        except paramiko.hostkeys.InvalidHostKey as error:
            raise HostError(f"{name}: {address.known_hosts} holds a damaged key: {error.line[:60]!r}") from error
    if address.host_key is None:
        return
    for kind, encoded in _key_lines(name, address.host_key):
        try:
            entry = paramiko.hostkeys.HostKeyEntry.from_line(f"{address.known_as} {kind} {encoded}")
        except (ValueError, paramiko.SSHException, paramiko.hostkeys.InvalidHostKey) as error:
            raise HostError(f"{name}: host_key is damaged: {kind} {encoded[:40]!r}") from error
        if entry is None or entry.key is None:
            raise HostError(f"{name}: host_key is of an unknown kind: {kind}")
        client.get_host_keys().add(address.known_as, kind, entry.key)


_KEY_LINE = re.compile(r"(?:\S+ )?((?:ssh|ecdsa|sk)-\S+) (\S+)")


def _key_lines(name: str, text: str) -> list[tuple[str, str]]:
    """Return kind and key of each line of ``host_key``: a public key's line, or output of ssh-keyscan."""
    lines = (line.strip() for line in text.splitlines())
    matches = [_KEY_LINE.match(line) for line in lines if line and not line.startswith("#")]
    if not matches or None in matches:
        raise HostError(
            f"{name}: host_key is not a public key line: {text[:60]!r}",
            remedy="`ssh-keyscan -t ed25519 HOST` prints one",
        )
    return [(match[1], match[2]) for match in matches if match]


def _private_key(name: str, key: str | Path) -> paramiko.PKey:
    try:
        if isinstance(key, Path):
            return paramiko.PKey.from_path(key.expanduser())
        return paramiko.Ed25519Key.from_private_key(io.StringIO(key))
    except (OSError, ValueError, paramiko.SSHException, paramiko.pkey.UnknownKeyType) as error:
        source = str(key) if isinstance(key, Path) else "the key text"
        raise HostError(f"{name}: cannot use {source} as private key: {_as_text(error)}") from error


def _as_text(error: BaseException) -> str:
    return str(error) or type(error).__name__
