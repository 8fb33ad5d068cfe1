"""Factors with rules of their own: a device's settings, stamps of the TG's device, several sizes, two ports, flows."""

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from xdplab.errors import PlanError
from xdplab.generators import XDPGEN
from xdplab.plan import Plan, Point, parse_plan, points_of, schedule
from xdplab.plan.imix import SIMPLE, cycle_of
from xdplab.plan.offered import recorded_speed
from xdplab.programs.spec import program_of
from xdplab.studies.traffic.run_files import why_not_sliced
from xdplab.yaml_file import read_yaml

FROM_PCAP = {"program": {"file": "a.bpf.c", "frames": "f.pcap"}}
WHOLE = {"engine": "afxdp", "tx_stamp": "device", "tx_bind": "zerocopy", "rx_stamp": "device"}
BY_COPY, TWO_CLOCKS = "by copy, the kernel writes a time of its own", "a latency between two clocks would not hold"


def plan_of(points: dict[str, Any], **traffic: Any) -> Plan:
    return parse_plan({"name": "t", "repetitions": 2, "blocks": [{"points": points, "traffic": traffic}]})


def points(given: dict[str, Any] | None = None, **traffic: Any) -> list[Point]:
    generated = {} if "program" in (given or {}) else {"accesses": 0}
    return points_of(plan_of(generated | (given or {}), **traffic), "shared")


@pytest.mark.parametrize(
    ("given", "traffic"),
    [
        ({"device": {}}, {}),
        ({}, {"engine": "afxdp", "tx_stamp": "software"}),
        ({}, {"imix": "none"}),
        ({"accesses": 5}, {"directions": "back"}),
    ],
    ids=["device", "tx_stamp", "imix", "directions"],
)
def test_a_default_that_is_written_out_is_the_same_point(given: dict[str, Any], traffic: dict[str, Any]) -> None:
    left_out = {name: value for name, value in traffic.items() if name == "engine"}
    plain = points({name: value for name, value in given.items() if name == "accesses"}, **left_out)
    assert points(given, **traffic) == plain
    assert {point.program.action for point in plain} == {"tx"}


