"""Inventories: what a file may contain, and what is refused before anything on a server changes."""

import contextlib
import copy
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rack import rack, written
from tests.doubles.hosts import Played, Within
from tests.waiting import child

from xdplab import labs
from xdplab.cli import doctor
from xdplab.deploy.device import snapshot
from xdplab.deploy.guarded import GuardedDevice
from xdplab.doctor.checks import Judgement
from xdplab.errors import HostError, LabError, UnsupportedError
from xdplab.hosts.local import LocalHost
from xdplab.labs import Lab
from xdplab.labs.servers import lab as inventory_lab
from xdplab.labs.servers import ports as inventory_checks
from xdplab.labs.servers.host import SudoHost
from xdplab.labs.servers.inventory import Interface, Inventory, load_inventory
from xdplab.labs.servers.lab import PORTS_DIR
from xdplab.labs.servers.ports import Port, _cpu_list, find_port, refuse_wrong_mac

ROOT = Path(__file__).resolve().parents[2]
HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0pPPGpbV1zQq2aR3o5u1Cp2dJkzFyy0uK3q8oJ1bYk"
FILE: dict[str, Any] = {
    "dut": {
        "host": "192.0.2.1",
        "key": "k",
        "host_key": HOST_KEY,
        "interface": {"pci": "0000:3B:00.0", "mac": "00:15:4D:00:00:01"},
    },
    "tg": {
        "host": "192.0.2.2",
        "key": "k",
        "host_key": HOST_KEY,
        "interface": {"pci": "0000:3b:00.1", "mac": "00:15:4d:00:00:02"},
        "generator": {"kind": "moongen", "path": "/opt/MoonGen", "ports": [1]},
    },
}


def changed(*path: str, to: Any) -> dict[str, Any]:
    """Return the good file with one value replaced, or added."""
    content = copy.deepcopy(FILE)
    inner = content
    for key in path[:-1]:
        inner = inner[key]
    if to is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = to
    return content


OTHER = {"name": "eth2", "mac": "00:15:4d:00:00:03"}


def second_links(dut_mac: str) -> dict[str, Any]:
    """Return the good file with a second link, whose end at the DUT has this MAC."""
    content = changed("tg", "second_interface", to=OTHER)
    content["dut"]["second_interface"] = {"name": "eth2", "mac": dut_mac}
    return content


def test_a_good_file_is_read_and_its_keys_lie_beside_it(tmp_path: Path) -> None:
    found = load_inventory(Path(written(FILE, tmp_path)))
    assert found.dut.key == str(tmp_path / "k")
    assert found.dut.interface.mac == "00:15:4d:00:00:01"
    assert found.dut.interface.pci == "0000:3b:00.0"
    assert found.tg.generator.place().path == "/opt/MoonGen"
    assert found.tg.generator.place().port == 1
    assert labs.default_arrangement(written(FILE, tmp_path)) == "hosts"


