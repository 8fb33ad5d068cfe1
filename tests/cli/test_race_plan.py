"""What `race` measures: programs by the options, plans by what they say; sides that would not be fair are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from xdplab.cli.race import race_plan
from xdplab.errors import PlanError
from xdplab.plan import Plan
from xdplab.studies.traffic.planned import race_pairs


def raced(first: str | Path, second: str | Path) -> Plan:
    return race_plan(
        str(first), str(second), mode="generic", action="tx", accesses=7, frame_bytes=128, load="max", window_s=0.5,
        margin=None, at_least=None, at_most=30, name="r",
    )  # fmt: skip


def plan(folder: Path, name: str, **changes: Any) -> Path:
    block = {"points": {"mode": "native", "accesses": [100, 400]}, "traffic": {"flows": 4}}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({"name": name, "trial": {"window_s": 0.2}, "blocks": [block]} | changes))
    return path


def test_two_plans_race_as_they_are(tmp_path: Path) -> None:
    other = {"points": {"mode": "generic", "accesses": [100, 400]}, "traffic": {"flows": 8}}
    made = raced(plan(tmp_path, "a"), plan(tmp_path, "b", blocks=[other]))
    pairs = [(a.mode, a.program.accesses, b.mode, b.program.accesses) for a, b in race_pairs(made, "shared")]
    assert pairs == [("native", 100, "generic", 100), ("native", 400, "generic", 400)]
    assert made.trial.window_s == 0.2
    assert made.race is not None
    assert made.race.at_most == 30


def test_a_plan_races_a_workload_by_the_options_of_that_side_alone(tmp_path: Path) -> None:
    one = {"points": {"mode": "native", "accesses": [100]}}
    ((a, b),) = race_pairs(raced(plan(tmp_path, "a", blocks=[one]), "array"), "shared")
    assert (a.mode, a.program.accesses, b.mode, b.program.accesses, b.frame_bytes) == ("native", 100, "generic", 7, 128)


def test_sides_that_would_not_be_fair_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="other `trial:` settings"):
        raced(plan(tmp_path, "a"), plan(tmp_path, "b", trial={"window_s": 1.0}))
    two = plan(tmp_path, "two", blocks=[{"points": {"mode": mode}} for mode in ("native", "generic")])
    with pytest.raises(PlanError, match="has 2 blocks, and a side of a race is one"):
        raced(two, "array")
