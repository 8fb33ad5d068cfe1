"""Two namespaces joined by an 8-queue veth pair, deleted whatever happens, and hosts that run inside them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from xdplab.deploy.queues import Endpoint
from xdplab.hosts.base import Result
from xdplab.hosts.local import LocalHost, LocalProcess

SENDER = """
import socket, sys
interface, frames, length = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
link.bind((interface, 0))
frame = bytes.fromhex("020000000002" "020000000001" "88b5") + bytes(length - 14)
for _ in range(frames):
    link.send(frame)
"""


class NamespaceHost(LocalHost):
    """This machine, seen from inside one network namespace."""

    def __init__(self, namespace: str) -> None:
        super().__init__(namespace)
        self._enter = ("ip", "netns", "exec", namespace)

    def run(self, argv: Sequence[str], *, deadline_s: float = 30.0, stdin: bytes = b"", check: bool = True) -> Result:
        return super().run([*self._enter, *argv], deadline_s=deadline_s, stdin=stdin, check=check)

    def start(self, argv: Sequence[str], *, deadline_s: float) -> LocalProcess:
        return super().start([*self._enter, *argv], deadline_s=deadline_s)


class VethLab:
    """DUT with vd0 and TG with vg0, 8 queues each way, both up."""

    def __init__(self, tag: str) -> None:
        self.dut = Endpoint(NamespaceHost(f"{tag}d"), "vd0")
        self.tg = Endpoint(NamespaceHost(f"{tag}g"), "vg0")

    def up(self) -> None:
        for end in (self.dut, self.tg):
            _ip("netns", "add", end.host.name)
        self.link()

    def link(self) -> None:
        """Make the pair, or make it anew."""
        queues = ("numrxqueues", "8", "numtxqueues", "8")
        peer = ("peer", "name", "vg0", "netns", self.tg.host.name, *queues)
        _ip("link", "add", "vd0", "netns", self.dut.host.name, *queues, "type", "veth", *peer)
        for end in (self.dut, self.tg):
            # Without it the kernel's own router solicitations are counted among the frames.
            end.host.run(["sysctl", "-qw", f"net.ipv6.conf.{end.interface}.disable_ipv6=1"])
            end.host.run(["ip", "link", "set", "dev", end.interface, "up"])
            end.host.run(["ethtool", "-K", end.interface, "gro", "on"])

    def attach(self, end: Endpoint, program: Path) -> None:
        """Attach without an owner, as a loader that died would have left it."""
        words = ("xdpdrv", "object", str(program), "section", "xdp")
        end.host.run(["ip", "link", "set", "dev", end.interface, *words])

    def send(self, frames: int, *, length: int = 60) -> None:
        """Send frames from the TG through a packet socket, at most some 300 000 a second."""
        self.tg.host.run([sys.executable, "-c", SENDER, self.tg.interface, str(frames), str(length)])

    def link_packets(self, end: Endpoint) -> tuple[int, int]:
        """Return the interface's own counts, received and transmitted."""
        shown = end.host.run(["ip", "-s", "-j", "link", "show", "dev", end.interface]).text
        stats = json.loads(shown)[0]["stats64"]
        return stats["rx"]["packets"], stats["tx"]["packets"]

    def down(self) -> None:
        for end in (self.dut, self.tg):
            subprocess.run(["ip", "netns", "del", end.host.name], check=False, capture_output=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
