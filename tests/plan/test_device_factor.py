"""Settings of the DUT's device in a plan: a mapping, or a list of them as a factor; each set is a block of the run."""

from __future__ import annotations

import pytest

from xdplab.errors import PlanError
from xdplab.plan import Plan, parse_plan, points_of, schedule
from xdplab.yaml_file import read_yaml


def plan(device: str) -> Plan:
    return parse_plan(read_yaml(f"{{name: t, repetitions: 2, blocks: [{{points: {{device: {device}}}}}]}}"))


def test_a_list_of_settings_is_a_factor_and_each_is_a_block() -> None:
    asked = plan("[{}, {rings.rx: 512, features.gro: off}, {features.gro: off, rings.rx: 512}, {rings.rx: 500}]")
    points = points_of(asked, "shared")
    assert [p.factors()["device"] for p in points] == ["none", "features.gro=off rings.rx=512", "rings.rx=500"]
    trials = schedule(asked, points)
    assert len({(trial.block, trial.point.device) for trial in trials}) == len({trial.block for trial in trials}) == 3
    assert points_of(parse_plan(read_yaml(asked.to_yaml())), "shared") == points


def test_one_mapping_may_stand_alone() -> None:
    (point,) = points_of(plan('{coalesce.adaptive-rx: on, coalesce.rx-usecs: 50, x.key: "6d:5a"}'), "shared")
    assert dict(point.device) == {"coalesce.adaptive-rx": True, "coalesce.rx-usecs": 50, "x.key": "6d:5a"}


def test_a_plan_without_settings_has_the_points_it_had() -> None:
    assert points_of(plan("{}"), "shared") == points_of(parse_plan({"name": "t", "blocks": [{}]}), "shared")


@pytest.mark.parametrize("device", ["{gro: off}", "{rings.rx: }", "{rings.rx: 0.5}", "{rings.rx: [1, 2]}", "512"])
def test_what_is_no_setting_is_refused(device: str) -> None:
    with pytest.raises(PlanError, match="device"):
        plan(device)
