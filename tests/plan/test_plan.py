"""A plan's errors are named, its factors are crossed, and its seed orders its trials."""

import itertools
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xdplab.errors import PlanError
from xdplab.plan import Plan, estimate_s, extent, load_plan, parse_plan, points_of, schedule
from xdplab.plan.factors import parse_load
from xdplab.plan.points import select
from xdplab.resources import shipped


def make(**points: object) -> Plan:
    return parse_plan({"name": "t", "blocks": [{"points": points}]})


@pytest.mark.parametrize(
    ("block", "field"),
    [
        ({"points": {"queues": 0}}, "points.queues"),
        ({"points": {"queues": 65}}, "points.queues"),
        ({"points": {"queues": 1.5}}, "points.queues"),
        ({"points": {"frame_bytes": 63}}, "points.frame_bytes"),
        ({"points": {"frame_bytes": [64, 9217]}}, "points.frame_bytes"),
        ({"traffic": {"dst_ip_stride": "nowhere"}}, "traffic.dst_ip_stride"),
        ({"passes": ["bpf_stats"]}, "passes"),
        ({"points": {"program": {"file": "a.c"}, "accesses": 3}}, "accesses"),
        ({"points": {"program": {"file": "a.c"}, "mode": "af_xdp"}}, "af_xdp"),
    ],
)
def test_an_unusable_field_is_named(block: dict[str, object], field: str) -> None:
    """Others: tests/cli/messages.txt."""
    with pytest.raises(PlanError, match=field.replace(".", r"\.")):
        parse_plan({"name": "t", "blocks": [block]})


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
    points = points_of(make(mode=["native", "generic"], queues=[1, 2], accesses=[100, 1600]), "shared")
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


@pytest.mark.parametrize(("load", "pps"), [("max", None), ("20kpps", 20e3), ("1.5Mpps", 1.5e6), ("7pps", 7.0)])
def test_loads(load: str, pps: float | None) -> None:
    assert parse_load(load, 64) == pps


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
