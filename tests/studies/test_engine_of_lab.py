"""A plan that the lab's generator cannot send is refused before anything changes, with a remedy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from xdplab.errors import PlanError
from xdplab.labs.base import GeneratorPlace
from xdplab.plan import Plan, load_plan
from xdplab.resources import shipped
from xdplab.studies.traffic import study

MOONGEN = GeneratorPlace(kind="moongen", path="/opt/MoonGen")


def checked(plan: Plan, place: GeneratorPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "queue_limit", lambda _: 8)
    end = SimpleNamespace(name="host")
    lab: Any = SimpleNamespace(
        generator=place, arrangement="shared", virtual=True, dut=end, tg=end, dut_interface="d", tg_interface="t"
    )
    study.check_plan(plan, lab)


def smoke(**traffic: Any) -> Plan:
    plan = load_plan(shipped("plans") / "smoke.yaml")
    block = plan.blocks[0]
    return plan.model_copy(
        update={"blocks": [block.model_copy(update={"traffic": block.traffic.model_copy(update=traffic)})]}
    )


def test_smoke_says_which_engine_a_moongen_lab_has(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PlanError) as refused:
        checked(smoke(), MOONGEN, monkeypatch)
    assert str(refused.value).startswith(
        "traffic.engine: live is not what this lab's generator (moongen) has: moongen, moongen-hw"
    )
    assert "traffic: {engine: moongen}" in str(refused.value)


@pytest.mark.parametrize(
    ("engine", "place"),
    [("moongen", MOONGEN), (["live", "moongen"], MOONGEN), ("live", GeneratorPlace()), ("afxdp", GeneratorPlace())],
)
def test_what_it_can_send_a_part_of_is_measured(
    engine: Any, place: GeneratorPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = engine if isinstance(engine, list) else [engine]
    checked(smoke(engine=engines), place, monkeypatch)


def test_xdpgen_has_no_moongen(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PlanError, match=r"xdpgen.*live, afxdp"):
        checked(smoke(engine=["moongen"]), GeneratorPlace(), monkeypatch)


@pytest.mark.parametrize(("asked", "lab"), [("shared", "hosts"), ("split", "hosts"), ("hosts", "shared")])
def test_two_machines_are_not_measured_as_one(asked: str, lab: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan's `arrangement: split` on two servers, or a run of one machine that two servers resume: its losses and
    costs would be judged as those of the other kind."""
    place = SimpleNamespace(name="rack.yaml", arrangement=lab)
    with pytest.raises(PlanError, match=f"arrangement: {asked} is not what lab rack.yaml can be, which is {lab}"):
        study.require_machines(asked, place)
    study.require_machines(lab, place)
    study.require_machines("split", SimpleNamespace(name="netns", arrangement="shared"))
