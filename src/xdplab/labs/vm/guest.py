"""PID 1 of a guest: its host ``guest``, and once somebody asks for it the netns lab with its own keeper.

Runs as a script, standard library only. ``guest`` is the initial namespaces, for what is the machine's (sysctl of the
JIT, modules) and for whatever needs no link; the two hosts of the netns lab take longer to make than the guest to boot.
Each host has a TCP port on which its sshd answers; QEMU forwards a port of the outside's loopback to it. On a virtio
port the guest first says what it has, then answers line by line: ``link`` by the hosts it has made, anything else by
itself.
"""

import argparse
import functools
import json
import os
import selectors
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xdplab.labs import guest_inside, netns_host, netns_keeper
else:  # the package itself would bring in all of pandas
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import guest_inside
    import netns_host
    import netns_keeper

ADDRESS = "10.0.2.15"  # the one QEMU's user network forwards to
INTERFACE = "eth0"
PORT_NAME = "xdplab"
QUEUES = 8
SOFTIRQ_FIFO = 10
"""Priority of the kernel's softirq threads, above the sender's (5) and the AF_XDP application's (6)."""
BUILT_OPTIONS = "trans=virtio,version=9p2000.L,cache=mmap,msize=262144"


class OwnHost(netns_keeper.NetnsHost):
    """The guest itself as a host: this process starts its sshds."""

    def __init__(self, name: str) -> None:
        self.name, self.interface = name, INTERFACE
        self.socket, self._never = socket.socketpair()  # a namespace's would close with it
        self.sshd = netns_keeper.find_sshd()
        self.known = dict(guest_inside.become_host(name))

    def hand_over(self, connection: socket.socket) -> None:
        connection.setblocking(True)
        netns_host.start_sshd(self.sshd, connection.fileno())


class GuestKeeper(netns_keeper.Keeper):
    """The keeper of the lab in the guest."""

    def __init__(self, outside: int, ports: dict[str, int]) -> None:
        address = "@xdplab/0/guest"
        super().__init__(argparse.Namespace(address=address, uid=0, queues=QUEUES, lease=False))
        self.outside, self.ports = outside, ports

    def make(self) -> None:
        """Make what every guest has; the link waits until it is asked for."""
        netns_host.command("umount", "/sys")  # the host mounts its own, which the kernel refuses on top of this one
        share_built()
        self.hosts = {"guest": OwnHost("guest")}
        open_interface()
        self.take_name()
        self.listener.listen()

    def make_link(self) -> None:
        """Make the netns lab's two hosts, and let in who comes to them."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # or the exit codes of what makes them would be reaped away
        before = self.hosts
        self.make_hosts()
        self.each(link_built)
        for name, host in self.hosts.items():
            self.let_in(name, host)
            self.selector.register(host.socket, selectors.EVENT_READ, self.stop)
        self.hosts = before | self.hosts
        self.reap()

    def let_in(self, name: str, host: netns_keeper.NetnsHost) -> None:
        door = socket.create_server((ADDRESS, self.ports[name]), backlog=16)
        self.selector.register(door, selectors.EVENT_READ, functools.partial(enter, host))

    def serve(self) -> None:
        for name, host in self.hosts.items():
            self.let_in(name, host)
        self.selector.register(self.outside, selectors.EVENT_READ, self.answer)
        self.reap()
        self.tell("cpus", "queues", "hosts")
        super().serve()

    def answer(self, outside: int) -> None:
        for line in os.read(outside, 64).splitlines():
            if line == b"link":
                if len(self.hosts) == 1:
                    self.make_link()
                self.tell("hosts")
            else:
                os.write(outside, line + b"\n")

    def tell(self, *names: str) -> None:
        known = self.hello(self.listener, {})
        os.write(self.outside, json.dumps({name: known[name] for name in names}).encode() + b"\n")

    def reap(self) -> None:
        """Be what PID 1 is to a process without a parent, and to our sshds."""
        signal.signal(signal.SIGCHLD, netns_host.reap)
        netns_host.reap(signal.SIGCHLD, None)


def open_interface() -> None:
    """Give the guest the address that QEMU's user network forwards to."""
    netns_host.command("ip", "link", "set", INTERFACE, "up")
    netns_host.command("ip", "address", "add", f"{ADDRESS}/24", "dev", INTERFACE)


def share_built() -> None:
    """Mount the folder outside in which compiled tools are kept: under TCG a compiler takes a minute."""
    Path(guest_inside.BUILT).mkdir(parents=True, exist_ok=True)
    netns_host.command("mount", "-t", "9p", "-o", BUILT_OPTIONS, "native", guest_inside.BUILT)


def link_built(host: netns_keeper.NetnsHost) -> None:
    """Let the host's own work directory, a memory of its own, show that folder as ``native``."""
    link = f"{netns_host.WORK_DIR}/native"
    netns_host.command("nsenter", "--target", str(host.process.pid), "--mount", "ln", "-s", guest_inside.BUILT, link)


def enter(host: netns_keeper.NetnsHost, door: socket.socket) -> None:
    """Let one connection in: the host's sshd takes it from here."""
    connection, _ = door.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    host.hand_over(connection)
    connection.close()


def open_port() -> int:
    """Open the virtio port of our name; there is no udev that would give it one in /dev."""
    for name in Path("/sys/class/virtio-ports").glob("*/name"):
        if name.read_text().strip() == PORT_NAME:
            return os.open(f"/dev/{name.parent.name}", os.O_RDWR)
    raise RuntimeError(f"no virtio port {PORT_NAME}")


def raise_softirqs() -> None:
    """Let packets be taken in while a real-time sender shares the CPU.

    Before kernel 6.5 softirqs wait for their thread once it is awake; at its normal priority a sender at
    SCHED_FIFO 5 starves it, and 99 % of the frames are lost at a full ring (6.1, one CPU).
    """
    for comm in Path("/proc").glob("[0-9]*/comm"):
        if comm.read_text().startswith("ksoftirqd/"):
            os.sched_setscheduler(int(comm.parent.name), os.SCHED_FIFO, os.sched_param(SOFTIRQ_FIFO))


def main(ports: dict[str, int], kind: type[GuestKeeper] = GuestKeeper) -> None:
    os.environ["PATH"] = netns_host.PATH
    guest_inside.prepare()
    raise_softirqs()
    outside = open_port()
    keeper = kind(outside, ports)
    try:
        keeper.make()
        keeper.serve()
        words = "a host of the lab inside has ended"
    except (netns_keeper.KeeperError, OSError, RuntimeError) as error:
        words = str(error)
    print(f"xdplab: guest: {words}", flush=True)  # noqa: T201  the console is all that is left
    os.write(outside, json.dumps({"error": words}).encode() + b"\n")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
