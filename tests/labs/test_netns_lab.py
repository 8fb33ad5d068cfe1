"""The netns lab: what it consists of, that labs are isolated, and that nothing is left of one."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from strangers import Stranger, find_stranger
from tests.waiting import child, until

from xdplab import labs
from xdplab.errors import LabError
from xdplab.labs import Lab, control, keeper_socket
from xdplab.labs.netns import keeper as netns_keeper
from xdplab.labs.netns import lab as netns

pytestmark = pytest.mark.root


@pytest.fixture
def name() -> Iterator[str]:
    name = f"netns:test-{os.getpid()}"
    yield name
    labs.down(name)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with labs.use_lab(f"netns:shared-{os.getpid()}") as lab:
        yield lab


@pytest.mark.parametrize(
    ("code", "stderr", "told"),
    [
        (-9, "", "`ip link add …` was killed by signal 9 (Killed)"),
        (2, "", "`ip link add …` exited with 2 and said nothing"),
        (2, "RTNETLINK answers: File exists\n", "RTNETLINK answers: File exists"),
    ],
)
def test_a_link_that_cannot_be_made_has_a_reason(code: int, stderr: str, told: str) -> None:
    done = subprocess.CompletedProcess(["ip", "link", "add", "vd0"], code, "", stderr)
    assert netns_keeper._why(done) == told


SLOW = """
import time
from xdplab.labs import keeper
keeper.Keeper.make, keeper.Keeper.remove = lambda lab: time.sleep(9), lambda lab: None
keeper.keep(lambda: keeper.Keeper("/nowhere", 0, lease=False), within_s=0.2)
"""
BROKEN = """
from xdplab.labs import keeper
keeper.in_background(lambda say: 1 / 0)
"""


@pytest.mark.parametrize(("script", "told"), [(SLOW, "it was not up after 0.2 s"), (BROKEN, "ZeroDivisionError")])
def test_a_keeper_that_ends_before_its_lab_is_up_says_why(script: str, told: str) -> None:
    """On a machine of load 50 it "ended with exit code 0 and said nothing"."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert told in json.loads(done.stdout)["error"]


def row(name: str) -> dict[str, object]:
    (found,) = [row for row in labs.status() if row["lab"] == name]
    return found


def namespaces(lab: Lab) -> set[str]:
    """Return the lab's namespaces by their kernel names."""
    kinds = ("net", "mnt", "pid", "uts", "ipc")
    hosts = (lab.dut, lab.tg)
    return {host.run(["readlink", f"/proc/self/ns/{kind}"]).text.strip() for host in hosts for kind in kinds}


def processes_in(spaces: set[str], started_before: float = float("inf")) -> list[str]:
    """Return the processes in any of these namespaces, seen from outside.

    The kernel reuses a namespace's number, so a process that began after the lab ended does not belong to it.
    """
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it may end during the look
            for link in (process / "ns").iterdir():
                if str(link.readlink()) in spaces and started(process) < started_before:
                    found.append(f"{link}: {(process / 'cmdline').read_text()}")
    return found


def started(process: Path) -> float:
    """Return when a process began, in seconds since the machine's boot."""
    ticks = int((process / "stat").read_text().rsplit(")", 1)[1].split()[19])
    return ticks / os.sysconf("SC_CLK_TCK")


def files_of_labs(name: str) -> set[Path]:
    """Return the files in places where this lab could leave some, without other tests' temporary folders and labs."""
    roots = (Path("/tmp"), Path("/run"), Path("/var/tmp"), Path("/dev/shm"))
    names = re.compile(r"(?!xdplab-[a-z]+-[a-z0-9_]{8}$).*xdplab.*|sshd")
    beside = {path for root in roots for path in root.glob("*") if names.fullmatch(path.name)}
    instance = name.partition(":")[2]
    own = {Path(at, file) for at, _, files in os.walk(keeper_socket.ROOT) for file in files if instance in file}
    return (beside - {keeper_socket.ROOT}) | own  # the folder is there while any lab is up


def mounts_here() -> list[str]:
    """Return the mounts, without those that others on this machine make and delete meanwhile."""
    theirs = (" /run/netns/", "/pytest-of-")
    return [line for line in Path("/proc/mounts").read_text().splitlines() if not any(word in line for word in theirs)]


def listed_namespaces() -> list[str]:
    """Return lsns' lines. It fails if a process of another test ends while it reads: then it is asked again."""
    for _ in range(20):
        listed = subprocess.run(["lsns", "-n", "-o", "NS,NPROCS"], capture_output=True, text=True, check=False)
        if listed.returncode == 0:
            return listed.stdout.splitlines()
    pytest.fail(f"lsns: {listed.stderr}")


