"""The same functions serve XDP traffic, a search and a study."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner, Result
from tests.attempts import attempt_of
from tests.studies import test_frame
from tests.studies.search.test_search import LINE, QUICK, dut, hard
from tests.studies.test_frame import Request as Words
from tests.studies.test_frame import Word
from tests.unpack import unpacked

import xdplab as xl
from xdplab.cli import cli
from xdplab.errors import FigureError, LabError, PlanError, ResultsError
from xdplab.figures.marks import View
from xdplab.plan import Trial, parse_plan
from xdplab.run.engine import InTurn, run_trials
from xdplab.run.progress import silent
from xdplab.run.rundir import SEARCHED, RunDirectory
from xdplab.studies import kinds
from xdplab.studies.kind import Run, Where
from xdplab.studies.kinds import open_run
from xdplab.studies.points import StudyPlan
from xdplab.studies.search.kind import SearchRequest, pdr_files
from xdplab.studies.search.study import SearchFacts, search_point
from xdplab.studies.study_kind import study_kind
from xdplab.studies.traffic.run_files import create_run, run_trials_of

RECORDED = Path(__file__).parents[1] / "run" / "recorded" / "tiny.tar.xz"
PLAN = parse_plan(
    {
        "name": "s",
        "repetitions": 2,
        "blocks": [{"points": {"mode": ["native"], "accesses": [0, 100]}, "arrangement": "split"}],
    }
)


def lengths(plan: StudyPlan[Words, Word]) -> pd.DataFrame:
    rows = [
        {"trial_id": trial.trial_id, "word": trial.point.word, "length": float((raw / "length").read_text())}
        for trial, _, raw in plan.attempts()
    ]
    return pd.DataFrame(rows).astype({"length": "Float64"})


def view(found: pd.DataFrame) -> View:
    return test_frame.lengths(found[["word", "length"]])


STUDY = study_kind(**test_frame.WORDS | {"table": lengths, "views": {"lengths": view}})
QUIET = silent()


class Model:
    """Searches a DUT that forwards 1 Mpps, half of it at N = 100."""

    facts = SearchFacts

    def enter_block(self, trials: Sequence[Trial]) -> None: ...

    def measure(self, trial: Trial, raw: Path, facts: SearchFacts) -> None:
        capacity = 1e6 / (1 + bool(trial.point.program.accesses))
        facts.search = replace(search_point(dut(hard(capacity)), QUICK, LINE).short, generator_pps=LINE)

    def leave_block(self) -> None: ...


def traffic(parent: Path) -> Run[Any]:
    unpacked(RECORDED, parent)
    return open_run(parent / "tiny")


def searched(parent: Path) -> Run[Any]:
    files = {SEARCHED: SearchRequest(QUICK).to_json()}
    directory = create_run(PLAN, parent, lab="netns", arrangement="split", files=files)
    session = Model()
    run_trials(directory, run_trials_of(directory), InTurn(lambda _: session), QUIET)
    return open_run(directory.path)


def words(parent: Path) -> Run[Any]:
    run = STUDY.start(Words(words=("a", "bb")), parent)
    run.measure()
    return open_run(run.directory.path)


@pytest.fixture
def word_study(monkeypatch: pytest.MonkeyPatch) -> None:
    """The study of words is one of the studies."""
    monkeypatch.setattr(kinds, "STUDIES", (STUDY.name,))
    monkeypatch.setitem(kinds.MODULES, STUDY.name, f"{__name__}:STUDY")


@pytest.fixture(params=[traffic, searched, words])
def run(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word_study: None) -> Run[Any]:
    monkeypatch.setenv("XDPLAB_CACHE", str(tmp_path / "cache"))
    made: Run[Any] = request.param(tmp_path / "results")
    return made


def spoken(*argv: str) -> Result:
    return CliRunner().invoke(cli, list(argv), catch_exceptions=False)


def test_a_plan_extends_no_run_of_another_kind(run: Run[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A search took the plan's trials, measured its own as such, and had rows without a result."""
    before = run.directory.journal.path.read_bytes()
    monkeypatch.setattr("xdplab.studies.traffic.turns.lab_for", lambda *_: pytest.fail("the lab was brought up"))
    if run.kind.name != "traffic":
        with pytest.raises(ResultsError, match=f"--extend: .* is a run of kind {run.kind.name}"):
            CliRunner().invoke(
                cli,
                ["run", "smoke", "--extend", str(run.directory.path)],
                catch_exceptions=False,
                standalone_mode=False,
            )
    assert run.directory.journal.path.read_bytes() == before


def test_a_column_that_is_not_there_is_said_with_those_that_are(run: Run[Any]) -> None:
    with pytest.raises(PlanError, match=r"--metric foo: no column of numbers in .* \(there are "):
        run.compare(run, "foo")


