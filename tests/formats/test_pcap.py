"""A pcap is read completely or refused with a message; frame sizes and flows come from the file."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xdplab.errors import FormatError
from xdplab.formats.pcap import flow_of, l2_bytes, parse_pcap


def udp(size: int, *, source: int = 1, port: int = 7, tags: bytes = b"", fragment: int = 0) -> bytes:
    ip = (
        bytes([0x45, 0])
        + struct.pack(">HHHBBH", size - 14, 0, fragment, 64, 17, 0)
        + bytes([10, 0, 0, source, 10, 0, 1, 1])
    )
    head = b"\x02" * 12 + tags + b"\x08\x00" + ip + struct.pack(">HHHH", port, 53, size - 34, 0)
    return head + bytes(size - len(head))


def pcap(frames: list[bytes], order: str = "<") -> bytes:
    header = struct.pack(f"{order}IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    return header + b"".join(struct.pack(f"{order}IIII", 0, 0, len(f), len(f)) + f for f in frames)


@pytest.mark.parametrize("order", ["<", ">"])
def test_frames_come_back_as_they_were(order: str) -> None:
    frames = [udp(60), udp(1042, port=8)]
    assert parse_pcap(pcap(frames, order)) == frames
    assert l2_bytes(frames) == [64, 1046]


def test_flows_are_told_by_addresses_protocol_and_ports() -> None:
    frames = [udp(60), udp(90), udp(60, source=2), udp(60, port=8), udp(60, tags=b"\x81\x00\x00\x05")]
    assert len({flow_of(frame) for frame in frames}) == 3, "neither a length nor a VLAN tag makes another flow"
    assert flow_of(udp(60, fragment=100)) != flow_of(udp(60)), "a later fragment has no ports"
    six = b"\x02" * 12 + b"\x86\xdd" + bytes([0x60, 0, 0, 0, 0, 8, 17, 64]) + bytes(32)
    assert flow_of(six + b"\x00\x01\x00\x35") != flow_of(six + b"\x00\x02\x00\x35")
    assert flow_of(b"\xff" * 6 + b"\x02" * 6 + b"\x88\xb5" + bytes(86)) == (b"\xff" * 6 + b"\x02" * 6 + b"\x88\xb5",)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x0a\x0d\x0d\x0a" + bytes(40), "not a classic pcap"),
        (pcap([]), "holds no frame"),
        (pcap([udp(60)])[:-1], "frame 1 was not captured whole"),
        (pcap([udp(60)]) + b"\x00", "ends within frame 2"),
        (pcap([udp(60)])[:20] + struct.pack("<I", 105) + pcap([udp(60)])[24:], "not Ethernet"),
    ],
)
def test_what_cannot_be_read_is_said(data: bytes, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        parse_pcap(data)


@given(st.binary(max_size=120), st.binary(max_size=80))
def test_any_bytes_are_frames_or_a_format_error(data: bytes, frame: bytes) -> None:
    flow_of(frame)
    for text in (data, pcap([])[:24] + data):
        with suppress(FormatError):
            assert parse_pcap(text)
