"""An ordinary user attacks a lab that root made, and another user's lab on the same machine.

Each attack reports what it achieved, which must be nothing; afterwards the lab works as before.
"""

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from strangers import Stranger, as_user, find_stranger, outcome
from tests.waiting import child, children

from xdplab import labs
from xdplab.deploy.kernel_settings import unthrottled
from xdplab.deploy.watchdog import watch
from xdplab.hosts.local import LocalHost
from xdplab.labs import cache, keeper_socket, keepers
from xdplab.labs.base import HOST
from xdplab.labs.servers.lab import PortLock
from xdplab.run.disk import LOCK
from xdplab.run.rundir import RunDirectory
from xdplab.studies import guests, places

pytestmark = pytest.mark.root

OTHER = 54399

# Attacks that a user can try with a shell, against a lab's processes and files. Prints those that worked.
ATTACK = """
import ctypes, fcntl, json, os, signal, socket, sys
name, pids, places = json.loads(sys.argv[1])
worked, libc = [], ctypes.CDLL(None, use_errno=True)
def attempt(what, deed):
    try:
        deed()
    except (OSError, ValueError):
        return
    worked.append(what)
def enter(pid, kind):
    with open(f"/proc/{pid}/ns/{kind}") as there:
        if libc.setns(there.fileno(), 0):
            raise OSError(ctypes.get_errno(), "setns")
def trace(pid):
    if libc.ptrace(16, pid, 0, 0):
        raise OSError(ctypes.get_errno(), "ptrace")
def connect(path):
    link = socket.socket(socket.AF_UNIX)
    link.settimeout(2)
    link.connect(path)
def hold(path):
    fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
for pid in pids:
    for number in (signal.SIGSTOP, signal.SIGKILL):
        attempt(f"signal {number} to {pid}", lambda: os.kill(pid, number))
    for kind in ("net", "mnt", "pid", "user"):
        attempt(f"namespace {kind} of {pid}", lambda: enter(pid, kind))
    for secret in ("environ", "mem", "maps", "root/etc/passwd", "cwd/x", "fd/0"):
        attempt(f"{secret} of {pid}", lambda: open(f"/proc/{pid}/{secret}", "rb").read(1))
    attempt(f"trace {pid}", lambda: trace(pid))
    attempt(f"more urgent {pid}", lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))
    attempt(f"pinned {pid}", lambda: os.sched_setaffinity(pid, {0}))
for place in places:
    attempt(f"connect {place}", lambda: connect(place))
    attempt(f"read {place}", lambda: os.listdir(place) if os.path.isdir(place) else open(place, "rb").read(1))
    attempt(f"write {place}", lambda: open(place + "/x" if os.path.isdir(place) else place, "ab"))
    attempt(f"remove {place}", lambda: os.rename(place, place + ".gone"))
    attempt(f"lock {place}", lambda: hold(place))
attempt("a folder of root's sockets", lambda: os.mkdir("/run/xdplab/0/x"))
attempt("bpf", lambda: None if libc.syscall(321, 0, 0, 0) >= 0 else (_ for _ in ()).throw(OSError()))
print(json.dumps(worked))
"""

COMMANDS = """
from xdplab import labs
from xdplab.errors import XdplabError
name, worked = {name!r}, []
for what, deed in (
    ("opened", lambda: labs.open_lab(name)),
    ("locked", lambda: labs.open_lab(name).lock("me").__enter__()),
    ("taken down", lambda: labs.down(name) or (_ for _ in ()).throw(XdplabError("nothing there"))),
    ("seen", lambda: [row for row in labs.status() if row["lab"] == name][0]),
):
    try:
        deed()
    except (XdplabError, IndexError, OSError):
        continue
    worked.append(what)
print(worked)
"""


@pytest.fixture(scope="module")
def attacker() -> Stranger:
    return find_stranger()


