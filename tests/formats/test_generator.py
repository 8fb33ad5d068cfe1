"""A generator's lines: complete outputs are read, all others are refused, and a histogram's numbers are right."""

import json
import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xdplab.absent import Absent
from xdplab.errors import FormatError
from xdplab.formats.generator import GeneratorInterval, Histogram, bucket_width, parse_line, parse_output

SUB_BITS = 7

READY = {
    "type": "ready", "engine": "live", "queues_reached": 1, "cpus": [0], "sched_policy": "SCHED_FIFO:5",
    "frame_bytes": 64, "run_id": "beef",
}  # fmt: skip
INTERVAL = {"type": "interval", "burst": "measure", "t_s": 0.1, "tx_packets": 40, "rx_packets": 39}
SUMMARY = {
    "type": "summary", "burst": "measure", "duration_s": 0.1, "tx_packets": 40, "rx_packets": 40, "lost_packets": 1,
    "duplicates": 1, "reordered": 0, "foreign_packets": 2, "bad_run_id": 0, "tx_errors": None,
    "tx_errors_missing": "no tracepoint", "tx_by_queue": [40], "rx_by_queue": [40], "rate_requested_pps": None,
    "limited": None,
}  # fmt: skip


def lower_bound(value: int) -> int:
    return value - value % bucket_width(value, SUB_BITS)


def histogram_line(values: list[int], burst: str = "measure") -> dict[str, object]:
    counts: dict[int, int] = {}
    for value in values:
        counts[lower_bound(value)] = counts.get(lower_bound(value), 0) + 1
    return {
        "type": "histogram", "burst": burst, "unit": "ns", "scheme": "log-linear", "sub_bits": SUB_BITS,
        "count": len(values), "min": min(values, default=None), "max": max(values, default=None), "sum": sum(values),
        "buckets": sorted([lower, count] for lower, count in counts.items()),
    }  # fmt: skip


def histogram(values: list[int]) -> Histogram:
    record = parse_line(json.dumps(histogram_line(values)))
    return record


def text(*lines: dict[str, object]) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


HISTOGRAM = histogram_line([100, 5000, 5001])
DETACHED = {"type": "detached", "bursts": 1}
WHOLE = text(READY, INTERVAL, SUMMARY, HISTOGRAM, DETACHED)


def test_whole_output() -> None:
    output = parse_output(WHOLE.encode())
    assert output.ready.cpus == (0,)
    assert output.ready.settings == {name: value for name, value in READY.items() if name != "type"}
    second = INTERVAL | {"t_s": 0.2, "tx_packets": 7, "rx_packets": 6}
    (burst,) = parse_output(text(READY, INTERVAL, second, SUMMARY, HISTOGRAM, DETACHED)).bursts
    assert burst.intervals == (GeneratorInterval("measure", 0.1, 40, 39), GeneratorInterval("measure", 0.2, 7, 6))
    assert [parse_line(json.dumps(HISTOGRAM | ends)).sum for ends in ({"sum": 300}, {"sum": 15_003})] == [300, 15_003]
    assert (burst.summary.tx_packets, burst.summary.lost_packets, burst.summary.tx_errors) == (40, 1, None)
    assert burst.summary.missing["tx_errors"] == "no tracepoint"
    assert burst.histogram.buckets == ((100, 1), (4992, 2))


def test_a_paced_burst_has_latencies_from_the_due_time_and_from_sending() -> None:
    due = histogram_line([300, 9000]) | {"of": "from_due"}
    late = histogram_line([0, 4000]) | {"of": "lateness"}
    sent = histogram_line([300, 5000]) | {"of": "from_sent"}
    summary = SUMMARY | {
        "rate_requested_pps": 400.0,
        "rx_window_packets": 38,
        "rx_window_s": 0.1001,
        "tx_busy_cores": 0.5,
    }
    (burst,) = parse_output(text(READY, summary, late, due, sent, DETACHED)).bursts
    assert (burst.summary.rx_window_packets, burst.summary.rx_window_s) == (38, 0.1001)
    assert burst.latency is burst.from_due
    assert burst.latency.max == 9000
    assert (burst.lateness.min, burst.lateness.max) == (0, 4000)
    assert burst.histogram.max == 5000


