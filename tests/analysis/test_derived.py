"""Service time and access cost: from N = 0 of the same block and repetition, or null with the reason."""

import json

import pytest
import synthetic

from xdplab.absent import Absent
from xdplab.analysis.derived import WithBaselines, access_ns, cpu_ns, derive
from xdplab.analysis.series import by_series, settled, with_baselines

ONE = {"accesses": [0, 100, 1600]}


def reasons(trials, accesses: int) -> dict[str, str]:  # type: ignore[no-untyped-def]
    return json.loads(trials.loc[trials["accesses"] == accesses, "null_reasons"].iloc[0] or "{}")


def test_access_cost_is_the_difference_of_periods_in_the_same_repetition() -> None:
    trials = synthetic.run(vary=ONE, workload="chase")
    for repetition in (1, 2, 3):
        rate = trials[trials["repetition"] == repetition].set_index("accesses")["forwarded_pps"]
        row = trials[(trials["repetition"] == repetition) & (trials["accesses"] == 1600)].iloc[0]
        assert row["access_ns"] == pytest.approx(1e9 / rate[1600] - 1e9 / rate[0])
        assert row["ns_per_packet"] == pytest.approx(1e9 / rate[1600])


def test_several_baselines_count_by_their_mean() -> None:
    trials = synthetic.run(vary=ONE, workload="chase", repetitions=1)
    zero = trials["accesses"] == 0
    other = trials[zero].assign(forwarded_pps=trials[zero]["forwarded_pps"] / 2, trial_id="again", rx_packets=None)
    row = trials[trials["accesses"] == 1600].iloc[0].to_dict()
    pair = [*trials[zero].to_dict("records"), *other.to_dict("records")]
    own, *zeros = (cpu_ns(one) for one in (row, *pair))
    assert None not in (own, *zeros)
    assert access_ns(WithBaselines(row, pair)) == pytest.approx(own - sum(zeros) / 2)  # type: ignore[operator, arg-type]
    unknown = pair[1] | {"dut_cpus": None, "forwarded_pps": None}
    assert access_ns(WithBaselines(row, [pair[0], unknown])) == pytest.approx(own - zeros[0])  # type: ignore[operator]
    with pytest.raises(Absent, match="N = 0 has no time per packet"):
        access_ns(WithBaselines(row, [unknown]))


@pytest.mark.parametrize(("kept", "mode", "arrangement"), [(0.1, "native", "shared"), (0.5, "generic", "shared")])
def test_the_rate_that_a_program_allows_is_no_cost(kept: float, mode: str, arrangement: str) -> None:
    """A policer forwards at its own rate: one that takes 100 ns per packet was reported with 19,938 ns."""
    users = {"workload": None, "accesses": None, "program_name": "tb.bpf.c", "mode": mode, "arrangement": arrangement}
    row = synthetic.measured(synthetic.point(**users), synthetic.np.random.default_rng(1))
    for column in ("rx_packets", "dut_tx_packets", "forwarded_pps"):
        row[column] = type(row[column])(row[column] * kept)
    found = synthetic.finish([row]).iloc[0]
    assert found["verdict"] == "valid"
    assert synthetic.pd.isna(found["ns_per_packet"])
    words = f"{kept:.1%} of the frames that the DUT received came back: the rate is not the program's cost"
    assert words in json.loads(found["null_reasons"])["ns_per_packet"]
    whole = synthetic.finish([synthetic.measured(synthetic.point(**users), synthetic.np.random.default_rng(1))])
    assert whole["ns_per_packet"].notna().all()


@pytest.mark.parametrize(("code", "name"), [(61.0, "ENODATA"), (None, "several errors"), (78000.0, "an error")])
def test_an_errno_is_named_if_there_was_one(code: float | None, name: str) -> None:
    trials = synthetic.run(vary=ONE, workload="chase", repetitions=1)
    row = trials[trials["accesses"] == 1600].iloc[0].to_dict()
    row["metrics"] = json.dumps({"hints_refused_percent": 50.0, "hints_errno": code})
    with pytest.raises(Absent, match=f"50 % of the calls \\({name}\\)"):
        access_ns(WithBaselines(row, []))


def test_two_cpus_at_work_count_twice() -> None:
    one = synthetic.run(vary=ONE, workload="chase", repetitions=1)
    two = synthetic.run(vary=ONE, workload="chase", repetitions=1, queues=2)
    costs = [t.loc[t["accesses"] == 1600, "access_ns"].iloc[0] for t in (one, two)]
    assert costs[1] == pytest.approx(costs[0], rel=0.1)
    unknown = derive(two.assign(dut_cpus=None))
    assert unknown["ns_per_packet"].isna().all()
    assert "not recorded" in reasons(unknown, 1600)["ns_per_packet"]


