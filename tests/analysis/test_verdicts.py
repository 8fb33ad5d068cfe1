"""A verdict uses only its own trial: what each rule rejects and accepts, and what limited the trial."""

import json

import pandas as pd
import pytest

from xdplab.analysis.verdicts import RULES, drained_share, judge, loss_share

GOOD = {
    "arrangement": "split", "mode": "native", "engine": "live", "workload": "array", "program_name": "array-read",
    "action": "tx", "queues": 1, "frame_bytes": 64, "window_s": 1.0, "load": "max", "accesses": 100,
    "tx_packets": 4_000_000, "rx_packets": 3_000_000, "dut_rx_packets": 3_000_000, "dut_tx_packets": 3_000_000,
    "offered_pps": 4e6, "forwarded_pps": 3e6, "foreign_packets": 0, "duplicate_packets": 0,
}  # fmt: skip
PACED = {"rate_requested_pps": 4e6, "lost_packets": 1_000_000}
BUNCHED = {"tx_late_packets": 1_000_000, "tx_pause_ms": 52.3}
LATE = {"latency_p50_ns": 3000.0, "latency_sent_p50_ns": 1000.0}
LATE_AT_P99 = {"latency_p99_ns": 134_000.0, "latency_sent_p99_ns": 2_000.0}
PHYSICAL = {"arrangement": "hosts", "link_bps": 10e9}
LINE = 14_880_952  # 64-byte frames per second on 10 Gbit/s: 84 bytes each at L1
FULL = PHYSICAL | dict.fromkeys(("tx_packets", "rx_packets", "dut_tx_packets", "dut_rx_packets", "forwarded_pps"), LINE)
LATER = dict.fromkeys(("tx_packets", "rx_packets", "dut_tx_packets", "dut_rx_packets"), LINE * 1.003) | {
    "rx_ring_entries": 65536
}
AT_REST = {"forwarded_pps": LINE * 1.003}


def test_a_lossy_open_loop_is_valid_and_shows_the_dut() -> None:
    verdict = judge(GOOD)
    assert (verdict.verdict, verdict.limited_by) == ("valid", "dut")
    assert verdict.reason == "TG and DUT agree within 0.00%"


def test_probes_are_the_duts_frames_too_and_those_lost_are_told() -> None:
    probes = {"probes_sent": 100_000, "probes_lost": 20, "dut_rx_packets": 4_099_000, "dut_tx_packets": 3_099_980}
    assert judge(GOOD | probes).reason == (
        "TG and DUT agree within 0.00%; 20 of 100000 probes did not come back with a stamp"
    )
    assert judge(GOOD | probes | {"probes_sent": None, "probes_lost": None}).verdict == "invalid"


def test_latencies_from_the_devices_own_stamp_hold_no_lateness_of_the_sender() -> None:
    """A late sender would make the trial invalid, or be told, though no latency counts from the due time."""
    stamped = GOOD | PACED | LATE | LATE_AT_P99 | {"lost_packets": 0, "rx_packets": 4_000_000, "forwarded_pps": 4e6}
    stamped |= {"dut_rx_packets": 4_000_000, "dut_tx_packets": 4_000_000}
    assert judge(stamped | {"latency_from": "due"}).reason.startswith("the sender had its own core and was late")
    assert judge(stamped | {"latency_from": "sent"}).verdict == "valid"
    assert "was late" not in judge(stamped | {"latency_from": "sent"}).reason
    burst = judge(stamped | {"latency_from": "due", "burst": 512})  # a place in a burst is no lateness
    assert ("was late" in burst.reason, burst.verdict) == (False, "valid")


TWO_PORTS = GOOD | {"action": "redirect", "directions": "both", "rx_packets": 2_000_000, "tx_packets": 2_000_000} | {
    "dut_rx_packets": 2_000_000, "dut_tx_packets": 2_000_000,
    **{f"{way}_{name}": 1_000_000 for way in ("forth", "back")
       for name in ("tx_packets", "dut_rx_packets", "dut_tx_packets", "rx_packets")},
}  # fmt: skip


def both_ways(forth: float, back: float) -> dict[str, object]:
    """Return the counts of a trial on a cable of 10 Gbit/s, in which nothing is lost."""
    ways = {"forth": int(forth * LINE), "back": int(back * LINE)}
    names = ("tx_packets", "rx_packets", "dut_rx_packets", "dut_tx_packets")
    counts = {f"{way}_{name}": frames for way, frames in ways.items() for name in names}
    total = sum(ways.values())
    return TWO_PORTS | PHYSICAL | counts | dict.fromkeys(names, total) | {"forwarded_pps": total, "offered_pps": total}


