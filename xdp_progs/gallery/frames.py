"""The DNS queries that dns.bpf.c is measured with, and the key of a listed name: `python frames.py dns.pcap`."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

LISTED = "ads.example.net"
FREE = [f"host-{number}.example.org" for number in range(48)]
SOURCE, TARGET = bytes([198, 18, 0, 1]), bytes([198, 19, 0, 1])
MACS = bytes.fromhex("020000000002020000000001")


def wire_name(name: str) -> bytes:
    """Return a name as DNS writes it: each label behind its length, and the root's 0 (RFC 1035, 3.1)."""
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def key_of(name: str) -> int:
    """Return FNV-1a, 64 bits, of the name in small letters without the root: what dns.bpf.c looks up."""
    found = 0xCBF29CE484222325
    for byte in wire_name(name.lower())[:-1]:
        found = (found ^ byte) * 0x100000001B3 % (1 << 64)
    return found


def query(name: str, number: int, *, flags: int = 0x0100, port: int = 53) -> bytes:
    """Return the frame of a question for a name's address."""
    message = struct.pack(">6H", number, flags, 1, 0, 0, 0) + wire_name(name) + struct.pack(">2H", 1, 1)
    udp = struct.pack(">4H", 1024 + number % 64, port, 8 + len(message), 0) + message
    header = bytearray(struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, SOURCE, TARGET))
    total = sum(struct.unpack(">10H", header))
    header[10:12] = struct.pack(">H", ~(total % 0xFFFF) & 0xFFFF)
    return (MACS + b"\x08\x00" + header + udp).ljust(60, b"\0")


def queries() -> list[bytes]:
    """Return 64 queries, of which every fourth asks for the listed name, in letters of either size."""
    names = [(LISTED, LISTED.upper())[i // 4 % 2] if i % 4 == 0 else FREE[i * 3 // 4 % len(FREE)] for i in range(64)]
    return [query(name, number) for number, name in enumerate(names)]


def pcap(frames: list[bytes]) -> bytes:
    """Return a classic pcap of Ethernet frames."""
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    return head + b"".join(struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame for frame in frames)


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(pcap(queries()))
    sys.stdout.write(f"{LISTED}: key {' '.join(map(str, key_of(LISTED).to_bytes(8, 'little')))}\n")
