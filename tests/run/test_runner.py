"""The loop keeps measured trials, owes the others, and never counts a trial twice."""

import io
import random
import time
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from tests.run.sessions import Session, gone_through

from xdplab.errors import (
    CutOffError,
    HostError,
    HostLostError,
    MissingToolError,
    ProgramError,
    ResultsError,
    StoppedError,
    UnsupportedError,
)
from xdplab.plan import Trial, parse_plan, points_of, schedule
from xdplab.run.engine import CUTS, Policy
from xdplab.run.progress import PlainObserver
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import RunState, attempts_of, read_state, record_planned

PLAN = parse_plan({"name": "t", "blocks": [{"points": {"queues": [1, 2], "accesses": [0, 1, 2]}}]})
TRIALS = schedule(PLAN, points_of(PLAN, "shared"))


class Recorder(Session):
    """Records its calls."""

    def __init__(self, **errors: Exception) -> None:
        self.errors = errors
        self.log: list[str] = []

    def enter_block(self, trials: Sequence[Trial]) -> None:
        self.log.append(f"enter {trials[0].block}")
        if "block" in self.errors:
            raise self.errors["block"]

    def measure(self, trial: Trial, raw: Path, facts: dict[str, Any]) -> None:
        self.log.append(trial.trial_id)
        (raw / "out").write_text(trial.trial_id)
        facts["seen"] = trial.trial_id
        if trial.trial_id in self.errors:
            raise self.errors[trial.trial_id]

    def leave_block(self) -> None:
        self.log.append("leave")


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory.create(tmp_path, "t", run_id="ab12", plan_yaml="")
    record_planned(run, TRIALS)
    return run


def go(run: RunDirectory, study: Recorder, retries: int = 1) -> RunState:
    return gone_through(run, TRIALS, study, Policy(retries))


@pytest.fixture
def long(tmp_path: Path) -> tuple[RunDirectory, list[Trial]]:
    """A run of three blocks with ten trials each in a repetition."""
    plan = parse_plan({"name": "t", "blocks": [{"points": {"queues": [1, 2, 4], "accesses": list(range(9))}}]})
    trials = schedule(plan, points_of(plan, "shared"))
    run = RunDirectory.create(tmp_path, "long", run_id="ab12", plan_yaml="")
    record_planned(run, trials)
    return run, trials


def test_every_trial_is_measured_once_in_order(run: RunDirectory) -> None:
    study = Recorder()
    state = go(run, study)
    assert [x for x in study.log if "-r" in x] == [t.trial_id for t in TRIALS]
    assert study.log.count("leave") == 6
    assert (state.owed, state.failed) == ([], [])
    first = next(attempts_of(run))  # facts stay in the journal: a run of thousands does not hold them in memory
    assert (first.facts, first.files) == ({"seen": TRIALS[0].trial_id}, {"out": len(TRIALS[0].trial_id)})
    assert read_state(run).attempts == state.attempts
    assert read_state(run).ended == "complete"
    assert repr(read_state(run)) == f"{len(TRIALS)} trials: {len(TRIALS)} measured"
    again = Recorder()
    assert (go(run, again).owed, again.log) == ([], []), "a resume measures nothing"


def test_a_failed_trial_is_tried_again_and_its_raw_kept(run: RunDirectory) -> None:
    bad, lines = TRIALS[4].trial_id, list[str]()
    state = gone_through(run, TRIALS, Recorder(**{bad: HostError("the wire was cut")}), Policy(1),
                         watch=PlainObserver(lines.append))  # fmt: skip
    numbers = [line[1:].partition("/")[0] for line in lines[:-1]]
    assert numbers == [*(str(number) for number in range(1, len(TRIALS) + 1)), str(len(TRIALS))]
    assert "failed: the wire was cut" in lines[4]
    assert ": failed: same reason as before" in lines[-2]
    assert [a.attempt for a in state.attempts if a.trial_id == bad] == [1, 2]
    assert state.failed == [bad]
    assert state.last[bad].reason == "the wire was cut"
    assert (run.raw_dir(bad, 1) / "out").exists()
    again = go(run, Recorder())
    assert again.failed == []
    assert again.last[bad].attempt == 3


