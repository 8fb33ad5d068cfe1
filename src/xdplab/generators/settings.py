"""What a generator is asked to send: the same settings for every generator."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal


@dataclass(frozen=True)
class Frames:
    """The frames. ``frame_bytes`` counts the FCS and the tag of ``vlan``, if there is one.

    ``imix`` has the sizes of frames of several sizes, in the order in which each queue's sender sends them over and
    over; then ``frame_bytes`` does not apply. ``stamp``: "all", "none" or one frame in N at random, of ``stamp_seed``.
    ``file`` is a pcap on the generator's host whose frames are sent unchanged.
    """

    frame_bytes: int = 64
    imix: tuple[int, ...] = ()
    vlan: int | None = None
    ip_version: int = 4
    stamp: str | int = "all"
    stamp_seed: int | None = None
    file: str | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the frames: one, or those of ``imix`` in their order."""
        return self.imix or (self.frame_bytes,)


@dataclass(frozen=True)
class Addresses:
    """Flow f of ``flows`` has ``src_ip`` + f × ``src_ip_stride``, and so on.

    IPv6 has these as the last 32 bits of an address.
    """

    flows: int = 64
    src_mac: str | None = None
    dst_mac: str | None = None
    src_ip: str = "198.18.0.1"
    dst_ip: str = "198.19.0.1"
    src_ip_stride: str = "0.0.0.0"
    dst_ip_stride: str = "0.0.0.1"
    src_port: int = 1024
    dst_port: int = 50220
    port_stride: int = 0


@dataclass(frozen=True)
class XdpgenSettings:
    """What only xdpgen has.

    ``rx_stamp``, ``tx_stamp``: who times received and sent frames. ``bind``, ``need_wakeup``, ``busy_poll_us``: of the
    sending AF_XDP sockets. ``alone``: the frames do not leave; they are dropped as they are made (sender), or handed to
    the receiver without a link (receiver). ``whole``: live frames are written whole from the start, and not only once a
    payload came back changed: so that several programs have the same sender.
    """

    fifo: int = 5
    receive: bool = True
    rx_stamp: Literal["software", "device"] = "software"
    tx_stamp: Literal["software", "device"] = "software"
    bind: Literal["copy", "zerocopy"] = "copy"
    need_wakeup: bool = False
    busy_poll_us: int = 0
    alone: Literal["sender", "receiver"] | None = None
    whole: bool = False


@dataclass(frozen=True)
class GeneratorSettings:
    """One session of a generator. None leaves a choice to it; what it chose is in its ready line.

    ``receive_on`` is the interface on which the frames arrive, if a DUT forwards them from one port to another; None:
    the sending one. ``rate_pps`` is frames per second over all queues, None at maximum load. ``max_frames`` bounds each
    burst.
    """

    engine: str
    interface: str
    receive_on: str | None = None
    queues: int = 1
    cpus: tuple[int, ...] = ()
    batch: int | None = None
    rate_pps: float | None = None
    max_frames: int | None = None
    settle_s: float = 0.05
    run_id: str = "0"
    frames: Frames = field(default_factory=Frames)
    addresses: Addresses = field(default_factory=Addresses)
    xdpgen: XdpgenSettings = field(default_factory=XdpgenSettings)

    def changed(self, **values: Any) -> GeneratorSettings:
        """Return these settings with single values changed, each in the part that has it."""
        parts: dict[str, dict[str, Any]] = defaultdict(dict)
        for name, value in values.items():
            parts[_PART_OF.get(name, "")][name] = value
        fields = parts.pop("", {})
        return replace(self, **fields, **{part: replace(getattr(self, part), **new) for part, new in parts.items()})


_PARTS: dict[str, type[Any]] = {"frames": Frames, "addresses": Addresses, "xdpgen": XdpgenSettings}
_PART_OF = {one.name: part for part, kind in _PARTS.items() for one in fields(kind)}
