"""A plan allows as many flows as a generator can send."""

from __future__ import annotations

import pytest

from xdplab.errors import PlanError
from xdplab.generators import XDPGEN
from xdplab.plan import parse_plan


def test_a_plan_allows_the_flows_of_the_generator_that_has_most() -> None:
    most = max(able.max_flows for able in XDPGEN.capabilities.values())
    parse_plan({"name": "p", "blocks": [{"traffic": {"flows": most}}]})
    with pytest.raises(PlanError, match="flows"):
        parse_plan({"name": "p", "blocks": [{"traffic": {"flows": most + 1}}]})