def assert_gone(name: str, spaces: set[str], within_s: float = 3.0) -> None:
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert until(lambda: not processes_in(spaces, now), within_s), processes_in(spaces, now)
    held = {line.split()[0] for line in listed_namespaces() if line.split()[1] == "0"}
    assert not held & {space.split("[")[1].rstrip("]") for space in spaces}
    assert name not in [row["lab"] for row in labs.status()]
    with pytest.raises(LabError, match="is not up"):
        labs.open_lab(name)


def test_the_hosts_are_two_and_joined(lab: Lab) -> None:
    for host, hostname, interface, mac in (
        (lab.dut, "dut", lab.dut_interface, lab.dut_mac),
        (lab.tg, "tg", lab.tg_interface, lab.tg_mac),
    ):
        assert host.run(["hostname"]).text.strip() == hostname
        assert host.run(["id", "-u"]).text.strip() == "0"
        links = json.loads(host.run(["ip", "-j", "-d", "link"]).stdout)
        (veth,) = [link for link in links if link["ifname"] != "lo"]
        assert (veth["ifname"], veth["address"], veth["operstate"]) == (interface, mac, "UP")
        assert (veth["num_tx_queues"], veth["num_rx_queues"]) == (8, 8)
        features = host.run(["ethtool", "-k", interface]).text
        assert "generic-receive-offload: on" in features
        assert host.run(["ls", "/sys/class/net"]).text.split() == sorted(["lo", interface])


def test_the_hosts_have_what_xdp_needs(lab: Lab) -> None:
    for host in (lab.dut, lab.tg):
        mounts = [line.split()[1:3] for line in host.get("/proc/mounts").decode().splitlines()]
        for where, kind in (
            ("/sys/fs/bpf", "bpf"),
            ("/sys", "sysfs"),
            ("/sys/kernel/tracing", "tracefs"),
            ("/tmp", "tmpfs"),
        ):
            assert [where, kind] in mounts
        assert host.run(["ls", lab.work_dir(host)]).ok


def test_the_hosts_do_not_see_each_others_files(lab: Lab) -> None:
    path = f"/tmp/mine-{os.getpid()}"
    lab.dut.put(b"dut", path)
    lab.tg.put(b"tg", path)
    assert (lab.dut.get(path), lab.tg.get(path)) == (b"dut", b"tg")
    assert not Path(path).exists()


def test_the_private_key_is_nowhere(lab: Lab) -> None:
    for host in (lab.dut, lab.tg):
        found = host.run(["grep", "-rlE", "BEGIN OPENSSH PRIVATE", "/run", "/tmp"], check=False).text.split()
        assert found == ["/run/sshd/host_key"]
    assert "PRIVATE" not in json.dumps(labs.status())


def test_only_key_login(lab: Lab) -> None:
    said = lab.dut.run(["/usr/sbin/sshd", "-T", "-f", "/run/sshd/sshd_config"]).text
    lines = said.lower().splitlines()  # sid's OpenSSH has capitals
    for wanted in ("passwordauthentication no", "kbdinteractiveauthentication no", "usepam no", "permituserrc no"):
        assert wanted in lines


def test_the_link_is_quiet(lab: Lab) -> None:
    time.sleep(1.2)
    for host, interface in ((lab.dut, lab.dut_interface), (lab.tg, lab.tg_interface)):
        statistics = f"/sys/class/net/{interface}/statistics"
        assert [int(host.get(f"{statistics}/{count}")) for count in ("rx_packets", "tx_packets")] == [0, 0]


def test_what_figures_and_trials_ask_a_lab(lab: Lab) -> None:
    cpus = len(os.sched_getaffinity(0))
    assert lab.arrangement == ("shared" if cpus < 4 else "split")
    assert lab.label == f"virtual lab, netns, {cpus} CPUs, {lab.arrangement}"
    assert (lab.kind, lab.virtual) == ("netns", True)
    assert set(lab.cpus("shared").dut) == os.sched_getaffinity(0)
    assert lab.host("tg") is lab.tg
    with pytest.raises(LabError, match=r"no host 'server'.*dut and tg"):
        lab.host("server")


def test_labs_side_by_side_do_not_meet(name: str, lab: Lab) -> None:
    labs.up(name)
    with contextlib.closing(labs.open_lab(name)) as other:
        other.dut.put(b"here", "/tmp/only-in-other")
        assert not lab.dut.run(["ls", "/tmp/only-in-other"], check=False).ok
        assert not namespaces(lab) & namespaces(other)
        assert other.dut_mac != lab.dut_mac
        assert other.dut.run(["cat", f"/sys/class/net/{other.dut_interface}/carrier"]).text == "1\n"
    labs.down(name)
    assert lab.dut.run(["hostname"]).ok


