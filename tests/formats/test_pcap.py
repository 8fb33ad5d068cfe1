"""A pcap is read completely or refused with a message; frame sizes and flows come from the file."""

import struct
import subprocess
from contextlib import suppress
from pathlib import Path

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


def pcap(frames: list[bytes], order: str = "<", *, link_type: int = 1, lacks: int = 0) -> bytes:
    """Return a pcap whose records say that ``lacks`` bytes of each frame are not in it; negative: that it has more."""
    header = struct.pack(f"{order}IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, link_type)
    return header + b"".join(struct.pack(f"{order}IIII", 0, 0, len(f), len(f) + lacks) + f for f in frames)


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


ETHERNET_FCS = 1 | 1 << 26 | 2 << 28
READ = {
    "as it is": (pcap([udp(60)]), [udp(60)]),
    "with FCS": (pcap([udp(60) + b"FCS!"], link_type=ETHERNET_FCS), [udp(60)]),
    "without FCS, told so": (pcap([udp(60)], link_type=1 | 1 << 26), [udp(60)]),
    "padded by the card": (pcap([udp(60) + b"pad"], lacks=-3), [udp(60)]),
    "with FCS, padded": (pcap([udp(60) + b"FCS!pad"], link_type=ETHERNET_FCS, lacks=-3), [udp(60)]),
    "the shortest and the longest": (pcap([bytes(14), bytes(2048)]), [bytes(14), bytes(2048)]),
}
REFUSED = {
    "pcapng": (b"\x0a\x0d\x0d\x0a" + bytes(40), "not a classic pcap"),
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
    assert parse_pcap(data) == frames


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
    for data, frames in READ.values():
        file.write_bytes(data)
        said = subprocess.run([tool, file], capture_output=True, text=True, check=True).stdout
        assert said == "".join(f"{frame.hex()} " for frame in frames)
    for data, why in REFUSED.values():
        file.write_bytes(data)
        assert why in subprocess.run([tool, file], capture_output=True, text=True, check=False).stdout


@given(st.binary(max_size=120), st.binary(max_size=80))
def test_any_bytes_are_frames_or_a_format_error(data: bytes, frame: bytes) -> None:
    flow_of(frame)
    for text in (data, pcap([])[:24] + data):
        with suppress(FormatError):
            assert parse_pcap(text)