def test_two_directions_have_a_cables_rate_each() -> None:
    """Their sum was compared with the rate of one: 1.6 times as much as the link can carry."""
    verdict = judge(both_ways(0.8, 0.8))
    assert (verdict.verdict, verdict.limited_by) == ("valid", "generator")
    assert judge(both_ways(0.3, 0.995)).limited_by == "link"
    assert judge(both_ways(0.3, 1.01)).reason == "received 101.0% of what the physical link can carry"
    at_rest = both_ways(0.3, 1.0) | {"rx_packets": None, "rx_ring_entries": 512, "queues": 4}
    assert drained_share(at_rest) == pytest.approx(4 * 512 / LINE), "what its rings hold is of that direction's frames"


@pytest.mark.parametrize(
    ("rate", "mean_bytes", "verdict", "limit"),
    [(10e6, 64, "valid", "dut"), (0.81e6, 1518, "valid", "link"), (0.82e6, 1518, "invalid", None)],
)
def test_the_links_share_is_by_the_sizes_that_were_forwarded(
    rate: float, mean_bytes: int, verdict: str, limit: str | None
) -> None:
    """Of an IMIX the DUT lost one size more than another: the mean size of the frames sent filled three links."""
    counts = dict.fromkeys(("rx_packets", "dut_tx_packets", "dut_rx_packets", "forwarded_pps"), rate)
    row = GOOD | PHYSICAL | counts | {"tx_packets": 12e6, "frame_bytes": None, "frame_mean_bytes": 361.8}
    row |= {"tx_by_size": "{}", "forwarded_l2_bps": rate * mean_bytes * 8}
    found = judge(row)
    assert (found.verdict, found.limited_by) == (verdict, limit)
    assert judge(row | {"forwarded_l2_bps": None}).verdict == "valid"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"back_tx_packets": 0}, "the TG sent no frame"),
        ({"back_rx_packets": None}, "a count is missing"),
        (
            {"back_dut_tx_packets": 0, "back_rx_packets": 0},
            "of 1000000 frames that the TG sent, the DUT received 1000000 and forwarded 0, and the TG received 0",
        ),
        ({"back_rx_packets": 0}, "and forwarded 1000000, and the TG received 0"),
        ({"back_dut_rx_packets": 1_010_001}, "the DUT received 1010001 frames, more than the 1000000 the TG sent"),
        ({"back_rx_packets": 980_000}, "TG and DUT disagree by 2.0%: 1000000 forwarded, 980000 received"),
    ],
)
def test_a_direction_that_is_wrong_is_named_though_the_sums_agree(change: dict[str, object], words: str) -> None:
    assert judge(TWO_PORTS).verdict == "valid"
    verdict = judge(TWO_PORTS | change)
    assert verdict.verdict == "invalid"
    assert verdict.reason.startswith("from the second port to the first: ")
    assert words in verdict.reason
    other = {name.replace("back", "forth"): value for name, value in change.items()}
    assert judge(TWO_PORTS | other).reason.startswith("from the first port to the second: ")


def test_the_loss_of_a_direction_is_told() -> None:
    lost = {"back_dut_tx_packets": 700_000, "back_rx_packets": 700_000, "dut_tx_packets": 1_700_000}
    verdict = judge(TWO_PORTS | lost | {"rx_packets": 1_700_000})
    assert verdict.verdict == "valid"
    assert "; from the second port to the first 30.00% of the frames were lost" in verdict.reason
    assert "were lost" not in judge(TWO_PORTS).reason


SHARED = {"arrangement": "shared", "rx_packets": 4_000_000, "dut_rx_packets": 4_000_000, "dut_tx_packets": 4_000_000}
RING = {"arrangement": "split", "dut_driver": "veth", "dut_rx_packets": 4_000_000, "lost_packets": 1_000_000}
"""The DUT received all, and the TG's end of the veth did not take what it sent back."""
NEVER_REACHED = {"offered_pps": 0.28e6, "rate_requested_pps": 1e6}
USERS = {"workload": None, "accesses": None, "program_name": "lb.bpf.c"}
BACK_NONE = {"rx_packets": 0, "dut_tx_packets": 0}


