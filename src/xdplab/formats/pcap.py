"""Pcap and pcapng files, also compressed: the frames of a user's own traffic."""

from __future__ import annotations

import itertools
import struct
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from xdplab.errors import FormatError
from xdplab.lazy import lazy
from xdplab.plan.offered import FCS_BYTES

pcapng = lazy("xdplab.formats.pcapng")  # few files are compressed, or pcapng

SENDABLE_BYTES = (14, 2048)
"""The sizes that xdpgen sends, without FCS: an Ethernet header, and a buffer of its ring (native/xdpgen)."""

_ORDERS = {b"\xa1\xb2\xc3\xd4": ">", b"\xa1\xb2\x3c\x4d": ">", b"\xd4\xc3\xb2\xa1": "<", b"\x4d\x3c\xb2\xa1": "<"}
_IN_NS = (b"\xa1\xb2\x3c\x4d", b"\x4d\x3c\xb2\xa1")
_HEADER_BYTES, _RECORD_BYTES = 24, 16
_PCAPNG = b"\x0a\x0d\x0d\x0a"
_ETHERNET = 1
_HAS_FCS, _FCS_SHIFT = 1 << 26, 28
"""Bits of the link type, by the pcap draft: whether the FCS's length is told, and that length in units of 2 bytes."""

_VLAN = (b"\x81\x00", b"\x88\xa8")
_IPV4, _IPV6 = b"\x08\x00", b"\x86\xdd"
_WITH_PORTS = (6, 17, 132)  # TCP, UDP, SCTP


def frames_in(path: str | Path) -> _Frames:
    """Return the frames of a file as `parse_pcap` does. Raises FormatError, OSError."""
    status = Path(path).stat()
    return _frames_in(str(path), status.st_mtime_ns, status.st_size)


def times_in(path: str | Path) -> Sequence[int]:
    """Return when each frame of a file was captured, in ns.

    Raises FormatError, with the frame's number, unless the stamps have gaps and never go back; OSError.
    """
    data, times = frames_in(path).data, array("q")
    for number, (at, _, _, _, clock) in enumerate(_captured(data), 1):
        if clock is None:
            raise FormatError(f"frame {number} has no time stamp (a simple packet block)")
        order, first, second, divisor, offset = clock
        high, low = struct.unpack_from(order, data, at - 16)
        ns = offset + (high * first + low * second) // divisor
        if abs(ns) >> 62:
            raise FormatError(f"frame {number} has a time stamp that cannot be")
        if times and ns < times[-1]:
            raise FormatError(f"frame {number} was captured {(times[-1] - ns) / 1e3:g} µs before frame {number - 1}")
        times.append(ns)
    if times[0] == times[-1]:
        raise FormatError("all frames have one time stamp: there are no gaps")
    return times


def write_plain(path: str | Path, plain: Path, *, timed: bool) -> None:
    """Write the frames of any file as xdpgen reads them, with their gaps if ``timed``. Raises FormatError, OSError."""
    pcapng.write_pcap(frames_in(path), plain, times_in(path) if timed else itertools.repeat(0))


@lru_cache(maxsize=8)
def _frames_in(path: str, *_of: int) -> _Frames:
    return parse_pcap(Path(path).read_bytes())


class _Frames(Sequence[bytes]):
    """Frames by their places in a file: a million of them as objects would take 100 MB more."""

    def __init__(self, data: bytes) -> None:
        self.data, self._places, self._sizes = data, array("Q"), array("I")

    def add(self, place: int, size: int) -> None:
        self._places.append(place)
        self._sizes.append(size)

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[bytes]:
        data = self.data
        return (data[place : place + size] for place, size in zip(self._places, self._sizes, strict=True))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        place = self._places[index]
        return self.data[place : place + self._sizes[index]]


def is_plain(path: Path) -> bool:
    """Tell a classic pcap from pcapng and from a compressed file."""
    with path.open("rb") as file:
        return file.read(4) in _ORDERS


