"""Both ends give up a silent connection, although no packet says that the other end has gone."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.waiting import child, until

from xdplab.errors import HostError
from xdplab.hosts import lifeline
from xdplab.hosts.lifeline import host_end
from xdplab.hosts.ssh import SshHost
from xdplab.labs import Lab

pytestmark = pytest.mark.root

SILENCE_S, BEAT_S = 2.5, 0.5
HOLD = "echo held; cat >/dev/null; echo let go >/tmp/let-go"

SSHD_ABOVE = """
pid=$$
while ! grep -q '^sshd' "/proc/$pid/comm"; do pid=$(awk '$1 == "PPid:" { print $2 }' "/proc/$pid/status"); done
echo "$pid"
"""

# A controller in its own process, which can be stopped or killed while its connection stays open, because this test
# also holds the socket.
CONTROLLER = """
import sys, time
from xdplab import labs
from xdplab.hosts import lifeline
from xdplab.hosts.ssh import SshHost
from dataclasses import replace
lifeline.BEAT_S = float(sys.argv[4])
lab = labs.open_lab(sys.argv[1])
host = SshHost("dut", replace(lab.dut._address, silence_s=float(sys.argv[2])))
holder = host.start(["sh", "-c", sys.argv[3]], deadline_s=900)
print(holder.read_line(20), flush=True)
time.sleep(600)
"""


@pytest.fixture
def controller(ssh_lab: Lab) -> Iterator[subprocess.Popen[str]]:
    ssh_lab.dut.run(["rm", "-f", "/tmp/let-go"])
    argv = [sys.executable, "-c", CONTROLLER, ssh_lab.name, str(SILENCE_S), HOLD, str(BEAT_S)]
    with child(argv, says="held") as process:
        yield process


def let_go(lab: Lab) -> bool:
    return lab.dut.run(["test", "-e", "/tmp/let-go"], check=False).ok


@pytest.mark.thorough
def test_a_holder_lets_go_of_a_controller_that_is_silent(ssh_lab: Lab, controller: subprocess.Popen[str]) -> None:
    time.sleep(2 * SILENCE_S)
    assert not let_go(ssh_lab), "a controller that lives holds on"
    os.kill(controller.pid, signal.SIGSTOP)  # sockets stay open, nothing arrives: as from a machine without power
    assert until(lambda: let_go(ssh_lab), 10 * SILENCE_S)


def test_our_end_notices_a_host_that_is_silent(ssh_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifeline, "BEAT_S", BEAT_S)
    host = SshHost("dut", replace(ssh_lab.dut._address, silence_s=SILENCE_S))  # type: ignore[attr-defined]
    process = host.start(["sh", "-c", "echo $PPID; sleep 600"], deadline_s=900)
    process.read_line(5)
    mine = host.run(["sh", "-c", SSHD_ABOVE]).text.strip()
    ssh_lab.dut.run(["kill", "-s", "STOP", mine])
    began = time.monotonic()
    with pytest.raises(HostError, match="the connection is lost"):
        process.wait(900)
    assert time.monotonic() - began < 10 * SILENCE_S
    ssh_lab.dut.run(["kill", "-s", "KILL", mine])
    assert host.run(["hostname"]).text == "dut\n", "it connects again"
    host.close()


def test_a_host_without_an_sshd_above_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(["setsid", *host_end(1)], capture_output=True, text=True, check=False, timeout=30)
    assert done.stdout == "no sshd above this command\n"
    assert done.returncode == 1
