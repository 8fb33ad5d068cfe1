"""Settings that real NICs and servers have: coalescing, pause frames, RSS, private flags, interrupts, governor.

At the end: the table of all device settings, in the order of writing. Later rows depend on earlier ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from xdplab.deploy.settings import (
    CHANNELS,
    FEATURES,
    RINGS,
    STEERING,
    XPS,
    Command,
    LinkSettings,
    Setting,
    Value,
    Values,
    accepted,
    ethtool,
    on_off,
    to_file,
)
from xdplab.errors import PlanError
from xdplab.formats.ethtool import (
    HASH_FIELDS,
    parse_hash_fields,
    parse_pause,
    parse_private_flags,
    rss_spread,
    rss_table,
    spread,
)
from xdplab.hosts import Result

FLOWS = ("tcp4", "udp4", "tcp6", "udp6")
_CPUFREQ = "/sys/devices/system/cpu"


class Coalescing:
    """How long the NIC collects frames before it interrupts: µs, frames, and whether it adapts these by itself."""

    prefix = "coalesce"
    layout = r"Coalesce parameters for .*:|(?:Adaptive|CQE mode) RX:.*|[a-z-]+:\s+(?:\d+|on|off|n/a)"

    def question(self, interface: str) -> list[str]:
        return ["ethtool", "-c", interface]

    def values_in(self, shown: Result) -> Values:
        return self.parse(accepted(shown).text)

    @staticmethod
    def parse(text: str) -> Values:
        """Return the values of ``ethtool -c``, without those that the driver does not have (``n/a``)."""
        pairs = re.findall(r"^(Adaptive|CQE mode) RX: (\S+)\s+TX: (\S+)$", text, re.MULTILINE)
        ways = {f"{kind}-{way}": word for kind, *words in pairs for way, word in zip(("rx", "tx"), words, strict=True)}
        switches = {name.lower().replace(" ", "-"): word for name, word in ways.items()}
        values: Values = {name: word == "on" for name, word in switches.items() if word in ("on", "off")}
        pairs_found = re.findall(r"^([a-z-]+):[ \t]+(\d+|on|off)$", text, re.MULTILINE)
        # Shown as rx-frame-low, set as rx-frames-low.
        named = ((name.replace("-frame-", "-frames-"), word) for name, word in pairs_found)
        return values | {name: int(word) if word.isdigit() else word == "on" for name, word in named}

    def commands(self, interface: str, values: Mapping[str, Value]) -> list[Command]:
        """While adaptation is on, i40e, ice and iavf refuse other times: so it is switched on last."""
        first = [pair for pair in values.items() if pair[1] is not True]
        last = [pair for pair in values.items() if pair[1] is True]
        return [one for pairs in (first, last) if pairs for one in ethtool("-C", interface, self._flatten(pairs))]

    @staticmethod
    def _flatten(pairs: Sequence[tuple[str, Value]]) -> list[str]:
        texts = ((name, on_off(value) if isinstance(value, bool) else str(value)) for name, value in pairs)
        return [word for text in texts for word in text]


class Pause:
    """Ethernet flow control: with it a slow DUT slows the sender instead of losing frames."""

    prefix = "pause"
    layout = r"Pause parameters for .*:|(?:Autonegotiate|[RT]X(?: negotiated)?):\s+(?:on|off)"

    def question(self, interface: str) -> list[str]:
        return ["ethtool", "-a", interface]

    def values_in(self, shown: Result) -> Values:
        return dict(parse_pause(accepted(shown).text))

    def commands(self, interface: str, values: Mapping[str, Value]) -> list[Command]:
        return ethtool("-A", interface, [word for name, value in values.items() for word in (name, on_off(value))])


# Only `default` tells the kernel that the table is not the user's choice; otherwise it refuses a later `ethtool -L`
# with fewer queues. So a table that equals the default is set by `default`.
_SET_TABLE = """\
table() { ethtool -x "$1" | grep -E '^ *[0-9]+:'; }
ethtool -X "$1" default 2>/dev/null && default=$(table "$1")
ethtool -X "$@" || exit
[ "$default" != "$(table "$1")" ] || ethtool -X "$1" default
"""


class Rss:
    """Receive-side scaling: the table from a frame's hash to a queue, the hash's key, function and transformation.

    ``table`` is a text of `formats.ethtool.spread`. The order of an even table is not part of it: ``equal`` sets the
    kernel's own order.
    """

    prefix = "rss"
    layout = (
        r"RX flow hash .*:|RSS (?:hash key|hash function|input transformation):|Operation not supported|"
        r"\d+:(?:\s+\d+)+|(?:[0-9a-f]{2}:)+[0-9a-f]{2}|[\w-]+: (?:on|off)"
    )

    def question(self, interface: str) -> list[str]:
        return ["ethtool", "-x", interface]

    def values_in(self, shown: Result) -> Values:
        return self.parse(accepted(shown).text)

    @staticmethod
    def parse(text: str) -> Values:
        """Return the values of ``ethtool -x``. A table that cannot be set is left out."""
        table = rss_spread(rss_table(text))
        key = re.search(r"^((?:[0-9a-f]{2}:){3,}[0-9a-f]{2})$", text, re.MULTILINE)
        # Since ethtool 6.8, the transformations of what is hashed follow the functions.
        parts = text.partition("RSS hash function:\n")[2].partition("RSS input transformation:\n")
        function, transformation = (re.search(r"^\s+(\S+): on$", part, re.MULTILINE) for part in parts[::2])
        values = {"table": table, "hkey": key and key[1], "hfunc": function and function[1]}
        if parts[1]:
            values["xfrm"] = transformation[1] if transformation else "none"
        return {name: value for name, value in values.items() if value}

    def commands(self, interface: str, values: Mapping[str, Value]) -> list[Command]:
        return [one for name, value in values.items() for one in self._command(interface, name, str(value))]

    @staticmethod
    def _command(interface: str, name: str, value: str) -> list[Command]:
        if name != "table":
            return ethtool("-X", interface, [name, value])
        return [Command(("sh", "-c", _SET_TABLE, "sh", interface, *value.split()))]


class HashFields:
    """The fields of a frame that the RSS hash covers, by type of flow: ``udp4`` is ``sdfn`` with ports, else ``sd``."""

    prefix = "hash"
    layout = "# .*|.* flows use these fields .*|None|" + "|".join(map(re.escape, HASH_FIELDS))

    def question(self, interface: str) -> list[str]:
        script = f"none=1; for flow in {' '.join(FLOWS)}; do "  # a driver may hash only some types
        script += 'echo "# $flow"; ethtool -n "$1" rx-flow-hash "$flow" && none=0; done; exit $none'
        return ["sh", "-c", script, "sh", interface]

    def values_in(self, shown: Result) -> Values:
        return self.parse(accepted(shown).text)

    @staticmethod
    def parse(text: str) -> Values:
        """Return the fields by type of flow, without the types whose frames the NIC does not hash, and without those
        whose fields are not all understood."""
        parts = (part.partition("\n") for part in text.split("# ")[1:])
        by_flow = {flow.strip(): parse_hash_fields(shown) for flow, _, shown in parts}
        return {flow: fields for flow, fields in by_flow.items() if fields}

    def commands(self, interface: str, values: Mapping[str, Value]) -> list[Command]:
        pairs = values.items()
        return [one for flow, fields in pairs for one in ethtool("-N", interface, ["rx-flow-hash", flow, str(fields)])]


class PrivateFlags:
    """A driver's own switches, under its own names: ``legacy-rx``, ``rx_striding_rq``."""

    prefix = "flags"
    layout = r"Private flags for .*:|\S.*: (?:on|off)"

    def question(self, interface: str) -> list[str]:
        return ["ethtool", "--show-priv-flags", interface]

    def values_in(self, shown: Result) -> Values:
        return dict(parse_private_flags(accepted(shown).text))

    def commands(self, interface: str, values: Mapping[str, Value]) -> list[Command]:
        words = [word for name, value in values.items() for word in (name, on_off(value))]
        return ethtool("--set-priv-flags", interface, words)


