"""xdpgen's skewed flows, flows that end, and bursts, as a DUT and the receiver see them."""

import struct
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from scipy.stats import chisquare
from tests.generators.conftest import Bench

from xdplab.formats.generator import Burst

pytestmark = [pytest.mark.root, pytest.mark.lab]

Send = Callable[..., Burst]
engines = pytest.mark.parametrize("engine", ["live", "afxdp"])
BITS = 17


def place(flow: int) -> int:
    """The last bits of the flow's address, by which the DUT's program counts; the first one is 198.19.0.1."""
    return ((1 << 16) + 1 + flow) % (1 << BITS)


def shares(flows: int, exponent: float) -> list[float]:
    weights = [rank**-exponent for rank in range(1, flows + 1)]
    total = sum(weights)
    return [weight / total for weight in weights]


@pytest.mark.parametrize(
    ("engine", "flows", "exponent", "queues"), [("live", 100_000, 1.1, 1), ("live", 7, 0.5, 2), ("afxdp", 1000, 1.1, 1)]
)
def test_drawn_flows_have_the_shares_of_zipfs_law(
    traffic_bench: Bench, one_burst: Send, engine: str, flows: int, exponent: float, queues: int
) -> None:
    """By the DUT's count of each flow, and by the receiver's of each octave of ranks."""
    frames = 200_000
    changes: dict[str, Any] = {
        "flows": flows,
        "zipf": exponent,
        "max_frames": frames,
        "rate_pps": 300e3,
        "queues": queues,
    }
    with traffic_bench.queues(queues), traffic_bench.dut("flows"):
        summary = one_burst(engine, seconds=3.0, **changes).summary
        came = traffic_bench.came("came_to")
    assert (summary.tx_packets, summary.rx_packets, summary.reordered, summary.foreign_packets) == (
        frames,
        frames,
        0,
        0,
    )
    assert summary.rx_flows == len(came)
    by_flow = [came.get(place(flow), 0) for flow in range(flows)]
    assert sum(by_flow) == frames
    of_stream = [shares(len(range(stream, flows, queues)), exponent) for stream in range(queues)]
    expected = [of_stream[flow % queues][flow // queues] * frames / queues for flow in range(flows)]
    often = [flow for flow in range(flows) if expected[flow] >= 10]
    classes = [(by_flow[flow], expected[flow]) for flow in often]
    if len(often) < flows:
        classes.append((frames - sum(by_flow[flow] for flow in often), sum(expected[len(often) :])))
    assert chisquare(*zip(*classes, strict=True)).pvalue > 1e-4
    ends = [*(queues * (first - 1) for first in octaves(len(of_stream[0]))), flows]
    assert summary.rx_by_rank == tuple(sum(by_flow[a:b]) for a, b in pairwise(ends))


def octaves(flows: int) -> list[int]:
    return [1 << octave for octave in range(flows.bit_length())]


def test_draws_are_those_of_the_seed(traffic_bench: Bench, one_burst: Send) -> None:
    def flows(engine: str, seed: int) -> dict[int, int]:
        changes: dict[str, Any] = {"flows": 5000, "zipf": 1.1, "max_frames": 20_000, "rate_pps": 200e3}
        with traffic_bench.dut("flows"):
            one_burst(engine, seconds=0.5, flow_seed=seed, **changes)
            return traffic_bench.came("came_to")

    assert flows("live", 1) == flows("afxdp", 1) != flows("afxdp", 2)


@engines
@pytest.mark.parametrize("queues", [1, 2])
def test_flows_end_and_new_ones_take_their_places(
    traffic_bench: Bench, one_burst: Send, engine: str, queues: int
) -> None:
    """In 0.5 s at 2,000/s: 1,000 flows more than there are at a time; none lost, none out of order."""
    changes: dict[str, Any] = {"flows": 500, "churn": 2000, "rate_pps": 100e3, "queues": queues}
    with traffic_bench.queues(queues), traffic_bench.dut("flows"):
        summary = one_burst(engine, seconds=0.5, **changes).summary
        came = traffic_bench.came("came_to")
    assert summary.rx_packets == summary.tx_packets
    assert (summary.duplicates, summary.reordered, summary.foreign_packets) == (0, 0, 0)
    assert summary.rx_flows == len(came) == pytest.approx(1500, abs=2 * queues)
    assert sorted(came) == [place(flow) for flow in range(len(came))]


@engines
def test_churn_at_maximum_load_goes_by_time(traffic_bench: Bench, one_burst: Send, engine: str) -> None:
    with traffic_bench.dut("flows"):
        summary = one_burst(engine, seconds=0.5, flows=200, churn=10_000).summary
        came = traffic_bench.came("came_to")
    assert summary.rx_flows == len(came)
    assert len(came) == pytest.approx(200 + 10_000 * summary.duration_s, rel=0.02)
    assert (summary.lost_packets, summary.reordered) == (0, 0)


def test_order_is_not_asked_of_two_flows_in_one_place(traffic_bench: Bench, one_burst: Send) -> None:
    """One flow at a time, a new one with each block: where frames change places, few of them are of one flow."""
    with traffic_bench.echo({"swap": [3, 7]}):
        kept = one_burst(flows=1, seconds=1.0, max_frames=160, rate_pps=2000.0, settle_s=0.3).summary
    with traffic_bench.echo({"swap": [3, 7]}):
        gone = one_burst(flows=1, churn=2000, seconds=1.0, max_frames=160, rate_pps=2000.0, settle_s=0.3).summary
    assert kept.rx_packets == gone.rx_packets == 160
    assert 0 < gone.reordered <= kept.reordered == 32


@engines
def test_bursts_are_back_to_back_at_the_mean_rate(traffic_bench: Bench, one_burst: Send, engine: str) -> None:
    """By the sender's stamps in the frames: 20 frames at once, every 10 ms."""
    with traffic_bench.echo("print") as dut:
        changes: dict[str, Any] = {"rate_pps": 2000.0, "back_to_back": 20, "max_frames": 400, "stamp": "all"}
        burst = one_burst(engine, seconds=0.5, settle_s=0.3, **changes)
        frames = [bytes.fromhex(dut.read_line(5.0) or "") for _ in range(400)]
    stamps = [struct.unpack("<Q", frame[48:56])[0] for frame in frames]
    gaps = [after - before for before, after in pairwise(stamps)]
    within = [gap for number, gap in enumerate(gaps, 1) if number % 20]
    between = [after - before for before, after in pairwise(stamps[::20])]
    assert sorted(within)[len(within) * 9 // 10] < 100_000
    assert sorted(between)[len(between) // 2] == pytest.approx(10e6, rel=0.05)
    assert burst.summary.tx_packets == 400
    with traffic_bench.dut("reflect"):
        burst = one_burst(engine, seconds=0.5, settle_s=0.3, **changes)
    sent, due, late = burst.histogram, burst.from_due, burst.lateness
    assert sent.count == due.count == late.count == 400
    assert abs(due.sum - sent.sum - late.sum) <= (2 if engine == "live" else 100_000) * due.count
