"""Loads in percent of the PDR: which PDR is meant, where it comes from, and what happens without one."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from xdplab.errors import PlanError, ResultsError, UnsupportedError
from xdplab.plan import Point, parse_plan, points_of
from xdplab.run.rundir import RunDirectory
from xdplab.studies.kinds import open_run
from xdplab.studies.search.kind import pdr_files, pdr_of
from xdplab.studies.traffic.columns import pdr_remark
from xdplab.studies.traffic.pdr import FILE, joined, known_pdr, offered_rate
from xdplab.studies.trial_facts import Limit

NO_LINK = Limit(None, "a virtual link has no rate, whatever its `speed` says")


def points(load: Any, **traffic: Any) -> list[Point]:
    plan = parse_plan({"name": "t", "blocks": [{"points": {"accesses": [0]}, "traffic": {"load": load, **traffic}}]})
    return points_of(plan, "split")


@pytest.mark.parametrize("load", ["0%", "%", "-5%", "half", "0.0% of line", "50% of", "0Mbit/s", "5Tbit/s", "0pps"])
def test_what_is_no_load_is_refused(load: str) -> None:
    with pytest.raises(PlanError, match="is not a load"):
        points(load)


def test_a_pdr_belongs_to_the_point_whatever_its_load_its_bursts_and_stamps() -> None:
    keys = {p.pdr_key for load in ("max", "50%", "20kpps") for p in points(load, stamp="all")} | {
        p.pdr_key for p in [*points("max", stamp=16), *points("50%", burst=32)]
    }
    assert len(keys) == 1
    assert len({p.point_id for p in points(["max", "50%", "20kpps"])}) == 3
    assert points("max", flows=7)[0].pdr_key not in keys


def test_a_share_is_of_the_pdr_and_other_loads_are_what_they_are(tmp_path: Path) -> None:
    half, top, paced = (points(load)[0] for load in ("50%", "max", "20kpps"))
    rows = [{"pdr_key": half.pdr_key, "pdr_pps": pps} for pps in (1e6, 1.2e6, 5e6, None)]
    run = RunDirectory.create(tmp_path, "t", run_id="ab12", plan_yaml="")
    assert known_pdr(run) == {}
    run.write_json(FILE, pdr_of("search", pd.DataFrame(rows)))
    assert offered_rate(half, known_pdr(run), NO_LINK) == pytest.approx(0.6e6)
    assert offered_rate(top, known_pdr(run), NO_LINK) is None
    assert offered_rate(paced, known_pdr(run), NO_LINK) == 20e3


def test_without_a_pdr_a_share_is_unsupported_and_says_how_to_get_one() -> None:
    with pytest.raises(UnsupportedError, match=r"load 50%: no PDR of this point is known \(`xdplab search PLAN`"):
        offered_rate(points("50%")[0], {}, NO_LINK)


def test_a_run_that_is_no_search_is_refused(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "t", run_id="ab12", plan_yaml="name: t\n")
    with pytest.raises(ResultsError, match="is not a search"):
        pdr_files(open_run(run.path))


def test_a_share_of_the_line_goes_by_the_size_of_the_frames_and_the_speed_of_the_cable() -> None:
    """10 Gbit/s carry 14,880,952 frames per second of 64 bytes and 812,744 of 1518, as in the usual tables."""
    plan = {"points": {"accesses": [0], "frame_bytes": [64, 1518]}, "traffic": {"load": ["100% of line", "10Gbit/s"]}}
    made = points_of(parse_plan({"name": "t", "blocks": [plan]}), "split")
    rates = {(p.load, p.frame_bytes): offered_rate(p, {}, Limit(10e9)) for p in made}
    assert {key: int(rate or 0) for key, rate in rates.items()} == {
        ("100% of line", 64): 14_880_952,
        ("100% of line", 1518): 812_743,
        ("10Gbit/s", 64): 14_880_952,
        ("10Gbit/s", 1518): 812_743,
    }
    with pytest.raises(UnsupportedError, match="load 50% of line: a virtual link has no rate"):
        offered_rate(points("50% of line")[0], {}, NO_LINK)


def test_a_trial_says_what_is_special_about_its_pdr(tmp_path: Path) -> None:
    """A search in another lab, or one that its generator ended, gave the load of "50%" without a word."""
    half, top = points("50%")[0], points("max")[0]
    row = {"pdr_key": half.pdr_key, "pdr_pps": 1e6, "lab": "netns:a", "limited_by": "dut"}
    told = {}
    for name, limited in (("plain", "dut"), ("bound", "generator")):
        run = RunDirectory.create(tmp_path, name, run_id="ab12", plan_yaml="")
        assert pdr_remark(run, half, "netns:a") is None
        run.write_json(FILE, pdr_of("search", pd.DataFrame([row, row | {"limited_by": limited}])))
        told[name] = run
    assert pdr_remark(told["plain"], half, "netns:a") is None
    assert pdr_remark(told["plain"], half, "netns:b") == "the PDR was searched in lab netns:a"
    assert pdr_remark(told["bound"], half, "netns:a") == (
        "the PDR is at least what was found: generator limited the search, not the DUT"
    )
    assert pdr_remark(told["bound"], top, "netns:b") is None


def test_another_search_may_add_pdrs_to_a_run_and_change_none(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "t", run_id="ab12", plan_yaml="")
    a = {"search": "a", "pdr_pps": {"x": 1.0}, "labs": {"x": ["netns"]}, "limited": {"x": []}}
    run.write_json(FILE, joined(run, a))
    b = {"search": "b", "pdr_pps": {"x": 1.0, "y": 2.0}, "labs": {"y": ["netns"]}, "limited": {}}
    run.write_json(FILE, joined(run, b))
    assert known_pdr(run) == {"x": 1.0, "y": 2.0}
    with pytest.raises(PlanError, match=r"has the PDRs of b, and c has others of 1 point:"):
        joined(run, {"search": "c", "pdr_pps": {"x": 3.0}})
