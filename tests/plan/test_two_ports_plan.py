"""Plans with two ports: which are refused, and what their points are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from xdplab.errors import PlanError
from xdplab.plan import Plan, parse_plan, points_of
from xdplab.studies.traffic.prepare import program_of
from xdplab.studies.traffic.run_files import why_not_sliced


def plan_of(points: dict[str, Any], **traffic: Any) -> Plan:
    return parse_plan({"name": "p", "blocks": [{"points": points, "traffic": traffic}]})


@pytest.mark.parametrize(
    ("points", "words"),
    [
        ({"mode": ["native", "af_xdp"]}, "mode af_xdp forwards to no other port"),
        ({"mode": "offload"}, "mode offload forwards to no other port"),
        ({"program": {"file": "lb.bpf.c"}}, "a user's program does not know the other port"),
        ({"device": {"features.gro": False}}, "`device` sets the first port only"),
    ],
)
@pytest.mark.parametrize("directions", ["one", ["back", "both"]])
def test_what_two_ports_cannot_have_is_refused(points: dict[str, Any], words: str, directions: object) -> None:
    with pytest.raises(PlanError, match=words):
        plan_of(points, directions=directions)


def test_what_one_port_has_stays_possible(tmp_path: Path) -> None:
    (tmp_path / "lb.bpf.c").write_text("int x;")
    points = {"program": {"file": str(tmp_path / "lb.bpf.c")}, "device": {"features.gro": False}}
    assert len(points_of(plan_of(points, directions="back"), "shared")) == 1


def test_a_point_of_one_port_has_the_id_it_always_had() -> None:
    old, new = (points_of(plan_of({"accesses": 5}, **more), "shared") for more in ({}, {"directions": "back"}))
    assert [p.point_id for p in old] == [p.point_id for p in new]
    assert {p.program.action for p in old} == {"tx"}


def test_between_two_ports_the_baseline_redirects_too() -> None:
    points = points_of(plan_of({"accesses": 5}, directions=["back", "one", "both"]), "shared")
    found = {(p.directions, p.program.accesses): (p.program.action, p.ways, p.two_ports) for p in points}
    assert found == {
        ("back", 0): ("tx", 1, False),
        ("back", 5): ("tx", 1, False),
        ("one", 0): ("redirect", 1, True),
        ("one", 5): ("redirect", 1, True),
        ("both", 0): ("redirect", 2, True),
        ("both", 5): ("redirect", 2, True),
    }
    assert {program_of(p.program).action for p in points if p.two_ports} == {"redirect"}


def test_programs_on_two_ports_are_not_exchanged_under_one_sender() -> None:
    first, second = (points_of(plan_of({"op": op}, directions="both"), "shared")[0] for op in ("read", "write"))
    assert why_not_sliced(first, second) == "with two ports the program would be exchanged on one of them only"
