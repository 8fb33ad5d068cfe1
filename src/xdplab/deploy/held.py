"""A device in a session's hands: its state is remembered and watched over, until it is put back."""

from __future__ import annotations

from xdplab.deploy.device import Snapshot, remember, restore_remembered
from xdplab.deploy.watchdog import Watchdog
from xdplab.errors import HostChangedError, HostError
from xdplab.hosts.base import Host

# The kernel shares interrupts out anew at each boot; a run sets the sending masks by itself.
_OF_ONE_BOOT = ("irq", "xps")


class HeldDevice:
    """One end of a link. `take` may be called again, after its connection was lost."""

    def __init__(self, host: Host, interface: str, state_dir: str) -> None:
        self.host, self.interface = host, interface
        self._state_dir = state_dir
        self._before: Snapshot | None = None
        self._machine = ""
        self._watchdog: Watchdog | None = None

    def take(self) -> bool:
        """Remember the device's state and watch over it. Returns whether the host was started anew since the last time.

        Nothing happens where the watchdog lives. Raises HostChangedError where the host came back as another one.
        """
        if self._watchdog is not None:
            try:
                self._watchdog.require()
            except HostError:
                self._watchdog.dismiss()
            else:
                return False
        machine = self.host.run(["cat", "/proc/version", "/proc/cmdline"]).text
        now = remember(self.host, self.interface, self._state_dir)
        before, self._before = self._before or now, now
        self._require_same(before, now, self._machine or machine, machine)
        self._machine = machine
        self._watchdog = Watchdog(self.host, self.interface, self._state_dir)
        return before.identity != now.identity

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
                f"{self.host.name}: it came back as another one: {self.interface}: {'; '.join(differing)}",
                remedy="have it as it was, then `xdplab resume`; or begin a new run",
            )

    def require(self) -> None:
        """Raise HostError unless the watchdog still watches: else the device has been put back."""
        if self._watchdog is not None:
            self._watchdog.require()

    def put_back(self) -> None:
        """Have the device as it was before the session.

        Where it does not return to its state, the watchdog is not dismissed: it tries once more by itself.
        """
        restore_remembered(self.host, self.interface, self._state_dir)
        if self._watchdog is not None:
            self._watchdog.dismiss()
