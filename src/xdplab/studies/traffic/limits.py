"""What surrounds the DUT: the link's rate, the generator's own limit, and routes out of the lab.

Frames that no program takes go to the DUT's kernel: it must not route them into a network that is not the lab's. A
user's program may pass them; and between the end of a program (a killed loader, a lost connection) and the end of a
burst, none is attached.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xdplab.errors import LabError, PlanError
from xdplab.formats.ethtool import parse_speed
from xdplab.hosts import Host, run_together
from xdplab.labs import Lab
from xdplab.lazy import lazy
from xdplab.plan import Point
from xdplab.plan.factors import in_plan
from xdplab.studies.trial_facts import Limit, TimingLimits

pcap = lazy("xdplab.formats.pcap")  # few plans have one

FrameKey = tuple[object, ...]

TAGGED_HEADER = 18
"""Bytes of an Ethernet header with a VLAN tag: a link takes frames of its MTU and these, without FCS."""


def frame_key(point: Point) -> FrameKey:
    """Return the factors that a generator's own limit depends on."""
    sent = tuple(getattr(point, factor.name) for factor in in_plan("traffic") if factor.name not in ("load", "burst"))
    return (point.arrangement, point.queues, point.device, point.frame_bytes, point.program.frames_sha256, *sent)


def machine_of(host: Host) -> TimingLimits:
    """Return by which clock ``host`` tells the time, and how long its real-time threads may run."""
    source, runtime, period = (shown.text.strip() for shown in run_together(host, [["cat", p] for p in MACHINE_FILES]))
    each_second = None if not runtime or not period else int(runtime)
    if each_second is not None and each_second >= 0:
        each_second = round(1e6 * each_second / int(period))
    return TimingLimits(source or None, each_second)


MACHINE_FILES = (
    "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "/proc/sys/kernel/sched_rt_runtime_us",
    "/proc/sys/kernel/sched_rt_period_us",
)


def link_rate(lab: Lab) -> Limit:
    """Return the link's L1 rate in bit/s: that of the slower end that the kernel has (DPDK's end has the same
    cable)."""
    if lab.virtual:
        return Limit(None, "a virtual link has no rate, whatever its `speed` says")
    ends = [(lab.dut, lab.dut_interface)] + ([] if lab.generator.by_dpdk else [(lab.tg, lab.tg_interface)])
    speeds = [speed for host, interface in ends if (speed := _speed(host, interface)) is not None]
    return Limit(min(speeds)) if speeds else Limit(None, "neither end says its speed: is the cable in?")


def _speed(host: Host, interface: str) -> float | None:
    answer = host.run(["ethtool", interface], check=False)
    return parse_speed(answer.stdout) if answer.ok else None


def require_small_frames(pcaps: Iterable[str], lab: Lab) -> None:
    """Raise PlanError for a frame of a pcap that the TG's link does not take: each trial would lose it."""
    for path in pcaps:
        mtu = int(lab.tg.get(f"/sys/class/net/{lab.tg_interface}/mtu"))
        sizes = [len(frame) for frame in pcap.frames_in(path)]
        if max(sizes) > mtu + TAGGED_HEADER:
            number = next(at for at, size in enumerate(sizes, 1) if size > mtu + TAGGED_HEADER)
            raise PlanError(
                f"program.frames: {path}: frame {number} has {sizes[number - 1]} bytes, and {lab.tg_interface} has an "
                f"MTU of {mtu}",
                remedy="cut it, or raise the MTU of both ends before the run",
            )


def refuse_way_out(host: Host, ports: Sequence[str], points: Iterable[Point]) -> None:
    """Raise LabError if the DUT forwards frames of ``points`` to another device than its ``ports`` of the lab."""
    addresses = sorted({(point.ip_version, point.src_ip, point.dst_ip) for point in points})
    for port in ports:
        for version, source, target in addresses:
            way = _way(host, port, version, source, target)
            if way is not None and way not in ports:
                file = f"/proc/sys/net/ipv4/conf/{port}/forwarding"
                remedy = f"`echo 0 >{file}`" if version == 4 else "`ip -6 route add blackhole 2001:2::/48`"
                raise LabError(
                    f"{host.name}: it would route the traffic's frames from {port} to {way}, out of the lab",
                    remedy=f"{remedy} there, for frames that no program takes",
                )


def _way(host: Host, port: str, version: int, source: str, target: str) -> str | None:
    """Return the device by which the kernel forwards a frame; None if it drops the frame or is its target."""
    prefix = "" if version == 4 else "2001:2::"
    route = ["ip", "-j", f"-{version}", "route", "get", f"{prefix}{target}", "from", f"{prefix}{source}", "iif", port]
    # For IPv6, `ip route get` answers as if the kernel forwarded.
    shown, forwards = run_together(host, [route, ["cat", f"/proc/sys/net/ipv{version}/conf/all/forwarding"]])
    if not shown.ok or (version == 6 and forwards.text.strip() != "1"):
        return None
    shown_route = shown.row("dst")
    return str(shown_route["dev"]) if shown_route.get("type", "unicast") == "unicast" and "dev" in shown_route else None
