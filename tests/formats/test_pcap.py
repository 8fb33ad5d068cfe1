"""A pcap is read completely or refused with a message; frame sizes and flows come from the file."""

import gzip
import struct
import subprocess
from contextlib import suppress
from itertools import repeat
from pathlib import Path

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xdplab.errors import FormatError
from xdplab.formats.pcap import flow_of, frames_in, is_plain, l2_bytes, parse_pcap, times_in, write_plain
from xdplab.formats.pcapng import write_pcap


def udp(size: int, *, source: int = 1, port: int = 7, tags: bytes = b"", fragment: int = 0) -> bytes:
    ip = (
        bytes([0x45, 0])
        + struct.pack(">HHHBBH", size - 14, 0, fragment, 64, 17, 0)
        + bytes([10, 0, 0, source, 10, 0, 1, 1])
    )
    head = b"\x02" * 12 + tags + b"\x08\x00" + ip + struct.pack(">HHHH", port, 53, size - 34, 0)
    return head + bytes(size - len(head))


def pcap(frames: list[bytes], order: str = "<", *, link_type: int = 1, lacks: int = 0) -> bytes:
    """Return a pcap whose records say that ``lacks`` bytes of each frame are not in it; negative: that it has more."""
    header = struct.pack(f"{order}IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, link_type)
    return header + b"".join(struct.pack(f"{order}IIII", 0, 0, len(f), len(f) + lacks) + f for f in frames)


@pytest.mark.parametrize("order", ["<", ">"])
def test_frames_come_back_as_they_were(order: str) -> None:
    frames = [udp(60), udp(1042, port=8)]
    read = parse_pcap(pcap(frames, order))
    assert list(read) == [read[0], read[-1]] == read[:] == frames
    assert l2_bytes([*frames, bytes(59), bytes(61)]) == [64, 1046, 64, 65]


@pytest.mark.parametrize(("size", "beyond"), [(14, 13), (2048, 2049)])
def test_a_frame_has_a_size_that_can_be_sent(size: int, beyond: int) -> None:
    assert list(parse_pcap(pcap([bytes(size)]))) == [bytes(size)]
    with pytest.raises(FormatError, match=f"frame 2 has {beyond} bytes; possible are 14 to 2048"):
        parse_pcap(pcap([bytes(size), bytes(beyond)]))


def test_flows_are_told_by_addresses_protocol_and_ports() -> None:
    frames = [udp(60), udp(90), udp(60, source=2), udp(60, port=8), udp(60, tags=b"\x81\x00\x00\x05")]
    assert len({flow_of(frame) for frame in frames}) == 3, "neither a length nor a VLAN tag makes another flow"
    assert flow_of(udp(60, fragment=100)) != flow_of(udp(60)), "a later fragment has no ports"
    for fragment in (1, 0x100):
        assert flow_of(udp(60, fragment=fragment)) == flow_of(udp(60, port=8, fragment=fragment))
    assert flow_of(udp(60, fragment=0x2000)) == flow_of(udp(60)), "the first one has"
    ip = b"\x0a\0\0\1\x0a\0\1\1"
    assert [flow_of(udp(60)), flow_of(udp(60, fragment=1))] == [b"4\x11" + ip + b"\0\7\0\x35", b"4\x11" + ip]
    tagged = udp(60, tags=b"\x81\x00\x00\x05\x88\xa8\x00\x06")
    assert flow_of(tagged) == flow_of(udp(60)), "behind two tags"
    assert flow_of(udp(60)[:33]) == b"-" + udp(60)[:14], "a header that is cut"
    six = b"\x02" * 12 + b"\x86\xdd" + bytes([0x60, 0, 0, 0, 0, 8, 17, 64]) + bytes(32)
    assert flow_of(six + b"\x00\x01\x00\x35") != flow_of(six + b"\x00\x02\x00\x35")
    ethernet = b"\xff" * 6 + b"\x02" * 6 + b"\x88\xb5"
    assert flow_of(ethernet + bytes(86)) == b"-" + ethernet


def pcapng(frames: list[bytes], order: str = "<", *, link_type: int = 1, lacks: int = 0, fcs: bytes = b"") -> bytes:
    """Return a section with an interface, a block that nobody knows, and a packet block for each frame."""

    def block(kind: int, body: bytes) -> bytes:
        body += bytes(-len(body) % 4)
        return struct.pack(f"{order}II", kind, len(body) + 12) + body + struct.pack(f"{order}I", len(body) + 12)

    section = block(0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1))
    length_of_fcs = struct.pack(f"{order}HH", 13, 1) + fcs + bytes(3) if fcs else b""
    interface = block(1, struct.pack(f"{order}HHI", link_type, 0, 0) + length_of_fcs)
    packets = (block(6, struct.pack(f"{order}5I", 0, 0, 0, len(f), len(f) + lacks) + f) for f in frames)
    return section + interface + block(0xBAD, b"what") + b"".join(packets)


