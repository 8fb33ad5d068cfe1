"""The output of `ethtool`: an interface's link, driver, counters, queues, rings, features, RSS and private flags."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from xdplab.formats.reading import count_of, lines_of, refuse

TOOL = "ethtool"
T = TypeVar("T")
_INDENT = " " * 5
_SETTING = re.compile(r"([A-Za-z][A-Za-z ]*):\s*(\S+)")


@dataclass(frozen=True)
class Channels:
    """Queue counts; None if the driver has no such kind (`n/a`)."""

    rx: int | None
    tx: int | None
    combined: int | None


@dataclass(frozen=True)
class Rings:
    """Entries of one receive and one transmit ring; None if the driver does not say."""

    rx: int | None
    tx: int | None


@dataclass(frozen=True)
class MaxAndCurrent(Generic[T]):
    """The device's maximums and its current settings."""

    maximum: T
    current: T


def parse_speed(data: bytes | str) -> float | None:
    """Return a link's bits per second from `ethtool INTERFACE`; None without a link, of which some drivers still show
    the last one's."""
    lines = lines_of(data, TOOL)
    _require_title(lines, "Settings for ")
    fields = {name: value for name, _, value in (line.strip().partition(": ") for line in lines[1:])}
    speed = re.fullmatch(r"(\d+)Mb/s", fields.get("Speed", ""))
    detected = fields.get("Link detected", "").partition(" ")[0]  # since ethtool 5.8 with a reason: no (No cable)
    return float(speed[1]) * 1e6 if speed and detected != "no" else None


def parse_driver(data: bytes | str) -> str:
    """Return the driver's name from `ethtool -i`."""
    first = lines_of(data, TOOL)[0]
    name = first.removeprefix("driver: ").strip()
    if name == first.strip() or not name:
        refuse(TOOL, "no line `driver: NAME`", line=1, text=first)
    return name


def parse_statistics(data: bytes | str) -> dict[str, int]:
    """Return the counters of `ethtool -S` by name, in the driver's order (a name that comes twice is refused).

    A counter whose name begins with blanks (vmxnet3) belongs to the last one without; its full name contains that name
    and its value: `Rx Queue# 0     xdp tx`.
    """
    lines = lines_of(data, TOOL)
    _require_title(lines, "NIC statistics:")
    counters: dict[str, int] = {}
    heading = ""
    for number, line in enumerate(lines[1:], start=2):
        label, colon, value = line.removeprefix(_INDENT).rpartition(":")
        if not colon or not label.strip():
            refuse(TOOL, "no counter", line=number, text=line)
        name = heading + label if label[0] == " " else label
        if name in counters:
            refuse(TOOL, "the same counter twice", line=number, text=name)
        counters[name] = count_of(value.strip(), TOOL, line=number)
        if label[0] != " ":
            heading = f"{label} {value.strip()}"
            if label.endswith("#"):
                del counters[name]
    if not counters:
        refuse(TOOL, "no counter in it")
    return counters


def by_queue(counters: Mapping[str, int], pattern: str) -> dict[int, int]:
    """Return the counters whose whole name matches ``pattern``, by queue: its one group (`[0-9]{1,4}`).

    A driver may leave numbers out: with traffic classes, atlantic's second one begins at queue 4.
    """
    name = re.compile(pattern)
    return {int(match[1]): value for key, value in counters.items() if (match := name.fullmatch(key))}


def parse_channels(data: bytes | str) -> MaxAndCurrent[Channels]:
    """Return what `ethtool -l` shows. Raises FormatError if a block or line is missing."""
    maximum, current = _blocks(data, "Channel parameters for ")
    return MaxAndCurrent(_channels(maximum), _channels(current))


def most_queues(channels: MaxAndCurrent[Channels]) -> int:
    """Return how many queues a port can have each way.

    A maximum of 0 means that the driver does not say (stmmac on older cores): then it is what the port has now.
    """
    for counts in (channels.maximum, channels.current):
        if most := counts.combined or min((n for n in (counts.rx, counts.tx) if n), default=0):
            return most
    return 1


def parse_rings(data: bytes | str) -> MaxAndCurrent[Rings]:
    """Return what `ethtool -g` shows; a ring of 0 entries means that the driver does not say.

    Raises FormatError if a block or line is missing.
    """
    blocks = _blocks(data, "Ring parameters for ")
    return MaxAndCurrent(*(Rings(_entry(block, "RX") or None, _entry(block, "TX") or None) for block in blocks))


def _require_title(lines: list[str], title: str) -> None:
    if not lines[0].startswith(title):
        refuse(TOOL, f"no title `{title}`", line=1, text=lines[0])


def _channels(block: dict[str, int | None]) -> Channels:
    return Channels(*(_entry(block, key) for key in ("RX", "TX", "Combined")))


def _entry(block: dict[str, int | None], key: str) -> int | None:
    if key not in block:
        refuse(TOOL, f"no line `{key}`")
    return block[key]


