"""Many runs become one table over time, which is made of the runs again at any time."""

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, patch

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from tests.analysis import synthetic
from tests.unpack import unpacked

import xdplab as xl
from xdplab.cli import cli
from xdplab.errors import PlanError, ResultsError, ResultsWarning
from xdplab.history import index
from xdplab.history.changes import changes, steps
from xdplab.history.shown import meaning, series
from xdplab.history.table import History, gathered, history
from xdplab.history.values import values
from xdplab.studies import bundle
from xdplab.studies.bundle import export
from xdplab.studies.kinds import open_run

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "results" / "sample"
RECORDED = ROOT / "tests" / "oracle" / "recorded"
RATE = "forwarded_pps"
DAY_S = 86_400.0
BEGUN = 1.795e9

Measured = Callable[..., Path]


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample with tables by today's rules: its copies need not derive them."""
    folder = shutil.copytree(SAMPLE, tmp_path_factory.mktemp("sample") / "sample")
    return open_run(folder).keep_tables()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDPLAB_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path, sample: Path) -> Path:
    (tmp_path / "runs").mkdir()
    (tmp_path / "sample").symlink_to(sample)
    return tmp_path / "runs"


def measured(folder: Path, name: str, *, day: float = 0, **changes: str) -> Path:
    """Put the sample into a folder as another run, begun on another day; ``changes`` are of words in its journal."""
    shutil.copytree(folder.parent / "sample", folder / name)
    journal = folder / name / "journal.jsonl"
    first, rest = journal.read_text().split("\n", 1)
    created = json.loads(first) | {"run_id": f"id-{name}", "time": BEGUN + day * DAY_S}
    for old, new in changes.items():
        assert old in rest
        rest = rest.replace(old, new)
    journal.write_text(json.dumps(created, separators=(",", ":")) + "\n" + rest)
    return folder / name


def test_a_row_has_the_value_and_all_around_it(folder: Path) -> None:
    run = open_run(measured(folder, "a"))
    rows = history(folder, metric=RATE, where={"mode": "native", "accesses": "400"}).rows
    points = run.tables()["points"].numbers
    (point,) = points[(points["mode"] == "native") & (points["accesses"] == 400)].to_dict("records")
    (row,) = rows.to_dict("records")
    assert [row["value"], row["low"], row["high"]] == pytest.approx(
        [point[f"mpps{e}"] * 1e6 for e in ("", "_low", "_high")]
    )
    assert (row["n"], row["run"], row["run_id"], row["path"]) == (3, "a", "id-a", str(folder / "a"))
    assert (row["kernel"], row["cpu"], row["microcode"], row["driver"]) == (
        "6.18.44-fc-v657",
        "AMD EPYC",
        "0x1000065",
        "veth",
    )
    assert (row["commit"], row["program_hash"]) == ("87e2331bbb3b-dirty", "0cb9fa1753b3c3af")
    assert row["window"] == "0.5 s after 0.2 s"
    assert set(json.loads(row["null_reasons"])) == {"firmware", "nic"}


@pytest.mark.parametrize("kind", ["search", "cost", "verifier", "loading", "execution", "jit", "programs", "labs"])
def test_every_kind_of_run_has_rows_and_a_null_has_its_reason(kind: str, folder: Path) -> None:
    unpacked(RECORDED / f"{kind}.tar.xz", folder)
    made = history(folder)
    rows, asked = (
        made.rows,
        ("value", "low", "high", "program_hash", "kernel", "cpu", "microcode", "driver", "commit", "window"),
    )
    assert not rows.duplicated(["metric", "point", "place"]).any()
    assert rows["n"].notna().all()
    for reasons, cells in zip(rows["null_reasons"], rows[list(asked)].to_dict("records"), strict=True):
        assert {name for name in cells if pd.isna(cells[name])} <= set(json.loads(reasons))


