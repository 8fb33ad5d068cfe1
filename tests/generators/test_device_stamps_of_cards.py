"""Stamps by the device of both sending and receipt, with what stands in for the device: nothing here has such a card.

xdpgen is built with three lines changed: it is not refused, it sends by copy, and the receiving program reads the clock
that the kernel writes into the metadata of frames sent by copy (CLOCK_TAI). Everything else is as in a real run: rings,
metadata, numbers, arrivals in the program's map, and their comparison.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.compiled import made, tool_source
from tests.generators.conftest import Bench

from xdplab.formats.generator import DEVICE, Burst

pytestmark = [pytest.mark.root, pytest.mark.lab, pytest.mark.thorough]

STANDS_IN = {
    "session.c": ("offers_require_stamps(&session->options, session->ifindex)", "0"),
    "options.c": ("!(options->zerocopy && options->device_stamps)", "!options->device_stamps"),
    "receive.bpf.c": (
        "int error = bpf_xdp_metadata_rx_timestamp(ctx, &stamp);",
        "int error = (stamp = bpf_ktime_get_tai_ns(), 0);",
    ),
}


def built(bench: Bench, folder: Path, *files: str) -> Bench:
    """Return the bench with an xdpgen in which something stands in for the lines of ``files``."""
    work = tool_source("xdpgen", folder)
    for file in files:
        (real, stands_in), text = STANDS_IN[file], (work / file).read_text()
        assert text.count(real) == 1, (file, real)
        (work / file).write_text(text.replace(real, stands_in))
    tg, there = bench.lab.tg, f"{bench.lab.work_dir(bench.lab.tg)}/xdpgen-{folder.name}"
    tg.put(made(work), there, mode=0o755)
    return replace(bench, xdpgen=there)


@pytest.fixture(scope="module")
def stamping(traffic_bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return built(traffic_bench, tmp_path_factory.mktemp("stamping"), *STANDS_IN)


def sent(bench: Bench, dut: str, seconds: float = 0.3, **changes: Any) -> list[Burst]:
    """Two bursts: numbers go on from one to the next."""
    asked = {"rx_stamp": "device", "tx_stamp": "device", "settle_s": 0.5} | changes
    with bench.dut(dut), bench.generator("afxdp", **asked) as generator:
        assert generator.start().settings["tx_stamp"] == "device"
        bursts = [generator.burst(name, seconds) for name in ("warmup", "measure")]
        generator.stop()
    return bursts


@pytest.mark.parametrize(
    "changes", [{"stamp": "all"}, {"stamp": 16}, {"stamp": 3, "vlan": 7, "frame_bytes": 72}, {"imix": (64, 512)}]
)
def test_each_stamped_frame_is_matched_and_its_latency_is_that_of_the_two_stamps(
    stamping: Bench, changes: dict[str, Any]
) -> None:
    for burst in sent(stamping, "reflect", rate_pps=20_000.0, **changes):
        summary, latency = burst.summary, burst.histogram
        every, stamped = changes.get("stamp", "all"), summary.tx_stamped
        assert summary.rx_packets == summary.tx_packets > 1000
        assert stamped == (summary.tx_packets if every == "all" else pytest.approx(summary.tx_packets / every, rel=0.2))
        assert (summary.tx_unstamped, summary.rx_unstamped) == (0, 0)
        assert (summary.unmatched_stamps, latency.of, burst.from_due) == (0, DEVICE, None)
        assert latency.count + (summary.bad_stamps or 0) == stamped
        assert burst.latency is latency
        assert 0 < latency.min < 1_000_000_000


def test_frames_that_do_not_come_back_are_stamped_and_in_no_latency(stamping: Bench) -> None:
    for burst in sent(stamping, "drop", rate_pps=10_000.0, stamp="all"):
        assert burst.summary.tx_stamped == burst.summary.tx_packets > 500
        assert (burst.summary.rx_packets, burst.summary.unmatched_stamps, burst.histogram.count) == (0, 0, 0)


def test_at_full_load_no_arrival_is_missed(stamping: Bench) -> None:
    """The kernel tells when a frame was sent while later ones are made already."""
    for burst in sent(stamping, "reflect", stamp="all"):
        summary = burst.summary
        assert summary.tx_stamped == summary.tx_packets > 1000
        assert summary.unmatched_stamps == 0
        assert burst.histogram.count + (summary.bad_stamps or 0) == summary.rx_packets


def test_without_stamps_of_receipt_there_is_no_latency_and_the_reason(traffic_bench: Bench, tmp_path: Path) -> None:
    """The receiving program asks the device, as in a real run: a veth has the call, and no stamp of such frames."""
    asking = built(traffic_bench, tmp_path, "session.c", "options.c")
    for burst in sent(asking, "reflect", rate_pps=10_000.0, stamp="all"):
        summary = burst.summary
        assert summary.tx_stamped == summary.rx_unstamped == summary.rx_packets == summary.tx_packets > 500
        assert (summary.unmatched_stamps, burst.histogram.count) == (0, 0)
        assert summary.missing["latency"] == "the driver gave no time stamp: ENODATA"
