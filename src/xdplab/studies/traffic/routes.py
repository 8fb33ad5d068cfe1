"""Frames that no program takes go to the DUT's kernel: it must not route them into a network that is not the lab's.

A user's program may pass them; and between the end of a program (a killed loader, a lost connection) and the end of a
burst, none is attached.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xdplab.errors import LabError
from xdplab.hosts import Host
from xdplab.hosts.together import run_together
from xdplab.plan import Point


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
