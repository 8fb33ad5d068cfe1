"""The port that carries the SSH connection or the default route is refused: with real sudo, and below a bridge."""

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from accounts import SUDO, USER, account, over_tcp
from rack import rack, written
from tests.doubles.hosts import Played, with_folder

from xdplab import labs
from xdplab.errors import LabError
from xdplab.hosts import Host
from xdplab.labs import Lab
from xdplab.labs.servers import ports
from xdplab.labs.servers.ports import _ANCESTORS, Connection, _with_lowers, refuse_ssh_route, ssh_connections

pytestmark = pytest.mark.thorough

needs_sudo = pytest.mark.skipif(not SUDO.exists(), reason="needs the real sudo: apt install sudo")


@pytest.fixture(scope="module")
def servers() -> Iterator[Lab]:
    with labs.use_lab(f"netns:route-{os.getpid()}") as lab, account(lab.dut):
        yield lab


@pytest.fixture
def content(servers: Lab, tmp_path: Path) -> dict[str, Any]:
    return rack(servers, tmp_path)


@pytest.mark.root
@needs_sudo
@pytest.mark.parametrize("device", ["vd0", "br0"])
@pytest.mark.parametrize("user", ["root", USER])
def test_the_port_that_carries_ssh_is_refused(
    content: dict[str, Any], tmp_path: Path, servers: Lab, user: str, device: str
) -> None:
    with over_tcp(servers, content, user=user, device=device):
        lab = labs.open_lab(written(content, tmp_path))
        with contextlib.closing(lab):
            environment = lab.dut.run(["sh", "-c", 'echo "$SSH_CONNECTION"']).text
            assert bool(environment.strip()) == (user == "root"), "sudo's env_reset drops it"
            assert ssh_connections(lab.dut) == {Connection("198.51.100.1", "198.51.100.2")}
            with pytest.raises(LabError, match="vd0 carries the SSH connection"):
                _ = lab.dut_interface


@pytest.mark.root
def test_a_port_has_one_name_also_if_the_inventory_has_its_alternative_one(
    content: dict[str, Any], tmp_path: Path, servers: Lab
) -> None:
    servers.tg.run(["ip", "link", "property", "add", "dev", "vg0", "altname", "enp59s0f0"])
    content["tg"]["interface"]["name"] = "enp59s0f0"
    try:
        lab = labs.open_lab(written(content, tmp_path))
        with contextlib.closing(lab):
            assert lab.tg_interface == "vg0", "locks and stored states go by the name"
        servers.tg.run(["ip", "route", "add", "default", "dev", "vg0"])
        lab = labs.open_lab(written(content, tmp_path))
        with contextlib.closing(lab), pytest.raises(LabError, match="vg0 carries the default route"):
            _ = lab.tg_interface
    finally:
        servers.tg.run(["ip", "link", "property", "del", "dev", "vg0", "altname", "enp59s0f0"])
        servers.tg.run(["ip", "route", "del", "default"], check=False)


@pytest.mark.root
def test_an_sshd_behind_a_unix_socket_is_on_no_port(servers: Lab) -> None:
    assert ssh_connections(servers.dut) == set()


TUNNELS = {
    "tun": "tuntap add t0 mode tun",
    "tap": "tuntap add t0 mode tap",
    "vxlan": "link add t0 type vxlan id 5 local 198.51.100.1 remote 198.51.100.9 dstport 4789",
    "geneve": "link add t0 type geneve id 5 remote 198.51.100.9",
    "gre": "link add t0 type gre local 198.51.100.1 remote 198.51.100.9",
    "ipip": "link add t0 type ipip local 198.51.100.1 remote 198.51.100.9",
    "wireguard": "link add t0 type wireguard",
}