class CutOff(Recorder):
    """During a trial in ``cuts``, a connection is lost so many times."""

    def __init__(self, **cuts: int) -> None:
        super().__init__()
        self.cuts = cuts

    def measure(self, trial: Trial, raw: Path, facts: dict[str, Any]) -> None:
        super().measure(trial, raw, facts)
        if self.cuts.get(trial.trial_id, 0):
            self.cuts[trial.trial_id] -= 1
            raise CutOffError("dut: the connection is lost")


def test_a_trial_under_which_a_connection_was_lost_is_measured_again_at_once_and_costs_no_retry(
    run: RunDirectory,
) -> None:
    first, second = TRIALS[0].trial_id, TRIALS[4].trial_id
    study = CutOff(**{first: CUTS, second: 1})
    state = go(run, study, retries=0)
    assert (state.failed, state.owed) == ([], [])
    assert study.log[: CUTS + 2] == [f"enter {TRIALS[0].block}", *[first] * (CUTS + 1)]
    assert state.last[first].attempt == CUTS + 1
    assert state.last[second].attempt == 2


def test_a_trial_that_ends_each_connection_does_not_hold_the_run_up(run: RunDirectory) -> None:
    bad = TRIALS[0].trial_id
    state = go(run, CutOff(**{bad: 1000}), retries=1)
    assert (state.failed, len(state.last)) == ([bad], len(TRIALS))
    assert state.last[bad].attempt == 2 * (CUTS + 1)


def test_what_the_lab_cannot_is_a_verdict_not_a_failure(run: RunDirectory) -> None:
    state = go(run, Recorder(block=UnsupportedError("veth has no offload")))
    assert {a.status for a in state.attempts} == {"unsupported"}
    assert len(state.attempts) == len(TRIALS)


def test_what_fails_alike_before_anything_is_measured_stops_the_run_with_the_reason_once(run: RunDirectory) -> None:
    """With clang 19 the generator could not be loaded: 144 trials failed one after the other for the same reason."""
    study, printed = Recorder(block=HostError("tg: the kernel refused 'receive'")), io.StringIO()
    with pytest.raises(StoppedError) as stopped:
        gone_through(run, TRIALS, study, Policy(retries=1), watch=PlainObserver(lambda line: print(line, file=printed)))
    assert "each of 6 trials failed alike: tg: the kernel refused 'receive'" in str(stopped.value)
    assert stopped.value.remedy == f"fix that, then `xdplab resume {run.path}`"
    assert printed.getvalue().count("the kernel refused") == 1
    assert sorted(study.log) == ["enter 0", "enter 1", "leave", "leave"]
    state = read_state(run)
    assert (state.ended, len(state.attempts), len(state.owed)) == ("stopped", 6, len(TRIALS))
    assert go(run, Recorder()).owed == []


def test_a_hint_names_the_run_and_its_lab(run: RunDirectory) -> None:
    """The code that finds a host lost knows neither plan nor lab, but a command that is pasted must work.

    A trial's reason has no path of the run, which may be moved.
    """
    record_planned(run, TRIALS, lab="netns")
    lost = HostLostError("dut: gone", remedy="see `xdplab lab status` and `xdplab doctor`, then `xdplab resume`")
    with pytest.raises(HostLostError) as told:
        go(run, Recorder(block=lost))
    commands = f"see `xdplab lab status --lab netns` and `xdplab doctor --lab netns`, then `xdplab resume {run.path}`"
    assert told.value.remedy == commands
    lossy = HostError("tg: no frame", remedy="see `xdplab doctor`, then `xdplab resume`")
    go(run, Recorder(**{TRIALS[0].trial_id: lossy}))
    (failed,) = {a.reason for a in read_state(run).attempts if a.status == "failed"}
    assert failed == "tg: no frame (see `xdplab doctor --lab netns`, then `xdplab resume`)"


def test_a_few_trials_of_every_block_are_asked_before_a_run_is_stopped(long: tuple[RunDirectory, list[Trial]]) -> None:
    run, trials = long
    unsupported = trials[0].block
    bad: dict[str, Exception] = {t.trial_id: ProgramError("no such section") for t in trials if t.block != unsupported}
    bad |= {t.trial_id: UnsupportedError("not here") for t in trials if t.block == unsupported}
    with pytest.raises(StoppedError, match="each of 6 trials failed alike: no such section"):
        gone_through(run, trials, Recorder(**bad))