def parse_pcap(data: bytes) -> _Frames:
    """Return the frames of a pcap or pcapng, plain or compressed by gzip or zstd, without FCS.

    Raises FormatError, with the frame's number, unless the file has whole Ethernet frames that can be sent. xdpgen's
    reader has the same rules for a classic pcap (native/xdpgen/pcap.c).
    """
    if data[:4] not in _ORDERS:
        data = pcapng.unpacked(data)
    frames = _Frames(data)
    least, most = SENDABLE_BYTES
    for at, captured, length, fcs, _ in _captured(data):
        if at + captured > len(data):
            raise FormatError(f"ends within frame {len(frames) + 1}")
        if captured < length:
            raise FormatError(f"frame {len(frames) + 1} was not captured whole: {captured} of {length} bytes")
        if not least <= length - fcs <= most:
            raise FormatError(f"frame {len(frames) + 1} has {length - fcs} bytes; possible are {least} to {most}")
        frames.add(at, length - fcs)
    if not frames:
        raise FormatError("holds no frame")
    return frames


Clock = tuple[str, int, int, int, int]
"""How two numbers 16 bytes before a frame are a time: their struct, ns of the first and of the second times a divisor,
the divisor, and what is added in ns."""
Captured = tuple[int, int, int, int, Clock | None]
"""Of a frame: where it begins, how many bytes the file has of it, its length, that of its FCS, and its time's clock."""


def _captured(data: bytes) -> Iterator[Captured]:
    frames: Iterator[Captured] = (pcapng.blocks if data[:4] == _PCAPNG else _records)(data)
    return frames


def _records(data: bytes) -> Iterator[Captured]:
    order = _ORDERS.get(data[:4])
    if order is None or len(data) < _HEADER_BYTES:
        raise FormatError("neither pcap nor pcapng, nor one of them compressed by gzip or zstd")
    fcs = _fcs_bytes(struct.unpack_from(f"{order}I", data, 20)[0])
    clock = (f"{order}II", 10**9, 1 if data[:4] in _IN_NS else 1000, 1, 0)
    sizes, at = struct.Struct(f"{order}II").unpack_from, _HEADER_BYTES
    for number in itertools.count(1):
        if at == len(data):
            return
        if at + _RECORD_BYTES > len(data):
            raise FormatError(f"ends within frame {number}")
        captured, length = sizes(data, at + 8)
        yield at + _RECORD_BYTES, captured, length, fcs, clock
        at += _RECORD_BYTES + captured


def _fcs_bytes(link_type: int) -> int:
    """Return how many bytes of FCS end each frame. Raises FormatError for another link type than Ethernet."""
    bits = (link_type >> _FCS_SHIFT << _FCS_SHIFT) | _HAS_FCS | 0xFFFF
    if link_type & 0xFFFF != _ETHERNET or link_type & ~bits:
        raise FormatError(f"its frames are not Ethernet (link type {link_type:#x})")
    if link_type >> _FCS_SHIFT and not link_type & _HAS_FCS:
        raise FormatError(f"its link type {link_type:#x} does not say whether its frames have an FCS")
    return 2 * (link_type >> _FCS_SHIFT)


def flow_of(frame: bytes) -> bytes:
    """Return the key of a flow: IP addresses, protocol and ports, else the Ethernet header."""
    kind, at = _protocol(frame)
    if kind == _IPV4 and len(frame) >= at + 20:
        length, protocol = 4 * (frame[at] & 15), frame[at + 9]
        first = not (frame[at + 6] & 0x1F or frame[at + 7])  # only the first fragment has the ports
        ports = _ports(frame, at + length, protocol) if first else b""
        return b"4%c%b%b" % (protocol, frame[at + 12 : at + 20], ports)
    if kind == _IPV6 and len(frame) >= at + 40:
        return b"6%c%b%b" % (frame[at + 6], frame[at + 8 : at + 40], _ports(frame, at + 40, frame[at + 6]))
    return b"-%b" % frame[:at]


def _protocol(frame: bytes) -> tuple[bytes, int]:
    """Return the EtherType behind all VLAN tags, and where its header begins."""
    at = 12
    while frame[at : at + 2] in _VLAN and len(frame) >= at + 6:
        at += 4
    return frame[at : at + 2], at + 2


def _ports(frame: bytes, at: int, protocol: int) -> bytes:
    return frame[at : at + 4] if protocol in _WITH_PORTS else b""


def l2_bytes(frames: Sequence[bytes]) -> list[int]:
    """Return each frame's size on the wire, FCS included; shorter ones are padded to Ethernet's 64 bytes."""
    return [max(64, len(frame) + FCS_BYTES) for frame in frames]
