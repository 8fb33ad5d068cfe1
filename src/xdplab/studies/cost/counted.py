"""A trial's raw files, read: what the tools printed, and what the plugin counted."""

from __future__ import annotations

import functools
import json
import lzma
from pathlib import Path

from xdplab.errors import ResultsError, UnsupportedError
from xdplab.formats.reading import message_of
from xdplab.hosts.tool import PROGRAM_REFUSALS, Message, error_class
from xdplab.studies.cost.counts import Cost, cost_of
from xdplab.studies.cost.measurement import Measurement
from xdplab.studies.plugin import Plugin

DRIVEN, COUNTED, SYMBOLS = "costdrive.jsonl", "counted.xz", "symbols.json"
"""Raw files of a trial: what the sender prints, what the plugin counted, and the kernel's functions that it met."""

_REFUSALS = dict(PROGRAM_REFUSALS) | dict.fromkeys(("attach", "bind", "describe", "live frames"), UnsupportedError)


def cost_in(raw: Path) -> Cost:
    """Return the cost of a packet from a trial's raw files. Raises UnsupportedError if it has none."""
    return _cost(*((raw / name).read_bytes() for name in (COUNTED, DRIVEN, SYMBOLS)))


@functools.lru_cache(maxsize=64)  # a trial proves that it has a cost, and the run's table tells it
def _cost(counted: bytes, driven: bytes, symbols: bytes) -> Cost:
    return cost_of(_measurement(counted, driven, symbols))


def measurement_in(raw: Path) -> Measurement:
    """Return what was counted of a trial. Raises ResultsError if its raw files are damaged."""
    return _measurement(*((raw / name).read_bytes() for name in (COUNTED, DRIVEN, SYMBOLS)))


def _measurement(counted: bytes, driven: bytes, symbols: bytes) -> Measurement:
    try:
        functions = [(int(address), str(name)) for address, name in json.loads(symbols)]
        return Measurement(Plugin(lzma.decompress(counted)), messages_of(driven.decode()), functions)
    except (ValueError, TypeError, LookupError, lzma.LZMAError) as error:
        raise ResultsError(f"what was counted is damaged: {error}", remedy="count it again") from error


def messages_of(text: str) -> list[Message]:
    """Return the objects that a tool printed. Raises the error that a line tells."""
    messages: list[Message] = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    for message in messages:
        if message.get("type") == "error":
            raise error_class(message, _REFUSALS)(message_of(message))
    return messages
