"""A keeper's socket: containers and other users cannot reach it, and no request, flood or dead keeper ends a lab."""

import contextlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from strangers import Stranger, find_stranger
from tests.waiting import child, until

from xdplab import labs
from xdplab.errors import LabError
from xdplab.labs import Lab, control, keeper_socket
from xdplab.labs.keeper import MOST_CLIENTS, SILENT_S
from xdplab.labs.netns import lab as netns

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def stranger() -> Stranger:
    return find_stranger()


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with labs.use_lab(f"netns:socket-{os.getpid()}") as lab:
        yield lab


@pytest.fixture
def place(lab: Lab) -> Path:
    return keeper_socket.keepers_of(0, "netns")[lab.name.partition(":")[2]]


@pytest.fixture
def common() -> Iterator[Path]:
    """A folder that every user may write to, like /tmp; pytest's own folders are closed to others."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o1777)
        yield Path(made)


def connected(place: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(place))
    connection.settimeout(10)
    return connection


def asked(place: Path, request: bytes) -> dict[str, object]:
    with connected(place) as connection:
        connection.sendall(request + b"\n")
        answer: dict[str, object] = json.loads(connection.recv(1 << 16).splitlines()[0])
        return answer


def assert_works(lab: Lab) -> None:
    with contextlib.closing(labs.open_lab(lab.name)) as again:
        assert again.dut.run(["hostname"]).text == "dut\n"


# Connects as root without any capability, and prints what it gets.
ASK = """
import socket, sys
s = socket.socket(socket.AF_UNIX); s.settimeout(10); s.connect(sys.argv[1])
try: s.sendall(b'{"do": "hello"}' + bytes([10]))
except BrokenPipeError: pass  # refused already
print(s.recv(65536).decode())
"""


def as_container(place: Path, *, folder_too: bool) -> subprocess.CompletedProcess[str]:
    """Run `ASK` as uid 0 without capabilities, sharing only the network namespace, as a container does."""
    hide = ":" if folder_too else "mount -t tmpfs tmpfs /run"
    bare = "setpriv --bounding-set=-all --inh-caps=-all --ambient-caps=-all"
    script = f'{hide} && exec {bare} {Path(sys.base_prefix)}/bin/python3 -I -S -c "$@"'
    spaces = ["unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--mount-proc"]
    argv = [*spaces, "sh", "-c", script, "sh", ASK, str(place)]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_a_container_on_the_hosts_network_does_not_reach_it(place: Path) -> None:
    done = as_container(place, folder_too=False)
    assert "FileNotFoundError" in done.stderr
    done = as_container(place, folder_too=True)
    assert "must be in the PID namespace of the lab's keeper" in done.stdout, done.stderr
    assert "PRIVATE" not in done.stdout


def test_no_lab_has_an_abstract_name(lab: Lab) -> None:
    names = [line.split()[-1] for line in Path("/proc/net/unix").read_text(errors="replace").splitlines()]
    assert not [name for name in names if name.startswith("@") and "xdplab" in name]


def test_another_user_cannot_even_connect(stranger: Stranger, place: Path, lab: Lab) -> None:
    done = stranger.run(f"import sys; sys.argv[1:] = [{str(place)!r}]\n{ASK}")
    assert "PermissionError" in done.stderr
    done = stranger.run(f"from xdplab.labs.netns import lab; print(lab.KEEPERS.connect(0, {lab.name[6:]!r}))")
    assert done.stdout == "None\n", done.stderr


def test_its_folder_is_the_owners_alone(place: Path) -> None:
    for folder in place.parents[:2]:
        status = folder.stat()
        assert (status.st_uid, status.st_mode & 0o777) == (0, 0o700)


@pytest.mark.parametrize(
    "request_",
    [
        b"[]",
        b"null",
        b"{",
        b'"down"',
        b"\xff\xfe",
        b"[" * 4000,
        b'{"do": ' + b"9" * 5000,
        b"{}",
        b'{"do": ["down"]}',
        b'{"do": "nonsense"}',
        b'{"do": "pin"}',
        b'{"do": "pin", "interface": "vd0", "cpus": "x", "fifo": {}}',
        b'{"do": "ssh", "host": []}',
        b'{"do": "ssh"}',
    ],
)
def test_a_request_without_sense_is_answered(place: Path, lab: Lab, request_: bytes) -> None:
    answer = asked(place, request_)
    assert "error" in answer or answer == {"pinned": 0}
    assert_works(lab)


def test_a_request_may_come_in_pieces(place: Path) -> None:
    with connected(place) as connection:
        for piece in (b'{"do"', b': "hel', b'lo"}\n'):
            connection.sendall(piece)
            time.sleep(0.05)
        assert b'"hosts"' in connection.recv(1 << 16)


@pytest.fixture
def many_files() -> Iterator[int]:
    """More open files than a login shell's limit of 1024 allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    many = 1100
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * many), hard))
    yield many
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_flood_of_connections_ends_no_lab(many_files: int, place: Path, lab: Lab) -> None:
    with contextlib.ExitStack() as stack:
        flood = [stack.enter_context(connected(place)) for _ in range(many_files)]
        answer = flood[-1].recv(1 << 12)
        assert f"{MOST_CLIENTS} connections already" in answer.decode()
    assert_works(lab)


