"""After ten kills at random moments and ten resumes, a run has an undisturbed run's trials; nothing is left over."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import forked
from tests.end_to_end.conftest import attached, plan, xdplab
from tests.waiting import until
from xdplab.labs import Lab
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import read_state
from xdplab.studies.traffic.run_files import run_trials_of

pytestmark = [pytest.mark.root, pytest.mark.lab]

BLOCKS = """
  - points: {mode: native, accesses: [0, 100]}
  - points: {mode: af_xdp, accesses: 0, queues: 2}
    traffic: {engine: afxdp, load: 20kpps}
"""
PLAN = plan(BLOCKS, repetitions=10, window_s=0.1)
OURS = ("xdpgen", "xdpload", "afxdp_user", "perf", "sar", "sadc")
GONE_S = 5.0


def leftovers(lab: Lab) -> list[str]:
    """Return what a dead run left in the lab: attached programs, processes of ours."""
    found = []
    for host, interface in ((lab.dut, lab.dut_interface), (lab.tg, lab.tg_interface)):
        found += [f"{host.name}: a program on {interface}"] * attached(host, interface)
        names = host.run(["ps", "-e", "-o", "comm="]).text.split()
        found += [f"{host.name}: process {name}" for name in names if name in OURS]
    return found


def kill_once(argv: list[str], journal: Path, rng: random.Random) -> None:
    """Wait until a resume measures, then kill it at a random moment."""
    before = journal.read_text().count('"started"')
    child = forked.Started(*argv)
    until(lambda: journal.read_text().count('"started"') > before or child.poll() is not None, 60, every_s=0.01)
    time.sleep(rng.uniform(0, 0.6))
    child.kill()
    assert child.wait() in (-signal.SIGKILL, 0), child.communicate()


@pytest.mark.thorough
def test_ten_kills_and_resumes_end_as_an_undisturbed_run(lab: Lab, lab_name: str, tmp_path: Path) -> None:
    (tmp_path / "kills.yaml").write_text(PLAN)
    first = forked.Started("--lab", lab_name, "run", str(tmp_path / "kills.yaml"), "--out", str(tmp_path / "out"))
    assert until(lambda: list((tmp_path / "out").glob("[0-9]*/journal.jsonl")), 60, every_s=0.02)
    time.sleep(0.3)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    (journal,) = (tmp_path / "out").glob("[0-9]*/journal.jsonl")
    run = RunDirectory(journal.parent)
    rng = random.Random(20)
    resume = ["--lab", lab_name, "resume", str(run.path), "--no-figures"]
    for _ in range(9):
        kill_once(resume, journal, rng)
        assert until(lambda: not leftovers(lab), GONE_S), leftovers(lab)
    xdplab(*resume)
    state = read_state(run)
    assert sorted(state.last) == sorted(t.trial_id for t in run_trials_of(run))
    measured = [a.trial_id for a in state.attempts if a.status == "measured"]
    assert len(measured) == len(set(measured)), "a trial was counted twice"
    assert state.owed == []
    assert not list(run.path.glob("raw/*/.*"))
    assert until(lambda: not leftovers(lab), GONE_S), leftovers(lab)


def test_ctrl_c_keeps_what_was_measured_and_cleans_up(lab: Lab, lab_name: str, tmp_path: Path) -> None:
    (tmp_path / "kills.yaml").write_text(PLAN)
    argv = [sys.executable, "-m", "xdplab", "--lab", lab_name, "run", "kills.yaml", "--out", "out"]
    child = subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    next(line for line in child.stdout if "measured" in line)
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
