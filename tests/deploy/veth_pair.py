"""Two namespaces joined by an 8-queue veth pair, deleted whatever happens."""

import json
import subprocess
import sys
from pathlib import Path

from tests.doubles.hosts import in_namespace

from xdplab.deploy.queues import Endpoint

# Sends frames of several flows (IPv4 addresses of the test range), then prints the frames that return within a second.
SENDER = """
import socket, sys, time
interface, frames, length, flows, echo = sys.argv[1], *map(int, sys.argv[2:])
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3) if echo else 0)
link.bind((interface, 3 if echo else 0))
header = bytes.fromhex("020000000002" "020000000001" "0800" "4500") + (length - 14).to_bytes(2, "big")
header += bytes.fromhex("0000000040110000" "c6120001" "c61300")
for number in range(frames):
    link.send((header + bytes([number % flows])).ljust(length, b"\\0"))
deadline = time.monotonic() + 1
seen = 0
while echo and seen < frames and (left := deadline - time.monotonic()) > 0:
    link.settimeout(left)
    try:
        frame, address = link.recvfrom(2048)
    except TimeoutError:
        break
    if address[2] != socket.PACKET_OUTGOING:
        seen += 1
        print(frame.hex())
"""


class VethLab:
    """A DUT with vd0 and a TG with vg0, 8 queues per direction, both up."""

    def __init__(self, tag: str) -> None:
        self.dut = Endpoint(in_namespace(f"{tag}d"), "vd0")
        self.tg = Endpoint(in_namespace(f"{tag}g"), "vg0")

    def up(self) -> None:
        for end in (self.dut, self.tg):
            _ip("netns", "add", end.host.name)
        self.link()

    def link(self) -> None:
        """Make the pair, or make it again."""
        queues = ("numrxqueues", "8", "numtxqueues", "8")
        peer = ("peer", "name", "vg0", "netns", self.tg.host.name, *queues)
        _ip("link", "add", "vd0", "netns", self.dut.host.name, *queues, "type", "veth", *peer)
        for end in (self.dut, self.tg):
            # Without it the kernel's own router solicitations are counted among the frames.
            end.host.run(["sysctl", "-qw", f"net.ipv6.conf.{end.interface}.disable_ipv6=1"])
            end.host.run(["ip", "link", "set", "dev", end.interface, "up"])
            end.host.run(["ethtool", "-K", end.interface, "gro", "on"])

    def attach(self, end: Endpoint, program: Path) -> None:
        """Attach a program without an owner, as a loader that died would leave it."""
        words = ("xdpdrv", "object", str(program), "section", "xdp")
        end.host.run(["ip", "link", "set", "dev", end.interface, *words])

    def send(self, frames: int, *, length: int = 60, flows: int = 1) -> None:
        """Send frames from the TG through a packet socket, which spreads flows over its queues."""
        self._packet_socket(frames, length, flows, 0)

    def echo(self, frames: int, *, length: int = 60, flows: int = 1) -> list[bytes]:
        """Send frames and return those that come back."""
        return [bytes.fromhex(line) for line in self._packet_socket(frames, length, flows, 1).splitlines()]

    def _packet_socket(self, *numbers: int) -> str:
        words = [sys.executable, "-c", SENDER, self.tg.interface, *map(str, numbers)]
        return self.tg.host.run(words).text

    def link_packets(self, end: Endpoint) -> tuple[int, int]:
        """Return the interface's counts of received and transmitted packets."""
        shown = end.host.run(["ip", "-s", "-j", "link", "show", "dev", end.interface]).text
        stats = json.loads(shown)[0]["stats64"]
        return stats["rx"]["packets"], stats["tx"]["packets"]

    def down(self) -> None:
        for end in (self.dut, self.tg):
            subprocess.run(["ip", "netns", "del", end.host.name], check=False, capture_output=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
