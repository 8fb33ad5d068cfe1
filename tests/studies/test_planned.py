"""A run directory alone shows which trials it owes."""

from __future__ import annotations

from pathlib import Path

import pytest

from xdplab.errors import PlanError
from xdplab.plan import parse_plan
from xdplab.plan.model import Plan
from xdplab.run.progress import silent
from xdplab.run.state import read_state
from xdplab.studies.traffic import runs
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


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"trial": {"window_s": 10}}, r"trial.window_s is 10.0 in this plan and 1.0 in .*, whose trials are alike"),
        ({"trial": {"throttling": "off"}}, "trial.throttling is off"),
        (
            {"perf_events": ["cycles"], "blocks": [{"points": {"accesses": 7}, "passes": ["rate", "perf"]}]},
            "perf_events is",
        ),
        ({"metrics": [{"name": "forks", "argv": ["true"]}]}, "metrics is"),
        ({"repetitions": {"until": "2%"}}, "repetitions is"),
    ],
)
def test_an_extension_that_would_be_measured_otherwise_is_refused(
    tmp_path: Path, other: dict[str, object], words: str
) -> None:
    """The run's first plan says how its trials are measured: the settings of the second one were ignored silently."""
    run = create_run(PLAN, tmp_path, lab="netns", arrangement="shared")
    before = run.journal.path.read_bytes()
    wider = {"name": "t", "blocks": [{"points": {"accesses": [1600]}}]} | other
    with pytest.raises(PlanError, match=words):
        extend_run(run, parse_plan(wider))
    assert run.journal.path.read_bytes() == before
    assert not (run.path / "plan-2.yaml").exists()


def test_an_extension_may_have_more_repetitions_and_another_seed(tmp_path: Path) -> None:
    run = create_run(PLAN, tmp_path, lab="netns", arrangement="shared")
    more = {"name": "m", "lab": "netns:b", "seed": 7, "repetitions": 5, "trial": {"retries": 3}, "perf_events": []}
    extend_run(run, parse_plan(more | {"blocks": [{"points": {"accesses": [100]}}]}))
    assert {t.repetition for t in run_trials_of(run)} == {1, 2, 3, 4, 5}


def test_a_race_is_not_extended(tmp_path: Path) -> None:
    """The old plan's race released the new points, and a new race's rivals were unknown to the run."""
    race = parse_plan({"name": "r", "race": {}, "blocks": [{"points": {"accesses": n}} for n in (100, 400)]})
    for first, second in ((race, PLAN), (PLAN, race)):
        run = create_run(first, tmp_path, lab="netns", arrangement="shared")
        with pytest.raises(PlanError, match="a race has two sides"):
            extend_run(run, second)


def test_a_point_of_the_run_gets_no_further_pass(tmp_path: Path) -> None:
    """Its trials are measured already, without that pass, and the extension measured nothing."""
    run = create_run(PLAN, tmp_path, lab="netns", arrangement="shared")
    for accesses, refused in ((100, True), (1600, False)):
        blocks = [{"points": {"accesses": accesses}, "passes": ["rate", "perf"]}]
        wider = parse_plan({"name": "t", "blocks": blocks})
        if refused:
            with pytest.raises(PlanError, match="without pass perf; no trial is measured twice"):
                extend_run(run, wider)
        else:
            extend_run(run, wider)


def test_a_program_with_another_header_is_another_program(tmp_path: Path) -> None:
    """A point is known by the file, not by its headers: the new header replaced the old one in the run."""
    source = tmp_path / "src"
    source.mkdir()
    run = create_run(user_plan(source), tmp_path / "out", lab="netns", arrangement="shared")
    extend_run(run, user_plan(source))
    (kept,) = run.path.glob("files/*/mine.h")
    wider = user_plan(source)
    (source / "mine.h").write_text("#define X 2\n")
    with pytest.raises(PlanError, match=r"mine.h is not the mine.h that the run has beside the same mine.bpf.c"):
        extend_run(run, wider)
    assert kept.read_text() == "#define X 1\n"


def test_two_programs_that_differ_in_a_header_only_are_not_taken_for_one(tmp_path: Path) -> None:
    blocks = []
    for number in (1, 2):
        folder = tmp_path / f"v{number}"
        folder.mkdir()
        blocks += [block.model_dump(mode="json") for block in user_plan(folder).blocks]
        (folder / "mine.h").write_text(f"#define X {number}\n")
    plan = parse_plan({"name": "u", "blocks": blocks})
    with pytest.raises(PlanError, match="the two programs would be taken for one"):
        create_run(plan, tmp_path / "out", lab="netns", arrangement="shared")
    assert not list((tmp_path / "out").glob("2*"))


def test_a_run_that_ends_by_its_results_is_not_shared_among_labs(tmp_path: Path) -> None:
    """`resume --labs` measured the most repetitions of each point."""
    plan = parse_plan({"name": "u", "repetitions": {"until": "2%"}, "blocks": [{}]})
    run = create_run(plan, tmp_path, lab="netns:a", arrangement="shared")
    shared = JoinedLabs(("netns:c", "netns:d"), None, None)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="an open number of repetitions is measured in one lab"):
        shared.execute(run, silent())


def test_a_visit_of_a_block_ends_with_another_block_or_session(tmp_path: Path) -> None:
    """What `--extend`, `resume` or a retry adds to a block is of another visit than its N = 0."""
    plan = parse_plan({"name": "t", "blocks": [{"points": {"accesses": [100], "mode": ["native", "generic"]}}]})
    run = create_run(plan, tmp_path, lab="netns", arrangement="shared")
    trials = {trial.trial_id: trial for trial in run_trials_of(run)}
    a, b, c, d = [trial.trial_id for trial in list(trials.values())[:4]]
    assert trials[a].block == trials[b].block != trials[c].block

    def ended(trial: str, attempt: int, **facts: str) -> None:
        run.journal.append("finished", trial_id=trial, attempt=attempt, facts=facts)

    for trial in (a, b, c, d):
        ended(trial, 1)
    ended(b, 2)
    run.journal.append("hosts", when="before", session=1)
    ended(b, 3)
    found = {key: number for key, (number, _) in runs._visits(run, trials).items()}
    assert found == {(a, 1): 1, (b, 1): 1, (c, 1): 2, (d, 1): 2, (b, 2): 3, (b, 3): 4}
    for trial in (a, c, b, d):  # two labs at once
        ended(trial, 4, lab="netns:1" if trial in (a, b) else "netns:2")
    found = {key: number for key, (number, _) in runs._visits(run, trials).items()}
    assert found[a, 4] == found[b, 4] != found[c, 4] == found[d, 4]
