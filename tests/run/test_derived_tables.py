"""Tables are derived once; reading never writes into a run; rows that can no longer be derived stay unchanged."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from tests.attempts import attempt_of
from tests.cli.entry import ending_with_output

from xdplab.errors import ResultsWarning
from xdplab.plan import Plan
from xdplab.run import derived
from xdplab.run.gone import look_at_raw
from xdplab.run.rundir import RunDirectory, sizes
from xdplab.run.state import read_state
from xdplab.studies.kind import Reader, Run, first_table
from xdplab.studies.traffic import trials
from xdplab.studies.traffic.kind import TRAFFIC


def content(run: RunDirectory) -> dict[str, str]:
    """Return the content of every file of a run."""
    files = (path for path in run.path.rglob("*") if path.is_file())
    return {str(path.relative_to(run.path)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def xdplab(*argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.CompletedProcess(argv, *ending_with_output([*argv]))
    assert not check or done.returncode == 0, done.stderr
    return done


def test_reading_writes_nothing_into_a_run(tiny: RunDirectory) -> None:
    before = content(tiny)
    trials.settled_trials(tiny)
    TRAFFIC.run(tiny).samples()
    TRAFFIC.run(tiny).audit()
    TRAFFIC.run(tiny).summary()
    assert content(tiny) == before
    assert [path.name for path in tiny.cache.iterdir()] != [], "what was derived is kept for the next reader"


def test_an_open_run_reads_its_table_again_only_after_its_journal_changed(tiny: RunDirectory) -> None:
    reads: list[int] = []

    def counted(run: Run[Plan], read: Reader | None) -> pd.DataFrame:
        reads.append(1)
        return first_table(run, read)

    run = replace(TRAFFIC, attempts=counted).run(tiny)
    mine = run.rows()
    mine["verdict"] = "mine"
    assert set(run.rows()["verdict"]) == {"valid"}
    run.findings()
    run.summary()
    assert len(reads) == 2, "whole, and the columns of the results"
    tiny.journal.append("released", trials=[], why="enough is known")
    run.attempts()
    assert len(reads) == 3


def test_tables_are_derived_once(tiny: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    TRAFFIC.run(tiny).keep_tables()
    first = trials.trials_table(tiny)
    monkeypatch.setattr(trials, "attempt_rows", None)  # nothing is parsed again
    pd.testing.assert_frame_equal(trials.trials_table(tiny), first)
    TRAFFIC.run(tiny).keep_tables()
    assert derived.is_owed(tiny, trials.RECIPE) is False


@pytest.mark.parametrize(
    ("version", "edit", "parsed"), [(None, False, 1), ("rules of yesterday", False, 3), (None, True, 3)]
)
def test_an_attempt_is_parsed_once_by_the_same_rules(
    tiny: RunDirectory, monkeypatch: pytest.MonkeyPatch, version: str | None, edit: bool, parsed: int
) -> None:
    """As of a run that goes on; its tables equal those that are derived at once."""
    whole = trials.RECIPE.derive(tiny, derived.Before({}))
    lines = tiny.journal.path.read_bytes().splitlines(keepends=True)
    ends = [number for number, line in enumerate(lines) if b'"finished"' in line[:20]]
    tiny.journal.path.write_bytes(b"".join(lines[: ends[2]]))  # the last attempt has not ended
    earlier = replace(trials.RECIPE, version=version or trials.RECIPE.version)
    derived.derive(RunDirectory.open(tiny.path), earlier)
    if edit:  # the same number of attempts, of other trials
        lines[ends[0]], lines[ends[1]] = lines[ends[1]], lines[ends[0]]
    tiny.journal.path.write_bytes(b"".join(lines))
    calls: list[str] = []
    parse = trials.attempt_rows
    monkeypatch.setattr(trials, "attempt_rows", lambda *of, **more: calls.append("") or parse(*of, **more))
    run = RunDirectory.open(tiny.path)
    derived.derive(run, trials.RECIPE)
    assert len(calls) == parsed
    for name, table in whole.items():
        key = ["trial_id", "attempt"]
        again = pd.read_parquet(tiny.path / name)
        pd.testing.assert_frame_equal(
            *(one.sort_values(key, kind="stable", ignore_index=True) for one in (again, table))
        )


def test_a_new_version_of_the_rules_derives_anew_into_the_cache(
    tiny: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    TRAFFIC.run(tiny).keep_tables()
    before = content(tiny)
    newer = derived.Recipe(trials.RECIPE.files, "rules of tomorrow", trials.RECIPE.derive)
    monkeypatch.setattr(trials, "RECIPE", newer)
    assert derived.is_owed(tiny, newer)
    trials.trials_table(tiny)
    assert content(tiny) == before
    TRAFFIC.run(tiny).keep_tables()
    assert not derived.is_owed(tiny, newer)


@pytest.mark.parametrize("lost", ["raw/*/*/counters", "raw"])
def test_rows_whose_raw_files_are_gone_stay_valid(tiny: RunDirectory, lost: str) -> None:
    TRAFFIC.run(tiny).keep_tables()
    before, in_run = pd.read_parquet(tiny.path / "trials.parquet"), content(tiny)
    for folder in list(tiny.path.glob(lost)):
        shutil.rmtree(folder)
    again = derived.Recipe(trials.RECIPE.files, "other rules", trials.RECIPE.derive)
    with pytest.warns(ResultsWarning, match="raw files of 3 attempts are gone"):
        table = derived.table(tiny, again, trials.TRIALS)
    assert list(table["verdict"]) == ["valid"] * 3
    assert table["reason"].str.count(trials.GONE).tolist() == [1] * 3
    pd.testing.assert_series_equal(table["tx_packets"], before["tx_packets"])
    assert list(table["rules_version"]) == list(before["rules_version"]), "they were judged by those rules"
    kept = {name: of for name, of in content(tiny).items() if not name.startswith("raw/")}
    assert kept == {name: of for name, of in in_run.items() if not name.startswith("raw/")}


@pytest.mark.filterwarnings("ignore::xdplab.errors.ResultsWarning")
@pytest.mark.parametrize("lost", ["nothing", "raw/*-r2", "raw"])
def test_few_attempts_are_held_while_the_tables_of_all_are_derived(
    tiny: RunDirectory, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    TRAFFIC.run(tiny).keep_tables()
    before = derived.Before({name: pd.read_parquet(tiny.path / name) for name in trials.RECIPE.files})
    for folder in list(tiny.path.glob(lost)):
        shutil.rmtree(folder)
    whole = trials._derive(tiny, before)
    held: list[int] = []
    make = trials.trials_frame
    monkeypatch.setattr(trials, "trials_frame", lambda rows: held.append(len(rows)) or make(rows))
    monkeypatch.setattr(trials, "AT_ONCE", 2)
    again = trials._derive(tiny, before)
    assert held == [2, 1]
    for name, table in whole.items():
        pd.testing.assert_frame_equal(again[name], table)


def test_a_raw_file_that_is_cut_short_is_gone_too(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "t", run_id="ab12", plan_yaml="")
    with run.attempt("x-r1", 1) as raw:
        (raw / "counters").mkdir()
        (raw / "counters" / "dut.txt").write_text("12345")
        files = sizes(raw)
    run.record("planned", trials=["x-r1"], blocks=[0])
    run.record("finished", **vars(attempt_of("x-r1", files=files)))
    assert look_at_raw(run).gone == []
    os.truncate(run.raw_dir("x-r1", 1) / "counters" / "dut.txt", 2)
    assert look_at_raw(run).gone == ["x-r1/1"]


@pytest.mark.parametrize("missing", ["trials.parquet", "samples.parquet", "manifest.json"])
def test_what_a_kill_after_the_last_trial_left_undone_is_owed(tiny: RunDirectory, missing: str) -> None:
    TRAFFIC.run(tiny).keep_tables()
    (tiny.path / missing).unlink()
    lines = tiny.journal.path.read_bytes().splitlines(keepends=True)
    tiny.journal.path.write_bytes(b"".join(lines[:-1]))  # nor was the run's end recorded
    done = xdplab("resume", str(tiny.path))
    assert "nothing is missing; the " in done.stdout
    assert (tiny.path / missing).exists()
    assert read_state(tiny).ended == "complete"
    again = content(tiny)
    assert "nothing is missing\n" in xdplab("resume", str(tiny.path)).stdout
    assert content(tiny) == again


def test_resume_of_a_run_without_a_journal_line_says_so(tiny: RunDirectory) -> None:
    tiny.journal.path.write_bytes(b"")
    done = xdplab("resume", str(tiny.path), check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (7, 1)
    assert "nothing was measured" in done.stderr


@pytest.mark.root
def test_a_run_on_a_read_only_mount_is_drawn_compared_and_audited(tiny: RunDirectory) -> None:
    """As when a user reads another user's run."""
    run = str(tiny.path)
    verbs = {
        "tables": [run],
        "figures": [run, "--only", "throughput"],
        "compare": [run, run],
        "audit": [run],
        "resume": [run],
        "status": [run],
    }
    code = (
        "import sys\nfrom xdplab.cli import main\n"
        f"for verb, words in {verbs}.items():\n"
        "    sys.argv = ['xdplab', verb, *words]\n"
        "    try: main()\n"
        "    except SystemExit as end: assert end.code == (2 if verb == 'compare' else 0), (verb, end.code)"
    )
    before = content(tiny)
    mount = f"mount --bind {run} {run} && mount -o remount,bind,ro {run} && ! touch {run}/x 2>/dev/null"
    argv = ["unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh", sys.executable, "-c", code]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert content(tiny) == before
    assert (tiny.cache / "figures" / "throughput.svg").exists()
    assert (tiny.cache / "audit.md").exists()
    assert str(tiny.cache) in done.stdout, "the output says where they are"


def test_a_comparison_tells_what_differs_between_the_machines(tiny: RunDirectory, tmp_path: Path) -> None:
    def differing(other: Path) -> list[str]:
        done = xdplab("compare", str(tiny.path), str(other), "--json", check=False)
        return [row["what"] for row in json.loads(done.stdout)["environment"]]

    other = Path(shutil.copytree(tiny.path, tmp_path / "other"))
    assert differing(other) == []
    events = [json.loads(line) for line in (other / "journal.jsonl").read_text().splitlines()]
    for session in (event for event in events if event["event"] == "hosts"):
        session["state"]["dut"]["kernel"] = {"value": "9.9.9"}
    (other / "journal.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    assert differing(other) == ["dut kernel"]


def test_a_cache_that_cannot_be_written_costs_time_and_nothing_else(
    tiny: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDPLAB_CACHE", str(tmp_path / "file"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(trials.trials_table(tiny)["verdict"]) == ["valid"] * 3
