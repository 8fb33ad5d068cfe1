"""What a generator is asked to send: the same settings for every generator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

HEX_DIGITS_OF_RUN_ID = 16


@dataclass(frozen=True)
class GeneratorSettings:
    """One session of a generator. None leaves a choice to it; what it chose is in its ready line.

    ``frame_bytes`` counts the FCS and the tag of ``vlan``, if there is one. ``imix`` has the sizes of frames of several
    sizes, in the order in which each queue's sender sends them over and over; then ``frame_bytes`` does not apply.
    ``rate_pps`` is frames per second over all queues, None at maximum load. ``fifo`` is the senders' SCHED_FIFO
    priority, 0 none. Flow f has ``src_ip`` + f × ``src_ip_stride``, and so on; IPv6 has these as the last 32 bits of an
    address. ``stamp``: "all", "none" or one frame in N at random, of
    ``stamp_seed``. ``frames`` is a pcap on the generator's host whose frames are
    sent unchanged. ``max_frames`` bounds each burst. ``alone``: the frames do not leave; they are dropped as they are
    made (sender), or handed to the receiver without a link (receiver). ``rx_stamp``, ``tx_stamp``: who
    times received and sent frames. ``whole``: live frames are written whole from the start, and not only once a payload
    came back changed: so that several programs have the same sender.
    ``bind``, ``need_wakeup``, ``busy_poll_us``: of the sending AF_XDP sockets. ``receive_on`` is the interface on which
    the frames arrive, if a DUT forwards them from one port to another; None: the sending one.
    """

    engine: str
    interface: str
    queues: int = 1
    cpus: tuple[int, ...] = ()
    fifo: int = 5
    frame_bytes: int = 64
    imix: tuple[int, ...] = ()
    vlan: int | None = None
    ip_version: int = 4
    flows: int = 64
    rate_pps: float | None = None
    run_id: str = "0"
    src_mac: str | None = None
    dst_mac: str | None = None
    src_ip: str = "198.18.0.1"
    dst_ip: str = "198.19.0.1"
    src_ip_stride: str = "0.0.0.0"
    dst_ip_stride: str = "0.0.0.1"
    src_port: int = 1024
    dst_port: int = 50220
    port_stride: int = 0
    stamp: str | int = "all"
    stamp_seed: int | None = None
    settle_s: float = 0.05
    max_frames: int | None = None
    batch: int | None = None
    frames: str | None = None
    receive: bool = True
    rx_stamp: Literal["software", "device"] = "software"
    tx_stamp: Literal["software", "device"] = "software"
    bind: Literal["copy", "zerocopy"] = "copy"
    need_wakeup: bool = False
    busy_poll_us: int = 0
    receive_on: str | None = None
    alone: Literal["sender", "receiver"] | None = None
    whole: bool = False

    @property
    def frame_sizes(self) -> tuple[int, ...]:
        """The sizes of the frames: one, or those of ``imix`` in their order."""
        return self.imix or (self.frame_bytes,)