@pytest.mark.parametrize(
    "pasted",
    [
        HOST_KEY,
        f"192.0.2.1 {HOST_KEY}",
        f"# 192.0.2.1:22 SSH-2.0-OpenSSH_9.2p1 Debian-2\n192.0.2.1 {HOST_KEY}\n",
        f"[192.0.2.1]:2222 {HOST_KEY}",
        f"{HOST_KEY} root@server",
    ],
)
def test_what_ssh_keyscan_prints_is_read(pasted: str, tmp_path: Path) -> None:
    found = load_inventory(Path(written(changed("dut", "host_key", to=pasted), tmp_path)))
    assert found.dut.host_key == HOST_KEY


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (changed("dut", "sudo_password", to="x"), "holds sudo_password"),
        (changed("dut", "user", to="ALL ALL=(ALL) NOPASSWD: ALL\nlab"), "dut.user"),
        (changed("dut", "user", to="lab\n"), "dut.user"),
        (changed("tg", "host", to="h\nALL ALL=(ALL) NOPASSWD: ALL"), "tg.host"),
        (second_links("00:15:4d:00:00:01"), "second_interface"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_its_field(content: Any, field: str, tmp_path: Path) -> None:
    """Other such files: tests/cli/messages.txt."""
    with pytest.raises(LabError, match=field):
        labs.open_lab(written(content, tmp_path))


# --- on existing hosts ---


@pytest.fixture(scope="module")
def servers() -> Iterator[Lab]:
    with labs.use_lab(f"netns:rack-{os.getpid()}") as lab:
        yield lab


@pytest.fixture
def content(servers: Lab, tmp_path: Path) -> dict[str, Any]:
    return rack(servers, tmp_path)


@pytest.mark.root
def test_the_hosts_of_an_inventory_are_a_lab(content: dict[str, Any], tmp_path: Path, servers: Lab) -> None:
    with labs.use_lab(written(content, tmp_path)) as lab:
        assert lab.dut.run(["hostname"]).text == "dut\n"
        assert (lab.dut_interface, lab.tg_interface) == ("vd0", "vg0")
        assert (lab.dut_mac, lab.tg_mac) == (servers.dut_mac, servers.tg_mac)
        assert lab.virtual
        assert lab.label == "virtual link, rack, veth – veth, shared"
        assert not lab.leased
        assert lab.place("shared", 1) == {"softirq": "on the sender's CPU"}
        assert lab.host("tg") is lab.tg
        with pytest.raises(LabError, match="has no host 'x'"):
            lab.host("x")


@pytest.mark.root
def test_split_has_receiving_threads_on_cpus_of_their_own(content: dict[str, Any], tmp_path: Path) -> None:
    with labs.use_lab(written(content, tmp_path)) as lab:
        for host, interface in ((lab.dut, lab.dut_interface), (lab.tg, lab.tg_interface)):
            host.run(["ethtool", "-K", interface, "gro", "on"])  # only then does a veth receive by NAPI
        found = lab.place("split", 2)
        assert found["dut_threads"] >= 2
        assert found["tg_threads"] >= 1
        assert not set(found["dut_cpus"]) & set(found["tg_cpus"]) or len(os.sched_getaffinity(0)) == 1
        with pytest.raises(UnsupportedError, match="of the softirq threads of vd0 and vg0 only"):
            lab.place("split", 1000)
        assert lab.place("shared", 1) == {"softirq": "on the sender's CPU"}


@pytest.mark.root
def test_a_lab_is_locked_on_its_hosts(content: dict[str, Any], tmp_path: Path) -> None:
    name = written(content, tmp_path)
    with contextlib.closing(labs.open_lab(name)) as first, contextlib.closing(labs.open_lab(name)) as second:
        refused = pytest.raises(LabError, match="a run is going on in this lab: the first run on ")
        with first.lock("the first run"), refused, second.lock():
            pass
        with second.lock():
            pass


@pytest.mark.thorough
@pytest.mark.root
def test_two_inventories_of_one_server_share_its_locks_and_original_states(
    content: dict[str, Any], tmp_path: Path, servers: Lab
) -> None:
    """They differ in name and work directory. The second run begins at once when the first one has died."""
    one = labs.open_lab(written(content, tmp_path, "one"))
    two = labs.open_lab(written(content | {"work_dir": "/tmp/xdplab/another"}, tmp_path, "two"))
    with contextlib.closing(one), contextlib.closing(two):
        port, before = one.dut_interface, snapshot(servers.dut, one.dut_interface).values
        refused = pytest.raises(LabError, match="a run is going on in this lab: the first run on ")
        with one.lock("the first run"), refused, two.lock():
            pass
        GuardedDevice(one.dut, port, one.state_dir(one.dut)).take()
        one.dut.run(["ip", "link", "set", port, "mtu", "2000"])
        one.close()
        held = GuardedDevice(two.dut, port, two.state_dir(two.dut))
        held.take()
        assert held.before.values == before
        two.dut.run(["ip", "link", "set", port, "mtu", "3000"])
        time.sleep(3)  # the first run's watchdog would have acted
        assert snapshot(servers.dut, port).values["link.mtu"] == 3000
        held.put_back()
        assert snapshot(servers.dut, port).values == before


def test_a_port_that_dpdk_takes_during_a_run_stays_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then its host has no interface of that name, and a second controller knows the port by its PCI address."""
    monkeypatch.setattr(inventory_lab, "PORTS_DIR", str(tmp_path))
    monkeypatch.setattr(inventory_lab.InventoryLab, "_reach", lambda _self, name, _machine: LocalHost(name))
    of_dpdk = False

    def found(_host: LocalHost, wanted: Interface) -> Port:
        number = int(wanted.mac[-1])
        taken = of_dpdk and number == 2
        return Port(str(wanted.pci), "vfio-pci", ()) if taken else Port(f"eth{number}", "ixgbe", ())

    monkeypatch.setattr(inventory_lab, "find_port", found)
    file = Inventory.model_validate(second_links("00:15:4d:00:00:04"))
    first, second = (inventory_lab.InventoryLab("rack.yaml", file) for _ in range(2))
    with first.lock("the first run"):
        of_dpdk = True
        with pytest.raises(LabError, match="a run is going on in this lab: the first run on "), second.lock():
            pass
        locked = {path.name.split(".")[0] for path in tmp_path.glob("*.lock")}
        assert locked == {"eth1", "eth2", "eth3", "eth4", "0000:3b:00"}
    with second.lock():
        pass


@pytest.mark.root
def test_a_lock_ends_with_its_holder(content: dict[str, Any], tmp_path: Path) -> None:
    name = written(content, tmp_path)
    script = (
        "import os, signal, sys; from xdplab import labs\n"
        "with labs.open_lab(sys.argv[1]).lock('a dead one'): os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", script, name], check=False).returncode == -9
    with contextlib.closing(labs.open_lab(name)) as lab:
        for _ in range(50):
            try:
                with lab.lock():
                    return
            except LabError:
                continue
    pytest.fail("the lock outlived its holder")


@pytest.mark.root
def test_ports_of_one_name_in_two_namespaces_are_locked_one_by_one(tmp_path: Path) -> None:
    """They share a folder of locks, as containers with a common work directory do."""
    path = str(tmp_path / "eth1.lock")
    here, there = (
        inventory_lab.PortLock(host, path, "a run") for host in (LocalHost(), Within("here", "unshare", "-n"))
    )
    try:
        assert len(list(tmp_path.glob("eth1.*.lock"))) == 2
        with pytest.raises(LabError, match="a run is going on in this lab: a run on"):
            inventory_lab.PortLock(LocalHost(), path, "another")
    finally:
        here.close()
        there.close()
    inventory_lab.PortLock(LocalHost(), path, "another").close()


SILENT_S = 5
HOLDS = """
import sys, time
from xdplab import labs
from xdplab.labs.servers import lab as inventory_lab
inventory_lab.BEAT_S = 0.5
with labs.open_lab(sys.argv[1]).lock('one that stands still'):
    print('in', flush=True)
    time.sleep(600)
"""


@pytest.mark.thorough
@pytest.mark.root
def test_a_lock_is_stolen_from_a_holder_that_is_silent_and_from_no_other(
    content: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, servers: Lab
) -> None:
    """The shell that holds the lock on the host is stopped: it neither releases the lock nor answers."""
    monkeypatch.setattr(inventory_lab, "SILENT_S", SILENT_S)
    name = written(content, tmp_path)
    with (
        child([sys.executable, "-c", HOLDS, name], says="in") as holder,
        contextlib.closing(labs.open_lab(name)) as lab,
    ):
        time.sleep(1.5)
        refused = pytest.raises(LabError, match=r"in this lab: one that stands still on \S+ \(wait for it")
        with refused, lab.lock(steal=True):
            pass
        notes = [f"{PORTS_DIR}/{port}.*.lock.pid" for port in ("vg0", "vd0")]
        for host, note in zip((servers.tg, servers.dut), notes, strict=True):
            host.run(["sh", "-c", f"kill -STOP $(cat {note})"])
        holder.kill()
        time.sleep(SILENT_S + 1.5)
        refused = pytest.raises(LabError, match=r"one that stands still on \S+, silent for \d+ s \(.*--steal takes")
        with refused, lab.lock():
            pass
        with lab.lock("the thief", steal=True):
            again = pytest.raises(LabError, match="a run is going on in this lab: the thief")
            with contextlib.closing(labs.open_lab(name)) as third, again, third.lock(steal=True):
                pass


@pytest.mark.thorough
@pytest.mark.root
def test_a_lock_that_a_lost_connection_let_go_is_held_again_unless_another_was_faster(
    content: dict[str, Any], tmp_path: Path
) -> None:
    name = written(content, tmp_path)
    with contextlib.closing(labs.open_lab(name)) as lab, contextlib.closing(labs.open_lab(name)) as other:
        with lab.lock("the first"):
            _lose(lab.dut)
            lab.regain()
            refused = pytest.raises(LabError, match="a run is going on in this lab: the first")
            with refused, other.lock("the second"):
                pass
            _lose(lab.tg)
            _lose(lab.dut)
            time.sleep(1)
            with other.lock("the second"), pytest.raises(LabError, match="in this lab: the second"):
                lab.regain()
        with other.lock("the second"):
            pass


RENAME = (
    "ip link set vg0 down; ip link set vg0 name was0; ip link add vg0 type veth peer name other0; ip link set was0 up"
)
BACK = "ip link del vg0; ip link set was0 down; ip link set was0 name vg0; ip link set vg0 up"


@pytest.mark.root
def test_a_server_that_comes_back_with_other_names_of_its_ports_is_left_alone(
    content: dict[str, Any], tmp_path: Path, servers: Lab
) -> None:
    """After a reboot, the measured port's name may belong to the one that carries the SSH connection."""
    with contextlib.closing(labs.open_lab(written(content, tmp_path))) as lab, lab.lock("a run"):
        lab.regain()
        servers.tg.run(["sh", "-ec", RENAME])
        try:
            with pytest.raises(LabError, match=r"tg: vg0 has MAC .*, the inventory says"):
                lab.regain()
        finally:
            servers.tg.run(["sh", "-ec", BACK])
        lab.regain()


def test_a_port_that_has_another_name_after_a_reboot_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory_lab.InventoryLab, "_reach", lambda _self, name, _machine: LocalHost(name))
    names = {"00:15:4d:00:00:01": "eth0", "00:15:4d:00:00:02": "eth1"}
    monkeypatch.setattr(inventory_lab, "find_port", lambda _host, wanted: Port(names[wanted.mac], "ixgbe", ()))
    lab = inventory_lab.InventoryLab("rack.yaml", Inventory.model_validate(FILE))
    lab.regain()
    names["00:15:4d:00:00:02"] = "eth2"
    lab.regain()  # DPDK has this one
    names["00:15:4d:00:00:01"] = "eth1"
    with pytest.raises(LabError, match="dut: the port with MAC 00:15:4d:00:00:01 was eth0 and is eth1"):
        lab.regain()