class IrqAffinity:
    """Which CPUs serve each of the device's interrupts, by interrupt number: ``irq.48`` is ``0-3``."""

    prefix = "irq"
    layout = r"\d+ [\d,-]+"

    def question(self, interface: str) -> list[str]:
        # The interrupts of a virtio device are those of the PCI device above it.
        script = 'cd "/sys/class/net/$1/device" 2>/dev/null || exit 0; '
        script += '[ -d msi_irqs ] || { [ "$(basename "$(readlink subsystem)")" = virtio ] && cd -P ..; }; '
        script += "for i in $(ls msi_irqs 2>/dev/null); do "
        script += 'read -r cpus <"/proc/irq/$i/smp_affinity_list" && echo "$i $cpus"; done; true'
        return ["sh", "-c", script, "sh", interface]

    def values_in(self, shown: Result) -> Values:
        lines = accepted(shown).text.splitlines()
        return {number: cpus for number, _, cpus in (line.partition(" ") for line in lines)}

    def commands(self, interface: str, values: Mapping[str, Value]) -> list[Command]:
        return [to_file(f"/proc/irq/{number}/smp_affinity_list", str(cpus)) for number, cpus in values.items()]


class Napi:
    """Whether the device receives in its own threads, which the scheduler may move to another CPU."""

    prefix = "napi"
    layout = "[01]"

    def question(self, interface: str) -> list[str]:
        return ["cat", f"/sys/class/net/{interface}/threaded"]

    def values_in(self, shown: Result) -> Values:
        # Absent before kernel 5.12; the kernel refuses a write for a device without NAPI.
        word = shown.text.strip()
        return {"threaded": word == "1"} if shown.ok and word in ("0", "1") else {}

    def commands(self, interface: str, values: Mapping[str, Value]) -> list[Command]:
        return [to_file(f"/sys/class/net/{interface}/threaded", str(int(value))) for value in values.values()]


