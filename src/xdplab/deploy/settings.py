"""The class of a row of device settings, and the rows that every interface has; `settings_nic` orders them.

A value's key is ``row.name``: ``channels.rx``, ``rings.tx``, ``features.gro``, ``link.mtu``, ``xps.0``.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from xdplab.errors import HostError, UnsupportedError
from xdplab.hosts import Host, Result

Value = int | bool | str
Values = dict[str, Value]
Counted = dict[str, int]

# The kernel releases the queues of closed AF_XDP sockets some time after their owner has ended: this takes a second per
# queue while a generator floods the CPUs with frames.
SOCKET_RELEASE_S = 10.0
_GONE = re.compile(r"No such device|no device matches|cannot find device", re.IGNORECASE)
# What host and user lack, not the driver, by the words of kernel and sudo.
_HOST_LACKS = re.compile(r"Cannot allocate memory|Network is down|^sudo: ", re.IGNORECASE | re.MULTILINE)
_SOCKETS_REMAIN = "AF_XDP sockets"

_SHORT_NAMES = {
    "rx-checksumming": "rx",
    "generic-segmentation-offload": "gso",
    "generic-receive-offload": "gro",
    "large-receive-offload": "lro",
    "rx-vlan-offload": "rxvlan",
    "tx-vlan-offload": "txvlan",
    "ntuple-filters": "ntuple",
    "receive-hashing": "rxhash",
}


@dataclass(frozen=True)
class Command:
    """One change of a device that its host can make without the controller."""

    argv: tuple[str, ...]
    stdin: str = ""


class Setting(Protocol):
    """One row. Names are without the row's prefix. ``layout`` matches each line that the row understands, also one that
    it has no use for."""

    @property
    def prefix(self) -> str: ...

    @property
    def layout(self) -> str: ...

    def question(self, interface: str) -> list[str]:
        """Return the command that shows the values."""

    def values_in(self, shown: Result) -> Values:
        """Return the values that it showed. Raises UnsupportedError with the tool's own message."""

    def commands(self, interface: str, values: Mapping[str, Value]) -> list[Command]:
        """Return the commands that set ``values``."""


def read(setting: Setting, host: Host, interface: str) -> Values:
    """Read the values of one row. Raises UnsupportedError with the tool's own message."""
    return setting.values_in(host.run(setting.question(interface), check=False))


def not_understood(setting: Setting, shown: Result) -> str | None:
    """Return what the row says of lines that it does not understand; None if there are none.

    Such a part of a setting is neither recorded as known, nor set, nor restored.
    """
    lines = [line.strip() for line in shown.text.splitlines()] if shown.ok else []
    strange = [line for line in lines if line and not re.fullmatch(setting.layout, line)]
    if not strange:
        return None
    command = shlex.join(setting.question("INTERFACE")[:2])
    return f"{len(strange)} lines of `{command}` are not understood, so left as they are: {'; '.join(strange)[:200]}"


def write(setting: Setting, host: Host, interface: str, values: Mapping[str, Value]) -> None:
    """Set values of one row; wait until AF_XDP sockets are released. Raises UnsupportedError with the tool's
    message."""
    for command in setting.commands(interface, values):
        until = time.monotonic() + SOCKET_RELEASE_S
        while True:
            try:
                tool(host, command.argv, stdin=command.stdin.encode())
                break
            except UnsupportedError as error:
                if _SOCKETS_REMAIN not in error.message or time.monotonic() > until:
                    raise
            time.sleep(0.02)


def ethtool(option: str, interface: str, words: Sequence[str]) -> list[Command]:
    """Return one call of ethtool that changes something."""
    return [Command(("ethtool", option, interface, *words))]


def on_off(value: Value) -> str:
    return "on" if value else "off"


def to_file(path: str, text: str) -> Command:
    return Command(("tee", path), text)


def tool(host: Host, argv: Sequence[str], *, stdin: bytes = b"") -> str:
    """Run a tool that changes a device and return its output. Raises as `accepted` does, HostError if the host lacks
    what it needs."""
    result = host.run(argv, stdin=stdin, check=False)
    if _HOST_LACKS.search(result.error_text):
        result.require()
    return accepted(result).text


