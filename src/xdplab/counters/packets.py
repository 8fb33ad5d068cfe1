"""What the interfaces counted: by the link, by the driver and its queues, and by the softirqs' backlog."""

from __future__ import annotations

import json
from typing import Literal

from xdplab.counters.readings import Readings, Scope
from xdplab.counters.table import Role
from xdplab.counters.value import Absent, difference
from xdplab.formats.ethtool import by_queue

Direction = Literal["rx", "tx"]

DRIVER_COUNTERS: dict[str, tuple[str, ...]] = {
    # counter of one queue: its names in `ethtool -S` of veth, and of virtio_net
    "rx_packets": (r"rx_queue_([0-9]{1,4})_xdp_packets", r"rx([0-9]{1,4})_xdp_packets"),
    "tx_packets": (r"rx_queue_([0-9]{1,4})_xdp_tx", r"rx([0-9]{1,4})_xdp_tx"),
    # What a full ring did not take: veth leaves it out of xdp_tx, virtio_net counts it in both.
    "tx_refused": (r"tx_queue_([0-9]{1,4})_xdp_tx_drops", r"tx([0-9]{1,4})_xdp_tx_drops"),
    "tx_errors": (r"rx_queue_([0-9]{1,4})_xdp_tx_errors",),
    "xdp_drops": (r"rx_queue_([0-9]{1,4})_xdp_drops", r"rx([0-9]{1,4})_xdp_drops"),
    "redirects": (r"rx_queue_([0-9]{1,4})_xdp_redirect", r"rx([0-9]{1,4})_xdp_redirects"),
    # A redirect that failed; virtio_net counts it among its drops.
    "redirect_errors": (r"rx_queue_([0-9]{1,4})_drops",),
    "queue_drops": (r"rx_queue_([0-9]{1,4})_drops", r"rx([0-9]{1,4})_drops"),
}

COUNTED_BY = {"native": "driver", "generic": "link", "offload": "link"}
"""Whose count makes the verdict, by mode. In generic mode veth's driver counts no XDP packet at all."""


def link_packets(readings: Readings, role: Role, direction: Direction) -> int:
    """Return the packets that the link counted in the window."""
    before, after = (getattr(readings.link(role, when), direction).packets for when in ("before", "after"))
    return difference(before, after)


def link_dropped(readings: Readings, role: Role, direction: Direction) -> int:
    """Return the packets that the link dropped in the window."""
    before, after = (getattr(readings.link(role, when), direction).dropped for when in ("before", "after"))
    return difference(before, after)


def driver_by_queue(readings: Readings, role: Role, counter: str) -> tuple[int, ...]:
    """Return what a row of DRIVER_COUNTERS gained in the window, by queue."""
    before, after = readings.driver(role, "before"), readings.driver(role, "after")
    for pattern in DRIVER_COUNTERS[counter]:
        first, last = by_queue(before, pattern), by_queue(after, pattern)
        if first is None or last is None:
            continue
        if len(first) != len(last):
            raise Absent(f"{len(first)} queues before the window, {len(last)} after it")
        return tuple(map(difference, first, last))
    raise Absent(f"this driver counts no {counter} by queue in ethtool -S")


def driver_sum(readings: Readings, role: Role, counter: str) -> int:
    """Return what a row of DRIVER_COUNTERS gained in the window, over all queues."""
    return sum(driver_by_queue(readings, role, counter))


def rx_by_queue(readings: Readings, role: Role) -> tuple[int, ...]:
    """Return the packets each receive queue handed to XDP; absent where the driver saw none that the link counted."""
    queues = driver_by_queue(readings, role, "rx_packets")
    received = link_packets(readings, role, "rx")
    if received and not any(queues):
        raise Absent(f"the driver's queue counters stayed 0 while the link received {received} (generic mode)")
    return queues


def counted_by(readings: Readings) -> str:
    """Return whose count of the DUT makes the verdict: `driver` or `link`."""
    try:
        return COUNTED_BY[readings.mode]
    except KeyError:
        raise Absent(f"{readings.mode}: the application's rings count the frames, not the interface") from None


def dut_packets(readings: Readings, direction: Direction) -> int:
    """Return the DUT's count of the frames by the counter that its mode fills exactly (COUNTED_BY)."""
    if counted_by(readings) != "driver":
        return link_packets(readings, "dut", direction)
    counted = driver_sum(readings, "dut", f"{direction}_packets")
    return counted - _gained_where_apart(readings, "tx_refused") if direction == "tx" else counted


def actions(readings: Readings) -> str:
    """Return what the DUT's program decided for the frames of the window, as JSON: frames by action.

    From the driver's own counters, which cost the program nothing. ``drop`` holds XDP_ABORTED and unknown codes too;
    ``pass`` is what no other counter saw. veth's were compared with programs that decide one thing only, on 6.18.
    """
    if readings.mode != "native":
        raise Absent(f"{readings.mode}: no counter of the driver says what a program decided")
    seen = driver_sum(readings, "dut", "rx_packets")
    decided = {
        "tx": driver_sum(readings, "dut", "tx_packets") + _gained_where_apart(readings, "tx_errors"),
        "drop": driver_sum(readings, "dut", "xdp_drops"),
        "redirect": driver_sum(readings, "dut", "redirects") + _gained_where_apart(readings, "redirect_errors"),
    }
    passed = seen - sum(decided.values())
    if passed < 0:
        raise Absent(f"the driver's counters of XDP's actions add up to {sum(decided.values())} of {seen} frames")
    return json.dumps(decided | {"pass": passed})


def _gained_where_apart(readings: Readings, counter: str) -> int:
    """Return what a counter gained that some drivers do not have apart; 0 there."""
    try:
        return driver_sum(readings, "dut", counter)
    except Absent:
        return 0


def attached(readings: Readings, role: Role) -> tuple[str, int]:
    """Return mode and id of the one program attached throughout. Raises Absent on none, several or a change."""
    before, after = readings.link(role, "before").attachments, readings.link(role, "after").attachments
    if before != after:
        raise Absent(f"the attached programs changed in the window: {before} before, {after} after")
    if len(before) != 1:
        raise Absent(f"{len(before)} XDP programs are attached")
    return before[0].mode, before[0].program_id


def softnet_by_cpu(readings: Readings, scope: Scope, counter: str) -> tuple[int, ...]:
    """Return what `dropped` or `squeezed` gained, by CPU in their order."""
    before, after = ({row.cpu: row for row in readings.softnet(scope.machine, when)} for when in ("before", "after"))
    if before.keys() != after.keys():
        raise Absent("CPUs came or went in the window")
    chosen = [cpu for cpu in sorted(before) if readings.chosen(scope, cpu)]
    return tuple(difference(getattr(before[cpu], counter), getattr(after[cpu], counter)) for cpu in chosen)


def softnet_sum(readings: Readings, scope: Scope, counter: str) -> int:
    """Return what `dropped` or `squeezed` gained over all CPUs of ``scope``."""
    return sum(softnet_by_cpu(readings, scope, counter))
