"""Settings that real NICs and servers have: coalescing, pause frames, RSS, interrupt affinity, the CPUs' governor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from xdplab.deploy.settings import Command, Value, Values, ethtool, on_off, to_file, tool
from xdplab.formats.ethtool import rss_spread, rss_table
from xdplab.hosts.base import Host

_CPUFREQ = "/sys/devices/system/cpu"


@dataclass(frozen=True)
class Coalescing:
    """How long the NIC collects frames before it interrupts: µs, frames, and whether it adapts these by itself."""

    prefix: str = "coalesce"

    def read(self, host: Host, interface: str) -> Values:
        return self.parse(tool(host, ["ethtool", "-c", interface]))

    @staticmethod
    def parse(text: str) -> Values:
        """Return the values of ``ethtool -c``, without those that the driver does not have (``n/a``)."""
        adaptive = re.search(r"^Adaptive RX: (on|off|n/a)\s+TX: (on|off|n/a)$", text, re.MULTILINE)
        words = zip(("adaptive-rx", "adaptive-tx"), adaptive.groups() if adaptive else (), strict=False)
        values: Values = {name: word == "on" for name, word in words if word != "n/a"}
        found = re.findall(r"^([a-z-]+):[ \t]+(\d+|on|off)$", text, re.MULTILINE)
        # Shown as rx-frame-low, set as rx-frames-low.
        named = ((name.replace("-frame-", "-frames-"), word) for name, word in found)
        return values | {name: int(word) if word.isdigit() else word == "on" for name, word in named}

    def commands(self, interface: str, values: Mapping[str, Value]) -> list[Command]:
        pairs = ((name, on_off(value) if isinstance(value, bool) else str(value)) for name, value in values.items())
        return ethtool("-C", interface, [word for pair in pairs for word in pair])


@dataclass(frozen=True)
class Pause:
    """Ethernet flow control: with it a slow DUT slows the sender instead of losing frames."""

    prefix: str = "pause"

    def read(self, host: Host, interface: str) -> Values:
        return self.parse(tool(host, ["ethtool", "-a", interface]))

    @staticmethod
    def parse(text: str) -> Values:
        """Return what ``ethtool -a`` shows."""
        names = {"Autonegotiate": "autoneg", "RX": "rx", "TX": "tx"}
        found = re.findall(r"^(Autonegotiate|RX|TX):\s+(on|off)$", text, re.MULTILINE)
        return {names[label]: word == "on" for label, word in found}

    def commands(self, interface: str, values: Mapping[str, Value]) -> list[Command]:
        return ethtool("-A", interface, [word for name, value in values.items() for word in (name, on_off(value))])


@dataclass(frozen=True)
class Rss:
    """Receive-side scaling: the table and the key.

    A table is ``equal``: the number of queues over which it spreads evenly; or ``weight``: how many entries each queue
    has, in the order of the queues, as ``ethtool -X weight`` writes them. ethtool shows a table in any other order, but
    cannot set it.
    """

    prefix: str = "rss"

    def read(self, host: Host, interface: str) -> Values:
        return self.parse(tool(host, ["ethtool", "-x", interface]))

    @staticmethod
    def parse(text: str) -> Values:
        """Return the values of ``ethtool -x``. A table that cannot be written back is left out."""
        key = re.search(r"^((?:[0-9a-f]{2}:){3,}[0-9a-f]{2})$", text, re.MULTILINE)
        return rss_spread(rss_table(text)) | ({"hkey": key[1]} if key else {})

    def commands(self, interface: str, values: Mapping[str, Value]) -> list[Command]:
        every = values.items()
        return [one for name, value in every for one in ethtool("-X", interface, [name, *str(value).split()])]


@dataclass(frozen=True)
class IrqAffinity:
    """Which CPUs serve each of the device's interrupts, by interrupt number: ``irq.48`` is ``0-3``."""

    prefix: str = "irq"

    def read(self, host: Host, interface: str) -> Values:
        script = 'for i in $(ls "/sys/class/net/$1/device/msi_irqs" 2>/dev/null); do '
        script += 'read -r cpus <"/proc/irq/$i/smp_affinity_list" && echo "$i $cpus"; done; true'
        lines = tool(host, ["sh", "-c", script, "sh", interface]).splitlines()
        return {number: cpus for number, _, cpus in (line.partition(" ") for line in lines)}

    def commands(self, interface: str, values: Mapping[str, Value]) -> list[Command]:
        return [to_file(f"/proc/irq/{number}/smp_affinity_list", str(cpus)) for number, cpus in values.items()]


@dataclass(frozen=True)
class Napi:
    """Whether the device receives in its own threads, which the scheduler may move to another CPU."""

    prefix: str = "napi"

    def read(self, host: Host, interface: str) -> Values:
        # Absent before kernel 5.12; the kernel refuses a write for a device without NAPI.
        found = host.run(["cat", f"/sys/class/net/{interface}/threaded"], check=False)
        return {"threaded": found.text.strip() == "1"} if found.ok else {}

    def commands(self, interface: str, values: Mapping[str, Value]) -> list[Command]:
        return [to_file(f"/sys/class/net/{interface}/threaded", str(int(value))) for value in values.values()]


@dataclass(frozen=True)
class Governor:
    """The governor of each CPU. It belongs to the machine, not to the interface, but a run sets and restores it too."""

    prefix: str = "governor"

    def read(self, host: Host, interface: str) -> Values:
        # grep's exit code only says whether there is any: a guest has no governor.
        found = host.run(["sh", "-c", f"grep -sH . {_CPUFREQ}/cpu*/cpufreq/scaling_governor"], check=False).text
        return dict(re.findall(r"/cpu(\d+)/cpufreq/scaling_governor:(\S+)$", found, re.MULTILINE))

    def commands(self, interface: str, values: Mapping[str, Value]) -> list[Command]:
        return [to_file(f"{_CPUFREQ}/cpu{cpu}/cpufreq/scaling_governor", str(mode)) for cpu, mode in values.items()]
