"""A run that decides when it has enough: trials of known answers are not needed, and a kill does not change that."""

import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.run.sessions import Session, gone_through

from xdplab.analysis.count_rules import say_kept
from xdplab.errors import PlanError
from xdplab.plan import Plan, Trial, parse_plan
from xdplab.run.engine import Policy
from xdplab.run.progress import to_go
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import Attempt, RunState, read_state
from xdplab.studies.traffic import race
from xdplab.studies.traffic.race import OpenEnded, deciding_pairs
from xdplab.studies.traffic.run_files import create_run, plan_trials, run_plan, run_trials_of

POINTS = {"points": {"mode": ["native", "generic"], "accesses": [100]}}
UNTIL = {"name": "u", "repetitions": {"until": "2%", "at_least": 4, "at_most": 12}, "blocks": [POINTS]}
SPREAD = {"native": 0.003, "generic": 0.03}


class MadeUp(Session):
    """Rates of 1 Mpps in native mode and 0.3 in generic; native's spread is a tenth of generic's."""

    def __init__(self, kill_after: int | None = None) -> None:
        self.left = kill_after

    def measure(self, trial: Trial, raw: Path, facts: dict[str, Any]) -> None:
        if self.left == 0:
            raise KeyboardInterrupt
        self.left = None if self.left is None else self.left - 1
        mode = str(trial.point.mode)
        noise = random.Random(trial.trial_id).gauss(0, SPREAD[mode])
        facts["row"] = {"verdict": "valid", "forwarded_pps": (1e6 if mode == "native" else 3e5) * (1 + noise)}


@pytest.fixture(autouse=True)
def made_up_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def row(run: RunDirectory, trial: Trial, attempt: Attempt, *, window_s: float) -> SimpleNamespace:
        return SimpleNamespace(row=attempt.facts["row"])

    monkeypatch.setattr(race, "attempt_rows", row)


def made(tmp_path: Path, plan: dict[str, Any] = UNTIL) -> RunDirectory:
    return create_run(parse_plan(plan), tmp_path, lab="netns", arrangement="shared")


def go(run: RunDirectory, kill_after: int | None = None) -> RunState:
    trials = run_trials_of(run)
    return gone_through(run, trials, MadeUp(kill_after), Policy(stop=OpenEnded(run, run_plan(run), trials)))


def test_a_quiet_point_is_known_soon_and_a_noisy_one_goes_on(tmp_path: Path) -> None:
    run = made(tmp_path)
    state = go(run)
    counts = Counter(trial.point.mode for trial in run_trials_of(run) if trial.trial_id in state.last)
    # N = 0 continues as long as any N does: a cost needs the baseline of the same repetition.
    assert 12 + 8 <= counts["native"] < 12 + 12  # fewer than eight values have no interval
    assert counts["generic"] == 2 * 12
    assert state.owed == []
    assert state.total == len(state.last)
    assert {e["why"] for e in run.journal.events("released")} == {"the rate is known to 2.0%"}
    assert f"{len(state.released)} not needed" in state.text


def test_the_time_that_is_left_is_said_to_be_the_most(tmp_path: Path) -> None:
    run = made(tmp_path)
    assert read_state(run).open_ended
    with pytest.raises(KeyboardInterrupt):
        go(run, kill_after=3)
    assert to_go(read_state(run)).startswith("at most ")
    fixed = made(tmp_path / "fixed", UNTIL | {"repetitions": 3})
    assert not read_state(fixed).open_ended


def test_a_kill_at_any_instant_changes_nothing_of_what_is_measured(tmp_path: Path) -> None:
    """The journal is cut after each line in turn, also those that release trials; then the run resumes."""
    whole = made(tmp_path / "whole")
    measured = set(go(whole).last)
    journal = whole.journal.path.read_bytes().splitlines(keepends=True)
    assert any(b'"released"' in line for line in journal)
    begun = next(n for n, line in enumerate(journal, start=1) if b'"planned"' in line)
    for cut in range(begun, len(journal), 3):
        run = made(tmp_path / f"cut{cut}")
        with run.journal.path.open("ab") as own:
            own.write(b"".join(journal[begun:cut]))
        state = go(RunDirectory.open(run.path))
        assert set(state.last) == measured, cut
        assert len(state.attempts) == len(measured)


