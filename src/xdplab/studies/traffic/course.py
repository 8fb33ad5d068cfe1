"""How the rate went within a burst: steady, in one step, or in one trend."""

from __future__ import annotations

from xdplab.analysis.steady import Course, course
from xdplab.formats.generator import Burst, GeneratorInterval


def burst_course(burst: Burst) -> Course | None:
    """Return the course of the received rate, or of the sent rate if no frame was received; None: too few intervals."""
    sent = [interval.tx_packets for interval in burst.intervals]
    back = _received(burst)
    heard = back is not None and any(back)
    intervals = burst.intervals if not heard or burst.summary.rx_window_packets is not None else burst.intervals[:-1]
    frames = back if back is not None and heard else sent
    return course([interval.t_s for interval in intervals], frames, _counted_for_s(burst, heard))


def _counted_for_s(burst: Burst, heard: bool) -> float:
    """The time in which the frames of a course were counted: those that came back, until the window ended.

    The sender may have gone on until a slow kernel had taken its frames.
    """
    s = burst.summary
    return (
        min(s.duration_s, s.rx_window_s)
        if heard and s.rx_window_packets is not None and s.rx_window_s
        else s.duration_s
    )


def _received(burst: Burst) -> list[int] | None:
    """Frames that came back by interval, until the window ended; the last interval is omitted if it was not counted."""
    counts = [_back(interval) for interval in burst.intervals]
    if not counts or any(count < 0 for count in counts):
        return None
    whole = burst.summary.rx_window_packets
    return counts[:-1] if whole is None else [*counts[:-1], max(whole - sum(counts[:-1]), 0)]


def _back(interval: GeneratorInterval) -> int:
    return -1 if interval.rx_packets is None else interval.rx_packets
