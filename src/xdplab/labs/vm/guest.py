"""PID 1 of a guest: the netns lab's own keeper, with doors that open to the machine outside.

Runs as a script, standard library only. The guest's hosts are the netns lab's two and a third, ``guest``, for what is
the machine's and not a namespace's (sysctl of the JIT, modules). Each has a TCP port on which its sshd answers; QEMU
forwards a port of the outside's loopback to it. A virtio port tells the keeper outside what it must know, and echoes
what it says.
"""

import argparse
import functools
import json
import os
import selectors
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xdplab.labs import netns_host, netns_keeper
else:  # the package itself would bring in all of pandas
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import netns_host
    import netns_keeper

ADDRESS = "10.0.2.15"  # the one QEMU's user network forwards to
INTERFACE = "eth0"
PORT_NAME = "xdplab"
QUEUES = 8
SOFTIRQ_FIFO = 10
"""Priority of the kernel's softirq threads, above the sender's (5) and the AF_XDP application's (6)."""
BUILT, BUILT_OPTIONS = "/mnt/xdplab-native", "trans=virtio,version=9p2000.L,cache=mmap,msize=262144"
ROOT_PATH = netns_host.PATH
STANDARD_STREAMS = {"fd": "fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}


class GuestKeeper(netns_keeper.Keeper):
    """The keeper of the lab in the guest; its `known` goes outside with the first line through the virtio port."""

    def __init__(self, outside: int, ports: dict[str, int]) -> None:
        address = "@xdplab/0/guest"
        super().__init__(argparse.Namespace(address=address, uid=0, queues=QUEUES, lease=False))
        self.outside, self.ports = outside, ports

    def make(self) -> None:
        netns_host.command("umount", "/sys")  # the host mounts its own, which the kernel refuses on top of this one
        share_built()
        self.guest = netns_keeper.NetnsHost("guest", INTERFACE, netns_keeper.find_sshd(), isolated=())
        super().make()  # the three hosts come up beside one another
        self.guest.listen()
        self.guest.connect_link()
        self.guest.listen()
        netns_host.command("ip", "address", "add", f"{ADDRESS}/24", "dev", INTERFACE)
        self.hosts["guest"] = self.guest
        self.each(link_built)

    def serve(self) -> None:
        for name, host in self.hosts.items():
            door = socket.create_server((ADDRESS, self.ports[name]), backlog=16)
            self.selector.register(door, selectors.EVENT_READ, functools.partial(enter, host))
        self.selector.register(self.outside, selectors.EVENT_READ, echo)
        known: dict[str, Any] = {name: self.hello(self.listener, {})[name] for name in ("cpus", "queues", "hosts")}
        os.write(self.outside, json.dumps(known).encode() + b"\n")
        super().serve()


def share_built() -> None:
    """Mount the folder outside in which compiled tools are kept: under TCG a compiler takes a minute."""
    Path(BUILT).mkdir(parents=True, exist_ok=True)
    netns_host.command("mount", "-t", "9p", "-o", BUILT_OPTIONS, "native", BUILT)


def link_built(host: netns_keeper.NetnsHost) -> None:
    """Let the host's own work directory, a memory of its own, show that folder as ``native``."""
    link = f"{netns_host.WORK_DIR}/native"
    netns_host.command("nsenter", "--target", str(host.process.pid), "--mount", "ln", "-s", BUILT, link)


def enter(host: netns_keeper.NetnsHost, door: socket.socket) -> None:
    """Let one connection in: the host's sshd takes it from here."""
    connection, _ = door.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    host.hand_over(connection)
    connection.close()


def echo(outside: int) -> None:
    os.write(outside, os.read(outside, 64))


def open_port() -> int:
    """Open the virtio port of our name; there is no udev that would give it one in /dev."""
    for name in Path("/sys/class/virtio-ports").glob("*/name"):
        if name.read_text().strip() == PORT_NAME:
            return os.open(f"/dev/{name.parent.name}", os.O_RDWR)
    raise RuntimeError(f"no virtio port {PORT_NAME}")


def readable_accounts() -> None:
    """Put files of the guest's own where the machine's may not be read by the user who runs QEMU."""
    for path, root_line in netns_host.ROOT_ACCOUNT.items():
        try:
            Path(path).read_bytes()
        except PermissionError:
            Path(path).unlink()
            Path(path).write_text(root_line + "\n")


def raise_softirqs() -> None:
    """Let packets be taken in while a real-time sender shares the CPU.

    Before kernel 6.5 softirqs wait for their thread once it is awake; at its normal priority a sender at
    SCHED_FIFO 5 starves it, and 99 % of the frames are lost at a full ring (6.1, one CPU).
    """
    for comm in Path("/proc").glob("[0-9]*/comm"):
        if comm.read_text().startswith("ksoftirqd/"):
            os.sched_setscheduler(int(comm.parent.name), os.SCHED_FIFO, os.sched_param(SOFTIRQ_FIFO))


def complete_dev() -> None:
    for name, target in STANDARD_STREAMS.items():
        Path("/dev", name).symlink_to(f"/proc/self/{target}")
    for name in ("shm", "pts"):
        Path("/dev", name).mkdir(exist_ok=True)


def main(ports: dict[str, int]) -> None:
    os.environ["PATH"] = ROOT_PATH
    complete_dev()
    readable_accounts()
    raise_softirqs()
    outside = open_port()
    keeper = GuestKeeper(outside, ports)
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
