"""Is this NIC the one that is meant, and may it be cut off? Asked of a server before anything on it is changed.

Which ports carry xdplab's SSH connection, or the default route, is asked of the server's kernel. The environment does
not say it: sudo's `env_reset` drops ``SSH_CONNECTION``. The kernel knows the parent processes of xdplab's command, the
sockets that these hold, and the addresses and routes of these sockets.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from xdplab.errors import HostError, LabError
from xdplab.hosts import Host, Result
from xdplab.hosts.local import LocalHost
from xdplab.labs.servers.inventory import Interface

VIRTUAL_DRIVERS = frozenset({"veth", "tun", "tap", "virtio_net", "bridge", "dummy", "netdevsim"})
DPDK_DRIVERS = frozenset({"vfio-pci", "uio_pci_generic", "igb_uio"})


@dataclass(frozen=True)
class Port:
    """A NIC port as found. ``name`` is its PCI address where DPDK has it: then the kernel knows no interface."""

    name: str
    driver: str
    near_cpus: tuple[int, ...]

    @property
    def virtual(self) -> bool:
        return self.driver in VIRTUAL_DRIVERS


def find_port(host: Host, wanted: Interface) -> Port:
    """Return the port an inventory means. Raises LabError for a wrong MAC and if SSH runs over it."""
    name = wanted.name or _name_of(host, str(wanted.pci), wanted.mac)
    if name is None:
        return _port_of_dpdk(host, str(wanted.pci))
    link = _link(host, name)
    name = link["ifname"]  # the inventory may have an alternative name, which /sys and the routes do not know
    refuse_wrong_mac(host, link, wanted.mac)
    refuse_ssh_route(host, name)
    near_cpus = _cpu_list(_text(host, f"/sys/class/net/{name}/device/local_cpulist"))
    return Port(name, _driver(host, name), near_cpus)


def refuse_wrong_mac(host: Host, link: dict[str, Any], wanted: str) -> None:
    """Raise LabError unless the port's own MAC is the inventory's: another card may sit in the slot now."""
    mac = str(link.get("permaddr") or link.get("address"))
    if mac != wanted:
        raise LabError(
            f"{host.name}: {link['ifname']} has MAC {mac}, the inventory says {wanted}",
            remedy="look which port is cabled (`ip -d link`), then correct `mac` or `pci`",
        )


def _name_of(host: Host, pci: str, mac: str) -> str | None:
    """Return the interface of a PCI device, or None if a DPDK driver has it. Among several, the MAC tells which.

    A virtio device's interface is one folder deeper. A port in switchdev mode has its representors beside it.
    """
    folder = f"/sys/bus/pci/devices/{pci}/"
    listing = host.run(["ls", folder], check=False)
    if not listing.ok:
        raise LabError(f"{host.name}: no PCI device {pci}", remedy="`lspci -D | grep -i ether` lists them")
    folders = [folder, *(f"{folder}{entry}/" for entry in listing.text.split() if entry.startswith("virtio"))]
    names = [name for one in folders for name in host.run(["ls", f"{one}net/"], check=False).text.split()]
    if len(names) > 1:
        names = [name for name in names if mac in _text(host, f"/sys/class/net/{name}/address")] or names
    if len(names) > 1:
        raise LabError(
            f"{host.name}: {pci} has several ports: {', '.join(names)}", remedy="name the one: `name:`, not `pci:`"
        )
    return names[0] if names else None


def _port_of_dpdk(host: Host, pci: str) -> Port:
    path = f"/sys/bus/pci/devices/{pci}"
    driver = host.run(["readlink", f"{path}/driver"], check=False).text.strip().rpartition("/")[2]
    if not driver:
        raise LabError(f"{host.name}: {pci} has no interface (driver: none)", remedy="load its driver")
    if driver not in DPDK_DRIVERS:
        raise LabError(
            f"{host.name}: no interface of {pci}, which {driver} drives, is found in its net/ or virtio*/net/",
            remedy="name the port: `name:`, not `pci:` (`ip -br link` lists them)",
        )
    return Port(pci, driver, _cpu_list(_text(host, f"{path}/local_cpulist")))


def _link(host: Host, name: str) -> dict[str, Any]:
    shown = host.run(["ip", "-j", "-d", "link", "show", "dev", name], check=False)
    if not shown.ok:
        raise LabError(f"{host.name}: no interface {name}: {shown.error_text}", remedy="`ip -br link` lists them")
    return shown.row("ifindex", "ifname")


def _driver(host: Host, name: str) -> str:
    lines = host.run(["ethtool", "-i", name], check=False).text.splitlines()
    return next((line.partition(": ")[2] for line in lines if line.startswith("driver: ")), "unknown")


def _text(host: Host, path: str) -> str:
    try:
        return host.get(path).decode().strip()
    except HostError:
        return ""


def _cpu_list(text: str) -> tuple[int, ...]:
    """Return the CPUs of the kernel's way to list them: ``0-3,8``."""
    ends = [part.partition("-") for part in text.split(",") if part]
    return tuple(cpu for first, _, last in ends for cpu in range(int(first), int(last or first) + 1))


