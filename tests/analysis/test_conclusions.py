"""The sentences of a run: their numbers are those of the model that made the trials."""

import re
from math import isnan, log

import pandas as pd
import pytest
from tests.analysis import synthetic
from tests.analysis.test_findings import scaled

from xdplab.analysis.conclusions import CHANGING, NEEDED, NOTHING_TO_COMPARE, Effect, conclusions, doubt, doubts
from xdplab.analysis.finding_rules import RULES, find
from xdplab.analysis.findings import Finding
from xdplab.analysis.load_rules import DISTURBANCES
from xdplab.analysis.sentences import Estimate

NUMBER = re.compile(r"\d+(?:\.\d+)?")
CHASE_NS, NATIVE_NS, GENERIC_NS = synthetic.ACCESS_NS["chase"], 30 + 60 + 170, 30 + 700 + 170


def numbers(text: str) -> list[float]:
    return [float(number) for number in NUMBER.findall(text)]


def test_costs_ratios_and_what_makes_no_difference_are_those_of_the_model() -> None:
    vary = {"mode": ("native", "generic"), "queues": (1, 2), "frame_bytes": (64, 1500), "accesses": (0, 100, 1600)}
    (said,) = conclusions(synthetic.run(vary=vary, workload="chase", repetitions=5))
    native, low, high, generic, *_ = numbers(said)
    assert native == pytest.approx(CHASE_NS, rel=0.03)
    assert low <= CHASE_NS <= high
    assert generic == pytest.approx(CHASE_NS, rel=0.05)
    assert told(said, "generic")[0] == pytest.approx(NATIVE_NS / GENERIC_NS, rel=0.05)
    assert told(said, "2 queues")[0] == pytest.approx(2, rel=0.05)
    assert told(said, "1500 B frames")[1] < 5, "64 B frames, and the limit of what would have shown, in per cent"


def told(text: str, level: str) -> list[float]:
    """Return the numbers that are told of the rate with a level."""
    return numbers(text.partition(f"the rate with {level}")[2] or text.partition(f", with {level}")[2])


@pytest.mark.parametrize(
    ("low", "high", "limit"),
    [(0.98, 1.001, 2), (0.999, 1.03, 3), (0.6, 1.1, 40), (0.996, 1.001, 0.4), (0.95, 1.11, 11)],
)
def test_what_a_level_does_not_change_is_known_to_the_farther_end_of_its_interval(
    low: float, high: float, limit: float
) -> None:
    effect = Effect("2", "1", Estimate(1.02, low, high))
    assert numbers(effect.text.partition("1 ")[2]) == [limit]
    assert ("is the same as" in effect.text) == (limit <= 10)
    assert (effect.size, Effect("2", "1", Estimate(0.5, 0.4, 0.6)).size) == (0.0, pytest.approx(log(2)))


def test_points_whose_ratios_differ_are_a_range() -> None:
    trials = synthetic.run(vary={"queues": (1, 2), "mode": ("native", "generic"), "accesses": (0, 100)}, repetitions=5)
    slow = scaled(trials, trials["queues"].eq(2) & trials["mode"].eq("generic"), 0.6)
    (said,) = conclusions(slow)
    low, high = told(said, "2 queues")[:2]
    assert (low, high) == (pytest.approx(1.2, rel=0.05), pytest.approx(2.0, rel=0.05))


@pytest.mark.parametrize(
    ("points", "differ"),
    [
        ([(0.68, 0.76), (0.94, 0.9), (1.1, 1.24)], True),  # two repetitions alone: an interval is 13 times the noise
        ([(0.7, 0.8, 0.75), (1.0, 1.05, 1.1)], True),
        ([(0.8, 1.1), (1.2, 0.9), (1.1, 0.95)], False),
        ([(1.0, 1.01, 1.02), (1.2, 1.21, 1.22), (0.6, 1.0, 1.8)], True),  # however noisy another point is
        ([(1.0, 1.05), (1.08, 1.02)], False),
        ([(0.7,), (1.2,)], True),
    ],
)
def test_no_interval_is_given_over_points_that_differ(points: list[tuple[float, ...]], differ: bool) -> None:
    one = Estimate.of({place: dict(enumerate(values)) for place, values in enumerate(points)})
    assert isnan(one.least) != differ


