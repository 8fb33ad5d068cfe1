"""`--lab net.config`: a port of this machine and its remote end, as the kernel's own tests of drivers name them."""

import contextlib
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.conftest import plan
from tests.end_to_end.test_ktap import parsed
from xdplab.errors import LabError
from xdplab.labs.servers.netconfig import read_config

XDPLAB = Path(sys.executable).with_name("xdplab")
CONFIG = "NETIF=nca\nLOCAL_V4=198.18.7.1 # ours\nREMOTE_V4=198.18.7.2\nREMOTE_TYPE={kind}\nREMOTE_ARGS={remote}\n"


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        ("NETIF=", "NETIF is missing"),
        ("REMOTE_V4=", "REMOTE_V4 or REMOTE_V6"),
        ("REMOTE_TYPE=telnet", "telnet"),
        ("no variable", "line 6"),
    ],
)
def test_a_file_without_a_remote_end_is_refused(line: str, fact: str, tmp_path: Path) -> None:
    (tmp_path / "net.config").write_text(CONFIG.format(kind="netns", remote="peer") + line)
    with pytest.raises(LabError, match=fact):
        read_config(tmp_path / "net.config")


@pytest.fixture
def ends() -> Iterator[tuple[str, str]]:
    """Two namespaces with a link between them, and another one for management; nothing is outside of them."""
    ours, peer = (f"xdplab-{os.getpid()}-{secrets.token_hex(3)}-{end}" for end in "ab")
    links = [("nca", "ncb", 7), ("mga", "mgb", 8)]
    with contextlib.ExitStack() as made:
        for name in (ours, peer):
            ip("netns", "add", name)
            made.callback(ip, "netns", "delete", name)
            ip("-n", name, "link", "set", "lo", "up")
        for first, second, net in links:
            ip("-n", ours, "link", "add", first, "type", "veth", "peer", "name", second, "netns", peer)
            for name, end, host in ((ours, first, 1), (peer, second, 2)):
                ip("-n", name, "addr", "add", f"198.18.{net}.{host}/24", "dev", end)
                ip("-n", name, "link", "set", end, "up")
        yield ours, peer


def ip(*argv: str) -> None:
    subprocess.run(["ip", *argv], check=True)


@contextlib.contextmanager
def sshd(namespace: str, home: Path) -> Iterator[None]:
    """An sshd in a namespace, which lets the key in ``home`` in; its configuration and keys are of the test."""
    ssh = home / ".ssh"
    ssh.mkdir(mode=0o700)
    for name in ("host", "id_ed25519"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(ssh / name)], check=True)
    (ssh / "known_hosts").write_text(f"[198.18.8.2]:2222 {(ssh / 'host.pub').read_text()}")
    (ssh / "config").write_text("Host peer\n HostName 198.18.8.2\n Port 2222\n User root\n")
    options = [f"HostKey={ssh}/host", f"AuthorizedKeysFile={ssh}/id_ed25519.pub", "StrictModes=no", "UsePAM=no"]
    options += ["PermitRootLogin=prohibit-password", "ListenAddress=198.18.8.2:2222", "PidFile=none"]
    argv = ["/usr/sbin/sshd", "-D", "-e", "-f", "/dev/null", *(word for one in options for word in ("-o", one))]
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    server = subprocess.Popen(["ip", "netns", "exec", namespace, *argv])
    try:
        yield
    finally:
        server.terminate()
        server.wait(10)


@pytest.mark.thorough
@pytest.mark.root
@pytest.mark.lab
@pytest.mark.parametrize("kind", ["netns", "ssh"])
def test_a_run_is_a_test_of_the_kernel(kind: str, ends: tuple[str, str], tmp_path: Path) -> None:
    ours, peer = ends
    remote = peer if kind == "netns" else "peer"
    (tmp_path / "net.config").write_text(CONFIG.format(kind=kind, remote=remote))

    def ktap(modes: str) -> tuple[int, list[str]]:
        (tmp_path / "plan.yaml").write_text(plan(f"[{{points: {{mode: {modes}, accesses: 0}}}}]"))
        argv = [XDPLAB, "--lab", "./net.config", "run", "plan.yaml", "--no-figures", "--format", "ktap"]
        into = ["ip", "netns", "exec", ours]
        done = subprocess.run([*into, *argv], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.stdout, done.stderr
        return done.returncode, sorted(result for result, _ in parsed(done.stdout))

    environment = os.environ | {"HOME": str(tmp_path)}
    with sshd(peer, tmp_path) if kind == "ssh" else contextlib.nullcontext():
        assert ktap("[native, offload]") == (0, ["ok", "skip"])
        assert ktap("offload") == (4, ["skip"])