def accepted(result: Result) -> Result:
    """Return the result of a device tool that did what it was asked.

    Raises UnsupportedError with its message if it refused, HostError if the device is missing or the tool was killed:
    this says nothing about the driver, so the trial is owed.
    """
    if result.exit_code in (127, None) or result.killed or result.cut is not None:
        result.require()
    if not result.ok:
        command = f"{result.host}: `{' '.join(result.argv)}`"
        message = "; ".join((result.error_text or result.text).split("\n")[:2])
        if _GONE.search(message):
            raise HostError(f"{command}: {message}", remedy="bring the lab up again, or load the port's driver")
        raise UnsupportedError(f"{command}: {message or f'exit code {result.exit_code}'}")
    return result


@dataclass(frozen=True)
class EthtoolCounts:
    """Numbers that ethtool shows in two paragraphs, the maximums and the current ones (channels, rings)."""

    prefix: str
    show: str
    change: str
    names: Mapping[str, str]
    others: str = ""

    @property
    def layout(self) -> str:
        counts = f"(?:{'|'.join(map(re.escape, self.names))}):\\s+(?:\\d+|n/a)"
        return rf".* parameters for .*:|Pre-set maximums:|Current hardware settings:|{counts}|(?:{self.others}):.*"

    def question(self, interface: str) -> list[str]:
        return ["ethtool", self.show, interface]

    def values_in(self, shown: Result) -> Values:
        return dict(self.both_in(shown)[0])

    def read_both(self, host: Host, interface: str) -> tuple[Counted, Counted]:
        """Return the current numbers and the largest the device accepts."""
        return self.both_in(host.run(self.question(interface), check=False))

    def both_in(self, shown: Result) -> tuple[Counted, Counted]:
        """Return the current numbers and the largest the device accepts."""
        limits, heading, current = accepted(shown).text.partition("Current hardware settings:")
        if not heading:
            raise shown.nonsense()
        return self._numbers(current), self._numbers(limits)

    def commands(self, interface: str, values: Mapping[str, Value]) -> list[Command]:
        words = [word for name, value in values.items() for word in (name, str(value))]
        return ethtool(self.change, interface, words)

    def _numbers(self, paragraph: str) -> Counted:
        numbers = re.findall(r"^([\w ]+):\s+(\d+)$", paragraph, re.MULTILINE)
        return {self.names[label]: int(number) for label, number in numbers if label in self.names}


class Features:
    """Offloads and other switches of ``ethtool -k``, those that can be changed, under ethtool's short names."""

    prefix = "features"
    layout = r"Features for .*:|[\w-]+: (?:on|off)(?: \[.*\])?"

    def question(self, interface: str) -> list[str]:
        return ["ethtool", "-k", interface]

    def values_in(self, shown: Result) -> Values:
        lines = accepted(shown).text.splitlines()[1:]
        if not lines:
            raise shown.nonsense()
        following = [*lines[1:], ""]
        # A line with indented lines below it is only their summary.
        single = [line for line, after in zip(lines, following, strict=True) if line[:1] == "\t" or after[:1] != "\t"]
        matches = (re.fullmatch(r"\s*([\w-]+): (on|off)(?: \[requested (?:on|off)\])?", line) for line in single)
        return {_SHORT_NAMES.get(match[1], match[1]): match[2] == "on" for match in matches if match}

    def commands(self, interface: str, values: Mapping[str, Value]) -> list[Command]:
        words = [word for name, value in values.items() for word in (name, on_off(value))]
        return ethtool("-K", interface, words)

    def ask_anew(self, host: Host, interface: str) -> list[Command]:
        """Return the commands that restore features that a driver switched off by itself, as vmxnet3 does with LRO.

        The kernel still has the request, but updates a driver's features only when a request changes.
        """
        shown = tool(host, self.question(interface))
        names = re.findall(r"^\s*([\w-]+): off \[requested on\]$", shown, re.MULTILINE)
        return [one for name in names for wish in ("off", "on") for one in ethtool("-K", interface, [name, wish])]


