"""Columns of a trial that is not measured here: of test runs, records, device settings, limits and the generator."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.doubles.hosts import Played
from tests.studies.traffic.columns_of import row_of

from xdplab.analysis.verdicts import REMARKS, say_records_lost, say_rounded
from xdplab.deploy.deployment import Deployment
from xdplab.deploy.device import Applied
from xdplab.deploy.settings import Values
from xdplab.deploy.settings_nic import require_in_plans
from xdplab.deploy.xdp import RecordCounts
from xdplab.errors import PlanError, UnsupportedError
from xdplab.formats.generator import GeneratorReady
from xdplab.labs.base import GeneratorPlace
from xdplab.studies.traffic.limits import link_rate
from xdplab.studies.trial_facts import HarnessPieces, HintCounts, Limit, Missing, TestRuns, TrialFacts, device_columns


@pytest.mark.parametrize(
    ("tested", "live", "column", "same"),
    [
        ({"tx": 2048}, {"tx": 1_000_000}, "actions_counted", True),
        ({"pass": 2048}, {"tx": 1_000_000}, "actions_counted", False),
        ({"drop": 512, "tx": 1536}, {"drop": 250_000, "tx": 750_000}, "actions_counted", True),
        ({"drop": 2048}, {"drop": 250_000, "tx": 750_000}, "actions_counted", False),  # each fourth frame of a trace
        ({"aborted": 2048}, {"drop": 1_000_000}, "actions_counted", False),
        ({"aborted": 2048}, {"drop": 1_000_000}, "xdp_actions", True),  # the driver does not tell them apart
        ({"tx": 2048}, {"tx": 20_000, "pass": 60}, "actions_counted", True),  # frames of others
        ({"tx": 990, "drop": 1058}, {"tx": 52, "drop": 48}, "actions_counted", True),  # by chance, few frames
        ({"tx": 2048}, {}, "actions_counted", True),
        (None, {"tx": 5}, "actions_counted", True),  # a generated program is proved
    ],
)
def test_a_test_run_counts_if_its_frames_end_as_the_trials(
    tested: dict[str, int] | None, live: dict[str, int], column: str, same: bool
) -> None:
    facts = TrialFacts(testrun=TestRuns((12.0, 11.0), 64, 64, actions=tested))
    counted = dict.fromkeys(("xdp_actions", "actions_before", "actions_counted")) | {column: json.dumps(live)}
    assert row_of(counted, facts=facts)["testrun_raw_ns"] == (11.0 if same else None)


@pytest.mark.parametrize(
    ("codes", "code"), [([95, 95, 61, 61, 61], None), ([61] * 4, 61.0), ([95], 95.0), ([61, 95], None)]
)
def test_the_mean_of_several_errors_is_none(codes: list[int], code: float | None) -> None:
    """61 and 95 have the mean 78, which is EREMCHG."""
    hints = HintCounts(1, len(codes), sum(codes), sum(code * code for code in codes))
    row = row_of({"accesses": 2 * len(codes)}, facts=TrialFacts(hints=hints))
    assert json.loads(row["metrics"]) == {"hints_refused_percent": 50.0, "hints_errno": code}


def counts(ring: int = 0, full: int = 0, perf: int = 0, lost: int = 0, *, others: bool = False) -> RecordCounts:
    return RecordCounts(ring, full, perf, lost, others, 1_000_000, (1,))


@pytest.mark.parametrize(
    ("ring_records", "after", "same"),
    [(1.0, counts(ring=9), False), (0.0, counts(perf=9), False), (0.0, counts(lost=9), False), (0.0, counts(), True)],
)
def test_test_runs_that_write_records_are_not_the_traffics_cost(
    ring_records: float, after: RecordCounts, same: bool
) -> None:
    """They took a half to a quarter of what BPF statistics told of the same program's frames."""
    testrun = TestRuns((92.0,), ring_records=ring_records)
    row = row_of(facts=TrialFacts(testrun=testrun, records_before=counts(), records_after=after))
    assert [row["testrun_raw_ns"], row["testrun_all_ns"]] == ([92.0, "[92.0]"] if same else [None, None])


WINDOW: Any = SimpleNamespace(summary=SimpleNamespace(duration_s=0.5))
EACH, UNKNOWN = TestRuns((1.0,), ring_records=2.0), Missing("records of the program were lost in test runs")


