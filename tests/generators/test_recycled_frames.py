"""What comes back changed leaves whole again, and the stamped frames are a fair sample of all."""

from collections.abc import Callable
from math import sqrt
from typing import Any

import pytest
from tests.generators.conftest import Bench

from xdplab.formats.generator import Burst

pytestmark = [pytest.mark.root, pytest.mark.lab]

Send = Callable[..., Burst]
engines = pytest.mark.parametrize("engine", ["live", "afxdp"])
FCS = 4


@engines
@pytest.mark.parametrize("load", [None, 20_000.0], ids=["max", "paced"])
@pytest.mark.parametrize(("section", "size", "came"), [("grow", 64, 60), ("shrink", 1514, 1510), ("mark", 64, 0)])
def test_each_frame_has_the_length_and_the_metadata_it_was_made_with(
    traffic_bench: Bench, one_burst: Send, engine: str, load: float | None, section: str, size: int, came: int
) -> None:
    with traffic_bench.dut(section):
        summary = one_burst(engine, frame_bytes=size, rate_pps=load, seconds=0.2).summary
        assert traffic_bench.came() == {came: summary.tx_packets}
    assert summary.tx_errors == 0
    assert summary.tx_bytes == size * summary.tx_packets
    changed = {"grow": 48, "shrink": -4, "mark": None}[section]
    if changed is None:
        assert (summary.rx_bytes, summary.foreign_packets) == (summary.tx_bytes, 0)
    elif engine == "live":  # a frame in an AF_XDP sender's skb has little room to grow
        assert summary.foreign_packets == summary.altered_packets == summary.tx_packets
        assert summary.foreign_bytes == (size + changed) * summary.tx_packets


@engines
@pytest.mark.parametrize("load", [None, 2000.0], ids=["max", "paced"])
@pytest.mark.parametrize("sizes", [{"frame_bytes": 256}, {"imix": (256, 1518, 594)}], ids=["one size", "several"])
def test_no_frame_carries_what_a_program_wrote_into_the_one_before(
    traffic_bench: Bench, engine: str, load: float | None, sizes: dict[str, Any]
) -> None:
    """The first burst notices; from then on each frame is written whole."""
    with traffic_bench.generator(engine, rate_pps=load, settle_s=0.0, **sizes) as generator:
        generator.start()
        with traffic_bench.dut("sign"):
            first = generator.burst("warmup", 0.1).summary
            assert traffic_bench.came().get(1, 0) <= (first.tx_unrestored_packets or 0)
            assert (first.tx_unrestored_packets or 0) < first.tx_packets / 5
        with traffic_bench.dut("sign"):
            second = generator.burst("measure", 0.2).summary
            assert traffic_bench.came() == {0: second.tx_packets}
        generator.stop()
    assert (second.tx_restored, second.tx_unrestored_packets) == ((True, 0) if engine == "live" else (None, None))


def test_frames_that_nobody_changes_are_not_written_whole(traffic_bench: Bench) -> None:
    """What was learnt of one trial's program is forgotten when the next begins."""
    with traffic_bench.generator(frame_bytes=1518, settle_s=0.0) as generator:
        generator.start()
        with traffic_bench.dut("sign"):
            assert generator.burst("signed", 0.1).summary.tx_restored
        generator.go_on()
        with traffic_bench.dut("reflect"):
            summary = generator.burst("measure", 0.2).summary
        generator.stop()
    assert (summary.tx_restored, summary.tx_unrestored_packets) == (False, 0)


@pytest.mark.parametrize(("frame_bytes", "restored"), [(256, True), (64, False)])
def test_frames_are_written_whole_from_the_start_where_asked_if_they_have_more_than_headers(
    traffic_bench: Bench, frame_bytes: int, restored: bool
) -> None:
    with traffic_bench.generator(frame_bytes=frame_bytes, whole=True) as generator, traffic_bench.dut("reflect"):
        generator.start()
        for name in ("first", "second"):
            summary = generator.burst(name, 0.1).summary
            assert (summary.tx_restored, summary.tx_unrestored_packets) == (restored, 0)
            generator.go_on()
        generator.stop()


def chi_square(counts: dict[int, int], cells: int) -> float:
    mean = sum(counts.values()) / cells
    return sum((counts.get(cell, 0) - mean) ** 2 / mean for cell in range(cells))


@pytest.mark.thorough
@engines
@pytest.mark.parametrize(
    ("section", "cells", "changes"),
    [
        ("stamped_by_flow", 64, {"flows": 64}),
        ("stamped_by_flow", 63, {"flows": 63}),
        ("stamped_by_flow", 12, {"flows": 12}),
        ("stamped_by_flow", 1000, {"flows": 1000}),
        ("stamped_by_place", 12, {"flows": 1, "imix": (64,) * 7 + (594,) * 4 + (1518,)}),
    ],
)
@pytest.mark.parametrize("every", [16, 3])
def test_stamps_are_spread_over_flows_and_sizes(
    traffic_bench: Bench, one_burst: Send, engine: str, section: str, cells: int, changes: dict[str, Any], every: int
) -> None:
    """The seed and the number of frames say which are stamped: as many on a busy machine, which takes longer."""
    with traffic_bench.dut(section):
        asked = {"stamp": every, "stamp_seed": 7, "max_frames": 400_000, "settle_s": 0.0, **changes}
        summary = one_burst(engine, seconds=20.0, **asked).summary
        counts = traffic_bench.came()
    drawn = sum(counts.values())
    assert summary.tx_packets == 400_000
    assert set(counts) == set(range(cells))
    assert drawn == pytest.approx(summary.tx_packets / every, rel=0.02)
    assert chi_square(counts, cells) < cells - 1 + 5 * sqrt(2 * (cells - 1))
    assert summary.stamp_seed == 7


def test_each_burst_draws_anew_and_the_seed_says_what(traffic_bench: Bench) -> None:
    def first_stamps(seed: int) -> list[Any]:
        with traffic_bench.generator(stamp=16, stamp_seed=seed, rate_pps=2000.0, max_frames=400) as generator:
            generator.start()
            with traffic_bench.dut("stamped_by_flow"):
                bursts = [generator.burst(name, 0.4).summary.stamp_seed for name in "ab"]
                counts = traffic_bench.came()
            generator.stop()
        return [*bursts, counts]

    one, again, other = first_stamps(3), first_stamps(3), first_stamps(4)
    assert one == again
    assert one[:2] == [3, 4]
    assert one[2] != other[2]
