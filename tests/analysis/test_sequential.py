"""Looking while it runs: the interval holds at every look; a race ends with the right answer as often as it says."""

from __future__ import annotations

from math import inf, isnan, log

import numpy as np
import pytest

from xdplab.analysis.race import standing
from xdplab.analysis.sequential import known

SEED = 20261122


def test_the_interval_is_the_published_one() -> None:
    """n = 10, mean 1, variance 1: by hand, K = (sqrt(11) / 0.05) ** 0.2 and A = 9."""
    values = np.arange(10, dtype=float)
    values = 1 + (values - values.mean()) / values.std(ddof=1)
    k = (11**0.5 / 0.05) ** 0.2
    found = known(list(values))
    assert found.mean == pytest.approx(1)
    assert found.half == pytest.approx(((k - 1) * 11 * 9 / (10 * (11 - k))) ** 0.5)


def test_no_values_have_no_mean() -> None:
    assert isnan(known([]).mean)
    assert standing({}, [("a", "b")], 0.02).to_json() == {
        "verdict": "undecided", "ratio": None, "low": None, "high": None, "pairs": 0, "margin": 0.02,
    }  # fmt: skip
    assert standing({}, [("a", "b")], 0.02).words == "undecided: 0 valid pairs"


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 1.0, 1.0]])
def test_what_has_no_spread_has_no_interval(values: list[float]) -> None:
    assert known(values).half == inf


def test_the_interval_holds_at_all_of_100_looks() -> None:
    rng = np.random.default_rng(SEED)
    missed = sum(any(abs(known(values[:n]).mean) > known(values[:n]).half for n in range(2, 101))
                 for values in rng.normal(0, 1, (400, 100)).tolist())  # fmt: skip
    assert missed / 400 <= 0.05, f"{missed} of 400 (seed {SEED})"


def raced(rng: np.random.Generator, ratio: float, spread: float, most: int) -> tuple[str, int]:
    """Race until it is known, looking after each pair; a slow repetition is slow for both sides."""
    rates: dict[tuple[str, int], float] = {}
    for repetition in range(1, most + 1):
        slow = rng.normal(0, 0.1)
        rates["a", repetition] = 1e6 * np.exp(slow + rng.normal(0, spread / 2**0.5))
        rates["b", repetition] = 1e6 * ratio * np.exp(slow + rng.normal(0, spread / 2**0.5))
        found = standing(rates, [("a", "b")], 0.02)
        if repetition >= 5 and found.answer != "undecided":
            break
    return found.answer, found.ratio.n


@pytest.mark.parametrize(("ratio", "wrong"), [(1.0, "differs"), (1.02, "equivalent"), (1.05, "equivalent")])
def test_a_race_errs_in_no_more_than_one_of_twenty(ratio: float, wrong: str) -> None:
    rng = np.random.default_rng(SEED)
    answers = [raced(rng, ratio, 0.02, 60)[0] for _ in range(200)]
    assert answers.count(wrong) <= 10, f"{answers.count(wrong)} of 200 (seed {SEED})"
    if ratio != 1.02:
        assert answers.count("undecided") <= 20


def test_a_race_pairs_by_repetition_and_leaves_out_what_has_no_partner() -> None:
    rates = {("a", 1): 100.0, ("b", 1): 110.0, ("a", 2): 200.0, ("b", 2): 222.0, ("a", 3): 1.0, ("b", 4): 1.0}
    found = standing(rates, [("a", "b")], 0.02)
    assert found.ratio.n == 2
    assert found.ratio.mean == pytest.approx((log(1.1) + log(1.11)) / 2)


def test_a_difference_inside_the_margin_is_said_to_be_one() -> None:
    rng = np.random.default_rng(SEED)
    rates = {(side, n): 1e6 * (1.012 if side == "b" else 1) * np.exp(rng.normal(0, 0.004))
             for n in range(1, 9) for side in "ab"}  # fmt: skip
    found = standing(rates, [("a", "b")], 0.02)
    assert found.answer == "differs"
    assert "b is faster, by less than 2.0% in the middle" in found.words