def test_a_block_that_waits_is_measured_once_another_one_can_be(long: tuple[RunDirectory, list[Trial]]) -> None:
    """If only the first block fails that way, the run continues with the postponed trials, then with the rest."""
    run, trials = long
    first = trials[0].block
    study = Recorder(**{t.trial_id: HostError("no queues") for t in trials if t.block == first})
    state = gone_through(run, trials, study)
    assert (len(state.attempts), len(state.failed)) == (len(trials), 27)
    groups = [t.block for t in trials if t.repetition == 1]
    second = groups[9]
    assert study.log[:4] == [f"enter {first}", *(t.trial_id for t in trials[:3])]
    assert study.log[4:6] == ["leave", f"enter {second}"]
    assert study.log[15:18] == ["leave", f"enter {first}", trials[3].trial_id]


def test_a_block_that_the_lab_cannot_measure_is_not_put_off(long: tuple[RunDirectory, list[Trial]]) -> None:
    run, trials = long
    group = trials[:9]
    study = Recorder(**{t.trial_id: UnsupportedError("no queues") for t in group})
    gone_through(run, trials, study)
    assert study.log[:11] == [f"enter {group[0].block}", *(t.trial_id for t in group), "leave"]


@pytest.mark.parametrize("fine", [0, 1, 3])
def test_where_anything_was_measured_the_rest_goes_on(run: RunDirectory, fine: int) -> None:
    bad = {t.trial_id: HostError("the wire was cut") for place, t in enumerate(TRIALS) if place != fine}
    assert len(go(run, Recorder(**bad)).failed) == len(TRIALS) - 1


def test_different_reasons_or_one_block_alone_do_not_stop_a_run(run: RunDirectory) -> None:
    reasons = {t.trial_id: HostError(f"trial {place}") for place, t in enumerate(TRIALS)}
    assert len(go(run, Recorder(**reasons), retries=0).failed) == len(TRIALS)
    first = {t.trial_id: HostError("no queues") for t in TRIALS if t.block == TRIALS[0].block}
    assert len(go(run, Recorder(**first), retries=0).failed) == len(first)


@pytest.mark.parametrize(
    "ending",
    [
        MissingToolError("no qemu-system-x86"),  # 49 of 56 trials once failed in the same way
        ResultsError("No space left on device"),
        KeyboardInterrupt(),
    ],
    ids=type,
)
def test_what_ends_a_run_at_once_keeps_what_was_measured(run: RunDirectory, ending: Exception) -> None:
    study = Recorder(**{TRIALS[7].trial_id: ending})
    with pytest.raises(type(ending)):
        go(run, study)
    assert study.log[-1] == "leave"
    state = read_state(run)
    assert ([a.status for a in state.attempts], state.failed) == (["measured"] * 7, [])
    assert (state.ended, len(state.owed)) == ("interrupted", len(TRIALS) - 7)


def test_a_released_trial_is_not_owed_and_one_with_an_attempt_stays(run: RunDirectory) -> None:
    with pytest.raises(KeyboardInterrupt):
        go(run, Recorder(**{TRIALS[0].trial_id: HostError("no"), TRIALS[2].trial_id: KeyboardInterrupt()}))  # type: ignore[arg-type]
    state = read_state(run)
    tried, untried = TRIALS[0].trial_id, TRIALS[4].trial_id
    left_s = state.eta_s
    state.release([tried, untried])
    assert left_s is not None
    assert state.eta_s < left_s
    assert (state.released, state.owes(tried), state.owes(untried)) == ({untried}, True, False)
    assert state.total == len(TRIALS) - 1


class Slow(Recorder):
    def measure(self, trial: Trial, raw: Path, facts: dict[str, Any]) -> None:
        super().measure(trial, raw, facts)
        time.sleep(0.004)


def go_slowly(path: Path) -> None:
    run = RunDirectory.open(path)
    with run.writer():
        go(run, Slow())


def test_ten_kills_at_random_moments_lose_and_double_nothing(run: RunDirectory) -> None:
    rng = random.Random(7)
    for _ in range(10):
        child = get_context("fork").Process(target=go_slowly, args=(run.path,))
        before = run.journal.path.stat().st_size
        child.start()
        deadline = time.monotonic() + 20
        while run.journal.path.stat().st_size == before and time.monotonic() < deadline and child.is_alive():
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.02))
        child.kill()
        child.join()
    go_slowly(run.path)
    state = read_state(run)
    assert sorted(a.trial_id for a in state.attempts) == sorted(t.trial_id for t in TRIALS)
    assert all((run.raw_dir(a.trial_id, a.attempt) / "out").read_text() == a.trial_id for a in state.attempts)