@pytest.mark.parametrize(
    ("in_window", "window_s", "counted_s"),
    [(39, 0.1012, 0.1), (39, 0.1009, 0.1009), (38, 0.2, 0.2), (38, None, None)],
)
def test_frames_that_were_counted_late_came_within_the_burst_if_none_came_since(
    in_window: int, window_s: float | None, counted_s: float | None
) -> None:
    window = {"duration_s": 0.1, "rx_packets": 39, "rx_window_packets": in_window, "rx_window_s": window_s}
    (burst,) = parse_output(text(READY, INTERVAL, SUMMARY | window, HISTOGRAM, DETACHED)).bursts
    assert burst.summary.counted_s == counted_s


def test_an_older_paced_burst_has_no_latency_from_the_due_time() -> None:
    (burst,) = parse_output(text(READY, SUMMARY | {"rate_requested_pps": 400.0}, HISTOGRAM, DETACHED)).bursts
    assert (burst.latency, burst.from_due, burst.lateness) == (None, None, None)
    (unpaced,) = parse_output(WHOLE).bursts
    assert unpaced.latency is unpaced.histogram


def test_a_count_that_was_not_taken_is_null_and_never_0() -> None:
    unseen = dict.fromkeys(("rx_packets", "lost_packets", "duplicates", "reordered", "foreign_packets", "bad_run_id"))
    summary = SUMMARY | unseen | {"rx_by_queue": None, "rx_missing": "--no-receive"}
    output = parse_output(text(READY, summary, histogram_line([]), DETACHED))
    assert output.bursts[0].summary.rx_packets is None
    assert set(output.bursts[0].summary.missing) >= {"rx_packets", "rx_by_queue", "rx_flows", "bad_stamps", "tx_errors"}
    summary = output.bursts[0].summary
    for name, why in (("rx_packets", "--no-receive"), ("tx_errors", "no tracepoint"), ("probes_sent", "no probes")):
        with pytest.raises(Absent, match=why):
            summary.required(name, "no probes")
    assert summary.required("tx_by_queue", "no probes") == (40,)
    assert output.bursts[0].histogram.percentile(50) is None
    assert output.bursts[0].histogram.mean is None


def test_own_failure_is_read() -> None:
    failure = {"type": "error", "step": "attach", "errno": 16, "error": "EBUSY", "message": "vg0 has a program"}
    output = parse_output(text(failure))
    assert (output.failure.step, output.failure.error) == ("attach", "EBUSY")
    assert parse_output(text(READY, failure)).ready is not None


@settings(deadline=None)
@given(st.integers(0, len(WHOLE) - 1))
def test_killed_at_any_byte_is_recognised(cut: int) -> None:
    with pytest.raises(FormatError):
        parse_output(WHOLE[:cut])


