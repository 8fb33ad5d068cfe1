"""A lab's keeper: a process that holds the lab and answers on a socket; whoever keeps a lab derives from it.

For scripts, standard library only. Hosts are processes and keys live in memory: however the keeper ends, the kernel
then removes all of it. Only the socket has a name, in a private folder of the owner (`keeper_socket`); the next keeper
removes that of a killed one. One JSON line on standard output says ``{"ready": …}`` or ``{"error": …}``; the keeper
then continues in the background.

A client is the owner or root, in the keeper's own PID namespace. It sends one JSON line and gets one back: ``hello``
(everything about the lab), ``lease`` (the lab ends with the last of these connections), ``release`` (end it now, and
say when it is gone), ``lock`` (held until the connection closes), ``down``. A kind of lab adds its own.
"""

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xdplab.labs import keeper_socket
else:  # importing the package itself would load pandas
    sys.path.insert(0, str(Path(__file__).parent))
    import keeper_socket

LEASE_S = 5.0
"""Seconds a leased lab waits for its first lease."""
REQUEST_BYTES = 4096
MOST_CLIENTS = 256
"""Largest number of connections; further ones get an error and are closed."""
SILENT_S = 10.0
"""Seconds after which a connection without a request is closed."""

Answer = dict[str, Any]


class KeeperError(Exception):
    """An error for the owner; ``remedy`` says what to do about it."""

    def __init__(self, message: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.answer: Answer = {"error": message, "remedy": remedy}


class NameTakenError(KeeperError):
    """Another process makes, or has, a lab of this name."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.answer["taken"] = True


class Client:
    """A connection, the received part of its first request, and the time when it is dropped."""

    def __init__(self) -> None:
        self.received = b""
        self.until: float | None = time.monotonic() + SILENT_S

    def request(self, data: bytes) -> Answer | None:
        """Add received bytes; return the request once it is complete. Raises KeeperError if it is not a request."""
        self.received += data
        if b"\n" not in self.received and len(self.received) < REQUEST_BYTES:
            return None
        self.until = None
        try:
            request = json.loads(self.received)
        except (ValueError, RecursionError):
            request = None
        self.received = b""
        if not isinstance(request, dict):
            raise KeeperError("a request is one JSON object on one line")
        return request


class Keeper:
    """A lab: made by `make`, kept by `serve`, removed by `end`. A kind of lab adds `build` and `remove`."""

    def __init__(self, path: str, uid: int, *, lease: bool) -> None:
        """Keep the lab of user ``uid`` with a socket at ``path``; ``lease``: it ends with the last lease, or without a
        first one."""
        self.path, self.uid = path, uid
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.selector = selectors.DefaultSelector()
        self.clients: dict[socket.socket, Client] = {}
        self.place: keeper_socket.ClaimedSocket | None = None
        self.leases: set[socket.socket] = set()
        self.lock: tuple[socket.socket, str] | None = None
        self.since = time.time()
        self.lease_until = time.monotonic() + LEASE_S if lease else None
        self.asked_down: socket.socket | None = None
        self.going = True
        self.actions: dict[str, Callable[[socket.socket, Answer], Answer | None]] = {
            "hello": self.hello,
            "lease": self.lease,
            "release": self.release,
            "lock": self.take_lock,
            "down": self.down,
        }

    def build(self) -> None:
        """Make the lab. Raises KeeperError."""
        raise NotImplementedError

    def remove(self) -> None:
        """End whatever `build` made, also where it failed halfway."""
        raise NotImplementedError

    def make(self) -> None:
        self.take_name()
        self.build()
        if self.lease_until is not None:
            self.lease_until = time.monotonic() + LEASE_S
        self.listener.listen(64)

    def take_name(self) -> None:
        """Bind, but do not listen yet: this takes the name at once, and no client can connect too early."""
        try:
            self.place = keeper_socket.ClaimedSocket(Path(self.path), self.uid)
            self.place.bind(self.listener)
        except FileExistsError as error:
            raise NameTakenError(f"the lab's name is taken: {error}") from error
        except OSError as error:
            raise KeeperError(f"no socket can be made at {self.path}: {error}") from error

    def serve(self) -> None:
        """Answer the owner until someone says ``down``, or the lease ends."""
        self.selector.register(self.listener, selectors.EVENT_READ, self.accept)
        while self.going:
            ends = [client.until for client in self.clients.values() if client.until is not None]
            ends += [self.lease_until] if self.lease_until is not None else []
            ready = self.selector.select(max(min(ends) - time.monotonic(), 0.0) if ends else None)
            now = time.monotonic()
            if not ready and self.lease_until is not None and self.lease_until <= now:
                return
            for key, _ in ready:
                key.data(key.fileobj)
            for connection in [c for c, client in self.clients.items() if client.until and client.until <= now]:
                self.forget(connection)

    def stop(self, _socket: socket.socket) -> None:
        self.going = False

    def end(self) -> None:
        """Accept no more connections, release the name, and tell who asked for it when the lab is gone."""
        self.listener.close()
        if self.place is not None:
            self.place.leave()
        self.remove()
        if self.asked_down is not None:
            self.reply(self.asked_down, {"ok": True})

    def accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:  # the client is gone, or no descriptor is left: then waiting clients must wait
            time.sleep(0.01)
            return
        connection.setblocking(False)
        pid, uid = keeper_socket.peer(connection)
        refusal = None
        if uid not in (0, self.uid):
            refusal = "this lab belongs to another user"
        elif not keeper_socket.in_our_pid_namespace(pid):
            refusal = "the caller must be in the PID namespace of the lab's keeper, not in a container"
        elif len(self.clients) >= MOST_CLIENTS and not self.forget_closed():
            refusal = f"it has {MOST_CLIENTS} connections already"
        if refusal is not None:
            self.reply(connection, {"error": refusal})
            _discard(connection)
            return
        self.clients[connection] = Client()
        self.selector.register(connection, selectors.EVENT_READ, self.request)

    def request(self, connection: socket.socket) -> None:
        """Answer one request; the connection then closes, or sends another request."""
        if connection not in self.clients:
            return  # it was dropped in this same round
        try:
            data = connection.recv(REQUEST_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.forget(connection)
            return
        try:
            request = self.clients[connection].request(data)
            answer = None if request is None else self.act(connection, request)
        except KeeperError as error:
            answer = error.answer
        if answer is not None:
            self.reply(connection, answer)

    def act(self, connection: socket.socket, request: Answer) -> Answer | None:
        """Return the answer to a request, or None if it comes later. Raises KeeperError for an invalid request."""
        action = self.actions.get(str(request.get("do")))
        if action is None:
            raise KeeperError(f"no request is called {request.get('do')!r}")
        try:
            return action(connection, request)
        except (LookupError, TypeError, ValueError, ArithmeticError) as error:
            raise KeeperError(f"the request `{request['do']}` lacks a field, or has a wrong one: {error!r}") from error

    def reply(self, connection: socket.socket, answer: Answer) -> None:
        try:
            connection.sendall(json.dumps(answer).encode() + b"\n")
        except OSError:
            return  # the caller is gone

    def forget(self, connection: socket.socket) -> None:
        self.hand_off(connection)
        if self.lock and self.lock[0] is connection:
            self.lock = None
        if connection in self.leases:
            self.leases.discard(connection)
            self.going = self.going and bool(self.leases)
        connection.close()

    def forget_closed(self) -> bool:
        """Drop the connections whose other end is gone, without waiting for their turn. Returns whether there were
        any."""
        closed = [connection for connection in self.clients if _closed(connection)]
        for connection in closed:
            self.forget(connection)
        return bool(closed)

    def hand_off(self, connection: socket.socket) -> None:
        """Stop listening to a connection: another process has it now."""
        self.selector.unregister(connection)
        del self.clients[connection]

    def hello(self, _connection: socket.socket, _request: Answer) -> Answer:
        return {
            "pid": os.getpid(),
            "uid": self.uid,
            "since": self.since,
            # The first lease, which it still waits for, counts too: a client that comes before the lab's maker must
            # also hold it.
            "leases": len(self.leases) + (self.lease_until is not None),
            "locked_by": self.lock[1] if self.lock else None,
            "machine_cpus": sorted(os.sched_getaffinity(0)),
            "cpus": sorted(os.sched_getaffinity(0)),
        }

    def lease(self, connection: socket.socket, _request: Answer) -> Answer:
        self.lease_until = None
        self.leases.add(connection)
        return {"ok": True}

    def release(self, connection: socket.socket, request: Answer) -> Answer | None:
        """Release a lease; the last one takes the lab down, and is answered when the lab is gone."""
        self.leases.discard(connection)
        if self.leases:
            return {"kept": True}
        self.down(connection, request)
        return None

    def take_lock(self, connection: socket.socket, request: Answer) -> Answer:
        if self.lock and self.lock[0] is not connection and not _closed(self.lock[0]):
            return {"locked_by": self.lock[1]}
        self.lock = (connection, str(request.get("who", "a run")))
        return {"ok": True}

    def down(self, connection: socket.socket, _request: Answer) -> None:
        self.asked_down = connection
        self.going = False


def _discard(connection: socket.socket) -> None:
    """Close a connection; closing it with unread data would lose the answer."""
    with contextlib.suppress(OSError):
        connection.recv(REQUEST_BYTES)
    connection.close()


def _closed(connection: socket.socket) -> bool:
    """Tell whether the other end is gone, though its end was not read yet."""
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def keep(lab: Callable[[], Keeper], *, within_s: float | None = None) -> None:
    """Make a lab in a detached process, say that it is ready or why not, and keep it until it ends.

    ``within_s``: seconds that making it may take.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    in_background(lambda say: _keep(lab(), within_s, say))


def _keep(keeper: Keeper, within_s: float | None, say: Callable[[Answer], None]) -> None:
    def too_late(*_: object) -> None:
        raise KeeperError(f"it was not up after {within_s} s", "the machine is busy: try again when it is less so")

    signal.signal(signal.SIGALRM, too_late)
    signal.setitimer(signal.ITIMER_REAL, within_s or 0.0)
    try:
        keeper.make()
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        say({"ready": True})
        keeper.serve()
    except KeeperError as error:
        say(error.answer)
    finally:
        keeper.end()


def in_background(work: Callable[[Callable[[Answer], None]], None]) -> None:
    """Do ``work`` in a detached process; return once it has printed its one line, or ended.

    An error before that line is the line: nothing else of the process can be seen.
    """
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        while text := os.read(reader, REQUEST_BYTES):
            os.write(1, text)
        return
    os.close(reader)
    os.setsid()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)

    reported = False

    def say(answer: Answer) -> None:
        nonlocal reported
        if not reported:  # afterwards the pipe is closed, and its number may be a client's
            reported = True
            os.write(writer, json.dumps(answer).encode() + b"\n")
            os.close(writer)

    try:
        work(say)
    except Exception as error:
        say({"error": f"{type(error).__name__}: {error}", "remedy": None})
        raise