def racing(second: dict[str, Any], most: int = 40) -> Plan:
    sides = [{"points": {"mode": "native", "accesses": 100} | side} for side in ({}, second)]
    return parse_plan({"name": "r", "race": {"at_most": most}, "blocks": sides})


def test_a_race_measures_its_two_sides_in_turns_and_no_baseline() -> None:
    trials = plan_trials(racing({"accesses": 400}), "shared")
    assert {trial.point.program.accesses for trial in trials} == {100, 400}
    turns = [[t.point.program.accesses for t in trials if t.repetition == n] for n in range(1, 41)]
    assert all(sorted(turn) == [100, 400] for turn in turns)
    assert 10 <= sum(turn == [100, 400] for turn in turns) <= 30  # the seed decides which side begins


def test_a_paced_load_does_not_decide_a_race() -> None:
    """Both sides forward what was offered: with it, a side that is 3.4 % slower was equivalent within 2 %."""
    sides = [
        {"points": {"mode": mode, "accesses": 100}, "traffic": {"load": ["20kpps", "max"]}}
        for mode in ("native", "generic")
    ]
    both = parse_plan({"name": "r", "race": {}, "blocks": sides})
    assert [(a.load, b.load) for a, b in deciding_pairs(both, "shared")] == [("max", "max")]
    assert {trial.point.load for trial in plan_trials(both, "shared")} == {"20kpps", "max"}
    paced = [side | {"traffic": {"load": "20kpps"}} for side in sides]
    assert len(deciding_pairs(parse_plan({"name": "r", "race": {}, "blocks": paced}), "shared")) == 1


def test_a_race_stops_when_it_knows(tmp_path: Path) -> None:
    plan = racing({"mode": "generic"})
    run = create_run(plan, tmp_path, lab="netns", arrangement="shared")
    state = go(run)
    assert len(state.last) == 16  # eight pairs give an interval, and one side is three times as fast
    (why,) = [event["why"] for event in run.journal.events("released")]
    assert float(why.removeprefix("b is ").split("% slower")[0]) == pytest.approx(70, abs=0.6)
    assert go(RunDirectory.open(run.path)).attempts == state.attempts


class Keeping(MadeUp):
    """The program of one side drops every frame: no trial of it can be valid."""

    def measure(self, trial: Trial, raw: Path, facts: dict[str, Any]) -> None:
        super().measure(trial, raw, facts)
        if trial.point.mode == "generic":
            kept = {"actions_counted": '{"drop": 9}', "verdict": "invalid"}
            facts["row"] = kept | {"reason": say_kept(kept)}


def test_a_race_in_which_a_program_keeps_every_frame_ends_with_its_first_pair(tmp_path: Path) -> None:
    plan = racing({"mode": "generic"})
    run = create_run(plan, tmp_path, lab="netns", arrangement="shared")
    trials = run_trials_of(run)
    state = gone_through(run, trials, Keeping(), Policy(stop=OpenEnded(run, plan, trials)))
    assert len(state.last) == 2
    (why,) = [event["why"] for event in run.journal.events("released")]
    assert "XDP_DROP 100%" in why


