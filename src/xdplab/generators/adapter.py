"""A generator's adapter: how its arguments are written, and what its engines can do.

What one engine of a generator can do, known before it starts: what it cannot do is `unsupported`, with a reason.

What a generator is asked to send: the same settings for every generator.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Protocol

from xdplab.errors import UnsupportedError


@dataclass(frozen=True)
class Frames:
    """The frames. ``frame_bytes`` counts the FCS and the tag of ``vlan``, if there is one.

    ``imix`` has the sizes of frames of several sizes, in the order in which each queue's sender sends them over and
    over; then ``frame_bytes`` does not apply. ``stamp``: "all", "none" or one frame in N at random, of ``stamp_seed``.
    ``file`` is a pcap on the generator's host whose frames are sent unchanged; with a ``speed``, so many times as fast
    as they were captured.
    """

    frame_bytes: int = 64
    imix: tuple[int, ...] = ()
    vlan: int | None = None
    ip_version: int = 4
    stamp: str | int = "all"
    stamp_seed: int | None = None
    file: str | None = None
    speed: float | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the frames: one, or those of ``imix`` in their order."""
        return self.imix or (self.frame_bytes,)


@dataclass(frozen=True)
class Addresses:
    """Flow f of ``flows`` has ``src_ip`` + f × ``src_ip_stride``, and so on.

    IPv6 has these as the last 32 bits of an address. Flows are sent in turn, or drawn by Zipf's law with the exponent
    ``zipf`` and ``flow_seed``; ``churn`` of them end in each second, and new ones take their places.
    """

    flows: int = 64
    zipf: float | None = None
    flow_seed: int = 1
    churn: int = 0
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
    the sending one. ``rate_pps`` is frames per second over all queues, None at maximum load, and ``back_to_back`` how
    many of them are due at once. ``max_frames`` bounds each burst.
    """

    engine: str
    interface: str
    receive_on: str | None = None
    queues: int = 1
    cpus: tuple[int, ...] = ()
    batch: int | None = None
    rate_pps: float | None = None
    back_to_back: int = 1
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


MOONGEN, TESTPMD = ("moongen", "moongen-hw"), ("testpmd",)
BY_DPDK = (*MOONGEN, *TESTPMD)
"""Engines whose generator is a DPDK program: it polls the TG's port, and no program of the kernel's is there."""


def least_frame_bytes(settings: GeneratorSettings) -> int:
    """Return the smallest test frame with these headers, FCS included (native/common/payload.h)."""
    if settings.frames.ip_version == 6:
        return 88
    return 64 if settings.frames.vlan is None else 72


Wanted = Callable[[GeneratorSettings], bool]
WANTED: tuple[tuple[str, Wanted, str], ...] = (
    ("vlan", lambda settings: settings.frames.vlan is not None, "sends no VLAN tag"),
    ("two ports", lambda settings: settings.receive_on is not None, "receives on the port it sends on only"),
    ("imix", lambda settings: bool(settings.frames.imix), "sends frames of one size only, no IMIX"),
    ("pace", lambda settings: settings.rate_pps is not None, "sends as fast as possible only"),
    ("skew", lambda settings: settings.addresses.zipf is not None, "sends its flows in turn only"),
    ("churn", lambda settings: settings.addresses.churn > 0, "keeps its flows: it has no churn"),
    ("burst", lambda settings: settings.back_to_back > 1, "spaces its frames evenly: it sends no bursts"),
    ("stamp", lambda settings: settings.frames.stamp != "none", "does not stamp frames"),
    ("pieces", lambda settings: settings.xdpgen.alone is not None, "has no piece that works alone"),
    ("file", lambda settings: settings.frames.file is not None, "does not send the frames of a file"),
    ("timing", lambda settings: settings.frames.speed is not None, "does not send frames with recorded gaps"),
)
"""What some engines cannot do: its name, whether settings ask for it, and what to say of an engine that cannot.