def decided(**frames: int) -> str:
    return json.dumps({"tx": 0, "drop": 0, "redirect": 0, "pass": 0} | frames)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tx_packets": None}, "the frames sent were not counted"),
        ({"tx_packets": 0, "rx_packets": 0}, "the TG sent no frame"),
        ({"rx_packets": None, "dut_tx_packets": None}, "neither TG nor DUT counted"),
        ({"dut_rx_packets": 0, "rx_packets": 0, "dut_tx_packets": 0}, "no frame reached the DUT"),
        ({"rx_packets": 0}, "the TG was deaf: it counted 0 while the DUT sent 3000000"),
        ({"rx_packets": 0, "foreign_packets": 9}, "sent 3000000 frames back: not only test frames were on the link: 9"),
        ({"rx_packets": 0, "dut_tx_packets": None}, "no count of the DUT tells why"),
        ({"rate_requested_pps": 4.005e6}, "offered 99.88% of the rate asked for"),
        (
            {"rate_requested_pps": 5e6, "generator_pps": 4.1e6},
            "asked for (alone it reaches 4,100,000 frames per second)",
        ),
        (FULL | AT_REST, "100.3% of what"),
        (FULL | LATER | AT_REST, "100.3% of what"),  # the TG counts as the window ends
        (
            FULL | USERS | BACK_NONE | AT_REST | {"action": "drop", "rx_ring_entries": 1024},
            "100.3% of what",
        ),
        (
            {"counters_missing": "dut.iplink.after.json is empty"},
            "rests on cannot be used: dut.iplink.after.json is empty",
        ),
        (
            {"tg_port_tx_packets": 0},
            "the TG lost frames, not the DUT: of 4000000 that its generator sent its port sent 0",
        ),
        (
            {"rx_packets": 1_300_000, "tg_port_rx_packets": 1_300_000, "tg_missed_packets": 1_700_000},
            "the TG lost frames, not the DUT: 1700000 came to its port, which its generator did not take",
        ),
        (
            {
                "rx_packets": 0,
                "dut_tx_packets": 0,
                "path": '{"sent": 300, "back": 0, "dut_received": 300, "dut_sent": 0}',
            },
            "the path carried none of 300 frames sent before the trial: the DUT received 300, sent back 0",
        ),
        (PACED | LATE, "was late: the latency is 3.0 µs from the due time and 1.0 µs from sending (p50)"),
        (NEVER_REACHED, "offered 28.00% of the rate asked for"),
        (NEVER_REACHED | {"arrangement": "hosts"}, "offered 28.00% of the rate asked for"),
        ({"bpf_timed_runs": 1}, "BPF statistics were on in the window"),
        ({"link_changes": 2, "tx_packets": 0}, "the link went down or came up in the window (2 changes)"),
    ],
)
def test_what_is_not_to_be_believed(change: dict[str, object], words: str) -> None:
    verdict = judge(GOOD | change)
    assert verdict.verdict == "invalid"
    assert words in verdict.reason
    assert verdict.limited_by is None


