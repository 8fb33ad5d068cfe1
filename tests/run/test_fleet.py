"""One run on several labs: each trial is measured once, whichever lab dies, and there is one journal."""

import http.client
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest
from distributed.exceptions import WorkerStartTimeoutError
from tests.attempts import attempt_of

from xdplab.errors import HostLostError, LabError, ResultsError
from xdplab.plan import Trial, parse_plan, points_of, schedule
from xdplab.run import fleet_dask
from xdplab.run.engine import Policy, run_trials
from xdplab.run.fleet import NOTHING, BlockResult, OnFleet, pack, unpack
from xdplab.run.fleet_dask import connected
from xdplab.run.progress import silent
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import Attempt, RunState, attempts_of, read_state, record_planned
from xdplab.run.waiting import warn

PLAN = parse_plan({"name": "t", "repetitions": 4, "blocks": [{"points": {"queues": [1, 2], "accesses": [0, 1]}}]})
TRIALS = schedule(PLAN, points_of(PLAN, "shared"))


class Labs:
    """A fleet whose labs answer in turn. ``dies``: after how many trials a lab is lost; ``fails``: its error."""

    def __init__(self, labs: Sequence[str], tmp: Path, *, dies: dict[str, int] | None = None, fails: str = "") -> None:
        self.labs, self.tmp, self.dies, self.fails = tuple(labs), tmp, dies or {}, fails
        self.under_way: list[tuple[str, Sequence[Trial]]] = []
        self.most_at_once = 0
        self.asked: list[tuple[str, tuple[int, int]]] = []

    def give(self, lab: str, block: Sequence[Trial]) -> None:
        assert lab not in dict(self.under_way), "one block at a time"
        assert len({(t.repetition, t.block) for t in block}) == 1, "a block stays together"
        self.under_way.append((lab, block))
        self.asked.append((lab, (block[0].repetition, block[0].block)))
        self.most_at_once = max(self.most_at_once, len(self.under_way))

    def take(self) -> tuple[str, BlockResult]:
        lab, block = self.under_way.pop(0)
        left = self.dies.get(lab, len(TRIALS))
        self.dies[lab] = left - len(block)
        done = tuple((self.attempt(trial, lab), self.raw(trial)) for trial in block[:left])
        return lab, BlockResult(done, NOTHING, None if left >= len(block) else "it went down")

    def attempt(self, trial: Trial, lab: str) -> Attempt:
        failed = trial.trial_id == self.fails
        self.fails = "" if failed else self.fails
        return attempt_of(trial.trial_id, status="failed" if failed else "measured", facts={"lab": lab})

    def raw(self, trial: Trial) -> bytes:
        folder = self.tmp / "raw" / trial.trial_id
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "out").write_text(trial.trial_id)
        return pack(folder)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    made = RunDirectory.create(tmp_path, "t", run_id="ab12", plan_yaml="")
    record_planned(made, TRIALS)
    return made


def go(run: RunDirectory, labs: Labs, retries: int = 1) -> RunState:
    return run_trials(run, TRIALS, OnFleet(labs), silent(), Policy(retries))


def test_every_lab_works_and_every_trial_is_measured_once(run: RunDirectory, tmp_path: Path) -> None:
    labs = Labs(["a", "b", "c"], tmp_path)
    state = go(run, labs)
    assert sorted(a.trial_id for a in state.attempts) == sorted(t.trial_id for t in TRIALS)
    assert [block for _, block in labs.asked] == list(dict.fromkeys((t.repetition, t.block) for t in TRIALS))
    assert {a.facts["lab"] for a in attempts_of(run)} == {"a", "b", "c"}
    assert labs.most_at_once == 3
    assert read_state(run).attempts == state.attempts
    for trial in TRIALS:
        assert (run.raw_dir(trial.trial_id, 1) / "out").read_text() == trial.trial_id


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_lab_that_dies_gives_its_block_back_and_keeps_what_it_measured(
    run: RunDirectory, tmp_path: Path, after: int
) -> None:
    labs = Labs(["a", "b", "c"], tmp_path, dies={"b": after})
    state = go(run, labs)
    assert sorted(a.trial_id for a in state.attempts) == sorted(t.trial_id for t in TRIALS)
    assert sum(a.facts["lab"] == "b" for a in attempts_of(run)) == after
    (lost,) = [e for e in run.journal.events() if e["event"] == "lab_lost"]
    assert (lost["lab"], lost["reason"]) == ("b", "it went down")


def test_when_the_last_lab_is_gone_the_run_ends_and_can_be_resumed(run: RunDirectory, tmp_path: Path) -> None:
    with pytest.raises(HostLostError, match="every lab of this run is gone"):
        go(run, Labs(["a", "b"], tmp_path, dies={"a": 2, "b": 3}))
    assert len(read_state(run).attempts) == 5
    assert read_state(run).ended == "interrupted"
    state = go(run, Labs(["c"], tmp_path))
    assert sorted(a.trial_id for a in state.attempts) == sorted(t.trial_id for t in TRIALS)


