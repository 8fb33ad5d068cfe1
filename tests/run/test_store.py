"""After a kill at any instant, each attempt is complete or absent."""

import ctypes
import errno
import json
import os
import resource
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner
from tests.attempts import attempt_of

from xdplab.cli import cli
from xdplab.errors import ResultsError
from xdplab.hosts.local import LocalHost
from xdplab.run import disk, journal, state
from xdplab.run.disk import LOCK, disk_errors, open_file, replacing
from xdplab.run.frames import texts
from xdplab.run.rundir import RunDirectory
from xdplab.studies.traffic.columns import COLUMNS, trials_frame

SAMPLE = Path(__file__).resolve().parents[2] / "results" / "sample"


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path, "t", run_id="ab12", plan_yaml="name: t\n")


def test_names_do_not_collide_and_are_known_within_a_run_too(
    tmp_path: Path, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert RunDirectory.create(tmp_path, "t", run_id="cd34", plan_yaml="").path.name == run.path.name + "-2"
    monkeypatch.chdir(run.path)
    assert RunDirectory.open(Path()).name == run.path.name


def killed(code: str, *argv: str) -> None:
    """Run this code in another process, which ends with a kill."""
    head = (
        "import os, pathlib, sys\nfrom xdplab.run.journal import Journal\nfrom xdplab.run.rundir import RunDirectory\n"
    )
    done = subprocess.run([sys.executable, "-c", head + textwrap.dedent(code), *argv], check=False)
    assert done.returncode == -9


MAKING = """
    append = Journal.append
    def kill(self, event, **facts):
        if sys.argv[2] != "nothing":
            append(self, event, **facts)
        if sys.argv[2] in ("nothing", event):
            os.kill(os.getpid(), 9)
    Journal.append = kill
    RunDirectory.create(pathlib.Path(sys.argv[1]), "t", run_id="ab12", plan_yaml="name: t\\n",
                        fill=lambda run: run.record("planned", trials=["x-r1"], blocks=[0]))
"""


@pytest.mark.parametrize("after", ["nothing", "created", "planned"])
def test_a_run_that_was_killed_before_it_was_whole_is_none_and_in_no_ones_way(tmp_path: Path, after: str) -> None:
    """``after``: the line of its journal after which it was killed."""
    killed(MAKING, str(tmp_path), after)
    assert [p for p in tmp_path.iterdir() if not p.name.startswith(".")] == []
    run = RunDirectory.create(tmp_path, "t", run_id="cd34", plan_yaml="")
    assert list(tmp_path.iterdir()) == [run.path], "the remains of the kill are removed"
    assert not run.path.name.endswith("-2")


def test_a_run_that_is_being_made_is_not_swept_by_another(tmp_path: Path) -> None:
    def fill(_run: RunDirectory) -> None:
        RunDirectory.create(tmp_path, "other", run_id="cd34", plan_yaml="")

    run = RunDirectory.create(tmp_path, "t", run_id="ab12", plan_yaml="", fill=fill)
    assert run.run_id == "ab12"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_run_that_cannot_be_filled_leaves_nothing(tmp_path: Path) -> None:
    def fill(_run: RunDirectory) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(ResultsError, match="No space left"):
        RunDirectory.create(tmp_path, "t", run_id="ab12", plan_yaml="", fill=fill)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_of_that_name_is_used(tmp_path: Path, run: RunDirectory) -> None:
    """A kill before the journal begins leaves it."""
    shutil.rmtree(run.path)
    run.path.mkdir()
    assert RunDirectory.create(tmp_path, "t", run_id="cd34", plan_yaml="").path == run.path


@pytest.mark.parametrize("journal", [b"", b'{"event":"created","ti'])
def test_an_empty_journal_is_said(run: RunDirectory, journal: bytes) -> None:
    """A kill at the journal's first line leaves it."""
    run.journal.path.write_bytes(journal)
    with pytest.raises(ResultsError, match="killed before its plan was written") as told:
        RunDirectory.open(run.path)
    assert "remove it" in str(told.value)


@pytest.mark.parametrize("at_once", [journal.AT_ONCE, 5])
@pytest.mark.parametrize("cut", range(1, 20))
def test_a_torn_last_line_is_absent(run: RunDirectory, cut: int, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "AT_ONCE", at_once)
    run.journal.append("ended", how="x")
    with run.journal.path.open("r+b") as file:
        file.truncate(run.journal.path.stat().st_size - cut)
    with run.writer():
        run.journal.append("ended", how="y")
    assert [e.get("how") for e in run.journal.events()] == [None, "y"]


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (RuntimeError(), RuntimeError),
        *((OSError(number, os.strerror(number)), ResultsError) for number in (errno.ENOSPC, errno.EIO, errno.EDQUOT)),
    ],
)
def test_an_attempt_that_fails_is_absent_and_a_disks_failure_is_named(
    run: RunDirectory, error: Exception, shown: type[Exception]
) -> None:
    def failing() -> None:
        with run.attempt("t-r1", 1) as raw:
            (raw / "half").write_text("x")
            raise error

    with pytest.raises(shown, match=os.strerror(error.errno) if isinstance(error, OSError) else None):
        failing()
    assert list((run.path / "raw" / "t-r1").iterdir()) == []


