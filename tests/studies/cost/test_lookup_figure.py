"""The figure of a lookup's instructions: what is drawn of which cases."""

import pandas as pd
import pytest

from xdplab.errors import NotApplicableError
from xdplab.plan.model import parse_plan
from xdplab.plan.points import block_points
from xdplab.studies.cost.gathering import _name_of
from xdplab.studies.cost.measurement import CALLED, PROGRAM, WHOLE
from xdplab.studies.cost.views import VIEWS

AT_0, EACH = 29.0, {PROGRAM: 4.0, CALLED: 16.0}


def table(**points: object) -> pd.DataFrame:
    """Return the rows of a plan's points, of which each access takes ``EACH`` besides what N = 0 takes."""
    chosen = {"mode": "native", "workload": "lookup"} | points
    plan = parse_plan({"name": "p", "blocks": [{"points": chosen}]})
    rows = []
    for number, point in enumerate(block_points(plan.blocks[0], "shared")):
        parts = {part: AT_0 * (part == PROGRAM) + each * (point.program.accesses or 0) for part, each in EACH.items()}
        head = {"trial_id": str(number), "program": _name_of(point), "kernel": "6.12", "mode": "test_run"}
        head |= {"frame_bytes": 64, "flows": 1}
        rows += [head | {"part": part, "instructions": count} for part, count in parts.items()]
        rows.append(head | {"part": WHOLE, "instructions": 363 + sum(parts.values())})
    return pd.DataFrame(rows)


def test_each_kind_of_map_has_a_line_over_its_entries_for_hits_and_for_misses() -> None:
    kinds, sizes = ["hash", "lpm_trie", "percpu_hash"], [1024, 8192, 32768]
    rows = table(accesses=[0, 64], map_type=kinds, entries=sizes, hit=[0, 100])
    marks = VIEWS["lookup_cost"](rows).marks
    assert set(marks["value"]) == {sum(EACH.values())}
    assert set(marks["kind"]) == {"line"}
    drawn = marks.groupby(["panel", "hue"])["x"].agg(list).to_dict()
    assert drawn == {(f"{hit} % hits", kind): sizes for hit in (0, 100) for kind in kinds}


@pytest.mark.parametrize(
    "points",
    [
        {"accesses": [0, 64]},  # of no given entries
        {"accesses": [0, 64], "workload": "array"},
    ],
)
def test_other_cases_are_not_drawn(points: dict[str, object]) -> None:
    with pytest.raises(NotApplicableError):
        VIEWS["lookup_cost"](table(**points))


def test_without_n_0_there_is_no_figure() -> None:
    rows = table(accesses=[0, 64], map_type="hash", entries=1024)
    with pytest.raises(NotApplicableError):
        VIEWS["lookup_cost"](rows[~rows["program"].str.startswith("lookup:0")])
