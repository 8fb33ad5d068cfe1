"""Findings about the offered load: a paced load that is lost, a generator that is held back."""

import numpy as np
import pandas as pd
import pytest
import synthetic
from tests.analysis.synthetic import judged

from xdplab.analysis.derived import derive
from xdplab.analysis.finding_rules import find
from xdplab.analysis.findings import Finding
from xdplab.analysis.load_rules import _MAY_SAY, DISTURBANCES, DISTURBED_BY
from xdplab.analysis.values import records


def paced(load: str, rate: float, **columns: object) -> pd.DataFrame:
    """A DUT on its own CPU that forwards 1.7 Mpps at N = 1600, at a paced load."""
    factors = {"arrangement": "split", "load": load, "rate_requested_pps": rate, "accesses": 1600}
    trials = synthetic.run(vary={"workload": ["packet"]}, **factors)
    return derive(judged(trials.assign(**columns)))


def of(trials: pd.DataFrame, rule: str) -> list[Finding]:
    return [finding for finding in find(trials) if finding.rule == rule]


def test_a_load_that_is_carried_is_no_finding() -> None:
    assert of(paced("1Mpps", 1e6), "paced load is lost") == []


def test_a_load_that_is_lost_is_one_and_its_trials_stay_valid() -> None:
    trials = paced("50%", 3.9e6)
    assert set(trials["verdict"]) == {"valid"}
    assert set(trials["limited_by"]) == {"dut"}
    (found,) = of(trials, "paced load is lost")
    assert found.severity == "warning"
    assert "3 of 3 trials lose" in found.what
    assert "though it is a share of a PDR: the DUT does not carry this load" in found.what
    losses = trials["loss_ratio"].astype(float)
    assert 0.005 < losses.min() < losses.max()
    assert (found.evidence["loss_ratio_low"], found.evidence["loss_ratio_high"]) == (losses.min(), losses.max())
    (some,) = of(trials.assign(loss_ratio=[0.005, 0.03, 0.0051]), "paced load is lost")
    assert "2 of 3 trials lose 0.5% to 3.0% of" in some.what
    assert some.evidence == {"loss_ratio_low": 0.0051, "loss_ratio_high": 0.03, "trials": 2, "of": 3}


def test_what_the_sender_bunched_is_not_the_duts() -> None:
    trials = paced("3.9Mpps", 3.9e6, tx_late_packets=3_900_000, tx_pause_ms=54.0)
    (found,) = of(trials, "paced load is lost")
    assert set(trials["limited_by"]) == {"generator"}
    assert found.what.endswith("as much as the sender sent late, in bursts")


def test_what_the_tgs_ring_did_not_take_is_not_the_duts() -> None:
    """The rule reads columns that the rules of pooled repetitions do not: it saw no ring, and blamed the DUT."""
    trials = paced("3.9Mpps", 3.9e6, dut_driver="veth", dut_rx_packets=3_900_000)
    (found,) = of(trials, "paced load is lost")
    assert set(trials["limited_by"]) == {"generator"}
    assert found.what.endswith("as much as the TG's port did not take")


def test_a_load_that_a_shared_cpu_does_not_carry_was_not_sent_late() -> None:
    """The limit of an AF_XDP sender on a shared CPU is the generator's, too, whatever the frames were lost by."""
    factors = {"engine": "afxdp", "load": "500kpps", "rate_requested_pps": 5e5}
    trials = synthetic.run(vary={"accesses": [0]}, **factors)
    lost = {"rx_packets": 450_000, "dut_tx_packets": 450_000, "lost_packets": 50_000, "loss_ratio": 0.1}
    trials = derive(judged(trials.assign(tx_packets=500_000, offered_pps=5e5, forwarded_pps=4.5e5, **lost)))
    assert set(trials["limited_by"]) == {"generator"}
    (found,) = of(trials, "paced load is lost")
    assert found.what.endswith(": the DUT does not carry this load")