def test_a_killed_attempt_is_swept_by_the_next_writer(run: RunDirectory) -> None:
    code = """
        with RunDirectory(pathlib.Path(sys.argv[1])).attempt("t-r1", 1) as raw:
            (raw / "half").write_text("x")
            os.kill(os.getpid(), 9)
    """
    killed(code, str(run.path))
    assert list((run.path / "raw").glob("*/.*")) != []
    with run.writer():
        assert list((run.path / "raw").glob("*/.*")) == []


HALF = ("trials.parquet.0a1b2c3d.partial", "figures/.throughput.svg.partial", "programs/ab/.x.o.0a1b2c3d.partial")


def test_half_written_files_are_swept_and_a_persons_own_hidden_files_stay(run: RunDirectory) -> None:
    half = [run.path / (name if "/" in name else f".{name}") for name in HALF]
    own = [run.path / ".ipynb_checkpoints" / "notes.ipynb", run.path / ".DS_Store", run.path / ".gitignore"]
    for path in (*half, *own):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    with run.writer():
        assert [p for p in half if p.exists()] == []
        assert all(p.exists() for p in own)


@pytest.mark.parametrize(
    ("error", "shown", "words"),
    [
        (
            shutil.Error([(at, at, f"[Errno 28] No space left on device: '{at}' -> 'b'") for at in "cd"]),
            ResultsError,
            r"programs cannot be written: No space left on device \(",
        ),
        (ConnectionResetError(errno.ECONNRESET, "reset by peer"), ConnectionResetError, "reset"),
    ],
)
def test_only_errors_of_the_disk_are_the_results(
    tmp_path: Path, error: Exception, shown: type[Exception], words: str
) -> None:
    with pytest.raises(shown, match=words), disk_errors(tmp_path / "programs"):
        raise error


def test_a_second_writer_is_refused(run: RunDirectory) -> None:
    with run.writer(), pytest.raises(ResultsError, match="another process"), RunDirectory(run.path).writer():
        pass


def test_room_for_the_next_lines_is_kept_behind_the_last(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[tuple[int, int]] = []
    monkeypatch.setattr(journal, "allocate", lambda file, start, length: kept.append((start, length)))
    run.journal.reserve()
    assert kept == [(run.journal.path.stat().st_size, journal.RESERVE)]


def test_a_full_disk_is_said_and_the_journal_stays_whole(run: RunDirectory) -> None:
    whole = run.journal.path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 20, limits[1]))  # as a full disk, it takes a part of a line
    try:
        with pytest.raises(ResultsError, match="File too large"):
            run.journal.append("finished")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert run.journal.path.read_bytes() == whole


