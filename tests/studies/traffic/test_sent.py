"""From the generator's output of a burst to the columns of its trial."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.studies.traffic.columns_of import row_of

from xdplab.absent import Absent
from xdplab.analysis.percentiles import resolved_percentile
from xdplab.formats.generator import (
    Burst,
    BurstBuilder,
    GeneratorInterval,
    Histogram,
    Summary,
    bucket_width,
    parse_line,
)
from xdplab.studies.search.rfc2544 import Offered
from xdplab.studies.traffic.columns.rates import in_window, mean_forwarded
from xdplab.studies.traffic.columns.sent import LATENCY, SENT
from xdplab.studies.traffic.passes import burst_course


def histogram(of: str | None, *values: int) -> dict[str, Any]:
    counts: dict[int, int] = {}
    for value in values:
        lower = value - value % bucket_width(value, 7)
        counts[lower] = counts.get(lower, 0) + 1
    line = {
        "type": "histogram", "burst": "rate", "unit": "ns", "scheme": "log-linear", "sub_bits": 7,
        "count": len(values), "min": min(values, default=None), "max": max(values, default=None), "sum": sum(values),
        "buckets": sorted([lower, count] for lower, count in counts.items()),
    }  # fmt: skip
    return line if of is None else line | {"of": of}


def burst(*histograms: dict[str, Any], rx: tuple[int, ...] = (100, 100, 100, 120), **summary: Any) -> Burst:
    """A burst of 0.4 s that sent 400 frames; ``rx`` came back by interval, the last 20 of them after its end."""
    intervals = [
        {"type": "interval", "burst": "rate", "t_s": 0.1 * k, "tx_packets": 100, "rx_packets": count}
        for k, count in enumerate(rx, 1)
    ]
    whole = {
        "type": "summary", "burst": "rate", "duration_s": 0.4, "tx_packets": 400, "rx_packets": sum(rx),
        "lost_packets": 0, "duplicates": 0, "reordered": 0, "foreign_packets": 0, "bad_run_id": 0, "tx_errors": 0,
        "tx_by_queue": [400], "rx_by_queue": [sum(rx)], "rate_requested_pps": None, "rx_window_packets": 400,
        "rx_window_s": 0.4001, "tx_pause_max_ns": 3_000_000, "tx_paused_ns": 5_000_000, "tx_busy_cores": 0.98,
        "limited": None,
    }  # fmt: skip
    builder = BurstBuilder()
    for line in (*intervals, whole | summary, *(histograms or (histogram(None, 500, 700),))):
        record = parse_line(json.dumps(line))
        assert isinstance(record, GeneratorInterval | Summary | Histogram)
        done = builder.take(record)
    assert done is not None
    return done


PACED = {"rate_requested_pps": 1000.0, "tx_paused_ns": None, "tx_pause_max_ns": None, "tx_late_max_ns": 90_000}
TIMES = (histogram("lateness", 0, 90_000), histogram("from_due", 500, 95_000), histogram("from_sent", 500, 5_000))


def columns(one: Burst) -> tuple[dict[str, Any], dict[str, str]]:
    row = row_of({"rate_requested_pps": one.summary.rate_requested_pps}, burst=one)
    names = ["frame_mean_bytes", *(column.name for column in (*SENT, *LATENCY))]
    return {name: row[name] for name in names}, {name: why for name in names if (why := row.reason(name))}


def test_the_reason_of_a_null_is_the_generators_own() -> None:
    why = {
        "tx_paused_ns": "it does not record its pauses",
        "probes_sent": "no NIC stamps",
        "probes_lost": "no NIC stamps",
    }
    row, reasons = columns(burst(tx_paused_ns=None, missing=why))
    assert (row["tx_paused_ms"], reasons["tx_paused_ms"]) == (None, "it does not record its pauses")
    assert reasons["probes_lost"] == "no NIC stamps"


STAMPED = {"tx_stamped": 398, "tx_unstamped": 2, "unmatched_stamps": 1, "rx_unstamped": 0}


def test_latencies_between_a_devices_two_stamps_are_the_headline_at_a_pace_too() -> None:
    """No schedule says when the device should have sent; how late the sender was stays beside it."""
    one = burst(TIMES[0], histogram("device", 700, 800, 900), **PACED, **STAMPED)
    row, reasons = columns(one)
    assert (row["latency_p50_ns"], row["latency_sent_p50_ns"], row["latency_from"]) == (801.5, 801.5, "sent")
    assert row["late_max_ns"] == 90_000
    assert (row["tx_stamped_packets"], row["tx_unstamped_packets"], row["unmatched_packets"]) == (398, 2, 1)
    assert not {"tx_stamped_packets", "latency_p50_ns"} & reasons.keys()


def test_a_device_that_stamps_nothing_leaves_the_latency_null_with_its_reason_and_its_counts() -> None:
    why = {"latency": "the driver gave no time stamp of sending, though it offers tx-timestamp"}
    none = {"tx_stamped": 0, "tx_unstamped": 400, "unmatched_stamps": 400, "rx_unstamped": 0}
    row, reasons = columns(burst(TIMES[0], histogram("device"), **PACED, **none, missing=why))
    assert row.get("latency_p50_ns") is None
    assert reasons["latency_p50_ns"] == reasons["latency_sent_p50_ns"] == why["latency"]
    assert (row["tx_stamped_packets"], row["tx_unstamped_packets"]) == (0, 400)
    row, reasons = columns(burst())
    assert (row["tx_stamped_packets"], row["unmatched_packets"]) == (None, None)
    assert reasons["tx_unstamped_packets"] == "the TG's device was not asked when it sent frames"


@pytest.mark.parametrize(
    ("counts", "refused"),
    [({}, 0), ({"bad_run_id": 1, "stale_packets": 20, "altered_packets": 300}, 321), ({"bad_run_id": None}, None)],
)
def test_frames_with_the_magic_that_are_none_of_this_burst_are_refused(
    counts: dict[str, Any], refused: int | None
) -> None:
    row, reasons = columns(burst(**counts))
    assert row["refused_packets"] == refused
    assert ("refused_packets" in reasons) == (refused is None)


@pytest.mark.parametrize("why", ["the driver has no such counter", None])
def test_what_the_device_refused_is_null_with_a_reason_where_nobody_counts(why: str | None) -> None:
    row, reasons = columns(burst(tx_errors=None, tx_errors_missing=why))
    assert row["tx_errors"] is None
    assert reasons["tx_errors"] == (why or "this generator does not count them")


def test_frames_of_several_sizes_are_counted_by_size_and_their_mean_is_counted() -> None:
    sent, back, size = [[64, 300], [1518, 100]], [[64, 300], [1518, 20]], 300 * 64 + 100 * 1518
    mixed = burst(rx=(80, 80, 80, 80), tx_bytes=size, tx_by_size=sent, rx_by_size=back, rx_window_packets=320)
    row, reasons = columns(mixed)
    assert (row["tx_by_size"], row["rx_by_size"]) == ('{"64": 300, "1518": 100}', '{"64": 300, "1518": 20}')
    assert row["frame_mean_bytes"] == (300 * 64 + 100 * 1518) / 400
    assert not {"tx_by_size", "rx_by_size"} & reasons.keys()
    row, reasons = columns(burst())
    assert reasons["rx_by_size"] == "all frames have one size, or those of a pcap"
    assert row["frame_mean_bytes"] is None


GENERATED = {"accesses": 0, "mode": "native", "action": "tx", "dut_driver": "veth"}
USERS = GENERATED | {"accesses": None, "frame_bytes": 1518}
UNHEARD: dict[str, Any] = {"rx_packets": None, "rx_by_queue": None, "rx_missing": "frames of a file are not marked"}


@pytest.mark.parametrize(
    ("row", "summary", "done", "mean"),
    [
        (GENERATED | {"frame_bytes": 64}, {"rx_bytes": 400 * 64}, 400, 64),
        (GENERATED, {"rx_bytes": 300 * 64 + 100 * 1518}, 400, (300 * 64 + 100 * 1518) / 400),
        (USERS, {"rx_bytes": 100 * 1518, "foreign_packets": 300, "foreign_bytes": 300 * 64}, 400, 427.5),
        (USERS, {"rx_bytes": 0, "foreign_packets": 400, "foreign_bytes": 400 * 64}, 400, 64),  # all were shortened
        (USERS | {"dut_tx_mean_bytes": 60.0}, UNHEARD, 400, 64),
        (USERS | {"dut_tx_mean_bytes": 46.0, "mode": "generic"}, UNHEARD, 400, 64),  # a packet buffer's
        (USERS | {"dut_tx_mean_bytes": 46.0, "mode": "tcx"}, UNHEARD, 400, 64),
        (USERS | {"dut_tx_mean_bytes": 46.0, "mode": "tc"}, UNHEARD, 400, 64),
        (USERS, UNHEARD, 400, None),
        (USERS | {"action": "drop"}, UNHEARD, 400, 1518),  # processed as it came
        (USERS | {"action": "drop", "frame_bytes": None, "frame_mean_bytes": 700.0}, UNHEARD, 400, 700),
        (USERS | {"action": "drop", "frame_bytes": None, "frame_mean_bytes": 700.0}, UNHEARD, 300, None),
    ],
)
def test_bits_are_of_the_size_that_was_forwarded(
    row: dict[str, Any], summary: dict[str, Any], done: int, mean: float | None
) -> None:
    """By the size sent, a program that cuts 1518 B to 60 had 143 Gbit/s for 6."""
    rx = 100 if summary.get("foreign_packets") == 300 else 0 if "foreign_packets" in summary else 400
    one = burst(**({"rx_packets": rx} | summary)).summary
    given = {"frame_bytes": None, "frame_mean_bytes": row.get("frame_bytes"), "dut_tx_mean_bytes": None} | row
    if mean is not None:
        assert mean_forwarded(given, one, done) == mean
        return
    with pytest.raises(Absent):
        mean_forwarded(given, one, done)


VETH = "NIC statistics:\n     peer_ifindex: 2\n     rx_queue_0_xdp_packets: 0\n     rx_queue_0_xdp_bytes: 0\n"


@pytest.mark.parametrize(
    ("engine", "link", "expected"),
    [
        ("moongen", (400, 900), (400, None, 900, 480)),  # a software driver's ring overflowed unnoticed
        ("moongen", None, (401, None, 402, 3)),  # DPDK has the port: its own registers stand
        ("live", (400, 900), (400, 0, None, None)),
        ("afxdp", (400, 900), (400, 0, None, None)),
    ],
)
def test_what_came_to_the_tgs_port_and_was_not_taken(
    engine: str, link: tuple[int, int] | None, expected: tuple[int | None, ...], tmp_path: Path
) -> None:
    (tmp_path / "counters").mkdir()
    for when, times in (("before", 0), ("after", 1)):
        tx, rx = (count * times for count in link or (0, 0))
        none = {"bytes": 0, "errors": 0, "dropped": 0}
        (tmp_path / "counters" / f"tg.driver.{when}.txt").write_text("driver: veth\n")
        (tmp_path / "counters" / f"tg.ethtool.{when}.txt").write_text(VETH)
        stats = {"rx": {"packets": rx, **none}, "tx": {"packets": tx, **none}}
        text = json.dumps([{"ifname": "t", "stats64": stats, "xdp": {"attached": []}}])
        name = f"tg.iplink.{when}." + ("json" if link else "err")
        (tmp_path / "counters" / name).write_text(text if link else "Device does not exist")
    one = burst(device_tx_packets=401, device_rx_packets=402, device_rx_missed=3)
    row = row_of(burst=one, raw=tmp_path, engine=engine)
    names = ("tg_port_tx_packets", "tg_port_dropped_packets", "tg_port_rx_packets", "tg_missed_packets")
    assert tuple(row[name] for name in names) == expected


def test_the_headline_of_a_paced_load_counts_from_the_due_time() -> None:
    row, reasons = columns(burst(*TIMES, **PACED))
    assert (row["latency_from"], row["latency_max_ns"], row["latency_sent_max_ns"]) == ("due", 95_000, 5_000)
    assert (row["late_p50_ns"], row["late_max_ns"]) == (0, 90_000)
    assert row["latency_samples"] == 2
    assert (row["tx_pause_ms"], row["tx_paused_ms"]) == (0.09, None)
    assert "latency_p50_ns" not in reasons


def test_at_maximum_load_it_counts_from_sending() -> None:
    row, reasons = columns(burst())
    assert (row["latency_from"], row["latency_max_ns"], row["latency_sent_max_ns"]) == ("sent", 700, 700)
    assert row["late_p50_ns"] is None
    assert reasons["late_p50_ns"] == "at maximum load no frame is due"
    assert (row["tx_pause_ms"], row["tx_paused_ms"], row["tx_busy_cores"]) == (3.0, 5.0, 0.98)


def test_a_generator_that_knows_no_due_times_has_no_headline_at_a_paced_load() -> None:
    less = {"rx_window_packets": None, "rx_window_s": None, "tx_busy_cores": None}
    row, reasons = columns(burst(**PACED | less))
    assert row["latency_p50_ns"] is None
    assert "did not record latencies from the due time" in reasons["latency_p50_ns"]
    assert row["latency_sent_max_ns"] == 700
    assert (row["latency_from"], row.get("drained_packets")) == (None, None)
    assert "did not count the frames as the window ended" in reasons["drained_packets"]


def test_a_rate_is_over_the_window_obtained_with_a_drain_or_without() -> None:
    """A watcher that is 2.7 ms late also counts the frames of these 2.7 ms: both kinds of row divide by its time."""
    for drained in (20, 0):
        late = burst(rx=(100, 100, 100, 100 + drained), rx_window_s=0.4027)
        assert columns(late)[0]["drained_packets"] == drained
        assert in_window(late, 400 + drained) == (400, 0.4027)


@pytest.mark.parametrize(("percent", "least"), [(50, 2), (90, 10), (99, 100), (99.9, 1000)])
def test_a_percentile_that_would_be_the_maximum_is_null(percent: float, least: int) -> None:
    """At 1 kpps a window of 0.3 s has some 17 stamped frames: its p99, 1.8 µs, looked better than that of all frames,
    2.3 µs, and p99.9 was the maximum in all 144 paced trials of a run."""
    enough, few = (burst(histogram("from_sent", *range(0, 1000 * n, 1000))).histogram for n in (least, least - 1))
    assert resolved_percentile(enough, percent) < 1000 * (least - 1) == enough.max
    with pytest.raises(Absent, match=f"{least - 1} stamped frames?, and this takes {least:,}: `stamp: 1`"):
        resolved_percentile(few, percent)


@pytest.mark.parametrize(("drained", "seconds"), [(0, 0.4), (20, 0.422)])
def test_a_count_that_is_late_is_of_the_window_if_the_dut_was_idle_by_then(drained: int, seconds: float) -> None:
    """A trial at 27.2 kpps whose 8,153 frames were all back within 17 µs was counted 22 ms later, and had 25.3 kpps,
    6.8 % less than was sent and received. Of a DUT that was still busy, the late count has more than the window's."""
    late = burst(rx=(100, 100, 100, 100 + drained), rx_window_s=0.422)
    row, _ = columns(late)
    assert in_window(late, 400 + drained) == (400, seconds)
    assert (row["drained_packets"], row["rate_change_kind"]) == (drained, "steady")
    assert Offered.of(late).received_pps == 400 / seconds


