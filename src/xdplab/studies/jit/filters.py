"""The measured classic filters: our own, those that tcpdump compiles, and one of system calls; the packets they see.

Classic BPF: filters as instructions, and a model that says what they return.

Meaning of the instructions: Documentation/networking/filter.rst of the Linux kernel, after McCanne and Jacobson, "The
BSD Packet Filter" (1993).
"""

from __future__ import annotations

import operator
import socket
import struct
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from xdplab.errors import PlanError, ProgramError
from xdplab.labs.tools import path_of

LOAD, LOAD_X, ALU, JUMP, RETURN, MISC = 0, 1, 4, 5, 6, 7
WORD, HALF, BYTE = 0x00, 0x08, 0x10
IMM, ABS, IND, MEM, LEN, MSH = (mode << 5 for mode in range(6))
SHORT_OF_DATA = 0
"""The kernel's result of a filter that reads beyond the end: the packet is refused."""

_M32 = (1 << 32) - 1
_BYTES = {WORD: 4, HALF: 2, BYTE: 1}
_ALU: dict[int, Callable[[int, int], int]] = {
    0x00: operator.add,
    0x10: operator.sub,
    0x20: operator.mul,
    0x40: operator.or_,
    0x50: operator.and_,
    0x60: operator.lshift,
    0x70: operator.rshift,
    0xA0: operator.xor,
}
_COMPARE: dict[int, Callable[[int, int], bool]] = {
    0x10: operator.eq,
    0x20: operator.gt,
    0x30: operator.ge,
    0x40: lambda a, b: bool(a & b),
}


class Op(NamedTuple):
    """One instruction; ``jt`` and ``jf`` are how many to leave out."""

    code: int
    jt: int
    jf: int
    k: int


def encode(filter_: Iterable[Op]) -> bytes:
    """Return the bytes the kernel takes, eight an instruction."""
    return b"".join(struct.pack("<HBBI", *op) for op in filter_)


def load(size: int, offset: int) -> Op:
    return Op(LOAD | ABS | size, 0, 0, offset)


def load_after_header(size: int, offset: int) -> Op:
    return Op(LOAD | IND | size, 0, 0, offset)


def header_length(offset: int) -> Op:
    """X becomes the length of the IPv4 header that begins at ``offset``."""
    return Op(LOAD_X | MSH | BYTE, 0, 0, offset)


def alu(operation: int, k: int) -> Op:
    return Op(operation | ALU, 0, 0, k)


def equal(k: int, jt: int, jf: int) -> Op:
    return Op(0x10 | JUMP, jt, jf, k)


def any_bit(k: int, jt: int, jf: int) -> Op:
    return Op(0x40 | JUMP, jt, jf, k)


def ret(k: int) -> Op:
    return Op(RETURN, 0, 0, k)


def ret_a() -> Op:
    return Op(0x10 | RETURN, 0, 0, 0)


class _OutOfDataError(Exception):
    pass


@dataclass
class _State:
    """``little``: words of the data are the machine's own (seccomp) and not the network's."""

    data: bytes
    little: bool
    a: int = 0
    x: int = 0

    def read(self, offset: int, size: int) -> int:
        if offset + size > len(self.data):
            raise _OutOfDataError
        return int.from_bytes(self.data[offset : offset + size], "little" if self.little else "big")


def run(filter_: Sequence[Op], data: bytes, *, little: bool = False) -> int:
    """Return what the filter returns for a packet (or for a struct seccomp_data, with ``little``).

    Raises ProgramError for an instruction that the model does not know, or a filter without an end.
    """
    state, at = _State(data, little), 0
    scratch = [0] * 16
    try:
        while at < len(filter_):
            op = filter_[at]
            if op.code & 7 == RETURN:
                return state.a if op.code & 0x18 == 0x10 else op.k
            at += 1 + _step(op, state, scratch)
    except _OutOfDataError:
        return SHORT_OF_DATA
    raise ProgramError("the classic filter has no end")


def _step(op: Op, state: _State, scratch: list[int]) -> int:
    """Execute one instruction; returns how many to leave out."""
    kind = op.code & 7
    if kind == JUMP:
        return _jump(op, state)
    if kind in (LOAD, LOAD_X):
        value = _loaded(op, state, scratch)
        state.a, state.x = (value, state.x) if kind == LOAD else (state.a, value)
    elif kind in (2, 3):
        scratch[op.k] = state.a if kind == 2 else state.x
    elif kind == ALU:
        state.a = _computed(op, state)
    elif op.code & 0x80:
        state.a = state.x
    else:
        state.x = state.a
    return 0


def _loaded(op: Op, state: _State, scratch: list[int]) -> int:
    mode, size = op.code & 0xE0, _BYTES[op.code & 0x18]
    sources: dict[int, Callable[[], int]] = {
        IMM: lambda: op.k,
        ABS: lambda: state.read(op.k, size),
        IND: lambda: state.read(op.k + state.x, size),
        MEM: lambda: scratch[op.k],
        LEN: lambda: len(state.data),
        MSH: lambda: 4 * (state.read(op.k, 1) & 15),
    }
    return sources[mode]()


