"""After ten kills at random moments and ten resumes, a run has an undisturbed run's trials; nothing is left over."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import forked
from tests.end_to_end.conftest import needs_root, xdplab
from xdplab.labs import Lab
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import read_state
from xdplab.studies.traffic.run_files import run_trials_of

pytestmark = [pytest.mark.root, pytest.mark.lab, needs_root]

PLAN = """
name: kills
repetitions: 6
trial: {warmup_s: 0.05, window_s: 0.1, pause_s: 0.0}
blocks:
  - points: {mode: native, workload: array, accesses: [0, 100], working_set_bytes: 4096}
  - points: {mode: af_xdp, workload: array, accesses: 0, queues: 2}
    traffic: {engine: afxdp, load: 20kpps}
"""
GONE_S = 5.0


def leftovers(lab: Lab) -> list[str]:
    """Return what a dead run left in the lab: attached programs, processes of ours."""
    found = []
    for host, interface in ((lab.dut, lab.dut_interface), (lab.tg, lab.tg_interface)):
        if "xdp" in json.loads(host.run(["ip", "-j", "link", "show", "dev", interface]).text)[0]:
            found.append(f"{host.name}: a program on {interface}")
        for line in host.run(["ps", "-e", "-o", "comm="]).text.splitlines():
            if line.strip() in ("xdpgen", "xdpload", "afxdp_user", "perf", "sar", "sadc"):
                found.append(f"{host.name}: process {line}")
    return found


def wait_clean(lab: Lab) -> list[str]:
    deadline = time.monotonic() + GONE_S
    while (found := leftovers(lab)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def kill_once(argv: list[str], journal: Path, rng: random.Random) -> None:
    """Wait until a resume measures, then kill it at a random moment."""
    before = journal.read_text().count('"started"')
    child = forked.Started(*argv)
    deadline = time.monotonic() + 60
    while journal.read_text().count('"started"') == before and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(rng.uniform(0, 0.6))
    os.kill(child.pid, signal.SIGKILL)
    child.wait()


@pytest.mark.thorough
def test_ten_kills_and_resumes_end_as_an_undisturbed_run(lab: Lab, lab_name: str, tmp_path: Path) -> None:
    (tmp_path / "kills.yaml").write_text(PLAN)
    first = forked.Started("--lab", lab_name, "run", str(tmp_path / "kills.yaml"), "--out", str(tmp_path / "out"))
    while not (journals := list((tmp_path / "out").glob("[0-9]*/journal.jsonl"))):
        time.sleep(0.02)
    time.sleep(0.3)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    (journal,) = journals
    run = RunDirectory(journal.parent)
    rng = random.Random(20)
    resume = ["--lab", lab_name, "resume", str(run.path), "--no-figures"]
    for _ in range(9):
        kill_once(resume, journal, rng)
        assert wait_clean(lab) == []
    xdplab("--lab", lab_name, "resume", str(run.path), "--no-figures")
    state = read_state(run)
    assert sorted(state.last) == sorted(t.trial_id for t in run_trials_of(run))
    measured = [a.trial_id for a in state.attempts if a.status == "measured"]
    assert len(measured) == len(set(measured)), "a trial was counted twice"
    assert state.owed == []
    assert not list(run.path.glob("raw/*/.*"))
    assert wait_clean(lab) == []


def test_ctrl_c_keeps_what_was_measured_and_cleans_up(lab: Lab, lab_name: str, tmp_path: Path) -> None:
    (tmp_path / "kills.yaml").write_text(PLAN)
    argv = [sys.executable, "-m", "xdplab", "--lab", lab_name, "run", "kills.yaml", "--out", "out"]
    child = subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert child.stdout is not None
    for line in child.stdout:
        if "measured" in line:
            break
    child.send_signal(signal.SIGINT)
    rest = child.communicate(timeout=60)[0]
    assert child.returncode == 130, rest
    assert "resume" in rest
    (path,) = (tmp_path / "out").iterdir()
    state = read_state(RunDirectory(path))
    assert state.ended == "interrupted"
    assert state.attempts
    assert state.owed
    assert leftovers(lab) == []
