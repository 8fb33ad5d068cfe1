"""Frames of several sizes (IMIX): how a plan writes them, in which order they are sent, and what follows from them."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from xdplab.errors import PlanError
from xdplab.plan import Point, parse_plan, points_of
from xdplab.plan.imix import SIMPLE, cycle_of


def points(imix: Any, **more: Any) -> list[Point]:
    block = {"points": {"accesses": 0, **more.pop("points", {})}, "traffic": {"imix": imix, **more}}
    return points_of(parse_plan({"name": "t", "blocks": [block]}), "shared")


def test_the_simple_imix_is_7_4_1_of_40_576_and_1500_byte_packets() -> None:
    assert [(size - 18, frames) for size, frames in SIMPLE] == [(46, 7), (576, 4), (1500, 1)]  # 40 is padded to 46
    (point,) = points("simple")
    assert point.frame_sizes == (64, 594, 64, 64, 594, 64, 1518, 594, 64, 64, 594, 64)
    assert point.mean_frame_bytes == pytest.approx(4342 / 12)


@pytest.mark.parametrize("imix", [((64, 7), (594, 4), (1518, 1)), ((64, 1), (1518, 1)), ((100, 63), (1500, 1))])
def test_a_cycle_has_the_frames_asked_for_spread_evenly(imix: tuple[tuple[int, int], ...]) -> None:
    cycle = cycle_of(imix)
    assert Counter(cycle) == dict(imix)
    for size, frames in imix:
        places = [place for place, own in enumerate(cycle * 2) if own == size]
        gaps = {second - first for first, second in pairwise(places)}
        assert max(gaps) <= -(-len(cycle) // frames) + len(imix) - 1, (size, gaps)


def test_equal_mixes_are_one_point() -> None:
    same = points(["simple", {64: 7, 594: 4, 1518: 1}, {"1518": 2, "594": 8, "64": 14}])
    assert [point.factors()["imix"] for point in same] == ["simple"]
    other = points({1518: 1, 128: 3})
    assert [point.factors()["imix"] for point in other] == ["128:3 1518:1"]


def test_a_frame_size_does_not_apply_to_several_sizes() -> None:
    found = points(["none", "simple"], points={"frame_bytes": [64, 512]})
    named = {(p.factors()["imix"], p.factors()["frame_bytes"]): p for p in found}
    assert set(named) == {("none", 64), ("none", 512), ("simple", None)}
    assert len(found) == 3
    assert str(named["simple", None]) == "array-read N=0, native, 1 queue, live max, shared, simple IMIX"


def test_older_points_keep_their_ids() -> None:
    block = {"points": {"accesses": 0}}
    (old,) = points_of(parse_plan({"name": "t", "blocks": [block]}), "shared")
    (new,) = points("none")
    assert new.point_id == old.point_id
    assert points("simple")[0].point_id != old.point_id


def test_a_bit_rate_goes_by_the_mean_size() -> None:
    (point,) = points("simple", load="100Mbit/s")
    assert point.rate_pps == pytest.approx(100e6 / (8 * (4342 / 12 + 20)))
    (small,) = points("none", load="100Mbit/s")
    assert small.rate_pps == pytest.approx(100e6 / (8 * 84))
    assert points("simple", load="20kpps")[0].rate_pps == 20_000


@pytest.mark.parametrize(
    ("imix", "words"),
    [
        ({64: 1}, "traffic.imix: a mix has two sizes at least"),
        ({63: 1, 128: 1}, r"traffic.imix: must be at least 64 \(got 63\)"),
        ({64: 1, 1519: 1}, r"traffic.imix: must be at most 1518 \(got 1519\)"),
        ({64: 0, 128: 1}, "traffic.imix: must be at least 1 "),
        ({64: 33, 128: 32}, "traffic.imix: 65 frames in a cycle; at most 64 are possible"),
        ("complex", "traffic.imix: must be 'none' or 'simple'"),
    ],
)  # fmt: skip
def test_other_mixes_are_refused(imix: Any, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        points(imix)


def test_a_resolved_plan_can_be_read_back() -> None:
    import yaml

    plan = parse_plan({"name": "t", "blocks": [{"traffic": {"imix": ["none", {64: 7, 1518: 1}]}}]})
    assert parse_plan(yaml.safe_load(plan.to_yaml())) == plan