def online_cpus(host: Host, near: tuple[int, ...]) -> tuple[int, ...]:
    """Return the host's online CPUs, those near the NIC first."""
    online = _cpu_list(_text(host, "/sys/devices/system/cpu/online")) or (0,)
    return tuple(sorted(online, key=lambda cpu: (cpu not in near, cpu)))


# Each process above this one: its name, and its open files (sockets by their inode).
_ANCESTORS = """
pid=$$
while [ "$pid" -gt 0 ]; do
    echo "process $(cat "/proc/$pid/comm")"
    ls -l "/proc/$pid/fd" || echo closed
    pid=$(awk '$1 == "PPid:" { print $2 }' "/proc/$pid/status")
done 2>/dev/null
"""
# The devices below $1. No link leads from a port of Open vSwitch's own (its bridge) to the cards of its datapath, nor
# from a virtual function to the card's first one.
_LOWERS = """
ls -d "/sys/class/net/$1"/lower_* "/sys/class/net/$1/device/physfn/net"/*
ethtool -i "$1" | grep -qx "driver: openvswitch" && ls -d /sys/class/net/ovs-system/lower_*
"""
_SERVERS = ("sshd", "dropbear")
_REMEDY = "measure on another port than the one the host is managed by"


@dataclass(frozen=True)
class Connection:
    """A TCP connection as its host sees it: addresses without a port; ``zone`` is a link-local address's device."""

    local: str
    peer: str
    zone: str = ""


def refuse_ssh_route(host: Host, name: str) -> None:
    """Raise LabError if a change of port ``name`` could cut the connection. That is: it carries the SSH connection or
    the default route, or shares a port with a device that does: as a member of the same bond or bridge, as the port
    below a VLAN, or as a VLAN or a virtual function on the same port, or as one that may carry a tunnel's packets.
    """
    wanted = _with_lowers(host, name)
    for what, devices in (("SSH connection", _devices_of_ssh(host)), ("default route", _devices_of_default(host))):
        if shared := next((device for device in sorted(devices) if wanted & _with_carriers(host, device)), None):
            over = "" if shared == name else f" (by way of {shared})"
            raise LabError(
                f"{host.name}: {name} carries the {what}{over}: its first queue change would cut us off", remedy=_REMEDY
            )


def _devices_of_ssh(host: Host) -> set[str]:
    return {device for connection in ssh_connections(host) for device in _devices_of(host, connection)}


def ssh_connections(host: Host) -> set[Connection]:
    """Return the TCP connections of the parent processes of a command; none if their sshd is behind a Unix socket.

    Raises LabError if that cannot be seen.
    """
    output = host.run(["sh", "-c", _ANCESTORS], check=False).text
    parts = [part.partition("\n") for part in output.split("process ")[1:]]
    inodes = {inode for _, _, files in parts for inode in re.findall(r"socket:\[(\d+)\]", files)}
    connections = {connection for inode, connection in _established(host) if inode in inodes}
    seen = any(name.startswith(_SERVERS) and "closed\n" not in files for name, _, files in parts)
    if not connections and not seen and not isinstance(host, LocalHost):  # this machine is reached without
        raise LabError(
            f"{host.name}: it cannot be told which port carries the SSH connection: no sshd is seen above our commands "
            f"(but {', '.join(name for name, _, _ in parts) or 'nothing'})",
            remedy="log in as root or with sudo, to an sshd of the same PID namespace, without hidepid on /proc",
        )
    return connections


def _established(host: Host) -> list[tuple[str, Connection]]:
    """Return the inode and the addresses of each established TCP socket."""
    listed = host.run(["ss", "-Htne", "state", "established"]).text
    connections = []
    for line in listed.splitlines():
        if inode := re.search(r"\bino:(\d+)", line):
            local, peer = (_address(word) for word in line.split()[2:4])
            connections.append((inode[1], Connection(local[0], peer[0], local[1] or peer[1])))
    return connections


