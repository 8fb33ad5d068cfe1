"""Two counts of the same frames must agree: of those handed over, sent, received, decided on, and come back."""

import json

import pytest

from xdplab.analysis.count_rules import (
    closed_loop_is_closed,
    frames_arrive_as_sent,
    frames_left_whole,
    link_counts_what_xdp_takes,
    program_saw_what_was_counted,
    tg_count,
    tg_port_sent,
)
from xdplab.analysis.verdicts import RULES, judge

LIVE = {
    "arrangement": "shared", "mode": "generic", "engine": "live", "action": "tx", "program_name": "mine.bpf.c",
    "queues": 1, "frame_bytes": 64, "frame_mean_bytes": 64.0, "window_s": 0.3, "load": "max", "tx_errors": 0,
    "tx_packets": 8_532_736, "tg_port_tx_packets": 8_532_736, "tg_port_dropped_packets": 0,
    "dut_rx_packets": 8_532_736, "dut_tx_packets": 8_532_736, "rx_packets": 8_532_736, "foreign_packets": 0,
    "dut_rx_mean_bytes": 60.0, "offered_pps": 28e6, "forwarded_pps": 28e6,
}  # fmt: skip
STOPPED = {"dut_rx_packets": 85_998, "dut_tx_packets": 85_998, "rx_packets": 85_998}
LARGE = {"frame_bytes": 1518, "frame_mean_bytes": 1518.0}
SPLIT = {"arrangement": "split"}
FULL = {"tg_port_tx_packets": 85_998, "tx_errors": 8_446_738, "tg_port_dropped_packets": 8_446_738}


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        ({}, True),
        (STOPPED | {"tg_port_tx_packets": 85_998}, False),  # refused before it was sent, and counted by nobody
        (SPLIT | STOPPED | {"tg_port_tx_packets": 85_998, "tx_errors": 8_446_738}, False),  # told, and on no link
        (SPLIT | STOPPED | FULL, True),  # the DUT's ring was full
        (STOPPED | FULL | {"tg_port_dropped_packets": 0, "link_bps": 1e10}, True),  # a card's ring
        ({"tg_port_tx_packets": 0}, True),  # the DUT received them: this port's counter leaves them out
        ({"tg_port_tx_packets": None}, True),
    ],
)
def test_a_frame_that_was_handed_over_was_sent_or_refused(change: dict[str, object], holds: bool) -> None:
    assert (tg_port_sent(LIVE | change) is None) == holds


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        ({}, True),
        (STOPPED, False),
        (STOPPED | SPLIT, True),
        (STOPPED | {"rate_requested_pps": 2e7}, True),
        ({"dut_rx_packets": None}, True),
    ],
)
def test_at_maximum_load_a_closed_loop_loses_no_frame(change: dict[str, object], holds: bool) -> None:
    assert (closed_loop_is_closed(LIVE | change) is None) == holds


@pytest.mark.parametrize(("driver", "closed"), [("veth", True), ("netkit", True), (None, True), ("virtio_net", False)])
def test_the_ring_of_a_guests_card_overflows_and_is_no_closed_loop(driver: str | None, closed: bool) -> None:
    reason = closed_loop_is_closed(LIVE | STOPPED | {"dut_driver": driver}) or ""
    assert ("closed loop" in reason, "virtio_net" in reason) == (closed, not closed)


@pytest.mark.parametrize(("changed", "holds"), [(0, True), (80_000, True), (90_000, False), (None, True)])
def test_a_frame_that_may_carry_what_was_written_before_is_not_the_one_asked_for(
    changed: int | None, holds: bool
) -> None:
    assert (frames_left_whole(LIVE | {"tx_restored": True, "tx_unrestored_packets": changed}) is None) == holds


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tx_restored": True}, True),
        ({"tx_restored": False}, False),
        ({"tx_restored": True, "load": "20kpps", "rate_requested_pps": 2e4}, False),
    ],
)
def test_a_sender_that_writes_each_frame_whole_is_mentioned_where_the_rate_is_its_own(
    change: dict[str, object], said: bool
) -> None:
    assert ("the sender wrote each frame whole" in judge(LIVE | change).reason) == said


SKB = {"engine": "afxdp", "mode": "native"}


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        ({}, True),
        ({"dut_rx_mean_bytes": 56.0}, True),  # without a tag that the card removed
        ({"dut_rx_mean_bytes": 55.3}, False),  # more than a hundredth less
        ({"dut_rx_mean_bytes": 64.7}, False),
        ({"frame_bytes": None, "dut_rx_mean_bytes": 30.0, "dut_rx_packets": 8_447_400}, True),
        ({"frame_bytes": None, "dut_rx_mean_bytes": 30.0, "dut_rx_packets": 8_447_410}, False),
        ({"dut_rx_mean_bytes": 64.0}, True),  # a card that counts the FCS
        ({"dut_rx_mean_bytes": 52.0}, False),  # 60, 52 and 44 bytes, a third each
        ({"dut_rx_mean_bytes": 735.8}, False),
        (LARGE | {"dut_rx_mean_bytes": 1514.0}, True),
        (LARGE | {"dut_rx_mean_bytes": 60.03}, False),
        (SKB | {"dut_rx_mean_bytes": 46.0}, True),  # without the Ethernet header
        (SKB | LARGE | {"dut_rx_mean_bytes": 1500.0}, True),
        ({"dut_rx_mean_bytes": 62.5, "dut_rx_packets": 30, "tx_packets": 30}, True),  # a stray among few
        ({"frame_bytes": None, "frame_mean_bytes": 366.0, "dut_rx_mean_bytes": 362.0}, True),
        ({"frame_bytes": None, "frame_mean_bytes": 366.0, "dut_rx_mean_bytes": 300.0}, False),
        (
            {"frame_bytes": None, "dut_rx_mean_bytes": 300.0, "dut_rx_packets": 8_000_000},
            True,
        ),  # the large ones were lost
        ({"dut_rx_mean_bytes": None}, True),
    ],
)
def test_the_dut_receives_frames_of_the_size_that_was_sent(change: dict[str, object], holds: bool) -> None:
    assert (frames_arrive_as_sent(LIVE | change) is None) == holds


