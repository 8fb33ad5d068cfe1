"""A plan's errors are named, its factors are crossed, and its seed orders its trials."""

import itertools
import json
import warnings
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from xdplab.errors import PlanError
from xdplab.plan import Plan, estimate_s, extent, load_plan, parse_plan, points_of, schedule
from xdplab.plan.offered import by_cable, parse_line_share, parse_load, parse_share, recorded_speed, zipf_exponent
from xdplab.plan.points import select, trial_s
from xdplab.resources import shipped


def make(**points: object) -> Plan:
    return parse_plan({"name": "t", "blocks": [{"points": points}]})


@pytest.mark.parametrize(
    ("block", "field"),
    [
        ({"points": {"queues": 1.5}}, "points.queues"),
        ({"traffic": {"dst_ip_stride": "nowhere"}}, "traffic.dst_ip_stride"),
        ({"passes": ["bpf_stats"]}, "passes"),
        ({"passes": []}, "passes"),
        ({"passes": ["rate", "perf", "perf"]}, "passes"),
        ({"points": {"program": {"file": "a.c"}, "accesses": 3}}, "accesses"),
        ({"points": {"program": {"file": "a.c"}, "mode": ["native", "af_xdp"]}}, "af_xdp"),
        *(
            (
                {"points": {"program": {"file": "a.c", "maps": {"m": [{"key": 1, "value": 2}, odd]}}}},
                f"m: {odd} is not {{key",
            )
            for odd in ({}, {"key": 1, "value": 2, "note": 3})
        ),
        ({"points": {"workload": ["array", "rx_hash"], "mode": ["native", "af_xdp"]}}, "mode af_xdp has no kfuncs"),
        ({"points": {"workload": "rx_vlan_tag", "mode": ["native", "tc"]}}, "mode tc has no kfuncs"),
        ({"points": {"workload": "rx_hash", "op": ["read", "write"]}}, "op: workload rx_hash only reads"),
        ({"points": {"workload": "lookup", "map_type": ["hash", "array"], "hit": [100, 50]}}, "map_type array"),
        ({"points": {"workload": "lookup", "map_type": "hash", "entries": [100, 99], "hit": 50}}, "50 % of 99 entries"),
        ({"points": {"workload": "lookup", "map_type": "hash", "working_set_bytes": 808, "hit": 50}}, "50 % of 101 e"),
        ({"points": {"workload": "lookup", "map_type": ["hash", "lru_hash"], "mode": "af_xdp"}}, "not in lru_hash"),
        ({"points": {"workload": "lookup", "map_type": "hash", "hit": [100, 50], "mode": "af_xdp"}}, "hash, 50 %"),
    ],
)
def test_an_unusable_field_is_named(block: dict[str, object], field: str) -> None:
    """Others: tests/cli/messages.txt."""
    with pytest.raises(PlanError, match=field.replace(".", r"\.")):
        parse_plan({"name": "t", "blocks": [block]})


@pytest.mark.parametrize(
    ("place", "least", "most", "step"),
    [
        *(("points.queues", 1, 64, 1), ("points.frame_bytes", 64, 9216, 1), ("points.accesses", 0, 1_000_000, 1)),
        *(
            ("points.working_set_bytes", 16, 1 << 30, 1),
            ("traffic.flows", 1, 1 << 20, 1),
            ("traffic.stamp", 1, 1 << 20, 1),
        ),
        *(("traffic.src_port", 0, 65_535, 1), ("traffic.dst_port", 0, 65_535, 1), ("traffic.vlan", 0, 4094, 1)),
        *(("traffic.batch", 1, 256, 1), ("traffic.churn", 0, 1_000_000, 1), ("seed", 0, (1 << 32) - 1, 1)),
        *(("repetitions", 1, 1000, 1), ("trial.warmup_s", 0, 60, 0.01), ("trial.window_s", 0.05, 600, 0.01)),
        *(("trial.pause_s", 0, 60, 0.01), ("trial.settle_s", 0.01, 10, 0.001), ("trial.retries", 0, 10, 1)),
    ],
)
def test_a_number_lies_within_its_limits(place: str, least: float, most: float, step: float) -> None:
    def plan(value: float) -> Plan:
        part, _, name = place.rpartition(".")
        inner = {part: {name: value}} if part in ("points", "traffic") else {}
        outer = {} if inner else {part: {name: value}} if part else {name: value}
        return parse_plan({"name": "t", "blocks": [inner]} | outer)

    assert plan(least) != plan(most)
    for beyond in (least - step, most + step):
        with pytest.raises(PlanError, match=place.replace(".", r"\.")):
            plan(beyond)


