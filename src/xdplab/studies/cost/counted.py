"""A trial's raw files, read: what the tools printed, and what the plugin counted."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

from xdplab.errors import UnsupportedError
from xdplab.formats.tool_error import message_of
from xdplab.hosts.tool import PROGRAM_REFUSALS, Message, error_class
from xdplab.run.rundir import read_json
from xdplab.studies.cost.counts import Cost, Measurement, cost_of
from xdplab.studies.cost.plugin import Plugin
from xdplab.studies.cost.points import CostPoint

DRIVEN, COUNTED, SYMBOLS = "costdrive.jsonl", "counted.xz", "symbols.json"
"""Raw files of a trial: what the sender prints, what the plugin counted, and the kernel's functions that it met."""

_REFUSALS = dict(PROGRAM_REFUSALS) | dict.fromkeys(("attach", "describe", "live frames"), UnsupportedError)


def cost_in(point: CostPoint, raw: Path) -> Cost:
    """Return the cost of a packet from a trial's raw files. Raises UnsupportedError if it has none."""
    return cost_of(measurement_in(point, raw))


def measurement_in(point: CostPoint, raw: Path) -> Measurement:
    """Return what was counted of a trial. Raises ResultsError if its raw files are damaged."""
    plugin = Plugin(lzma.decompress((raw / COUNTED).read_bytes()))
    symbols = read_json(raw / SYMBOLS, lambda rows: [(int(address), str(name)) for address, name in rows])
    return Measurement(point.way, plugin, messages_of((raw / DRIVEN).read_text()), symbols)


def messages_of(text: str) -> list[Message]:
    """Return the objects that a tool printed. Raises the error that a line tells."""
    messages: list[Message] = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    for message in messages:
        if message.get("type") == "error":
            raise error_class(message, _REFUSALS)(message_of(message))
    return messages
