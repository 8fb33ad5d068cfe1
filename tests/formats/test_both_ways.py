"""Two bursts of two directions are one burst with the sums."""

import json
from dataclasses import fields, replace

import pytest

from xdplab.formats.both_ways import both
from xdplab.formats.generator import Burst, Summary, parse_output


def burst(**summary: object) -> Burst:
    """Return a burst as xdpgen prints it."""
    counts = {"rx_packets": 9, "lost_packets": 1, "duplicates": 0, "reordered": 0, "foreign_packets": 0}
    own = {
        "type": "summary", "burst": "rate", "duration_s": 1.0, "tx_packets": 10, "tx_errors": 0, "tx_by_queue": [10],
        "rate_requested_pps": 10.0, "rx_by_queue": [9], "limited": None, "bad_run_id": 0, "tx_late_max_ns": 7,
        "rx_window_packets": 8, "rx_window_s": 1.1, "tx_busy_cores": 0.5, "tx_by_size": [[64, 7], [128, 3]],
        **counts, **summary,
    }  # fmt: skip
    lines = [
        {"type": "ready", "engine": "live", "queues_reached": 1, "cpus": [0], "sched_policy": "", "frame_bytes": 64},
        {"type": "interval", "burst": "rate", "t_s": 0.5, "tx_packets": 5, "rx_packets": 4},
        {"type": "interval", "burst": "rate", "t_s": 1.0, "tx_packets": 5, "rx_packets": 5},
        own,
        {"type": "histogram", "burst": "rate", "unit": "ns", "scheme": "log-linear", "sub_bits": 7, "count": 1,
         "min": 9, "max": 9, "sum": 9, "buckets": [[9, 1]]},
        {"type": "detached", "bursts": 1},
    ]  # fmt: skip
    return parse_output("".join(json.dumps(line) + "\n" for line in lines)).bursts[0]


LONGEST = {"duration_s", "rx_window_s", "tx_pause_max_ns", "tx_paused_ns", "tx_late_max_ns"}
LISTS = {
    "tx_by_queue": ((1, 2), (3,), (1, 2, 3)),
    "rx_by_queue": ((4,), (5, 6), (4, 5, 6)),
    "tx_by_size": (((64, 7), (128, 3)), ((256, 2), (64, 20)), ((64, 27), (128, 3), (256, 2))),
    "rx_by_size": (((64, 1),), ((64, 2),), ((64, 3),)),
    "rx_by_rank": ((1, 2), (10, 20), (11, 22)),
}
FACTS = {"burst", "limited", "interrupted", "missing", "tx_restored"}


def test_counts_are_added_and_times_are_the_longer_ones() -> None:
    """Each field has two numbers of its own, the larger one now in the first direction, now in the second."""
    numbers = [one.name for one in fields(Summary) if one.name not in (*LISTS, *FACTS)]
    pairs = {name: (3 + 7 * at, 5 + 9 * (len(numbers) - at)) for at, name in enumerate(numbers)}
    lists = [{name: three[side] for name, three in LISTS.items()} for side in range(3)]
    there, back = (
        replace(own, summary=replace(own.summary, **lists[side], **{name: pair[side] for name, pair in pairs.items()}))
        for side, own in enumerate((burst(), burst()))
    )
    sum_ = both(there, back)
    for name, pair in pairs.items():
        assert getattr(sum_.summary, name) == (max if name in LONGEST else sum)(pair), name
    assert {name: getattr(sum_.summary, name) for name in LISTS} == lists[2]
    assert [(i.t_s, i.tx_packets, i.rx_packets) for i in sum_.intervals] == [(0.5, 10, 8), (1.0, 10, 10)]
    assert (sum_.histogram.count, sum_.histogram.sum) == (2, 18)
    assert sum_.ways == (there, back)
    assert (sum_.from_due, sum_.lateness) == (None, None)
    paced = replace(there, from_due=there.histogram, lateness=there.histogram)
    assert [getattr(both(paced, paced), name).count for name in ("from_due", "lateness")] == [2, 2]
    assert both(paced, back).from_due is both(back, paced).lateness is None
    late = replace(back, intervals=tuple(replace(one, t_s=one.t_s + 1, rx_packets=None) for one in back.intervals))
    for pair in ((there, late), (late, there)):
        assert [(i.t_s, i.rx_packets) for i in both(*pair).intervals] == [(1.5, None), (2.0, None)]


def test_what_one_direction_did_not_count_is_missing_in_the_sum() -> None:
    there = burst()
    back = burst(rx_packets=None, lost_packets=None, rx_by_queue=None, missing={"rx_packets": "no receiver"})
    for pair in ((there, back), (back, there)):
        s = both(*pair).summary
        assert (s.rx_packets, s.lost_packets, s.rx_by_queue) == (None, None, None)
        assert s.missing["rx_packets"] == "no receiver"
        assert s.tx_packets == 20


@pytest.mark.parametrize("interrupted", [(True, False), (False, True)])
def test_an_interrupted_direction_interrupts_both(interrupted: tuple[bool, bool]) -> None:
    one, other = (replace(burst(), summary=replace(burst().summary, interrupted=value)) for value in interrupted)
    assert both(one, other).summary.interrupted
    slow = replace(one, summary=replace(one.summary, limited="by its CPU"))
    assert both(slow, other).summary.limited == both(other, slow).summary.limited == "by its CPU"


@pytest.mark.parametrize("restored", [(False, False), (True, False), (True, True), (None, None)])
def test_a_fact_of_a_direction_is_no_number(restored: tuple[bool | None, bool | None]) -> None:
    """Two of them were added up, and no table could be made of the sum."""
    there, back = (burst(tx_restored=one) for one in restored)
    assert both(there, back).summary.tx_restored is (None if restored == (None, None) else any(restored))