@pytest.mark.parametrize(
    ("counts", "facts"),
    [
        ({"drop": 500, "tx": 0}, ("XDP_DROP 100%", "`maps:`", "`action: drop`")),
        ({"pass": 500}, ("XDP_PASS 100%", "`action: pass`")),
        ({"aborted": 500, "drop": 0}, ("XDP_ABORTED 100%", "`action: mixed`")),
        ({"drop": 300, "pass": 200}, ("XDP_DROP 60%, XDP_PASS 40%", "`action: mixed`")),
        ({"drop": 300, "tx": 200}, ("the path carried none of 7 frames",)),
    ],
)
def test_a_program_that_keeps_every_frame_is_the_reason_with_what_to_do(
    counts: dict[str, int], facts: tuple[str, ...]
) -> None:
    silent = GOOD | {"workload": None, "program_name": "mine.bpf.c", "rx_packets": 0, "dut_tx_packets": 0}
    silent |= {"path": '{"sent": 7, "back": 0, "dut_received": 7, "dut_sent": 0}'}
    verdict = judge(silent | {"actions_counted": json.dumps(counts)})
    assert verdict.verdict == "invalid"
    assert all(fact in verdict.reason for fact in facts)
    twice = {name: 2 * count for name, count in counts.items()}
    assert judge(silent | {"actions_counted": json.dumps(twice)}).reason == verdict.reason, "equal trials, one reason"
    generated = judge(silent | {"actions_counted": json.dumps(counts), "workload": "array"}).reason
    assert generated.startswith("the path carried none of 7 frames"), "its action is proved"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rx_packets": 2_971_000}, "agree within 0.97%"),
        *(({"dut_tx_packets": null}, "one count only: the TG's") for null in (None, pd.NA, float("nan"))),
        ({"rx_packets": None}, "one count only: the DUT's"),
        ({"rx_packets": 0, "dut_tx_packets": 0}, "the DUT forwarded nothing"),
        ({"duplicate_packets": 12}, "12 duplicates"),
        ({"absent_counters": "sar (sadc: not found)"}, "asked for and not there: sar (sadc: not found)"),
        (PACED, "25.00% of this paced load was lost"),
        (PACED | LATE_AT_P99, "the latency is 134.0 µs from the due time and 2.0 µs from sending (p99)"),
        ({"sched_policy": "SCHED_OTHER (refused: EPERM)"}, "the sender got no real-time priority"),
        ({"tx_pause_ms": 27.0, "tx_paused_ms": 54.0, "window_s": 4.0}, "the sender stood still for 54 ms of 4000"),
        (PACED | BUNCHED, "25.00% of this paced load was lost, no more than the sender sent late (after up to 52 ms)"),
        (
            {"rx_packets": 4_000_000, "dut_tx_packets": 4_000_000, "frame_bytes": 1518, "window_s": 0.1},
            "agree",
        ),  # no rate
        (PHYSICAL | {"tx_packets": 20e6, "rx_packets": LINE, "dut_tx_packets": LINE}, "agree"),
        ({"verdict": "invalid", "reason": "by an older rule"}, "agree"),
        ({"settings_changed": "{}", "bpf_timed_runs": 0, "link_changes": 0}, "TG and DUT agree"),
        ({"settings_changed": '{"dut port.mtu": ["1500", "9000"]}'}, "dut port.mtu from 1500 to 9000"),
        (
            {"dut_driver": "veth", "settings": '{"dut port.probe": "veth tx: wrong"}'},
            "table of drivers: veth tx: wrong",
        ),
        (
            {"tg_port_rx_packets": 3_000_700, "tg_missed_packets": 700, "tg_port_tx_packets": 4_000_000},
            "700 frames came to the TG's port and were not taken",
        ),
        (NEVER_REACHED | SHARED, "not reached: 280 kpps were offered, 28.0% of the 1 Mpps asked for"),
        (SHARED | LATE | {"rate_requested_pps": 4e6}, "the sender was late"),  # it may be the DUT's doing
        (
            USERS | {"action": "mixed", "xdp_actions": decided(tx=3_000_000, drop=1_000_000)},
            "tx for 75.0% of 4000000 frames, drop for 25.0%",
        ),
    ],
)
def test_what_is_believed_and_said(change: dict[str, object], words: str) -> None:
    verdict = judge(GOOD | change)
    assert verdict.verdict == "valid"
    assert words in verdict.reason


PAUSED = {"tx_pause_ms": 40.0, "tx_paused_ms": 40.0, "window_s": 4.0}
THROTTLED = PAUSED | {"sched_policy": "SCHED_FIFO:5", "rt_runtime_us": 950_000, "tx_busy_cores": 0.5}
DRAINED = {"action": "drop", "workload": None, "program_name": "lb.bpf.c", "rx_ring_entries": 512, "queues": 2}
DRAINED |= {"rx_packets": 0, "dut_tx_packets": 0}
CLOSED = {"arrangement": "shared", "tx_packets": 1_000_000, "tg_port_tx_packets": 1_000_000, "load": "max"}
CLOSED |= dict.fromkeys(("rx_packets", "dut_tx_packets", "dut_rx_packets"), 990_000)
SENDING = dict.fromkeys(("tx_packets", "rx_packets", "dut_tx_packets", "dut_rx_packets"), 1_000_000)
SENDING |= {"arrangement": "shared", "engine": "afxdp", "forwarded_pps": 1e6, "dut_cpus": 2}