@pytest.mark.parametrize("modes", [("native",), ("native", "generic")])
def test_a_cost_below_the_noise_is_no_mean_of_the_repetitions_that_are_above_it(modes: tuple[str, ...]) -> None:
    trials = synthetic.run(vary={"mode": modes, "accesses": (0, 1)}, workload="chase", repetitions=5)
    noise = trials["mode"].eq("native") & trials["accesses"].eq(1) & trials["repetition"].isin((1, 2))
    trials.loc[noise, "ns_per_packet"] *= 0.9
    trials.loc[trials["mode"].eq("generic") & trials["accesses"].eq(1), "ns_per_packet"] *= 1.5
    (said,) = conclusions(trials)
    assert "not above the noise" in said
    costs = numbers(said.partition("costs ")[2])[:1] if "generic" in modes else []
    assert costs == [pytest.approx(GENERIC_NS / 2, rel=0.1)] * (len(modes) - 1)


@pytest.mark.parametrize(("disturbed", "unclear"), [(1, False), (15, True)])
def test_disturbed_repetitions_silence_no_cost_that_is_clear(disturbed: int, unclear: bool) -> None:
    vary = {"frame_bytes": (64, 1500), "accesses": (0, 10)}
    trials = synthetic.run(vary=vary, workload="chase", repetitions=30)
    baselines = trials["frame_bytes"].eq(64) & trials["accesses"].eq(0) & trials["repetition"].le(disturbed)
    trials.loc[baselines, "ns_per_packet"] += 20 * CHASE_NS
    (said,) = conclusions(trials)
    cost, low, high = numbers(said.partition("costs ")[2])[:3]
    assert low < CHASE_NS < high
    assert cost == pytest.approx(CHASE_NS, rel=0.1)
    assert ("for 1 more it is not above the noise" in said) == unclear


def test_one_repetition_gives_no_interval() -> None:
    (said,) = conclusions(synthetic.run(vary={"accesses": (0, 100, 1600)}, workload="chase", repetitions=1))
    assert "about" in said
    assert "[" not in said


def test_a_run_of_one_point_tells_its_rate_and_paced_points_their_round_trips_at_each_load() -> None:
    loads = [
        synthetic.run(vary={"accesses": [0]}, load=load, rate_requested_pps=rate)
        for load, rate in (("max", None), ("20kpps", 2e4), ("500kpps", 5e5))
    ]
    rows = pd.concat(loads, ignore_index=True)
    rows.loc[rows["load"].eq("500kpps"), "latency_p99_ns"] *= 3
    rate, trips = conclusions(rows)
    assert numbers(rate)[0] == pytest.approx(1e3 / NATIVE_NS, rel=0.05)
    slow, fast = trips.split(" and ")
    assert numbers(fast)[0] == pytest.approx(3 * numbers(slow.partition("is ")[2])[0], rel=0.1)


@pytest.mark.parametrize("repetitions", [1, 5])
def test_points_that_differ_are_a_range_about_which_one_repetition_knows_little(repetitions: int) -> None:
    vary = {"frame_bytes": (64, 1500), "accesses": (0, 400)}
    trials = synthetic.run(vary=vary, workload="chase", repetitions=repetitions)
    trials.loc[trials["frame_bytes"].eq(64) & trials["accesses"].eq(400), "ns_per_packet"] *= 2
    (said,) = conclusions(trials)
    low, high = numbers(said.partition("costs ")[2])[:2]
    assert (low, high) == (pytest.approx(CHASE_NS, rel=0.1), pytest.approx(2 * CHASE_NS + NATIVE_NS / 400, rel=0.1))
    assert said.startswith("One more access costs about") == (repetitions == 1)


def test_without_a_valid_rate_there_is_no_number() -> None:
    trials = synthetic.run(vary={"accesses": [0]})
    (said,) = conclusions(trials.assign(verdict=pd.array(["invalid"] * len(trials), dtype="string")))
    assert numbers(said) == []


