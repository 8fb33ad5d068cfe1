"""What a search needs from a lab: offer a rate for a time, and return the received frames."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xdplab.analysis.action_rules import rewritten
from xdplab.errors import HostError
from xdplab.formats.generator import Burst, Histogram


@dataclass(frozen=True)
class Offered:
    """One burst: frames sent and received, its length in s, and the latencies of the stamped ones, at a rate from the
    time each was due.

    ``late`` frames were sent behind their time and then in a bunch; None if the generator does not count them.
    ``rate_pps`` is the rate at which frames came back until the burst ended: those that drained from rings later are
    received, and in no rate. None if the generator did not count them apart.
    """

    sent: int
    received: int
    seconds: float
    latencies: Histogram | None = None
    late: int | None = None
    rate_pps: float | None = None

    @classmethod
    def of(cls, burst: Burst, *, own_program: bool = False, cable: bool = False) -> Offered:
        """Make it from a generator's burst; a duplicate counts once. Raises HostError if there was no count.

        ``own_program``: a user's program may rewrite the bytes that mark a test frame. What came back without them
        counts too, up to the frames that were sent. ``cable``: frames that the TG's card refused were not sent; on a
        virtual link the ring that was full is the DUT's, and they are its loss.
        """
        s = burst.summary
        if s.rx_packets is None:
            raise HostError(
                f"a search needs what came back, and the generator does not know: {s.missing.get('rx_packets')}"
            )
        stamped = burst.latency if burst.latency is not None and burst.latency.count else None
        changed = int(rewritten(s.rx_packets, s.foreign_packets, s.tx_packets)) if own_program else 0
        received = s.rx_packets + changed - (s.duplicates or 0)
        in_time = None if changed or s.rx_window_packets is None else s.rx_window_packets - (s.duplicates or 0)
        rate = None if in_time is None or not s.rx_window_s else in_time / s.rx_window_s
        sent = s.tx_packets - (s.tx_errors or 0 if cable else 0)
        return cls(sent, received, s.duration_s, stamped, s.tx_late_packets, rate)

    @property
    def offered_pps(self) -> float:
        return self.sent / self.seconds

    @property
    def received_pps(self) -> float:
        return self.received / self.seconds if self.rate_pps is None else self.rate_pps

    @property
    def loss_ratio(self) -> float:
        return max(0.0, 1 - self.received / self.sent) if self.sent else 0.0


Offer = Callable[[float | None, float], Offered]
"""From a rate in frames per second (None: as fast as possible) and seconds to the result."""
