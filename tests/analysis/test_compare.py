"""`compare` is right as often as it claims (by simulation); the spread of whole runs; the notes beside an answer."""

import importlib.util
import sys
from math import exp, inf, log
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
import synthetic
from scipy import stats

from xdplab.analysis import OFFERED, QUEUED
from xdplab.analysis.decide.compare import ASSUMED_SPREAD, SURE, Difference, EqualRuns, Floor, decide, drift, holm
from xdplab.studies.traffic.columns import trials_frame

BENCH = Path(__file__).resolve().parents[2] / "bench" / "compare_simulated.py"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compare_simulated", BENCH)
    assert spec
    assert spec.loader
    module = sys.modules["compare_simulated"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DRAWS, SEED = 500, 20261122


@pytest.mark.parametrize("equal", [0, 4])
def test_intervals_hold_and_equal_runs_are_not_called_different(bench: ModuleType, equal: int) -> None:
    run = ASSUMED_SPREAD if equal == 0 else 0.014
    coverage, differs, _, _ = bench.simulate(bench.Case(1, 3, equal, run, 0, 0, 0.035), DRAWS, SEED)
    assert 0.93 <= coverage <= 0.97
    assert differs <= 0.065  # 5 %, plus the error of 500 draws


def test_a_family_has_no_more_false_alarms_than_one_point(bench: ModuleType) -> None:
    coverage, differs, _, _ = bench.simulate(bench.Case(4, 3, 4, 0.014, 0.007, 0.02, 0.035), DRAWS // 2, SEED)
    assert 0.93 <= coverage <= 0.97
    assert differs <= 0.075


def test_runs_at_the_margin_are_rarely_called_equivalent(bench: ModuleType) -> None:
    *_, same, _ = bench.simulate(bench.Case(1, 10, 10, 0.002, 0, 0, 0.01, 1.02), DRAWS, SEED)
    assert same <= 0.065
    *_, equal, _ = bench.simulate(bench.Case(1, 10, 10, 0.002, 0, 0, 0.01), DRAWS // 2, SEED)
    assert equal >= 0.8


def test_what_is_said_to_be_detectable_is_detected(bench: ModuleType) -> None:
    case = bench.Case(1, 10, 10, 0.01, 0, 0, 0.02)
    *_, detectable = bench.simulate(case, 200, SEED)
    _, power, _, _ = bench.simulate(bench.Case(1, 10, 10, 0.01, 0, 0, 0.02, 1 + detectable), DRAWS, SEED)
    assert 0.72 <= power <= 0.88


def test_what_a_pilot_promises_is_kept_by_new_runs(bench: ModuleType) -> None:
    """Both numbers promise 80 %; here whole runs spread by far less than the margin."""
    rng = np.random.default_rng(SEED)
    answers = [bench.promised(rng, bench.Case(1, 10, 10, 0.002, 0, 0, 0.01)) for _ in range(200)]
    told = [same for _, same in answers if same is not None]
    assert len(told) >= 50  # in the other pilots, equal runs differ so much that no number may be enough
    assert sum(found for found, _ in answers) / len(answers) >= 0.71  # 80 %, minus the error of 200 draws
    assert sum(told) / len(told) >= 0.71


@pytest.mark.parametrize(("run", "trial"), [(0.007, 0.01), (0.014, 0.035)])
def test_hardly_a_pilot_names_a_number_of_repetitions_where_none_would_do(
    bench: ModuleType, run: float, trial: float
) -> None:
    """If whole runs spread so much, only pilots that underestimate the spread name a number: 0.4 and 0 % of them."""
    rng = np.random.default_rng(20261122)
    case = bench.Case(1, 10, 10, run, 0, 0, trial)
    told = [same for _, same in (bench.promised(rng, case) for _ in range(300)) if same is not None]
    assert len(told) <= 5, f"{len(told)} of 300 pilots name one; {sum(told)} of these held"


def test_repetitions_are_needed_for_the_floor_that_may_be_and_not_for_its_estimate() -> None:
    """Three runs that agree by chance may come from a machine whose runs do not."""
    quiet = {"p": pd.Series([10.0, 10.01, 9.99, 10.005])}
    few, many = (EqualRuns(tuple({"p": quiet["p"] + shift} for shift in shifts)).difference(quiet, quiet, ["p"])
                 for shifts in ((-0.002, 0.0, 0.002), (-0.002, 0.0, 0.002) * 5))  # fmt: skip
    assert few.needed(1, 0.02) is None
    assert many.needed(1, 0.02)
    assert few.floor.at_most > many.floor.at_most > 0
    assert Difference(0, 1e-6, 9, Floor(1e-9, 0, inf), 1e-9).needed(1, 0.02) == 2, "one has no spread"


def test_the_highest_plausible_floor_is_that_of_a_simulated_posterior() -> None:
    """Only the sum of both variances is observed. So take all variances, equally weighted in the logarithm, above what
    repetitions contribute, and weight each by the likelihood of the observation.
    """
    for floor in (Floor(3.0, 1.0, 9), Floor(1.0, 1.5, 4), Floor(1e-4, 1.0, 9)):
        variance = floor.repetitions * np.exp(np.linspace(0, 25, 400_001))
        weight = stats.chi2.pdf(floor.freedom * floor.seen / variance, floor.freedom) * floor.seen / variance
        limit = variance[np.searchsorted(np.cumsum(weight), SURE * weight.sum())]
        assert floor.at_most == pytest.approx(limit - floor.repetitions, rel=1e-3)
    assert Floor(0.0, 1.0, 9).at_most == pytest.approx(Floor(1e-9, 1.0, 9).at_most)
    assert Floor(0.0, 0.0, 9).at_most == 0
    assert Floor(2.0, 0.5, inf).at_most == 1.5


def test_without_equal_runs_the_spread_of_runs_is_assumed_and_said() -> None:
    a, b = synthetic.run(seed=1, repetitions=5), synthetic.run(seed=2, repetitions=5)
    found = decide(a, b)
    assert "assumed to be 4%" in found.spread
    assert found.verdict == "undecided"
    assert (found.points["high"] / found.points["low"] > exp(2 * 1.96 * 2**0.5 * ASSUMED_SPREAD)).all()
    assert found.points["needed"].isna().all(), "no number of repetitions makes up for the runs"
    assert found.joint is not None
    assert found.joint["points"] == 3


def of_rates(seed: int, rates: dict[str, float], paced: tuple[str, ...] = (), sd: float = 0.004) -> pd.DataFrame:
    """Return a run of points with these rates, N = 0, 1 …, whose repetitions differ by ``sd``."""
    rng = np.random.default_rng(seed)
    trials = synthetic.run(repetitions=20, vary={"accesses": list(range(len(rates)))})
    for at, (point, rate) in enumerate(rates.items()):
        own = trials["accesses"].eq(at)
        noise = 1.0 if point in paced else np.exp(rng.normal(0, sd, int(own.sum())))
        noise = noise * (1 + 1e-6 * rng.random(int(own.sum())))
        trials.loc[own, "forwarded_pps"] = rate * noise
        trials.loc[own, "rate_requested_pps"] = rate if point in paced else pd.NA
    return trials


def test_the_only_point_that_has_a_ratio_is_the_answer() -> None:
    """It was called equivalent, and the answer undecided."""
    equal = [of_rates(seed, {"a": 1e6}) for seed in range(10, 20)]
    found = decide(of_rates(1, {"a": 1e6}), of_rates(2, {"a": 1e6}), equal=equal)
    assert (found.joint, list(found.points["verdict"]), found.verdict) == (None, ["equivalent"], "equivalent")
    assert decide(of_rates(1, {"a": 1e6}), of_rates(2, {"a": 1e6})).verdict == "undecided"


def test_paced_rates_do_not_hide_what_the_points_at_maximum_load_do() -> None:
    """One point at maximum load is 2.5 % slower, four paced ones carry their load: all together were equivalent."""
    paced = ("p", "q", "r", "s")
    rates = {"max": 1e6, **{name: 2e4 + at for at, name in enumerate(paced)}}
    equal = [of_rates(seed, rates | {"max": 1e6 * exp(0.01 * (-1) ** seed)}, paced) for seed in range(10, 20)]
    found = decide(of_rates(1, rates, paced), of_rates(2, rates | {"max": 0.975e6}, paced), equal=equal)
    assert found.joint is not None
    assert found.joint["points"] == 1
    assert found.joint["ratio"] == pytest.approx(0.975, abs=0.003)
    assert found.verdict == "undecided"
    times = decide(of_rates(1, rates, paced), of_rates(2, rates, paced), "latency_p50_ns")
    assert times.joint is not None
    assert times.joint["points"] == 4


def test_rates_of_loads_that_both_runs_carry_show_nothing() -> None:
    """A run of paced loads alone was equivalent to one whose program takes twice the time: both carry what is sent."""
    runs = [of_rates(seed, {"a": 2e4}, ("a",)).assign(limited_by="none") for seed in range(1, 12)]
    found = decide(runs[0], runs[1], equal=runs[2:])
    assert (found.verdict, list(found.points["reason"])) == ("undecided", [OFFERED])
    slow = runs[1].assign(limited_by="dut", forwarded_pps=runs[1]["forwarded_pps"] * 0.9)
    assert decide(runs[0], slow, equal=runs[2:]).verdict == "differs"  # it does not carry this load
    generators = [run.assign(limited_by="generator", arrangement="split") for run in runs]
    assert list(decide(*generators[:2], equal=generators[2:]).points["reason"]) == [OFFERED]
    loops = [run.assign(limited_by="generator", arrangement="shared") for run in runs]  # closed: costs show
    assert decide(*loops[:2], equal=loops[2:]).verdict == "equivalent"


def test_a_latency_at_maximum_load_is_not_compared() -> None:
    """It is a full queue's: 30 % more work per packet made all latencies `slower`, and the paced one had not changed.
    The same holds for a paced load that was not reached."""
    paced = {"p": 2e4, "missed": 2e6}
    a, b = (of_rates(seed, {"max": 1e6, **paced}, tuple(paced)) for seed in (1, 2))
    b.loc[b["rate_requested_pps"].isna(), "latency_p50_ns"] *= 1.3
    for run in (a, b):
        run.loc[run["rate_requested_pps"].eq(2e6), "offered_pps"] = 1.2e6
    found = decide(a, b, "latency_p50_ns")
    why = f"{QUEUED} in the first run"
    assert [None if pd.isna(one) else one for one in found.points["reason"]] == [why, None, why]
    assert found.verdict == "undecided"
    assert found.points["ratio"].dropna().between(0.9, 1.1).all()
    at_max, a["order"] = a["rate_requested_pps"].isna(), range(len(a))
    a["latency_p50_ns"] = a["latency_p50_ns"].where(~at_max, 1e5 * (1 + 0.01 * a["order"]))
    of_all, of_paced = (drift(rows, "latency_p50_ns") for rows in (a.drop(columns="offered_pps"), a))
    assert of_all is not None
    assert of_paced is not None
    assert of_paced.share < 0.2 * of_all.share, "the full queue drifts, and no latency does"


def test_a_large_difference_is_found_all_the_same_and_has_a_direction() -> None:
    a, b = synthetic.run(seed=1), synthetic.run(seed=2)
    b["forwarded_pps"] = b["forwarded_pps"] * 1.3
    b["ns_per_packet"] = b["ns_per_packet"] / 1.3
    assert set(decide(a, b).points["verdict"]) == {"faster"}
    assert set(decide(a, b, "ns_per_packet").points["verdict"]) == {"faster"}
    assert set(decide(b, a).points["verdict"]) == {"slower"}
    assert decide(a, b).verdict == "differs"


def test_equal_runs_that_lie_close_make_equivalence_possible() -> None:
    several = [synthetic.run(seed=seed, repetitions=20, vary={"accesses": [0]}) for seed in range(8)]
    found = decide(several[0], several[1], equal=several[2:], margin=0.03)
    assert found.points["verdict"].tolist() == ["equivalent"]
    assert found.spread == "the spread of runs comes from 6 equal runs"


def test_one_point_with_equal_runs_is_students_t_on_the_runs_means() -> None:
    rng = np.random.default_rng(4)
    a, b, *equal = ({"p": pd.Series(rng.normal(10, 0.05, 4))} for _ in range(7))
    found = EqualRuns(tuple(equal)).difference(a, b, ["p"])
    sd = np.std([run["p"].mean() for run in equal], ddof=1)
    t = (b["p"].mean() - a["p"].mean()) / (sd * 2**0.5)
    assert found.p_differs() == pytest.approx(2 * stats.t.sf(abs(t), 4))
    low, high = found.interval()
    assert log(high / low) == pytest.approx(2 * stats.t.ppf(0.975, 4) * sd * 2**0.5)


def test_holm_is_holms() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_a_cost_at_or_below_zero_has_no_ratio_and_is_not_dropped_in_silence() -> None:
    a, b = synthetic.run(seed=1), synthetic.run(seed=2)
    at = b.index[b["accesses"] == 100][0]
    b.loc[at, "access_ns"] = -19.0
    table = decide(a, b, "access_ns").points.set_index("accesses")
    assert pd.isna(table.loc[100, "ratio"])
    assert table.loc[100, "reason"] == "no ratio: access_ns is at or below 0 in the second run"


def test_a_drift_over_the_run_is_found() -> None:
    trials = synthetic.run(repetitions=10, vary={"accesses": [0, 1, 100, 400, 1600]})
    trials["order"] = range(len(trials))
    quiet = drift(trials)
    assert quiet is not None
    assert quiet.p > 0.01
    trials["forwarded_pps"] = trials["forwarded_pps"] * np.linspace(1, 0.95, len(trials))
    moved = drift(trials)
    assert moved is not None
    assert moved.share == pytest.approx(-0.05, abs=0.015)
    assert moved.p < 0.001
    assert drift(synthetic.run(repetitions=1).assign(order=1)) is None
    own = {name: "paced" + trials[name] for name in ("point_id", "trial_id")}
    paced = trials.assign(rate_requested_pps=2e4, forwarded_pps=2e4, **own)
    beside = drift(pd.concat([trials, paced], ignore_index=True))
    assert beside is not None
    assert beside.share == pytest.approx(moved.share), "paced points had halved it"


def of_contents(
    *contents: str, rate: float = 1e6, name: str = "filter.bpf.c", file: str = "filter.bpf.c"
) -> pd.DataFrame:
    """Return a run of a user's program with these contents, each a point of its own."""
    rows = [
        synthetic.point(program_name=name, file=file, program_sha256=sha, point_id=sha, workload=None, accesses=None)
        | {"repetition": repetition, "verdict": "valid", "forwarded_pps": rate * (1 + repetition / 1000)}
        for sha in contents
        for repetition in range(1, 6)
    ]
    return trials_frame(rows)


@pytest.mark.parametrize(
    ("a", "b", "verdicts"),
    [
        (of_contents("old"), of_contents("new", rate=0.6e6), ["slower"]),
        (of_contents("old"), of_contents("old", rate=0.6e6), ["slower"]),
        (of_contents("old"), of_contents("new", rate=0.6e6, file="new.bpf.c"), ["slower"]),
        (of_contents("old"), of_contents("new", name="other.bpf.c"), [None, None]),
        (of_contents("old", "new"), of_contents("new", rate=0.6e6), [None, "slower"]),
        (of_contents("old"), of_contents("new", "newest"), [None, None, None]),
    ],
    ids=[
        "edited",
        "as it was",
        "of one name in another file",
        "of another name",
        "two contents in one run",
        "neither is meant",
    ],
)
def test_a_program_is_compared_by_its_name_whatever_its_content(
    a: pd.DataFrame, b: pd.DataFrame, verdicts: list[str | None]
) -> None:
    """Run, edit, run: an edit that cost 33 % was "no such point in the second run", and nothing differed."""
    points = decide(a, b).points
    assert [None if pd.isna(word) else word for word in points["verdict"]] == verdicts


def test_equal_runs_of_earlier_contents_say_how_runs_spread() -> None:
    equal = [of_contents(f"edit {number}", rate=1e6 + 100 * number) for number in range(3)]
    assert decide(of_contents("old"), of_contents("new"), equal=equal).verdict == "equivalent"