@pytest.mark.parametrize(("counted", "alike"), [(2, True), (1, False), (None, False)])
def test_a_cpu_that_counts_for_one_n_alone_makes_no_cost(counted: int | None, alike: bool) -> None:
    """One at 49 % of the busiest one's time with N = 1600, and at 51 % with N = 0: the access cost was below 0."""
    trials = synthetic.run(vary=ONE | {"queues": [2]}, workload="chase", repetitions=1).astype({"dut_cpus": "Int64"})
    found = derive(trials.assign(dut_cpus=trials["dut_cpus"].mask(trials["accesses"].eq(1600), counted)))
    assert found.set_index("accesses")["access_ns"].notna().to_dict() == {0: False, 100: True, 1600: alike}
    assert found.set_index("accesses")["ns_per_packet"].notna().to_dict() == {0: True, 100: True, 1600: alike}


def test_a_time_is_not_compared_with_n_0_that_the_generator_limits() -> None:
    trials = synthetic.run(vary=ONE | {"queues": [2]}, workload="chase", repetitions=1).astype({"dut_cpus": "Int64"})
    zero = trials["accesses"].eq(0)
    limits = trials["limited_by"].mask(zero, "generator")
    found = derive(trials.assign(limited_by=limits, dut_cpus=trials["dut_cpus"].mask(zero, 1)))
    assert found.set_index("accesses")["ns_per_packet"].notna().to_dict() == {0: False, 100: True, 1600: True}


@pytest.mark.parametrize("zero", ["none", "of the generator"])
def test_without_a_time_of_n_0_most_n_say_how_many_cpus_a_line_is_of(zero: str) -> None:
    """The line through the times of 1 CPU at N = 100 and of 2 at N = 1600 had a slope that no access has."""
    vary = {"accesses": [0, 100, 400, 1600], "queues": [2]}
    trials = synthetic.run(vary=vary, workload="chase", repetitions=1).astype({"dut_cpus": "Int64"})
    trials["dut_cpus"] = trials["dut_cpus"].mask(trials["accesses"].eq(100), 1)
    if zero == "none":
        trials = trials[trials["accesses"].gt(0)].reset_index(drop=True)
    else:
        trials["limited_by"] = trials["limited_by"].mask(trials["accesses"].eq(0), "generator")
    found = derive(trials)
    timed = found[found["accesses"].gt(0)].set_index("accesses")["ns_per_packet"].notna()
    assert timed.to_dict() == {100: False, 400: True, 1600: True}
    assert "2 with N = 400" in reasons(found, 100)["ns_per_packet"]


def test_n_0_of_which_too_little_came_back_is_no_baseline_of_a_cost() -> None:
    """Its own time was null for that, and the cost of N = 1600 was the difference to it."""
    trials = synthetic.run(vary=ONE, workload="chase", repetitions=1)
    lossy = trials["accesses"].eq(0)
    came = trials["rx_packets"].mask(lossy, (0.9 * trials["dut_rx_packets"]).round().astype("Int64"))
    found = derive(trials.assign(rx_packets=came, dut_tx_packets=came)).set_index("accesses")
    assert found.loc[[0, 1600], "ns_per_packet"].isna().tolist() == [True, False]
    assert found["access_ns"].isna().all()


def test_testrun_is_less_that_of_n0_and_does_not_drift_when_derived_again() -> None:
    trials = synthetic.run(vary=ONE, workload="chase", repetitions=1)
    raw = trials.set_index("accesses")["testrun_raw_ns"]
    assert trials.set_index("accesses")["testrun_ns"][1600] == pytest.approx(raw[1600] - raw[0])
    assert derive(trials).equals(trials)


def test_n0_of_another_program_serves_where_the_plan_measured_it_once() -> None:
    zero, some = [synthetic.run(vary={"accesses": [n]}, workload=w) for n, w in ((0, "array"), (1600, "chase"))]
    both = derive(synthetic.pd.concat([zero, some], ignore_index=True))
    assert both.loc[both["accesses"] == 1600, "access_ns"].notna().all()


@pytest.mark.parametrize("column", ["block", "repetition", "mode", "frame_bytes", "engine", "flows", "arrangement"])
def test_n0_of_elsewhere_does_not_serve(column: str) -> None:
    trials = synthetic.run(vary=ONE, workload="chase", repetitions=1)
    other = {"block": 9, "repetition": 7, "frame_bytes": 1500, "flows": 1}.get(column, "split")
    trials.loc[trials["accesses"] == 0, column] = other
    moved = derive(trials)
    assert moved["access_ns"].isna().all()
    assert "no valid N = 0" in reasons(moved, 1600)["access_ns"]


