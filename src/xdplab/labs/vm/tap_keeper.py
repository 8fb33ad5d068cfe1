"""The keeper of a lab whose TG is a namespace of this machine and whose DUT is a guest, with a tap between them.

Runs as root and as a script, standard library only. The tap is made in the TG's namespace and lives as long as QEMU
holds its queues; QEMU and the namespace die with this process, however it ends.
"""

import ctypes
import fcntl
import os
import selectors
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xdplab.labs.guests import keeper as guest_keeper
    from xdplab.labs.keeper import Answer, KeeperError
    from xdplab.labs.netns import keeper as netns_keeper
    from xdplab.labs.vm import keeper
else:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from guests import keeper as guest_keeper
    from keeper import Answer, KeeperError
    from netns import keeper as netns_keeper
    from vm import keeper

TG, INTERFACE = "tg", "vg0"
RING = 128
"""Frames that the tap buffers per queue: an emulated guest must finish them soon after a burst."""
CLONE_NEWNET = 0x40000000
TUN = "/dev/net/tun"
TUNSETIFF = 0x400454CA
TAP, MULTI_QUEUE, NO_PI = 0x0002, 0x0100, 0x1000
NEEDS_ROOT = "as root: it makes a namespace and a tap on this machine"


class TapKeeper(keeper.VmKeeper):
    """Keeps a namespace and a guest."""

    tg: netns_keeper.NetnsHost | None = None

    def start(self) -> keeper.Qemu:
        self.tg = netns_keeper.NetnsHost(TG, INTERFACE, netns_keeper.find_sshd())
        self.actions["ssh"] = self.ssh
        self.tg.listen()
        try:
            self.queues = tap_queues(self.tg.process.pid, self.wanted["guest"]["taps"])
        except (OSError, subprocess.CalledProcessError) as error:
            raise KeeperError(f"no tap can be made: {error}", NEEDS_ROOT) from error
        qemu = self.set_going()
        self.tg.bring_up(self.tg.interface)
        self.tg.listen()
        return qemu

    def run(self, state: socket.socket | None = None) -> keeper.Qemu:
        return keeper.Qemu(self.wanted, state, tap=self.queues)

    def reach(self) -> None:
        super().reach()
        assert self.tg is not None
        for descriptor in self.queues:
            os.close(descriptor)
        self.facts["hosts"][TG] = self.tg.facts
        self.facts["tg_cpus"] = sorted(os.sched_getaffinity(0))

    def serve(self) -> None:
        assert self.tg is not None
        self.selector.register(self.tg.socket, selectors.EVENT_READ, self.stop)
        super().serve()

    def remove(self) -> None:
        super().remove()
        if self.tg is not None:
            self.tg.socket.close()
            self.tg.wait_end()

    def ssh(self, connection: socket.socket, request: Answer) -> Answer | None:
        if request.get("host") != TG:
            return {"error": f"this lab has no host {request.get('host')!r} with a socket; it has {TG}"}
        assert self.tg is not None
        self.reply(connection, {"ok": True})
        self.tg.hand_over(connection)
        self.forget(connection)
        return None


def tap_queues(holder: int, count: int) -> list[int]:
    """Make a tap with this number of queues in the network namespace of a process; return a descriptor of each
    queue."""
    with Path("/proc/self/ns/net").open() as ours, Path(f"/proc/{holder}/ns/net").open() as theirs:
        enter(theirs.fileno())
        try:
            queues = [open_queue() for _ in range(count)]
            subprocess.run(["ip", "link", "set", INTERFACE, "txqueuelen", str(RING)], check=True)
            return queues
        finally:
            enter(ours.fileno())


def enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def open_queue() -> int:
    descriptor = os.open(TUN, os.O_RDWR | os.O_CLOEXEC)
    request = struct.pack("16sH22x", INTERFACE.encode(), TAP | MULTI_QUEUE | NO_PI)
    fcntl.ioctl(descriptor, TUNSETIFF, request)
    return descriptor


if __name__ == "__main__":
    guest_keeper.main(TapKeeper)
