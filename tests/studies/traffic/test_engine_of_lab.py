"""A plan that the lab's generator cannot send is refused before anything changes, with a remedy."""

import struct
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from xdplab.errors import PlanError, UnsupportedError
from xdplab.labs.base import Cpus, GeneratorPlace
from xdplab.plan import Plan, load_plan, parse_plan, points_of
from xdplab.resources import shipped
from xdplab.studies.traffic import checks
from xdplab.studies.traffic.limits import require_small_frames
from xdplab.yaml_file import read_yaml

MOONGEN = GeneratorPlace(kind="moongen", path="/opt/MoonGen")


def checked(plan: Plan, place: GeneratorPlace, monkeypatch: pytest.MonkeyPatch, **of_lab: Any) -> None:
    monkeypatch.setattr(checks, "queue_limit", lambda end: {"d": 8, "t": 4}[end.interface])
    end = SimpleNamespace(name="host", get=lambda _: b"1500\n")
    lab = {
        "name": "netns:a", "generator": place, "arrangement": "shared", "virtual": True, "clock": "time", "dut": end,
        "tg": end, "dut_interface": "d", "tg_interface": "t", "cpus": lambda: Cpus((0, 1), (0, 1)),
    }  # fmt: skip
    checks.check_plan(plan, SimpleNamespace(**lab | of_lab))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("keys", "points", "of_lab", "words"),
    [
        ({}, {"queues": 4}, {}, None),
        ({}, {"queues": 5}, {}, "queues: 5 is more than d can have: 4"),
        ({}, {"queues": 8}, {"generator": GeneratorPlace(follows=True)}, None),  # the TG's end has no setting
        ({"arrangement": "split"}, {}, {}, None),
        ({"arrangement": "split"}, {}, {"cpus": lambda: Cpus((0,), (1,))}, "split needs two CPUs"),
        ({"arrangement": "hosts"}, {}, {}, "this lab is one"),
        ({"arrangement": "hosts"}, {}, {"virtual": False, "arrangement": "hosts"}, None),
        ({"arrangement": "hosts"}, {}, {"virtual": False}, "hosts is not what lab netns:a can be"),
        ({"trial": {"throttling": "off"}}, {}, {}, None),
        ({"trial": {"throttling": "off"}}, {}, {"virtual": False}, "throttling: off is for virtual labs"),
        ({}, {}, {"clock": "instructions", "name": "vm:6.1:count"}, r"counts instructions(.|\n)*--kernel 6\.1`"),
        ({}, {}, {"clock": None}, None),
        ({}, {"device": [{"channels.rx": 2}]}, {}, "channels"),
        ({"lab": "netns:b"}, {"queues": 5}, {}, None),  # the points of another lab are not looked at
    ],
)
def test_what_this_lab_cannot_have_is_refused_at_its_limit(
    keys: dict[str, Any], points: dict[str, Any], of_lab: dict[str, Any], words: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    block = {"points": {"accesses": 0} | points} | {key: keys[key] for key in keys if key != "trial"}
    plan = parse_plan({"name": "t", "blocks": [block], "trial": keys.get("trial", {})})
    place = of_lab.pop("generator", GeneratorPlace())
    with pytest.raises((PlanError, UnsupportedError), match=words) if words else nullcontext():
        checked(plan, place, monkeypatch, **of_lab)


@pytest.mark.parametrize("factors", [{"flows": 9}, {"load": "50% of line"}, {"load": "1Gbit/s"}, {"stamp": "all"}, {}])
def test_frames_of_a_pcap_are_not_changed(factors: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "p.bpf.c").write_text("int x;")
    (tmp_path / "f.pcap").write_bytes(b"")
    program = {"file": str(tmp_path / "p.bpf.c"), "frames": str(tmp_path / "f.pcap")}
    block = {"points": {"program": program}, "traffic": {"stamp": "none", "load": "9kpps"} | factors}
    (point,) = points_of(parse_plan({"name": "t", "blocks": [block]}), "shared")
    with pytest.raises(PlanError, match=f"{next(iter(factors))}: ") if factors else nullcontext():
        checks._check_frames(point)
    checks._check_frames(replace(point, program=replace(point.program, frames=None)))


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
        ({"load": ["2kpps"], "burst": [50]}, None),  # 20 in a window of half a second
        ({"load": ["2kpps"], "burst": [51]}, "burst: 51: at 2kpps a window has 19"),
        ({"load": ["2kpps"], "burst": [26], "directions": ["both"]}, "burst: 26: at 2kpps a window has 19"),  # each way
        ({"load": ["max"], "burst": [200]}, None),
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