def test_a_rate_that_the_generator_makes_has_no_service_time() -> None:
    trials = synthetic.run(vary={"accesses": [0, 100, 1600]}, workload="chase", arrangement="split", repetitions=1)
    assert trials.set_index("accesses")["limited_by"].to_dict() == {0: "generator", 100: "dut", 1600: "dut"}
    assert "limited by generator" in reasons(trials, 0)["ns_per_packet"]
    assert reasons(trials, 1600)["access_ns"] == "N = 0 is not limited by the DUT"


def test_in_a_closed_loop_the_difference_is_the_works_even_where_the_sender_dominates() -> None:
    trials = synthetic.run(vary={"accesses": [0, 400]}, workload="chase", engine="afxdp")
    assert set(trials["limited_by"]) == {"generator"}
    assert trials["ns_per_packet"].isna().all()
    assert trials.loc[trials["accesses"] == 400, "access_ns"].mean() == pytest.approx(400 * 2.4, rel=0.15)


def test_an_invalid_trial_has_no_cost_and_is_no_baseline() -> None:
    rows = [synthetic.point(accesses=n) for n in (0, 1600)]
    rng = synthetic.np.random.default_rng(3)
    measured = [synthetic.measured(row, rng) for row in rows]
    measured[0]["rx_packets"] = 0
    trials = synthetic.finish(measured)
    assert reasons(trials, 1600)["access_ns"].startswith("no valid N = 0")
    assert reasons(trials, 0)["ns_per_packet"] == "the trial is invalid"


def test_a_users_program_has_a_service_time_but_no_access_cost() -> None:
    trials = synthetic.run(vary={"program_name": ["lb.bpf.c"]}, workload=None, accesses=None, op=None)
    assert trials["ns_per_packet"].notna().all()
    assert "not known" in json.loads(trials["null_reasons"].iloc[0])["access_ns"]


def test_other_columns_keep_their_reasons() -> None:
    trials = synthetic.run(vary=ONE, repetitions=1).assign(null_reasons='{"cycles": "no PMU"}')
    assert json.loads(derive(trials)["null_reasons"].iloc[0])["cycles"] == "no PMU"


def test_the_last_attempt_counts() -> None:
    trials = synthetic.run(vary={"accesses": [0]}, repetitions=2)
    again = trials.assign(attempt=2, forwarded_pps=1.0)
    both = synthetic.pd.concat([again, trials], ignore_index=True)
    assert settled(both)["forwarded_pps"].tolist() == [1.0, 1.0]


def test_a_single_n0_begins_every_series_of_its_setting() -> None:
    zero = synthetic.run(vary={"accesses": [0]}, workload=None, program_name="baseline")
    rest = synthetic.run(vary={"workload": ["chase", "array"], "accesses": [1, 100]})
    both = synthetic.pd.concat([zero, rest], ignore_index=True)
    assert len(with_baselines(both)) == len(rest) + 2 * len(zero)
    found = {label: sorted(set(rows["accesses"])) for label, rows in by_series(both)}
    assert [list(ns) for ns in found.values()] == [[0, 1, 100]] * 2
    assert all("chase" in label or "array" in label for label in found)
    of_chase = synthetic.run(vary={"workload": ["chase"], "accesses": [0]})
    assert len(with_baselines(synthetic.pd.concat([both, of_chase], ignore_index=True))) == len(both) + len(of_chase)


def test_nothing_in_nothing_out() -> None:
    empty = synthetic.run(repetitions=1).iloc[:0]
    assert derive(empty).empty
    assert list(by_series(empty)) == []


def test_a_paced_load_that_fell_short_tells_no_cost() -> None:
    trials = synthetic.run(vary={"accesses": [0, 1600]}, workload="chase", load="9Mpps", rate_requested_pps=9e6)
    assert set(trials["limited_by"]) == {"shared_cpu"}
    assert trials["ns_per_packet"].isna().all()
    assert "does not keep the shared CPU busy" in reasons(trials, 1600)["access_ns"]


def test_a_baseline_of_another_visit_is_told() -> None:
    """An N that was added hours later took the N = 0 of before as that of the same repetition, without a word."""
    trials = synthetic.run(vary=ONE, workload="chase", repetitions=1)
    ids = trials.set_index("accesses")["trial_id"]
    visits = {(ids[0], 1): (1, 0.0), (ids[100], 1): (1, 9.0), (ids[1600], 1): (4, 7200.0)}
    found = derive(trials, visits).set_index("accesses")
    assert found.loc[1600, "reason"].endswith("its N = 0 was measured in another visit of the block, 120 minutes apart")
    assert found.loc[1600, "access_ns"] > 0
    assert not found.loc[[0, 100], "reason"].str.contains("visit").any()
    again = derive(derive(trials, visits), visits).set_index("accesses")
    assert again.loc[1600, "reason"] == found.loc[1600, "reason"]
