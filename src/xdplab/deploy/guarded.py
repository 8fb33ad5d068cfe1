"""A device held by a session: its state is stored and a watchdog guards it, until it is restored."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from xdplab.deploy.device import Snapshot, remember, restore_remembered, settle
from xdplab.deploy.watchdog import watch
from xdplab.deploy.xdp import await_nothing_attached
from xdplab.errors import HostChangedError, HostError
from xdplab.hosts import Host
from xdplab.hosts.held import Held
from xdplab.lazy import lazy

dpdk = lazy("xdplab.deploy.dpdk")

BOOT_ID = "/proc/sys/kernel/random/boot_id"

# The kernel distributes interrupts again at each boot; a run sets the sending masks by itself.
_OF_ONE_BOOT = ("irq", "xps")


def _watched(watchdog: Held | None) -> bool:
    """Return whether a watchdog lives; a dead one is dismissed."""
    if watchdog is None:
        return False
    try:
        watchdog.require()
    except HostError:
        watchdog.dismiss()
        return False
    return True


class GuardedDevice:
    """One end of a link. `take` may be called again, after its connection was lost."""

    def __init__(self, host: Host, interface: str, state_dir: str) -> None:
        self.host, self.interface = host, interface
        self._state_dir = state_dir
        self._before: Snapshot | None = None
        self._machine = ""
        self._watchdog: Held | None = None

    def take(self) -> bool:
        """Store the device's state and start a watchdog. Returns whether the host has rebooted since the last time.

        Does nothing if the watchdog lives. Raises HostChangedError if the host came back changed.
        """
        if _watched(self._watchdog):
            return False
        machine = self.host.run(["cat", "/proc/version", "/proc/cmdline"]).text
        settle_it = self._settle if self._before is None else lambda: None
        now = remember(self.host, self.interface, self._state_dir, if_kept=settle_it)
        before, self._before = self._before or now, now
        self._require_same(before, now, self._machine or machine, machine)
        self._machine = machine
        self._watchdog = watch(self.host, self.interface, self._state_dir)
        return before.identity != now.identity

    def _settle(self) -> None:
        """Restore the settings that a dead run left, or name them in an error: the next run would measure with them."""
        with contextlib.suppress(HostError):  # a setting that an attached program blocks is named
            await_nothing_attached(self.host, self.interface)
        settle(self.host, self.interface, self._state_dir)

    def _require_same(self, before: Snapshot, now: Snapshot, old: str, new: str) -> None:
        keys = before.values.keys() | now.values.keys()
        differing = [
            f"{key} was {before.values.get(key)} and is {now.values.get(key)}"
            for key in sorted(keys)
            if before.values.get(key) != now.values.get(key) and key.partition(".")[0] not in _OF_ONE_BOOT
        ]
        if old != new:
            differing.insert(0, f"its kernel was `{' '.join(old.split())}` and is `{' '.join(new.split())}`")
        if differing:
            raise HostChangedError(
                f"{self.host.name}: it came back changed: {self.interface}: {'; '.join(differing)}",
                remedy="restore its former state, then `xdplab resume`; or begin a new run",
            )

    @property
    def before(self) -> Snapshot:
        """The device's state before the session. Raises HostError if the session does not hold the device."""
        if self._before is None:
            raise HostError(f"{self.host.name}: {self.interface} is not held by this session", remedy="take it first")
        return self._before

    def require(self) -> None:
        """Raise HostError unless the watchdog is alive: otherwise it has restored the device."""
        if self._watchdog is not None:
            self._watchdog.require()

    def put_back(self) -> None:
        """Restore the device's state from before the session.

        If that fails, the watchdog is not dismissed, but tries once more by itself.
        """
        restore_remembered(self.host, self.interface, self._state_dir)
        if self._watchdog is not None:
            self._watchdog.dismiss()


@dataclass(frozen=True)
class DpdkPort:
    """What DPDK is to have: a PCI device with this driver, and at least so many 2-MiB hugepages."""

    pci: str
    driver: str
    hugepages: int


class GuardedPort:
    """The TG's port under DPDK. `take` may be called again after its connection was lost."""

    def __init__(self, host: Host, port: DpdkPort, state_dir: str, *, sysfs: str = "/sys") -> None:
        self.host, self._port, self._state_dir, self._sysfs = host, port, state_dir, sysfs
        self._boot = ""
        self._watchdog: Held | None = None

    def take(self) -> bool:
        """Give the port to DPDK and start a watchdog. Returns whether the host has rebooted since the last time."""
        if _watched(self._watchdog):
            return False
        # The watchdog comes first: it waits until the one before it has finished restoring.
        self._watchdog = watch(self.host, self._port.pci, self._state_dir)
        dpdk.take(self.host, self._port, self._state_dir, sysfs=self._sysfs)
        before, self._boot = self._boot, self.host.run(["cat", BOOT_ID]).text
        return before not in ("", self._boot)

    def require(self) -> None:
        """Raise HostError unless the watchdog is alive: otherwise the kernel has the port again."""
        if self._watchdog is not None:
            self._watchdog.require()

    def put_back(self) -> None:
        """Give the port back to its driver; if that fails, the watchdog tries once more by itself."""
        dpdk.give_back(self.host, self._port.pci, self._state_dir, sysfs=self._sysfs)
        if self._watchdog is not None:
            self._watchdog.dismiss()


def put_all_back(held: Sequence[GuardedDevice | GuardedPort], *, at_once: bool) -> None:
    """Restore all of them, ``at_once`` or in order; raise the first error when each has been tried."""
    with ThreadPoolExecutor(None if at_once else 1) as meanwhile:
        restored = [meanwhile.submit(one.put_back) for one in held]
    for one in restored:
        one.result()
