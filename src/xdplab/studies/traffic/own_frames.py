"""The frames that a point sends, as bytes: a user's program is test-run with the frames of its trial."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from xdplab.formats.pcap import FCS_BYTES, parse_pcap
from xdplab.plan import Point

T = TypeVar("T")
MOST_FRAMES = 16
"""How many frames are test-run: enough for the cases of a program, few enough for a fraction of a second."""

LEAST_BYTES = 60  # Ethernet's 64 less the FCS


def frames_of(point: Point, *, src_mac: str, dst_mac: str) -> list[bytes]:
    """Return up to 16 frames of ``point`` without FCS, evenly chosen: of its pcap, or of the generator's flows.

    Of frames of several sizes (IMIX), it is a whole cycle, whatever its length.

    Raises FormatError, OSError for a pcap that cannot be read.
    """
    if point.program.frames is not None:
        chosen = evenly(parse_pcap(Path(point.program.frames).read_bytes()))
        return [frame.ljust(LEAST_BYTES, b"\0") for frame in chosen]
    macs = bytes.fromhex((dst_mac + src_mac).replace(":", ""))
    sizes, flows = point.frame_sizes, evenly(range(point.flows))
    count = len(flows) if len(sizes) == 1 else len(sizes)
    return [_udp_frame(point, flows[n % len(flows)], sizes[n % len(sizes)], macs) for n in range(count)]


def evenly(items: Sequence[T]) -> list[T]:
    """Return at most MOST_FRAMES of ``items``, the first among them, in order."""
    count = min(len(items), MOST_FRAMES)
    return [items[number * len(items) // count] for number in range(count)]


def vlan_of(point: Point) -> int | None:
    """Return the id of the frames' VLAN tag; None if they have none."""
    return None if point.vlan == "none" else int(point.vlan)


def _udp_frame(point: Point, flow: int, frame_bytes: int, macs: bytes) -> bytes:
    """The frame of flow f: addresses at ``src_ip`` + f × ``src_ip_stride``, and so on, as generators make it."""
    tag = b"" if vlan_of(point) is None else struct.pack(">HH", 0x8100, vlan_of(point))
    length = frame_bytes - FCS_BYTES - len(macs) - len(tag) - 2
    source = _address(point.src_ip, point.src_ip_stride, flow)
    target = _address(point.dst_ip, point.dst_ip_stride, flow)
    rest = _ipv6(point, length, source, target) if point.ip_version == 6 else _ipv4(point, length, source, target)
    return macs + tag + rest


def _ipv4(point: Point, length: int, source: bytes, target: bytes) -> bytes:
    header = bytearray(struct.pack(">BBHHHBBH4s4s", 0x45, 0, length, 0, 0, 64, 17, 0, source, target))
    header[10:12] = struct.pack(">H", _checksum(bytes(header)))
    return b"\x08\x00" + header + _udp(point, length - len(header))


def _ipv6(point: Point, length: int, source: bytes, target: bytes) -> bytes:
    """The addresses are in the prefix for benchmarks (RFC 5180), and the UDP checksum is not optional (RFC 8200)."""
    size = length - 40
    addresses = b"".join(bytes.fromhex("20010002") + bytes(8) + address for address in (source, target))
    udp = bytearray(_udp(point, size))
    covered = addresses + struct.pack(">I3xB", size, 17) + udp
    udp[6:8] = struct.pack(">H", _checksum(covered + bytes(len(covered) % 2)) or 0xFFFF)
    return b"\x86\xdd" + struct.pack(">IHBB", 6 << 28, size, 17, 64) + addresses + udp


def _udp(point: Point, length: int) -> bytes:
    return struct.pack(">HHHH", point.src_port, point.dst_port, length, 0).ljust(length, b"\0")


def _address(first: str, stride: str, flow: int) -> bytes:
    value = int(ipaddress.IPv4Address(first)) + flow * int(ipaddress.IPv4Address(stride))
    return (value & 0xFFFFFFFF).to_bytes(4, "big")


def _checksum(header: bytes) -> int:
    """RFC 1071."""
    total: int = sum(struct.unpack(f">{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
