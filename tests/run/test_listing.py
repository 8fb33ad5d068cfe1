"""Runs are found again by a list, a note and the word `latest`."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

import xdplab as xl
from xdplab.cli import cli
from xdplab.errors import PlanError, ResultsError
from xdplab.plan import parse_plan
from xdplab.run.listing import known_runs, run_folders, run_named
from xdplab.studies.traffic.run_files import create_run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three runs, begun one after the other, of which the first was written to last; and folders that are not runs."""
    plan = parse_plan({"name": "p", "blocks": [{"points": {"accesses": 0}}]})
    made = [
        create_run(plan.model_copy(update={"name": name}), tmp_path / "results", lab="netns", arrangement="shared")
        for name in ("one", "two", "three")
    ]
    os.utime(made[0].journal.path, (3e9, 3e9))
    (tmp_path / "results" / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "results"


def test_the_run_that_was_begun_last_comes_first(folder: Path) -> None:
    assert [run.run.rpartition("-")[2] for run in known_runs(folder)] == ["three", "two", "one"]
    assert [run.trials for run in known_runs(folder)] == [3, 3, 3]
    assert list(xl.runs()["run"]) == [run.run for run in known_runs(folder)]


def test_latest_is_a_run_wherever_a_run_is_wanted(folder: Path) -> None:
    assert run_named(Path("latest")).name.endswith("-three")
    assert xl.open("latest").path.name.endswith("-three")
    shown = CliRunner().invoke(cli, ["status", "latest", "--json"])
    assert json.loads(shown.stdout)["run"].endswith("-three")
    assert str(run_named(Path("latest"))) in shown.stderr, "which run that is, is told, and not in the answer"
    Path("latest").mkdir()
    assert run_named(Path("latest")) == Path("latest"), "a folder of that name is what is meant"


@pytest.mark.root
def test_another_users_run_is_never_the_latest(folder: Path) -> None:
    os.chown(run_named(Path("latest")) / "journal.jsonl", 54321, 54321)
    assert run_named(Path("latest")).name.endswith("-two")
    for run in run_folders(folder):
        os.chown(run / "journal.jsonl", 54321, 54321)
    with pytest.raises(ResultsError):
        run_named(Path("latest"))


def test_a_note_stays_with_its_run(folder: Path) -> None:
    CliRunner().invoke(cli, ["runs", "--note", "latest", "before the  patch"], catch_exceptions=False)
    assert known_runs(folder)[0].note == "before the patch"
    shown = CliRunner().invoke(cli, ["runs", "--json"])
    assert json.loads(shown.output)[0]["note"] == "before the patch"


def test_tags_are_given_found_and_taken_away(folder: Path) -> None:
    def runs(*words: str) -> str:
        return CliRunner().invoke(cli, ["runs", *words]).output

    two = next(path for path in folder.iterdir() if path.name.endswith("-two"))
    runs("--tag", "latest", "baseline")
    runs("--tag", "latest", "6.12")
    assert runs("--tag", str(two), "baseline").strip() == f"tags of {two}: baseline"
    tagged = json.loads(runs("--tagged", "baseline", "--json"))
    assert [(run["run"].rpartition("-")[2], run["tags"]) for run in tagged] == [
        ("three", ["baseline", "6.12"]),
        ("two", ["baseline"]),
    ]
    runs("--untag", "latest", "baseline")
    assert [run["tags"] for run in json.loads(runs("--json"))] == [["6.12"], ["baseline"], []]
    assert "holds no run with the tag base" in runs("--tagged", "base")
    runs("--untag", str(two), "baseline")
    runs("--note", str(two), "a note")
    runs("--note", str(two), "")
    assert not list(two.glob("*.txt")), "a run without tags and note has no file of them"
    runs("--tag", str(two), "baseline")
    assert list(xl.runs()["tags"].dropna()) == ["6.12", "baseline"]


def test_a_run_that_cannot_be_read_is_named_with_the_reason(folder: Path) -> None:
    (folder / "other" / "journal.jsonl").write_text("")
    found = {run.run: run for run in known_runs(folder)}
    assert found["other"].state == "unreadable"
    assert "not a run" in found["other"].progress


@pytest.mark.parametrize(
    ("options", "first"), [(("--format", "csv"), "run,"), (("--format", "markdown"), "| run"), (("--json",), "[")]
)
def test_the_list_is_for_programs_too(folder: Path, options: tuple[str, ...], first: str) -> None:
    assert isinstance(CliRunner().invoke(cli, ["runs", "--json", "--format", "csv"]).exception, PlanError)
    done = CliRunner().invoke(cli, ["runs", str(folder), *options])
    assert done.exit_code == 0, done.output
    assert done.output.startswith(first)
    assert all(run.run in done.output for run in known_runs(folder))