@pytest.mark.parametrize(
    ("verdict", "reasons", "why"),
    [
        (
            "valid",
            (None, None),
            "2 valid trials without forwarded_pps: `null_reasons`",
        ),  # in an emulator no time counts
        ("failed", (None, "the TG was deaf"), "no trial is valid: the TG was deaf"),
        ("failed", (None, None), "no trial is valid: no reason was recorded"),
    ],
)
def test_a_point_without_a_value_says_why(verdict: str, reasons: tuple[str | None, ...], why: str) -> None:
    trials = synthetic.run(vary={"accesses": [0]}, repetitions=2).assign(verdict=verdict, reason=list(reasons))
    trials = trials.assign(**dict.fromkeys(("forwarded_pps", "ns_per_packet", "access_ns"), np.nan))
    run: Any = SimpleNamespace(kind=SimpleNamespace(name="traffic"), metric="forwarded_pps", attempts=lambda _: trials)
    (cells,) = [row for row in values(run) if row["metric"] == "forwarded_pps"]
    assert str(cells["value"]).startswith(why)


def test_a_count_is_exact(folder: Path) -> None:
    unpacked(RECORDED / "cost.tar.xz", folder)
    (row,) = history(folder, metric="program_instructions").rows.to_dict("records")
    assert Fraction(row["exact"]) == row["value"] == row["low"] == row["high"]
    assert row["kernel"].startswith("6.12.")


def test_a_run_that_is_indexed_is_not_read_again_until_it_changes(folder: Path) -> None:
    for name in ("a", "b"):
        measured(folder, name)
    first = history(folder).rows
    with patch.object(bundle, "opened", wraps=bundle.opened) as opened:
        assert history(folder).rows.equals(first)
        assert opened.call_count == 0
        (folder / "a" / "journal.jsonl").open("a").write('{"event":"ended","time":1796000000.0,"how":"complete"}\n')
        history(folder)
        assert [call.args[0].name for call in opened.call_args_list] == ["a"]
        shutil.rmtree(folder / "b")
        assert set(history(folder).rows["run"]) == {"a"}
        with patch.object(index, "VERSION", "another"):
            history(folder)
        assert [call.args[0].name for call in opened.call_args_list] == ["a", "a"]


def test_a_damaged_index_is_made_anew(folder: Path, tmp_path: Path) -> None:
    measured(folder, "a")
    first = history(folder).rows
    (file,) = (tmp_path / "cache" / "history").iterdir()
    file.write_bytes(b"PAR1 no table")
    assert history(folder).rows.equals(first)


def test_reading_writes_nothing_into_the_runs(folder: Path) -> None:
    path = measured(folder, "a")
    before = {file: file.stat().st_mtime_ns for file in path.rglob("*")}
    history(folder)
    assert {file: file.stat().st_mtime_ns for file in path.rglob("*")} == before


def test_a_bundle_has_the_rows_of_its_run(folder: Path, tmp_path: Path) -> None:
    unpacked(RECORDED / "cost.tar.xz", tmp_path)
    export(open_run(tmp_path / "cost"), folder / "cost.zip")
    columns = ["metric", "point", "value", "exact", "run", "run_id", "begun", "kernel"]
    ours, theirs = (history(path).rows for path in (tmp_path / "cost", folder))
    assert ours[columns].equals(theirs[columns])
    assert set(theirs["path"]) == {str(folder / "cost.zip")}
    assert len([*(tmp_path / "cache" / "runs").iterdir()]) == 1, "nothing stays of the bundle's tables"


@pytest.mark.parametrize(("by", "order"), [("date", "cba"), ("kernel", "bac"), ("commit", "cab"), ("program", "cba")])
def test_the_rows_of_a_point_are_ordered(by: Any, order: str, folder: Path) -> None:
    kernel, commit = "6.18.44-fc-v657", "87e2331bbb3b-dirty"
    measured(folder, "a", day=3, **{kernel: "6.12.38", commit: "c0"})
    measured(folder, "b", day=2, **{kernel: "6.2.1", commit: "b0"})
    measured(folder, "c", day=1, **{kernel: "6.18", commit: "c0"})
    rows = history(folder, metric=RATE, where={"mode": "generic", "accesses": "0"}, by=by).rows
    assert "".join(rows["run"]) == order


