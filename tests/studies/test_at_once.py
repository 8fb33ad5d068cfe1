"""A study whose places measure at the same time: --labs, for guests that count."""

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.studies.test_frame import STUDY, Measurer, Request, Word
from tests.studies.test_frame import WORDS as STUDIED

from xdplab.cli import cli
from xdplab.errors import HostLostError, LabError, ProgramError
from xdplab.run.progress import silent
from xdplab.run.state import read_state
from xdplab.studies import kinds
from xdplab.studies.kind import Kind, Run, Where
from xdplab.studies.points import StudyPlan, StudyTrial
from xdplab.studies.study_kind import study_kind

QUIET = silent()
WORDS = ("a", "aa", "aaa", "b", "bb", "bbb", "c", "cc")
"""The place of a trial is its word's first letter."""


class Together(Measurer):
    """A trial in `a` and one in `b` end only while the other is running; during a trial in `c` no other may run."""

    meeting = threading.Barrier(2, timeout=20)
    under_way = 0
    broken = ""

    def measure(self, trial: StudyTrial[Word], raw: Path, facts: dict[str, object]) -> None:
        word = trial.point.word
        if self.broken and word.startswith("a"):
            raise HostLostError(self.broken) if len(word) > 1 else ProgramError("not this one")
        if word[0] in "ab" and not self.broken:
            self.meeting.wait()
        else:
            type(self).under_way += 1
            time.sleep(0.3 if self.broken else 0.02)
            assert self.broken or self.under_way == 1, "a place of its own"
            type(self).under_way -= 1
        super().measure(trial, raw, facts)


def study(broken: str = "") -> Kind[StudyPlan[Request, Word]]:
    measurer = type("Measured", (Together,), {"meeting": threading.Barrier(2, timeout=20), "broken": broken})
    return study_kind(**STUDIED | {"session": lambda plan: measurer()})


def started(tmp_path: Path, broken: str = "") -> Run[StudyPlan[Request, Word]]:
    return study(broken).start(Request(words=WORDS, repetitions=2), tmp_path)


def test_places_measure_at_the_same_time_and_the_others_after_them(tmp_path: Path) -> None:
    run = started(tmp_path)
    state = run.measure(QUIET, Where(labs=("a", "b")))
    assert (state.owed, state.failed, len(state.last)) == ([], [], 16)
    events = list(run.directory.journal.events("started", "finished", "shared"))
    assert [event["labs"] for event in events if event["event"] == "shared"] == [["a", "b"]]
    own = {trial.trial_id: trial.point.word for trial in run.plan.trials}
    order = [own[event["trial_id"]][0] for event in events if event["event"] == "finished"]
    assert set(order[:12]) == {"a", "b"}
    assert order[12:] == ["c"] * 4
    assert sorted(run.rows()["word"]) == sorted(WORDS * 2)
    again = read_state(run.directory)
    assert (again.labs, again.last.keys()) == (2, state.last.keys())


def test_each_place_keeps_its_own_order(tmp_path: Path) -> None:
    run = started(tmp_path)
    run.measure(QUIET, Where(labs=("a", "b")))
    finished = [event["trial_id"] for event in run.directory.journal.events("finished")]
    for place in "abc":
        own = [trial.trial_id for trial in run.plan.trials if trial.point.word.startswith(place)]
        assert [one for one in finished if one in own] == own


def test_an_error_that_ends_the_run_ends_the_other_places_too_and_resume_measures_the_rest(tmp_path: Path) -> None:
    run = started(tmp_path, broken="the guest is gone")
    with pytest.raises(HostLostError, match="the guest is gone"):
        run.measure(QUIET, Where(labs=("a", "b")))
    left = read_state(run.directory)
    assert left.ended == "interrupted"
    own = {trial.trial_id: trial.point.word for trial in run.plan.trials}
    assert {own[owed][0] for owed in left.owed} == set("abc")
    state = STUDY.run(run.directory).measure(QUIET, Where(labs=("b", "c")))
    assert (state.owed, len(state.last)) == ([], 16)


@pytest.mark.parametrize(
    ("labs", "why"),
    [(("x",), "no trials at x"), (("a", "a"), "names a place twice"), (("host", "a"), "host measures time")],
)
def test_a_place_that_cannot_measure_beside_others_is_refused(tmp_path: Path, labs: tuple[str, ...], why: str) -> None:
    run = study().start(Request(words=("a", "host")), tmp_path)
    plan = replace(run.plan, points=tuple(_At(point.word) for point in run.plan.points))
    placed = replace(run, kind=replace(run.kind, read=lambda _: plan))
    with pytest.raises(LabError, match=why) as refused:
        placed.measure(QUIET, Where(labs=labs))
    assert refused.value.remedy in (None, "places of this run that can: a")


class _At(Word):
    @property
    def block(self) -> tuple[str, ...]:
        return (self.word,)


def test_a_run_that_cannot_begin_leaves_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "STUDIES", (STUDY.name,))
    monkeypatch.setitem(kinds.MODULES, STUDY.name, f"{__name__}:STUDY")
    (tmp_path / "words.yaml").write_text(f"study: {STUDY.name}\nwords: [one, three]\nrepetitions: 1\n")
    argv = ["run", str(tmp_path / "words.yaml"), "--out", str(tmp_path / "out"), "--labs", "nowhere"]
    with pytest.raises(LabError, match="no trials at nowhere"):
        CliRunner().invoke(cli, argv, catch_exceptions=False)
    assert not list((tmp_path / "out").glob("2*"))
    argv[-1] = "o,t"
    assert CliRunner().invoke(cli, argv, catch_exceptions=False).exit_code == 0