@pytest.mark.parametrize(
    ("given", "traffic", "words"),
    [
        *(({"device": wrong}, {}, "device") for wrong in ({"gro": False}, {"rings.rx": None}, {"rings.rx": 0.5}, 512)),
        ({"device": {"rings.rx": [1, 2]}}, {}, "device"),
        ({}, WHOLE | {"tx_bind": "copy"}, BY_COPY),
        ({}, WHOLE | {"tx_bind": ["copy", "zerocopy"]}, BY_COPY),
        ({}, WHOLE | {"engine": ["live", "afxdp"], "tx_bind": "copy"}, BY_COPY),
        ({}, WHOLE | {"rx_stamp": "software"}, TWO_CLOCKS),
        ({}, WHOLE | {"rx_stamp": ["software", "device"]}, TWO_CLOCKS),
        ({}, WHOLE | {"stamp": ["none", 16]}, "`stamp` is none"),
        ({}, {"burst": 8}, "at `load: max` all frames are back to back"),
        ({}, {"burst": [1, 8], "load": ["20kpps", "max"]}, "at `load: max` all frames are back to back"),
        ({}, {"timing": "recorded", "engine": "afxdp"}, "timing: recorded needs `program.frames`"),
        (FROM_PCAP, {"timing": "recorded x2", "load": "20kpps"}, "timing: recorded frames have a rate of their own"),
        (FROM_PCAP, {"timing": "recorded x0"}, "'recorded x0' is not a timing: write `load`, `recorded`"),
        (FROM_PCAP, {"timing": "even"}, "'even' is not a timing"),
        (FROM_PCAP, {"load": "recorded x2"}, "write `timing: recorded x2`, and no load"),
        (FROM_PCAP, {"timing": "recorded", "burst": 8}, "at `load: max` all frames are back to back"),
        ({}, {"skew": "zipf"}, "write `uniform`, or `zipf S`"),
        ({}, {"skew": "zipf 9"}, "write `uniform`, or `zipf S`"),
        ({}, {"churn": "5/min"}, "traffic.churn: must be a whole number"),
        ({}, {"flows": {"count": 0}}, "traffic.flows: must be at least 1 "),
        ({}, {"flows": {"number": 5}}, "flows: number: it has count, skew and churn, each once"),
        ({}, {"flows": {"churn": 5}, "churn": 6}, "flows: churn: it has count, skew and churn, each once"),
        ({}, {"imix": {64: 1}}, "traffic.imix: a mix has two sizes at least"),
        ({}, {"imix": {63: 1, 128: 1}}, r"traffic.imix: must be at least 64 \(got 63\)"),
        ({}, {"imix": {64: 1, 9217: 1}}, r"traffic.imix: must be at most 9216 \(got 9217\)"),
        ({}, {"imix": {64: 0, 128: 1}}, "traffic.imix: must be at least 1 "),
        ({}, {"imix": {64: 33, 128: 32}}, "traffic.imix: 65 frames in a cycle; at most 64 are possible"),
        ({}, {"imix": "complex"}, "traffic.imix: must be 'none' or 'simple'"),
        ({"mode": ["native", "af_xdp"]}, {"directions": "one"}, "mode af_xdp forwards to no other port"),
        ({"mode": "offload"}, {"directions": ["back", "both"]}, "mode offload forwards to no other port"),
        ({"device": {"features.gro": False}}, {"directions": "one"}, "`device` sets the first port only"),
        ({}, {"directions": ["one", "both"], "load": ["max", "0.15pps"]}, "`directions: both` halves it"),
    ],
)
def test_what_would_mean_nothing_is_refused(given: dict[str, Any], traffic: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        points(given, **traffic)


def test_recorded_gaps_take_the_place_of_the_load(tmp_path: Path) -> None:
    for name in ("a.bpf.c", "f.pcap"):
        (tmp_path / name).write_text("int x;")
    program = {"file": str(tmp_path / "a.bpf.c"), "frames": str(tmp_path / "f.pcap")}
    found = points({"program": program}, timing=["load", "recorded", "recorded x 1", "recorded ×2.0"])
    assert [(p.factors()["timing"], p.factors()["load"], p.rate_pps) for p in found] == [
        ("load", "max", None), ("recorded", None, None), ("recorded x2", None, None),
    ]  # fmt: skip
    assert found[0] == points({"program": program})[0]
    assert [recorded_speed(p.timing) for p in found] == [None, 1.0, 2.0]


def test_a_list_of_settings_is_a_factor_and_each_is_a_block() -> None:
    text = "[{}, {rings.rx: 512, features.gro: off}, {features.gro: off, rings.rx: 512}, {rings.rx: 500}]"
    asked = plan_of({"device": read_yaml(text)})
    found = points_of(asked, "shared")
    assert [p.factors()["device"] for p in found] == ["none", "features.gro=off rings.rx=512", "rings.rx=500"]
    trials = schedule(asked, found)
    assert len({(trial.block, trial.point.device) for trial in trials}) == len({trial.block for trial in trials}) == 3
    (alone,) = points({"device": read_yaml('{coalesce.adaptive-rx: on, coalesce.rx-usecs: 50, x.key: "6d:5a"}')})
    assert dict(alone.device) == {"coalesce.adaptive-rx": True, "coalesce.rx-usecs": 50, "x.key": "6d:5a"}


@pytest.mark.parametrize(
    ("given", "traffic"),
    [({"device": [{}, {"rings.rx": 512}]}, {}), ({}, {"imix": ["none", {64: 7, 1518: 1}]})],
    ids=["device", "imix"],
)
def test_a_resolved_plan_can_be_read_back(given: dict[str, Any], traffic: dict[str, Any]) -> None:
    plan = plan_of(given, **traffic)
    assert parse_plan(read_yaml(plan.to_yaml())) == plan


def test_stamps_of_sending_are_a_factor_of_engine_afxdp_only() -> None:
    found = points(**WHOLE | {"engine": ["live", "afxdp"], "tx_stamp": ["software", "device"]})
    assert sorted((point.engine, point.tx_stamp or "-") for point in found) == [
        ("afxdp", "device"),
        ("afxdp", "software"),
        ("live", "-"),
    ]
    assert [point.tx_stamp for point in points(engine="live", tx_stamp="device")] == [None]


def test_the_simple_imix_is_7_4_1_of_40_576_and_1500_byte_packets() -> None:
    assert [(size - 18, frames) for size, frames in SIMPLE] == [(46, 7), (576, 4), (1500, 1)]  # 40 is padded to 46
    (point,) = points(imix="simple")
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


def test_equal_mixes_are_one_point_and_others_are_not() -> None:
    mixes = ["simple", {64: 7, 594: 4, 1518: 1}, {"1518": 2, "594": 8, "64": 14}, {1518: 1, 128: 3}]
    assert [point.factors()["imix"] for point in points(imix=mixes)] == ["simple", "128:3 1518:1"]


def test_a_frame_size_does_not_apply_to_several_sizes() -> None:
    found = points({"frame_bytes": [64, 512]}, imix=["none", "simple"])
    assert {(p.factors()["imix"], p.factors()["frame_bytes"]): str(p) for p in found} == {
        ("none", 64): "array-read N=0, native, 64 B, 1 queue, live max, shared",
        ("none", 512): "array-read N=0, native, 512 B, 1 queue, live max, shared",
        ("simple", None): "array-read N=0, native, 1 queue, live max, shared, simple IMIX",
    }


@pytest.mark.parametrize(
    ("size", "frags", "has", "mtu"),
    [
        (64, "auto", "off", 1500),
        (64, False, "off", 1500),
        (64, True, "on", 1500),
        (1519, "auto", "off", 1501),
        (3524, "auto", "off", 3506),
        (3525, "auto", "on", 3507),
        (9216, "auto", "on", 9198),
        (9216, False, "off", 9198),
    ],
)
def test_frames_that_need_several_buffers_get_a_program_that_takes_them(
    size: int, frags: object, has: str, mtu: int
) -> None:
    (point,) = points({"frame_bytes": size, "frags": frags, "accesses": 0})
    assert (point.factors()["frags"], point.program.frags == "on", point.mtu) == (has, has == "on", mtu)


def test_what_the_frames_do_not_change_is_one_point() -> None:
    """The ids of runs that had no such factor stay."""
    assert len({point.point_id for point in points({"frame_bytes": 64, "frags": ["auto", False]})}) == 1
    assert len({point.point_id for point in points({"frame_bytes": 9000, "frags": ["auto", True]})}) == 1
    assert len({point.point_id for point in points({"frame_bytes": 9000, "frags": [True, False]})}) == 2


def test_a_block_has_one_mtu() -> None:
    plan = parse_plan({"name": "t", "blocks": [{"points": {"frame_bytes": [64, 1518, 3000, 9000]}}]})
    blocks = {trial.point.frame_bytes: trial.block for trial in schedule(plan, points_of(plan, "shared"))}
    assert blocks[64] == blocks[1518]
    assert len(set(blocks.values())) == 3


@pytest.mark.parametrize(
    ("imix", "load", "pps"),
    [
        ("simple", "100Mbit/s", 100e6 / (8 * (4342 / 12 + 20))),
        ("none", "100Mbit/s", 100e6 / (8 * 84)),
        ("simple", "20kpps", 20_000),
    ],
)
def test_a_bit_rate_goes_by_the_mean_size(imix: str, load: str, pps: float) -> None:
    assert points(imix=imix, load=load)[0].rate_pps == pytest.approx(pps)


def test_a_users_program_knows_one_port(tmp_path: Path) -> None:
    (tmp_path / "lb.bpf.c").write_text("int x;")
    given = {"program": {"file": str(tmp_path / "lb.bpf.c")}}
    assert len(points_of(plan_of(given | {"device": {"features.gro": False}}, directions="back"), "shared")) == 1
    with pytest.raises(PlanError, match="a user's program does not know the other port"):
        plan_of(given, directions="one")


def test_between_two_ports_the_baseline_redirects_too() -> None:
    modes = ["native", "generic", "tcx", "tc"]
    found = points({"accesses": 5, "mode": modes}, directions=["back", "one", "both"])
    assert {p.mode for p in found if p.two_ports} == set(modes)
    assert {(p.directions, p.program.action, p.ways, p.two_ports, p.program.accesses) for p in found} == {
        (*way, accesses)
        for way in (("back", "tx", 1, False), ("one", "redirect", 1, True), ("both", "redirect", 2, True))
        for accesses in (0, 5)
    }
    assert {program_of(p.program).action for p in found if p.two_ports} == {"redirect"}
    first, second = (points({"op": op}, directions="both")[0] for op in ("read", "write"))
    assert why_not_sliced(first, second) == "with two ports the program would be exchanged on one of them only"


def test_flows_in_one_place_are_three_factors() -> None:
    """A number is the short form; each of the three may be a list, as everywhere."""
    whole = points(flows={"count": [64, 1_000_000], "skew": ["uniform", "zipf 1.10"], "churn": "500/s"})
    assert whole == points(flows=[64, 1_000_000], skew=["uniform", "zipf 1.1"], churn=500)
    assert {(p.flows, p.skew, p.churn) for p in whole} == {
        (flows, skew, 500) for flows in (64, 1_000_000) for skew in ("uniform", "zipf 1.1")
    }
    assert points(flows={"count": 64, "skew": "uniform", "churn": 0}) == points()
    with pytest.raises(PlanError, match="churn"):
        points(flows={"count": 64, "churn": "500/sec"})


def test_a_plan_allows_the_flows_of_the_generator_that_has_most() -> None:
    most = max(able.max_flows for able in XDPGEN.capabilities.values())
    points(flows=most)
    with pytest.raises(PlanError, match="flows"):
        points(flows=most + 1)