def _lose(host: Any) -> None:
    host._client.get_transport().close()


@pytest.mark.thorough
@pytest.mark.root
def test_the_doctor_starts_the_generator_that_the_inventory_names(content: dict[str, Any], tmp_path: Path) -> None:
    def said() -> Judgement:
        with labs.use_lab(written(content, tmp_path)) as lab:
            return doctor._generator(lab)

    assert (said().verdict, said().found) == (
        "ok",
        "xdpgen starts; the port does not stamp frames on sending (xsk-features: none)",
    )
    with labs.use_lab(written(content, tmp_path)) as lab, lab.lock("a run"):
        assert "not tried: a run is going on in this lab: a run" in said().found
    content["tg"]["generator"] = {"kind": "moongen", "path": "/no/where", "ports": [0]}
    missing = said()
    assert missing.verdict == "missing", missing
    assert "no MoonGen in /no/where" in missing.found or "needs two CPUs" in missing.found


@pytest.mark.root
@pytest.mark.parametrize(
    ("interface", "words"),
    [
        ({"name": "vd0", "mac": "02:00:00:00:00:99"}, r"vd0 has MAC .*02:00:00:00:00:99"),
        ({"name": "nosuch0"}, "no interface nosuch0"),
        ({"pci": "ffff:00:00.0"}, "no PCI device ffff:00:00.0"),
    ],
)
def test_a_port_that_is_not_the_inventorys_is_refused(
    content: dict[str, Any], interface: dict[str, str], words: str, tmp_path: Path
) -> None:
    content["dut"]["interface"] = {"mac": content["dut"]["interface"]["mac"], **interface}
    with pytest.raises(LabError, match=words):
        _ = labs.open_lab(written(content, tmp_path)).dut_interface


