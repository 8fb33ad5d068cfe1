"""The notebook's verbs are there whatever was imported before them."""

from __future__ import annotations

import subprocess
import sys

import pytest

import xdplab as xl
from xdplab.errors import PlanError


@pytest.mark.parametrize(
    "first", ["pass", "import xdplab.plan", "from xdplab.plan import Plan", "import xdplab.notebook"]
)
def test_the_verbs_are_functions(first: str) -> None:
    code = f"{first}\nimport xdplab as xl\nassert all(callable(getattr(xl, name)) for name in xl.__all__)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_plan_shows_its_points_blocks_and_minutes() -> None:
    plan = xl.plan(program=[xl.program("chase", accesses=n) for n in (100, 400)], mode=["native", "generic"], queues=2)
    assert "6 points x 3 repetitions = 18 trials" in repr(plan)
    assert "native on 2 queues" in repr(plan)
    assert set(plan.points["accesses"]) == {0, 100, 400}


def test_an_unknown_factor_is_named() -> None:
    with pytest.raises(PlanError, match="colour"):
        xl.plan(program="array", colour="red")
    with pytest.raises(PlanError, match="acceses"):
        xl.program("array", acceses=3)
