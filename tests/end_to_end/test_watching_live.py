"""A run whose notebook kernel has ended: watched from new processes, interrupted, without escapes in its log."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.thorough, pytest.mark.root, pytest.mark.lab]

START = """
import sys, xdplab as xl
trial = {"warmup_s": 0.05, "window_s": 0.3, "pause_s": 0.02, "retries": 0}
xl.plan("watched", program="array", accesses=0, repetitions=40, trial=trial).start(xl.lab(sys.argv[1]))
"""
WATCH = """
import xdplab as xl
from xdplab.run import watching
watching.LINE_S = 0.0
run = xl.open("latest")
print(xl.runs()["run"].to_list(), run.state.total, flush=True)
run.watch()
"""


def python(code: str, *argv: str, cwd: Path, **more: str) -> subprocess.Popen[str]:
    """A new Python, like a notebook's kernel after a restart; its standard output is a pipe."""
    plain = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "CLICOLOR_FORCE")}
    command = ["env", "--default-signal=INT", sys.executable, "-c", code, *argv]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=cwd, env=plain | more, text=True, stdout=pipe, stderr=subprocess.STDOUT)


def test_a_run_outlives_its_kernel_and_is_watched_from_another(lab_name: str, tmp_path: Path) -> None:
    started = python(START, lab_name, cwd=tmp_path, FORCE_COLOR="1", CLICOLOR_FORCE="1")
    assert started.wait(60) == 0, started.communicate()[0]
    (run,) = (tmp_path / "results").iterdir()

    # At once: the measuring process is still starting and holds nothing.
    left, stays = python(WATCH, cwd=tmp_path), python(WATCH, cwd=tmp_path)
    assert left.stdout.readline() == f"['{run.name}'] 40\n"
    assert "40 trials" in left.stdout.readline()  # it watches
    left.send_signal(signal.SIGINT)
    last = left.communicate(timeout=60)[0].splitlines()[-1]
    assert "run.stop()" in last, last
    assert f"`xdplab status {run.name}`" in last, last
    assert left.returncode == 0

    lines = stays.communicate(timeout=120)[0].splitlines()
    assert stays.returncode == 0, lines
    counted = [re.fullmatch(r"(\d+) of 40 trials: (\d+) \w+.*, \d+ s to go", line) for line in lines]
    assert any(counted), lines
    assert re.fullmatch(r"40 of 40 trials: \d+ \w+(, \d+ \w+)*", lines[-1]), lines
    assert "\x1b" not in (run / "run.log").read_text()


STOP = """
import time, xdplab as xl
run = xl.open("latest")
while not run.state.attempts:
    time.sleep(0.05)
print(run.stop())
assert run.state.ended == "interrupted" and 0 < len(run.state.attempts) < 40, run.state
run.resume().watch()
assert not run.state.owed
"""


def test_a_run_is_stopped_and_resumed_from_another_kernel(lab_name: str, tmp_path: Path) -> None:
    started = python(START, lab_name, cwd=tmp_path)
    assert started.wait(60) == 0, started.communicate()[0]
    stops = python(STOP, cwd=tmp_path)
    text = stops.communicate(timeout=120)[0]
    assert stops.returncode == 0, text