@pytest.mark.parametrize(
    ("after", "test", "read", "lost", "share"),
    [
        (counts(ring=2000), EACH, 2000, 0, 0.0),
        (counts(ring=500, full=3), EACH, 500, 1500, 0.75),
        (counts(ring=500, full=3), UNKNOWN, 500, None, None),
        (counts(perf=900, lost=100), UNKNOWN, 900, 100, 0.1),
        (counts(), EACH, 0, None, None),
        (counts(ring=500, others=True), EACH, None, None, None),
        (None, EACH, None, None, None),
    ],
)
def test_records_read_and_lost_of_a_window(
    after: RecordCounts | None, test: TestRuns | Missing, read: int | None, lost: int | None, share: float | None
) -> None:
    facts = TrialFacts(records_before=after and counts(), records_after=after, testrun=test)
    row = row_of({"dut_rx_packets": 1000}, facts=facts, burst=WINDOW)
    assert (row["records_read"], row["records_lost"], row["records_lost_share"]) == (read, lost, share)
    assert (say_records_lost(row) is not None) == bool(lost)
    assert say_records_lost in REMARKS


@pytest.mark.parametrize(
    ("two_ports", "folder", "which"), [(False, "counters", ""), (True, "counters_second", "second port: ")]
)
def test_a_reading_that_the_journal_has_and_whose_files_are_gone_is_missing(
    tmp_path: Path, two_ports: bool, folder: str, which: str
) -> None:
    (tmp_path / folder).mkdir()
    for when in ("before", "after"):
        (tmp_path / folder / f"dut.ethtool.{when}.err").write_text("no stats available")
    recorded = {f"{folder}/dut.iplink.{when}.json": 99 for when in ("before", "after")}
    row = row_of(raw=tmp_path, recorded=recorded, two_ports=two_ports)
    gone = "dut.iplink.before.json is missing; dut.iplink.after.json is missing"
    assert row["counters_missing"] == f"{which}{gone}"


# --- a device setting: the obtained value; if the driver rounded, the requested one and a reason ---


def applied(requested: Values, obtained: Values) -> Applied:
    return Applied("dut", "eth0", requested, {}, obtained)


def test_the_obtained_value_is_what_tables_show() -> None:
    found = applied({"rings.rx": 500, "features.gro": False}, {"rings.rx": 512, "features.gro": False})
    row = device_columns(found.require(rounded=True))
    assert row["device"] == "features.gro=off rings.rx=512 (500 asked)"
    assert json.loads(row["device_settings"])["rings.rx"] == {"requested": 500, "obtained": 512}
    assert say_rounded(row) == "rings.rx is 512 where the plan asks for 500"
    assert say_rounded in REMARKS


def test_nothing_asked_and_nothing_rounded_say_nothing() -> None:
    assert device_columns(None) == {}
    assert say_rounded({}) is None
    assert say_rounded(device_columns(applied({"rings.rx": 512}, {"rings.rx": 512}))) is None


@pytest.mark.parametrize(("asked", "found"), [(False, True), ("toeplitz", "xor"), (512, None), (0, True)])
def test_only_numbers_are_rounded(asked: int | str, found: int | str | None) -> None:
    obtained = {} if found is None else {"a.b": found}
    one = applied({"a.b": asked}, obtained)  # type: ignore[dict-item]
    with pytest.raises(UnsupportedError, match=r"dut: eth0: a\.b is"):
        one.require(rounded=True)


def test_what_other_factors_set_is_no_device_setting() -> None:
    numbers = dict.fromkeys(
        ["rings.rx", "features.gro", "coalesce.rx-usecs", "pause.rx", "flags.legacy-rx", "link.mtu"], 1
    )
    require_in_plans(numbers | {"rss.table": "weight 1 3", "rss.hkey": "6d:5a", "hash.udp4": "sdfn"})
    for name in ("channels.rx", "xps.0", "link.up", "governor.0", "colour.rx"):
        with pytest.raises(PlanError, match=f"device: {name} is not a device setting of a plan"):
            require_in_plans({name: 1})


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("rss.table", "weight 2 6", "write `weight 1 3`"),
        ("rss.table", "weight 1 1 0", "write `equal 2`"),
        ("rss.table", "default", "write `equal QUEUES`, or"),
        ("rss.table", "equal 0", "write `equal QUEUES`, or"),
        ("rss.table", "weight 0 0", "write `equal QUEUES`, or"),
        ("rss.table", "weight 1 -3", "write `equal QUEUES`, or"),
        ("rss.hkey", "6D:5A", "lower case"),
        ("hash.udp4", "fnsd", "in this order"),
        ("hash.udp4", False, "in this order"),  # `n` in YAML
        ("hash.udp4", "", "in this order"),
        ("hash.udp5", "sd", "tcp4, udp4, tcp6, udp6"),
    ],
)
def test_a_value_is_refused_that_the_device_would_never_read_back_so(name: str, value: object, remedy: str) -> None:
    with pytest.raises(PlanError) as caught:
        require_in_plans({name: value})  # type: ignore[dict-item]
    assert remedy in str(caught.value)


