"""Each finding is made where its cause was planted, and not on a plain run."""

import json
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import synthetic
from tests.analysis.synthetic import judged

from xdplab.analysis.derived import derive
from xdplab.analysis.finding_rules import RULES, find, places
from xdplab.analysis.findings import Finding, files_of, points_of
from xdplab.analysis.load_rules import DISTURBANCES
from xdplab.analysis.repetition_rules import repetition_apart
from xdplab.analysis.series import SERIES, point_label
from xdplab.analysis.series import plain as lean
from xdplab.analysis.settings_rules import TOLD

NS = [0, 100, 400, 800, 1600, 3200]


def plain(**fixed: object) -> pd.DataFrame:
    return synthetic.run(vary={"accesses": NS}, **({"workload": "chase", "repetitions": 4} | fixed))


def scaled(trials: pd.DataFrame, mask: pd.Series, factor: float | pd.Series) -> pd.DataFrame:
    """Change a rate and all counts that must agree with it."""
    columns = ["tx_packets", "rx_packets", "dut_rx_packets", "dut_tx_packets"]
    rates = ["offered_pps", "forwarded_pps"]
    trials = trials.copy()
    trials.loc[mask, rates] = trials.loc[mask, rates].mul(factor, axis=0)
    trials.loc[mask, columns] = trials.loc[mask, columns].mul(factor, axis=0).round().astype("Int64")
    return derive(judged(trials))


@pytest.mark.parametrize("seed", range(6))
def test_a_plain_run_has_no_finding(seed: int) -> None:
    assert find(plain(seed=seed)) == []


def named(findings: list[Finding], rule: str) -> list[Finding]:
    assert rule in {**RULES, **MADE_BY}
    return [finding for finding in findings if finding.rule == rule]


MADE_BY = {"fewer repetitions": "no valid trial", **dict.fromkeys(DISTURBANCES, "disturbances")}
"""The rule that makes a finding, where it makes several."""


def by(trials: pd.DataFrame, rule: str) -> list[Finding]:
    """Apply one rule; all of them together take twenty times as long."""
    maker = MADE_BY.get(rule, rule)
    return named(find(trials, {maker: RULES[maker]}), rule)


def test_an_error_is_no_smaller_than_that_of_the_whole_series() -> None:
    trials = plain(repetitions=3)
    trials = trials[trials["accesses"].isin([0, 100])]
    rates = {(0, 1): 9e5, (0, 2): 1e6, (0, 3): 1.1e6}
    keys = zip(trials["accesses"], trials["repetition"], strict=True)
    first, second = places(trials.assign(forwarded_pps=[rates.get(key, 5e5) for key in keys]), "forwarded_pps")
    assert (first.accesses, first.spread.mean, first.se) == (0, 1e6, pytest.approx(1e5 / 3**0.5))
    assert (second.accesses, second.spread.mean) == (100, 5e5)
    assert second.se == pytest.approx(5e5 * 0.005**0.5 / 3**0.5), "three equal rates are luck"


def test_a_rate_that_rises_with_n() -> None:
    trials = plain()
    (found,) = by(scaled(trials, trials["accesses"] == 1600, 3.0), "rate rises with N")
    assert "N = 1600 forwards" in found.what
    assert found.evidence["standard_errors"] > 3
    assert found.severity == "warning"
    assert f"raw/{trials['trial_id'].iloc[4]}/1" in found.files


def test_a_rate_that_rises_from_nothing() -> None:
    """Equal repetitions have no error, and from nothing a rise has no share."""
    trials = plain()
    least = trials["accesses"] == 0
    trials = trials.assign(forwarded_pps=trials["forwarded_pps"].mask(least, 0.0).mask(~least, 1e6))
    found = by(trials, "rate rises with N")
    assert found
    assert all("none at N = 0" in one.what and "standard_errors" not in one.evidence for one in found)


def test_one_repetition_cannot_show_a_rise() -> None:
    trials = plain(repetitions=1)
    assert by(scaled(trials, trials["accesses"] == 1600, 3.0), "rate rises with N") == []


def test_the_point_off_the_line_is_named_and_its_neighbours_are_not() -> None:
    trials = plain()
    found = by(scaled(trials, trials["accesses"] == 800, 0.75), "off the line")
    assert [finding.what.split(":")[1].split(" lies")[0] for finding in found] == [" N = 800"]
    assert found[0].evidence["share"] == pytest.approx(1 / 0.75 - 1, abs=0.05)