@pytest.mark.root
def test_one_machine_is_not_two(content: dict[str, Any], tmp_path: Path) -> None:
    content["arrangement"] = "hosts"
    lab = labs.open_lab(written(content, tmp_path))
    with contextlib.closing(lab), pytest.raises(LabError, match="arrangement hosts, but dut and tg are one machine"):
        _ = (lab.dut, lab.tg)


@pytest.mark.root
def test_a_proxy_that_is_not_there_is_said(content: dict[str, Any], tmp_path: Path) -> None:
    content["dut"]["proxy"] = ["/no/such/proxy"]
    with pytest.raises(HostError, match=r"proxy `/no/such/proxy`: No such file"):
        _ = labs.open_lab(written(content, tmp_path)).dut


# --- without a host ---


PORT = "/sys/bus/pci/devices/0000:3b:00.0"


def test_a_port_that_dpdk_has_is_known_by_its_pci_address() -> None:
    wanted = load_like(pci="0000:3b:00.0")
    driver = f"readlink {PORT}/driver"
    host = Played({f"ls {PORT}/": "driver\n", driver: "../../../bus/pci/drivers/vfio-pci\n"})
    host.files[f"{PORT}/local_cpulist"] = "8-11,20\n"
    port = find_port(host, wanted)  # type: ignore[arg-type]
    assert (port.name, port.near_cpus) == ("0000:3b:00.0", (8, 9, 10, 11, 20))
    host.commands[driver] = "../../../bus/pci/drivers/pcieport\n"
    with pytest.raises(LabError, match=r"no interface of 0000:3b:00\.0, which pcieport drives"):
        find_port(host, wanted)  # type: ignore[arg-type]
    host.commands.pop(driver)
    with pytest.raises(LabError, match=r"has no interface \(driver: none\)"):
        find_port(host, wanted)  # type: ignore[arg-type]


