"""Frames of several sizes in turn (IMIX): what xdpgen sends, counts and refuses, seen by others too."""

from collections import Counter
from collections.abc import Callable

import pytest
from tests.generators.conftest import Bench

from xdplab.formats.generator import Burst
from xdplab.plan.imix import SIMPLE, cycle_of

pytestmark = [pytest.mark.root, pytest.mark.lab]

Send = Callable[..., Burst]
CYCLE = cycle_of(SIMPLE)
FCS = 4
UNCOUNTED = 14  # a veth counts the bytes behind the Ethernet header, if a frame came as an skb
engines = pytest.mark.parametrize("engine", ["live", "afxdp"])


def device_bytes(bench: Bench, direction: str) -> int:
    path = f"/sys/class/net/{bench.lab.dut_interface}/statistics/{direction}_bytes"
    return int(bench.lab.dut.run(["cat", path]).text)


@engines
@pytest.mark.parametrize("queues", [1, 2])
def test_all_sizes_come_back_and_the_kernel_counts_their_bytes(
    traffic_bench: Bench, one_burst: Send, engine: str, queues: int
) -> None:
    with traffic_bench.queues(queues), traffic_bench.dut("reflect"):
        before = device_bytes(traffic_bench, "rx")
        summary = one_burst(engine, imix=CYCLE, queues=queues, max_frames=24_000, rate_pps=100e3, seconds=1.0).summary
        came = device_bytes(traffic_bench, "rx") - before
    assert summary.tx_packets == summary.rx_packets == 24_000
    assert summary.tx_by_size == summary.rx_by_size == ((64, 14_000), (594, 8_000), (1518, 2_000))
    assert summary.tx_bytes == summary.rx_bytes == sum(size * frames for size, frames in summary.tx_by_size)
    own = FCS + (UNCOUNTED if engine == "afxdp" else 0)
    assert came == sum((size - own) * frames for size, frames in summary.tx_by_size)
    assert (summary.duplicates, summary.reordered, summary.foreign_packets, summary.bad_stamps) == (0, 0, 0, 0)


@engines
def test_at_maximum_load_every_size_keeps_its_share(traffic_bench: Bench, one_burst: Send, engine: str) -> None:
    with traffic_bench.dut("reflect"):
        summary = one_burst(engine, imix=CYCLE, seconds=0.4).summary
    sent = dict(summary.tx_by_size or ())
    cycles = summary.tx_packets // 12
    assert cycles > 1000
    assert sum(sent.values()) == summary.tx_packets
    for size, frames in SIMPLE:
        assert 0 <= sent[size] - frames * cycles <= frames
    assert summary.foreign_packets == 0
    assert sum(count for _, count in summary.rx_by_size or ()) == summary.rx_packets


def test_bursts_go_on_in_the_cycle(traffic_bench: Bench) -> None:
    """A frame's size follows from its number, and numbers go on from burst to burst."""
    sizes: list[int] = []
    with (
        traffic_bench.echo("print") as dut,
        traffic_bench.generator(imix=CYCLE, max_frames=7, rate_pps=1000.0) as generator,
    ):
        assert generator.start().settings["frame_sizes"] == list(CYCLE)
        counts = [generator.burst(name, 0.1).summary.tx_by_size for name in "abc"]
        generator.stop()
        sizes = [len(bytes.fromhex(dut.read_line(5.0) or "")) + FCS for _ in range(21)]
    assert sizes == list(CYCLE * 2)[:21]
    for number, count in enumerate(counts):
        assert {size: frames for size, frames in count or () if frames} == Counter(sizes[7 * number : 7 * number + 7])


def test_lost_frames_are_missing_at_their_own_size(traffic_bench: Bench, one_burst: Send) -> None:
    """The DUT drops three frames of ten, whatever their size: what comes back is counted by size."""
    with traffic_bench.echo({"drop": [0, 1, 2]}):
        summary = one_burst(imix=CYCLE, max_frames=120, rate_pps=1000.0, settle_s=0.3).summary
    kept = Counter(CYCLE[number % 12] for number in range(120) if number % 10 > 2)
    assert dict(summary.rx_by_size or ()) == kept
    assert summary.lost_packets == 36


def test_a_frame_of_another_frames_size_is_not_ours(traffic_bench: Bench, one_burst: Send) -> None:
    """The DUT sends each frame back as it is, and again longer or shorter, with lengths and sums to match."""
    with traffic_bench.echo({"resized": list(range(10))}):
        summary = one_burst(imix=CYCLE, max_frames=120, rate_pps=500.0, seconds=0.3, settle_s=0.3).summary
    assert summary.rx_packets == summary.tx_packets == 120
    assert summary.altered_packets == summary.foreign_packets == 120