def test_repetitions_that_ran_another_program() -> None:
    trials = plain(repetitions=5)
    other = trials["repetition"].isin([2, 4]) & trials["accesses"].gt(0)
    cheap = 0.3 * (trials["ns_per_packet"] - 230) + 230
    trials.loc[other, "ns_per_packet"] = cheap
    (found,) = by(trials, "repetitions form classes")
    assert "repetitions 2, 4: 0.7" in found.what
    assert "repetitions 1, 3, 5: 2." in found.what


def test_loads_that_form_two_classes() -> None:
    trials = synthetic.run(vary={"accesses": [0]}, repetitions=6)
    slow = trials["repetition"] > 3
    trials["forwarded_pps"] = 4e6 + trials["repetition"] * 1e3
    trials.loc[slow, "forwarded_pps"] = 3.5e6 + trials["repetition"] * 1e3
    (found,) = by(trials, "program loads form classes")
    assert found.evidence["high_pps"] > found.evidence["low_pps"]


@pytest.mark.parametrize("factor", [0.55, 1.6])
def test_one_repetition_that_is_far_from_the_others_is_named(factor: float) -> None:
    trials = plain(repetitions=3)
    one = trials["accesses"].eq(1600) & trials["repetition"].eq(2)
    trials["program_run_raw_ns"] = 3800.0
    trials.loc[one, "program_run_raw_ns"] = 3800.0 / factor
    (found,) = by(scaled(trials, one, factor), "repetition apart")
    side = "more" if factor > 1 else "less"
    share = abs(found.evidence["pps"] / found.evidence["pps_of_others"] - 1)
    assert (
        f"N = 1600: repetition 2 forwards {share:.0%} {side} than the other 2; in its test run the program took "
        in found.what
    )
    assert found.files == (f"raw/{trials.loc[one, 'trial_id'].iloc[0]}/1",)
    assert found.evidence["pps"] == pytest.approx(factor * found.evidence["pps_of_others"], rel=0.06)
    trials["attempt"] = None  # logs have none
    assert files_of(trials[one]) == found.files
    unnamed = trials[one].assign(point_id=None)
    assert points_of(pd.concat([trials[one], unnamed, trials[one]])) == found.points


def test_repetitions_that_all_differ_and_two_alone_have_none_apart() -> None:
    trials = plain(repetitions=3)
    spread = trials.copy()
    for repetition, factor in ((1, 0.8), (3, 1.2)):
        spread = scaled(spread, spread["accesses"].eq(1600) & spread["repetition"].eq(repetition), factor)
    assert by(spread, "repetition apart") == []
    two = plain(repetitions=2)
    assert by(scaled(two, two["repetition"].eq(2), 0.5), "repetition apart") == []


FORTY_EIGHT = {"accesses": NS, "queues": (1, 2, 4, 8), "frame_bytes": (64, 512)}


def uneven(
    sd: float, *, repetitions: int = 3, seed: int = 1, vary: dict[str, tuple[int, ...]] = FORTY_EIGHT
) -> pd.DataFrame:
    """Return a run, usually of 48 points, whose repetitions differ by ``sd`` (of the rate's logarithm)."""
    trials = synthetic.run(vary=vary, workload="chase", repetitions=repetitions)
    factors = np.exp(np.random.default_rng(seed).normal(0, sd, len(trials)))
    for column in ("offered_pps", "forwarded_pps", "tx_packets", "rx_packets", "dut_rx_packets", "dut_tx_packets"):
        trials[column] = (trials[column].astype(float) * factors).round().astype(trials[column].dtype)
    return derive(judged(trials))


def test_a_run_whose_repetitions_differ_says_by_how_much_and_names_none_of_them() -> None:
    """Of three repetitions one is often three ranges away by chance: it says nothing of that one."""
    found = find(uneven(0.12))
    (differ,) = named(found, "repetitions differ")
    assert found[0] == differ, "the first of the audit: all other lines depend on it"
    assert differ.severity == "warning"
    assert differ.evidence["sd_share"] == pytest.approx(0.12, rel=0.25)
    assert differ.evidence["half_width_share"] == pytest.approx(4.3 * 0.12 * 0.83 / 3**0.5, rel=0.25)
    assert "median of 48 points" in differ.what
    assert len(named(found, "repetition apart")) <= 1


@pytest.mark.parametrize("sd", [0.0, 0.03])
def test_repetitions_that_hardly_differ_are_no_finding(sd: float) -> None:
    found = find(uneven(sd))
    assert named(found, "repetitions differ") == named(found, "repetition apart") == []


