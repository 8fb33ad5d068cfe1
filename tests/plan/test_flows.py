"""A plan allows as many flows as a test frame can number."""

from __future__ import annotations

import re

import pytest

from xdplab.errors import PlanError
from xdplab.plan import parse_plan
from xdplab.resources import shipped


def test_the_most_flows_are_those_of_the_frames_own_field() -> None:
    """15 bits of each test frame hold its flow, for every generator."""
    header = (shipped("common") / "payload.h").read_text()
    (mask,) = re.findall(r"#define PAYLOAD_FLOW_MASK (0x[0-9a-f]+)", header)
    most = int(mask, 16) + 1
    parse_plan({"name": "p", "blocks": [{"traffic": {"flows": most}}]})
    with pytest.raises(PlanError, match="flows"):
        parse_plan({"name": "p", "blocks": [{"traffic": {"flows": most + 1}}]})
