"""Figures are drawn in several processes, in order; errors, interrupts and kills leave none of them behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from xdplab.errors import HostError, ResultsError
from xdplab.figures.save import mapped


def test_jobs_are_done_in_processes_of_their_own_and_come_back_in_order() -> None:
    done: list[int] = []
    results = list(mapped(lambda job: (time.sleep(0.3 * (job == 6)), job, os.getpid())[1:], range(8), 2, done.append))
    assert [job for job, _ in results] == list(range(8))
    assert os.getpid() not in {pid for _, pid in results}
    assert done == list(range(1, 9))


def test_one_process_is_this_one() -> None:
    assert list(mapped(lambda job: os.getpid(), [1, 2, 3], 1)) == [os.getpid()] * 3


def test_an_error_is_raised_as_it_was_and_ends_the_work(tmp_path: Path) -> None:
    def write(job: int) -> int:
        if job == 1:
            raise ResultsError("disk full", remedy="free some space")
        time.sleep(0.1)
        (tmp_path / str(job)).touch()
        return job

    results = mapped(write, range(100), 2)
    assert next(results) == 0
    with pytest.raises(ResultsError) as caught:
        list(results)
    assert (caught.value.message, caught.value.remedy) == ("disk full", "free some space")
    assert len(list(tmp_path.iterdir())) < 10


def test_a_killed_process_is_said() -> None:
    with pytest.raises(HostError, match="was killed"):
        list(mapped(lambda job: os.kill(os.getpid(), signal.SIGKILL), range(3), 2))


DRAW = """
import os, sys, time
from pathlib import Path
from xdplab.figures.save import mapped
def draw(job):
    Path(sys.argv[1], str(os.getpid())).touch()
    time.sleep(0.2)
try:
    list(mapped(draw, range(1000), 2))
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_the_process_that_began_them_and_say_nothing(tmp_path: Path, number: int) -> None:
    argv = [sys.executable, "-c", DRAW, str(tmp_path)]
    drawing = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while len(workers := [int(path.name) for path in tmp_path.iterdir()]) < 2:
        assert drawing.poll() is None
        time.sleep(0.05)
    if number == signal.SIGINT:
        os.killpg(drawing.pid, number)  # Ctrl-C on a terminal
    else:
        os.kill(drawing.pid, number)
    errors = drawing.communicate(timeout=30)[1]  # the workers have the pipe, too
    assert (drawing.returncode, errors) == (130 if number == signal.SIGINT else -number, "")
    assert not [pid for pid in workers if Path(f"/proc/{pid}/exe").exists()]