@pytest.mark.parametrize(
    "points", [pytest.param(2, marks=pytest.mark.thorough), 3, pytest.param(5, marks=pytest.mark.thorough)]
)
def test_a_run_of_few_points_names_hardly_a_repetition_by_chance(points: int) -> None:
    """Where repetitions differ by a tenth, two of three such runs had named one, as ranges alone do."""
    trials = synthetic.run(vary={"accesses": NS[:points]}, repetitions=3)
    random, rate = np.random.default_rng(1), trials["forwarded_pps"].astype(float)
    factors = np.exp(random.normal(0, 0.1, (20, len(trials))))
    named_by_chance = [list(repetition_apart(trials.assign(forwarded_pps=rate * run))) for run in factors]
    assert sum(map(bool, named_by_chance)) <= 1
    quiet = rate * np.exp(random.normal(0, 0.001, len(trials)))
    one = trials["accesses"].eq(100) & trials["repetition"].eq(2)
    assert len(list(repetition_apart(trials.assign(forwarded_pps=quiet.where(~one, 0.5 * quiet))))) == 1


def test_slow_repetitions_of_a_series_are_no_other_program_in_a_run_whose_repetitions_differ() -> None:
    """The speed of a busy machine changes from one half minute to the next: all N of a series are slower together."""
    trials = uneven(0)
    series = trials.groupby(["queues", "frame_bytes", "repetition"], sort=False).ngroup()
    together = alone = 0
    for seed in range(2):
        slower = np.exp(np.random.default_rng(seed).normal(0, 0.15, series.max() + 1))[series]
        slow = trials.assign(
            ns_per_packet=trials["ns_per_packet"].astype(float) * slower,
            forwarded_pps=trials["forwarded_pps"].astype(float) / slower,
        )
        found = find(slow)
        assert named(found, "repetitions differ")
        together += len(named(found, "repetitions form classes"))
        one = slow["queues"].eq(1) & slow["frame_bytes"].eq(64)
        alone += len(by(slow[one], "repetitions form classes"))
    assert together <= 1, "of 16 series"
    assert alone >= 1, "of 2 series, each without others to compare it with"


def test_a_plateau_of_rates_that_are_hardly_known_is_chance() -> None:
    """Of three repetitions that differ by 20 %, the means of two N are equal now and then."""
    trials = plain(repetitions=3)
    rates = {0: (2.0e6, 2.6e6, 3.2e6), 100: (3.19e6, 2.58e6, 2.03e6)}
    rows = trials["accesses"].isin([*rates])
    pairs = zip(trials["accesses"], trials["repetition"], strict=True)
    known = np.array([rates[n][repetition - 1] if n in rates else 1.0 for n, repetition in pairs])
    steady = 2.6e6 * (1 + 0.002 * trials["repetition"].astype(float))
    before = trials["forwarded_pps"].astype(float)
    assert by(scaled(trials, rows, (known / before)[rows]), "plateau") == []
    (found,) = by(scaled(trials, rows, (steady / before)[rows]), "plateau")
    assert "N = 0 to 100 forward the same: something other" in found.what


def test_a_race_by_slices_does_not_suffer_from_repetitions_that_differ() -> None:
    (found,) = by(uneven(0.12).assign(slices_ratio=1.01), "repetitions differ")
    assert found.severity == "info"
    assert "does not concern the race's ratio" in found.what


def test_a_paced_rate_is_no_measure_of_the_machine() -> None:
    trials = uneven(0.12)
    assert by(trials.assign(rate_requested_pps=1e5, load="100kpps"), "repetitions differ") == []


def test_a_paced_repetition_is_compared_with_paced_ones() -> None:
    """They hardly differ, however much the repetitions at maximum load do."""
    paced = plain(repetitions=3, load="100kpps", rate_requested_pps=1e5)
    one = paced["accesses"].eq(1600) & paced["repetition"].eq(2)
    found = by(pd.concat([uneven(0.2), scaled(paced, one, 0.7)], ignore_index=True), "repetition apart")
    assert [f"raw/{paced.loc[one, 'trial_id'].iloc[0]}/1"] in [list(finding.files) for finding in found]