@pytest.mark.thorough
def test_a_client_that_asks_nothing_is_dropped_and_one_that_holds_the_lock_is_not(lab: Lab, place: Path) -> None:
    with labs.open_lab(lab.name).lock("held"), connected(place) as silent, connected(place) as half:
        half.sendall(b'{"do"')
        began = time.monotonic()
        for connection in (silent, half):
            connection.settimeout(3 * SILENT_S)
            assert connection.recv(1) == b""
        time.sleep(max(0.0, began + SILENT_S + 1 - time.monotonic()))
        with pytest.raises(LabError, match="a run is going on in this lab: held"), labs.open_lab(lab.name).lock("2"):
            pass


def test_what_a_killed_keeper_leaves_is_gone_after_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A look by any test of this user cleans up, so this keeper lives where no other test looks.
    monkeypatch.setenv("XDPLAB_RUNTIME_DIR", str(tmp_path))
    name = f"netns:stale-{os.getpid()}"
    for look in (lambda: labs.status(), lambda: labs.up(name)):
        labs.up(name)
        (pid,) = [row["pid"] for row in labs.status() if row["lab"] == name]
        place = keeper_socket.keepers_of(0, "netns")[name[6:]]
        os.kill(pid, signal.SIGKILL)
        lock = place.with_name(f"{place.name}.lock")
        assert until(lambda lock=lock: not keeper_socket._is_locked(lock), 5)
        assert place.exists()
        look()
        assert place.exists() == (name in [row["lab"] for row in labs.status()])
    (early := place.with_name("netns-early.lock")).touch()  # its keeper died before it had a socket
    labs.status()
    assert not early.exists()
    others = tmp_path / "54321" / place.parent.name / "netns-dead.lock"
    others.parent.mkdir(parents=True)
    others.touch()
    for path in (others, *others.parents[:2]):
        os.chown(path, 54321, 54321)
        path.chmod(0o700)
    assert keeper_socket.keepers_of(54321, "netns") == {}
    assert others.exists(), "another user's files are left to their owner"
    assert labs.down(name)
    assert not list(place.parent.glob(f"{place.name}*"))