@pytest.fixture(params=["root's", "another user's"])
def victim(request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    """A lab and its owner."""
    uid = 0 if request.param == "root's" else OTHER
    name = f"netns:attacked-{uid}-{os.getpid()}"
    labs.up(name, for_user=str(uid))
    try:
        yield name, uid
    finally:
        labs.down(name, for_user=str(uid))


def processes_of(name: str) -> list[int]:
    """Return the keeper and its children: the hosts of the lab."""
    keepers = [
        int(p.parts[2]) for p in Path("/proc").glob("[0-9]*/cmdline") if f"/{name.replace(':', '-')}\0" in _text(p)
    ]
    found = list(keepers)
    for parent in found:
        found += children(parent)
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def places_of(name: str, uid: int) -> list[str]:
    folder = Path(f"/run/xdplab/{uid}")
    return [str(folder), *(str(path) for path in folder.rglob("*") if name.partition(":")[2] in path.name)]


def answers(name: str, uid: int, attacker: Stranger) -> str:
    """Run a command on a lab's host as the lab's owner."""
    code = f"from xdplab import labs; lab = labs.open_lab({name!r}); print(lab.dut.run(['hostname']).text.strip())"
    return outcome(as_user(uid, code, python=attacker.python)).stdout.strip()


def test_nothing_comes_of_what_a_user_can_try(victim: tuple[str, int], attacker: Stranger) -> None:
    name, uid = victim
    pids, places = processes_of(name), places_of(name, uid)
    assert len(pids) >= 3
    assert len(places) >= 2
    asked = json.dumps([name, pids, places])
    done = outcome([*attacker.argv(ATTACK), asked])
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr
    assert attacker.run(COMMANDS.format(name=name)).stdout.strip() == "[]"
    assert set(pids) <= set(processes_of(name))
    assert places_of(name, uid) == places
    assert answers(name, uid, attacker) == "dut"


def test_a_lab_of_the_same_name_is_the_attackers_own_affair(victim: tuple[str, int], attacker: Stranger) -> None:
    """Names are per user: a lab of the same name, even one made by root for the attacker, does not affect the other."""
    name, uid = victim
    pids = processes_of(name)
    labs.up(name, for_user=str(attacker.uid))
    try:
        assert answers(name, attacker.uid, attacker) == "dut"
        assert set(pids) < set(processes_of(name))
    finally:
        labs.down(name, for_user=str(attacker.uid))
    assert set(pids) <= set(processes_of(name))
    assert answers(name, uid, attacker) == "dut"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can read, like /var/lib/xdplab on a server."""
    with tempfile.TemporaryDirectory(prefix="xdplab-open-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_no_lock_can_be_held_by_another_user(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch, attacker: Stranger
) -> None:
    """A user who can open a file can hold its lock forever, and the next run would wait as long."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(open_folder / "cache"))
    (open_folder / "device-vd0.owner.lock").touch(0o644)
    (open_folder / "jit.lock").touch(0o644)
    (open_folder / "device-vd0.sh").write_text("exit 0\n")
    (open_folder / "switch").write_text("1")
    host, switches = LocalHost(), {str(open_folder / "switch"): "0"}
    run = RunDirectory.create(open_folder, "quick", run_id="r", plan_yaml="name: quick\n")
    monkeypatch.setattr(places, "_LOCK", str(open_folder / "jit.lock"))
    monkeypatch.setattr(keeper_socket, "ROOT", open_folder)
    monkeypatch.setenv("PATH", f"{open_folder}:{os.environ['PATH']}")
    (open_folder / "sysctl").write_text("#!/bin/sh\necho 1\n")  # for this test only: the machine's own is for all users
    (open_folder / "sysctl").chmod(0o755)
    with (
        unthrottled(host, folder=str(open_folder / "throttling"), switches=switches),
        cache.locked("kernels"),
        run.writer(),
        guests.place_of(HOST) as place,
        place.jit(True),
        keepers.alone_on([0], "lab a", pytest.fail),
    ):
        port = PortLock(host, str(open_folder / "vd0.lock"), "me")
        watchdog = watch(host, "vd0", str(open_folder))
        try:
            space = Path("/proc/self/ns/net").stat().st_ino
            names = ("guard", "holders", f"vd0.{space}.lock", "device-vd0.owner.lock", "jit.lock", "cpu0.lock", ".lock")
            locks = [str(path) for path in open_folder.rglob("*") if path.name in names]
            assert len(locks) == len(names) + 1, "two are named .lock: a cache's and a run's"
            done = outcome([*attacker.argv(ATTACK), json.dumps(["", [], locks])])
            assert done.stdout.strip() == "[]", done.stderr
        finally:
            watchdog.dismiss()
            port.close()


def test_root_waits_for_no_user_and_a_user_for_root(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch, attacker: Stranger
) -> None:
    monkeypatch.setattr(keeper_socket, "ROOT", open_folder)
    (open_folder / "home").mkdir()
    os.chown(open_folder / "home", attacker.uid, attacker.uid)
    take = f"""
import os, pathlib, sys
from xdplab.labs import keeper_socket
from xdplab.labs import keepers
os.environ["XDG_CACHE_HOME"] = {str(open_folder / "home")!r}
keeper_socket.ROOT, keepers.TURN_S = pathlib.Path({str(open_folder)!r}), 1.0
with keepers.alone_on([0], "lab b", lambda why: print(why, flush=True)):
    print("held", flush=True)
    sys.stdin.read()
"""
    with keepers.alone_on([0], "lab a", pytest.fail):
        assert "a lab of root's measures on CPU 0" in attacker.run(take).stdout
    with child(attacker.argv(take), says="held", cwd="/"), keepers.alone_on([0], "lab a", pytest.fail):
        pass


def test_a_run_that_each_user_can_read_is_held_by_its_writer_alone(open_folder: Path, attacker: Stranger) -> None:
    """Readers see that the run is going on; no lock that they hold makes the next `resume` fail."""
    run = RunDirectory.create(open_folder, "quick", run_id="r", plan_yaml="name: quick\n")
    look = f"from pathlib import Path; from xdplab.run.disk import is_locked; print(is_locked(Path({str(run.path)!r})))"
    assert attacker.run(look).stdout.strip() == "False"
    with run.writer():
        assert attacker.run(look).stdout.strip() == "True", attacker.run(look).stderr
        hold = "import fcntl, os, sys, time\nheld = [os.open(path, os.O_RDONLY) for path in sys.argv[1:]]\n"
        hold += "[fcntl.flock(each, fcntl.LOCK_EX) for each in held]\nprint('held', flush=True)\ntime.sleep(60)"
        files = [str(run.path), *(str(path) for path in run.path.iterdir() if path.name != LOCK)]
    with child([*attacker.argv(hold), *files], says="held"):
        assert attacker.run(look).stdout.strip() == "False"
        with run.writer():
            assert attacker.run(look).stdout.strip() == "True"
        RunDirectory.create(open_folder, "quick", run_id="r", plan_yaml="name: quick\n")
    assert not list(open_folder.rglob(LOCK))
