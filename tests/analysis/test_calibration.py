"""Equal runs of a machine show how much runs spread, and a comparison based on them errs as rarely as it claims."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import synthetic

from xdplab.analysis.decide.calibration import MOST_BETWEEN, MOST_INVALID, MOST_WITHIN, Calibration, calibration
from xdplab.analysis.decide.compare import EqualRuns, decide
from xdplab.errors import PlanError, ResultsError
from xdplab.plan import parse_plan
from xdplab.run.progress import silent
from xdplab.studies.traffic.comparison import calibrate

SEED = 20261122
RUN, TRIAL = 0.014, 0.035


def rows(rng: np.random.Generator, run: float, points: int = 4, repetitions: int = 5) -> pd.DataFrame:
    """Return the trials of one run: the run's offset plus the noise of each trial."""
    whole = rng.normal(0, run)
    return pd.DataFrame([
        {"point_id": f"p{p}", "repetition": r, "verdict": "valid", "reason": "", "forwarded_pps":
         1e6 * (p + 1) * np.exp(whole + rng.normal(0, TRIAL))}
        for p in range(points) for r in range(1, repetitions + 1)
    ])  # fmt: skip


def named(tables: list[pd.DataFrame]) -> dict[str, pd.DataFrame]:
    return {f"r{number}": table for number, table in enumerate(tables)}


def calibrated(rng: np.random.Generator, run: float = RUN, count: int = 5, **shape: int) -> Calibration:
    tables = [rows(rng, run, **shape) for _ in range(count)]
    found = calibration(named(tables), date="2026-11-22T12:00:00+00:00", lab="netns", around={"dut kernel": "6.18"})
    assert found is not None
    return found


def test_the_spreads_are_those_that_were_put_in() -> None:
    found = [calibrated(np.random.default_rng(seed), count=10) for seed in range(40)]
    assert np.sqrt(np.mean([one.within**2 for one in found])) == pytest.approx(TRIAL, rel=0.05)
    assert np.sqrt(np.mean([one.between**2 for one in found])) == pytest.approx((RUN**2 + TRIAL**2 / 5) ** 0.5, rel=0.1)
    assert np.sqrt(np.mean([one.joint**2 for one in found])) == pytest.approx((RUN**2 + TRIAL**2 / 20) ** 0.5, rel=0.1)


def test_equal_runs_are_called_different_in_no_more_than_one_of_twenty() -> None:
    """Each draw is a machine: five calibration runs, then four pairs of equal runs of one point, ten repetitions."""
    rng = np.random.default_rng(SEED)
    wrong = 0
    for _ in range(100):
        spread = EqualRuns(calibration=calibrated(rng, count=5, points=1))
        for _ in range(4):
            a, b = ({"p": pd.Series(rng.normal(rng.normal(0, RUN), TRIAL, 10))} for _ in range(2))
            wrong += spread.difference(a, b, ["p"]).p_differs() <= 0.05
    assert wrong / 400 <= 0.05, f"{wrong} of 400 (seed {SEED})"


@pytest.mark.thorough
def test_two_points_are_not_known_as_well_as_the_eight_of_a_calibration() -> None:
    """Runs whose points swing on their own: the mean over 8 points had been the spread of the mean over 2."""
    rng = np.random.default_rng(SEED)

    def run(points: int) -> pd.DataFrame:
        own = rng.normal(0, 0.03, points)
        return pd.DataFrame([
            {"point_id": f"p{p}", "repetition": r, "verdict": "valid", "reason": "", "forwarded_pps":
             1e6 * np.exp(own[p] + rng.normal(0, 0.002))}
            for p in range(points) for r in range(1, 6)
        ])  # fmt: skip

    wrong = 0
    for _ in range(400):
        known = calibration({name: run(8) for name in "abcdefghij"}, date="", lab="", around={})
        sides = ({p: np.log(g["forwarded_pps"]) for p, g in run(2).groupby("point_id")} for _ in range(2))
        wrong += EqualRuns(calibration=known).difference(*sides, ["p0", "p1"]).p_differs() <= 0.05
    assert wrong / 400 <= 0.065, f"{wrong} of 400 (seed {SEED})"


def test_the_spread_over_points_is_between_those_of_one_and_of_all() -> None:
    known = calibrated(np.random.default_rng(SEED))
    spreads = [known.spread(points) for points in range(1, 7)]
    assert spreads == sorted(spreads, reverse=True)
    assert spreads[0] == pytest.approx(known.between)
    assert spreads[3] == spreads[4] == pytest.approx(max(known.joint, known.between / 2))
    alone = calibrated(np.random.default_rng(SEED), points=1)
    assert alone.spread(3) == alone.between


