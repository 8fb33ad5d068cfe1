"""Frames of IPv4 and IPv6, with a VLAN tag and without: what xdpgen sends, what it recognises, what it refuses."""

import struct
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.generators.conftest import Bench
from tests.generators.echo_dut import internet_sum, nearly, udp_sum

from xdplab.formats.generator import Burst
from xdplab.plan.imix import SIMPLE, cycle_of

pytestmark = [pytest.mark.root, pytest.mark.lab]

Send = Callable[..., Burst]
ENGINES = ["live", "afxdp"]
FCS = 4
KINDS = [(4, 5), (6, None), (6, 4094)]  # IP version and tag
LEAST = {(4, None): 64, (4, 5): 72, (6, None): 88, (6, 4094): 88}
kinds = pytest.mark.parametrize(("ip", "vlan"), KINDS)
also_plain = pytest.mark.parametrize(("ip", "vlan"), [(4, None), *KINDS])


@also_plain
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("several", [False, True], ids=["one size", "several"])
def test_frames_on_the_wire(
    traffic_bench: Bench, one_burst: Send, several: bool, engine: str, ip: int, vlan: int | None
) -> None:
    """An AF_PACKET socket on the DUT sees them; of several sizes, seven, four and one of each twelve."""
    least = LEAST[ip, vlan]
    cycle = tuple(max(size, least) for size in cycle_of(SIMPLE)) if several else (101,)
    changes: dict[str, Any] = {
        "imix": cycle if several else (), "frame_bytes": cycle[0], "max_frames": 240, "rate_pps": 4000.0,
        "flows": 5, "src_ip": "10.1.0.1", "dst_ip": "10.2.0.1", "src_ip_stride": "0.0.1.0", "dst_ip_stride": "0.0.0.2",
        "src_port": 2000, "port_stride": 10, "stamp": 4, "settle_s": 0.3,
    }  # fmt: skip
    with traffic_bench.echo("print") as dut:
        started = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        burst = one_burst(engine, vlan=vlan, ip_version=ip, **changes)
        frames = [bytes.fromhex(dut.read_line(5.0) or "") for _ in range(240)]
    assert [len(frame) + FCS for frame in frames] == list(cycle * (240 // len(cycle)))
    assert burst.summary.tx_by_size == (((least, 140), (594, 80), (1518, 20)) if several else None)
    stamped = 0
    for number, frame in enumerate(frames):
        flow = number % 5
        assert frame[:12].hex(":") == f"{traffic_bench.lab.dut_mac}:{traffic_bench.lab.tg_mac}"
        rest = frame[12:]
        if vlan is not None:
            assert struct.unpack("!HH", rest[:4]) == (0x8100, vlan)
            rest = rest[4:]
        source, target = bytes([10, 1, flow, 1]), bytes([10, 2, 0, 1 + 2 * flow])
        if ip == 4:
            assert struct.unpack("!HBBH4xBB", rest[:12]) == (0x0800, 0x45, 0, len(rest) - 2, 64, 17)
            assert internet_sum(rest[2:22]) == 0xFFFF
            assert rest[14:22] == source + target
            udp = rest[22:]
            assert udp[6:8] == bytes(2)
        else:
            assert struct.unpack("!HIHBB", rest[:10]) == (0x86DD, 6 << 28, len(rest) - 42, 17, 64)
            prefix = bytes.fromhex("20010002") + bytes(8)
            assert rest[10:42] == prefix + source + prefix + target
            udp = rest[42:]
            assert udp[6:8] != bytes(2)
            assert udp_sum(frame) == 0xFFFF
        assert struct.unpack("!HHH", udp[:6]) == (2000 + 10 * flow, 50220, len(udp))
        payload = frame[{64: 42, 72: 50, 88: 66}[least] :]
        assert struct.unpack("!I", payload[:4])[0] == 0x78646C62 ^ 0xBEEF
        (field,), (stamp,) = struct.unpack("!H", payload[4:6]), struct.unpack("=Q", payload[6:14])
        assert field & 0x7FFF == flow
        assert struct.unpack("!I", payload[14:18])[0] == number
        assert 0 < stamp - started < 10e9 if field & 0x8000 else stamp == 0
        stamped += field >> 15
    assert 40 <= stamped <= 80  # of 240, one in 4


@also_plain
@pytest.mark.parametrize("engine", ENGINES)
def test_every_size_comes_back(traffic_bench: Bench, one_burst: Send, engine: str, ip: int, vlan: int | None) -> None:
    least = LEAST[ip, vlan]
    with traffic_bench.dut("reflect"):
        for size in (least, least + 1, 1518):
            burst = one_burst(engine, vlan=vlan, ip_version=ip, frame_bytes=size)
            summary = burst.summary
            assert summary.rx_packets == summary.tx_packets > 10_000
            assert (summary.duplicates, summary.reordered, summary.foreign_packets, summary.bad_stamps) == (0, 0, 0, 0)
            assert burst.histogram.count == summary.rx_packets


@kinds
def test_frames_that_are_nearly_ours_are_counted_apart(traffic_bench: Bench, ip: int, vlan: int | None) -> None:
    settings = {"vlan": vlan, "ip_version": ip, "frame_bytes": 101, "rate_pps": 500.0}
    with traffic_bench.echo({"nearly": [4]}), traffic_bench.generator(**settings) as generator:
        generator.start()
        summary = generator.burst("measure", 0.4).summary
        generator.stop()
    times = summary.tx_packets // 10
    assert times == 20
    frame = bytearray(97)
    frame[12:18] = b"\x81\0\0\0" + (b"\x86\xdd" if ip == 6 else b"\x08\0") if vlan is not None else b"\x86\xdd\0\0\0\0"
    others = len(nearly(bytes(frame))) - 1  # the other run's frames have a counter of their own
    assert (summary.rx_packets, summary.lost_packets, summary.duplicates) == (summary.tx_packets, 0, 0)
    assert summary.bad_run_id == times
    assert summary.foreign_packets == times * others


@kinds
def test_what_a_router_changes_is_still_the_test_frame(
    traffic_bench: Bench, one_burst: Send, ip: int, vlan: int | None
) -> None:
    with traffic_bench.echo({"rewritten": list(range(10))}):
        changes: dict[str, Any] = {"frame_bytes": 101, "rate_pps": 1000.0, "settle_s": 0.3}
        summary = one_burst(vlan=vlan, ip_version=ip, **changes).summary
    assert (summary.rx_packets, summary.foreign_packets) == (summary.tx_packets, 0)
    assert summary.tx_packets == 200
