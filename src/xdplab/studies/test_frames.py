"""The frames that a point sends, as bytes: a user's program is test-run with the frames of its trial."""

from __future__ import annotations

import ipaddress
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import lcm

from xdplab.deploy.xdp import PortFrame
from xdplab.lazy import lazy
from xdplab.plan import Point
from xdplab.plan.offered import FCS_BYTES, zipf_exponent

pcap = lazy("xdplab.formats.pcap")  # few plans have one

MOST_FRAMES = 32768
"""How many frames are test-run: all of most traces and flows, in a second."""

LEAST_BYTES = 60  # Ethernet's 64 less the FCS


@dataclass(frozen=True)
class TestFrames:
    """The frames of a test run. A trial sends ``sent`` different ones; ``seed`` drew these if not all are here."""

    frames: tuple[PortFrame, ...]
    sent: int
    seed: int | None = None

    __test__ = False  # no test class, whatever pytest thinks of its name


def frames_of(point: Point, *, src_mac: str, dst_mac: str, seed: int) -> TestFrames:
    """Return the frames of ``point``'s test run, of its pcap or the generator's flows and sizes, by each of its queues.

    A generated program treats all frames of a size alike. A user's program may not, not even by any period: so it gets
    all of them, or a random sample.

    Raises FormatError, OSError for a pcap that cannot be read.
    """
    if point.program.file is None:
        return TestFrames(tuple(map(PortFrame, point.frame_sizes)), len(point.frame_sizes))
    frame, frames = frame_maker(point, src_mac=src_mac, dst_mac=dst_mac)
    chosen, drawn_by = choose(frames * point.queues, seed)
    if point.skew != "uniform" and point.program.frames is None:
        chosen, drawn_by = _drawn(point, frames, seed), seed
    return TestFrames(tuple(PortFrame(frame(n % frames), n // frames) for n in chosen), frames * point.queues, drawn_by)


def frame_maker(point: Point, *, src_mac: str, dst_mac: str) -> tuple[Callable[[int], bytes], int]:
    """Return what gives the frame of a number, without FCS, and how many different ones there are.

    Raises FormatError, OSError for a pcap that cannot be read.
    """
    macs = bytes.fromhex((dst_mac + src_mac).replace(":", ""))
    if point.program.frames is None:
        return lambda number: _generated(point, number, macs), lcm(point.flows, len(point.frame_sizes))
    given = pcap.frames_in(point.program.frames)
    return lambda number: given[number].ljust(LEAST_BYTES, b"\0"), len(given)


def choose(count: int, seed: int) -> tuple[Sequence[int], int | None]:
    """Return all numbers below ``count`` and None, or MOST_FRAMES of them, drawn at random by the seed returned."""
    if count <= MOST_FRAMES:
        return range(count), None
    return sorted(random.Random(seed).sample(range(count), MOST_FRAMES)), seed


def _drawn(point: Point, frames: int, seed: int) -> list[int]:
    """Return numbers of frames whose flows have the shares that a trial gives them."""
    draws, exponent = random.Random(seed), zipf_exponent(point.skew) or 0.0
    shares = list(accumulate(float(rank) ** -exponent for rank in range(1, point.flows + 1)))
    flows = draws.choices(range(point.flows), cum_weights=shares, k=min(MOST_FRAMES, frames * point.queues))
    return [flow + point.flows * draws.randrange(frames * point.queues // point.flows) for flow in flows]


def _generated(point: Point, number: int, macs: bytes) -> bytes:
    sizes = point.frame_sizes
    return _udp_frame(point, number % point.flows, sizes[number % len(sizes)], macs)


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
