"""Packets that filters look at."""

from __future__ import annotations

import socket
import struct

ETHER_IPV4, ETHER_ARP, ETHER_IPV6, ETHER_PTP, ETHER_VLAN = 0x0800, 0x0806, 0x86DD, 0x88F7, 0x8100
TCP, UDP = 6, 17
PTP_PORT, DHCP_CLIENT, DHCP_SERVER = 319, 68, 67
_PTP_V2_SYNC = bytes([0x00, 0x02]) + bytes(42)


def ethernet(kind: int, payload: bytes, *, vlan: bool = False) -> bytes:
    """Return a frame without FCS, padded to its least length."""
    tag = struct.pack(">HH", ETHER_VLAN, 7) if vlan else b""
    frame = bytes.fromhex("02000000000102000000000a") + tag + struct.pack(">H", kind) + payload
    return frame.ljust(60, b"\0")


def ipv4(protocol: int, payload: bytes, source: str = "192.0.2.1", target: str = "192.0.2.2") -> bytes:
    header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(payload), 1, 0x4000, 64, protocol, 0)
    return header + socket.inet_aton(source) + socket.inet_aton(target) + payload


def ipv6(protocol: int, payload: bytes) -> bytes:
    addresses = socket.inet_pton(socket.AF_INET6, "2001:db8::1") + socket.inet_pton(socket.AF_INET6, "2001:db8::2")
    return struct.pack(">IHBB", 6 << 28, len(payload), protocol, 64) + addresses + payload


def udp(source: int, target: int, payload: bytes = b"") -> bytes:
    return struct.pack(">HHHH", source, target, 8 + len(payload), 0) + payload


def tcp(source: int, target: int, flags: int = 0x02) -> bytes:
    return struct.pack(">HHIIBBHHH", source, target, 1, 0, 5 << 4, flags, 1000, 0, 0)


FRAMES: dict[str, bytes] = {
    "arp": ethernet(ETHER_ARP, bytes.fromhex("0001080006040001") + bytes(20)),
    "ipv4-tcp": ethernet(ETHER_IPV4, ipv4(TCP, tcp(40000, 22))),
    "ipv4-udp": ethernet(ETHER_IPV4, ipv4(UDP, udp(40000, 53, bytes(18)))),
    "ipv4-dhcp": ethernet(ETHER_IPV4, ipv4(UDP, udp(DHCP_SERVER, DHCP_CLIENT, bytes(240)))),
    "ipv4-ptp": ethernet(ETHER_IPV4, ipv4(UDP, udp(PTP_PORT, PTP_PORT, _PTP_V2_SYNC))),
    "ipv6-udp": ethernet(ETHER_IPV6, ipv6(UDP, udp(40000, 53, bytes(18)))),
    "ipv6-ptp": ethernet(ETHER_IPV6, ipv6(UDP, udp(PTP_PORT, PTP_PORT, _PTP_V2_SYNC))),
    "ptp": ethernet(ETHER_PTP, _PTP_V2_SYNC),
    "vlan-ptp": ethernet(ETHER_PTP, _PTP_V2_SYNC, vlan=True),
}
"""Frames by name, as a filter gets them: from the Ethernet header on."""


def on_loopback(payload_bytes: int) -> bytes:
    """Return a UDP datagram as a packet socket sees it on the loopback device."""
    inner = ipv4(UDP, udp(40000, 40001, bytes(payload_bytes)), "127.0.0.1", "127.0.0.1")
    return bytes(12) + struct.pack(">H", ETHER_IPV4) + inner


TCP_ON_LOOPBACK = bytes(12) + struct.pack(">H", ETHER_IPV4) + ipv4(TCP, tcp(40000, 40001, 0x10), *(["127.0.0.1"] * 2))
"""A segment of a TCP connection as a packet socket sees it on the loopback device."""
