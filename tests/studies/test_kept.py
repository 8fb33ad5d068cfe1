"""What a run says is kept outside of it, and made again when the run or the code changes; a report takes the figures of
the run's folder on the same terms."""

import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

from xdplab.errors import ResultsWarning
from xdplab.run import listing
from xdplab.run.rundir import RunDirectory
from xdplab.studies import kept
from xdplab.studies.kind import Run
from xdplab.studies.kinds import open_run
from xdplab.studies.report import drawn

SAMPLE = Path(__file__).resolve().parents[2] / "results" / "sample"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    monkeypatch.setenv("XDPLAB_CACHE", str(tmp_path / "cache"))
    shutil.copytree(SAMPLE, tmp_path / "sample", ignore=shutil.ignore_patterns("figures", "tables", "audit.*"))
    return RunDirectory.open(tmp_path / "sample")


@pytest.fixture(scope="module")
def answer() -> kept.RunAnswer:
    return kept._answer(open_run(SAMPLE))


@pytest.fixture
def made(answer: kept.RunAnswer, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Count how often an answer is made; it is the same one each time, and takes no time."""
    times: list[Any] = []
    monkeypatch.setattr(kept, "_answer", lambda run: times.append(run) or answer)
    return times


def test_a_kept_answer_is_that_of_the_run_and_is_made_once(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    first = kept.answer_of(run)
    monkeypatch.setattr(kept, "_answer", None)
    assert kept.answer_of(run) == first
    of_run = open_run(run.path)
    assert (first.summary, list(first.tables)) == (of_run.summary(), list(of_run.tables()))
    assert len(first.tables["points"]["rows"]) == len(first.tables["points"]["numbers"]) == 7
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*")} == before, (
        "reading writes nothing into a run"
    )


@pytest.mark.parametrize("name", ["journal.jsonl", "plan.yaml", "trials.parquet"])
def test_an_answer_is_owed_when_a_file_changes_that_it_is_made_from(
    run: RunDirectory, made: list[Any], name: str
) -> None:
    kept.answer_of(run)
    shutil.copy(run.path / name, run.path / "copy")
    (run.path / "copy").replace(run.path / name)
    kept.answer_of(run)
    assert len(made) == 2


def test_an_answer_is_owed_when_the_code_changes(
    run: RunDirectory, made: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.answer_of(run)
    monkeypatch.setattr(kept, "newest", lambda folder: [folder, 0.0])
    kept.answer_of(run)
    assert len(made) == 2


@pytest.mark.parametrize("damage", [b"", b"{}", b"[]", b'{"made_from": [], "tables": 1'])
def test_a_damaged_answer_is_made_again(run: RunDirectory, made: list[Any], damage: bytes) -> None:
    first = kept.answer_of(run)
    (run.cache / kept.ANSWER).write_bytes(damage)
    assert kept.answer_of(run) == first
    assert len(made) == 2


@pytest.mark.parametrize(
    ("verdicts", "in_vain"),
    [
        ({"invalid": 2, "unsupported": 1}, True),
        ({"valid": 1, "invalid": 1}, False),
        ({"unsupported": 1}, False),
        ({}, False),
    ],
)
def test_a_run_without_a_valid_trial_is_listed_as_such(
    run: RunDirectory, verdicts: dict[str, int], in_vain: bool
) -> None:
    kept.keep(run, kept.ANSWER, {"verdicts": verdicts}, kept.made_from(run))
    (listed,) = kept.listed_runs(run.path.parent)
    assert ("no trial is valid" in listed.progress) is in_vain
    (run.path / "journal.jsonl").touch()
    (listed,) = kept.listed_runs(run.path.parent)
    assert "no trial is valid" not in listed.progress


def test_the_progress_of_a_run_is_kept_when_it_has_ended_until_its_journal_changes(
    run: RunDirectory, made: list[Run[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[RunDirectory] = []
    monkeypatch.setattr(
        listing, "read_progress", lambda run, read_it=listing.read_progress: read.append(run) or read_it(run)
    )
    progress = kept.progress_of(run)
    assert (kept.progress_of(run), progress.ended, len(read)) == (progress, "complete", 1)
    again = open_run(run.path).directory.journal
    kept.answer_of(RunDirectory.open(run.path))
    for journal in (again, made[0].directory.journal):
        assert vars(journal.checked) == vars(run.journal.checked), "no line is checked again"
    run.record("planned", trials=["more-r1"], blocks=[0])
    assert again.count("planned") == run.journal.count("planned") == 2
    assert open_run(run.path).directory.journal.checked.lines == 1, "only the first line was read"
    assert [kept.progress_of(run).owed for _ in range(2)] == [progress.owed + 1] * 2
    assert len(read) == 3, "a run that goes on is read each time"


@pytest.mark.parametrize("folder", [".", "counters"])
def test_raw_files_are_looked_at_once_and_again_where_one_came_or_went(run: RunDirectory, folder: str) -> None:
    assert kept.gone(run) == []
    raw = next(run.path.glob("raw/*/1"))
    place = f"{raw.parent.name}/1"
    file = next(path for path in (raw / folder).iterdir() if path.is_file() and path.stat().st_size)
    content = file.read_bytes()
    os.truncate(file, 0)
    with warnings.catch_warnings(action="error"):
        open_run(run.path).check_raw()
    with pytest.warns(ResultsWarning, match="raw files"):
        open_run(run.path).check_raw(anew=True)
    assert kept.gone(run) == [place]
    file.write_bytes(content)
    file.rename(raw / "elsewhere")
    assert kept.gone(run) == [place]
    (raw / "elsewhere").rename(file)
    assert kept.gone(run) == []
    shutil.rmtree(raw.parent)
    assert kept.gone(run) == [place]


def test_a_report_takes_the_figures_of_the_run_and_draws_others_alike(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two figures, and of one that does not apply to this run."""
    monkeypatch.setattr("xdplab.figures.album.CATALOGUE", ("throughput", "service_time", "lookup_cost"))
    opened = open_run(run.path)
    alike = drawn(opened)
    assert (len(alike[0]) >= 2, len(alike[1])) == (True, 1)
    opened.draw_figures()
    draw = Run.draw_figures
    monkeypatch.setattr(Run, "draw_figures", None)
    taken = drawn(opened)
    assert (taken[1], [one.svg for one in taken[0]]) == (alike[1], [one.svg for one in alike[0]])
    assert [one.caption for one in taken[0]] == [one.caption for one in alike[0]]
    draw(opened, ["throughput"], style="slides")
    assert kept.kept_figures(run) is None, "what was drawn otherwise is not kept for it"


@pytest.mark.parametrize("change", ["another style", "a file gone", "another table", "other code"])
def test_figures_are_not_current_after_a_change(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    opened = open_run(run.path)
    files = opened.draw_figures(["throughput"])
    kept.keep_figures(run, files, kept.made_from(run))
    assert kept.kept_figures(run) == files
    if change == "another style":
        opened.draw_figures(["throughput"], style="slides")
    elif change == "a file gone":
        (run.figures / "throughput.txt").unlink()
    elif change == "another table":
        shutil.copy(run.path / "trials.parquet", run.path / "copy")
        (run.path / "copy").replace(run.path / "trials.parquet")
    else:
        monkeypatch.setattr(kept, "newest", lambda folder: [folder, 0.0])
    assert kept.kept_figures(run) is None