@settings(deadline=None)
@given(st.one_of(st.text(), st.binary()))
def test_foreign_input_is_refused(data: str | bytes) -> None:
    with pytest.raises(FormatError):
        parse_output(data)


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        ((READY, {"type": "stats"}), 2),
        ((INTERVAL, SUMMARY), 1),
        ((READY, HISTOGRAM, SUMMARY, DETACHED), 2),
        ((READY, INTERVAL, SUMMARY | {"burst": "other"}, HISTOGRAM, DETACHED), 3),
        ((READY, SUMMARY | {"tx_packets": -1}, HISTOGRAM, DETACHED), 2),
        ((READY, {k: v for k, v in SUMMARY.items() if k != "rx_packets"}, HISTOGRAM, DETACHED), 2),
        ((READY, SUMMARY, HISTOGRAM | {"unit": "us"}, DETACHED), 3),
        ((READY, SUMMARY, HISTOGRAM | {"of": "something"}, DETACHED), 3),
        ((READY, SUMMARY, HISTOGRAM | {"of": "lateness"}, HISTOGRAM | {"of": "lateness"}, HISTOGRAM, DETACHED), 4),
        ((READY, SUMMARY, HISTOGRAM | {"count": 4}, DETACHED), 3),
        ((READY, SUMMARY, HISTOGRAM | {"min": 99}, DETACHED), 3),
        ((READY, SUMMARY, HISTOGRAM | {"buckets": [[100, 1], [4993, 2]]}, DETACHED), 3),
        ((READY, SUMMARY, HISTOGRAM | {"max": 5120}, DETACHED), 3),
        ((READY, SUMMARY, HISTOGRAM | {"sum": 299}, DETACHED), 3),
        ((READY, SUMMARY, HISTOGRAM | {"sum": 15_004}, DETACHED), 3),
        ((READY, SUMMARY, HISTOGRAM | {"min": None}, DETACHED), 3),
        ((READY, SUMMARY, HISTOGRAM | {"buckets": [[100, 1], [4992, 2], [8192, 0]]}, DETACHED), 3),
        ((READY, SUMMARY, HISTOGRAM | {"buckets": [[4992, 2], [100, 1]]}, DETACHED), 3),
        ((READY, SUMMARY, HISTOGRAM | {"scheme": "linear"}, DETACHED), 3),
        ((READY, SUMMARY, histogram_line([]) | {"min": 1, "max": 1}, DETACHED), 3),
        ((READY, SUMMARY, histogram_line([]) | {"min": 1}, DETACHED), 3),
        ((READY, SUMMARY, histogram_line([]) | {"max": 1}, DETACHED), 3),
        ((READY, SUMMARY, histogram_line([]) | {"sum": 1}, DETACHED), 3),
        ((READY, INTERVAL, INTERVAL | {"burst": "other"}, SUMMARY, HISTOGRAM, DETACHED), 3),
        ((READY, SUMMARY, SUMMARY, HISTOGRAM, DETACHED), 3),
        ((READY, READY, SUMMARY, HISTOGRAM, DETACHED), 2),
        ((READY, SUMMARY, HISTOGRAM, DETACHED, INTERVAL), 5),
    ],
)
def test_refusal_names_the_line(lines: tuple[dict[str, object], ...], line: int) -> None:
    with pytest.raises(FormatError, match=f"line {line}:"):
        parse_output(text(*lines))


def test_a_line_that_is_no_json_is_named() -> None:
    with pytest.raises(FormatError, match="line 7:"):
        parse_line("{", 7)


@pytest.mark.parametrize(("lines", "bursts"), [((SUMMARY, HISTOGRAM), 2), ((INTERVAL,), 0)])
def test_bursts_are_counted_by_the_last_line(lines: tuple[dict[str, object], ...], bursts: int) -> None:
    with pytest.raises(FormatError, match="whole bursts"):
        parse_output(text(READY, *lines, DETACHED | {"bursts": bursts}))


values = st.lists(st.integers(0, 2**36 - 1), min_size=1, max_size=200)


@settings(deadline=None)
@given(values, st.floats(0, 100))
def test_percentile_is_within_half_a_bucket(data: list[int], q: float) -> None:
    exact = sorted(data)[max(1, math.ceil(Fraction(str(q)) * len(data) / 100)) - 1]
    found = histogram(data).percentile(q)
    assert abs(found - exact) <= exact * 2 ** -(SUB_BITS + 1)
    assert min(data) <= found <= max(data)


def test_a_rank_is_exact() -> None:
    assert histogram(list(range(4000))).percentile(99.9) == lower_bound(3995) + 7.5


@settings(deadline=None)
@given(values)
def test_ends_and_mean_are_exact(data: list[int]) -> None:
    h = histogram(data)
    assert h.percentile(100) == max(data)
    assert h.mean == pytest.approx(sum(data) / len(data))
    assert min(data) <= h.mean <= max(data) * (1 + 1e-12)


@settings(deadline=None)
@given(values, values)
def test_merge_equals_the_histogram_of_both(one: list[int], other: list[int]) -> None:
    assert histogram(one).merge(histogram(other)) == histogram(one + other)


def test_merge_refuses_other_buckets() -> None:
    with pytest.raises(ValueError, match="do not add up"):
        histogram([1]).merge(Histogram("measure", 5, 0, None, None, 0, ()))
    with pytest.raises(ValueError, match="from_sent and of lateness do not add up"):
        histogram([1]).merge(Histogram("measure", SUB_BITS, 0, None, None, 0, (), of="lateness"))


def test_ready_of_another_generator_needs_the_common_fields_only() -> None:
    record = parse_line(json.dumps(READY | {"engine": "moongen", "frame_bytes": None}))
    assert record.frame_bytes is None