def test_a_latency_that_is_a_rings_fill() -> None:
    trials = plain(repetitions=2)
    trials["latency_mean_ns"] = 512 * 1e9 / trials["forwarded_pps"]
    (found,) = by(trials, "latency is a ring's fill")
    assert ", repetitions 1, 2: latency × rate is 512 frames per queue at 6 N" in found.what
    assert found.evidence == {"entries_a_queue": pytest.approx(512), "points": 6.0}
    assert len(found.files) == 12
    deeper = trials.assign(rx_ring_entries=trials["rx_ring_entries"].where(trials["repetition"].eq(1), 1024))
    deeper["latency_mean_ns"] = trials["latency_mean_ns"].where(
        trials["repetition"].eq(1), 2 * trials["latency_mean_ns"]
    )
    found = by(deeper, "latency is a ring's fill")
    assert [finding.evidence["entries_a_queue"] for finding in found] == [pytest.approx(512), pytest.approx(1024)]
    assert [", repetition 1: " in found[0].what, ", repetition 2: " in found[1].what] == [True, True]
    unknown = trials.assign(rx_ring_entries=None)
    assert "the same while the rate changes" in by(unknown, "latency is a ring's fill")[0].what


def test_a_plateau_by_the_generator_and_one_without_a_known_limit() -> None:
    split = plain(arrangement="split", queues=2)
    (known,) = by(split, "plateau")
    assert "N = 0 to 100 forward the same: the generator limits" in known.what
    assert known.severity == "info"
    (hidden,) = by(split.assign(limited_by="dut"), "plateau")
    assert "something other than the DUT's work" in hidden.what
    assert hidden.severity == "warning"
    assert hidden.evidence["predicted_drop"] > 0.1


def test_points_that_are_missing_or_without_a_valid_trial() -> None:
    trials = synthetic.run(vary={"queues": [1, 2], "accesses": [0, 100, 400]}, repetitions=2)
    gap = (trials["queues"] == 2) & (trials["accesses"] == 400)
    (absent,) = by(trials[~gap], "missing points")
    assert "1 of 6 points are missing (2 queues, 64 B, N = 400)" in absent.what
    deaf = trials.copy()
    deaf.loc[gap, "rx_packets"] = 0
    (lost,) = by(judged(deaf), "no valid trial")
    assert "deaf" in lost.what
    assert len(lost.points) == 1
    deaf.loc[gap, "program_name"] = "mine.bpf.c"
    (lost,) = by(judged(deaf), "no valid trial")
    assert lost.what.startswith("1 point of mine.bpf.c without")
    (few,) = by(trials[~(gap & (trials["repetition"] == 2))], "fewer repetitions")
    assert few.points == lost.points


def test_unsupported_points_are_not_missing() -> None:
    assert {finding.rule for finding in find(synthetic.quick())} == {"cost not resolved"}  # of N = 1


NULLS: dict[str, Callable[[], pd.DataFrame]] = {
    "empty": lambda: plain().iloc[:0],
    "all unsupported": lambda: synthetic.finish([synthetic.unsupported(accesses=n) for n in (0, 100)]),
    "one N, one repetition": lambda: synthetic.run(vary={"accesses": [100]}, repetitions=1),
    "nothing but counts": lambda: plain().assign(
        latency_mean_ns=None, ns_per_packet=None, dut_cpus=None, queues_reached=None, rx_ring_entries=None
    ),
    "a user's program": lambda: synthetic.run(vary={"program_name": ["lb.c"]}, workload=None, accesses=None),
}


@pytest.mark.parametrize("name", NULLS)
def test_rules_hold_on_little_data(name: str) -> None:
    assert by(NULLS[name](), "rate rises with N") == []


QUIET = {
    "other_busy_cores": 0.009, "tx_busy_cores": 0.99, "host_steal_cores": 0.0, "rate_change": 0.0, "tx_pause_ms": 0.1,
    "tx_paused_ms": 0.0, "latency_sent_p99_ns": 1e9,
}  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "change", "words"),
    [
        ("other work", {"other_busy_cores": 0.2}, "other work took 20% of the time of the CPUs at work"),
        ("CPU stolen", {"host_steal_cores": 0.2}, "the hypervisor took 0.20 CPUs away"),
        (
            "rate not steady",
            {"rate_change": 0.4, "rate_change_kind": "trend"},
            "a trend of +40% of its mean within the window",
        ),
        ("sender stood still", {"tx_pause_ms": 50.0, "tx_paused_ms": 51.0}, "stood still for 51 ms of 1000"),
        ("sender late", {"latency_sent_p99_ns": 1.0}, "the sender was late"),
        ("no real-time priority", {"sched_policy": "SCHED_OTHER (refused: EPERM)"}, "no real-time priority"),
        ("load missed", {"rate_requested_pps": 1e9}, "of the 1000 Mpps asked for"),
    ],
)
def test_what_disturbed_a_trial_is_said_of_the_run(rule: str, change: dict[str, object], words: str) -> None:
    quiet = synthetic.run(arrangement="shared").assign(**QUIET)
    assert by(quiet, rule) == []
    for name, value in change.items():
        quiet.loc[quiet.index[0], name] = value
    (found,) = by(quiet, rule)
    assert found.severity == "warning"
    assert found.what.startswith(f"1 of {len(quiet)} trials")
    assert words in found.what