def test_counts_at_rest_are_over_the_time_in_which_frames_were_sent() -> None:
    one = burst()
    assert in_window(one, 433) == (433, 0.4)
    less = burst(rx_window_packets=None, rx_window_s=None)
    assert in_window(less, 420) == (420, 0.4)


@pytest.mark.parametrize(
    ("rx", "window", "kind", "change"),
    [
        ((100, 100, 100, 160), 400, "steady", 0.0),  # the drain is no step
        ((0, 0, 0, 0), 0, "steady", 0.0),  # nothing comes back: the sent frames tell
        ((60, 62, 130, 168), 400, "step", 78 / 100),
    ],
)
def test_a_rate_that_changes_within_the_window_is_said(
    rx: tuple[int, ...], window: int, kind: str, change: float
) -> None:
    row, _ = columns(burst(rx=rx, rx_window_packets=window))
    assert (row["rate_change_kind"], row["rate_change"]) == (kind, pytest.approx(change))


def test_the_course_of_what_came_back_ends_with_its_window() -> None:
    """The sender went on until a slow kernel had taken its frames."""
    one = burst(rx=(60, 62, 130, 168), duration_s=0.8)
    *before, last = one.intervals
    found = burst_course(replace(one, intervals=(*before, replace(last, t_s=0.8))))
    assert found is not None
    assert (found.kind, found.change) == ("step", pytest.approx(78 / 100, rel=1e-3))


def test_no_stamp_no_latency() -> None:
    row, reasons = columns(burst(histogram(None)))
    assert (row["latency_samples"], row.get("latency_p50_ns")) == (0, None)
    assert reasons["latency_p50_ns"] == "no stamped frame came back"