@pytest.mark.parametrize(
    ("kind", "within", "beyond"),
    [
        ("repetitions", {"until": 0.05, "at_least": 2, "at_most": 2}, {"until": 0.05, "at_least": 3, "at_most": 2}),
        ("repetitions", {"until": "99%", "at_most": 1000}, {"until": "100%"}),
        ("repetitions", {"until": 0.001, "at_least": 1000, "at_most": 1000}, {"until": 0.05, "at_least": 1}),
        ("race", {"at_least": 3, "at_most": 3}, {"at_least": 4, "at_most": 3}),
        ("race", {"at_most": 1000, "margin": "2 %"}, {"at_most": 1001}),
        ("race", {"by": "windows"}, {"at_least": 2}),
    ],
)
def test_an_open_number_of_repetitions_has_an_order(kind: str, within: object, beyond: object) -> None:
    base = {"name": "t", "blocks": [{}, {"points": {"workload": "chase"}}]}
    assert (plan := parse_plan(base | {kind: within})).open_ended
    with warnings.catch_warnings(action="error"):
        assert parse_plan(yaml.safe_load(plan.to_yaml())) == plan
    with pytest.raises(PlanError):
        parse_plan(base | {kind: beyond})
    if kind == "race":
        for blocks in (base["blocks"][:1], [*base["blocks"], {}]):
            with pytest.raises(PlanError, match=f"this plan has {len(blocks)}"):
                parse_plan({"name": "t", "blocks": blocks, kind: within})
        with pytest.raises(PlanError, match="a race has an answer of its own"):
            parse_plan(base | {kind: within, "claims": [{"none": {"count": "lost_packets", "exactly": 0}}]})


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda c: st.lists(c) | st.dictionaries(st.text(), c)
    )
)
def test_any_data_is_a_plan_or_a_plan_error(data: object) -> None:
    with suppress(PlanError):
        assert isinstance(parse_plan({"name": "t", "blocks": [{"points": data, "traffic": data}]}), Plan)


def test_every_value_is_crossed_and_has_its_baseline() -> None:
    points = points_of(make(mode=("native", "generic"), queues=[1, 2], accesses=[100, 1600]), "shared")
    assert len(points) == 2 * 2 * 3
    assert {p.program.accesses for p in points} == {0, 100, 1600}
    assert len({p.point_id for p in points}) == len(points)


def test_what_does_not_apply_is_null() -> None:
    packet = points_of(make(workload=["packet", "array"], accesses=[0]), "shared")
    assert [p.program.working_set_bytes for p in packet] == [None, 32768]
    assert {p.xsk_bind for p in packet} == {None}
    assert {p.program.map_type for p in packet} == {None}


def test_point_ids_do_not_depend_on_the_lab_or_the_passes() -> None:
    one = parse_plan({"name": "a", "lab": "netns", "blocks": [{}]})
    other = parse_plan({"name": "b", "lab": "vm:6.1", "blocks": [{"passes": ["rate", "perf"]}]})
    assert points_of(one, "shared")[0].point_id == points_of(other, "shared")[0].point_id
    assert points_of(one, "shared")[0].point_id != points_of(one, "split")[0].point_id


def test_a_point_that_two_blocks_ask_for_is_one_point_with_the_passes_of_both() -> None:
    plan = parse_plan({"name": "t", "blocks": [{"passes": ["rate", "perf"]}, {"passes": ["rate", "bpf_stats"]}]})
    assert [p.passes for p in points_of(plan, "shared")] == [("rate", "perf", "bpf_stats")]


def test_a_block_is_one_queue_count_in_one_mode_and_each_repetition_visits_all() -> None:
    plan = make(mode=["native", "af_xdp"], queues=[1, 2], accesses=[0, 1])
    trials = schedule(plan, points_of(plan, "shared"))
    for repetition in (1, 2, 3):
        visited = [t.block for t in trials if t.repetition == repetition]
        assert len(visited) == 8
        changes = sum(a != b for a, b in itertools.pairwise(visited))
        assert changes == 3, "the trials of a block stay together"
    assert len({t.trial_id for t in trials}) == 24


def test_the_order_is_the_seeds() -> None:
    def order(seed: int) -> list[str]:
        plan = parse_plan({"name": "t", "seed": seed, "blocks": [{"points": {"accesses": list(range(20))}}]})
        return [t.trial_id for t in schedule(plan, points_of(plan, "shared"))]

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert sorted(order(1)) == sorted(order(2))