@pytest.mark.parametrize(("alone", "found"), [(1 / 0.801, 0), (1 / 0.799, 1), (None, 0)])
def test_a_generator_that_is_slower_than_alone_was_held_back(alone: float | None, found: int) -> None:
    trials = synthetic.run(arrangement="split", vary={"accesses": [400]})
    of_one = None if alone is None else alone * float(trials["offered_pps"].median())
    trials = trials.assign(generator_pps=pd.array([of_one] * len(trials), dtype="Float64"))
    findings = of(trials, "generator held back")
    assert len(findings) == found
    if found:
        assert "80% of what it does alone" in findings[0].what
        assert findings[0].evidence["generator_pps"] == of_one


def test_a_dut_that_forwards_nothing_is_a_finding() -> None:
    trials = synthetic.run(arrangement="split", vary={"accesses": [400]})
    assert of(trials, "nothing forwarded") == []
    dead = trials.assign(rx_packets=0, dut_tx_packets=0, forwarded_pps=0.0, loss_ratio=1.0)
    (found,) = of(derive(judged(dead)), "nothing forwarded")
    assert found.severity == "warning"
    assert "3 trials forwarded nothing" in found.what


def test_trials_at_another_clock_are_told_from_those_measured_alike() -> None:
    trials = synthetic.run(repetitions=5)
    clock = [3.0] * (len(trials) - 2) + [2.6, 3.059]
    trials = trials.assign(cycles_per_ns=clock, cycles_per_ns_from="additions")
    (found,) = of(trials, "clock differs")
    assert f"1 of {len(trials)} trials ran at another clock than the rest: 2.6 to 3.06" in found.what
    assert found.evidence == {"low": 2.6, "median": 3.0, "high": 3.059, "trials": 1, "of": len(trials)}
    by_perf = trials.assign(cycles_per_ns_from=["additions"] * (len(trials) - 2) + ["perf", "additions"])
    assert of(by_perf, "clock differs") == []


def test_a_drift_over_the_run_is_told_once() -> None:
    trials = synthetic.run(repetitions=10, vary={"accesses": [0, 1, 100, 400, 1600]})
    trials["order"] = range(len(trials))
    assert of(trials, "drift") == []
    trials["forwarded_pps"] = trials["forwarded_pps"] * np.linspace(1, 0.95, len(trials))
    (found,) = of(trials, "drift")
    assert found.what.startswith("the rates changed by -")
    assert found.evidence["p"] < 0.001


def test_every_trial_with_a_remark_is_asked_for_it() -> None:
    rng, number = np.random.default_rng(1), 20_000
    scales = {"tx_errors": 1e4, "tx_pause_ms": 60, "tx_paused_ms": 30, "tx_packets": 1e6, "link_bps": 1e10}
    scales |= {"rate_requested_pps": 1e6, "offered_pps": 1e6, "generator_pps": 2e6, "queues": 2}
    texts = {"sched_policy": ["SCHED_FIFO:5", "SCHED_OTHER (refused)"], "latency_from": ["sent", "due"]}
    texts |= {"settings_changed": ["{}", '{"dut governor": ["powersave", ""]}'], "rate_change_kind": ["step"]}
    names = {*DISTURBED_BY, "rate_requested_pps", "offered_pps", "link_bps", "queues", "dut_cpus", "directions"}
    columns: dict[str, object] = {}
    for name in sorted(names):
        values = rng.normal(scales.get(name, 0.02), 0.02 * scales.get(name, 1.0), number) * rng.choice([0, 1], number)
        cells = rng.choice(texts[name], number) if name in texts else values
        columns[name] = pd.Series(cells, dtype="object" if name in texts else float).mask(rng.random(number) < 0.2)
    trials = pd.DataFrame(columns)
    rows = records(trials)
    for name, says in DISTURBANCES.items():
        said = np.array([says(row) is not None for row in rows])
        asked = _MAY_SAY[name](trials).to_numpy(dtype=bool)
        assert said.any(), name
        assert asked[said].all(), name
        assert not asked.all(), name
