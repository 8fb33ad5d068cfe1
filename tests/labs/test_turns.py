"""Labs of one machine take turns on its CPUs."""

import os
import pwd
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from tests.waiting import child

from xdplab import text
from xdplab.errors import HostError
from xdplab.labs import keepers

TAKE = """
import pathlib, sys, time
from xdplab.labs import keepers
keepers.keeper_socket.ROOT = pathlib.Path(sys.argv[3])
for _ in range(int(sys.argv[1])):
    with keepers.alone_on([0], "lab b", lambda why: print(why, file=sys.stderr)):
        began = time.monotonic()
        time.sleep(float(sys.argv[2]))
        print(began, time.monotonic(), flush=True)
"""


@pytest.fixture
def cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Locks of CPUs on which no other test measures."""
    monkeypatch.setattr(keepers.keeper_socket, "ROOT", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def another(cpus: Path, times: int, seconds: float) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", TAKE, str(times), str(seconds), str(cpus)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_no_two_are_on_a_cpu_at_once_and_each_gets_its_turn(cpus: Path) -> None:
    takers = [another(cpus, 5, 0.05) for _ in range(3)]
    spans = sorted(
        (tuple(map(float, line.split())), number)
        for number, taker in enumerate(takers)
        for line in taker.communicate(timeout=60)[0].splitlines()
    )
    assert len(spans) == 15
    assert all(first[1] <= second[0] for (first, _), (second, _) in pairwise(spans))
    assert [taker.returncode for taker in takers] == [0, 0, 0]


def test_a_waiting_lab_says_why_and_that_it_continues(cpus: Path) -> None:
    heard: list[str | None] = []
    with another(cpus, 1, 1.5) as taker:
        while not heard and taker.poll() is None:
            with keepers.alone_on([0], "lab a", heard.append):
                pass
        assert taker.wait(20) == 0
    assert heard == ["lab a: another lab measures on CPU 0", None]


def test_a_killed_holder_lets_go_and_a_hung_one_is_named(cpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with another(cpus, 1, 60.0) as taker:
        monkeypatch.setattr(keepers, "TURN_S", 0.0)
        with pytest.raises(HostError, match="lab a: another lab has measured on CPU 0 for 0 s"):  # noqa: PT012
            while taker.poll() is None:
                with keepers.alone_on([0], "lab a", lambda _: None):
                    pass
        taker.kill()
        taker.wait(20)
    with keepers.alone_on([0], "lab a", pytest.fail):
        pass


@pytest.mark.usefixtures("cpus")
def test_labs_on_other_cpus_do_not_wait() -> None:
    with keepers.alone_on([0], "lab a", pytest.fail), keepers.alone_on([1], "lab b", pytest.fail):
        pass


HOLD = """
import pathlib, sys, time
from xdplab.labs import keepers
from xdplab.run.rundir import RunDirectory
from xdplab.run.waiting import recorded
keepers.keeper_socket.ROOT = pathlib.Path(sys.argv[1])
run = RunDirectory.create(pathlib.Path(sys.argv[1]), "holding", run_id="r", plan_yaml="")
with recorded(run), keepers.alone_on([0], "lab b", print):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_waiting_lab_names_the_run_it_waits_for_its_user_and_since_when(cpus: Path) -> None:
    argv = [sys.executable, "-c", HOLD, str(cpus)]
    with child(argv, says="held") as holder:
        heard: list[str | None] = []

        def hear(why: str | None) -> None:
            heard.append(why)
            holder.kill()

        began = time.monotonic()
        with keepers.alone_on([0], "lab a", hear):
            assert time.monotonic() - began < 5.0
    (run,) = cpus.glob("*-holding")
    assert heard[0] is not None
    assert f"{pwd.getpwuid(os.geteuid()).pw_name}'s run {run.resolve()}, begun at " in heard[0]


def test_a_step_is_named_only_if_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    named: list[str] = []
    monkeypatch.setattr(text, "SOON_S", 0.05)
    token = text.STEPS.set(named.append)
    try:
        with text.step("short"):
            pass
        with text.step("long"):
            time.sleep(0.2)
    finally:
        text.STEPS.reset(token)
    assert named == ["long"]
