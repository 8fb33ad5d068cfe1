"""A plan that the lab's generator cannot send is refused before anything changes, with a remedy."""

import struct
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from xdplab.errors import PlanError
from xdplab.labs.base import GeneratorPlace
from xdplab.plan import Plan, load_plan, parse_plan
from xdplab.resources import shipped
from xdplab.studies.traffic import checks
from xdplab.studies.traffic.limits import require_small_frames
from xdplab.yaml_file import read_yaml

MOONGEN = GeneratorPlace(kind="moongen", path="/opt/MoonGen")


def checked(plan: Plan, place: GeneratorPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "queue_limit", lambda _: 8)
    end = SimpleNamespace(name="host")
    lab: Any = SimpleNamespace(
        generator=place,
        arrangement="shared",
        virtual=True,
        clock="time",
        dut=end,
        tg=end,
        dut_interface="d",
        tg_interface="t",
    )
    checks.check_plan(plan, lab)


def smoke(**traffic: Any) -> Plan:
    plan = load_plan(shipped("plans") / "smoke.yaml")
    block = plan.blocks[0]
    return plan.model_copy(
        update={"blocks": [block.model_copy(update={"traffic": block.traffic.model_copy(update=traffic)})]}
    )


@pytest.mark.parametrize(
    ("engines", "place", "words"),
    [
        (["live"], MOONGEN, r"live is not .* \(moongen\) has: moongen, moongen-hw(.|\n)*engine: moongen"),
        (["moongen"], GeneratorPlace(), "xdpgen.*live, afxdp"),
        (["moongen"], MOONGEN, None),
        (["live", "moongen"], MOONGEN, None),  # a part of it
        (["live"], GeneratorPlace(), None),
        (["afxdp"], GeneratorPlace(), None),
    ],
)
def test_a_plan_has_an_engine_of_the_labs_generator(
    engines: list[str], place: GeneratorPlace, words: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PlanError, match=words) if words else nullcontext():
        checked(smoke(engine=engines), place, monkeypatch)


@pytest.mark.parametrize(
    ("traffic", "words"),
    [
        ({"load": ["2kpps"], "burst": [50]}, None),
        ({"load": ["2kpps"], "burst": [200]}, r"burst: 200: at 2kpps a window has 5\.0 of them"),
        ({"load": ["20%"], "burst": [200]}, None),  # of a rate that is not known yet
        ({"load": ["2kpps"], "burst": [1]}, None),
    ],
)
def test_a_window_has_bursts_for_a_mean_rate(
    traffic: dict[str, Any], words: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = smoke(**traffic)
    plan = plan.model_copy(update={"trial": plan.trial.model_copy(update={"window_s": 0.5})})
    with pytest.raises(PlanError, match=words) if words else nullcontext():
        checked(plan, GeneratorPlace(), monkeypatch)


def test_a_metric_of_a_plan_has_a_name_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    named = load_plan(shipped("plans") / "smoke.yaml").to_yaml() + "metrics: [{name: ipc, argv: [uptime]}]\n"
    with pytest.raises(PlanError, match="ipc is a column already"):
        checked(parse_plan(read_yaml(named.replace("metrics: []\n", ""))), GeneratorPlace(), monkeypatch)


@pytest.mark.parametrize(("asked", "lab"), [("shared", "hosts"), ("split", "hosts"), ("hosts", "shared")])
def test_two_machines_are_not_measured_as_one(asked: str, lab: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan's `arrangement: split` on two servers, or a run of one machine that two servers resume: its losses and
    costs would be judged as those of the other kind."""
    place = SimpleNamespace(name="rack.yaml", arrangement=lab)
    with pytest.raises(PlanError, match=f"arrangement: {asked} is not what lab rack.yaml can be, which is {lab}"):
        checks.require_machines(asked, place)
    checks.require_machines(lab, place)
    checks.require_machines("split", SimpleNamespace(name="netns", arrangement="shared"))


def test_a_frame_of_a_pcap_that_the_link_does_not_take_is_named(tmp_path: Path) -> None:
    header = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    frames = b"".join(struct.pack("<IIII", 0, 0, size, size) + bytes(size) for size in (60, 1518, 1519))
    (tmp_path / "x.pcap").write_bytes(header + frames)
    lab: Any = SimpleNamespace(tg=SimpleNamespace(get=lambda path: b"1500\n"), tg_interface="t")
    with pytest.raises(PlanError, match=r"x\.pcap: frame 3 has 1519 bytes, and t has an MTU of 1500"):
        require_small_frames([str(tmp_path / "x.pcap")], lab)
    for mtu in (b"1501\n", b"9000\n"):  # 1519 bytes without the header and a tag
        lab.tg.get = lambda path, mtu=mtu: mtu
        require_small_frames([str(tmp_path / "x.pcap")], lab)