def test_a_cost_that_the_test_run_contradicts() -> None:
    trials = plain()
    at = trials["accesses"] == 400
    trials.loc[at, "access_ns"] = trials.loc[at, "access_ns"] * 1.4
    (found,) = by(trials, "test run disagrees")
    assert found.severity == "warning"
    assert "400 accesses cost" in found.what
    assert found.evidence["access_ns"] / found.evidence["testrun_ns"] == pytest.approx(1.4, abs=0.05)
    beyond = found.evidence["access_ns"] - 1.15 * found.evidence["testrun_ns"]
    assert beyond > found.evidence["half_width_ns"]


def test_a_cost_within_the_tolerance_is_no_finding() -> None:
    trials = plain()
    trials["access_ns"] = trials["access_ns"] * 1.05
    assert by(trials, "test run disagrees") == []


@pytest.mark.parametrize(
    ("test_ns", "live_ns", "contradicts"),
    [
        *((12.0, 261.0, True), (36.0, 12.0, False), (79.0, 4250.0, True)),
        *((165.0, 100.0, False), (165.1, 100.0, True), (60.0, 100.0, False), (59.9, 100.0, True)),
    ],
)
def test_a_test_run_that_the_statistics_of_the_same_trial_contradict(
    test_ns: float, live_ns: float, contradicts: bool
) -> None:
    trials = plain()
    of_one = trials["accesses"] == 400
    trials.loc[of_one, ["testrun_raw_ns", "program_run_ns"]] = test_ns, live_ns
    found = by(trials, "test run contradicted")
    assert [one.evidence for one in found] == [{"testrun_raw_ns": test_ns, "program_run_ns": live_ns}] * contradicts
    assert by(trials.assign(rate_requested_pps=2e4), "test run contradicted") == [], "between paced frames caches cool"


def test_a_cost_below_the_noise_is_said_to_be_unknown() -> None:
    trials = synthetic.run(vary={"accesses": [0, 1, 400, 1600]}, workload="chase")
    (found,) = by(trials, "cost not resolved")
    assert "at 1 of 3 points (N = 1)" in found.what
    assert found.severity == "info"
    assert found.evidence["half_width_ns"] > 0.15 * found.evidence["testrun_ns"]


def test_one_repetition_can_neither_confirm_nor_contradict_the_test_run() -> None:
    findings = find(plain(repetitions=1))
    assert named(findings, "test run disagrees") == []
    assert "was measured once" in named(findings, "cost not resolved")[0].what


def side_by_side(kernel: dict[str, object], user: dict[str, object]) -> pd.DataFrame:
    trials = synthetic.run(vary={"mode": ("native", "af_xdp"), "accesses": [0, 100, 1600]}, workload="chase")
    for mode, work in (("native", kernel), ("af_xdp", user)):
        for name, value in work.items():
            trials.loc[trials["mode"].eq(mode) & trials["accesses"].gt(0), name] = value
    return trials


def test_modes_that_do_other_work_are_not_compared_in_silence() -> None:
    same = {"access_loads": 1.0, "access_stores": 0.0, "access_chain": "and shl add load"}
    assert by(side_by_side(same, same), "unequal work") == []
    (longer,) = by(side_by_side(same, same | {"access_chain": "and add shl add load"}), "unequal work")
    assert "for and add shl add load in AF_XDP" in longer.what
    (more,) = by(side_by_side(same | {"access_loads": 4.1, "access_stores": 1.0}, same), "unequal work")
    assert "4.1 loads and 1.0 stores in the kernel, 1.0 loads and 0.0 stores in AF_XDP" in more.what
    assert len(more.points) == 6
    for name in ("access_loads", "access_stores"):
        near, apart = (side_by_side(same, same | {name: same[name] + by_so_much}) for by_so_much in (0.25, 0.26))
        assert (by(near, "unequal work"), len(by(apart, "unequal work"))) == ([], 1)
    few, block = (
        side_by_side(same | {"access_loads": 4.1}, same).replace({"accesses": {100: 1, 1600: n}}) for n in (31, 32)
    )
    assert (by(few, "unequal work"), len(by(block, "unequal work"))) == ([], 1)
    unknown = {"access_loads": None, "null_reasons": json.dumps({"access_loads": "it calls a function"})}
    (called,) = by(side_by_side(unknown, same), "unequal work")
    assert "it calls a function; in AF_XDP's user space it is 1.0 loads" in called.what