def half(folder: Path) -> str:
    (measured(folder, "half") / "plan.yaml").unlink()
    return "plan.yaml"


def lost(folder: Path) -> str:
    (measured(folder, "lost") / "journal.jsonl").unlink()
    return "without its journal"


def cut_short(folder: Path) -> str:
    return cut(measured(folder, "short"))


def cut(run: Path) -> str:
    journal = run / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    finished = [n for n, line in enumerate(lines) if '"event":"finished"' in line]
    journal.write_text("".join(lines[: finished[4] + 1]))
    return "killed"


def foreign(folder: Path) -> str:
    (folder / "notes.txt").write_text("a note")
    return "notes.txt"


def no_bundle(folder: Path) -> str:
    (folder / "photos.zip").write_bytes(b"PK\x03\x04nothing")
    return "photos.zip"


def of_the_future(folder: Path) -> str:
    measured(folder, "ahead", day=(time.time() - BEGUN) / DAY_S + 400)
    return "ahead was begun at"


def a_copy(folder: Path) -> str:
    shutil.copytree(folder / "good", folder / "good-again")
    return "id-good"


def damaged(folder: Path) -> str:
    (measured(folder, "torn") / "journal.jsonl").write_text('{"event": "planned"}\n[]\n')
    return "torn"


@pytest.mark.parametrize("happens", [half, lost, cut_short, foreign, no_bundle, of_the_future, a_copy, damaged])
def test_what_is_odd_is_one_line_and_the_rest_is_shown(happens: Callable[[Path], str], folder: Path) -> None:
    measured(folder, "good")
    fact = happens(folder)
    for made in (gathered([folder]), gathered([folder])):  # the second time from the index
        (line,) = made.remarks
        assert fact in line
        assert "\n" not in line
        assert (made.rows["run"] == "good").sum() == 14


def test_of_a_run_and_its_damaged_copy_the_whole_one_is_shown(folder: Path) -> None:
    cut(shutil.copytree(measured(folder, "good"), folder / "a-damaged-copy"))
    made = gathered([folder])
    assert set(made.rows["run"]) == {"good"}
    assert any("a-damaged-copy has the identity of" in line for line in made.remarks)


def test_a_bisection_and_its_races_are_passed_over(folder: Path) -> None:
    measured(folder, "good")
    (folder / "bisection" / "races").mkdir(parents=True)
    measured(folder, "bisection/races/one")
    (folder / "bisection" / "bisect.json").write_text("{}")
    made = gathered([folder])
    assert (set(made.rows["run"]), made.remarks) == ({"good"}, ())


def test_a_metric_that_no_run_has_is_one_line_beside_others(folder: Path) -> None:
    measured(folder, "a")
    made = history(folder, metric=[RATE, "colour"])
    assert set(made.rows["metric"]) == {RATE}
    assert ["colour" in line for line in made.remarks] == [True]


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"metric": "colour"}, PlanError),
        ({"where": {"colour": "red"}}, PlanError),
        ({"where": {"mode": "offload"}}, PlanError),
    ],
)
def test_a_question_that_leaves_nothing_is_refused(asked: dict[str, Any], error: type, folder: Path) -> None:
    measured(folder, "a")
    with pytest.raises(error, match=r"there are|leave"):
        history(folder, **asked)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="does not exist"):
        history(tmp_path / "absent")


def test_the_notebook_has_the_same_table_and_warns(folder: Path) -> None:
    measured(folder, "a")
    foreign(folder)
    with pytest.warns(ResultsWarning, match=r"notes\.txt"):
        table = xl.history(folder, metric=RATE, where={"accesses": 0})
    assert table.attrs == {"changes": [], "machines": []}
    assert pd.DataFrame(table).equals(history(folder, metric=RATE, where={"accesses": "0"}).rows)