``pieces``: sender and receiver can be measured without a link.
"""


@dataclass(frozen=True)
class Capabilities:
    """One engine. ``frame_bytes`` are the smallest and the largest frame, FCS included.

    ``batches``: frames handed over at once at a paced load, where a small batch keeps the pace, and at the largest.
    ``queue_per_cpu``: a CPU reaches one queue only (its number modulo the queues), so that queues need CPUs.
    ``largest_why`` is said of a larger frame. ``can``: the names of what it can do of `WANTED`. ``addresses``: those of
    its frames, by setting, if it has no others.
    """

    generator: str
    engine: str
    frame_bytes: tuple[int, int]
    max_queues: int
    max_flows: int
    batches: tuple[int, int]
    queue_per_cpu: bool
    can: frozenset[str] = frozenset()
    ip_versions: tuple[int, ...] = (4,)
    largest_why: str = ""
    addresses: Mapping[str, Any] = field(default_factory=dict)

    def batch(self, *, paced: bool) -> int:
        """Return the batch of a plan that asks for none: the same at every paced rate, so that no curve has a step."""
        return self.batches[0 if paced else 1]

    def queues_reached(self, queues: int, cpus: Sequence[int]) -> int:
        """Return how many of ``queues`` get traffic from senders on ``cpus``."""
        return len({cpu % queues for cpu in cpus}) if self.queue_per_cpu else queues

    def refusal(self, settings: GeneratorSettings) -> str | None:
        """Return why these settings are impossible, or None."""
        smallest, largest = max(self.frame_bytes[0], least_frame_bytes(settings)), self.frame_bytes[1]
        frames, flows = settings.frames, settings.addresses.flows
        reached = self.queues_reached(settings.queues, settings.cpus)
        checks = (
            *((name in self.can or not wanted(settings), reason) for name, wanted, reason in WANTED),
            (frames.ip_version in self.ip_versions, f"sends no IPv{frames.ip_version}"),
            (smallest <= min(frames.sizes), f"sends frames of {smallest} to {largest} bytes"),
            (max(frames.sizes) <= largest, f"sends frames of {smallest} to {largest} bytes{self.largest_why}"),
            (1 <= settings.queues <= self.max_queues, f"reaches at most {self.max_queues} queues"),
            (1 <= flows <= self.max_flows, f"sends at most {self.max_flows} flows"),
            (not settings.cpus or reached == settings.queues, f"reaches {reached} queues from CPUs {settings.cpus}"),
            (not self._others(settings), f"has addresses of its own: write `{self.own_addresses}`"),
        )
        return next((reason for possible, reason in checks if not possible), None)

    @property
    def own_addresses(self) -> str:
        """Return what a plan's ``traffic`` has to say for the addresses of this engine's frames."""
        return ", ".join(f"{name}: {value}" for name, value in self.addresses.items())

    def _others(self, settings: GeneratorSettings) -> list[str]:
        return [name for name, default in self.addresses.items() if getattr(settings.addresses, name) != default]

    def require(self, settings: GeneratorSettings) -> None:
        """Raise UnsupportedError naming generator, engine and limit where these settings are impossible."""
        if reason := self.refusal(settings):
            raise UnsupportedError(f"{self.generator}, engine {self.engine}: {reason}")


@dataclass(frozen=True)
class Adapter:
    """``argv`` turns settings and the path of the binary into a command that takes bursts from its standard input.

    ``start_s`` is how long it may take to be ready. ``stays``: it can live on from trial to trial and mark where each
    ends. ``refusals``: what it says where it cannot have what is asked, as patterns, and what to do then.
    """

    name: str
    argv: Callable[[GeneratorSettings, str], list[str]]
    capabilities: Mapping[str, Capabilities]
    start_s: float = 15.0
    stays: bool = False
    refusals: tuple[tuple[str, str], ...] = ()

    def refusal(self, message: str) -> str | None:
        """Return the remedy if its output says that this lab cannot do what was asked; trying again would not help."""
        return next((remedy for pattern, remedy in self.refusals if re.search(pattern, message, re.IGNORECASE)), None)

    def capability(self, engine: str) -> Capabilities:
        """Return what ``engine`` can do. Raises UnsupportedError if the generator has no such engine."""
        if engine not in self.capabilities:
            engines = ", ".join(self.capabilities)
            raise UnsupportedError(f"{self.name} has no engine {engine!r}", remedy=f"it has {engines}")
        return self.capabilities[engine]


class DpdkPlace(Protocol):
    """Where a user has installed a generator on the TG (`labs.base.GeneratorPlace`)."""

    @property
    def path(self) -> str | None: ...
    @property
    def port(self) -> int: ...
    @property
    def dpdk(self) -> Sequence[str]: ...
    @property
    def card(self) -> str | None:
        """The PCI address of the one card that DPDK may open."""


@dataclass(frozen=True)
class Installed:
    """A generator on the TG: its adapter, the program that this starts, and its name of the TG's end of the link."""

    adapter: Adapter
    program: str
    port: str