UNKNOWN = {"arrangement": "hosts", "mode": "native", "dut_counted_by": "link", "action": "drop"}
STRAYS = {"dut_rx_packets": 12}
CONFIRMED = {"dut_rx_packets": 5_000_000, "actions_counted": json.dumps({"drop": 400_000})}


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        ({}, True),
        (STRAYS, False),
        (STRAYS | {"mode": "offload"}, False),
        (STRAYS | {"dut_counted_by": "driver"}, True),
        (CONFIRMED | {"actions_received": 400_010}, True),
        (STRAYS | {"action": "tx"}, True),  # the TG counts what came back
    ],
)
def test_the_link_of_an_unknown_driver_is_believed_if_it_counted_all(change: dict[str, object], holds: bool) -> None:
    assert (link_counts_what_xdp_takes(LIVE | UNKNOWN | change) is None) == holds


@pytest.mark.parametrize(
    ("received", "decided", "holds"), [(644_800, 283_219, False), (12, 400_000, False), (1000, 1000, True)]
)
def test_the_counter_that_judges_counts_what_the_program_saw(received: int, decided: int, holds: bool) -> None:
    """A backlog between link and program dropped most of them: 3.5 Mpps were told where the program saw 0.9."""
    counts = {"actions_received": received, "actions_counted": json.dumps({"drop": decided, "pass": 0})}
    row = LIVE | {"action": "drop"} | counts
    assert (program_saw_what_was_counted(row) is None) == holds
    assert program_saw_what_was_counted(row | {"action": "tx"}) is None, "what comes back is counted itself"


@pytest.mark.parametrize("mode", ["generic", "tcx", "tc"])
def test_a_backlog_behind_the_link_is_read_in_the_window_too(mode: str) -> None:
    row = LIVE | {"mode": mode, "action": "drop", "host_softnet_dropped": 4_000_000}
    assert "of which a backlog dropped 4000000" in (program_saw_what_was_counted(row) or "")
    for change in ({"host_softnet_dropped": 1000}, {"mode": "native"}, {"action": "tx"}):
        assert program_saw_what_was_counted(row | change) is None


@pytest.mark.parametrize("rule", [tg_port_sent, closed_loop_is_closed, frames_arrive_as_sent,
                                  link_counts_what_xdp_takes, program_saw_what_was_counted])  # fmt: skip
def test_the_verdict_asks_each(rule: object) -> None:
    assert rule in RULES
    assert judge(LIVE).verdict == "valid"


@pytest.mark.parametrize(
    ("received", "foreign", "dut", "count"),
    [
        (5_160_754, 25_934, 5_186_688, 5_186_688),  # one frame in 200 was rewritten
        (5_186_688, 12, 5_186_688, 5_186_688),  # strays
        (0, 5_186_688, 5_186_688, 5_186_688),
        (5_160_754, 25_934, None, 5_186_688),
        (None, 3, 5_186_688, None),
    ],
)
def test_rewritten_frames_came_back(received: int | None, foreign: int, dut: int | None, count: int | None) -> None:
    row = LIVE | {"tx_packets": 5_186_688, "rx_packets": received, "foreign_packets": foreign, "dut_tx_packets": dut}
    assert tg_count(row) == count
    assert tg_count(row | {"workload": "array"}) == received, "a generated program never rewrites"


def test_what_was_lost_in_a_closed_loop_is_said() -> None:
    lost = LIVE | {"rx_packets": 8_000_000, "dut_tx_packets": 8_000_000}
    assert "6.24% of the frames did not come back" in judge(lost).reason
    assert "did not come back" not in judge(lost | SPLIT).reason


def test_more_than_the_asked_load_is_said() -> None:
    slow = {"rate_requested_pps": 1.0, "offered_pps": 2.5, "window_s": 0.4}
    slow |= dict.fromkeys(("tx_packets", "rx_packets", "dut_rx_packets", "dut_tx_packets", "tg_port_tx_packets"), 1)
    assert "more than the load was offered: 2.5 pps were offered, 250.0% of the 1 pps" in judge(LIVE | slow).reason
    near = {"rate_requested_pps": 1000.0, "offered_pps": 1003.0}
    assert "was offered" not in judge(LIVE | near).reason


def test_frames_that_an_application_answered_are_said() -> None:
    answered = LIVE | {"action": "pass", "tx_packets": 1_290_944, "rx_packets": 79_745, "dut_tx_packets": 79_745}
    answered |= dict.fromkeys(("dut_rx_packets", "tg_port_tx_packets"), 1_290_944)
    answered |= {"actions_counted": json.dumps({"pass": 1000})}
    assert "79745 of 1290944 frames (6.2%) came back" in judge(answered).reason
    assert "came back" not in judge(answered | {"rx_packets": 0}).reason
