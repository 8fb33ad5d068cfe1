"""Is this NIC the one that is meant, and may it be cut off? Asked of a server before anything on it is changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from xdplab.errors import HostError, LabError
from xdplab.formats.ethtool import most_queues, parse_channels
from xdplab.hosts import Host
from xdplab.labs.servers.inventory import Interface
from xdplab.labs.servers.ssh_route import refuse_ssh_route

VIRTUAL_DRIVERS = frozenset({"veth", "tun", "tap", "virtio_net", "bridge", "dummy", "netdevsim"})
DPDK_DRIVERS = frozenset({"vfio-pci", "uio_pci_generic", "igb_uio"})


@dataclass(frozen=True)
class Port:
    """A NIC port as found. ``name`` is its PCI address where DPDK has it: then the kernel knows no interface."""

    name: str
    driver: str
    queues: int
    near_cpus: tuple[int, ...]

    @property
    def with_dpdk(self) -> bool:
        return self.driver in DPDK_DRIVERS

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
    return Port(name, _driver(host, name), _queues(host, name), _near_cpus(host, name))


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
    return Port(pci, driver, 1, _cpu_list(_text(host, f"{path}/local_cpulist")))


def _link(host: Host, name: str) -> dict[str, Any]:
    shown = host.run(["ip", "-j", "-d", "link", "show", "dev", name], check=False)
    if not shown.ok:
        raise LabError(f"{host.name}: no interface {name}: {shown.error_text}", remedy="`ip -br link` lists them")
    return shown.row("ifindex", "ifname")


def _driver(host: Host, name: str) -> str:
    lines = host.run(["ethtool", "-i", name], check=False).text.splitlines()
    return next((line.partition(": ")[2] for line in lines if line.startswith("driver: ")), "unknown")


def _queues(host: Host, name: str) -> int:
    """Return the most queues the port can have both ways; 1 where its driver has none to set."""
    answer = host.run(["ethtool", "-l", name], check=False)
    if not answer.ok:
        return 1
    return most_queues(parse_channels(answer.stdout))


def _near_cpus(host: Host, name: str) -> tuple[int, ...]:
    return _cpu_list(_text(host, f"/sys/class/net/{name}/device/local_cpulist"))


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