def test_the_command_prints_a_block_for_each_point_and_writes_a_table(folder: Path, tmp_path: Path) -> None:
    for day, name in enumerate("ab"):
        measured(folder, name, day=day)
    argv = ["history", str(folder), "--metric", RATE, "--where", "mode=native,load=max"]
    said = CliRunner().invoke(cli, [*argv, "--csv", str(tmp_path / "h.csv")])
    assert said.exit_code == 0, said.output
    assert len(pd.read_csv(tmp_path / "h.csv")) == 4
    printed = CliRunner().invoke(cli, argv).stdout
    assert printed.count(RATE) == 2
    assert printed.count("6.18.44-fc-v657") == 1


def counted(folder: Path, name: str, *, day: int) -> None:
    unpacked(RECORDED / "cost.tar.xz", folder)
    (folder / "cost").rename(folder / name)
    journal = folder / name / "journal.jsonl"
    first, rest = journal.read_text().split("\n", 1)
    created = json.loads(first) | {"run_id": f"id-{name}", "time": BEGUN + day * DAY_S}
    journal.write_text(json.dumps(created, separators=(",", ":")) + "\n" + rest)


def test_any_difference_of_an_exact_count_is_a_change(folder: Path) -> None:
    for day, name in enumerate("abc"):
        counted(folder, name, day=day)
    rows = history(folder, metric="instructions").rows
    assert changes(rows).changed == []
    new = rows["run"] == "c"
    rows.loc[new, ["exact", "value", "kernel"]] = ["901/2", 450.5, "6.12.118"]
    (change,) = changes(rows).changed
    assert (change.before, change.run, change.new - change.old, change.low) == ("b", "c", 0.5, None)
    assert change.otherwise == ("kernel 6.12.117+deb12-amd64 → 6.12.118",)
    assert change.text.endswith(f"({change.new - change.old:+,.10g}) from b to c; {change.otherwise[0]}")
    rows.loc[~new, ["exact", "value"]] = ["0", 0.0]
    (change,) = changes(rows).changed
    assert (change.new, change.share) == (450.5, None), "0 has no share"


def test_packets_of_one_name_in_a_run_are_no_history_of_each_other(folder: Path) -> None:
    counted(folder, "a", day=0)
    run = open_run(folder / "a")
    (point,) = run.plan.points
    again = replace(point, object=f"{point.object}-of-another-folder")
    rows = pd.concat([run.rows(), run.rows().assign(trial_id=f"{again.point_id}-r1")])
    of_both = Mock(kind=run.kind, plan=Mock(points=[point, again]), rows=lambda: rows)
    names = [row["point"] for row in values(of_both) if row["metric"] == "instructions"]
    assert names == [names[0], f"{names[0]}, 2"]


def test_a_count_that_holds_to_a_range_is_not_compared(folder: Path) -> None:
    rows = over_time(np.log([450.0, 452.0, 451.0]), exact=["450", None, "451"])
    (change,) = changes(rows).changed
    assert (change.before, change.run, change.old, change.new) == ("r0", "r2", 450, 451)


def over_time(logs: Any, **around: Any) -> pd.DataFrame:
    """Return the rows of runs of one point, a day apart, with what differs around them."""
    cells = {
        "metric": RATE, "point": "p", "place": "lab", "exact": None, "path": [f"r{n}" for n in range(len(logs))],
        "value": 1e6 * np.exp(logs), "begun": [f"2026-01-01T00:{n:02}:00+00:00" for n in range(len(logs))],
        "program_hash": "p", "kernel": "k", "commit": "c", "window": "w", "cpu": "x", "microcode": "1", "driver": "d",
        "firmware": "f",
    }  # fmt: skip
    return pd.DataFrame(cells).assign(run=lambda rows: rows["path"], **around)


def test_the_notebook_has_the_changes(folder: Path) -> None:
    made = over_time(np.where(np.arange(20) < 10, 0.0, -0.1))
    with patch("xdplab.history.table.history", return_value=History(made, ())):
        (change,) = xl.history(folder).attrs["changes"]
    assert (change["before"], change["run"], change["path"]) == ("r9", "r10", "r10")