def test_only_keeps_what_is_asked_for_and_its_baseline() -> None:
    points = points_of(make(mode=["native", "generic"], accesses=[100, 1600]), "shared")
    kept = select(points, {"mode": "native", "accesses": "100"})
    assert [(p.mode, p.program.accesses) for p in kept] == [("native", 0), ("native", 100)]
    with pytest.raises(PlanError, match="not a factor"):
        select(points, {"colour": "red"})
    with pytest.raises(PlanError, match="leaves no point"):
        select(points, {"mode": "offload"})


def test_a_resolved_plan_reads_back_as_itself(tmp_path: Path) -> None:
    (tmp_path / "mine.bpf.c").write_text("int x;")
    (tmp_path / "p.yaml").write_text("name: p\nblocks: [{points: {program: {file: mine.bpf.c, action: drop}}}]")
    plan = load_plan(tmp_path / "p.yaml")
    assert Path(plan.blocks[0].points.program[0].file).is_absolute()
    (tmp_path / "again.yaml").write_text(plan.to_yaml())
    assert points_of(load_plan(tmp_path / "again.yaml"), "shared") == points_of(plan, "shared")


@pytest.mark.parametrize("name", sorted(p.name for p in shipped("plans").glob("*.yaml")))
def test_every_plan_of_the_house_can_be_scheduled(name: str) -> None:
    plan = load_plan(shipped("plans") / name)
    trials = schedule(plan, points_of(plan, "shared"))
    assert estimate_s(plan, trials) > 0
    own = [t for t in trials if t.point.program.file is not None]
    assert own == trials or any(t.point.program.accesses == 0 for t in trials), "own programs have no N"


@pytest.mark.parametrize(
    ("more", "counts"),
    [
        ({"repetitions": 4}, "4 trials"),
        ({"repetitions": {"until": 0.05, "at_least": 3, "at_most": 9}}, "3 to 9 trials"),
        ({"race": {"at_least": 3, "at_most": 9}}, "6 to 18 trials"),
    ],
)
def test_an_extent_tells_the_least_and_the_most_where_results_decide(more: dict[str, object], counts: str) -> None:
    sides = [{"points": {"accesses": 0, "workload": name}} for name in ("array", "packet")]
    plan = parse_plan({"name": "p", "blocks": sides if "race" in more else sides[:1], **more})
    assert counts in extent(plan, schedule(plan, points_of(plan, "shared")))


@pytest.mark.parametrize(
    ("load", "pps", "share", "of_line", "by_the_cable"),
    [
        ("max", None, None, None, False),
        ("20kpps", 20e3, None, None, False),
        ("1.5Mpps", 1.5e6, None, None, False),
        ("7pps", 7.0, None, None, False),
        ("0.5Mpps", 0.5e6, None, None, False),
        ("0.5Gbit/s", 0.5e9 / (8 * 84), None, None, True),
        ("0.5%", None, 0.005, None, False),
        ("2Mbit/s", 2e6 / (8 * 84), None, None, True),
        ("3Gbit/s", 3e9 / (8 * 84), None, None, True),
        ("50%", None, 0.5, None, False),
        ("12.5% of line", None, None, 0.125, True),
    ],
)
def test_loads(load: str, pps: float | None, share: float | None, of_line: float | None, by_the_cable: bool) -> None:
    assert (parse_load(load, 64), parse_share(load), parse_line_share(load)) == (pps, share, of_line)
    assert by_cable(load) == by_the_cable
    for nothing in ("0%", "0.0kpps", "0Mbit/s", "0% of line", "20", "50 %", "1e3pps"):
        with pytest.raises(ValueError, match="is not a load"):
            parse_load(nothing, 64)
    for beyond in ("0.05pps", "2000Mpps", "9000Gbit/s"):
        with pytest.raises(ValueError, match=r"0\.1 to 1e9"):
            parse_load(beyond, 64)


@pytest.mark.parametrize(
    ("skew", "timing", "exponent", "speed"),
    [
        ("zipf 0.01", "recorded x0.001", 0.01, 0.001),
        ("zipf 4", "recorded x1000", 4, 1000),
        ("uniform", "load", None, None),
    ],
)
def test_skews_and_timings(skew: str, timing: str, exponent: float | None, speed: float | None) -> None:
    assert (zipf_exponent(skew), recorded_speed(timing)) == (exponent, speed)
    for beyond in ("zipf 0.009", "zipf 4.01", "zipf"):
        with pytest.raises(ValueError, match="is not a skew"):
            zipf_exponent(beyond)
    for beyond in ("recorded x0.0009", "recorded x1000.1", "recorded x"):
        with pytest.raises(ValueError, match="is not a timing"):
            recorded_speed(beyond)