@pytest.mark.parametrize("differs", [{"program_hash": "b"}, {"program_insns": 180}])
def test_a_point_whose_repetitions_ran_other_programs_is_named(differs: dict[str, object]) -> None:
    """clang was updated, or net.core.bpf_jit_harden was set, between two sessions: a mean joined two programs."""
    trials = plain().assign(program_hash="a", program_insns=100)
    assert by(trials, "programs differ") == []
    later = trials["accesses"].eq(400) & trials["repetition"].ge(3)
    for name, value in differs.items():
        trials[name] = trials[name].mask(later, value)
    (found,) = by(trials, "programs differ")
    assert found.severity == "warning"
    assert found.points == tuple(trials.loc[later, "point_id"].unique())


def test_many_settings_and_missing_points_are_counted_and_the_first_named() -> None:
    trials = plain()
    names = [f"dut net.core.a{place}" for place in range(TOLD + 2)]
    first, second = (json.dumps(dict.fromkeys(names, value)) for value in ("0", ""))
    mixed = trials.assign(settings=np.where(trials["repetition"].eq(1), first, second))
    (found,) = by(mixed, "settings differ")
    assert (found.evidence, len(found.points)) == ({"settings": TOLD + 2.0}, len(NS))
    assert len(by(mixed.assign(lab=pd.NA), "settings differ")) == 1, "a lab without a name is one"
    assert f"{names[0]} is 0 in 6 trials or nothing in 18 trials; {names[1]} is" in found.what
    assert (names[TOLD] in found.what, found.what.endswith(" and 2 more")) == (False, True)
    grid = synthetic.run(vary={"queues": [1, 2], "accesses": NS}, repetitions=1)
    for left_out in (4, 5):
        (lacking,) = by(grid[grid["queues"].eq(1) | ~grid["accesses"].isin(NS[:left_out])], "missing points")
        assert (lacking.evidence, lacking.what.endswith(" …)")) == ({"missing": left_out, "grid": 12}, left_out == 5)
    assert by(grid[grid["queues"].eq(1) | grid["accesses"].eq(0)], "missing points"), "as many as were measured"
    reasons = trials.assign(verdict="failed", reason=np.where(trials["accesses"].gt(400), "3 of 5 lost", "no link"))
    assert [(one.evidence["points"], one.what.rpartition(": ")[2]) for one in by(reasons, "no valid trial")] == [
        (3, "no link"),
        (3, "3 of 5 lost"),
    ]


@pytest.mark.parametrize(
    ("name", "told"),
    [("dut net.core.bpf_jit_harden", True), ("tg kernel.numa_balancing", True), ("dut port.mtu", False)],
)
def test_settings_that_differ_between_trials_are_named(name: str, told: bool) -> None:
    """A machine's settings are one in all trials; a port's in the repetitions of a point."""
    trials = plain().assign(settings=json.dumps({"dut net.core.bpf_jit_harden": "0", "dut port.mtu": "1500"}))
    assert by(trials, "settings differ") == []
    other = json.dumps(json.loads(trials["settings"].iloc[0]) | {name: "2"})
    for mask, expected in ((trials["repetition"].ge(3), True), (trials["accesses"].eq(400), told)):
        found = by(trials.assign(settings=trials["settings"].mask(mask, other)), "settings differ")
        assert [name in one.what for one in found] == [True] * expected


def test_a_users_program_is_named_without_an_n() -> None:
    trials = synthetic.run(vary={"accesses": [100]}, repetitions=1)
    assert point_label(trials) == point_label(lean(trials, [*SERIES, "accesses"]))
    assert "1 queue 64 B" in point_label(trials)
    assert "2 queues" in point_label(trials.assign(queues=2.0))
    assert point_label(trials).endswith(", N = 100")
    assert "N =" not in point_label(trials.assign(accesses=pd.NA))