def _computed(op: Op, state: _State) -> int:
    operation, operand = op.code & 0xF0, state.x if op.code & 8 else op.k
    if operation == 0x80:
        return -state.a & _M32
    if operation in (0x30, 0x90):
        if not operand:
            raise _OutOfDataError  # the kernel returns 0
        return state.a // operand if operation == 0x30 else state.a % operand
    if operation not in _ALU:
        raise ProgramError(f"the model does not know the classic instruction {op.code:#04x}")
    return _ALU[operation](state.a, operand) & _M32


def _jump(op: Op, state: _State) -> int:
    if op.code & 0xF0 == 0:
        return op.k
    holds = _COMPARE[op.code & 0xF0](state.a, state.x if op.code & 8 else op.k)
    return op.jt if holds else op.jf


def parse_ddd(text: str) -> tuple[Op, ...]:
    """Return the filter that ``tcpdump -ddd`` printed: a count, then four decimal numbers per line.

    Raises ProgramError if the text is not a filter.
    """
    try:
        count, *rows = [[int(word) for word in line.split()] for line in text.splitlines()]
        filter_ = tuple(Op(*row) for row in rows)
    except (ValueError, TypeError):
        raise ProgramError(f"tcpdump -ddd printed no filter: {text[:60]!r}") from None
    if count != [len(filter_)] or not filter_:
        raise ProgramError(f"tcpdump -ddd says {count} instructions and prints {len(filter_)}")
    return filter_


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

IP = (load(HALF, 12), equal(ETHER_IPV4, 0, 1), ret(ALL), ret(NOTHING))
"""The filter of `tcpdump ip`."""

DHCP = (
    load(HALF, 12),
    equal(ETHER_IPV4, 0, 8),
    load(BYTE, 23),
    equal(UDP, 0, 6),
    load(HALF, 20),
    any_bit(0x1FFF, 4, 0),
    header_length(14),
    load_after_header(HALF, 16),
    equal(DHCP_CLIENT, 0, 1),
    ret(ALL),
    ret(NOTHING),
)
"""The filter of a DHCP client: the first fragment of IPv4 UDP to port 68."""


def _classified(flags: int, at: Op) -> tuple[Op, ...]:
    """Return the version that stands at a place of the packet, with the class' flags."""
    return (at, alu(0x50, 0x0F), alu(0x40, flags), ret_a())


def _ptp() -> tuple[Op, ...]:
    """Return a PTP classifier: the class of event messages on Ethernet (tagged or not) and on UDP, 0 of all else."""
    on_ethernet = _classified(L2, load(BYTE, 15))
    on_vlan = (
        load(HALF, 16),
        equal(ETHER_PTP, 0, 4),
        *_classified(L2 | VLAN, load(BYTE, 19)),
    )
    on_ipv4 = (
        load(BYTE, 23),
        equal(UDP, 0, 9),
        load(HALF, 20),
        any_bit(0x1FFF, 7, 0),
        header_length(14),
        load_after_header(HALF, 16),
        equal(PTP_PORT, 0, 4),
        *_classified(IPV4, load_after_header(BYTE, 23)),
    )
    on_ipv6 = (
        load(BYTE, 20),
        equal(UDP, 0, 6),
        load(HALF, 56),
        equal(PTP_PORT, 0, 4),
        *_classified(IPV6, load(BYTE, 63)),
    )
    return _by_ether_type({ETHER_PTP: on_ethernet, ETHER_VLAN: on_vlan, ETHER_IPV4: on_ipv4, ETHER_IPV6: on_ipv6})


def _by_ether_type(parts: Mapping[int, Sequence[Op]]) -> tuple[Op, ...]:
    """Return a filter that goes to the part of a frame's type; each part's failures fall behind its end: `ret 0`."""
    ops = [load(HALF, 12)]
    for kind, part in parts.items():
        ops += [equal(kind, 0, len(part) + 1), *part, ret(NOTHING)]
    return (*ops, ret(NOTHING))


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

LOOKS = (load(WORD, _FIRST_ARGUMENT), ret(ALLOW))
"""The shortest filter of system calls that has to be run, because it looks at an argument."""

CACHED = (ret(ALLOW),)
"""From Linux 5.11 on it is not run: the kernel knows which system calls a filter lets through by their number alone."""


def _seccomp(last: int) -> tuple[Op, ...]:
    """Return a list of 64 system calls as sandboxes have it; getppid, the last, with argument ``last`` only."""
    begin = (load(WORD, _ARCH), equal(ARCH_X86_64, 1, 0), ret(REFUSE), load(WORD, _NR))
    jumps = [equal(number, len(_OTHERS) - i + 2, 0) for i, number in enumerate(_OTHERS)]
    end = (
        equal(GETPPID, 0, 3),
        load(WORD, _FIRST_ARGUMENT),
        equal(last, 0, 1),
        ret(ALLOW),
        ret(REFUSE),
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
    return path_of("tcpdump")


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
    return parse_ddd(done.stdout)