@pytest.mark.parametrize(
    ("within", "past", "fact"),
    [
        ({"rx_packets": 4_000_000, "dut_tx_packets": 4_000_000}, {"rx_packets": 4_000_001}, "more than the 4000000 it"),
        ({"dut_rx_packets": 4_040_000}, {"dut_rx_packets": 4_040_001}, "the DUT received 4040001"),
        (
            {"dut_rx_packets": 4_040_500, "probes_sent": 1000, "dut_tx_packets": 3_001_000},
            {"dut_rx_packets": 4_041_011},
            "the DUT received 4041011",
        ),
        ({"rx_packets": 2_970_000}, {"rx_packets": 2_969_999}, "TG and DUT disagree"),
        ({"duplicate_packets": 30_000}, {"duplicate_packets": 30_001}, "are duplicates"),
        ({"rate_requested_pps": 4e6, "offered_pps": 3.996e6}, {"offered_pps": 3.9959e6}, "rate asked for"),
        (CLOSED | {"rate_requested_pps": 1e6, "offered_pps": 1.01e6}, {"offered_pps": 1.0101e6}, "more than the load"),
        (CLOSED | {"rate_requested_pps": 1e6, "offered_pps": 0.999e6}, {"offered_pps": 0.998e6}, "was not reached"),
        (CLOSED, {"dut_rx_packets": 989_999}, "verdict='invalid'"),
        (CLOSED | {"tg_port_tx_packets": 990_000}, {"tg_port_tx_packets": 980_000, "dut_rx_packets": None}, "its port"),
        (CLOSED | {"tx_unrestored_packets": 10_000}, {"tx_unrestored_packets": 10_001}, "may carry what"),
        ({"tg_port_rx_packets": 99_000, "tg_missed_packets": 1000}, {"tg_missed_packets": 1001}, "verdict='invalid'"),
        (FULL | {"forwarded_pps": 14.73e6}, {"forwarded_pps": 14.74e6}, "'link'"),
        (PACED | {"latency_p99_ns": 2000.0, "latency_sent_p99_ns": 1000.0}, {"latency_sent_p99_ns": 999.0}, "was late"),
        (PACED | {"latency_p50_ns": 2000.0, "latency_sent_p50_ns": 1000.0}, {"latency_sent_p50_ns": 999.0}, "(p50)"),
        ({"queues": 2, "queues_reached": 2}, {"queues": 3}, "traffic reached 2 of 3 queues"),
        (PACED | {"rx_packets": 3_996_001, "dut_tx_packets": 3_996_001}, {"rx_packets": 3_995_999}, "load was lost"),
        (PAUSED | {"tx_paused_ms": 39.9}, {"tx_paused_ms": 40.0}, "the sender stood still for 40 ms of 4000"),
        (THROTTLED | {"tx_pause_ms": 24.9}, {"tx_pause_ms": 25.0}, "950 ms of each second"),
        (THROTTLED | {"tx_pause_ms": 100.1}, {"tx_pause_ms": 100.0}, "950 ms of each second"),
        (THROTTLED | {"tx_busy_cores": 0.9951}, {"tx_busy_cores": 0.995}, "950 ms of each second"),
        (THROTTLED | {"queues": 2, "tx_busy_cores": 0.9951, "dut_cpus": 1}, {"dut_cpus": 2}, "950 ms of"),
        ({"tx_errors": 4000}, {"tx_errors": 4004}, "the TG's device did not take 0.1%"),
        (
            {"tx_errors": 300_000, "tg_port_dropped_packets": 296_999},
            {"tg_port_dropped_packets": 297_000},
            "its ring was full",
        ),
        ({"rate_change": 0.0, "rate_change_kind": "step"}, {"rate_change": -0.2}, "not steady: a step of -20%"),
        (DRAINED | {"dut_rx_packets": 3_997_000}, {"dut_rx_packets": 3_990_000}, "up to 0.03% of the frames counted"),
        ({"host_steal_cores": 0.04}, {"host_steal_cores": 0.041}, "the hypervisor took 0.04 CPUs"),  # four ticks
        ({"host_steal_cores": 0.01, "window_s": 8.0}, {"host_steal_cores": 0.011}, "the hypervisor took 0.01 CPUs"),
        ({"other_busy_cores": 0.02, "tx_busy_cores": 1.98}, {"other_busy_cores": 0.03}, "other work took 2% of"),
        ({"other_busy_cores": 0.01, "tx_busy_cores": 0.2}, {"other_busy_cores": 0.011}, "other work took 1% of"),
        (  # the beginning and the end of a short window
            {"other_busy_cores": 0.02, "tx_busy_cores": 0.9, "window_s": 0.2},
            {"other_busy_cores": 0.021},
            "other work took 2% of",
        ),
        ({"clock_change": -0.02}, {"clock_change": -0.021}, "changed by -2.1%"),
        ({"perf_running": 0.99}, {"perf_running": 0.98}, "for 98% of the time"),
        ({"records_lost_share": 0.01, "records_lost": 40}, {"records_lost_share": 0.02}, "2.0% of the program's"),
        ({"clocksource": "tsc", "sched_policy": "SCHED_FIFO:5"}, {"clocksource": "hpet"}, "the clock source hpet"),
        (SENDING | {"testrun_raw_ns": 1000.0}, {"testrun_raw_ns": 999.0}, "limited_by='generator'"),
        (SENDING | {"testrun_raw_ns": 1.0, "program_run_ns": 1e3}, {"program_run_ns": 999.0}, "limited_by='generator'"),
        (SENDING | {"testrun_raw_ns": 1.0, "engine": "live"}, {"engine": "afxdp"}, "limited_by='generator'"),
    ],
)  # fmt: skip
def test_each_limit_is_met_at_its_value_and_told_past_it(
    within: dict[str, object], past: dict[str, object], fact: str
) -> None:
    assert fact not in str(judge(GOOD | within))
    assert fact in str(judge(GOOD | within | past))


