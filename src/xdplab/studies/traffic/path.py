"""Whether the path carries frames: checked before each trial. The DUT's counts show where it does not."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from xdplab.counters.probe import CounterProbe
from xdplab.errors import UnsupportedError
from xdplab.formats.generator import Burst, Summary
from xdplab.generators import BY_DPDK, Sender
from xdplab.labs import Lab
from xdplab.lazy import lazy
from xdplab.plan import Point
from xdplab.studies.traffic.dut import DutSide
from xdplab.studies.traffic.two_ports import FORWARDED, RECEIVED, by_way

columns = lazy("xdplab.counters.columns")  # only asked where no frame comes back

PROOF_FRAMES = 300
PROOF_S = (0.02, 0.5)  # however fast or slow the load
CARRIER_S, PAUSE_S = 10.0, 0.5  # a card that is reset as a program is attached has no link for seconds
KEPT_TWICE = 2
TOLERANCE = 0.01  # two counts of the same frames, as verdicts have it

Files = dict[str, bytes]


def require_way_back(lab: Lab, point: Point) -> None:
    """Raise UnsupportedError if XDP_TX on a veth would fill a ring that is never emptied, and break the lab.

    A veth accepts such frames if its other end has a native XDP program or GRO: a program of DPDK's has neither.
    """
    native = point.mode == "native" or (point.mode == "af_xdp" and point.xsk_attach != "generic")
    if native and point.engine in BY_DPDK and lab.virtual:
        raise UnsupportedError(
            f"mode {point.mode} on a virtual link needs an XDP program at the TG's end: MoonGen and testpmd have none",
            remedy="use mode generic, or xdpgen (engine: live)",
        )


@dataclass
class DutCount:
    """The DUT's counts from now until they are read: frames received, and sent back or forwarded.

    ``second`` reads the second port, if there is one.
    """

    probe: CounterProbe
    side: DutSide
    point: Point
    second: CounterProbe | None = None

    def __post_init__(self) -> None:
        self._before, self._counts = self.probe.snapshot("before"), self.side.counts()
        self._second = self.second.snapshot("before") if self.second else {}

    def gained(self) -> tuple[Mapping[str, int | None], Files]:
        """Return the counts, None if the driver has none, and the readings."""
        files, before, counts = self._before | self.probe.snapshot("after"), self._counts, self.side.counts()
        if before is not None and counts is not None:
            return {
                "dut_received": counts.total("rx") - before.total("rx"),
                "dut_sent": counts.total("tx") - before.total("tx"),
            }, files
        first = columns.packets_counted(files, self.point.mode, self.point.queues)
        if self.second:
            other = columns.packets_counted(self._second | self.second.snapshot("after"), self.point.mode)
            ports = by_way(first, other, self.point.ways)
            received, sent = [port[RECEIVED] for port, _ in ports], [port[FORWARDED] for _, port in ports]
            return {"dut_received": _total(received), "dut_sent": _total(sent)}, files
        return {"dut_received": first["dut_rx_packets"], "dut_sent": first["dut_tx_packets"]}, files


def _total(counts: list[Any]) -> int | None:
    return None if None in counts else sum(counts)


def heard(summary: Summary) -> int | None:
    """Return the frames that came back; a user's program may have rewritten the bytes that mark them."""
    return None if summary.rx_packets is None else summary.rx_packets + (summary.foreign_packets or 0)


def prove(
    generator: Sender, point: Point, rate_pps: float | None, counting: Callable[[], DutCount]
) -> dict[str, int | None]:
    """Send a few hundred frames before the trial and return the counts.

    If the program should return frames but none comes back, this is repeated for as long as a link may take to come up.
    The DUT's counts around each try show where the frames are lost. If the DUT received the frames twice and sent none,
    the link is up and the program does not return them: then it is not repeated.
    """
    least, most = PROOF_S
    seconds = least if rate_pps is None else min(max(PROOF_FRAMES / rate_pps, least), most)
    deadline = time.monotonic() + CARRIER_S
    burst = generator.burst("path", seconds)
    counts = _carried(burst)
    kept = 0
    while _silent(burst) and (point.two_ports or point.program.action in (None, "tx")) and kept < KEPT_TWICE:
        time.sleep(PAUSE_S)
        count = counting()
        burst = generator.burst("path", seconds)
        counts = {**_carried(burst), **count.gained()[0]}
        kept += _kept_by_the_dut(counts)
        if time.monotonic() > deadline:
            break
    return counts


def _carried(burst: Burst) -> dict[str, int | None]:
    return {"sent": burst.summary.tx_packets, "back": heard(burst.summary)}


def _silent(burst: Burst) -> bool:
    """Whether no frame came back, in one of the directions if there are two."""
    return any(heard(one.summary) == 0 for one in burst.ways or (burst,))


def _kept_by_the_dut(counts: Mapping[str, int | None]) -> bool:
    """If no frame was sent, it says nothing: a card without a link accepts none."""
    received, sent = counts["dut_received"], counts["sent"]
    if not sent or received is None:
        return False
    return counts["dut_sent"] == 0 and received >= (1 - TOLERANCE) * sent