@pytest.mark.root
@pytest.mark.parametrize("tunnel", TUNNELS.values(), ids=TUNNELS)
def test_a_port_that_may_carry_the_tunnel_of_the_connection_is_refused(
    servers: Lab, tunnel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The route is real; that the SSH connection comes by way of the tunnel is not."""
    monkeypatch.setattr(ports, "ssh_connections", lambda _: {Connection("192.168.77.1", "192.168.77.2")})
    dut = servers.dut
    if dut.run(["ip", *tunnel.split()], check=False).exit_code:
        pytest.skip("this kernel has no such tunnels")
    try:
        for words in ("addr add 192.168.77.1/24 dev t0", "link set t0 up"):
            dut.run(["ip", *words.split()])
        assert refused(dut, "vd0") is None, "vd0 has no route: it carries nothing"
        dut.run(["ip", "addr", "add", "198.51.100.1/24", "dev", "vd0"])
        assert "vd0 carries the SSH connection (by way of t0)" in str(refused(dut, "vd0"))
    finally:
        dut.run(["ip", "addr", "del", "198.51.100.1/24", "dev", "vd0"], check=False)
        dut.run(["ip", "link", "del", "t0"])


# --- outputs of servers that are not here ---

SOCKETS = "lrwx------ 1 root root 64 Nov 22 14:00 4 -> 'socket:[4711]'\n"
ABOVE = f"process sh\nl-wx------ 1 root root 64 Nov 22 14:00 1 -> 'pipe:[1]'\nprocess sshd\n{SOCKETS}process systemd\n"
DEFAULT_4, DEFAULT_6 = (f"ip -j {family} route show table all default" for family in ("-4", "-6"))


class Server(Played):
    """A server whose controller is at 10.9.0.1; ``lowers``: which device is below which."""

    def __init__(self, lowers: dict[str, list[str]], **answers: object) -> None:
        commands = {
            "sh -c " + _ANCESTORS: ABOVE,
            "ss -Htne state established": established("10.0.0.2:22", "10.9.0.1:50000"),
            "ip -j addr show": json.dumps([{"ifname": "bond0", "addr_info": [{"local": "10.0.0.2"}]}]),
            "ip -j route get 10.9.0.1 from 10.0.0.2": json.dumps([{"dst": "10.9.0.1", "dev": "bond0"}]),
            DEFAULT_4: "[]",
            DEFAULT_6: "[]",
        }
        texts = {key: answer if isinstance(answer, str) else json.dumps(answer) for key, answer in answers.items()}
        super().__init__(commands | texts)
        self.lowers = lowers

    def answer(self, argv: Sequence[str]) -> str | None:
        if argv[-2] == "sh":  # the devices below the device
            return "".join(f"/sys/class/net/{argv[-1]}/lower_{n}\n" for n in self.lowers.get(argv[-1], []))
        return super().answer(argv)


def established(local: str, peer: str) -> str:
    return f"0      0      {local} {peer} uid:1000 ino:4711 sk:1 cgroup:/ <->\n0 0 127.0.0.1:1 127.0.0.1:2 ino:9 sk:2\n"


def refused(server: Server | Host, port: str) -> str | None:
    try:
        refuse_ssh_route(server, port)  # type: ignore[arg-type]
    except LabError as error:
        return error.message
    return None


@pytest.mark.parametrize("port", ["bond0", "eth0", "eth1", "bond0.7", "br3"])
def test_members_and_what_shares_a_port_with_it_are_refused(port: str) -> None:
    lowers = {"bond0": ["eth0", "eth1"], "bond0.7": ["bond0"], "br3": ["eth2", "bond0.7"]}
    message = refused(Server(lowers), port)
    assert f"{port} carries the SSH connection" in message


@pytest.mark.root
def test_the_cards_below_open_vswitch_and_below_a_virtual_function_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("br-ex", "ovs-system/lower_eth1", "bond0/lower_eth2", "eth1", "eth2", "eth3", "vf7"):
        (tmp_path / "net" / name).mkdir(parents=True)
    (tmp_path / "net/vf7/device/physfn/net/eth3").mkdir(parents=True)
    (tmp_path / "net/ovs-system/lower_bond0").mkdir()
    tool = tmp_path / "ethtool"
    tool.write_text(
        '#!/bin/sh\ncase $2 in br-ex|ovs-*) echo "driver: openvswitch" ;; *) echo "driver: ixgbe" ;; esac\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    host = with_folder(tmp_path / "net", "/sys/class/net")
    below = {name: _with_lowers(host, name) - {name} for name in ("br-ex", "vf7", "bond0", "eth1")}
    assert below == {"br-ex": {"eth1", "bond0", "eth2"}, "vf7": {"eth3"}, "bond0": {"eth2"}, "eth1": set()}


def test_another_port_is_not_refused() -> None:
    assert refused(Server({"bond0": ["eth0", "eth1"]}), "eth2") is None


def test_the_ports_of_the_default_route_are_refused_each_hop() -> None:
    hops = [{"dst": "default", "nexthops": [{"dev": "eth4"}, {"dev": "eth5.2"}]}]
    server = Server({"eth5.2": ["eth5"]}, **{DEFAULT_6: hops})
    assert [refused(server, port) is not None for port in ("eth4", "eth5", "eth6")] == [True, True, False]
    blocked = [{"type": "unreachable", "dst": "default", "dev": "lo"}]
    assert refused(Server({}, **{DEFAULT_4: blocked}), "lo") is None


@pytest.mark.parametrize(
    ("local", "peer", "found"),
    [
        ("[::ffff:10.0.0.2]:22", "[::ffff:10.9.0.1]:5", Connection("10.0.0.2", "10.9.0.1")),
        ("[fe80::2]%eth7:22", "[fe80::1]:5", Connection("fe80::2", "fe80::1", "eth7")),
        ("[fe80::2%eth7]:22", "[fe80::1%eth7]:5", Connection("fe80::2", "fe80::1", "eth7")),
        ("[2001:db8::2]:22", "[2001:db8::1]:5", Connection("2001:db8::2", "2001:db8::1")),
    ],
)
def test_addresses_of_each_kind_are_read(local: str, peer: str, found: Connection) -> None:
    server = Server({}, **{"ss -Htne state established": established(local, peer)})
    assert ssh_connections(server) == {found}  # type: ignore[arg-type]
    assert (refused(server, "eth7") is not None) == (found.zone == "eth7")


@pytest.mark.parametrize("above", ["process sh\nprocess bash\n", "process sh\nprocess sshd\nclosed\n", ""])
def test_where_it_cannot_be_told_it_is_refused(above: str) -> None:
    message = refused(Server({}, **{"sh -c " + _ANCESTORS: above}), "eth9")
    assert "cannot be told which port carries the SSH connection" in message
