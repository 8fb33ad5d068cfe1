"""The test run of a user's program uses the frames that its point sends."""

import struct
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.generators.echo_dut import ip_at, udp_at, udp_sum

from xdplab.formats.pcap import flow_of
from xdplab.plan import Point, parse_plan, points_of
from xdplab.studies.test_frames import MOST_FRAMES, choose, frames_of
from xdplab.studies.traffic.trial import _recognised_bytes

MACS = {"src_mac": "02:00:00:00:00:01", "dst_mac": "02:00:00:00:00:02"}


def bytes_of(point: Point, seed: int = 1) -> list[bytes]:
    return [bytes(one.frame) for one in frames_of(point, **MACS, seed=seed).frames]


def point(tmp_path: Path, frames: bytes | None = None, **given: object) -> Point:
    (tmp_path / "lb.bpf.c").write_text("int x;")
    program: dict[str, object] = {"file": str(tmp_path / "lb.bpf.c")}
    if frames is not None:
        (tmp_path / "f.pcap").write_bytes(frames)
        program["frames"] = str(tmp_path / "f.pcap")
    points = {"program": program, "frame_bytes": given.pop("frame_bytes", 64), "queues": given.pop("queues", 1)}
    block = {"points": points, "traffic": given}
    return points_of(parse_plan({"name": "t", "blocks": [block]}), "shared")[0]


def test_the_generators_flows_are_made_again(tmp_path: Path) -> None:
    asked = {"flows": 3, "src_ip": "10.0.0.1", "dst_ip": "10.0.1.255", "src_port": 7, "dst_port": 53}
    frames = bytes_of(point(tmp_path, frame_bytes=512, **asked))
    assert [len(frame) for frame in frames] == [508] * 3
    assert len({flow_of(frame) for frame in frames}) == 3
    first, last = frames[0], frames[2]
    assert first[:14] == bytes.fromhex("0200000000020200000000010800")
    assert first[26:34] == bytes([10, 0, 0, 1, 10, 0, 1, 255])
    assert last[30:34] == bytes([10, 0, 2, 1]), "an address step carries over"
    assert struct.unpack_from(">HH", first, 34) == (7, 53)
    assert _sums_to_all_ones(first[14:34])


@pytest.mark.parametrize(
    ("engine", "file", "sizes"),
    [("afxdp", None, (64, 128)), ("afxdp", "/f.pcap", ()), ("testpmd", None, ()), ("moongen-hw", None, ())],
)
def test_a_socket_knows_test_frames_by_their_sizes_where_all_frames_are(
    tmp_path: Path, engine: str, file: str | None, sizes: tuple[int, ...]
) -> None:
    one = replace(point(tmp_path), engine=engine, imix=((128, 1), (64, 2)))
    context: Any = SimpleNamespace(programs={one.program: SimpleNamespace(frames_on_tg=file)})
    assert _recognised_bytes(context, one) == sizes


@pytest.mark.parametrize(("ip", "vlan", "size"), [(4, 5, 72), (6, "none", 101), (6, 4094, 1518)])
def test_tags_and_ipv6_are_made_as_the_generator_makes_them(tmp_path: Path, ip: int, vlan: object, size: int) -> None:
    asked = {"flows": 2, "src_ip": "10.0.0.1", "dst_ip": "10.0.1.255", "src_port": 7, "ip_version": ip, "vlan": vlan}
    frame = bytes_of(point(tmp_path, frame_bytes=size, **asked))[1]
    assert len(frame) == size - 4
    assert (frame[12:14] == b"\x81\0") == (vlan != "none")
    if vlan != "none":
        assert frame[14:16] == int(str(vlan)).to_bytes(2, "big")
    at = ip_at(frame)
    if ip == 4:
        assert frame[at - 2 : at + 2] == b"\x08\0\x45\0"
        assert frame[at + 12 : at + 20] == bytes([10, 0, 0, 1, 10, 0, 2, 0])
        assert _sums_to_all_ones(frame[at : at + 20])
    else:
        assert frame[at - 2 : at + 1] == b"\x86\xdd\x60"
        assert frame[at + 8 : at + 24] == bytes.fromhex("20010002") + bytes(8) + bytes([10, 0, 0, 1])
        assert frame[at + 24 : at + 40] == bytes.fromhex("20010002") + bytes(8) + bytes([10, 0, 2, 0])
        assert udp_sum(frame) == 0xFFFF
    assert struct.unpack_from(">HHH", frame, udp_at(frame)) == (7, 50220, len(frame) - udp_at(frame))


def _sums_to_all_ones(header: bytes) -> bool:
    """Check an IPv4 header as a receiver does (RFC 791)."""
    total = sum(struct.unpack(">10H", header))
    return (total & 0xFFFF) + (total >> 16) == 0xFFFF


def pcap(frames: list[bytes]) -> bytes:
    records = b"".join(struct.pack("<IIII", 0, 0, len(f), len(f)) + f for f in frames)
    return struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1) + records


def test_a_pcap_gives_its_own_frames(tmp_path: Path) -> None:
    frames = [bytes([number]) * (20 + number) for number in range(200)]
    found = bytes_of(point(tmp_path, pcap(frames)))
    assert found[0] == bytes(60), "padded as on the wire"
    assert found[60:] == frames[60:]


@pytest.mark.parametrize("count", [1, 12, 63, 64, 1000])
def test_every_frame_of_a_trace_and_every_flow_is_test_run_once(count: int, tmp_path: Path) -> None:
    trace = [number.to_bytes(60, "big") for number in range(count)]
    assert bytes_of(point(tmp_path, pcap(trace))) == trace
    flows = frames_of(point(tmp_path, flows=count), **MACS, seed=1)
    assert len({one.frame for one in flows.frames}) == flows.sent == count
    assert flows.seed is None


def test_each_size_meets_each_flow_and_each_queue_as_in_the_trial(tmp_path: Path) -> None:
    found = frames_of(point(tmp_path, frame_bytes=64, flows=3, queues=2), **MACS, seed=1)
    assert len({(one.frame, one.queue) for one in found.frames}) == found.sent == 6
    assert {one.queue for one in found.frames} == {0, 1}


def test_of_too_many_a_random_sample_that_its_seed_draws_again_has_no_period() -> None:
    assert choose(MOST_FRAMES, 7) == (range(MOST_FRAMES), None)
    chosen, seed = choose(200_000, 7)
    assert (len(set(chosen)), seed) == (MOST_FRAMES, 7)
    assert (list(chosen), seed) == (list(choose(200_000, 7)[0]), 7)
    assert list(chosen) != list(choose(200_000, 8)[0])
    for period in (2, 4, 8, 16):
        share = sum(number % period == 0 for number in chosen) / MOST_FRAMES
        assert share == pytest.approx(1 / period, abs=0.01)