def test_throttling_is_named_where_the_pause_is_its_own() -> None:
    """A SCHED_FIFO sender that may run 950 of 1000 ms stands still for the other 50 ms, and lacks that CPU time."""
    throttled = {"tx_pause_ms": 50.0, "tx_paused_ms": 200.0, "window_s": 4.0, "sched_policy": "SCHED_FIFO:5"}
    throttled |= {"tx_busy_cores": 0.95}
    words = "real-time throttling has it (950 ms of each second"
    assert words in judge(GOOD | throttled | {"rt_runtime_us": 950_000}).reason
    refused = throttled | {"tx_packets": 26_800_000, "tx_errors": 3_200_000, "rt_runtime_us": 950_000}
    refused |= {"tg_port_dropped_packets": 3_200_000}
    assert (
        f"the TG's device did not take 11.9% of the frames, its ring was full, as {words}"
        in judge(GOOD | refused).reason
    )
    others = ({"rt_runtime_us": -1}, {"sched_policy": "SCHED_OTHER"}, {"tx_pause_ms": 180.0}, {"tx_busy_cores": 1.0})
    for change in (*others, {"tx_busy_cores": 0.995}, {"tx_busy_cores": None}):
        assert words not in judge(GOOD | throttled | {"rt_runtime_us": 950_000} | change).reason


def test_frames_that_came_twice_hide_no_loss() -> None:
    """1 % was lost and 1 % duplicated, so as many frames arrived as were sent."""
    row = {
        "rx_packets": 4_000_000,
        "dut_rx_packets": 4_000_000,
        "dut_tx_packets": 4_000_000,
        "duplicate_packets": 39_600,
    }
    assert loss_share(GOOD | row) == pytest.approx(0.0099)
    assert judge(GOOD | row).limited_by == "dut"


@pytest.mark.parametrize("action", ["drop", "pass"])
def test_a_program_that_returns_nothing_is_judged_by_the_dut_alone(action: str) -> None:
    row = GOOD | USERS | {"action": action, "rx_packets": 0, "dut_tx_packets": 0}
    assert judge(row).verdict == "valid"
    assert "DUT's count alone" in judge(row).reason
    assert judge(row | {"dut_rx_packets": None}).verdict == "invalid"


@pytest.mark.parametrize("said", ["tx", "drop", "pass", "redirect"])
@pytest.mark.parametrize("does", ["tx", "drop", "pass", "redirect"])
def test_a_program_must_do_what_the_plan_says(said: str, does: str) -> None:
    """The driver's counts decide; one frame in a hundred may be foreign, such as neighbour discovery."""
    back = 4_000_000 if does == "tx" else 0
    counts = {"rx_packets": back, "dut_tx_packets": back, "dut_rx_packets": 4_000_000}
    row = (
        GOOD
        | USERS
        | counts
        | {"action": said, "xdp_actions": decided(**{does: 3_990_000, "pass": 10_000} | {does: 3_990_000})}
    )
    verdict = judge(row)
    assert verdict.verdict == ("valid" if said == does else "invalid")
    if said != does:
        assert f"action is {said}" in verdict.reason
        assert f"{does} for" in verdict.reason


@pytest.mark.parametrize(
    ("said", "back", "verdict"),
    [("tx", 0, "invalid"), ("tx", 4_000_000, "valid"), ("drop", 4_000_000, "invalid"), ("pass", 0, "valid")],
)
def test_without_counters_of_actions_what_came_back_tells(said: str, back: int, verdict: str) -> None:
    counts = {"rx_packets": back, "dut_tx_packets": back, "dut_rx_packets": 4_000_000, "mode": "generic"}
    found = judge(GOOD | USERS | counts | {"action": said})
    assert found.verdict == verdict
    assert found.verdict == "invalid" or said == "tx" or "no counter says" in found.reason