def test_a_disk_that_fails_when_it_is_waited_for_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that the kernel accepted is lost, and only syncfs(2) says so."""
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: SimpleNamespace(syncfs=lambda folder: -1))
    monkeypatch.setattr(ctypes, "get_errno", lambda: errno.EIO)
    monkeypatch.setattr(disk, "_syncfs", disk._syncfs.__wrapped__)
    with pytest.raises(ResultsError, match="Input/output error"):
        disk.sync(tmp_path)


def test_a_run_directory_can_be_moved(tmp_path: Path, run: RunDirectory) -> None:
    run.write_json("manifest.json", {"kernel": "6.18"})
    moved = tmp_path / "elsewhere"
    run.path.rename(moved)
    again = RunDirectory.open(moved)
    assert again.run_id == "ab12"
    with pytest.raises(ResultsError, match="not a run directory"):
        RunDirectory.open(run.path)
    assert json.loads((moved / "manifest.json").read_text()) == {"kernel": "6.18"}
    assert str(tmp_path) not in "".join(p.read_text() for p in moved.rglob("*") if p.is_file())


def test_tables_keep_null_apart_from_zero(run: RunDirectory) -> None:
    table = trials_frame([{"trial_id": "a", "rx_packets": 0}, {"trial_id": "b", "rx_packets": None}])
    run.write_table("trials.parquet", table)
    back = pd.read_parquet(run.path / "trials.parquet")
    assert back["rx_packets"][0] == 0
    assert back["rx_packets"][1] is pd.NA
    assert list(back.columns) == [m.name for m in COLUMNS]
    whole = pa.table({"a": [1]})
    run.write_tables("one.parquet", whole.schema, [whole, whole])
    with pytest.raises(ZeroDivisionError):
        run.write_tables("one.parquet", whole.schema, (pa.table({"a": [2 // n]}) for n in (1, 0)))
    assert pd.read_parquet(run.path / "one.parquet")["a"].tolist() == [1, 1], "all of them replace it, or none"


def test_a_column_without_description_is_refused() -> None:
    with pytest.raises(KeyError, match="mystery"):
        trials_frame([{"mystery": 1}])


def test_a_column_of_texts_keeps_nulls_and_takes_no_more_memory_than_its_texts() -> None:
    """Reasons of nulls are long, and thousands of trials share them. Arrow's own builder took twice as much."""
    cells = ["{}", None, "é" * 5000, "{}", None]
    column = texts(cells)
    assert column.dtype == "string"
    assert [None if cell is pd.NA else cell for cell in column] == cells
    assert pd.Series(texts([None, None]), dtype="string").isna().all()
    before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(pool)
    try:
        kept = pa.array(texts(["a" * 9000, *["b" * 10000] * 999])).nbytes
    finally:
        pa.set_memory_pool(before)
    assert max(kept, pool.max_memory()) <= 1.01 * 10_000_000


def test_every_metric_is_described_once() -> None:
    names = [m.name for m in COLUMNS]
    assert len(names) == len(set(names))
    for metric in COLUMNS:
        assert metric.text, metric.name
        for suffix, unit in (("_ns", "ns"), ("_ms", "ms"), ("_pps", "1/s"), ("_bytes", "B"), ("_s", "s")):
            if metric.name.endswith(suffix) and "_per_" not in metric.name:  # cycles_per_ns is not a time
                assert metric.unit == unit, metric.name


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A folder outside, with a lock of its own, that nothing is written into."""
    folder = tmp_path / "victim"
    folder.mkdir()
    (folder / LOCK).write_text("held")
    yield folder
    assert [path.name for path in folder.iterdir()] == [LOCK]
    assert (folder / LOCK).read_text() == "held"


def test_who_asks_whether_a_folder_is_held_keeps_nothing_open(tmp_path: Path) -> None:
    with disk.locked(tmp_path):
        before = len(list(Path("/proc/self/fd").iterdir()))
        assert disk.is_locked(tmp_path)
        assert disk.holder(tmp_path) == os.getpid()
        assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert (disk.is_locked(tmp_path), (tmp_path / LOCK).exists()) == (False, False)
    assert disk.holder(tmp_path) is None


def test_figures_do_not_follow_a_link_out_of_the_run(tmp_path: Path, victim: Path) -> None:
    shutil.copytree(SAMPLE, tmp_path / "run")
    (tmp_path / "run" / "figures").symlink_to(victim)
    done = CliRunner().invoke(cli, ["figures", str(tmp_path / "run"), "--only", "throughput"])
    assert isinstance(done.exception, ResultsError)
    assert "symbolic link" in str(done.exception)


def test_a_folder_that_is_not_finished_is_not_swept_through_a_link(tmp_path: Path, victim: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / ".x.new").symlink_to(victim)
    RunDirectory.create(tmp_path / "results", "mine", run_id="r", plan_yaml="")


@pytest.mark.root
def test_only_ones_own_links_lead_to_where_a_file_is_written(tmp_path: Path, victim: Path) -> None:
    (tmp_path / "disk").mkdir()
    for name, to in (("own", Path("disk")), ("far", tmp_path / "disk")):
        (tmp_path / name).symlink_to(to)
        with replacing(tmp_path / name / "new" / "file") as scratch:
            scratch.write_text(name)
        assert (tmp_path / "disk" / "new" / "file").read_text() == name
    (tmp_path / "theirs").symlink_to(victim)
    os.chown(tmp_path / "theirs", 54321, 54321, follow_symlinks=False)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "journal.jsonl").touch()
    (tmp_path / "run" / "mine").symlink_to(victim)  # there may be none below a run, though it is one's own
    for link in ("theirs", "run/mine"):
        with pytest.raises(ResultsError, match="symbolic link"), replacing(tmp_path / link / "file"):
            pass


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/proc/self/fd/1")])
def test_only_a_file_is_replaced(tmp_path: Path, make: Callable[[Path], object]) -> None:
    """As root a table that was written to /dev/null or /dev/stdout took its place, for all programs."""
    make(tmp_path / "null")
    before = (tmp_path / "null").lstat()
    with pytest.raises(ResultsError, match="null cannot be written"):
        disk.write_whole(tmp_path / "null", b"a table")
    assert (tmp_path / "null").lstat().st_mode == before.st_mode
    assert [path.name for path in tmp_path.iterdir()] == ["null"]


@pytest.mark.parametrize("kept", [True, False])
def test_a_link_to_a_file_is_replaced_and_what_it_leads_to_stays(tmp_path: Path, kept: bool) -> None:
    """git-annex and DVC keep results as links; one whose content is elsewhere dangles."""
    if kept:
        (tmp_path / "kept").write_text("old")
    (tmp_path / "table").symlink_to("kept")
    disk.write_whole(tmp_path / "table", b"new")
    assert ((tmp_path / "table").is_symlink(), (tmp_path / "table").read_text()) == (False, "new")
    assert [path.read_text() for path in tmp_path.glob("kept")] == ["old"] * kept


def test_a_run_that_cannot_be_told_from_another_folder_is_not_taken_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links below a run are not followed: a sandbox that refuses the question must not make it another folder."""
    look = os.stat

    def refuse(path: Any, **how: Any) -> os.stat_result:
        if path == "journal.jsonl":
            raise PermissionError(errno.EPERM, "Operation not permitted")
        return look(path, **how)

    monkeypatch.setattr(os, "stat", refuse)
    with pytest.raises(PermissionError), disk.opened(tmp_path):
        pass