def test_the_slower_of_two_repetitions_is_named_if_its_test_run_was_slower_too() -> None:
    trials = synthetic.run(vary={"accesses": (0, 100)}, repetitions=2)
    one = trials["accesses"].eq(0) & trials["repetition"].eq(2)
    slow = scaled(trials, one, 1 / 2.7)
    assert [finding.rule for finding in find(slow) if finding.rule == "repetition apart"] == [], "which, nobody knows"
    slow.loc[one, "testrun_raw_ns"] *= 7
    said = doubt(find(slow), "results/r")
    assert "repetition 2 forwards 63% less" in said
    assert numbers(said.partition("took ")[2])[0] == pytest.approx(7 * 30, rel=0.05)


def test_a_run_says_one_doubt_and_findings_of_one_rule_are_one() -> None:
    alike = [Finding("off the line", "warning", f"at {n}") for n in range(7)]
    apart, noise = Finding("repetition apart", "warning", "apart"), Finding("other work", "warning", "busy")
    found = doubts([noise, *alike, apart, Finding("plateau", "info", "…")])
    assert [(one.rule, one.more) for one in found] == [("repetition apart", 0), ("off the line", 6)]
    said = doubt([noise, *alike, apart], "results/r")
    assert said.startswith("What may change this: apart")
    assert "Other doubts: off the line (`xdplab audit results/r`)" in said
    assert "at 0" not in said
    assert doubt([noise, *alike, apart], "r", ["repetition apart"]).startswith(
        "What may change this: at 0 (6 more alike)"
    )
    assert "`xdplab audit r` has 1 remark on" in doubt([noise, Finding("plateau", "info", "…")], "r")
    assert "audit" not in doubt([], "r")
    assert "busy" not in doubt([noise], "results/r")


def test_a_clock_that_differs_matters_if_many_trials_have_it() -> None:
    few, most = (Finding("clock differs", "warning", "…", (), {"trials": n, "of": 40.0}) for n in (1.0, 20.0))
    assert (doubts([few]), [one.rule for one in doubts([most])]) == ([], ["clock differs"])


def test_each_rule_that_changes_a_conclusion_is_one_of_the_rules() -> None:
    assert set(CHANGING) <= set(RULES)
    assert not set(CHANGING) & set(DISTURBANCES)


def test_rates_that_the_generator_limits_are_said_to_be_its_own() -> None:
    vary = {"accesses": (0, 1600), "mode": ("native", "generic")}
    rows = synthetic.run(arrangement="split", vary=vary, workload="chase")
    assert "generator" in set(rows["limited_by"].dropna())
    assert "generator limited 1 of 2 rates" in conclusions(rows)[0]


def test_points_with_and_without_an_n_have_one_answer_without_nulls() -> None:
    own = synthetic.run(vary={"program_name": ["lb.bpf.c"]}, workload=None, accesses=None)
    both = pd.concat([own, synthetic.run(vary={"accesses": [0, 1600]}, workload="chase")], ignore_index=True)
    assert "<NA>" not in "".join(conclusions(both))


def test_a_run_whose_loads_are_all_paced_tells_round_trips_only() -> None:
    vary = {"mode": ("native", "generic"), "frame_bytes": (64, 1500), "accesses": [0]}
    paced = synthetic.run(vary=vary, load="20kpps", rate_requested_pps=2e4)
    (said,) = conclusions(paced)
    assert "round trip" in said
    assert conclusions(paced.assign(latency_p99_ns=None)) == [NOTHING_TO_COMPARE[True]]
    assert conclusions(paced.assign(offered_pps=1e4)) == [NOTHING_TO_COMPARE[True]], "another load's latency"
    assert conclusions(paced.iloc[:0]) == [NOTHING_TO_COMPARE[False]]


@pytest.mark.parametrize(("load", "rate"), [("max", None), ("20kpps", 2e4)])
def test_the_columns_that_conclusions_keep_are_those_they_need(
    monkeypatch: pytest.MonkeyPatch, load: str, rate: float | None
) -> None:
    vary = {"mode": ("native", "generic"), "queues": (1, 2), "frame_bytes": (64, 1500), "accesses": (0, 100)}
    trials = synthetic.run(vary=vary, workload="chase", load=load, rate_requested_pps=rate, repetitions=3)
    kept = conclusions(trials)
    monkeypatch.setattr("xdplab.analysis.conclusions.NEEDED", (*trials, *NEEDED))
    assert kept == conclusions(trials)
    assert kept[0]
