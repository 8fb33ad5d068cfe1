"""Frames above 1518 bytes: sent by AF_XDP in one descriptor or several, counted and checked in all their buffers."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.generators.conftest import Bench

from xdplab.formats.generator import Burst

pytestmark = [pytest.mark.root, pytest.mark.lab]

Send = Callable[..., Burst]
LARGEST, FRAMES = 9216, 600
SOME: dict[str, Any] = {"max_frames": FRAMES, "rate_pps": 3000.0, "seconds": 1.0, "settle_s": 0.2, "stamp": 4}
KINDS = [(4, None), (6, None), (4, 5), (6, 5)]  # IP version, tag


@pytest.mark.parametrize(
    ("size", "ip", "vlan"),
    [
        pytest.param(size, *kind, marks=[pytest.mark.thorough] * (size not in (3524, LARGEST) and kind != KINDS[-1]))
        for size in (1519, 2048, 3524, 3525, 4100, 4101, 8192, LARGEST)
        for kind in KINDS
    ],
)
def test_every_frame_comes_back_with_all_its_bytes(
    traffic_bench: Bench, one_burst: Send, size: int, ip: int, vlan: int | None
) -> None:
    with traffic_bench.mtu(LARGEST - 18), traffic_bench.dut("reflect_buffers"), traffic_bench.counting() as came:
        summary = one_burst("afxdp", frame_bytes=size, ip_version=ip, vlan=vlan, **SOME).summary
    assert (came, summary.tx_packets, summary.rx_packets) == ([FRAMES], FRAMES, FRAMES)
    assert summary.tx_bytes == summary.rx_bytes == FRAMES * size
    assert (summary.altered_packets, summary.foreign_packets, summary.duplicates) == (0, 0, 0)


@pytest.mark.parametrize("ip", [4, 6])
def test_sizes_of_one_descriptor_and_of_several_go_in_turn(traffic_bench: Bench, one_burst: Send, ip: int) -> None:
    cycle = (88, LARGEST, 88, 4000, 5000, 1518)
    with traffic_bench.mtu(LARGEST - 18), traffic_bench.dut("reflect_buffers"):
        summary = one_burst("afxdp", imix=cycle, ip_version=ip, **SOME).summary
    assert summary.tx_packets == summary.rx_packets == FRAMES
    expected = ((88, 200), (1518, 100), (4000, 100), (5000, 100), (LARGEST, 100))
    assert summary.tx_by_size == summary.rx_by_size == expected


@pytest.mark.parametrize("size", [1519, 3525, LARGEST])
def test_a_byte_changed_in_the_last_buffer_is_found(traffic_bench: Bench, one_burst: Send, size: int) -> None:
    """The UDP checksum of IPv6 covers it."""
    with traffic_bench.mtu(LARGEST - 18), traffic_bench.dut("spoil_last"):
        summary = one_burst("afxdp", frame_bytes=size, ip_version=6, **SOME).summary
    assert (summary.tx_packets, summary.rx_packets, summary.altered_packets) == (FRAMES, 0, FRAMES)


@pytest.mark.parametrize("size", [1519, 3360])
def test_a_live_frame_may_fill_its_page(traffic_bench: Bench, one_burst: Send, size: int) -> None:
    with traffic_bench.mtu(LARGEST - 18), traffic_bench.dut("reflect_buffers"):
        summary = one_burst("live", frame_bytes=size, **SOME).summary
    assert summary.tx_packets == summary.rx_packets == FRAMES
    assert summary.rx_bytes == FRAMES * size
