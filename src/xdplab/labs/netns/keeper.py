"""The keeper of one netns lab: two hosts and the link between them.

Runs as root and as a script, standard library only. Its hosts are namespaces of processes. It answers all requests of a
keeper, and ``ssh`` (from then on the connection is that host's sshd), ``pin`` (an interface's softirq threads to CPUs),
``second_link`` (its ends; ``make`` it if need be).
"""

import argparse
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xdplab.labs import keeper as lab_keeper
    from xdplab.labs import rights
    from xdplab.labs.keeper import Answer, KeeperError
else:  # importing the package itself would load pandas
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import keeper as lab_keeper
    import rights
    from keeper import Answer, KeeperError

HOSTS = {"dut": "vd0", "tg": "vg0"}
SECOND = {"dut": "vd1", "tg": "vg1"}
"""The ends of the second link, which is made when a run first asks for it."""
ISOLATED = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"),
)
"""Runs a host in its own namespaces, which end with the keeper, however it ends."""
START_S = 20
QUEUES = 8


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
        self.facts: Answer = {}

    def listen(self) -> None:
        """Read the next line that PID 1 prints about itself, and remember it."""
        self.facts |= self.heard()

    def heard(self) -> Answer:
        """Return the next line that PID 1 prints. Raises KeeperError if it is an error."""
        data = self.socket.recv(1 << 16)
        answer: Answer = json.loads(data) if data else {"error": self._last_words()}
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
    if message := done.stderr.strip():
        return message
    command = f"`{' '.join(done.args[:3])} …`"
    if done.returncode < 0:
        return f"{command} was killed by signal {-done.returncode} ({signal.strsignal(-done.returncode)})"
    return f"{command} exited with {done.returncode} and said nothing"


def _remedy(message: str) -> str | None:
    """Return the remedy for known failures."""
    remedies = {
        "unshare failed": "this root may not make namespaces: start a container with --privileged",
        "Unknown device type": "the kernel lacks veth: `modprobe veth`, or a kernel with CONFIG_VETH",
        "mount -t bpf": "the kernel lacks BPF: one with CONFIG_BPF_SYSCALL is needed",
        "not found": "run `xdplab doctor`: it names the package",
    }
    return next((remedy for sign, remedy in remedies.items() if sign in message), None)


class NetnsKeeper(lab_keeper.Keeper):
    """Keeps two namespaces."""

    def __init__(self, path: str, uid: int, *, lease: bool) -> None:
        super().__init__(path, uid, lease=lease)
        self.hosts: dict[str, NetnsHost] = {}
        self.second: Answer | None = None
        self.actions |= {"ssh": self.ssh, "pin": self.pin, "second_link": self.second_link}

    def build(self) -> None:
        """Make the two hosts and the link between them."""
        if lacking := rights.missing_rights(rights.FOR_LAB):
            raise KeeperError(lacking, rights.WITHOUT)
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
        queues = ["numrxqueues", str(QUEUES), "numtxqueues", str(QUEUES)]
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
        for host in self.hosts.values():
            self.selector.register(host.socket, selectors.EVENT_READ, self.stop)
        super().serve()

    def remove(self) -> None:
        self.each(lambda host: host.socket.close())
        self.each(NetnsHost.wait_end)

    def hello(self, connection: socket.socket, request: Answer) -> Answer:
        hosts = {name: host.facts for name, host in self.hosts.items()}
        return super().hello(connection, request) | {"queues": QUEUES, "hosts": hosts}

    def ssh(self, connection: socket.socket, request: Answer) -> Answer | None:
        host = self.hosts.get(str(request.get("host")))
        if host is None:
            return {"error": f"this lab has no host {request.get('host')!r}; it has {' and '.join(HOSTS)}"}
        self.reply(connection, {"ok": True})
        host.hand_over(connection)
        self.forget(connection)
        return None

    def pin(self, _connection: socket.socket, request: Answer) -> Answer:
        """Give each NAPI thread of an interface a CPU and a real-time priority; only the keeper's namespace shows them.

        Labs of one machine distribute its CPUs in the same way, so an interface of the same name in another lab may be
        placed too.
        """
        threads = _napi_threads(request["interface"])
        try:
            for place, thread in enumerate(threads):
                os.sched_setaffinity(thread, {request["cpus"][place % len(request["cpus"])]})
                os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(request["fifo"]))
        except OSError as error:
            return {"error": f"the softirq threads of {request['interface']} cannot be placed: {error.strerror}"}
        return {"pinned": len(threads)}

    def second_link(self, _connection: socket.socket, request: Answer) -> Answer:
        """Return the ends of the second link by host; none if it was not made, and ``make`` is false."""
        if self.second is None and request.get("make"):
            self.join(SECOND, first_index=20)
            self.each(lambda host: host.bring_up(SECOND[host.name]))
            self.second = {name: host.heard() for name, host in self.hosts.items()}
        return self.second or {}


def _napi_threads(interface: str) -> list[int]:
    """Return the kernel threads that serve an interface's receive queues, in the queues' order."""
    threads = []
    for comm in Path("/proc").glob("[0-9]*/comm"):
        try:
            name = comm.read_text().strip()
        except OSError:
            continue  # it ended meanwhile
        if name.startswith(f"napi/{interface}-"):
            threads.append((int(name.rpartition("-")[2]), int(comm.parent.name)))
    return [thread for _, thread in sorted(threads)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Keep one netns lab (started by `xdplab lab up`).")
    parser.add_argument("--socket", required=True, help="the path of its socket")
    parser.add_argument("--uid", type=int, required=True, help="whose lab it is")
    parser.add_argument("--lease", action="store_true", help="end with the last lease, or when none comes")
    options = parser.parse_args()
    lab_keeper.keep(lambda: NetnsKeeper(options.socket, options.uid, lease=options.lease), within_s=START_S)
