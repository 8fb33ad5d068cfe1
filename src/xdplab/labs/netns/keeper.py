"""The keeper of one netns lab: two hosts, the link between them, and a socket for their owner.

Runs as root and as a script, standard library only. Hosts are namespaces of processes, keys live in memory: however the
keeper ends, the kernel then removes all of it. Only the socket has a name, in a private folder of the owner
(`keeper_socket`); the next keeper removes that of a killed one. One JSON line on standard output says ``{"ready": …}``
or ``{"error": …}``; the keeper then continues in the background.

A client is the owner or root, in the keeper's own PID namespace. It sends one JSON line and gets one back: ``hello``
(everything about the lab), ``ssh`` (from then on the connection is that host's sshd), ``lease`` (the lab ends with the
last of these connections), ``release`` (end it now, and say when it is gone), ``lock`` (held until the connection
closes), ``pin`` (an interface's softirq threads to CPUs), ``second_link`` (its ends; ``make`` it if need be), ``down``.
"""

import argparse
import contextlib
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xdplab.labs import keeper_socket
else:  # importing the package itself would load pandas
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import keeper_socket

HOSTS = {"dut": "vd0", "tg": "vg0"}
SECOND = {"dut": "vd1", "tg": "vg1"}
"""The ends of the second link, which is made when a run first asks for it."""
ISOLATED = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"),
)
"""Runs a host in its own namespaces, which end with the keeper, however it ends."""
START_S = 20
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
        self.said = b""
        self.until: float | None = time.monotonic() + SILENT_S

    def request(self, data: bytes) -> Answer | None:
        """Add received bytes; return the request once it is complete. Raises KeeperError if it is not a request."""
        self.said += data
        if b"\n" not in self.said and len(self.said) < REQUEST_BYTES:
            return None
        self.until = None
        try:
            asked = json.loads(self.said)
        except (ValueError, RecursionError):
            asked = None
        self.said = b""
        if not isinstance(asked, dict):
            raise KeeperError("a request is one JSON object on one line")
        return asked


def find_sshd() -> str:
    sshd = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin:/usr/bin")
    if sshd is None:
        raise KeeperError("sshd not found", "install openssh-server (shell/setup.sh does)")
    return sshd


