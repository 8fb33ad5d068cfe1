"""An SSH host trusts the pinned key and no other."""

import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from xdplab.errors import HostError
from xdplab.hosts.ssh import SshAddress, SshHost
from xdplab.labs import Lab

pytestmark = pytest.mark.root


@pytest.fixture
def address(ssh_lab: Lab) -> SshAddress:
    return ssh_lab.dut._address  # type: ignore[attr-defined,no-any-return]


def another_key(folder: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "other")], check=True)
    return folder / "other"


def test_a_host_without_a_known_key_is_refused(address: SshAddress) -> None:
    with pytest.raises(HostError, match="unknown host key of dut: ssh-ed25519 AAAA"):
        SshHost("dut", replace(address, host_key=None))


def test_a_changed_host_key_is_refused(address: SshAddress, tmp_path: Path) -> None:
    changed = another_key(tmp_path).with_suffix(".pub").read_text()
    with pytest.raises(HostError, match="its host key has changed"):
        SshHost("dut", replace(address, host_key=changed))


def test_a_known_hosts_file_pins_as_well(address: SshAddress, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(f"dut {address.host_key}\n")
    host = SshHost("dut", replace(address, host_key=None, known_hosts=known))
    assert host.run(["hostname"]).text == "dut\n"
    host.close()
    known.write_text(f"elsewhere {address.host_key}\n")
    with pytest.raises(HostError, match="unknown host key"):
        SshHost("dut", replace(address, host_key=None, known_hosts=known))


def test_a_wrong_login_key_is_refused(address: SshAddress, tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"login of root with this key is refused \(add its public half"):
        SshHost("dut", replace(address, key=another_key(tmp_path)))


@pytest.mark.parametrize("key", ["no key at all", Path("/no/such/key")])
def test_an_unusable_login_key_is_named(address: SshAddress, key: str | Path) -> None:
    with pytest.raises(HostError, match="as private key"):
        SshHost("dut", replace(address, key=key))


@pytest.mark.parametrize("line", ["", "ssh-ed25519", "ssh-ed25519 AAAA", "ssh-nonsense AAAAC3NzaC1lZDI1NTE5AAAAIA=="])
def test_a_host_key_line_that_is_none_is_named(address: SshAddress, line: str) -> None:
    with pytest.raises(HostError, match="host_key"):
        SshHost("dut", replace(address, host_key=line))


def test_a_host_that_is_not_there_is_an_error(address: SshAddress) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nobody = replace(address, host="127.0.0.1", port=unused.getsockname()[1], connect=None)
        with pytest.raises(HostError, match="cannot connect to"):
            SshHost("rack", nobody)


def test_a_lost_connection_is_said(address: SshAddress) -> None:
    host = SshHost("dut", address)
    process = host.start(["sleep", "60"], deadline_s=60)
    host.close()
    with pytest.raises(HostError, match="connection is lost"):
        process.wait(5)
    with pytest.raises(HostError, match="dut: "):
        host.run(["true"])
