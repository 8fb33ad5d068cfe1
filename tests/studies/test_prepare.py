"""A tool that dies on its host while programs are prepared is started again; other failures are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from xdplab.errors import HostError, HostLostError, ProgramError, XdplabError
from xdplab.plan import parse_plan, points_of
from xdplab.studies.traffic.prepare import require_content, tried_again

KILLED = HostError("dut: xdpload ended without an answer: Killed")


class Dying:
    def __init__(self, *errors: XdplabError) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "prepared"


def test_a_loader_that_is_killed_is_tried_again() -> None:
    work = Dying(KILLED)
    assert tried_again(1, work) == "prepared"
    assert work.calls == 2


def test_as_often_as_the_plan_says_and_no_more() -> None:
    work = Dying(KILLED, KILLED, KILLED)
    with pytest.raises(HostError, match="Killed"):
        tried_again(1, work)
    assert work.calls == 2


@pytest.mark.parametrize("error", [HostLostError("dut is gone"), ProgramError("too complex")])
def test_a_host_that_is_gone_and_a_program_that_is_refused_are_not(error: XdplabError) -> None:
    work = Dying(error)
    with pytest.raises(type(error)):
        tried_again(3, work)
    assert work.calls == 1


def test_a_file_that_is_not_the_plans_is_not_measured(tmp_path: Path) -> None:
    """A worker on another machine reads its own file at the path that the run has its copy at."""
    file = tmp_path / "mine.bpf.c"
    file.write_text("int x;")
    plan = {"name": "u", "blocks": [{"points": {"program": {"file": str(file)}}}]}
    (point,) = points_of(parse_plan(plan), "shared")
    require_content(point.program)
    file.write_text("int y;")
    with pytest.raises(ProgramError, match="is not the file that this plan was made with"):
        require_content(point.program)
