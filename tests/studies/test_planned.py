"""A run directory alone shows which trials it owes."""

from __future__ import annotations

from pathlib import Path

import pytest

from xdplab.errors import PlanError
from xdplab.plan import parse_plan
from xdplab.plan.model import Plan
from xdplab.run.progress import silent
from xdplab.run.state import read_state
from xdplab.studies.traffic.fleet import JoinedLabs
from xdplab.studies.traffic.planned import create_run, extend_run, plan_trials, run_trials_of

PLAN = parse_plan({"name": "t", "blocks": [{"points": {"accesses": [0, 100]}}]})


def user_plan(folder: Path) -> Plan:
    (folder / "mine.bpf.c").write_text('#include "mine.h"\n')
    (folder / "mine.h").write_text("#define X 1\n")
    program = {"file": str(folder / "mine.bpf.c"), "action": "drop"}
    return parse_plan({"name": "u", "blocks": [{"points": {"program": program}}]})


def test_the_trials_come_back_from_the_directory(tmp_path: Path) -> None:
    run = create_run(PLAN, tmp_path, lab="netns", arrangement="shared")
    assert run_trials_of(run) == plan_trials(PLAN, "shared")
    assert read_state(run).owed == [t.trial_id for t in run_trials_of(run)]


def test_a_users_program_travels_with_its_headers(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    run = create_run(user_plan(tmp_path / "src"), tmp_path / "out", lab="netns", arrangement="shared")
    moved = run.path.rename(tmp_path / "moved")
    (tmp_path / "src" / "mine.bpf.c").unlink()
    file = run_trials_of(type(run)(moved))[0].point.program.file
    assert file is not None
    assert Path(file).is_relative_to(moved)
    assert (Path(file).parent / "mine.h").exists()
    assert str(tmp_path) not in (moved / "plan.yaml").read_text()


def test_an_edited_plan_is_refused(tmp_path: Path) -> None:
    run = create_run(PLAN, tmp_path, lab="netns", arrangement="shared")
    (run.path / "plan.yaml").write_text((run.path / "plan.yaml").read_text().replace("100", "200"))
    with pytest.raises(PlanError, match="not the plan this run was made with"):
        run_trials_of(run)


def test_an_extension_adds_only_what_is_new(tmp_path: Path) -> None:
    run = create_run(PLAN, tmp_path, lab="netns", arrangement="shared")
    wider = parse_plan({"name": "t", "blocks": [{"points": {"accesses": [0, 100, 1600]}}]})
    extend_run(run, wider)
    trials = run_trials_of(run)
    assert len(trials) == 9
    assert sorted(t.order for t in trials) == list(range(9))
    assert set(read_state(run).owed) == {t.trial_id for t in plan_trials(wider, "shared")}


def test_only_is_remembered(tmp_path: Path) -> None:
    run = create_run(PLAN, tmp_path, lab="netns", arrangement="shared", only={"accesses": "0"})
    assert {t.point.program.accesses for t in run_trials_of(run)} == {0}


def test_blocks_with_labs_of_their_own_are_not_shared_among_others(tmp_path: Path) -> None:
    """`resume --labs` would measure them in whichever lab is free."""
    plan = parse_plan({"name": "two", "blocks": [{}, {"lab": "netns:b"}]})
    run = create_run(plan, tmp_path, lab="netns:a", arrangement="shared")
    shared = JoinedLabs(("netns:c", "netns:d"), None, None)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="blocks of this plan name their own lab: netns:b"):
        shared.execute(run, silent())
    with pytest.raises(PlanError, match="netns:b"):
        shared.start(plan, tmp_path)


def test_a_run_that_ends_by_its_results_is_not_shared_among_labs(tmp_path: Path) -> None:
    """`resume --labs` measured the most repetitions of each point."""
    plan = parse_plan({"name": "u", "repetitions": {"until": "2%"}, "blocks": [{}]})
    run = create_run(plan, tmp_path, lab="netns:a", arrangement="shared")
    shared = JoinedLabs(("netns:c", "netns:d"), None, None)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="an open number of repetitions is measured in one lab"):
        shared.execute(run, silent())
