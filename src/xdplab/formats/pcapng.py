"""Frames of pcapng files, and of compressed ones: both become what a classic pcap says."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import pyarrow

from xdplab.errors import FormatError

_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_PART_BYTES = 1 << 20
_SECTION = b"\x0a\x0d\x0d\x0a"
_INTERFACE, _SIMPLE, _PACKET = 1, 3, 6
_RESOLUTION, _FCS_LENGTH, _OFFSET = 9, 13, 14
"""Types of pcapng's blocks; options of an interface: its stamps' unit, the length of its FCS, seconds to add."""

Clock = tuple[str, int, int, int, int]  # `pcap.Clock`

_ETHERNET = 1


def unpacked(data: bytes) -> bytes:
    """Return the content of a file that may be compressed. Raises FormatError."""
    kind = next((kind for magic, kind in _COMPRESSED.items() if data.startswith(magic)), None)
    if kind is None:
        return data
    try:
        with pyarrow.input_stream(pyarrow.py_buffer(data), compression=kind) as stream:
            whole = io.BytesIO()
            while part := stream.read(_PART_BYTES):
                whole.write(part)
            return whole.getvalue()
    except OSError as error:
        raise FormatError(f"cannot be unpacked ({kind}): {error}") from None


def write_pcap(frames: Iterable[bytes], path: Path, times_ns: Iterable[int]) -> None:
    """Write a classic pcap, uncompressed, which xdpgen reads; its times begin with 0."""
    times = iter(times_ns)
    first = next(times)
    with path.open("wb") as file:
        file.write(struct.pack("<4sHHiIII", b"\x4d\x3c\xb2\xa1", 2, 4, 0, 0, 0x40000, _ETHERNET))
        record = struct.Struct("<IIII").pack
        for frame, ns in zip(frames, chain([first], times), strict=False):
            file.write(record(*divmod(ns - first, 10**9), len(frame), len(frame)) + frame)


def blocks(data: bytes) -> Iterator[tuple[int, int, int, int, Clock | None]]:
    """Yield of each frame what `pcap.Captured` says.

    Each section has its byte order and its interfaces (draft-ietf-opsawg-pcapng). Raises FormatError.
    """
    order, at = "", 0
    interfaces: list[tuple[int, int, Clock]] = []
    while at < len(data):
        if data[at : at + 4] == _SECTION:
            order, interfaces = (">" if data[at + 8 : at + 12] == b"\x1a\x2b\x3c\x4d" else "<"), []
        if at + 12 > len(data):
            raise FormatError("ends within a block")
        kind, size = struct.unpack_from(f"{order}II", data, at)
        if size < 12 or size % 4 or at + size > len(data):
            raise FormatError(f"ends within a block, or has one of {size} bytes")
        if kind == _INTERFACE and size >= 20:
            interfaces.append(_interface(data[at + 8 : at + size - 4], order))
        elif kind == _PACKET and size >= 32:
            which, _, _, captured, length = struct.unpack_from(f"{order}5I", data, at + 8)
            _, fcs, clock = _of_interface(interfaces, which)
            yield at + 28, _within(captured, size - 32), length, fcs, clock
        elif kind == _SIMPLE and size >= 16:
            length = struct.unpack_from(f"{order}I", data, at + 8)[0]
            limit, fcs, _ = _of_interface(interfaces, 0)
            yield at + 12, _within(min(length, limit or length), size - 16), length, fcs, None
        at += size


def _interface(body: bytes, order: str) -> tuple[int, int, Clock]:
    """Return the longest frame that was captured whole, 0: any, the length of an FCS, and the clock of its frames."""
    link_type, limit = struct.unpack_from(f"{order}HxxI", body)
    if link_type != _ETHERNET:
        raise FormatError(f"its frames are not Ethernet (link type {link_type:#x})")
    at, fcs, offset_s, in_second = 8, 0, 0, 10**6
    while at + 4 <= len(body):
        option, length = struct.unpack_from(f"{order}HH", body, at)
        if option == _FCS_LENGTH and length == 1 and at + 4 < len(body):
            fcs = body[at + 4] if body[at + 4] < 8 else body[at + 4] // 8  # writers count bytes, the draft bits
        elif option == _RESOLUTION and length == 1 and at + 4 < len(body):
            in_second = (2 if body[at + 4] >> 7 else 10) ** (body[at + 4] & 127)
        elif option == _OFFSET and length == 8 and at + 12 <= len(body):
            offset_s = struct.unpack_from(f"{order}q", body, at + 4)[0]
        at += 4 + (length + 3) // 4 * 4
    return limit, fcs, (f"{order}II", 10**9 << 32, 10**9, in_second, offset_s * 10**9)


def _of_interface(interfaces: Sequence[tuple[int, int, Clock]], which: int) -> tuple[int, int, Clock]:
    if which >= len(interfaces):
        raise FormatError(f"a frame is of interface {which}, which the file does not describe")
    return interfaces[which]


def _within(captured: int, room: int) -> int:
    if captured > room:
        raise FormatError(f"a block has room for {room} bytes of a frame, and says that it has {captured}")
    return captured