# --- limits outside the DUT: the link's rate, or the reason if it has none ---


def end(speed: str | None) -> Played:
    """Return a host whose interface reports one speed, or none."""
    text = f"Settings for e:\n\tSpeed: {speed}\n\tLink detected: yes\n"
    return Played({"ethtool *": text} if speed else {})


def lab(dut: str | None, tg: str | None, *, virtual: bool = False, dpdk: bool = False) -> Any:
    place = GeneratorPlace(kind="moongen", pci="0000:3b:00.0") if dpdk else GeneratorPlace()
    ends = {"dut": end(dut), "tg": end(tg), "dut_interface": "e", "tg_interface": "e"}
    return SimpleNamespace(**ends, virtual=virtual, generator=place)


@pytest.mark.parametrize(
    ("where", "rate"),
    [
        (lab("10000Mb/s", "10000Mb/s"), 10e9),
        (lab("25000Mb/s", "10000Mb/s"), 10e9),
        (lab("40000Mb/s", None), 40e9),
        (lab("25000Mb/s", "1000Mb/s", dpdk=True), 25e9),
        (lab("Unknown!", None), None),
        (lab("10000Mb/s", "10000Mb/s", virtual=True), None),
    ],
)
def test_the_slower_end_is_the_links_rate(where: Any, rate: float | None) -> None:
    found = link_rate(where)
    assert found.rate == rate
    assert (found.missing is None) == (rate is not None)


def test_a_row_has_the_limits_or_why_not() -> None:
    row = row_of(facts=TrialFacts(link=Limit(10e9), generator_alone=Limit(None, "why")))
    assert (row["link_bps"], row["generator_pps"], row.reason("generator_pps")) == (10e9, None, "why")


# --- the generator's own time per frame: a difference of two bursts, which a disturbance may make negative ---


def test_a_receiver_takes_what_both_take_less_the_sender() -> None:
    row = row_of(facts=TrialFacts(harness=HarnessPieces(34.0, 60.0)))
    assert [row[name] for name in ("sender_ns", "harness_ns", "receiver_ns")] == [34.0, 60.0, 26.0]


@pytest.mark.parametrize("both_ns", [30.0, 34.0])
def test_a_receiver_never_takes_less_than_nothing(both_ns: float) -> None:
    row = row_of(facts=TrialFacts(harness=HarnessPieces(34.0, both_ns)))
    assert [row[name] for name in ("sender_ns", "harness_ns", "receiver_ns")] == [34.0, both_ns, None]
    assert f"{both_ns} ns and without it 34.0 ns" in (row.reason("receiver_ns") or "")


FACTS = TrialFacts(generator=GeneratorReady("live", 1, (0,), "SCHED_FIFO:5", 64, {}))


@pytest.mark.parametrize(
    ("own", "softirq", "other"),
    [
        (0.735, 0.48, 0.265),  # a real-time task had the CPU; softirqs are in the sender's time
        (0.9999, 0.65, 0.0001),
        (0.35, 0.65, 0.0),  # a kernel that accounts softirqs apart
        (0.735, None, 0.265),
    ],
)
def test_other_work_is_what_the_sender_misses_of_its_cpu(own: float, softirq: float | None, other: float) -> None:
    """Work on other CPUs is none of the trial's: it was told in nearly each of them, and what took 27 % was not."""
    row = row_of({"tx_busy_cores": own, "host_softirq_cores": softirq}, facts=FACTS, burst=WINDOW)
    assert row["other_busy_cores"] == pytest.approx(other, abs=1e-9)


def test_other_work_is_unknown_where_a_sender_may_rest() -> None:
    row = row_of({"tx_busy_cores": 0.5, "rate_requested_pps": 2e4}, facts=FACTS, burst=WINDOW)
    assert row["other_busy_cores"] is None
    assert "paced" in (row.reason("other_busy_cores") or "")


@pytest.mark.parametrize(("insns", "inlined"), [(40, True), (41, None)])
def test_whether_lookups_are_inlined_is_read_from_the_attached_program(insns: int, inlined: bool | None) -> None:
    load: Any = SimpleNamespace(tag="a1", xlated_insns=40, lookup_inlined=True)
    deployment = Deployment("vd0", "native", "native", 1, 7, "lookup", "a1", jit=True, program_insns=insns)
    row = row_of({"workload": "lookup"}, facts=TrialFacts(load=load, deployment=deployment))
    assert row.get("helper_inlined") is inlined