def test_the_burst_that_counts_decisions_judges_too() -> None:
    """It tells ABORTED from DROP, and generic mode has no other count."""
    row = GOOD | USERS | BACK_NONE | {"action": "drop", "dut_rx_packets": 4_000_000}
    counted = {"actions_counted": json.dumps({"aborted": 1000, "drop": 0})}
    verdict = judge(row | counted | {"xdp_actions": decided(drop=4_000_000)})
    assert verdict.verdict == "invalid"
    assert "a burst after the window counted aborted for 100.0% of 1000 frames" in verdict.reason
    assert judge(row | {"mode": "generic", "actions_counted": json.dumps({"drop": 1000})}).verdict == "valid"
    nothing = {"mode": "generic", "actions_counted": json.dumps({"drop": 0})}
    assert judge(row | nothing).verdict == "valid", "no frame in that burst says nothing"


def test_a_program_that_changes_its_mind_within_the_window_is_told() -> None:
    """Its budget ended there: of a fresh copy's first quarter of a second all frames were passed."""
    row = GOOD | USERS | BACK_NONE | {"mode": "generic", "dut_rx_packets": 4_000_000}
    row |= {"actions_before": json.dumps({"pass": 1000}), "actions_counted": json.dumps({"drop": 1000})}
    for action in ("pass", "drop"):
        assert judge(row | {"action": action}).verdict == "invalid"
    words = "in a burst before the window pass for 100.0% of 1000 frames, in a burst after the window drop for 100.0%"
    assert words in judge(row | {"action": "mixed"}).reason


def target(**changed: object) -> str:
    known = {"kind": "device", "name": "out0", "accepted": 900, "refused": 100, "arrived": 900, "dropped": 0}
    return json.dumps([known | changed])


def test_a_redirect_that_the_kernel_refuses_is_none() -> None:
    row = GOOD | USERS | BACK_NONE | {"action": "redirect", "dut_rx_packets": 4_000_000}
    row |= {"actions_counted": json.dumps({"redirect": 1000})}
    refused = judge(row | {"redirect_targets": target()})
    assert (refused.verdict, refused.reason) == ("invalid", "the kernel refused 100 of 1000 redirects, to device out0")
    assert "to a device that is not there" in judge(row | {"redirect_targets": target(name=None)}).reason
    queue = judge(row | {"redirect_targets": target(kind="cpu", name="1")})
    assert queue.verdict == "valid", "a full queue of another CPU is the load's doing"
    assert "to cpu 1: of 1000 redirected frames 900 arrived, 100 were refused" in queue.reason
    dropped = judge(row | {"redirect_targets": target(kind="cpu", name="1", refused=0, dropped=30, arrived=None)})
    assert "to cpu 1: of 900 redirected frames 30 were dropped" in dropped.reason
    assert "arrivals were not counted" in judge(row | {"redirect_targets": target(refused=0, arrived=None)}).reason
    assert (
        "to each of no device: of 900"
        in judge(row | {"redirect_targets": target(kind="broadcast", name=None, refused=0)}).reason
    )
    for refused, verdict in ((99, "valid"), (101, "invalid")):  # of 10,000, by two devices
        two = (
            target(refused=refused, accepted=9900 - refused)[:-1]
            + ", "
            + target(name="out1", refused=0, accepted=100)[1:]
        )
        found = judge(row | {"redirect_targets": two})
        assert (found.verdict, "out1" in found.reason) == (verdict, verdict == "valid")
    assert "where redirected frames arrive is not known" in judge(row).reason


SAID = "not only test frames were on the link:"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"foreign_packets": 12}, "12 foreign frames at the TG"),
        ({"refused_packets": 5}, "5 of other runs or bursts, or altered"),
        ({"dut_foreign_packets": 7}, "7 foreign frames at the DUT"),
    ],
)
def test_frames_of_others_on_the_link_are_said(change: dict[str, int], words: str) -> None:
    verdict = judge(GOOD | change)
    assert verdict.verdict == "valid"
    assert f"{SAID} {words}" in verdict.reason
    assert judge(GOOD | dict.fromkeys(change, 0)).reason == judge(GOOD).reason
    assert judge(GOOD | change | {"dut_rx_packets": 4_040_001}).reason.endswith(f"the TG sent: {SAID} {words}")


def test_a_users_program_may_rewrite_the_payload() -> None:
    row = GOOD | USERS | {"rx_packets": 0, "foreign_packets": 3_000_000}
    assert judge(row).verdict == "valid"
    assert "rewrites the payload" in judge(row).reason
    assert "foreign frames" not in judge(row).reason
    assert judge(GOOD | {"rx_packets": 0, "foreign_packets": 3_000_000}).verdict == "invalid", "ours never does"


@pytest.mark.parametrize("verdict", ["unsupported", "failed"])
def test_what_was_not_measured_keeps_its_reason(verdict: str) -> None:
    kept = judge({"verdict": verdict, "reason": "no offload: EINVAL"})
    assert (kept.verdict, kept.reason, kept.limited_by) == (verdict, "no offload: EINVAL", None)


