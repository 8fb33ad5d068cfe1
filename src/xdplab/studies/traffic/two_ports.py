"""A DUT that forwards from one port to another: what a trial with two ports needs, and the counts of each direction."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from xdplab.analysis.action_rules import rewritten
from xdplab.counters import CounterProbe, Counters, files_in, packets_counted, unreadable
from xdplab.deploy.xdp import XdpRequest
from xdplab.errors import UnsupportedError
from xdplab.formats.generator import Burst, Summary
from xdplab.formats.settings import OF_PORT
from xdplab.hosts import Host
from xdplab.hosts.base import CommandRunner
from xdplab.labs import Lab
from xdplab.labs.base import LinkEnds
from xdplab.plan import Point
from xdplab.programs.spec import OUT_PORT
from xdplab.studies.traffic.dut import KernelSide
from xdplab.studies.traffic.passes import SECOND_FOLDER

Row = dict[str, Any]
COUNTS = ("tx_packets", "dut_rx_packets", "dut_tx_packets", "rx_packets")
WAYS = ("forth", "back")
"""Prefixes of the columns of a direction: from the first port to the second, and from the second to the first."""


@dataclass(frozen=True)
class SecondPort:
    """The second link of a lab, and the kernel's numbers of the DUT's two ports."""

    ends: LinkEnds
    numbers: tuple[int, int]


def second_port(lab: Lab) -> SecondPort | None:
    """Return the lab's second link, made if need be; None if it has none."""
    ends = lab.second_link()
    if ends is None:
        return None
    files = [f"/sys/class/net/{name}/ifindex" for name in (lab.dut_interface, ends.dut_interface)]
    first, second = (int(lab.dut.run(["cat", file]).text) for file in files)
    return SecondPort(ends, (first, second))


def require(lab: Lab, second: SecondPort | None, point: Point) -> None:
    """Raise UnsupportedError if this lab cannot forward the frames of ``point`` between two ports."""
    if not point.two_ports:
        return
    if second is None:
        raise UnsupportedError(
            f"directions: {point.directions} needs two links between TG and DUT, and lab {lab.name} has one",
            remedy="measure in a lab netns, or give `second_interface` of both servers in the inventory",
        )
    cpus, needed = len(lab.cpus(point.arrangement).tg), point.queues * point.ways
    if point.ways > 1 and cpus < needed:
        raise UnsupportedError(
            f"directions: both needs {needed} CPUs of the TG, {point.queues} for each direction, and it has {cpus}",
            remedy="fewer queues, or `directions: one`",
        )


class TwoPortSide(KernelSide):
    """The program on both ports, each time with the number of the other one. Readings are those of the first port."""

    def __init__(
        self, host: Host, reader: CommandRunner, binary: str, request: XdpRequest, second: SecondPort, *, queues: int
    ) -> None:
        first, other = second.numbers
        there = replace(request, rodata={**request.rodata, OUT_PORT: other})
        back = replace(request, interface=second.ends.dut_interface, rodata={**request.rodata, OUT_PORT: first})
        super().__init__(host, reader, binary, there, queues=queues)
        try:
            self._back = KernelSide(host, reader, binary, back, queues=queues)
        except BaseException:
            super().close()
            raise

    def require(self) -> None:
        super().require()
        self._back.require()

    def raw_files(self) -> dict[str, bytes]:
        return super().raw_files() | {"xdpload_second.jsonl": self._back.raw_files()["xdpload.jsonl"]}

    def stop(self) -> None:
        try:
            super().stop()
        finally:
            self._back.stop()

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._back.close()


def second_probes(second: SecondPort | None, point: Point, dut: CounterProbe, tg: CounterProbe) -> list[CounterProbe]:
    """Return the probes of the second ports; they read over the connections of the first ones."""
    if second is None or not point.two_ports:
        return []
    return [replace(dut, device=second.ends.dut_interface), replace(tg, device=second.ends.tg_interface)]


RECEIVED, FORWARDED = "dut_rx_packets", "dut_forwarded_packets"


def by_way(first: Counters, second: Counters, ways: int) -> list[tuple[Counters, Counters]]:
    """Return the counters of the port that receives (`RECEIVED`) and of the one that sends on (`FORWARDED`), by way."""
    return [(first, second), (second, first)][:ways]


def by_direction(raw: Path, point: Point, burst: Burst, reasons: dict[str, str]) -> Row:
    """Return the columns of each direction, and the DUT's counts as their sums."""
    columns = {way: [f"{way}_{count}" for count in COUNTS] for way in WAYS}
    if not point.two_ports:
        reasons |= dict.fromkeys((*columns["forth"], *columns["back"]), "frames come back by the port they came on")
        return {}
    if point.ways == 1:
        reasons |= dict.fromkeys(columns["back"], "frames are sent in one direction only")
    first, second = (
        packets_counted(files_in(raw / folder), point.mode, point.queues) for folder in ("counters", SECOND_FOLDER)
    )
    row: Row = {}
    bursts = burst.ways or (burst,)
    for way, one, (port, other) in zip(WAYS, bursts, by_way(first, second, point.ways), strict=False):
        received, sent = port[RECEIVED], other[FORWARDED]
        values = (one.summary.tx_packets, received, sent, _came(one.summary, sent, point))
        row |= dict(zip(columns[way], values, strict=True))
        why = (None, port.reason(RECEIVED), other.reason(FORWARDED), one.summary.rx_missing)
        reasons |= {column: text for column, text in zip(columns[way], why, strict=True) if text is not None}
    for name in ("dut_rx_packets", "dut_tx_packets"):
        row[name] = _sum([row[f"{way}_{name}"] for way in WAYS[: point.ways]])
        reasons.pop(name, None)
        if row[name] is None:
            reasons[name] = "a direction's count is missing: see the columns of the directions"
    if (missing := unreadable(raw / SECOND_FOLDER)) is not None:
        row["counters_missing"] = f"second port: {missing}"
    return row | settings_of_both(first, second)


def settings_of_both(first: Mapping[str, Any], second: Mapping[str, Any]) -> Row:
    """Return the columns on settings with those of the second ports, which say so in their names."""
    row: Row = {}
    for column in ("settings", "settings_changed"):
        texts = [found[column] for found in (first, second)]
        if None not in texts:
            whole, other = (json.loads(str(text)) for text in texts)
            named = {name: value for name, value in other.items() if name.partition(" ")[2].startswith(OF_PORT)}
            row[column] = json.dumps(whole | {f"{name} (second port)": value for name, value in named.items()})
    changes = [found["link_changes"] for found in (first, second)]
    known = [count for count in changes if isinstance(count, int)]
    return row | ({"link_changes": max(known)} if known else {})


def _came(summary: Summary, gone: Any, point: Point) -> int | None:
    """The frames of a direction that came to the TG; those that a user's program rewrote came, too."""
    received = summary.rx_packets
    if received is None or point.program.file is None:
        return received
    return received + int(rewritten(received, summary.foreign_packets, summary.tx_packets if gone is None else gone))


def _sum(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