def test_a_trial_that_failed_is_tried_again_under_another_number(run: RunDirectory, tmp_path: Path) -> None:
    broken = TRIALS[3].trial_id
    state = go(run, Labs(["a", "b"], tmp_path, fails=broken))
    assert [(a.attempt, a.status) for a in state.attempts if a.trial_id == broken] == [(1, "failed"), (2, "measured")]


PAGES = ("", "info/main/workers.html", "health", "metrics", "json/counts.json", "info/logs.html")


def answer_of(port: int, page: str) -> int:
    """Return a port's answer to a request for one of Dask's pages; 0 if it uses TLS, and closes."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    with suppress(http.client.HTTPException, OSError), closing(connection):
        connection.request("GET", f"/{page}")
        return connection.getresponse().status
    return 0


def test_our_own_workers_listen_on_this_machine_only_and_show_no_local_user_a_page() -> None:
    with connected(["a"], None):
        family = [psutil.Process(), *psutil.Process().children(recursive=True)]
        places = {c.laddr for p in family for c in p.net_connections("inet") if c.status == psutil.CONN_LISTEN}
        answers = {answer_of(place.port, page) for place in places for page in PAGES}
    assert {place.ip for place in places} == {"127.0.0.1"}
    assert answers <= {0, 404}


def test_a_workers_warning_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    """It was Python's own, with the path and the text of a line of the code."""
    with connected(["a"], None) as client:
        fleet_dask.submit(client, "a", warn, "lab a: another lab measures").result()
    told = [line for line in capfd.readouterr().err.splitlines() if "another lab" in line]
    assert told == ["xdplab: waiting: lab a: another lab measures"]


class LateClient:
    """A client of a cluster in which the first of three workers has started."""

    def wait_for_workers(self, count: int, timeout: float) -> None:
        raise WorkerStartTimeoutError(1, count, timeout)

    def scheduler_info(self, n_workers: int) -> dict[str, dict[str, object]]:
        return {"workers": {"tls://127.0.0.1:1": {}}}


def test_workers_that_do_not_start_are_counted_in_the_error() -> None:
    """On a busy machine it printed `60.0: 3 (name another file or folder)`, although this error has no file."""
    with pytest.raises(LabError, match="1 of 3 workers, one per lab, have started in 180 s"):
        fleet_dask._await_workers(LateClient(), 3)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        *((address, "must be tls://") for address in ("tcp://127.0.0.1:8786", "127.0.0.1:8786", "ws://x:1")),
        ("tls://127.0.0.1:1", "this user has no TLS keys for Dask"),
    ],
)
def test_a_scheduler_is_spoken_to_by_tls_and_with_keys_only(address: str, words: str) -> None:
    with pytest.raises(LabError, match=words), connected(["a"], address):
        pass


UNPACK = """
import sys
from pathlib import Path
from xdplab.run.fleet import pack, unpack
unpack(pack(Path(sys.argv[1])), Path(sys.argv[2]))
"""


@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="needs the distribution's own Python")
def test_the_distributions_python_unpacks_what_a_worker_hands_back(tmp_path: Path) -> None:
    """Debian 12 has Python 3.11.2, whose tarfile has no filters."""
    (tmp_path / "from" / "1" / "deep").mkdir(parents=True)
    (tmp_path / "from" / "1" / "deep" / "file").write_bytes(b"content")
    paths = os.pathsep.join(path for path in sys.path if path)
    argv = ["/usr/bin/python3", "-c", UNPACK, str(tmp_path / "from"), str(tmp_path / "to")]
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    if "No module named" in done.stderr or "cannot import name" in done.stderr:
        pytest.skip(f"/usr/bin/python3 cannot import these packages: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "to" / "1" / "deep" / "file").read_bytes() == b"content"


@pytest.mark.parametrize("kind", ["above", "absolute", "link", "device"])
def test_what_a_worker_hands_back_stays_below(tmp_path: Path, kind: str) -> None:
    member = tarfile.TarInfo({"above": "../out", "absolute": str(tmp_path / "out")}.get(kind, "in"))
    member.type = {"link": tarfile.SYMTYPE, "device": tarfile.CHRTYPE}.get(kind, tarfile.REGTYPE)
    member.linkname = "/etc/passwd" if kind == "link" else ""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        archive.addfile(member, io.BytesIO())
    with pytest.raises(ResultsError, match="which is not a file of an attempt"):
        unpack(buffer.getvalue(), tmp_path / "run")
    assert not (tmp_path / "out").exists()