def traffic_options(s: GeneratorSettings) -> dict[str, object]:
    """Return the options that every generator takes under the same name."""
    frames, addresses = s.frames, s.addresses
    return {
        "queues": s.queues,
        "frame-bytes": ",".join(map(str, frames.sizes)),
        "vlan": frames.vlan,
        "ip-version": frames.ip_version if frames.ip_version != 4 else None,
        "flows": addresses.flows,
        "load": "max" if s.rate_pps is None else f"{s.rate_pps:.15g}",
        "run-id": s.run_id,
        "src-mac": addresses.src_mac,
        "dst-mac": addresses.dst_mac,
        "src-ip": addresses.src_ip,
        "dst-ip": addresses.dst_ip,
        "src-ip-stride": addresses.src_ip_stride,
        "dst-ip-stride": addresses.dst_ip_stride,
        "src-port": addresses.src_port,
        "dst-port": addresses.dst_port,
        "port-stride": addresses.port_stride,
        "stamp": frames.stamp,
        "stamp-seed": frames.stamp_seed,
        "settle": f"{s.settle_s:g}",
        "max-frames": s.max_frames,
        "batch": s.batch,
    }


def as_words(options: Mapping[str, object]) -> list[str]:
    """Return the options as arguments; one that is None is left to the generator."""
    return [word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))]


def xdpgen_argv(settings: GeneratorSettings, binary: str) -> list[str]:
    """Return xdpgen's command in step mode."""
    s, flows = settings.xdpgen, settings.addresses
    options = {
        "interface": settings.interface,
        "receive-on": settings.receive_on,
        "engine": settings.engine,
        "cpus": ",".join(map(str, settings.cpus)) or None,
        "fifo": s.fifo,
        "frames": settings.frames.file,
        "recorded": None if settings.frames.speed is None else f"{settings.frames.speed:g}",
        "alone": s.alone,
        "rx-stamp": s.rx_stamp if s.rx_stamp != "software" else None,
        "tx-stamp": s.tx_stamp if s.tx_stamp != "software" else None,
        "bind": s.bind if s.bind != "copy" else None,
        "busy-poll": s.busy_poll_us or None,
        "skew": None if flows.zipf is None else f"zipf:{flows.zipf:g}",
        "flow-seed": None if flows.zipf is None else flows.flow_seed,
        "churn": flows.churn or None,
        "burst": settings.back_to_back if settings.back_to_back > 1 else None,
    }
    arguments = as_words({**options, **traffic_options(settings)})
    flags = ("--no-receive",) * (not s.receive) + ("--need-wakeup",) * s.need_wakeup + ("--whole",) * s.whole
    return [binary, "--step", *flags, *arguments]


_BOTH = frozenset({"pace", "stamp", "vlan", "imix", "two ports", "skew", "churn", "burst"})

# A live frame leaves when its batch ends. One that was reflected natively came back after 0.65 us (p50) in batches of
# 1, 0.85 of 4, 1.0 to 1.3 of 8, 2.4 of 16, 8 to 10 of 60; the most they reach is 1.1, 2.3, 3.0, 3.0 and 3.7 Mpps.
_LIVE = Capabilities(
    generator="xdpgen",
    engine="live",
    frame_bytes=(64, 3360),
    max_queues=64,
    max_flows=1 << 20,
    batches=(8, 60),
    queue_per_cpu=True,
    can=_BOTH | {"pieces"},
    ip_versions=(4, 6),
    largest_why=": the kernel keeps a live frame in one page; engine afxdp sends larger ones",
)
_AFXDP = Capabilities(
    generator="xdpgen",
    engine="afxdp",
    frame_bytes=(64, 9216),
    max_queues=64,
    max_flows=1 << 20,
    batches=(32, 256),
    queue_per_cpu=False,
    can=_BOTH | {"file", "timing"},
    ip_versions=(4, 6),
)

XDPGEN = Adapter(
    "xdpgen",
    xdpgen_argv,
    {"live": _LIVE, "afxdp": _AFXDP},
    stays=True,
    refusals=(
        ("this kernel has no live frames", "write `traffic: {engine: afxdp}` in the plan's block"),
        ("frames have several descriptors", "`tx_bind: copy` and Linux 6.6 on the TG, or frames of at most 4100 bytes"),
        (r"no AF_XDP socket with zerocopy.*(E?OPNOTSUPP|EINVAL)", "`tx_bind: copy`: the TG's driver has no zero copy"),
        ("is bound with copy instead of zerocopy", "`tx_bind: copy`: the TG's driver has no zero copy"),
        ("a receiving program that asks .* for its time stamps", "`rx_stamp: software`, or Linux 6.3 on the TG"),
        (
            "(does not offer|whether .* offers) tx-timestamp",
            "`tx_stamp: software`: the TG's device does not stamp here",
        ),
        ("offers tx-timestamp, but has no PTP clock", "`tx_stamp: software`: no clock tells what its stamps mean"),
        ("have not one PTP clock but two", "`tx_stamp: software`, or two ports of one card"),
        ("the kernel refuses busy polling", "`tx_busy_poll_us: 0`, or Linux 5.11 and newer on the TG"),
    ),
)
