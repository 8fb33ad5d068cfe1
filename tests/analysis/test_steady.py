"""A rate that is not steady is found and named; noise is not mistaken for it."""

import numpy as np
import pytest

from xdplab.analysis.steady import Course, course

TENTHS = [0.1 * k for k in range(1, 11)]


def test_a_rate_that_climbs_within_the_window_is_a_step_or_a_trend() -> None:
    """The intervals' rates of 122, 142, 202 and 210 kpps once gave a valid rate of 175."""
    found = course(TENTHS[:4], [12_200, 14_200, 20_200, 21_000], 0.4)
    assert found is not None
    assert (found.kind, found.at_s) == ("step", pytest.approx(0.2))
    assert found.change == pytest.approx(0.438, abs=0.001)
    climbing = course(TENTHS, [10_000 + 300 * k for k in range(10)], 1.0)
    assert climbing is not None
    assert climbing.kind == "trend"
    assert climbing.change == pytest.approx(3000 / 11_350, rel=0.01)


def test_a_fall_is_negative() -> None:
    found = course(TENTHS, [10_000] * 5 + [8_000] * 5, 1.0)
    assert found == Course("step", pytest.approx(-2000 / 9000), pytest.approx(0.5))


@pytest.mark.parametrize(
    ("frames", "at_s"), [([85_998, 0, 0, 0], 0.1), ([85_998, 900, 1100, 1000], 0.1), ([1000, 1000, 1000, 0], 0.3)]
)
def test_forwarding_that_stops_within_the_first_or_last_interval_is_a_step(frames: list[int], at_s: float) -> None:
    found = course(TENTHS[:4], frames, 0.4)
    assert found is not None
    assert (found.kind, found.at_s) == ("step", pytest.approx(at_s))
    assert found.change < -1


@pytest.mark.parametrize("frames", [[10_000] * 10, [0] * 10, [10_000, 10_300, 9_900, 10_100, 9_800] * 2])
def test_a_steady_rate_is_steady(frames: list[int]) -> None:
    assert course(TENTHS, frames, 1.0) == Course("steady", 0.0)


def test_too_few_intervals_say_nothing() -> None:
    assert course(TENTHS[:3], [1, 2, 3], 0.3) is None
    assert course([], [], 0.3) is None
    assert course([0.1, 0.2, 0.3, 0.35], [1, 1, 1, 1], 0.35) is None, "the last one is a rest"
    assert course([0.1, 0.2, 0.3, 0.36], [1, 1, 1, 1], 0.36) is not None


def test_the_last_interval_ends_with_the_window_whenever_it_was_read() -> None:
    assert course([0.1, 0.2, 0.3, 0.409], [1000, 1000, 1000, 1000], 0.4) == Course("steady", 0.0)
    assert course([0.1, 0.2, 0.3, 0.4, 0.401], [1000, 1000, 1000, 1000, 3], 0.401) == Course("steady", 0.0)


def test_a_report_that_came_late_leaves_a_short_interval_behind_it() -> None:
    assert course([0.1, 0.28, 0.3, 0.4], [1000, 1800, 200, 1000], 0.4) == Course("steady", 0.0)


@pytest.mark.parametrize(("intervals", "most"), [(4, 0.03), (5, 0.02), (10, 0.01)])
def test_noise_of_a_quiet_lab_is_rarely_taken_for_a_change(intervals: int, most: float) -> None:
    """With 3.5 % between intervals, chance gives a finding in 1.4, 0.8 and 0.1 % of 2,000 windows (seed 1)."""
    rng = np.random.default_rng(1)
    windows = rng.normal(1e5, 3.5e3, (1000, intervals)).astype(int)
    found = [course(TENTHS[:intervals], [int(n) for n in window], 0.1 * intervals) for window in windows]
    assert sum(one is not None and one.kind != "steady" for one in found) / len(found) <= most
