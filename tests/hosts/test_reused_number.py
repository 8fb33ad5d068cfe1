"""A process has ended, and another process has its number: no action against ours ends the other."""

import subprocess
import sys
import time

import pytest
from tests.waiting import until

from xdplab.hosts import Host
from xdplab.labs import Lab

pytestmark = pytest.mark.root

# Keep the output open after the process' end, in another session: the channel stays, and the number is free.
STAYS_OPEN = "setsid sleep 60 & echo ready"
NEXT_PID = "/proc/sys/kernel/ns_last_pid"
TAKE = f"""
for again in $(seq 200); do
    echo $(($1 - 1)) >{NEXT_PID}
    setsid sleep 60 >/dev/null 2>&1 </dev/null &
    [ "$!" = "$1" ] && echo taken && exit
    kill "$!"
done
"""
LOCAL = f"""
import subprocess, sys, time
from xdplab.hosts.local import LocalProcess
ours = LocalProcess("here", ["sh", "-c", "setsid sleep 60 & echo ready"], 30)
assert ours.read_line(5) == "ready"
ours._child.wait()
taken = subprocess.run(["sh", "-c", {TAKE!r}, "sh", str(ours._child.pid)], capture_output=True, text=True).stdout
ours.kill()
time.sleep(0.3)
print(taken.strip(), open(f"/proc/{{ours._child.pid}}/cmdline").read())
"""

# A process with sshd's name, whose number another process gets while the lifeline below it receives nothing.
SILENT = f"""
import subprocess, time
from xdplab.hosts.lifeline import host_end
lifeline = ["bash", "-c", 'printf sshd >/proc/$$/comm; "$@" <&3 & wait', "sshd", *host_end(2)]
ours = subprocess.Popen(["sh", "-c", 'exec "$@" 3<&0', "sh", *lifeline], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
assert ours.stdout.readline() == b"alive\\n"
ours.kill()
ours.wait()
time.sleep(0.05)  # a process is known by its number and its start, in ticks of 10 ms: no kernel reuses a number sooner
taken = subprocess.run(["sh", "-c", {TAKE!r}, "sh", str(ours.pid)], capture_output=True, text=True).stdout
assert ours.stdout.read() == b"", "the lifeline has ended"
time.sleep(0.3)
print(taken.strip(), open(f"/proc/{{ours.pid}}/cmdline").read())
"""

# A recorder whose collector has ended while packets still arrive.
RECORDER = f"""
import os, pathlib, subprocess, tempfile, time
from xdplab import counters
folder = pathlib.Path(tempfile.mkdtemp())
script = pathlib.Path(counters.__file__).parent / "sar.sh"
(folder / "sar.sh").write_text(script.read_text())
for tool, text in {{"sar": "", "sadf": "", "sadc": 'echo $$ >"$(dirname "$0")/number"'}}.items():
    (folder / tool).write_text("#!/bin/sh\\n" + text)
    (folder / tool).chmod(0o755)
path = {{**os.environ, "PATH": f"{{folder}}:" + os.environ["PATH"]}}
ours = subprocess.Popen(["sh", folder / "sar.sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=path)
ours.stdin.write(b"go\\n")
ours.stdin.flush()
assert ours.stdout.readline() == b"go\\n"
time.sleep(0.5)
number = (folder / "number").read_text().strip()
taken = subprocess.run(["sh", "-c", {TAKE!r}, "sh", number], capture_output=True, text=True).stdout
ours.communicate()
time.sleep(0.3)
print(taken.strip(), open(f"/proc/{{number}}/cmdline").read())
"""


def is_there(host: Host, number: int) -> bool:
    return host.run(["cat", f"/proc/{number}/comm"], check=False).text.strip() == "sleep"


def test_a_stranger_on_a_host_is_not_signalled(ssh_lab: Lab) -> None:
    host = ssh_lab.dut
    ours = host.start(["sh", "-c", STAYS_OPEN], deadline_s=30)
    assert ours.read_line(5) == "ready"
    assert ours._group_told.wait(5), "told on standard error, which another thread reads"
    number = ours._group
    assert ours._started_at.isdigit()
    assert until(lambda: not host.run(["test", "-e", f"/proc/{number}"], check=False).ok, 5)
    assert host.run(["sh", "-c", TAKE, "sh", str(number)]).text.strip() == "taken"
    assert not ours._channel.closed
    ours.kill()
    time.sleep(0.5)
    assert is_there(host, number)
    host.run(["kill", str(number)])


def test_a_group_whose_leader_has_ended_is_still_ours(ssh_lab: Lab) -> None:
    host = ssh_lab.dut
    ours = host.start(["sh", "-c", "sleep 77 & echo $!"], deadline_s=30)
    member = int(ours.read_line(5) or 0)
    assert is_there(host, member)
    time.sleep(0.3)
    ours.kill()
    assert until(lambda: not is_there(host, member), 5)


@pytest.mark.parametrize("code", [LOCAL, SILENT, RECORDER], ids=["command", "sshd", "recorder"])
def test_a_stranger_here_is_not_signalled(code: str) -> None:
    argv = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, "-c", code]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.stdout.split("\0") == ["taken sleep", "60", "\n"], f"a killed process prints nothing: {done.stderr}"