def test_the_notebook_without_the_plug_in_says_so(folder: Path) -> None:
    with patch("xdplab.notebook.find_spec", return_value=None), pytest.raises(PlanError):
        xl.history(folder)


def noise(runs: int = 30) -> Any:
    return np.random.default_rng(7).normal(0, 0.02, runs)


def test_a_step_of_a_measured_value_has_its_place_its_interval_and_what_else_differs() -> None:
    logs = noise()
    logs[25:] -= 0.1
    (change,) = changes(over_time(logs, kernel=["6.12.38"] * 25 + ["6.12.41"] * 5)).changed
    assert (change.before, change.run, change.otherwise) == ("r24", "r25", ("kernel 6.12.38 → 6.12.41",))
    assert change.low is not None
    assert change.high is not None
    assert change.low < np.expm1(-0.1) < change.high < 0


def test_a_step_between_windows_of_two_lengths_says_so() -> None:
    """Throttling stops a sender for 50 ms of each second: a window of 1 s has up to 5 % less than one of 0.3 s, and
    the change said that all else was the same."""
    windows = ["0.3 s after 0.2 s"] * 10 + ["1 s after 0.2 s"] * 10
    rows = over_time(np.where(np.arange(20) < 10, 0.0, -0.05), window=windows)
    (change,) = changes(rows).changed
    assert change.otherwise == ("window 0.3 s after 0.2 s → 1 s after 0.2 s",)
    ((_, table, _),) = series(rows.assign(low=None, high=None, n=3), ())
    assert [row["window"] for row in table] == windows


def test_two_steps_are_two_changes() -> None:
    logs = noise(40)
    logs[15:30] += 0.2
    assert list(steps(logs)) == [(0, 15, 30), (15, 30, 40)]


@pytest.mark.parametrize("logs", [noise(), np.zeros(20), noise(5), np.where(np.arange(30) == 12, -0.5, noise())])
def test_noise_equal_values_few_runs_and_one_slow_run_are_no_change(logs: Any) -> None:
    assert list(steps(logs)) == []


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (over_time(noise()), "30 runs"),
        (over_time(np.zeros(3), exact="450"), "3 runs"),
        (over_time(np.zeros(2), exact=["450", "451"]), ""),
        (over_time(noise(5)), ""),
        (over_time(np.zeros(1), exact="450"), ""),
        (over_time(noise(), cpu=["one"] * 15 + ["other"] * 15), ""),
        (over_time(np.where(np.arange(30) < 15, 0.0, 0.3)), ""),
    ],
)
def test_a_series_is_the_same_where_counts_are_equal_or_its_interval_tells(rows: pd.DataFrame, told: str) -> None:
    changed = {(one.metric, one.point) for one in changes(rows).changed}
    line = meaning(rows, changed)
    assert (bool(line), told in line) == (bool(told), True)


@pytest.mark.parametrize("fact", ["cpu", "microcode", "driver", "firmware"])
def test_another_machine_begins_a_new_series_and_is_told(fact: str) -> None:
    logs = noise()
    logs[15:] -= 0.3
    made = changes(over_time(logs, **{fact: ["one"] * 15 + ["other"] * 15}))
    assert made.changed == []
    assert [f"{fact} one → other" in line for line in made.machines] == [True]


@pytest.mark.parametrize(
    ("values", "remarks"), [([1.0] * 8, []), ([1.0, 0.0, *[1.0] * 6], ["r1"]), ([-1.0] * 8, ["7 more"])]
)
def test_what_has_no_logarithm_is_told_in_one_line(values: list[float], remarks: list[str]) -> None:
    made = changes(over_time(np.zeros(len(values))).assign(value=values))
    assert made.changed == []
    assert [fact in line for fact, line in zip(remarks, made.remarks, strict=True)] == [True] * len(remarks)