class LinkSettings:
    """MTU in bytes (L2 payload), promiscuous mode, and whether the link is up."""

    prefix = "link"
    layout = ".*"

    def question(self, interface: str) -> list[str]:
        return ["ip", "-j", "link", "show", "dev", interface]

    def values_in(self, shown: Result) -> Values:
        link = accepted(shown).row("mtu", "flags")
        return {"mtu": link["mtu"], "promisc": "PROMISC" in link["flags"], "up": "UP" in link["flags"]}

    def commands(self, interface: str, values: Mapping[str, Value]) -> list[Command]:
        arguments = {
            "mtu": lambda value: ["mtu", str(value)],
            "promisc": lambda value: ["promisc", on_off(value)],
            "up": lambda value: ["up" if value else "down"],
        }
        chosen = [word for name, value in values.items() for word in arguments[name](value)]
        return [Command(("ip", "link", "set", "dev", interface, *chosen))]


@dataclass(frozen=True)
class QueueMasks:
    """A file of each queue, lost for re-added queues: the queue's number and the file's mask in hexadecimal.

    ``chosen_only``: a queue with an empty mask has no value, because xdplab never sets this file.
    """

    prefix: str
    queues: str
    file: str
    chosen_only: bool = True
    is_mask: bool = True
    layout: str = r"/.*:[0-9a-f,]+"

    def question(self, interface: str) -> list[str]:
        return ["grep", "-rsH", ".", f"/sys/class/net/{interface}/queues/", f"--include={self.file}"]

    def values_in(self, shown: Result) -> Values:
        # grep's exit code only says whether a queue had a mask: a device with one queue has none.
        pairs = re.findall(rf"/{self.queues}-(\d+)/{self.file}:([0-9a-f,]+)$", shown.text, re.MULTILINE)
        masks = {queue: self._canonical(mask) for queue, mask in sorted(pairs, key=lambda pair: int(pair[0]))}
        return {queue: mask for queue, mask in masks.items() if mask != "0" or not self.chosen_only}

    def commands(self, interface: str, values: Mapping[str, Value]) -> list[Command]:
        folder = f"/sys/class/net/{interface}/queues/{self.queues}"
        texts = {queue: self._grouped(str(value)) if self.is_mask else str(value) for queue, value in values.items()}
        return [to_file(f"{folder}-{queue}/{self.file}", text) for queue, text in texts.items()]

    @staticmethod
    def _canonical(mask: str) -> str:
        return mask.replace(",", "").lstrip("0") or "0"

    @staticmethod
    def _grouped(mask: str) -> str:
        """Return the mask as the kernel wants it: groups of eight digits."""
        padded = mask.zfill(-(-len(mask) // 8) * 8)
        return ",".join(padded[start : start + 8] for start in range(0, len(padded), 8))


CHANNELS = EthtoolCounts("channels", "-l", "-L", {"RX": "rx", "TX": "tx", "Combined": "combined"}, "Other")
FEATURES = Features()
XPS = QueueMasks("xps", "tx", "xps_cpus", chosen_only=False)
"""Which CPUs send on a transmit queue."""

STEERING = (
    QueueMasks("xps_rxqs", "tx", "xps_rxqs"),
    QueueMasks("rps", "rx", "rps_cpus"),
    QueueMasks("rfs", "rx", "rps_flow_cnt", is_mask=False),
)
"""What else a server's owner may have chosen for a queue: by which queues' answers it sends, which CPUs receive for it,
and how many flows they follow."""

RINGS = EthtoolCounts(
    "rings",
    "-g",
    "-G",
    {"RX": "rx", "RX Mini": "rx-mini", "RX Jumbo": "rx-jumbo", "TX": "tx"},
    "RX Buf Len|CQE Size|[RT]X Push|TX push buff len|TCP data split|HDS thresh",
)
