"""The measured classic filters: our own, those that tcpdump compiles, and one of system calls; the packets they see."""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
from collections.abc import Mapping, Sequence

from xdplab.errors import PlanError
from xdplab.studies.jit import cbpf as c
from xdplab.studies.jit.cbpf import Op

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


ALL, NOTHING = 262144, 0
"""The result of tcpdump's filters for a matching packet, in bytes; 0 for all others."""

V2, IPV4, IPV6, L2, VLAN = 0x02, 0x10, 0x20, 0x40, 0x80
"""Classes of PTP packets, as linux/ptp_classify.h numbers them; the lowest four bits are the version."""

IP = (c.load(c.HALF, 12), c.equal(ETHER_IPV4, 0, 1), c.ret(ALL), c.ret(NOTHING))
"""The filter of `tcpdump ip`."""

DHCP = (
    c.load(c.HALF, 12),
    c.equal(ETHER_IPV4, 0, 8),
    c.load(c.BYTE, 23),
    c.equal(UDP, 0, 6),
    c.load(c.HALF, 20),
    c.any_bit(0x1FFF, 4, 0),
    c.header_length(14),
    c.load_after_header(c.HALF, 16),
    c.equal(DHCP_CLIENT, 0, 1),
    c.ret(ALL),
    c.ret(NOTHING),
)
"""The filter of a DHCP client: the first fragment of IPv4 UDP to port 68."""


def _classified(flags: int, at: Op) -> tuple[Op, ...]:
    """Return the version that stands at a place of the packet, with the class' flags."""
    return (at, c.alu(0x50, 0x0F), c.alu(0x40, flags), c.ret_a())


def _ptp() -> tuple[Op, ...]:
    """Return a PTP classifier: the class of event messages on Ethernet (tagged or not) and on UDP, 0 of all else."""
    on_ethernet = _classified(L2, c.load(c.BYTE, 15))
    on_vlan = (
        c.load(c.HALF, 16),
        c.equal(ETHER_PTP, 0, 4),
        *_classified(L2 | VLAN, c.load(c.BYTE, 19)),
    )
    on_ipv4 = (
        c.load(c.BYTE, 23),
        c.equal(UDP, 0, 9),
        c.load(c.HALF, 20),
        c.any_bit(0x1FFF, 7, 0),
        c.header_length(14),
        c.load_after_header(c.HALF, 16),
        c.equal(PTP_PORT, 0, 4),
        *_classified(IPV4, c.load_after_header(c.BYTE, 23)),
    )
    on_ipv6 = (
        c.load(c.BYTE, 20),
        c.equal(UDP, 0, 6),
        c.load(c.HALF, 56),
        c.equal(PTP_PORT, 0, 4),
        *_classified(IPV6, c.load(c.BYTE, 63)),
    )
    return _by_ether_type({ETHER_PTP: on_ethernet, ETHER_VLAN: on_vlan, ETHER_IPV4: on_ipv4, ETHER_IPV6: on_ipv6})


def _by_ether_type(parts: Mapping[int, Sequence[Op]]) -> tuple[Op, ...]:
    """Return a filter that goes to the part of a frame's type; each part's failures fall behind its end: `ret 0`."""
    ops = [c.load(c.HALF, 12)]
    for kind, part in parts.items():
        ops += [c.equal(kind, 0, len(part) + 1), *part, c.ret(NOTHING)]
    return (*ops, c.ret(NOTHING))


PTP = _ptp()
PACKET_FILTERS: dict[str, tuple[Op, ...]] = {"ip": IP, "dhcp": DHCP, "ptp": PTP}
"""Filters of packets by name."""

EXPRESSIONS = ("tcp port 22", "host 192.0.2.2 and (udp port 53 or tcp port 80)")
"""What tcpdump compiles where it is installed and no other filter was given."""

EPERM, GETPPID = 1, 110
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
REFUSE = ERRNO | EPERM
ARCH_X86_64 = 0xC000003E
_NR, _ARCH, _FIRST_ARGUMENT = 0, 4, 16
_OTHERS = (*range(61), 228, 231)
"""System calls that the list has before getppid; 228 and 231 are clock_gettime and exit_group."""

LOOKS = (c.load(c.WORD, _FIRST_ARGUMENT), c.ret(ALLOW))
"""The shortest filter of system calls that has to be run, because it looks at an argument."""

CACHED = (c.ret(ALLOW),)
"""From Linux 5.11 on it is not run: the kernel knows which system calls a filter lets through by their number alone."""


def _seccomp(last: int) -> tuple[Op, ...]:
    """Return a list of 64 system calls as sandboxes have it; getppid, the last, with argument ``last`` only."""
    begin = (c.load(c.WORD, _ARCH), c.equal(ARCH_X86_64, 1, 0), c.ret(REFUSE), c.load(c.WORD, _NR))
    jumps = [c.equal(number, len(_OTHERS) - i + 2, 0) for i, number in enumerate(_OTHERS)]
    end = (
        c.equal(GETPPID, 0, 3),
        c.load(c.WORD, _FIRST_ARGUMENT),
        c.equal(last, 0, 1),
        c.ret(ALLOW),
        c.ret(REFUSE),
    )
    return (*begin, *jumps, *end)


GRANTED, REFUSED = 7, 8
SECCOMP_FILTERS: dict[str, tuple[Op, ...]] = {"seccomp": _seccomp(GRANTED)}


def seccomp_data(argument: int) -> bytes:
    """Return getppid(argument) as a filter sees it: struct seccomp_data on x86-64."""
    return struct.pack("<iIQ6Q", GETPPID, ARCH_X86_64, 0, argument, 0, 0, 0, 0, 0)


def errno_of(action: int) -> int:
    """Return the error of a system call after a filter returned ``action``: 0 if the call is allowed."""
    return action & 0xFFFF if action & 0xFFFF0000 == ERRNO else 0


def tcpdump() -> str | None:
    """Return the path of tcpdump, which compiles expressions; None if there is none."""
    return shutil.which("tcpdump", path="/usr/bin:/usr/sbin:/sbin:/usr/local/sbin")


def compiled(expression: str) -> tuple[Op, ...]:
    """Return tcpdump's filter for an expression on Ethernet. Raises PlanError with its message if it refuses."""
    command = tcpdump()
    if command is None:
        raise PlanError(f"no tcpdump to compile {expression!r}", remedy="install tcpdump")
    done = subprocess.run(
        [command, "-y", "EN10MB", "-ddd", "--", expression], capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no word"]
        raise PlanError(f"{expression!r}: {lines[-1]}", remedy="`man pcap-filter` explains expressions")
    return c.parse_ddd(done.stdout)
