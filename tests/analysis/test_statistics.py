"""Intervals, the line fit and the comparison, checked against values computed elsewhere and by simulation."""

from math import isnan, log, sqrt

import numpy as np
import pandas as pd
import pytest
import synthetic
from scipy import stats

from xdplab.analysis import fit
from xdplab.analysis.decide.compare import compare
from xdplab.analysis.fit import fit_line, fit_lines, fits, slope
from xdplab.analysis.intervals import Scale, Spread, of_one_point, summarise


def test_interval_of_three_is_students() -> None:
    found = Spread.of([10.0, 12.0, 14.0])
    assert (found.n, found.mean, found.median, found.sd) == (3, 12.0, 12.0, 2.0)
    assert found.high - found.mean == pytest.approx(4.302653 * 2 / sqrt(3), rel=1e-6)  # t(0.975, 2 degrees of freedom)
    assert (found.cv, found.se) == (pytest.approx(1 / 6), pytest.approx(2 / sqrt(3)))
    assert Spread.of([9, 1, 2, 4]).median == 3.0
    points = pd.DataFrame({"point_id": "a", "pps": [100.0, 120.0, 140.0]})
    assert of_one_point(points, "pps", 10) == found
    assert vars(found).items() <= summarise(points.assign(pps=points["pps"] / 10), "pps").loc[0].to_dict().items()


def test_ends_are_those_of_the_scale() -> None:
    linear, ratio = Spread.of([1.0, 4.0]), Spread.of([1.0, 4.0], "geometric")
    assert (ratio.mean, ratio.high) == pytest.approx((2.0, 4.0 / ratio.low))
    half = (linear.high - linear.low) / 2
    assert (log(Spread.of([1.0, 4.0], "log").high / 2.5)) == pytest.approx(half / 2.5)
    share = Spread.of([0.5, 0.7], "logit")
    assert log(share.high / (1 - share.high)) - log(0.6 / 0.4) == pytest.approx(
        Spread.of([0.5, 0.7]).high / 0.24 - 0.6 / 0.24
    )
    for values, scale in (([-1.0, 1.0], "log"), ([-2.0, 1.0], "logit"), ([0.9, 1.1], "logit"), ([1.0, 1.2], "logit")):
        assert isnan(Spread.of(values, scale).low), "a mean at the end of its range"


@pytest.mark.parametrize(
    ("scale", "values"), [("log", [1.0, 9.0]), ("logit", [0.02, 0.3]), ("logit", [0.999, 0.9]), ("log", [2.0, 2.0])]
)
def test_an_interval_stays_where_its_quantity_lives(scale: Scale, values: list[float]) -> None:
    found = Spread.of(values, scale)
    assert 0 < found.low <= found.mean <= found.high
    assert scale == "log" or found.high < 1


@pytest.mark.parametrize("scale", ["log", "logit"])
def test_a_narrow_interval_is_the_same_on_every_scale(scale: Scale) -> None:
    linear, other = (Spread.of([0.500, 0.501, 0.499, 0.5005], name) for name in ("linear", scale))
    assert (other.low, other.high) == pytest.approx((linear.low, linear.high), rel=1e-4)


def test_one_repetition_has_no_interval_and_none_no_mean() -> None:
    alone = Spread.of([5.0])
    assert alone.mean == 5.0
    assert all(isnan(value) for value in (alone.low, alone.high, alone.cv, alone.se))
    with pytest.raises(ValueError, match="at least one"):
        Spread.of([])


def test_an_exact_line_is_found_exactly() -> None:
    n = [0, 1, 100, 12800] * 2
    line = fit_line(n, [150 + 2.5 * x for x in n])
    assert line is not None
    assert (line.t0, line.c) == (pytest.approx(150), pytest.approx(2.5))
    assert line.r2 == pytest.approx(1)
    assert abs(line.residuals).max() < 1e-9
    assert fit_line([5, 5], [1.0, 2.0]) is None
    two = fit_line([0, 10], [1.0, 2.0])
    assert two is not None
    assert isnan(two.c_se), "no degree of freedom, no error"


def test_lines_of_many_groups_are_each_the_line_of_its_group() -> None:
    rng = np.random.default_rng(3)
    groups = rng.permutation(np.repeat(np.arange(200), rng.integers(1, 12, 200)))
    n = rng.choice([0, 1, 100, 400], len(groups))
    times = (150 + 2.5 * n) * rng.uniform(0.9, 1.1, len(groups))
    alone = {group: fit_line(n[groups == group], times[groups == group]) for group in range(200)}
    lines = fit_lines(n, times, groups)
    assert groups[lines.place].tolist() == [group for group, line in alone.items() if line is not None]
    for at, group in enumerate(groups[lines.place]):
        line = alone[group]
        for name in ("t0", "c", "t0_se", "c_se", "r2", "n", "points"):
            assert np.array_equal(getattr(lines, name)[at], getattr(line, name), equal_nan=True)
        assert lines.place[at] == np.flatnonzero(groups == group)[0]