NO_LOSS = {"rx_packets": 4_000_000, "dut_rx_packets": 4_000_000, "dut_tx_packets": 4_000_000}
AFXDP = SHARED | {"engine": "afxdp", "tx_packets": 4_000_000}


@pytest.mark.parametrize(
    ("change", "limit"),
    [
        (SHARED, "shared_cpu"),
        (SHARED | {"testrun_raw_ns": 30.0}, "shared_cpu"),
        (AFXDP | {"forwarded_pps": 9e5, "testrun_raw_ns": 30.0}, "generator"),
        (AFXDP | {"forwarded_pps": 2e5, "testrun_raw_ns": 4000.0}, "shared_cpu"),
        (AFXDP | {"forwarded_pps": 9e5}, "shared_cpu"),  # no program time: one trial alone cannot show the limit
        (SHARED | {"rate_requested_pps": 4e6}, "none"),
        (SHARED | {"rate_requested_pps": 6e6}, "shared_cpu"),
        (NEVER_REACHED | SHARED, "shared_cpu"),
        (NO_LOSS, "generator"),
        (NO_LOSS | {"rate_requested_pps": 4e6}, "none"),
        (PACED, "dut"),
        (PACED | BUNCHED, "generator"),
        (PACED | BUNCHED | {"tx_late_packets": 999_999}, "dut"),
        (PACED | BUNCHED | SHARED, "none"),
        (PHYSICAL | NO_LOSS, "generator"),
        (PHYSICAL | {"tx_errors": 1_000_000}, "generator"),  # the TG's card refused what did not come back
        (PHYSICAL | {"tx_errors": 900_000}, "dut"),
        (RING, "generator"),
        (RING | {"dut_rx_packets": 3_900_000}, "dut"),
        (RING | {"host_softnet_dropped": 1_000_000}, "dut"),
        (RING | {"mode": "af_xdp"}, "dut"),
        (RING | USERS, "dut"),  # what it drops by design cannot be told from what was not taken
        (RING | PACED | {"mode": "generic", "host_softnet_dropped": 0}, "generator"),
        (RING | PACED | {"mode": "generic"}, "dut"),  # a backlog may have dropped them
        ({"tx_errors": 1_000_000}, "dut"),  # on a veth the ring that was full is the DUT's
        (FULL, "link"),
        (FULL | LATER, "link"),  # it carried the frames of full rings after the window
        (FULL | LATER | AT_REST | USERS | BACK_NONE | {"action": "drop"}, "link"),
        (FULL | LATER | AT_REST | {"rx_packets": None}, "link"),
        (FULL | LATER | AT_REST | USERS | {"rx_packets": 0, "foreign_packets": LINE * 1.003}, "link"),
        (FULL | LATER | {"forwarded_pps": 0.98 * LINE}, "generator"),
        ({"rx_packets": 3_997_000, "dut_tx_packets": 3_997_000}, "generator"),  # a loss of 0.08 % is not saturation
        (USERS | BACK_NONE | {"action": "drop", "dut_rx_packets": 3_000_000}, "dut"),
    ],
)
def test_what_limited_a_valid_trial(change: dict[str, object], limit: str) -> None:
    verdict = judge(GOOD | change)
    assert (verdict.verdict, verdict.limited_by) == ("valid", limit)


def test_frames_that_the_tgs_ring_did_not_take_are_told() -> None:
    """Two generic points lost 1.46 % there, in each trial: a cost was made of a rate that was the TG's."""
    assert "1000000 frames came to the TG's port and were not taken" in judge(GOOD | RING).reason
    assert "1000003 frames came" in judge(GOOD | RING | {"tg_missed_packets": 3}).reason


def test_frames_that_a_card_refused_were_not_offered() -> None:
    """They never were on the cable: the DUT saw 75 % of a load that counted as offered."""
    paced = GOOD | PHYSICAL | {"rate_requested_pps": 4e6, "tx_errors": 1_000_000}
    assert judge(paced).reason == "the sender had its own core and offered 75.00% of the rate asked for"
    assert judge(paced | {"tx_errors": 1000}).limited_by == "dut"
    virtual = judge(paced | {"arrangement": "split", "link_bps": None})
    assert (virtual.verdict, virtual.limited_by) == ("valid", "dut")


def test_every_rule_is_pure() -> None:
    row = dict(GOOD)
    for rule in RULES:
        rule(row)
    assert row == GOOD