LINK = json.dumps([{"ifindex": 3, "ifname": "eth5", "address": "00:15:4d:00:00:01"}])


def test_the_interface_of_a_virtio_device_is_one_folder_deeper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory_checks, "refuse_ssh_route", lambda *_: None)
    virtio = {f"ls {PORT}/": "class driver virtio0\n", f"ls {PORT}/virtio0/net/": "eth5\n"}
    host = Played(virtio | {"ip -j -d link show dev eth5": LINK, "ethtool -i eth5": "driver: virtio_net\n"})
    port = find_port(host, load_like(pci="0000:3b:00.0"))  # type: ignore[arg-type]
    assert (port.name, port.driver) == ("eth5", "virtio_net")


def test_of_several_interfaces_of_a_card_the_mac_tells_which(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another port of the card, or representors of a port in switchdev mode."""
    monkeypatch.setattr(inventory_checks, "refuse_ssh_route", lambda *_: None)
    host = Played({f"ls {PORT}/": "net\n", f"ls {PORT}/net/": "eth4 eth5\n", "ip -j -d link show dev eth5": LINK})
    with pytest.raises(LabError, match="several ports: eth4, eth5"):
        find_port(host, load_like(pci="0000:3b:00.0"))  # type: ignore[arg-type]
    host.files["/sys/class/net/eth5/address"] = "00:15:4d:00:00:01\n"
    assert find_port(host, load_like(pci="0000:3b:00.0")).name == "eth5"  # type: ignore[arg-type]


def load_like(**interface: str) -> Any:
    return Inventory.model_validate(
        changed("dut", "interface", to={"mac": "00:15:4d:00:00:01", **interface})
    ).dut.interface


def test_the_ports_own_mac_counts_not_the_one_it_was_given() -> None:
    link = {"ifname": "eth0", "address": "02:00:00:00:00:01", "permaddr": "00:15:4d:00:00:01"}
    refuse_wrong_mac(Played(), link, "00:15:4d:00:00:01")  # type: ignore[arg-type]
    with pytest.raises(LabError):
        refuse_wrong_mac(Played(), link, "02:00:00:00:00:01")  # type: ignore[arg-type]


def test_cpu_lists() -> None:
    assert _cpu_list("0-2,7,9-10") == (0, 1, 2, 7, 9, 10)
    assert _cpu_list("") == ()


@pytest.mark.root
def test_without_root_everything_goes_through_sudo(servers: Lab) -> None:
    """With a sudo of three lines on the host: commands, files and the end of a process go through it."""
    servers.dut.put(b'#!/bin/sh\nshift 2\necho "$1" >>/tmp/sudo.log\nexec "$@"\n', "/tmp/bin/sudo", mode=0o755)
    plain = servers.dut
    servers.dut.run(["mount", "--bind", "/tmp/bin", "/usr/local/sbin"])
    try:
        host = SudoHost("dut", plain._address)  # type: ignore[attr-defined]
        host.put(b"data", "/tmp/deep/er/file", mode=0o640)
        assert host.get("/tmp/deep/er/file") == b"data"
        assert host.run(["stat", "-c", "%a", "/tmp/deep/er/file"]).text == "640\n"
        with pytest.raises(HostError, match="cannot read /nowhere"):
            host.get("/nowhere")
        process = host.start(["sh", "-c", "echo up; exec sleep 3600.5"], deadline_s=20)
        assert process.read_line(5) == "up"
        process.kill()
        process.wait(5)
        assert host.run(["pgrep", "-f", "^sleep 3600.5"], check=False).exit_code == 1
        assert set(plain.get("/tmp/sudo.log").decode().split()) == {"sh"}
        host.close()
    finally:
        plain.run(["umount", "/usr/local/sbin"])


def test_every_key_says_what_it_means() -> None:
    schema = Inventory.model_json_schema()
    parts = {"Inventory": schema, **schema["$defs"]}
    assert len(parts) == 5
    missing = [
        f"{name}.{key}"
        for name, part in parts.items()
        for key, value in part["properties"].items()
        if not value.get("description")
    ]
    assert missing == []