def test_labs_of_two_network_namespaces_do_not_meet(lab: Lab) -> None:
    code = (
        "from xdplab import labs\n"
        f"print(labs.up({lab.name!r}), [row['lab'] for row in labs.status()], labs.down({lab.name!r}))"
    )
    done = subprocess.run(["unshare", "--net", sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == f"True {[lab.name]} True\n", done.stderr
    assert_works(lab)


def test_squatters_block_neither_status_nor_up(
    stranger: Stranger, common: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that others may write to is the worst choice: the keeper ignores what they put there, and says so."""
    monkeypatch.setenv("XDPLAB_RUNTIME_DIR", str(common))
    squat = common / "0" / keeper_socket.namespace()
    made = stranger.run(
        f"import os, socket; os.umask(0); os.makedirs({str(squat)!r}); s = socket.socket(socket.AF_UNIX); "
        f"s.bind({str(squat / 'netns-default')!r}); open({str(squat / 'netns-default.lock')!r}, 'w')"
    )
    assert made.returncode == 0, made.stderr
    assert labs.status() == []
    with pytest.raises(LabError, match=r"is not a folder of mode 0700 of user 0"):
        labs.up("netns")
    for squatter in (f"@xdplab/0/{os.getpid()}", "@xdplab/0/\udcff"):
        with socket.socket(socket.AF_UNIX) as abstract:
            abstract.bind(os.fsencode(squatter.replace("@", "\0", 1)))
            assert labs.status() == []


@pytest.mark.parametrize("read", [0, 100])
def test_a_lab_that_goes_down_while_status_asks_is_not_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: int
) -> None:
    monkeypatch.setenv("XDPLAB_RUNTIME_DIR", str(tmp_path))
    place = keeper_socket.ClaimedSocket(keeper_socket.place_for(0, "netns", "going"), 0)
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor() as meanwhile:
        place.bind(listener)
        listener.listen()
        listener.settimeout(10)
        status = meanwhile.submit(labs.status)
        connection, _ = listener.accept()
        with connection:
            assert select.select([connection], [], [], 10)[0]
            connection.recv(read)  # what is not read when it closes resets the connection
        assert status.result(10) == []
    place.leave()


def test_an_impostor_is_noticed(stranger: Stranger, common: Path) -> None:
    where = common / "netns-impostor"
    code = f"import socket; s = socket.socket(socket.AF_UNIX); s.bind({str(where)!r}); s.listen(); print(1, flush=True)"
    code += "; input()"
    another = pytest.raises(LabError, match="another user's process is at its socket")
    with child(stranger.argv(code), says="1", cwd="/"), another:
        control.connect_to(where, "lab x", keepers=netns.KEEPERS.users or ())


def test_what_follows_an_answer_is_left_for_the_next_reader() -> None:
    """After `ssh` it is sshd's greeting."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b'{"uid": 5}\nSSH-2.0')
        asking = control.Control(ours, "netns")
        assert (asking.ask("ssh"), asking.detach().recv(9)) == ({"uid": 5}, b"SSH-2.0")


def test_a_keeper_sees_that_its_connection_is_closed() -> None:
    ours, keepers = socket.socketpair()
    with ours, keepers:
        keepers.settimeout(5)
        control.Control(ours, "lab x").close()
        assert keepers.recv(1) == b""


# A keeper of a user who is not root, like those of guests: it creates its socket and listens.
OWN_KEEPER = """
import os, socket
from pathlib import Path
from xdplab.labs import keeper_socket, control
uid = os.getuid()
path = keeper_socket.place_for(uid, "uml", "a/b")
place = keeper_socket.ClaimedSocket(path, uid)
listener = socket.socket(socket.AF_UNIX)
place.bind(listener)
listener.listen()
places = keeper_socket.keepers_of(uid, "uml")
print(path.is_relative_to({folder!r}), places == {{"a/b": path}})
print(control.connect_to(path, "x", keepers=(uid,)) is not None)
try:
    keeper_socket.ClaimedSocket(path, uid)
except FileExistsError as error:
    print("taken")
place.leave()
print(keeper_socket.keepers_of(uid, "uml"), path.exists())
"""


@pytest.mark.parametrize("where", ["XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDPLAB_RUNTIME_DIR", "HOME"])
def test_a_user_has_a_place_without_root(stranger: Stranger, common: Path, where: str) -> None:
    folder = common / "own"
    folder.mkdir(mode=0o700)
    os.chown(folder, stranger.uid, stranger.uid)
    done = stranger.run(f"import os; os.environ[{where!r}] = {str(folder)!r}\n" + OWN_KEEPER.format(folder=str(folder)))
    assert done.stdout.splitlines() == ["True True", "True", "taken", "{} False"], done.stderr


def test_two_keepers_of_a_name_race_and_one_wins() -> None:
    name = f"netns:race-{os.getpid()}"
    code = f"from xdplab import labs; print(labs.up({name!r}))"
    try:
        both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
        assert sorted(process.communicate(timeout=60)[0].strip() for process in both) == ["False", "False", "True"]
    finally:
        labs.down(name)


def test_a_process_is_in_this_namespace_while_it_lives() -> None:
    with subprocess.Popen(["sleep", "60"]) as ours:
        assert keeper_socket.in_our_pid_namespace(ours.pid)
        ours.kill()
    assert not keeper_socket.in_our_pid_namespace(ours.pid)
    assert not keeper_socket.in_our_pid_namespace(0)


def test_a_users_sockets_lie_where_root_or_the_user_makes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper_socket, "ROOT", tmp_path / "root")
    monkeypatch.delenv("XDPLAB_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "session"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    mine, other = (keeper_socket.owners_folders(uid) for uid in (os.geteuid(), 54321))
    assert mine == [tmp_path / "root" / str(os.geteuid()), tmp_path / "session/xdplab", tmp_path / "cache/xdplab/run"]
    assert other[:2] == [tmp_path / "root/54321", Path("/run/user/54321/xdplab")]
    assert other[2] == Path("/nonexistent/.cache/xdplab/run"), "not in this user's home"
    for uid in (54321, 54322):
        (tmp_path / "root" / str(uid)).mkdir(parents=True)
    assert keeper_socket.other_owners(54322) == [54321]
    monkeypatch.setenv("XDPLAB_RUNTIME_DIR", str(tmp_path / "root"))
    assert keeper_socket.other_owners(54321) == [54322]
    assert keeper_socket.owners_folders(7) == [tmp_path / "root/7"]
    with pytest.raises(OSError, match="is too long for a socket: set XDPLAB_RUNTIME_DIR"):
        keeper_socket.ClaimedSocket(Path("/run") / ("ü" * 50) / "namespace/netns", 0)  # in bytes
