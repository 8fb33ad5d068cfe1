"""What stands in for `python -m xdplab` in other tests behaves as it does."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests import forked

BAD_PLAN = "name: x\nblocks: [{points: {queus: 1}}]\n"


@pytest.mark.parametrize(
    "argv", [["--version"], ["plan", "bad.yaml"], ["no-such-verb"], ["runs", "--json"]], ids=" ".join
)
def test_it_says_and_returns_what_a_process_of_its_own_does(argv: list[str], tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(BAD_PLAN)
    own = subprocess.run(
        [Path(sys.executable).with_name("xdplab"), *argv], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    done = forked.xdplab(*argv, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (own.returncode, own.stdout, own.stderr)


def test_it_has_the_environment_of_the_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "named").mkdir()
    widths = []
    for columns in ("60", "70"):
        monkeypatch.setenv("COLUMNS", columns)
        widths.append(max(map(len, forked.xdplab("run", "--help").stdout.splitlines())))
    assert widths[0] < 60 <= widths[1] < 70
    monkeypatch.chdir(tmp_path / "named")
    assert forked.xdplab("status", "latest").stderr.startswith("xdplab: results holds no run")


def test_several_run_at_once_and_each_ends_by_itself(tmp_path: Path) -> None:
    """Each waits for somebody who writes the plan that it reads."""
    os.mkfifo(tmp_path / "fifo.yaml")
    first, second = (forked.Started("plan", str(tmp_path / "fifo.yaml")) for _ in range(2))
    assert (first.poll(), second.poll()) == (None, None)
    with pytest.raises(subprocess.TimeoutExpired):
        first.communicate(0.1)
    os.kill(first.pid, signal.SIGKILL)
    assert first.wait(10) == -signal.SIGKILL
    assert second.poll() is None
    (tmp_path / "fifo.yaml").write_text(BAD_PLAN)
    assert second.wait(10) == 2
    assert "queus" in second.communicate()[1]


def test_what_a_killed_process_began_ends(tmp_path: Path) -> None:
    """A lab of the tests ends with the last process that uses it."""
    os.mkfifo(tmp_path / "fifo.yaml")
    asking = "import time; from tests import forked; print(forked.Started('plan', 'fifo.yaml').pid, flush=True)"
    argv = [sys.executable, "-c", f"{asking}; time.sleep(99)"]
    here = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=here) as asked:
        pid = int(asked.stdout.readline())
        began = os.pidfd_open(pid)
        asked.kill()
    assert select.select([began], [], [], 10)[0]
    os.close(began)
