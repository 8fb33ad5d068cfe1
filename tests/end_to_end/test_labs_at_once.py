"""One run in three labs at once, one of which goes down half way; and a run on the workers of an existing cluster."""

import contextlib
import json
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import dask
import pandas as pd
import pytest
from distributed import Client
from distributed.security import Security

from tests import forked
from tests.end_to_end.conftest import plan, run_of, trials_of, xdplab
from tests.waiting import until
from xdplab import labs
from xdplab.deploy.xdp import attached_program
from xdplab.errors import LabError
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import attempts_of, read_state
from xdplab.studies.traffic.fleet import joined
from xdplab.studies.traffic.runs import shared_by

pytestmark = [pytest.mark.thorough, pytest.mark.root, pytest.mark.lab]

BLOCK = "[{points: {accesses: [0, 100]}}]"
TRIALS = 10
TURNS = (
    "[{{points: {{mode: native}}}}, {{points: {{mode: native}}, lab: {0}}}, {{points: {{mode: generic}}, lab: {0}}}]"
)


@pytest.fixture
def three() -> Iterator[list[str]]:
    names = [f"netns:at-once-{secrets.token_hex(3)}-{letter}" for letter in "abc"]
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(labs.use_lab(name))
        yield names


def first_to_finish(folder: Path) -> str | None:
    """Return the lab whose block finished first: it gets another one at once."""
    lines = [line for journal in folder.glob("*/journal.jsonl") for line in journal.read_text().splitlines()]
    return next((event["facts"]["lab"] for event in map(json.loads, lines) if event["event"] == "finished"), None)


def test_a_lab_that_goes_down_half_way_gives_its_block_back(three: list[str], tmp_path: Path) -> None:
    (tmp_path / "shared.yaml").write_text(plan(BLOCK, repetitions=5, window_s=0.1))
    options = ["--labs", ",".join(three), "--out", "out", "--no-figures"]
    run = forked.Started("run", "shared.yaml", *options, cwd=tmp_path)
    while (victim := first_to_finish(tmp_path / "out")) is None:
        assert run.poll() is None, "".join(run.communicate())
        time.sleep(0.02)
    with contextlib.closing(labs.open_lab(victim)) as lab:
        while attached_program(lab.dut, lab.dut_interface).program_id is None:
            assert run.poll() is None, "".join(run.communicate())
    labs.down(victim)
    said = "".join(run.communicate(timeout=200))
    assert run.returncode == 0, said

    (path,) = (tmp_path / "out").iterdir()
    lost = [event["lab"] for event in RunDirectory(path).journal.events() if event["event"] == "lab_lost"]
    assert lost == [victim], said
    table = pd.read_parquet(path / "trials.parquet")
    assert set(table["verdict"]) == {"valid"}, "\n".join(table["lab"] + ": " + table["reason"])
    assert table["trial_id"].is_unique
    assert len(table) == TRIALS
    assert set(table["lab"]) == set(three)
    assert 0 < (table["lab"] == victim).sum() < TRIALS / 2
    assert {f"hosts-{name.replace(':', '_')}.json" for name in three} <= {p.name for p in (path / "programs").iterdir()}


@pytest.fixture
def cluster(three: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A scheduler and a worker for each of two labs; they use TLS with keys that this user has too."""
    keys = Security.temporary()
    (tmp_path / "ca.pem").write_text(keys.tls_ca_file)
    (tmp_path / "key.pem").write_text(keys.tls_client_key)
    (tmp_path / "key.pem").chmod(0o600)
    paths = {"ca-file": str(tmp_path / "ca.pem")}
    for role in ("client", "worker", "scheduler"):
        paths |= {f"{role}.cert": paths["ca-file"], f"{role}.key": str(tmp_path / "key.pem")}
    for name, path in paths.items():
        variable = f"DASK_DISTRIBUTED__COMM__TLS__{name.upper().replace('.', '__').replace('-', '_')}"
        monkeypatch.setenv(variable, path)
    monkeypatch.setenv("DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION", "true")
    dask.config.refresh()
    chief, file = [sys.executable, "-m", "distributed.cli.dask_scheduler"], tmp_path / "scheduler.json"
    local = ["--scheduler-file", str(file), "--no-dashboard"]
    started = [
        subprocess.Popen([*chief, "--host", "tls://127.0.0.1", "--port", "0", *local], stderr=subprocess.DEVNULL)
    ]
    try:
        assert until(file.exists, 30)
        worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--nthreads", "1", *local]
        for name in three[:2]:
            argv = [*worker, "--no-nanny", "--resources", f"{name}=1", "--local-directory", str(tmp_path)]
            started.append(subprocess.Popen(argv, stderr=subprocess.DEVNULL))
        address = str(json.loads(file.read_text())["address"])
        with Client(address, security=Security(require_encryption=True)) as client:
            client.wait_for_workers(2, timeout=60)
        yield address
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()
        monkeypatch.undo()
        dask.config.refresh()


def test_a_cluster_that_runs_already_measures_and_resumes(cluster: str, three: list[str], tmp_path: Path) -> None:
    (tmp_path / "shared.yaml").write_text(plan(BLOCK, repetitions=2, window_s=0.1))
    there = ["--scheduler", cluster]
    with pytest.raises(LabError, match=f"no worker has the lab {three[2]}") as refused, joined(three, cluster):
        pass
    assert refused.value.remedy == f'`dask worker ADDRESS --nthreads 1 --resources "{three[2]}=1"`'
    options = ["--labs", ",".join(three[:2]), *there, "--out", "out", "--no-figures"]
    xdplab("run", "shared.yaml", *options, cwd=tmp_path)
    (path,) = (tmp_path / "out").iterdir()
    run = RunDirectory(path)
    assert {attempt.facts["lab"] for attempt in attempts_of(run)} == set(three[:2])
    with pytest.raises(LabError, match="its labs were reached through a Dask scheduler"):
        shared_by(run)

    journal = run.journal.path.read_text().splitlines(keepends=True)
    run.journal.path.write_text("".join(line for line in journal if f'"lab":"{three[1]}"' not in line))
    assert read_state(run).owed
    refused = xdplab("resume", str(path), "--no-figures", check=False)
    assert refused.returncode == 3
    assert f"--labs {','.join(three[:2])} --scheduler tls://" in refused.stderr
    xdplab("resume", str(path), "--no-figures", "--labs", ",".join(three[:2]), *there)
    assert read_state(run).owed == []
    assert list(run.journal.events())[-1]["how"] == "complete"


def test_blocks_of_one_run_are_measured_in_the_labs_that_they_name(three: list[str], tmp_path: Path) -> None:
    path = run_of(three[0], tmp_path, plan(TURNS.format(three[1]), repetitions=2, window_s=0.1))
    trials = trials_of(path)
    assert trials["verdict"].eq("valid").all(), trials["reason"].tolist()
    assert trials.groupby(["lab", "mode"]).size().to_dict() == {
        (three[0], "native"): 2, (three[1], "native"): 2, (three[1], "generic"): 2
    }  # fmt: skip
    assert trials["point_id"].nunique() == 3
    sessions = json.loads((path / "manifest.json").read_text())["sessions"]
    assert [(one["when"], one["session"], one["state"]["lab"]) for one in sessions] == [
        (when, 0, lab) for when in ("before", "after") for lab in sorted(three[:2], key=[*trials["lab"]].index)
    ]
