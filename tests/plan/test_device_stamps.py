"""Stamps of sending by the TG's device: which plans give them a meaning, and which are refused."""

from __future__ import annotations

from typing import Any

import pytest

from xdplab.errors import PlanError
from xdplab.plan import Plan, parse_plan, points_of

WHOLE = {"engine": "afxdp", "tx_stamp": "device", "tx_bind": "zerocopy", "rx_stamp": "device"}


def plan_of(**traffic: Any) -> Plan:
    return parse_plan({"name": "p", "blocks": [{"points": {"accesses": 0}, "traffic": traffic}]})


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"tx_bind": "copy"}, "by copy, the kernel writes a time of its own"),
        ({"tx_bind": ["copy", "zerocopy"]}, "by copy, the kernel writes a time of its own"),
        ({"rx_stamp": "software"}, "a latency between two clocks would not hold"),
        ({"rx_stamp": ["software", "device"]}, "a latency between two clocks would not hold"),
        ({"stamp": ["none", 16]}, "`stamp` is none"),
        ({"engine": ["live", "afxdp"], "tx_bind": "copy"}, "by copy, the kernel writes a time of its own"),
    ],
)
def test_stamps_that_would_mean_nothing_are_refused(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        plan_of(**WHOLE | changed)


def test_they_are_a_factor_of_engine_afxdp_only() -> None:
    points = points_of(plan_of(**WHOLE | {"engine": ["live", "afxdp"], "tx_stamp": ["software", "device"]}), "shared")
    assert sorted((point.engine, point.tx_stamp or "-") for point in points) == [
        ("afxdp", "device"),
        ("afxdp", "software"),
        ("live", "-"),
    ]


def test_a_point_without_them_has_the_id_it_always_had() -> None:
    old, new = (points_of(plan_of(engine="afxdp", **more), "shared") for more in ({}, {"tx_stamp": "software"}))
    assert [point.point_id for point in old] == [point.point_id for point in new]