def test_down_ends_all_that_runs_in_it(name: str) -> None:
    files = files_of_labs(name)
    labs.up(name)
    lab = labs.open_lab(name)
    lab.dut.start(["sh", "-c", "trap '' TERM HUP; setsid sleep 61 & exec sleep 61"], deadline_s=60)
    spaces = namespaces(lab)
    assert labs.down(name)
    assert_gone(name, spaces, within_s=0.5)
    assert files_of_labs(name) == files


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_the_keeper(name: str, number: signal.Signals) -> None:
    files, mounts = files_of_labs(name), mounts_here()
    labs.up(name)
    lab = labs.open_lab(name)
    lab.tg.start(["sh", "-c", "trap '' TERM HUP; setsid sleep 62 & exec sleep 62"], deadline_s=60)
    spaces = namespaces(lab)
    assert processes_in(spaces)
    os.kill(int(str(row(name)["pid"])), number)
    assert_gone(name, spaces)
    assert files_of_labs(name) == files
    assert mounts_here() == mounts


def test_a_host_that_dies_takes_the_lab_with_it(name: str) -> None:
    labs.up(name)
    spaces = namespaces(labs.open_lab(name))
    (init, *_) = [int(line.split("/")[2]) for line in processes_in(spaces) if "netns/host.py\0dut" in line]
    os.kill(init, signal.SIGKILL)
    assert_gone(name, spaces)


def test_a_lab_that_was_up_stays_up_after_the_block(name: str) -> None:
    labs.up(name)
    with labs.use_lab(name):
        pass
    assert row(name)


def holding(what: str) -> list[str]:
    """Return the command of a process that holds something of a lab until it gets a line."""
    return [sys.executable, "-c", f"from xdplab import labs\nwith {what}: print('in', flush=True); input()"]


def test_a_leased_lab_ends_with_its_killed_owner(name: str) -> None:
    with child(holding(f"labs.use_lab({name!r})"), says="in"):
        spaces = namespaces(labs.open_lab(name))
    assert_gone(name, spaces)


@pytest.mark.thorough
def test_a_leased_lab_ends_if_no_process_takes_the_lease(name: str) -> None:
    instance = name.partition(":")[2]
    netns.up(instance, control.owner(), lease=True)
    spaces = namespaces(labs.open_lab(name))
    assert_gone(name, spaces, within_s=8.0)


def test_a_lock_ends_with_its_killed_owner(name: str) -> None:
    labs.up(name)
    with child(holding(f"labs.open_lab({name!r}).lock('dead')"), says="in"):
        pass
    with labs.open_lab(name).lock("alive"):
        pass


AS_STRANGER = """
import json, os, sys
from xdplab import labs
assert os.getuid() == {uid}
lab = labs.open_lab({name!r})
print(lab.dut.run(["id", "-u"]).text.strip(), lab.tg.run(["hostname"]).text.strip())
with lab.lock("mine"): pass
lab.close()
print(labs.down({name!r}), labs.status())
"""


@pytest.fixture(scope="module")
def stranger() -> Stranger:
    return find_stranger()


def test_an_ordinary_user_uses_and_downs_a_lab_that_root_made(stranger: Stranger) -> None:
    name = f"netns:of-stranger-{os.getpid()}"
    files = files_of_labs(name)
    try:
        assert labs.up(name, for_user=str(stranger.uid))
        assert name not in [row["lab"] for row in labs.status()]
        done = stranger.run(AS_STRANGER.format(uid=stranger.uid, name=name))
        assert done.stdout == "0 tg\nTrue []\n", done.stderr
    finally:
        labs.down(name, for_user=str(stranger.uid))
    assert files_of_labs(name) == files


def test_a_user_before_its_maker_has_the_lease_does_not_end_a_lab(name: str) -> None:
    """Of two users that began at once, the second held a lock on a lab that the first one took down when it left."""
    netns.up(name.partition(":")[2], control.owner(), lease=True)
    with labs.use_lab(name) as early:
        with labs.use_lab(name):
            pass
        assert early.dut.run(["hostname"]).text.strip() == "dut"


def test_a_leased_lab_stays_until_its_last_user_leaves(name: str) -> None:
    with contextlib.ExitStack() as first:
        first.enter_context(labs.use_lab(name))
        with child(holding(f"labs.use_lab({name!r})"), says="in") as second:
            first.close()
            assert labs.open_lab(name).dut.run(["hostname"]).text.strip() == "dut"
            second.communicate("\n", timeout=20)
    with pytest.raises(LabError, match="not up"):
        labs.open_lab(name)
