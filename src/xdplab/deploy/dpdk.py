"""The TG's port under DPDK: hugepages, binding to a user-space driver (vfio-pci), and giving it back to the kernel."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from xdplab.deploy.device import Snapshot, restore, snapshot
from xdplab.deploy.settings_nic import SETTINGS
from xdplab.deploy.watchdog import restore_lines, script_path
from xdplab.errors import HostError, UnsupportedError
from xdplab.hosts import Host

if TYPE_CHECKING:
    from xdplab.deploy.guarded import DpdkPort

SYSFS = "/sys"

SHARING_DRIVERS = frozenset({"mlx5_core", "mlx4_core", "mana"})
"""Drivers that stay bound: DPDK shares these cards with the kernel, and could not use them with another driver."""


@dataclass(frozen=True)
class DpdkState:
    """The driver of a PCI device ("" none), its driver_override ("" none), and 2-MiB hugepages.

    ``interfaces`` are the settings of its kernel interfaces before DPDK takes it: the driver makes new ones afterwards.
    """

    pci: str
    driver: str
    override: str
    hugepages: int
    interfaces: tuple[Snapshot, ...] = field(default=(), compare=False)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> DpdkState:
        """Read the result of `asdict`."""
        return cls(**{**data, "interfaces": tuple(Snapshot.from_json(one) for one in data["interfaces"])})


def read_state(host: Host, pci: str, *, sysfs: str = SYSFS) -> DpdkState:
    """Return the state of a PCI device. Raises HostError if there is none at that address."""
    device = f"{sysfs}/bus/pci/devices/{pci}"
    if not host.run(["test", "-d", device], check=False).ok:
        raise HostError(f"{host.name}: no PCI device {pci}", remedy="`lspci -D` lists them")
    driver = host.run(["readlink", f"{device}/driver"], check=False).text.strip()
    override = host.run(["cat", f"{device}/driver_override"]).text.strip()
    pages = host.run(["cat", _pages(sysfs)], check=False).text.strip()
    return DpdkState(pci, PurePosixPath(driver).name, "" if override == "(null)" else override, int(pages or 0))


def set_state(host: Host, wanted: DpdkState, *, sysfs: str = SYSFS) -> DpdkState:
    """Bring a device into a state and return its former state. Raises UnsupportedError if that fails.

    Setting the current state changes nothing, so restoring twice is harmless.
    """
    before = read_state(host, wanted.pci, sysfs=sysfs)
    if before.hugepages != wanted.hugepages:
        _write(host, _pages(sysfs), str(wanted.hugepages))
    if (before.driver, before.override) != (wanted.driver, wanted.override):
        _bind(host, before, wanted, f"{sysfs}/bus/pci")
    now = read_state(host, wanted.pci, sysfs=sysfs)
    if now != wanted:
        raise UnsupportedError(
            f"{host.name}: {_describe(now)} instead of the requested {_describe(wanted)}",
            remedy="hugepages need free memory, vfio-pci an IOMMU: `dmesg` on that host says which",
        )
    return before


def _bind(host: Host, before: DpdkState, wanted: DpdkState, bus: str) -> None:
    """Unbind, then let the kernel probe with the override set: no driver gets any other device."""
    if wanted.driver:
        host.run(["modprobe", wanted.driver], check=False)  # it may be built in: the binding below decides
    if before.driver:
        _write(host, f"{bus}/drivers/{before.driver}/unbind", wanted.pci)
    _write(host, f"{bus}/devices/{wanted.pci}/driver_override", wanted.override or "\n")
    if wanted.driver:
        _write(host, f"{bus}/drivers_probe", wanted.pci)


def _write(host: Host, path: str, text: str) -> None:
    done = host.run(["tee", path], stdin=text.encode(), check=False)
    if not done.ok:
        raise UnsupportedError(f"{host.name}: {path}: {done.error_text}")


def _pages(sysfs: str) -> str:
    return f"{sysfs}/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"


def _describe(state: DpdkState) -> str:
    return f"{state.pci} has driver {state.driver or 'none'} and {state.hugepages} hugepages"


_SCRIPT = """\
#!/bin/sh
# The port {pci} as it was: written by xdplab before it gave it to DPDK. Running it twice is harmless.
bus={bus} pci={pci} driver={driver}
now=$(readlink "$bus/devices/$pci/driver"); now=${{now##*/}}
if [ "$now" != "$driver" ]; then
    [ -z "$now" ] || printf %s "$pci" | tee "$bus/drivers/$now/unbind"
    printf '%s\\n' {override} | tee "$bus/devices/$pci/driver_override"
    [ -z "$driver" ] || printf %s "$pci" | tee "$bus/drivers_probe"
fi >/dev/null
printf %s {pages} | tee {pages_file} >/dev/null
"""
_AGAIN = """\
for again in 1 2 3 4 5 6 7 8 9 10; do
    [ -e "$bus/devices/$pci/net/"{name} ] && break
    sleep 1
done
"""
APPEARS_S = 10.0
"""Seconds in which a driver that has a port again makes its interface, and udev gives it its name."""
LINK_S = 20.0
"""Seconds in which a new interface has a link: drivers show pause frames as the two ends have agreed on them."""


def _script(before: DpdkState, sysfs: str) -> str:
    """Return the script that restores a port if the controller is gone (`watchdog`)."""
    again = (
        _AGAIN.format(name=shlex.quote(one.interface)) + restore_lines(one.interface, one.values, SETTINGS)
        for one in before.interfaces
    )
    port = _SCRIPT.format(
        bus=shlex.quote(f"{sysfs}/bus/pci"),
        pci=shlex.quote(before.pci),
        driver=shlex.quote(before.driver),
        override=shlex.quote(before.override),
        pages=before.hugepages,
        pages_file=shlex.quote(_pages(sysfs)),
    )
    return port + "".join(again)


def take(host: Host, port: DpdkPort, state_dir: str, *, sysfs: str = SYSFS) -> DpdkState:
    """Give a port to DPDK and return its former state, with the settings of its interface; a copy stays on the host
    until `give_back`.

    The number of pages is never lowered. A card of SHARING_DRIVERS keeps its driver. Raises UnsupportedError with the
    kernel's words.
    """
    pci = port.pci
    before = _kept(host, pci, state_dir) or _with_interfaces(host, read_state(host, pci, sysfs=sysfs), sysfs)
    host.put(_script(before, sysfs).encode(), script_path(pci, state_dir))
    host.put(json.dumps(asdict(before)).encode(), _path(pci, state_dir))
    kept = before.driver in SHARING_DRIVERS
    bound = (before.driver, before.override) if kept else (port.driver, port.driver)
    set_state(host, DpdkState(pci, *bound, max(port.hugepages, before.hugepages)), sysfs=sysfs)
    return before


def give_back(host: Host, pci: str, state_dir: str, *, sysfs: str = SYSFS) -> DpdkState | None:
    """Restore the state that `take` found, verify, and delete it; None if nothing is stored. Repeating it is
    harmless."""
    kept = _kept(host, pci, state_dir)
    if kept is not None:
        set_state(host, kept, sysfs=sysfs)
        for one in kept.interfaces:
            _await_interface(host, f"{sysfs}/bus/pci/devices/{pci}/net/{one.interface}")
            _restore_new(host, one)
        host.run(["rm", "-f", _path(pci, state_dir), script_path(pci, state_dir)])
    return kept


def _with_interfaces(host: Host, state: DpdkState, sysfs: str) -> DpdkState:
    """Add the settings of the device's interfaces, but not those of its interrupts: a driver gets other ones."""
    if state.driver in SHARING_DRIVERS:
        return state
    names = host.run(["ls", f"{sysfs}/bus/pci/devices/{state.pci}/net/"], check=False).text.split()
    taken = (snapshot(host, name).of_device() for name in names)
    lasting = (one.only(key for key in one.values if not key.startswith("irq.")) for one in taken)
    return replace(state, interfaces=tuple(lasting))


def _await_interface(host: Host, path: str) -> None:
    until = time.monotonic() + APPEARS_S
    while not host.run(["test", "-e", path], check=False).ok:
        if time.monotonic() > until:
            raise HostError(f"{host.name}: no {path}: the driver has not made it again", remedy="look into `dmesg`")
        time.sleep(0.2)


def _restore_new(host: Host, before: Snapshot) -> None:
    until = time.monotonic() + LINK_S
    while True:
        try:
            restore(host, before.interface, before)
            return
        except HostError:
            if time.monotonic() > until:
                raise
        time.sleep(1.0)


def _kept(host: Host, pci: str, state_dir: str) -> DpdkState | None:
    kept = host.run(["cat", _path(pci, state_dir)], check=False)
    return DpdkState.from_json(json.loads(kept.text)) if kept.ok else None


def _path(pci: str, state_dir: str) -> str:
    return str(PurePosixPath(state_dir) / f"dpdk-{pci}.json")
