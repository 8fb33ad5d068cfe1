# SPDX-License-Identifier: Apache-2.0
"""Which points of a plan a guest counts; what it leaves out is named."""

from __future__ import annotations

import pytest

from xdplab.plan.model import parse_plan
from xdplab.plan.points import block_points
from xdplab.studies.cost.gathering import countable


@pytest.mark.parametrize(
    ("points", "counted", "left_out"),
    [
        ({"mode": ["native", "generic"], "accesses": [0, 10]}, 4, []),
        ({"mode": ["native", "offload"]}, 1, ["1 point with mode offload"]),
        ({"queues": [1, 2], "accesses": [0, 10]}, 2, ["2 points with 2 queues"]),
    ],
)
def test_points_that_no_guest_counts_are_named(
    points: dict[str, list[object]], counted: int, left_out: list[str]
) -> None:
    plan = parse_plan({"name": "p", "blocks": [{"points": {"accesses": [0], "workload": ["array"], **points}}]})
    planned, notes = countable(block_points(plan.blocks[0], "shared"))
    assert len(planned) == counted
    assert [note.removeprefix("not counted: ") for note in notes] == left_out