def _blocks(data: bytes | str, title: str) -> tuple[dict[str, int | None], dict[str, int | None]]:
    """Return the settings under `Pre-set maximums` and under `Current hardware settings`."""
    lines = lines_of(data, TOOL)
    _require_title(lines, title)
    blocks: dict[str, dict[str, int | None]] = {}
    block: dict[str, int | None] | None = None
    for number, line in enumerate(lines[1:], start=2):
        if line in ("Pre-set maximums:", "Current hardware settings:"):
            block = blocks.setdefault(line, {})
        elif line.strip():
            match = _SETTING.fullmatch(line.strip())
            if block is None or not match:
                refuse(TOOL, "no setting", line=number, text=line)
            block[match[1]] = None if not match[2].isdigit() else count_of(match[2], TOOL, line=number)
    if len(blocks) != 2:
        refuse(TOOL, "a block is missing")
    return blocks["Pre-set maximums:"], blocks["Current hardware settings:"]


def rss_table(text: str) -> list[int]:
    """Return the table that ``ethtool -x`` shows: a queue per entry."""
    rows = re.findall(r"^\s*\d+:((?:\s+\d+)+)$", text, re.MULTILINE)
    return [int(queue) for row in rows for queue in row.split()]


def rss_spread(table: list[int]) -> str | None:
    """Return a table as `spread` does; None for a table that ethtool cannot set.

    A table is even if its queues' numbers of entries differ by at most one, and if the queues alternate, as after
    ``ethtool -X default``, or have one block each, as with some drivers (igb).
    """
    if not table:
        return None
    counts = [table.count(queue) for queue in range(max(table) + 1)]
    blocks = table == sorted(table)
    if max(counts) - min(counts) <= 1 and (blocks or table == [entry % len(counts) for entry in range(len(table))]):
        return f"equal {len(counts)}"
    return spread("weight", counts) if blocks else None


def spread(kind: str, numbers: list[int]) -> str | None:
    """Return the arguments of ``ethtool -X`` for a table, in a canonical form; None if it is not a table.

    ``equal 4`` spreads over the first four queues. ``weight 1 3`` gives the second queue three times as many entries.
    Weights are the smallest integers, without zeros after the last queue; equal weights become ``equal``.
    """
    if kind == "equal":
        return f"equal {numbers[0]}" if len(numbers) == 1 and numbers[0] > 0 else None
    while numbers and numbers[-1] == 0:
        numbers = numbers[:-1]
    if kind != "weight" or not numbers:
        return None
    if min(numbers) == max(numbers):
        return f"equal {len(numbers)}"
    common = math.gcd(*numbers)
    return f"weight {' '.join(str(number // common) for number in numbers)}"


def divided(weights: list[int], entries: int) -> list[int]:
    """Return how many of a table's entries each queue gets for these weights, as ethtool divides them
    (``fill_indir_table``): each but the last has its exact share of the entries so far, rounded down.
    """
    ends = [entries * sum(weights[: queue + 1]) // sum(weights) for queue in range(len(weights))]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


HASH_FIELDS = {
    "L2DA": "m",
    "VLAN tag": "v",
    "L3 proto": "t",
    "IP SA": "s",
    "IP DA": "d",
    "L4 bytes 0 & 1 [TCP/UDP src port]": "f",
    "L4 bytes 2 & 3 [TCP/UDP dst port]": "n",
    "GTP TEID": "e",
    "IPv6 Flow Label": "l",
    "Discard": "r",
}
"""The fields of a flow that a NIC can hash, as ``ethtool -n`` names them, and the letter of each (man 8 ethtool)."""

_HASH_TITLE = re.compile(r".* flows use these fields for computing Hash flow key:")


def parse_hash_fields(text: str) -> str | None:
    """Return the letters of the fields in ``ethtool -n INTERFACE rx-flow-hash TYPE``; empty if the NIC hashes none.

    None if a line is no field of this table: a value without it would be another setting.
    """
    lines = {line.strip() for line in text.splitlines()} - {"", "None"}
    if any(line not in HASH_FIELDS and not _HASH_TITLE.fullmatch(line) for line in lines):
        return None
    return "".join(letter for name, letter in HASH_FIELDS.items() if name in lines)


def parse_pause(text: str) -> dict[str, bool]:
    """Return the switches in ``ethtool -a`` by their names in ``ethtool -A``; empty if it tells none."""
    names = {"Autonegotiate": "autoneg", "RX": "rx", "TX": "tx"}
    settings = re.findall(r"^(Autonegotiate|RX|TX):\s+(on|off)$", text, re.MULTILINE)
    return {names[label]: word == "on" for label, word in settings}


def parse_private_flags(text: str) -> dict[str, bool]:
    """Return the driver's private flags from ``ethtool --show-priv-flags``."""
    return {name: word == "on" for name, word in re.findall(r"^(\S.*?)\s*: (on|off)$", text, re.MULTILINE)}