def test_a_slopes_interval_holds_where_repetitions_differ_as_wholes() -> None:
    runs, truth = 600, 2.5
    rng = np.random.default_rng(11)
    n, repetition = np.tile([0, 100, 400, 1600], 5), np.repeat(np.arange(5), 4)
    whole, pooled = [], []
    for _ in range(runs):
        times = (150 + truth * n) * (1 + rng.normal(0, 0.03, 5)[repetition] + rng.normal(0, 0.01, len(n)))
        found = slope(pd.Series(n), pd.Series(times), pd.Series(repetition))
        line = fit_line(n, times)
        assert found is not None
        assert line is not None
        whole.append(abs(found.c - truth) <= found.half)
        pooled.append(abs(line.c - truth) <= stats.t.ppf(0.975, len(n) - 2) * line.c_se)
    assert 0.93 <= np.mean(whole) <= 0.97
    assert np.mean(pooled) < 0.90, "20 points of 5 repetitions are not 20 observations"


def test_a_slopes_interval_of_many_repetitions_takes_few_fits_and_is_as_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, fits = np.random.default_rng(11), list[int]()
    n, repetition = np.tile([0, 400], 600), np.repeat(np.arange(600), 2)
    times = (150 + 2.5 * n) * (1 + rng.normal(0, 0.03, 600)[repetition] + rng.normal(0, 0.01, len(n)))
    columns = [pd.Series(column) for column in (n, times, repetition)]
    monkeypatch.setattr(fit, "fit_line", lambda x, t: fits.append(len(x)) or fit_line(x, t))
    grouped = slope(*columns)
    assert len(fits) == 1 + fit.MOST_GROUPS
    monkeypatch.setattr(fit, "MOST_GROUPS", 600)
    alone = slope(*columns)
    assert grouped is not None
    assert alone is not None
    assert (grouped.c, grouped.half) == (alone.c, pytest.approx(alone.half, rel=0.1))


def test_a_slope_of_one_repetition_has_no_interval() -> None:
    n = pd.Series([0, 100, 400])
    found = slope(n, 150 + 2.5 * n, pd.Series([1, 1, 1]))
    assert found is not None
    assert found.c == pytest.approx(2.5)
    assert isnan(found.half)


@pytest.mark.parametrize(("n", "beyond"), [(6, 0), (9, 1), (15, 3), (20, 5)])
def test_a_medians_interval_ends_at_the_ranks_of_the_sign_test(n: int, beyond: int) -> None:
    """So many values lie beyond each end: one more, and the median would be held in less than 95 % of all samples."""
    found = Spread.of(range(n), "ranks")
    assert (found.low, found.high) == (beyond, n - 1 - beyond)
    assert 2 * stats.binom.cdf(beyond, n, 0.5) <= 0.05 < 2 * stats.binom.cdf(beyond + 1, n, 0.5)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_so_few_repetitions_have_no_interval_of_the_median(n: int) -> None:
    assert isnan(Spread.of(range(n), "ranks").low)


def test_only_points_that_show_the_dut_are_fitted() -> None:
    trials = synthetic.run(vary={"accesses": [0, 1, 100, 400, 1600]}, workload="chase", arrangement="split")
    ((_, rows, line),) = fits(trials)
    assert set(rows["limited_by"]) == {"dut"}
    assert line.c == pytest.approx(2.4, rel=0.05)


def test_compare_joins_by_point_and_says_what_is_without() -> None:
    a = synthetic.run(vary={"accesses": [0, 100, 1600]}, seed=1)
    b = synthetic.run(vary={"accesses": [0, 100, 400]}, seed=2)
    b["forwarded_pps"] = b["forwarded_pps"] * 1.3
    table = compare(a, b).set_index("accesses")
    assert table["ratio"][0] == pytest.approx(1.3, rel=0.05)
    assert bool(table["differs"][100]) is True
    assert table["reason"][1600] == "no such point in the second run"
    assert table["reason"][400] == "no such point in the first run"
    assert table["ratio"].isna().sum() == 2


def test_a_point_that_is_there_without_a_valid_trial_is_told_apart_from_one_that_is_not() -> None:
    a, b = synthetic.run(vary={"accesses": [0, 100]}, seed=1), synthetic.run(vary={"accesses": [0, 100]}, seed=2)
    b.loc[b["accesses"].eq(100), "verdict"] = "invalid"
    assert compare(a, b).set_index("accesses")["reason"][100] == "no valid trial in the second run"


def test_copies_of_one_measurement_have_no_interval() -> None:
    a, b = synthetic.run(repetitions=3), synthetic.run(repetitions=3, seed=4)
    for trials in (a, b):
        trials["testrun_ns"] = trials.groupby("point_id")["testrun_ns"].transform("first")
    table = compare(a, b, "testrun_ns")
    known = table[table["ratio"].notna()]
    assert len(known) == 2
    assert known["differs"].isna().all()
    assert known["low"].isna().all()
    assert set(known["reason"]) == {"copies of one value have no interval"}


def test_one_repetition_compares_without_an_interval() -> None:
    table = compare(synthetic.run(repetitions=1), synthetic.run(repetitions=3, seed=4))
    assert table["ratio"].notna().all()
    assert table["low"].isna().all()
    assert table["differs"].isna().all()
    assert set(table["reason"]) == {"one repetition has no interval"}