def test_a_folder_that_another_process_makes_meanwhile_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = os.mkdir
    monkeypatch.setattr(os, "mkdir", lambda *given, **how: [make(*given, **how), make(*given, **how)])
    with disk.opened(tmp_path / "new", make=True):
        assert (tmp_path / "new").is_dir()


def replace_it(path: Path) -> None:
    with replacing(path) as file:
        file.write_bytes(b"whole")


@pytest.mark.parametrize(
    ("write", "then"), [(replace_it, []), (lambda path: LocalHost().put(b"whole", str(path)), [True])]
)
def test_a_file_is_whole_on_the_disk_before_it_has_its_name(
    write: Callable[[Path], None], then: list[bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[int, bool]] = []
    file = tmp_path / "file"
    monkeypatch.setattr(os, "fsync", lambda number: synced.append((os.fstat(number).st_size, file.exists())))
    write(file)
    assert synced[0] == (5, False)
    assert [named for _, named in synced[1:]] == then, "a host's folder, which has the name, follows"


def test_no_file_of_a_run_is_opened_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    (tmp_path / "run.log").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic"), open_file(tmp_path / "run.log", "w"):
        pass
    assert (tmp_path / "precious").read_text() == "x"


def test_a_run_with_links_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The raw folder of a stranger's run may be a link: a removal would follow it."""
    victim = tmp_path / "victim" / "1"
    victim.mkdir(parents=True)
    (victim / "precious").write_text("x")
    run = RunDirectory.create(tmp_path, "foreign", run_id="r", plan_yaml="")
    (run.path / "raw").mkdir(exist_ok=True)
    (run.path / "raw" / "t").symlink_to(tmp_path / "victim")
    with pytest.raises(ResultsError, match="is a symbolic link"), run.writer():
        pass
    with pytest.raises(ResultsError, match="leads out of the run"), run.attempt("t", 1):
        pass
    for trial in ("..", "../../victim", "a/b"):
        with pytest.raises(ResultsError, match="cannot be the name of a folder"), run.attempt(trial, 1):
            pass
    assert run.outputs == run.path
    monkeypatch.setattr(os, "geteuid", lambda: 54321)  # another user's run: what the link names would be read
    with pytest.raises(ResultsError, match="is a symbolic link"):
        _ = run.outputs
    assert (victim / "precious").read_text() == "x"


NO_STATES = (
    '{"lab":"a","xdplab":{},"dut":{}}',
    '{"lab":"a","xdplab":{},"dut":{},"tg":7}',
    '{"lab":"a","xdplab":7,"dut":{},"tg":{}}',
    '{"lab":7,"xdplab":{},"dut":{},"tg":{}}',
)


@pytest.mark.parametrize(
    "line",
    [
        *("[]", "null", "1", "{}", '{"kind": "x"}', '{"event":"a","ti', "[" * 5000),
        *(f'{{"event":"ended","how":"complete","time":{time}}}' for time in ("1e999", "true", '"1"')),
        *(f'{{"event":"hosts","time":1,"when":"before","session":0,"state":{state}}}' for state in NO_STATES),
    ],
)
def test_a_line_of_a_journal_that_is_no_event_is_named(run: RunDirectory, line: str) -> None:
    with run.journal.path.open("a") as file:
        file.write(line + "\n")
    run.journal.append("ended", how="complete")
    with pytest.raises(ResultsError, match="line 2"):
        list(run.journal.events())


DAMAGED = {"files": ['{"../a":1}', '{"a":-1}', '{"a":true}', '{"a":1', "7"], "facts": ['{"a":}', '{"lab":"b"', "7"]}


@pytest.mark.parametrize(("field", "content"), [(field, content) for field in DAMAGED for content in DAMAGED[field]])
def test_attempts_are_checked_where_they_are_read_and_what_is_not_of_trials_is_found_alone(
    run: RunDirectory, field: str, content: str
) -> None:
    run.journal.append("planned", trials=["a"], blocks=[0])
    run.journal.append("started", trial_id="a", attempt=1)
    run.journal.append("finished", **vars(attempt_of("a", facts={"lab": "b", "share": float("nan")})))
    run.journal.append("released", trials=["a"], why="enough is known")
    (least,), (quick,), (whole,) = (
        list(run.journal.events("finished", without=names)) for names in (["facts", "files"], ["facts"], [])
    )
    assert quick == whole | {"facts": {}}
    assert least.items() <= whole.items()
    run.journal.append("finished", **vars(attempt_of("a")), files_of_others={})
    assert len(list(run.journal.events("finished", without=["facts"]))) == 2
    kinds = ("created", "planned", "started", "released")
    assert list(run.journal.events(*kinds)) == [event for event in run.journal.events() if event["event"] in kinds]
    line, before = (json.dumps(part, separators=(",", ":")) for part in (whole, whole[field]))
    with run.journal.path.open("a") as file:
        file.write(line.replace(before, content) + "\n")
    for _ in "checked", "again":
        with pytest.raises(ResultsError, match="line 7 is not an event: "):
            list(run.journal.events(without=["facts"] if field == "files" else []))
    with pytest.raises(ResultsError, match="line 7"), run.writer():
        pytest.fail("nothing is measured into a damaged run")


@pytest.mark.parametrize("replaced", [True, False])
def test_another_journal_in_the_place_of_one_that_was_read_is_read_anew(run: RunDirectory, replaced: bool) -> None:
    run.journal.append("planned", trials=["a"], blocks=[0])
    assert [event["event"] for event in run.journal.events()] == ["created", "planned"]
    other = run.journal.path.read_text().replace('"ab12"', '"cd3456"').replace('["a"],"blocks":[0]', '[],"blocks":[]')
    if replaced:
        run.journal.path.unlink()
    run.journal.path.write_text(other)
    run.journal.append("ended", how="complete")
    assert list(run.journal.events("created", "ended")) == list(
        journal.Journal(run.journal.path).events("created", "ended")
    )
    assert list(run.journal.events()) == list(journal.Journal(run.journal.path).events())
    assert (run.journal.count("planned"), run.journal.checked.planned) == (1, set())


def test_status_tells_a_run_under_way_from_a_killed_and_from_a_complete_one(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All three once had the state "under way, or killed"."""

    def standing(run: RunDirectory) -> str:
        done = CliRunner().invoke(cli, ["status", str(run.path), "--json"], catch_exceptions=False)
        return str(json.loads(done.output)["state"])

    def finished(run: RunDirectory, trial_id: str) -> None:
        run.journal.append("finished", **vars(attempt_of(trial_id)))

    run.record("planned", trials=["a-r1", "b-r1"], blocks=[0, 0])
    assert standing(run) == "beginning"
    with monkeypatch.context() as later:
        later.setattr(state, "START_S", 0.0)
        assert standing(run) == "killed"
    with run.writer():
        finished(run, "a-r1")
        assert standing(run) == "under way"
    assert standing(run) == "killed"
    finished(run, "b-r1")
    assert standing(run) == "complete"
    run.journal.append("ended", how="complete")
    assert standing(run) == "complete"
    with run.writer():
        assert standing(run) == "under way"