class Governor:
    """The governor of each CPU. It belongs to the machine, not to the interface: a run neither sets nor restores it."""

    prefix = "governor"
    layout = r"/.*:\S+"

    def question(self, interface: str) -> list[str]:
        return ["sh", "-c", f"grep -sH . {_CPUFREQ}/cpu*/cpufreq/scaling_governor"]

    def values_in(self, shown: Result) -> Values:
        # grep's exit code only says whether there is any: a guest has no governor.
        return dict(re.findall(r"/cpu(\d+)/cpufreq/scaling_governor:(\S+)$", shown.text, re.MULTILINE))

    def commands(self, interface: str, values: Mapping[str, Value]) -> list[Command]:
        return [to_file(f"{_CPUFREQ}/cpu{cpu}/cpufreq/scaling_governor", str(mode)) for cpu, mode in values.items()]


# A queue must exist before it gets an XPS mask, an interrupt or a share of the RSS table.
SETTINGS: tuple[Setting, ...] = (
    Governor(),
    LinkSettings(),
    CHANNELS,
    RINGS,
    FEATURES,
    PrivateFlags(),
    Napi(),
    Pause(),
    Coalescing(),
    Rss(),
    HashFields(),
    IrqAffinity(),
    XPS,
    *STEERING,
)
BY_PREFIX: dict[str, Setting] = {setting.prefix: setting for setting in SETTINGS}

# The names that a plan's `device:` may use. Queue counts, XPS masks and the link's state follow from other factors.
_ROWS = ("rings", "features", "coalesce", "pause", "napi", "rss", "hash", "flags")
_NAMES = ("link.mtu", "link.promisc")


def require_in_plans(device: Mapping[str, Value]) -> None:
    """Raise PlanError for a name that a plan may not set, and for a value that no device can have."""
    for name, value in device.items():
        if name.partition(".")[0] not in _ROWS and name not in _NAMES:
            names = ", ".join((*(f"{row}.NAME" for row in _ROWS), *_NAMES))
            raise PlanError(
                f"device: {name} is not a device setting of a plan",
                remedy=f"write {names}; `queues` sets the number of queues",
            )
        if remedy := _better(name, value):
            raise PlanError(f"device: {name}: {value} is not a possible value", remedy=remedy)


def _better(name: str, value: Value) -> str | None:
    """Return a remedy for a value that would never be read back as written; None for other values."""
    row, _, part = name.partition(".")
    words = str(value).split()
    if name == "rss.table":
        numbers = [int(word) for word in words[1:] if word.isdecimal()]
        form = spread(words[0], numbers) if words and len(numbers) == len(words) - 1 else None
        remedy = f"write `{form}`" if form else "write `equal QUEUES`, or `weight` and a number per queue"
        return None if form == value else remedy
    if name == "rss.hkey":
        wrong = not re.fullmatch(r"[0-9a-f]{2}(:[0-9a-f]{2})+", str(value))
        return 'write it in quotes and in lower case, as `ethtool -x` prints it: "6d:5a:…"' if wrong else None
    if row == "hash":
        if part not in FLOWS:
            return f"the types of flows are {', '.join(FLOWS)}"
        letters = "".join(HASH_FIELDS.values())
        form = "".join(letter for letter in letters if letter in str(value))
        wrong = not form or form != value
        return f"write letters of `{letters}` in this order, such as `sd` or `sdfn`" if wrong else None
    return None
