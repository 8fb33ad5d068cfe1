"""Labs of the kernel's own tests of drivers: `net.config` names a port of this machine, and the host it is linked to.

Its variables are those of the kernel's tools/testing/selftests/drivers/net/README.rst: NETIF, LOCAL_V4, LOCAL_V6,
REMOTE_V4, REMOTE_V6, REMOTE_TYPE (netns or ssh) and REMOTE_ARGS (the namespace, or [USER@]HOST). This machine is the
DUT, and its remote end sends.
"""

from __future__ import annotations

import getpass
import ipaddress
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xdplab.errors import LabError
from xdplab.hosts import Host, Result
from xdplab.hosts.local import LocalHost, LocalProcess
from xdplab.hosts.paramiko_alone import paramiko
from xdplab.labs.base import Arrangement
from xdplab.labs.servers.host import reach
from xdplab.labs.servers.inventory import Interface, Inventory, Machine, TrafficMachine
from xdplab.labs.servers.lab import InventoryLab
from xdplab.run.disk import reason

FILE = "net.config"
DEFAULT = ""
_KEYS = ("NETIF", "REMOTE_TYPE", "REMOTE_ARGS")
_ADDRESSES = ("REMOTE_V4", "REMOTE_V6")
_PRIVATE_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")


class NamespaceHost(LocalHost):
    """A network namespace of this machine, as `ip netns` names it."""

    def __init__(self, name: str, namespace: str) -> None:
        super().__init__(name)
        self._enter = ("ip", "netns", "exec", namespace)

    def run(self, argv: Sequence[str], *, deadline_s: float = 30.0, stdin: bytes = b"", check: bool = True) -> Result:
        return super().run([*self._enter, *argv], deadline_s=deadline_s, stdin=stdin, check=check)

    def start(self, argv: Sequence[str], *, deadline_s: float) -> LocalProcess:
        return super().start([*self._enter, *argv], deadline_s=deadline_s)


class NetConfigLab(InventoryLab):
    """A `Lab` of this machine's port and its remote end; its hosts are those of ``reached``."""

    kind = FILE

    def __init__(self, name: str, inventory: Inventory, reached: Mapping[str, Host]) -> None:
        super().__init__(name, inventory)
        self._reached = reached

    def _reach(self, name: str, machine: Machine) -> Host:
        self._made[name] = self._reached[name]
        return self._made[name]


def read_config(path: Path) -> dict[str, str]:
    """Return the variables of a file. Raises LabError for a line that sets none, and for a variable that is missing."""
    values: dict[str, str] = {}
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"lab {path}: {reason(error)}") from error
    for number, line in enumerate(lines, 1):
        for word in shlex.split(line, comments=True):
            name, equals, value = word.partition("=")
            if not equals or not name.isidentifier():
                raise LabError(f"lab {path}: line {number}: {word!r} is not NAME=VALUE")
            values[name] = value
    missing = [name for name in _KEYS if not values.get(name)]
    if not any(values.get(name) for name in _ADDRESSES):
        missing.append(" or ".join(_ADDRESSES))
    if missing:
        raise LabError(
            f"lab {path}: {', '.join(missing)} is missing",
            remedy="the kernel's tools/testing/selftests/drivers/net/README.rst says what each is",
        )
    if values["REMOTE_TYPE"] not in ("netns", "ssh"):
        raise LabError(f"lab {path}: REMOTE_TYPE={values['REMOTE_TYPE']}: it is netns or ssh")
    return values


def _server(values: Mapping[str, str]) -> Machine:
    """Return the remote host as ssh would reach it: by the user's configuration, first key and known hosts."""
    user, _, host = values["REMOTE_ARGS"].rpartition("@")
    folder = Path.home() / ".ssh"
    config = paramiko.SSHConfig()
    if (folder / "config").exists():
        config = paramiko.SSHConfig.from_path(str(folder / "config"))
    settings = config.lookup(host)
    keys = [*settings.get("identityfile", ()), *(str(folder / name) for name in _PRIVATE_KEYS)]
    key = next((key for key in keys if Path(key).exists()), None)
    if key is None:
        raise LabError(f"{host}: no private key in {folder}", remedy="`ssh-keygen`, then `ssh-copy-id`")
    user = user or settings.get("user") or getpass.getuser()
    return Machine.model_construct(
        host=settings["hostname"],
        port=int(settings.get("port", 22)),
        user=user,
        key=key,
        known_hosts=str(folder / "known_hosts"),
        sudo=user != "root",
    )


def _interface(host: Host, *, name: str | None = None, addresses: Sequence[str] = ()) -> Interface:
    """Return a host's interface of this name, or with one of these addresses. Raises LabError where it has none."""
    wanted = {ipaddress.ip_address(address) for address in addresses}
    for link in json.loads(host.run(["ip", "-j", "addr"]).text):
        local = {ipaddress.ip_address(one["local"]) for one in link.get("addr_info", ()) if "local" in one}
        if link["ifname"] == name or wanted & local:
            return Interface(name=link["ifname"], mac=link["address"])
    raise LabError(f"{host.name}: no interface {name or 'with address ' + ' or '.join(addresses)}")


def require_name(instance: str) -> None:
    """Raise LabError for a file that names no port and remote end."""
    read_config(Path(instance))


def open_lab(instance: str, _uid: int) -> NetConfigLab:
    """Return the lab of a file, with its remote end connected. Raises LabError, HostError."""
    values = read_config(Path(instance))
    dut, tg = LocalHost("dut"), _remote(values)
    remote = [values[name] for name in _ADDRESSES if values.get(name)]
    boots = {host.get("/proc/sys/kernel/random/boot_id") for host in (dut, tg)}
    local: dict[str, Any] = {"second_interface": None, "cpus": []}
    inventory = Inventory.model_construct(
        dut=Machine.model_construct(interface=_interface(dut, name=values["NETIF"]), **local),
        tg=TrafficMachine.model_construct(interface=_interface(tg, addresses=remote), **local),
        arrangement="shared" if len(boots) == 1 else "hosts",
    )
    return NetConfigLab(instance, inventory, {"dut": dut, "tg": tg})


def _remote(values: Mapping[str, str]) -> Host:
    if values["REMOTE_TYPE"] == "netns":
        return NamespaceHost("tg", values["REMOTE_ARGS"])
    return reach("tg", _server(values))


def up(instance: str, _uid: int, *, lease: bool = False) -> bool:
    """Check the file. Returns False: no lab was made."""
    require_name(instance)
    return False


def down(instance: str, _uid: int) -> bool:
    """Leave the hosts unchanged. Returns False: no lab was taken down."""
    require_name(instance)
    return False


def arrangement(instance: str) -> Arrangement:
    """Return whether the file's two ends are one machine. Raises LabError, HostError."""
    lab = open_lab(instance, 0)
    lab.close()
    return lab.arrangement