def test_the_notebook_opens_each(run: Run[Any]) -> None:
    held = xl.open(run.directory.path)
    assert len(held.trials) > 0
    assert held.watch() is held
    assert held.figure() is not None
    assert len(held.findings().columns) == 6
    assert len(xl.compare(held, held).table) > 0
    with pytest.raises(FigureError):
        held.figure("no such figure")


def test_a_notebooks_figure_has_the_caption_that_the_command_line_writes(run: Run[Any], tmp_path: Path) -> None:
    name = run.figure_names[0]
    (drawn,) = run.draw_figures([name], out=tmp_path / "drawn", formats=("svg",))
    shown: Any = xl.open(run.directory.path).figure(name)
    written = {file.suffix: file.read_text() for file in drawn.files[0].parent.glob("*.t*x*")}
    assert written == {".txt": f"{shown.caption}\n", ".tex": f"{shown.tex}\n"}
    assert shown.caption


@pytest.mark.parametrize("value", ["compiler", "mode"])
def test_what_only_figures_of_traffic_show_is_said_before_its_value_is_read(tmp_path: Path, value: str) -> None:
    with pytest.raises(FigureError, match="hue is chosen of figures of XDP traffic"):
        searched(tmp_path).draw_figures(hue=value)


def test_two_kinds_are_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDPLAB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(ResultsError, match="is a run of kind search"):
        searched(tmp_path / "a").compare(traffic(tmp_path / "b"))


def test_a_search_says_what_it_found(tmp_path: Path) -> None:
    run = searched(tmp_path)
    rows = run.rows()
    assert list(rows.groupby("accesses")["pdr_pps"].median().round(-4)) == pytest.approx([1e6, 5e5], rel=0.1)
    assert list(run.tables()) == ["searches"]
    kept = pdr_files(run)["pdr.json"]["pdr_pps"]
    assert sorted(kept) == sorted(set(rows["pdr_key"]))


def test_a_search_that_was_not_finished_owes_trials_and_says_so(tmp_path: Path) -> None:
    files = {SEARCHED: SearchRequest(QUICK).to_json()}
    directory = create_run(PLAN, tmp_path, lab="netns", arrangement="split", files=files)
    run = open_run(directory.path)
    assert len(run.state.owed) == 4
    assert [finding.rule for finding in run.findings()] == ["owed"]
    state = run.state
    state.add(attempt_of(state.owed[0], took_s=50.0))
    assert state.eta_s == 150.0  # a plan's time of a trial is not that of a search: 2 s were shown


@pytest.mark.parametrize("verb", [["show"], ["figures", "--why"], ["runs"]])
def test_each_list_and_result_of_a_run_that_was_cut_short_says_so(tmp_path: Path, verb: Sequence[str]) -> None:
    run = searched(tmp_path)
    path = str(run.directory.path if verb != ["runs"] else tmp_path)
    assert "interrupted" not in spoken(*verb, path).output
    run.directory.journal.append("planned", trials=["another"], blocks=[0])
    run.directory.journal.append("ended", how="interrupted")
    assert "interrupted; 5 trials" in " ".join(spoken(*verb, path).output.split())


def test_a_run_that_is_no_search_gives_no_pdr(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="is not a search"):
        pdr_files(traffic(tmp_path))


def test_a_study_is_not_shared_by_a_scheduler(tmp_path: Path, word_study: None) -> None:
    with pytest.raises(LabError, match="a study measures on this machine and in its guests"):
        words(tmp_path).measure(QUIET, Where(labs=("a", "b"), scheduler="tls://x:1"))


def test_a_studys_plan_is_measured_by_run(tmp_path: Path, word_study: None) -> None:
    (tmp_path / "words.yaml").write_text(f"study: {STUDY.name}\nwords: [one, three]\nrepetitions: 1\n")
    done = spoken("run", str(tmp_path / "words.yaml"), "--out", str(tmp_path / "out"))
    assert done.exit_code == 0
    (path,) = (tmp_path / "out").iterdir()
    assert sorted(open_run(path).rows()["word"]) == ["one", "three"]
    (tmp_path / "wrong.yaml").write_text(f"study: {STUDY.name}\nwrds: [one]\n")
    with pytest.raises(PlanError, match=r"wrds: no field of study \w+ \(there are .*words"):
        spoken("run", str(tmp_path / "wrong.yaml"))


def test_a_run_of_an_unknown_study_is_refused(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "t", run_id="ab12", plan_yaml="study: dreams\n")
    with pytest.raises(ResultsError, match="kind 'dreams'"):
        open_run(run.path)