@pytest.mark.parametrize(
    ("points", "more", "is_another"),
    [
        ({"queues": 2}, {}, True),
        ({"mode": "generic"}, {}, True),
        ({"device": {"rings.rx": 512}}, {}, True),
        ({"frame_bytes": 1519}, {}, True),
        ({}, {"arrangement": "split"}, True),
        ({}, {"lab": "vm:6.1"}, True),
        ({"frame_bytes": 1518}, {}, False),
        ({"accesses": 5}, {"traffic": {"load": "20kpps"}}, False),
    ],
)
def test_what_is_expensive_to_change_makes_another_block(
    points: object, more: dict[str, object], is_another: bool
) -> None:
    plan = parse_plan({"name": "t", "blocks": [{}, {"points": points, **more}]})
    assert len({trial.block for trial in schedule(plan, points_of(plan, "shared"))}) == 1 + is_another


@pytest.mark.parametrize(
    ("passes", "seconds"), [(["rate"], 31.7), (["rate", "perf"], 42.2), (["rate", "harness"], 52.7)]
)
def test_an_estimate_is_of_what_each_trial_does(passes: list[str], seconds: float) -> None:
    times = {"warmup_s": 1, "window_s": 10, "pause_s": 20, "settle_s": 0.5, "retries": 9}
    plan = parse_plan({"name": "t", "repetitions": 3, "trial": times, "blocks": [{"passes": passes}]})
    trials = schedule(plan, points_of(plan, "shared"))
    assert trial_s(plan, trials[0]) == pytest.approx(seconds)
    assert estimate_s(plan, trials) == pytest.approx(4 + 3 * (seconds + 0.08))
    assert estimate_s(plan, []) == 0
    raced = replace(trials[0], point=replace(trials[0].point, passes=(*passes, "slices")))
    assert trial_s(plan, raced) == pytest.approx(seconds + 0.5 + 1.6), "slices take a time of their own"


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    files = ("a/x/p.c", "b/x/p.c", "b/y/p.c", "b/y/q.c", "c/x/p.c")
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("int x;")
    (tmp_path / "fill.sh").touch()
    (tmp_path / "n.txt").touch()
    setup = [["sh", "-c", "./fill.sh <n.txt; cat /etc/passwd ../up"]]
    programs = [{"file": str(tmp_path / file), "setup": setup} for file in files]
    programs[-1]["name"] = "mine"
    (tmp_path / "p.yaml").write_text(json.dumps({"name": "p", "blocks": [{"points": {"program": programs}}]}))
    points = points_of(load_plan(tmp_path / "p.yaml"), "shared")
    assert [point.program.name for point in points] == ["a/x/p.c", "b/x/p.c", "y/p.c", "q.c", "mine"]
    names = ("fill.sh", "n.txt")
    assert dict(points[0].program.setup_files) == {name: str(tmp_path / name) for name in names}


def test_a_command_of_setup_keeps_its_numbers_as_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "p.bpf.c").touch()
    text = "name: p\nblocks: [{points: {program: {file: p.bpf.c, setup: [[tc, 1, 010, 1:10, 0x10, 1e3]]}}}]\n"
    (tmp_path / "p.yaml").write_text(text)
    (program,) = load_plan(tmp_path / "p.yaml").blocks[0].points.program or ()
    assert program.setup == [["tc", "1", "010", "1:10", "16", "1e3"]]
    for word in ("on", "1.50"):
        (tmp_path / "p.yaml").write_text(text.replace("tc", word))
        with pytest.raises(PlanError, match="is not text: write it in quotes"):
            load_plan(tmp_path / "p.yaml")


def test_only_keeps_the_baseline_whose_passes_come_from_several_blocks() -> None:
    """Blocks of other passes share their N = 0: it has all of them, and was dropped."""
    blocks = [{"points": {"accesses": 1600}}, {"points": {"accesses": 100}, "passes": ["rate", "bpf_stats"]}]
    points = points_of(parse_plan({"name": "t", "blocks": blocks}), "shared")
    assert [p.program.accesses for p in select(points, {"accesses": "1600"})] == [0, 1600]