def simple(frame: bytes, limit: int) -> bytes:
    """Return a pcapng of a simple packet block."""
    head = pcapng([])
    at = head.index(struct.pack("<HHI", 1, 0, 0))
    head = head[: at + 4] + struct.pack("<I", limit) + head[at + 8 :]
    body = struct.pack("<I", len(frame)) + frame[: limit or None]
    body += bytes(-len(body) % 4)
    return head + struct.pack("<II", 3, len(body) + 12) + body + struct.pack("<I", len(body) + 12)


def zstd(data: bytes) -> bytes:
    return bytes(pyarrow.compress(data, codec="zstd", asbytes=True))


CLASSIC = (b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\xc3\xd4")
ETHERNET_FCS = 1 | 1 << 26 | 2 << 28
READ = {
    "as it is": (pcap([udp(60)]), [udp(60)]),
    "with FCS": (pcap([udp(60) + b"FCS!"], link_type=ETHERNET_FCS), [udp(60)]),
    "without FCS, told so": (pcap([udp(60)], link_type=1 | 1 << 26), [udp(60)]),
    "padded by the card": (pcap([udp(60) + b"pad"], lacks=-3), [udp(60)]),
    "with FCS, padded": (pcap([udp(60) + b"FCS!pad"], link_type=ETHERNET_FCS, lacks=-3), [udp(60)]),
    "pcapng": (pcapng([udp(60), udp(61)]), [udp(60), udp(61)]),
    "pcapng, big-endian": (pcapng([udp(60)], ">"), [udp(60)]),
    "pcapng, two sections": (pcapng([udp(60)]) + pcapng([udp(62)], ">"), [udp(60), udp(62)]),
    "pcapng, FCS in bytes": (pcapng([udp(60) + b"FCS!"], fcs=b"\x04"), [udp(60)]),
    "pcapng, FCS in bits": (pcapng([udp(60) + b"FCS!"], fcs=b"\x20"), [udp(60)]),
    "pcapng, simple": (simple(udp(60), 0), [udp(60)]),
    "gzip": (gzip.compress(pcap([udp(60)])), [udp(60)]),
    "zstd": (zstd(pcap([udp(60)])), [udp(60)]),
    "pcapng, gzip": (gzip.compress(pcapng([udp(60)])), [udp(60)]),
    "pcapng, zstd": (zstd(pcapng([udp(60)])), [udp(60)]),
    "the shortest and the longest": (pcap([bytes(14), bytes(2048)]), [bytes(14), bytes(2048)]),
}
REFUSED = {
    "text": (b"text" * 10, "neither pcap nor pcapng"),
    "pcapng of no size": (b"\x0a\x0d\x0d\x0a" + bytes(40), "ends within a block, or has one of 0 bytes"),
    "pcapng, cut": (pcapng([udp(60)])[:-1], "ends within a block"),
    "pcapng, snaplen": (pcapng([udp(60)], lacks=4), "frame 1 was not captured whole: 60 of 64 bytes"),
    "pcapng, simple, snaplen": (simple(udp(60), 40), "frame 1 was not captured whole: 40 of 60 bytes"),
    "pcapng, more than a block": (pcapng([udp(60)]).replace(*(struct.pack("<II", n, n) for n in (60, 80))), "has room"),
    "pcapng, radiotap": (pcapng([udp(60)], link_type=127), "its frames are not Ethernet"),
    "pcapng, no interface": (pcapng([])[:28] + pcapng([udp(60)])[64:], "is of interface 0, which"),
    "gzip, cut": (gzip.compress(pcap([udp(60)]))[:-12], "cannot be unpacked"),
    "zstd, broken": (zstd(pcap([udp(60)]))[:4] + bytes(9), "cannot be unpacked"),
    "empty": (pcap([]), "holds no frame"),
    "cut in a frame": (pcap([udp(60)])[:-1], "ends within frame 1"),
    "cut in a record": (pcap([udp(60)]) + b"\x00", "ends within frame 2"),
    "snaplen": (pcap([udp(60)]) + pcap([udp(60)], lacks=4)[24:], "frame 2 was not captured whole: 60 of 64 bytes"),
    "too short": (pcap([udp(60), bytes(13)]), "frame 2 has 13 bytes; possible are 14 to 2048"),
    "too long": (pcap([udp(60), bytes(2049)]), "frame 2 has 2049 bytes; possible are 14 to 2048"),
    "too short without FCS": (pcap([bytes(17)], link_type=ETHERNET_FCS), "frame 1 has 13 bytes"),
    "shorter than its FCS": (pcap([bytes(2)], link_type=ETHERNET_FCS), "frame 1 has -2 bytes"),
    "radiotap": (pcap([udp(60)], link_type=127), "its frames are not Ethernet"),
    "cooked": (pcap([udp(60)], link_type=113), "its frames are not Ethernet"),
    "an FCS's length alone": (pcap([udp(60)], link_type=1 | 2 << 28), "does not say whether its frames have an FCS"),
    "unknown bits": (pcap([udp(60)], link_type=1 | 1 << 20), "its frames are not Ethernet"),
}


@pytest.mark.parametrize(("data", "frames"), READ.values(), ids=READ.keys())
def test_the_frames_that_are_sent_have_no_fcs_and_no_padding(data: bytes, frames: list[bytes]) -> None:
    assert list(parse_pcap(data)) == frames


def test_what_is_sent_of_any_file_is_a_classic_pcap(tmp_path: Path) -> None:
    frames = [udp(60), udp(1042)]
    write_pcap(frames, tmp_path / "a.pcap", repeat(0))
    assert list(parse_pcap((tmp_path / "a.pcap").read_bytes())) == frames
    (tmp_path / "b").write_bytes(pcapng(frames))
    assert (is_plain(tmp_path / "a.pcap"), is_plain(tmp_path / "b")) == (True, False)


def timed(data: bytes, stamps: list[tuple[int, int]], place: int) -> bytes:
    """Return a file of 60-byte frames with these two numbers before each; records are that long, behind others."""
    whole, size = bytearray(data), 92 if data[:4] == pcapng([])[:4] else 76
    for number, stamp in enumerate(stamps):
        struct.pack_into("<II", whole, place + number * size, *stamp)
    return bytes(whole)


def with_options(data: bytes, *options: tuple[int, bytes]) -> bytes:
    """Return a pcapng whose first interface has these options."""
    at = data.index(struct.pack("<II", 1, 20))
    more = b"".join(struct.pack("<HH", kind, len(value)) + value + bytes(-len(value) % 4) for kind, value in options)
    size = struct.pack("<I", 20 + len(more))
    return data[: at + 4] + size + data[at + 8 : at + 16] + more + size + data[at + 20 :]


THREE = [udp(60)] * 3
NS_PCAP = b"\x4d\x3c\xb2\xa1" + pcap(THREE)[4:]
AFTER = len(pcapng([])) + 12
PARTS = [(0, 5), (0, 7), (1, 0)]
NG = timed(pcapng(THREE), PARTS, AFTER)
CAPTURED = {
    "µs": (timed(pcap(THREE), PARTS, 24), [5_000, 7_000, 10**9]),
    "ns": (timed(NS_PCAP, PARTS, 24), [5, 7, 10**9]),
    "pcapng": (NG, [5_000, 7_000, 1000 << 32]),
    "pcapng, ns, from 2 s on": (
        with_options(NG, (9, b"\x09"), (14, b"\2" + bytes(7))), [2 * 10**9 + n for n in (5, 7, 1 << 32)],
    ),
    "pcapng, 1/1024 s": (with_options(NG, (9, b"\x8a")), [n * 10**9 >> 10 for n in (5, 7, 1 << 32)]),
}  # fmt: skip
UNTIMED = {
    "equal": (pcap(THREE), "all frames have one time stamp"),
    "alone": (pcap([udp(60)]), "all frames have one time stamp"),
    "going back": (timed(pcap(THREE), [(1, 0), (2, 5), (2, 3)], 24), "frame 3 was captured 2 µs before frame 2"),
    "without": (simple(udp(60), 0), "frame 1 has no time stamp"),
    "of an impossible unit": (
        with_options(timed(NG, [(9, 9)], AFTER), (9, b"\x00")),
        "frame 1 has a time stamp that cannot be",
    ),
}


@pytest.mark.parametrize(("data", "times"), CAPTURED.values(), ids=CAPTURED.keys())
def test_times_are_in_ns_and_what_is_sent_keeps_their_gaps(tmp_path: Path, data: bytes, times: list[int]) -> None:
    (file := tmp_path / "some").write_bytes(data)
    assert list(times_in(file)) == times
    write_plain(file, tmp_path / "plain.pcap", timed=True)
    assert list(times_in(tmp_path / "plain.pcap")) == [ns - times[0] for ns in times]
    assert list(frames_in(tmp_path / "plain.pcap")) == THREE


@pytest.mark.parametrize(("data", "words"), UNTIMED.values(), ids=UNTIMED.keys())
def test_stamps_that_tell_no_gaps_are_refused(tmp_path: Path, data: bytes, words: str) -> None:
    (file := tmp_path / "some").write_bytes(data)
    with pytest.raises(FormatError, match=words):
        times_in(file)


@pytest.mark.parametrize(("data", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_sent_is_said(data: bytes, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        parse_pcap(data)


READER = """
#include "fail.h"
#include "pcap.h"
#include <stdio.h>
int main(int count, char **paths) {
    struct pcap pcap = {};
    if (count != 2 || pcap_read(&pcap, paths[1], 2048))
        fail_print();
    for (unsigned frame = 0; frame < pcap.count; frame++)
        for (unsigned byte = 0; byte < pcap.frames[frame].bytes; byte++)
            printf("%02x%s", pcap.frames[frame].data[byte], byte + 1 < pcap.frames[frame].bytes ? "" : " ");
}
"""


def test_xdpgens_reader_agrees(tmp_path: Path) -> None:
    native, tool, file = Path(__file__).parents[2] / "native", tmp_path / "reader", tmp_path / "some.pcap"
    (tmp_path / "reader.c").write_text(READER)
    sources = [native / "xdpgen/pcap.c", *(native / "common" / name for name in ("fail.c", "json.c"))]
    words = ["cc", "-D_GNU_SOURCE", *(f"-I{native / folder}" for folder in ("xdpgen", "common"))]
    subprocess.run([*words, tmp_path / "reader.c", *sources, "-o", tool], check=True)
    # It gets the frames of other files as a classic pcap.
    for data, frames in (one for one in READ.values() if one[0].startswith(CLASSIC)):
        file.write_bytes(data)
        said = subprocess.run([tool, file], capture_output=True, text=True, check=True).stdout
        assert said == "".join(f"{frame.hex()} " for frame in frames)
    for data, why in (one for one in REFUSED.values() if one[0].startswith(CLASSIC)):
        file.write_bytes(data)
        assert why in subprocess.run([tool, file], capture_output=True, text=True, check=False).stdout


@settings(deadline=None)
@given(st.binary(max_size=120), st.binary(max_size=80))
def test_any_bytes_are_frames_or_a_format_error(data: bytes, frame: bytes) -> None:
    flow_of(frame)
    for text in (data, pcap([])[:24] + data):
        with suppress(FormatError):
            assert list(parse_pcap(text))
