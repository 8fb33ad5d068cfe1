"""A DUT that forwards from one port to another: what a trial with two ports needs."""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from typing import TypeVar

from xdplab.counters.probe import CounterProbe
from xdplab.deploy.xdp import XdpRequest
from xdplab.errors import UnsupportedError
from xdplab.hosts import CommandRunner, Host
from xdplab.labs import Lab
from xdplab.labs.base import LinkEnds
from xdplab.plan import Point
from xdplab.programs.spec import OUT_PORT
from xdplab.studies.traffic.dut import KernelSide
from xdplab.studies.trial_facts import HintCounts

T = TypeVar("T")


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


def both_ways(request: XdpRequest, second: SecondPort) -> tuple[XdpRequest, XdpRequest]:
    """Return the request for the first port and that for the second, each with the number of the other one."""
    first, other = second.numbers
    forth = replace(request, rodata={**request.rodata, OUT_PORT: other})
    return forth, replace(request, interface=second.ends.dut_interface, rodata={**request.rodata, OUT_PORT: first})


class TwoPortSide(KernelSide):
    """The program on both ports, by the requests of `both_ways`. Readings but `hints` are of the first port."""

    def __init__(
        self, host: Host, reader: CommandRunner, binary: str, ways: tuple[XdpRequest, XdpRequest], *, queues: int
    ) -> None:
        super().__init__(host, reader, binary, ways[0], queues=queues)
        try:
            self._back = KernelSide(host, reader, binary, ways[1], queues=queues)
        except BaseException:
            super().close()
            raise

    def require(self) -> None:
        super().require()
        self._back.require()

    def hints(self) -> HintCounts:
        both = zip(astuple(super().hints()), astuple(self._back.hints()), strict=True)
        return HintCounts(*map(sum, both))

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


def by_way(first: T, second: T, ways: int) -> list[tuple[T, T]]:
    """Return the counters of the port that receives (`RECEIVED`) and of the one that sends on (`FORWARDED`), by way."""
    return [(first, second), (second, first)][:ways]