class NetnsHost:
    """One host: the ``unshare`` that holds its namespaces, and the socket to its PID 1."""

    def __init__(self, name: str, interface: str, sshd: str, isolated: tuple[str, ...] = ISOLATED) -> None:
        self.name, self.interface = name, interface
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        script = Path(__file__).with_name("host.py")
        outside = os.open("/proc/self/ns/net", os.O_RDONLY)
        self.process = subprocess.Popen(
            [*isolated, sys.executable, "-I", "-S", "-B", str(script), name, sshd, str(outside)],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(outside,),
            text=True,
        )
        os.close(outside)
        theirs.close()
        self.known: Answer = {}

    def listen(self) -> None:
        """Read the next line that PID 1 prints about itself, and remember it."""
        self.known |= self.heard()

    def heard(self) -> Answer:
        """Return the next line that PID 1 prints. Raises KeeperError if it is an error."""
        said = self.socket.recv(1 << 16)
        answer: Answer = json.loads(said) if said else {"error": self._last_words()}
        if "error" in answer:
            raise KeeperError(f"host {self.name}: {answer['error']}", _remedy(answer["error"]))
        return answer

    def bring_up(self, interface: str) -> None:
        self.socket.send(json.dumps({"interface": interface}).encode())

    def hand_over(self, connection: socket.socket) -> None:
        """Make ``connection`` the standard input and output of a new sshd in this host."""
        connection.setblocking(True)
        socket.send_fds(self.socket, [b"ssh"], [connection.fileno()])

    def wait_end(self) -> None:
        """Wait until the whole host is gone; PID 1 ends because its socket was closed before."""
        try:
            self.process.wait(2.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _last_words(self) -> str:
        self.process.wait(5.0)
        return self.process.stderr.read().strip()[-300:] if self.process.stderr else "ended without a word"


def _why(done: "subprocess.CompletedProcess[str]") -> str:
    """Return why a command failed: its message, or how it ended if it printed none."""
    if words := done.stderr.strip():
        return words
    command = f"`{' '.join(done.args[:3])} …`"
    if done.returncode < 0:
        return f"{command} was killed by signal {-done.returncode} ({signal.strsignal(-done.returncode)})"
    return f"{command} exited with {done.returncode} and said nothing"


def _remedy(words: str) -> str | None:
    """Return the remedy for known failures."""
    known = {
        "unshare failed": "this root may not make namespaces: use a machine or VM, not an unprivileged container",
        "Unknown device type": "the kernel lacks veth: `modprobe veth`, or a kernel with CONFIG_VETH",
        "mount -t bpf": "the kernel lacks BPF: one with CONFIG_BPF_SYSCALL is needed",
        "not found": "run `xdplab doctor`: it names the package",
    }
    return next((remedy for sign, remedy in known.items() if sign in words), None)


class Keeper:
    """The lab: made by `make`, kept by `serve`."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.hosts: dict[str, NetnsHost] = {}
        self.selector = selectors.DefaultSelector()
        self.clients: dict[socket.socket, Client] = {}
        self.place: keeper_socket.ClaimedSocket | None = None
        self.leases: set[socket.socket] = set()
        self.lock: tuple[socket.socket, str] | None = None
        self.since = time.time()
        self.lease_until = time.monotonic() + LEASE_S if options.lease else None
        self.second: Answer | None = None
        self.asked_down: socket.socket | None = None
        self.going = True
        self.actions: dict[str, Callable[[socket.socket, Answer], Answer | None]] = {
            "hello": self.hello,
            "ssh": self.ssh,
            "lease": self.lease,
            "release": self.release,
            "lock": self.take_lock,
            "pin": self.pin,
            "second_link": self.second_link,
            "down": self.down,
        }

    def make(self) -> None:
        self.take_name()
        self.make_hosts()
        self.listener.listen(64)

    def take_name(self) -> None:
        """Bind, but do not listen yet: this takes the name at once, and no client can connect too early."""
        try:
            self.place = keeper_socket.ClaimedSocket(Path(self.options.socket), self.options.uid)
            self.place.bind(self.listener)
        except FileExistsError as error:
            raise NameTakenError(f"the lab's name is taken: {error}") from error
        except OSError as error:
            raise KeeperError(f"no socket can be made at {self.options.socket}: {error}") from error

    def close_listener(self) -> None:
        """Accept no more connections, and release the name."""
        self.listener.close()
        if self.place is not None:
            self.place.leave()
            self.place = None

    def make_hosts(self) -> None:
        """Make the two hosts and the link between them."""
        sshd = find_sshd()
        self.hosts = {name: NetnsHost(name, interface, sshd) for name, interface in HOSTS.items()}
        self.each(NetnsHost.listen)
        self.join(HOSTS, first_index=10)
        self.each(lambda host: host.bring_up(host.interface))
        self.each(NetnsHost.listen)

    def each(self, step: Callable[[NetnsHost], None]) -> None:
        for host in self.hosts.values():
            step(host)

    def join(self, ends: dict[str, str], first_index: int) -> None:
        """Make a veth pair with its ends in the two hosts; ``ends`` has their names."""
        queues = ["numrxqueues", str(self.options.queues), "numtxqueues", str(self.options.queues)]
        # Ends with equal numbers look like one device to the kernel, and get their carrier a second late.
        (dut, tg) = (
            [interface, "index", str(first_index + number), "netns", str(self.hosts[name].process.pid), *queues]
            for number, (name, interface) in enumerate(ends.items())
        )
        argv = ["ip", "link", "add", *dut, "type", "veth", "peer", *tg]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            raise KeeperError(f"no veth pair: {_why(done)}", _remedy(done.stderr))

    def serve(self) -> None:
        """Answer the owner until someone says ``down``, the lease ends, or a host is gone."""
        self.selector.register(self.listener, selectors.EVENT_READ, self.accept)
        for host in self.hosts.values():
            self.selector.register(host.socket, selectors.EVENT_READ, self.stop)
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
        self.close_listener()
        self.each(lambda host: host.socket.close())
        self.each(NetnsHost.wait_end)
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
        if uid not in (0, self.options.uid):
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
            asked = self.clients[connection].request(data)
            answer = None if asked is None else self.act(connection, asked)
        except KeeperError as error:
            answer = error.answer
        if answer is not None:
            self.reply(connection, answer)

    def act(self, connection: socket.socket, asked: Answer) -> Answer | None:
        """Return the answer to a request, or None if it comes later. Raises KeeperError for an invalid request."""
        action = self.actions.get(str(asked.get("do")))
        if action is None:
            raise KeeperError(f"no request is called {asked.get('do')!r}")
        try:
            return action(connection, asked)
        except (LookupError, TypeError, ValueError, ArithmeticError) as error:
            raise KeeperError(f"the request `{asked['do']}` lacks a field, or has a wrong one: {error!r}") from error

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

    def hello(self, _connection: socket.socket, _asked: Answer) -> Answer:
        return {
            "pid": os.getpid(),
            "uid": self.options.uid,
            "since": self.since,
            # The first lease, which it still waits for, counts too: a client that comes before the lab's maker must
            # also hold it.
            "leases": len(self.leases) + (self.lease_until is not None),
            "locked_by": self.lock[1] if self.lock else None,
            "machine_cpus": sorted(os.sched_getaffinity(0)),
            "cpus": sorted(os.sched_getaffinity(0)),
            "queues": self.options.queues,
            "hosts": {name: host.known for name, host in self.hosts.items()},
        }

    def ssh(self, connection: socket.socket, asked: Answer) -> Answer | None:
        host = self.hosts.get(str(asked.get("host")))
        if host is None:
            return {"error": f"this lab has no host {asked.get('host')!r}; it has {' and '.join(HOSTS)}"}
        self.reply(connection, {"ok": True})
        host.hand_over(connection)
        self.forget(connection)
        return None

    def lease(self, connection: socket.socket, _asked: Answer) -> Answer:
        self.lease_until = None
        self.leases.add(connection)
        return {"ok": True}

    def release(self, connection: socket.socket, asked: Answer) -> Answer | None:
        """Release a lease; the last one takes the lab down, and is answered when the lab is gone."""
        self.leases.discard(connection)
        if self.leases:
            return {"kept": True}
        self.down(connection, asked)
        return None

    def take_lock(self, connection: socket.socket, asked: Answer) -> Answer:
        if self.lock and self.lock[0] is not connection and not _closed(self.lock[0]):
            return {"locked_by": self.lock[1]}
        self.lock = (connection, str(asked.get("who", "a run")))
        return {"ok": True}

    def pin(self, _connection: socket.socket, asked: Answer) -> Answer:
        """Give each NAPI thread of an interface a CPU and a real-time priority; only the keeper's namespace shows them.

        Labs of one machine distribute its CPUs in the same way, so an interface of the same name in another lab may be
        placed too.
        """
        threads = _napi_threads(asked["interface"])
        try:
            for place, thread in enumerate(threads):
                os.sched_setaffinity(thread, {asked["cpus"][place % len(asked["cpus"])]})
                os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(asked["fifo"]))
        except OSError as error:
            return {"error": f"the softirq threads of {asked['interface']} cannot be placed: {error.strerror}"}
        return {"pinned": len(threads)}

    def second_link(self, _connection: socket.socket, asked: Answer) -> Answer:
        """Return the ends of the second link by host; none if it was not made, and ``make`` is false."""
        if self.second is None and asked.get("make"):
            self.join(SECOND, first_index=20)
            self.each(lambda host: host.bring_up(SECOND[host.name]))
            self.second = {name: host.heard() for name, host in self.hosts.items()}
        return self.second or {}

    def down(self, connection: socket.socket, _asked: Answer) -> None:
        self.asked_down = connection
        self.going = False


def _napi_threads(interface: str) -> list[int]:
    """Return the kernel threads that serve an interface's receive queues, in the queues' order."""
    found = []
    for comm in Path("/proc").glob("[0-9]*/comm"):
        try:
            name = comm.read_text().strip()
        except OSError:
            continue  # it ended meanwhile
        if name.startswith(f"napi/{interface}-"):
            found.append((int(name.rpartition("-")[2]), int(comm.parent.name)))
    return [thread for _, thread in sorted(found)]


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


def keep(options: argparse.Namespace, say: Callable[[Answer], None]) -> None:
    """Make the lab, report it, and keep it."""
    signal.signal(signal.SIGALRM, _too_late)
    signal.alarm(START_S)
    keeper = Keeper(options)
    try:
        keeper.make()
        signal.alarm(0)
        say({"ready": True})
        keeper.serve()
    except KeeperError as error:
        say(error.answer)
    finally:
        keeper.end()


def _too_late(*_: object) -> None:
    raise KeeperError(f"it was not up after {START_S} s", "the machine is busy: try again when it is less so")


def in_background(work: Callable[[Callable[[Answer], None]], None]) -> None:
    """Do ``work`` in a detached process; return once it has printed its one line, or ended.

    An error before that line is the line: nothing else of the process can be seen.
    """
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        while words := os.read(reader, REQUEST_BYTES):
            os.write(1, words)
        return
    os.close(reader)
    os.setsid()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)

    told = False

    def say(answer: Answer) -> None:
        nonlocal told
        if not told:  # afterwards the pipe is closed, and its number may be a client's
            told = True
            os.write(writer, json.dumps(answer).encode() + b"\n")
            os.close(writer)

    try:
        work(say)
    except Exception as error:
        say({"error": f"{type(error).__name__}: {error}", "remedy": None})
        raise


def main() -> None:
    parser = argparse.ArgumentParser(description="Keep one netns lab (started by `xdplab lab up`).")
    parser.add_argument("--socket", required=True, help="the path of its socket")
    parser.add_argument("--uid", type=int, required=True, help="whose lab it is")
    parser.add_argument("--queues", type=int, default=8)
    parser.add_argument("--lease", action="store_true", help="end with the last lease, or when none comes")
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    in_background(lambda say: keep(options, say))


if __name__ == "__main__":
    main()
