"""The netns lab in a guest: made at the first request, because making it takes longer than booting a guest.

Runs in the guest as a script, standard library only. Standard output is the port to the keeper outside: one JSON line
describes the hosts to it, and every line from it is echoed. Each host has a TCP port at which its sshd answers; QEMU
forwards a port of the outside's loopback to it.
"""

import contextlib
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
    from xdplab.labs.keeper import KeeperError
    from xdplab.labs.netns import host as netns_host
    from xdplab.labs.netns import keeper as netns_keeper
else:  # importing the package itself would load pandas
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from keeper import KeeperError
    from netns import host as netns_host
    from netns import keeper as netns_keeper

ADDRESS = "10.0.2.15"
"""The guest's, the one that QEMU's user network forwards to."""
INTERFACE = "eth0"
SOCKET = "/run/xdplab/0/guest/netns-guest"
"""The keeper's own socket, which is not used in the guest."""
SOFTIRQ_FIFO = 10
"""Priority of the kernel's softirq threads, above the sender's (5) and the AF_XDP application's (6)."""

OUTSIDE_IN, OUTSIDE_OUT = 0, 1


class LinkKeeper(netns_keeper.NetnsKeeper):
    """The keeper of the lab in the guest."""

    def __init__(self, ports: dict[str, int]) -> None:
        super().__init__(SOCKET, 0, lease=False)
        self.ports = ports

    def make(self) -> None:
        """Make the netns lab's two hosts, and accept connections to them."""
        super().make()
        self.each(link_built)
        for name, host in self.hosts.items():
            door = socket.create_server((ADDRESS, self.ports[name]), backlog=16)
            self.selector.register(door, selectors.EVENT_READ, functools.partial(enter, host))

    def serve(self) -> None:
        self.selector.register(OUTSIDE_IN, selectors.EVENT_READ, self.answer)
        signal.signal(signal.SIGCHLD, netns_host.reap)
        tell(hosts={name: host.facts for name, host in self.hosts.items()})
        super().serve()

    def answer(self, outside: int) -> None:
        os.write(OUTSIDE_OUT, os.read(outside, 64))


def link_built(host: netns_keeper.NetnsHost) -> None:
    """Make the folder of compiled tools visible as ``native`` in the host's own work directory, a tmpfs."""
    link = f"{netns_host.WORK_DIR}/native"
    netns_host.command("nsenter", "--target", str(host.process.pid), "--mount", "ln", "-s", netns_host.BUILT, link)


def enter(host: netns_keeper.NetnsHost, door: socket.socket) -> None:
    """Accept one connection and pass it to the host's sshd."""
    connection, _ = door.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    host.hand_over(connection)
    connection.close()


def tell(**facts: object) -> None:
    """Print one line for the keeper outside."""
    os.write(OUTSIDE_OUT, json.dumps(facts).encode() + b"\n")


def raise_softirqs() -> None:
    """Make sure that packets are received while a real-time sender shares the CPU.

    Before kernel 6.5 softirqs wait for their thread once it is awake; at its normal priority a sender at
    SCHED_FIFO 5 starves it, and 99 % of the frames are lost at a full ring (6.1, one CPU).
    """
    for comm in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a process may end meanwhile
            if comm.read_text().startswith("ksoftirqd/"):
                os.sched_setscheduler(int(comm.parent.name), os.SCHED_FIFO, os.sched_param(SOFTIRQ_FIFO))


def main(ports: dict[str, int], kind: type[LinkKeeper] = LinkKeeper) -> None:
    os.environ["PATH"] = netns_host.PATH
    raise_softirqs()
    keeper = kind(ports)
    try:
        keeper.make()
        keeper.serve()
    except (KeeperError, OSError, RuntimeError) as error:
        sys.stderr.write(f"xdplab: guest: {error}\n")  # the console is the only output left
        tell(error=str(error))
    sys.exit(1)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
