"""What a search needs from a lab: offer a rate for a time, and return the received frames."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xdplab.errors import HostError
from xdplab.formats.generator import Burst, Histogram


@dataclass(frozen=True)
class Offered:
    """One burst: frames sent and received, its length in s, and the latencies of the stamped ones, at a rate from the
    time each was due.

    ``late`` frames were sent behind their time and then in a bunch; None if the generator does not count them.
    """

    sent: int
    received: int
    seconds: float
    latencies: Histogram | None = None
    late: int | None = None

    @classmethod
    def of(cls, burst: Burst) -> Offered:
        """Make it from a generator's burst; a duplicate counts once. Raises HostError if there was no count."""
        s = burst.summary
        if s.rx_packets is None:
            raise HostError(f"a search needs what came back, and the generator does not know: {s.rx_missing}")
        stamped = burst.latency if burst.latency is not None and burst.latency.count else None
        return cls(s.tx_packets, s.rx_packets - (s.duplicates or 0), s.duration_s, stamped, s.tx_late_packets)

    @property
    def offered_pps(self) -> float:
        return self.sent / self.seconds

    @property
    def received_pps(self) -> float:
        return self.received / self.seconds

    @property
    def loss_ratio(self) -> float:
        return max(0.0, 1 - self.received / self.sent) if self.sent else 0.0


Offer = Callable[[float | None, float], Offered]
"""From a rate in frames per second (None: as fast as possible) and seconds to the result."""