def test_it_is_named_in_the_comparison_and_is_less_than_what_is_assumed() -> None:
    known = calibrated(np.random.default_rng(SEED))
    a, b = synthetic.run(seed=1, repetitions=10), synthetic.run(seed=2, repetitions=10)
    found, assumed = decide(a, b, equal=known), decide(a, b)
    assert found.spread.startswith(
        f"the spread of runs is {known.between:.1%} (SD), by the calibration of 2026-11-22: 5 "
    )
    assert (found.points["detectable"] < assumed.points["detectable"]).all()


def test_what_it_says_can_be_found_is_what_a_comparison_says() -> None:
    known = calibrated(np.random.default_rng(SEED))
    logs = np.arange(10) - 4.5
    logs *= known.within / logs.std(ddof=1)
    alike = {"p": pd.Series(logs)}
    difference = EqualRuns(calibration=known).difference(alike, alike, ["p"])
    assert known.detectable(10) == pytest.approx(difference.detectable(1))


def test_a_machine_whose_runs_lie_apart_is_unfit_and_the_comparison_says_so() -> None:
    known = calibrated(np.random.default_rng(SEED), run=0.15)
    assert (known.names, known.points, known.repetitions, known.freedom) == (("r0", "r1", "r2", "r3", "r4"), 4, 5, 4)
    (why,) = known.unfit
    assert why.startswith("equal runs lie ")
    assert "this machine is unfit to compare runs: equal runs lie " in EqualRuns(calibration=known).text
    assert known.lines()[-1].startswith("unfit to compare runs: ")
    assert calibrated(np.random.default_rng(SEED)).lines()[-1] == "fit to compare runs"
    most = {"between": MOST_BETWEEN, "within": MOST_WITHIN, "invalid": MOST_INVALID}
    just_fit = replace(known, **most)
    assert just_fit.unfit == []
    assert "unfit" not in EqualRuns(calibration=just_fit).text
    assert all(len(replace(just_fit, **{name: limit * 1.001}).unfit) == 1 for name, limit in most.items())


def test_trials_that_were_not_valid_make_a_machine_unfit() -> None:
    tables = [rows(np.random.default_rng(n), RUN).assign(reason="the TG was deaf") for n in range(3)]
    for table in tables:
        table.loc[0, "verdict"] = "invalid"
        table.loc[7, "verdict"] = "invalid"
    found = calibration(named(tables), date="2026-11-22", lab="netns", around={})
    assert found.unfit == ["10% of the trials were not valid, most often: the TG was deaf"]


def test_it_is_kept_as_it_was() -> None:
    known = calibrated(np.random.default_rng(SEED))
    assert Calibration.of_json(known.to_json()) == known


def test_paced_rates_do_not_make_a_machine_look_steadier() -> None:
    """Three of four points paced had halved the spread of runs."""
    rng = np.random.default_rng(SEED)
    tables = [rows(rng, 0.02, points=1).assign(rate_requested_pps=np.nan) for _ in range(5)]
    paced = [rows(rng, 0.0, points=3).assign(rate_requested_pps=2e4, forwarded_pps=2e4) for _ in range(5)]
    for table in paced:
        table["point_id"] = "paced" + table["point_id"]
    both = [pd.concat(pair, ignore_index=True) for pair in zip(tables, paced, strict=True)]
    alone, beside = (calibration(named(some), date="", lab="", around={}) for some in (tables, both))
    assert (beside.between, beside.joint, beside.within) == (alone.between, alone.joint, alone.within)


def test_two_runs_or_runs_without_a_point_in_common_say_nothing() -> None:
    rng = np.random.default_rng(SEED)
    some = [rows(rng, RUN) for _ in range(3)]
    with pytest.raises(ResultsError, match="no point at maximum load has a valid rate in each of 3 runs"):
        calibration(named(some[:2]), date="", lab="", around={})
    some[2]["verdict"] = "failed"
    with pytest.raises(ResultsError, match="no point at maximum load has a valid rate in each of 3 runs"):
        calibration(named(some), date="", lab="", around={})


def test_runs_of_one_repetition_have_no_spread_within_and_it_is_not_called_0() -> None:
    rng = np.random.default_rng(SEED)
    some = [rows(rng, RUN).query("repetition == 1") for _ in range(3)]
    with pytest.raises(ResultsError, match="no point has two valid repetitions in one run"):
        calibration(named(some), date="", lab="", around={})
    plan = parse_plan({"name": "one", "lab": "netns", "repetitions": 1, "blocks": [{"points": {"accesses": 0}}]})
    with pytest.raises(PlanError, match=r"repetitions: 1 repetition has no spread"):
        calibrate(plan, "netns:never-made", 3, silent())