def _address(word: str) -> tuple[str, str]:
    """Return address and zone; a word is ``10.0.0.2:22``, ``[::ffff:10.0.0.2]:22`` or ``[fe80::1%eth0]:22``."""
    text, _, zone = re.sub(r"[\[\]]", "", word.rpartition(":")[0]).partition("%")
    address = ipaddress.ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address), zone


def _devices_of(host: Host, connection: Connection) -> set[str]:
    """Return the devices of a connection: the one with its own address, and the one that its answers leave by."""
    links = host.run(["ip", "-j", "addr", "show"]).rows("ifname")
    devices = {
        link["ifname"]
        for link in links
        if any(address.get("local") == connection.local for address in link.get("addr_info", []))
    }
    if connection.zone:
        return {connection.zone}
    route = ["ip", "-j", "route", "get", connection.peer, "from", connection.local]
    return devices | _hops(_rows_if_any(host.run(route, check=False)))


def _rows_if_any(listed: Result) -> list[dict[str, Any]]:
    """`ip route` prints nothing if there is no route."""
    return listed.rows() if listed.text.strip() else []


def _devices_of_default(host: Host) -> set[str]:
    devices: set[str] = set()
    for family in ("-4", "-6"):
        listed = host.run(["ip", "-j", family, "route", "show", "table", "all", "default"], check=False)
        routes = [route for route in _rows_if_any(listed) if route.get("type", "unicast") == "unicast"]
        devices |= _hops(routes)
    return devices


def _hops(routes: Iterable[dict[str, Any]]) -> set[str]:
    hops = [hop for route in routes for hop in (route, *route.get("nexthops", []))]
    return {hop["dev"] for hop in hops if "dev" in hop}


def _with_lowers(host: Host, device: str) -> set[str]:
    """Return a device and all devices below it: the ports of a bond or bridge, the port of a VLAN or of a VF."""
    listed = host.run(["sh", "-c", _LOWERS, "sh", device], check=False).text
    lowers = {line.rpartition("/")[2].removeprefix("lower_") for line in listed.split()} - {device}
    return {device}.union(*(_with_lowers(host, lower) for lower in lowers))


_NO_TUNNELS = ("bond", "bridge", "dummy", "ifb", "netkit", "openvswitch", "team", "veth", "vrf")
"""Kinds of devices whose frames go through no other device than those that /sys names as lower ones."""


def _with_carriers(host: Host, device: str) -> set[str]:
    """Return a device, all devices below it, and those that may carry the packets of a tunnel among them."""
    devices: set[str] = set()
    waiting = {device}
    while waiting:
        below = _with_lowers(host, waiting.pop()) - devices
        devices |= below
        waiting |= {carrier for one in below for carrier in _carriers(host, one)} - devices
    return devices


def _carriers(host: Host, device: str) -> set[str]:
    """Return the devices by which a tunnel's packets may leave: by the route to its peer, else by any route.

    The peers of some kinds (OpenVPN's tun, WireGuard) are not known to `ip`.
    """
    (link,) = _rows_if_any(host.run(["ip", "-j", "-d", "link", "show", "dev", device], check=False)) or [{}]
    about = link.get("linkinfo", {})
    kind = about.get("info_kind")
    if kind in _NO_TUNNELS or (kind is None and link.get("link_type", "ether") in ("ether", "infiniband", "loopback")):
        return set()
    if len(_with_lowers(host, device)) > 1:
        return set()
    fields = about.get("info_data", {})
    if peer := next((fields[name] for name in ("remote", "remote6") if _is_one_host(fields.get(name))), None):
        return _hops(_rows_if_any(host.run(["ip", "-j", "route", "get", peer], check=False)))
    routes = [
        route
        for family in ("-4", "-6")
        for route in _rows_if_any(host.run(["ip", "-j", family, "route", "show", "table", "all"], check=False))
        if route.get("type", "unicast") == "unicast" and route.get("dst") != _ON_EACH_LINK
    ]
    return _hops(routes) - {device, "lo"}


_ON_EACH_LINK = "fe80::/64"


def _is_one_host(address: object) -> bool:
    try:
        ip = ipaddress.ip_address(str(address))
    except ValueError:  # absent, or "any"
        return False
    return not (ip.is_multicast or ip.is_unspecified)