def test_pairs_with_an_invalid_side_are_counted(tmp_path: Path) -> None:
    """Of eleven pairs three were invalid, and the race ended "after 8 pairs"."""

    class Disturbed(MadeUp):
        def measure(self, trial: Trial, raw: Path, facts: dict[str, Any]) -> None:
            super().measure(trial, raw, facts)
            if trial.point.mode == "generic" and trial.repetition in (1, 2, 3):
                facts["row"] |= {"verdict": "invalid", "reason": "the host slept"}

    plan = racing({"mode": "generic"})
    run = create_run(plan, tmp_path, lab="netns", arrangement="shared")
    trials = run_trials_of(run)
    gone_through(run, trials, Disturbed(), Policy(stop=OpenEnded(run, plan, trials)))
    (why,) = [event["why"] for event in run.journal.events("released")]
    assert "after 8 pairs (and 3 without a ratio" in why


@pytest.mark.parametrize(("limit", "answer"), [("none", "undecided: both carry"), ("shared_cpu", "b and a are equiv")])
def test_a_race_at_a_load_that_both_sides_carry_has_no_answer(tmp_path: Path, limit: str, answer: str) -> None:
    """A program that takes 31 ns more in its test runs, and is 11 % slower at maximum load, was equivalent at 20 kpps:
    the exit code was 0."""

    class Carrying(MadeUp):
        def measure(self, trial: Trial, raw: Path, facts: dict[str, Any]) -> None:
            super().measure(trial, raw, facts)
            facts["row"] |= {
                "limited_by": limit,
                "forwarded_pps": 2e4 * (1 + random.Random(trial.trial_id).random() / 1e6),
            }

    sides = [{"points": {"accesses": n}, "traffic": {"load": "20kpps"}} for n in (100, 400)]
    plan = parse_plan({"name": "r", "race": {"at_most": 40, "by": "windows"}, "blocks": sides})
    run = create_run(plan, tmp_path, lab="netns", arrangement="shared")
    trials = run_trials_of(run)
    state = gone_through(run, trials, Carrying(), Policy(stop=OpenEnded(run, plan, trials)))
    (why,) = {event["why"] for event in run.journal.events("released")}
    assert why.startswith(answer)
    assert len(state.last) < 40, "more pairs would tell nothing more"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"race": {}, "blocks": [POINTS]}, "a race is between two blocks, and this plan has 1"),
        ({"repetitions": {"until": "2%", "at_least": 9, "at_most": 5}}, "at_least: 9 is more than at_most: 5"),
        ({"repetitions": {"until": "2 percent"}}, "until"),
        ({"repetitions": {"until": 0}}, "until"),
    ],
)
def test_what_cannot_be_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        parse_plan(UNTIL | change)


def test_sides_that_cannot_be_paired_are_named() -> None:
    with pytest.raises(PlanError, match="the other 2: they cannot be paired"):
        plan_trials(racing({"accesses": [100, 400]}), "shared")
    with pytest.raises(PlanError, match="both sides measure array-read N=100"):
        plan_trials(racing({}), "shared")


def test_the_sides_of_a_race_are_paired_in_the_arrangement_that_it_was_planned_for(tmp_path: Path) -> None:
    """A side with its own arrangement lent it to the other side, whose points then had no rates: it ended unknown."""
    sides = [{"points": {"accesses": 100}, "arrangement": "split"}, {"points": {"accesses": 400}}]
    plan = parse_plan({"name": "r", "race": {"by": "windows"}, "blocks": sides})
    run = create_run(plan, tmp_path, lab="netns", arrangement="shared")
    trials = run_trials_of(run)
    for first in ("split", "shared"):
        ordered = sorted(trials, key=lambda trial: trial.point.arrangement != first)
        known = OpenEnded(run, plan, ordered)
        for repetition in range(1, 13):
            for trial in ordered:
                if trial.repetition == repetition:
                    rate = 1e6 if trial.point.program.accesses == 100 else 5e5
                    known._tried[trial.point.point_id].add(repetition)
                    known.rates[trial.point.point_id, repetition] = rate * (
                        1 + (repetition * (2 + trial.point.program.accesses) % 7) / 1e4
                    )
        (words,) = known.released()
        assert words.startswith("b is 50.0"), first
