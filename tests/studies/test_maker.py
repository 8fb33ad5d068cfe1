"""A process beside makes a run's tables, answer and figures; what it cannot, its caller makes, who then can say why."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from xdplab.run.derived import is_owed
from xdplab.run.rundir import RunDirectory
from xdplab.studies import kept, maker
from xdplab.studies.kind import Run
from xdplab.studies.kinds import open_run

SAMPLE = Path(__file__).resolve().parents[2] / "results" / "sample"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run[Any]:
    monkeypatch.setenv("XDPLAB_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "a sample"
    shutil.copytree(SAMPLE, folder, ignore=shutil.ignore_patterns("*.parquet", "figures"))
    return open_run(folder)


def test_tables_answer_and_figures_are_made_beside(run: Run[Any]) -> None:
    with maker.beside(True):
        maker.prepare(run.directory.path)
        maker.await_loaded()
        maker.begin()
        assert maker.has_made()
        drawn = maker.drawn(run.directory)
    assert drawn is not None
    assert all(file.is_file() for one in drawn for file in one.files)
    assert [one.stem for one in drawn if one.files]
    assert not is_owed(run.directory, run.recipe)
    source = [str(run.directory.path), *kept.made_from(run.directory)]
    held = kept.read(run.directory, kept.ANSWER, source)
    assert held is not None
    assert held["verdicts"]["valid"] > 0


def test_tables_of_a_long_run_are_made_beside_while_it_goes_on(run: Run[Any]) -> None:
    owed = []
    with maker.beside():
        maker.prepare(run.directory.path)
        maker.await_loaded()
        for attempts in (maker.LONG - 1, maker.LONG):
            maker.keep_up(attempts)
            owed.append(is_owed(run.directory, run.recipe))
        maker.begin()
        assert maker.has_made()
    assert owed == [True, False]


def test_what_it_would_warn_of_it_leaves_to_the_caller(run: Run[Any]) -> None:
    next(run.directory.path.glob("raw/*/*/*")).unlink()
    with maker.beside():
        maker.prepare(run.directory.path)
        maker.await_loaded()
        maker.begin()
        assert not maker.has_made()
        assert maker.drawn(run.directory) is None


def test_where_nothing_was_begun_nothing_is_waited_for() -> None:
    with maker.beside():
        assert not maker.has_made()
        assert maker.drawn(RunDirectory(SAMPLE)) is None
    assert not maker.has_made()
