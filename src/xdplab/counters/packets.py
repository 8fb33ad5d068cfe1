"""Packet counts of the interfaces: of the link, of the driver and its queues, and of the softirqs' backlog."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

from xdplab.absent import Absent
from xdplab.counters import drivers
from xdplab.counters.drivers import Driver, Names
from xdplab.counters.readings import Readings, Scope, difference
from xdplab.counters.table import Role
from xdplab.formats.ethtool import by_queue
from xdplab.formats.settings import PROBE_NOTE
from xdplab.plan.factors import SKB_MODES

Direction = Literal["rx", "tx"]

COUNTED_BY = {"native": "driver", **dict.fromkeys((*SKB_MODES, "offload"), "link")}
"""Whose count decides the verdict, by mode. Behind native mode veth's driver counts no XDP packets."""

STRAY_SHARE = 0.01  # of the frames: a link that counted fewer has counted other frames than those of XDP


def link_packets(readings: Readings, role: Role, direction: Direction) -> int:
    """Return the packets that the link counted in the window."""
    before, after = (getattr(readings.link(role, when), direction).packets for when in ("before", "after"))
    return difference(before, after)


def link_dropped(readings: Readings, role: Role, direction: Direction) -> int:
    """Return the packets that the link dropped in the window."""
    before, after = (getattr(readings.link(role, when), direction).dropped for when in ("before", "after"))
    return difference(before, after)


def driver_of(readings: Readings, role: Role) -> Driver:
    """Return the row of the driver whose counters were read."""
    counters, name = readings.driver(role, "before"), readings.driver_name(role)
    driver = drivers.driver_of(counters, name)
    if driver is None:
        raise Absent(f"counters/drivers.py has no row for the driver {name}")
    refuted: dict[str, Any] = dict.fromkeys(_refuted(readings, role, name), ())
    return replace(driver, **refuted)


def _refuted(readings: Readings, role: Role, name: str) -> list[str]:
    """Return the kinds of counters that a probe of the port found wrong; it tries native mode."""
    with suppress(Absent):
        driver, *kinds = readings.settings(role, "before").get(PROBE_NOTE, "").partition(":")[0].split() or [""]
        if (driver, readings.mode) == (name, "native"):
            return kinds
    return []


def driver_lost(readings: Readings, role: Role) -> int:
    """Return the frames for which the NIC or its driver had no place in the window."""
    return _gained(readings, role, driver_of(readings, role).lost, "lost frames")


def _gained(readings: Readings, role: Role, names: Names, meaning: str) -> int:
    counters = readings.driver(role, "before"), readings.driver(role, "after")
    if not names:
        raise Absent(f"the driver {driver_of(readings, role).name} counts no {meaning} in ethtool -S")
    if lacking := [name for one in counters for name in drivers.absent(one, names)]:
        raise Absent(f"ethtool -S lacks {drivers.spelled(lacking[0])}, a part of {meaning}")
    before, after = (drivers.total(one, names) for one in counters)
    return difference(before, after)


def driver_by_queue(readings: Readings, role: Role) -> tuple[int, ...]:
    """Return the frames that each receive queue took in the window, without unused queues.

    Some drivers print counters of every possible queue.
    """
    columns = []
    if not (received := driver_of(readings, role).received):
        raise Absent("a probe of the port refutes what counters/drivers.py says of received frames")
    for pattern in received:
        first, last = (by_queue(readings.driver(role, when), pattern) for when in ("before", "after"))
        if first.keys() != last.keys():
            raise Absent(f"{len(first)} queues before the window, {len(last)} after it")
        columns.append({queue: difference(first[queue], last[queue]) for queue in first})
    if any(column.keys() != columns[0].keys() for column in columns):
        raise Absent("ethtool -S has a queue among some of its counters only")
    counts = [sum(column[queue] for column in columns) for queue in sorted(columns[0])]
    while readings.queues and len(counts) > readings.queues and not counts[-1]:
        counts.pop()
    return tuple(counts)


def rx_by_queue(readings: Readings, role: Role) -> tuple[int, ...]:
    """Return the packets each receive queue took; absent if the driver saw none that the link counted."""
    queues = driver_by_queue(readings, role)
    received = link_packets(readings, role, "rx")
    if received and not any(queues):
        why = " (generic mode)" if driver_of(readings, role).received_xdp_only else ""
        raise Absent(f"the driver's queue counters stayed 0 while the link received {received}{why}")
    return queues


def jain_index(counts: tuple[int, ...]) -> float:
    """Return Jain's fairness index (sum x)^2 / (n sum x^2): 1 is even, 1/n is all on one. Raises Absent on no count.

    R. Jain, D. Chiu, W. Hawe: A Quantitative Measure of Fairness and Discrimination for Resource Allocation in
    Shared Computer Systems, DEC-TR-301, 1984.
    """
    squares = sum(count * count for count in counts)
    if squares == 0:
        raise Absent("no packet on any queue")
    return float(sum(counts) ** 2 / (len(counts) * squares))


def counted_by(readings: Readings) -> str:
    """Return whose count of the DUT decides the verdict: `driver`, or `link` if no row fits the driver."""
    try:
        by = COUNTED_BY[readings.mode]
    except KeyError:
        raise Absent(f"{readings.mode}: the application's rings count the frames, not the interface") from None
    return "link" if by == "driver" and _unknown_driver(readings) else by


def _unknown_driver(readings: Readings) -> Absent | None:
    try:
        driver_of(readings, "dut")
    except Absent as unknown:
        return unknown
    return None


def dut_packets(readings: Readings, direction: Direction) -> int:
    """Return the DUT's count of the frames by the counter that its mode fills exactly (COUNTED_BY)."""
    if (readings.mode, direction) == ("netkit", "rx"):
        raise Absent("a netkit does not count, at this end, what its program redirects or drops")
    if counted_by(readings) == "link":
        unknown = _unknown_driver(readings) if COUNTED_BY[readings.mode] == "driver" else None
        return link_packets(readings, "dut", direction) if unknown is None else _by_link(readings, direction, unknown)
    if direction == "rx":
        return sum(driver_by_queue(readings, "dut"))
    sent = driver_of(readings, "dut").sent
    return link_packets(readings, "dut", "tx") if sent is None else _gained(readings, "dut", sent, "tx_packets")


def forwarded(readings: Readings) -> int:
    """Return the frames that the DUT's interface sent for another one."""
    if readings.mode == "native":
        with suppress(Absent):  # an unknown driver
            return handed_over(readings, "dut")
    return link_packets(readings, "dut", "tx")


def handed_over(readings: Readings, role: Role) -> int:
    """Return the frames of XDP's redirects (the generator's live frames, too) that an interface sent.

    The link counts them, or a counter of the driver if the link's statistics leave them out.
    """
    names = driver_of(readings, role).forwarded
    return _gained(readings, role, names, "forwarded frames") if names else link_packets(readings, role, "tx")


def mean_bytes(readings: Readings, direction: Direction) -> float:
    """Return the mean size of the frames of ``direction``, by the DUT's link: without their FCS (linux/if_link.h)."""
    counted, packets = dut_packets(readings, direction), link_packets(readings, "dut", direction)
    if not packets or abs(packets - counted) > STRAY_SHARE * counted:
        raise Absent(f"the link counted {packets} of the {counted} frames, and the bytes of no others")
    before, after = (getattr(readings.link("dut", when), direction).bytes for when in ("before", "after"))
    return difference(before, after) / packets


def _by_link(readings: Readings, direction: Direction, unknown: Absent) -> int:
    """Return the link's count, if it includes the frames of XDP: some drivers leave them out.

    The TG's link tells how many there were; a reading without it has only the DUT's.
    """
    try:
        received, count = (link_packets(readings, "dut", way) for way in ("rx", direction))
    except Absent:
        raise unknown from None
    with suppress(Absent):
        received = max(received, link_packets(readings, "tg", "tx"))
    if not received or count < STRAY_SHARE * received:
        raise Absent(f"{unknown}, and the link's statistics do not count what XDP does")
    return count


def actions(readings: Readings) -> str:
    """Return the actions of the DUT's program in the window, as JSON: frames by action.

    They come from the driver's own counters, which do not slow the program. ``drop`` includes XDP_ABORTED and unknown
    codes; ``pass`` is the rest. veth's counters were compared with programs of one constant action, on 6.18.
    """
    if readings.mode != "native":
        raise Absent(f"{readings.mode}: no counter of the driver says what a program decided")
    driver, seen = driver_of(readings, "dut"), sum(driver_by_queue(readings, "dut"))
    kinds = {"tx": driver.tx, "drop": driver.drop, "redirect": driver.redirect}
    if not all(kinds.values()):
        raise Absent(f"the driver {driver.name} does not count what a program decides")
    decided = {action: _gained(readings, "dut", names, action) for action, names in kinds.items()}
    passed = seen - sum(decided.values())
    if passed < 0:
        raise Absent(f"the driver's counters of XDP's actions add up to {sum(decided.values())} of {seen} frames")
    return json.dumps(decided | {"pass": passed})


def softnet_by_cpu(readings: Readings, scope: Scope, counter: str) -> tuple[int, ...]:
    """Return the increase of `dropped` or `squeezed` of each CPU, in their order."""
    before, after = ({row.cpu: row for row in readings.softnet(scope.machine, when)} for when in ("before", "after"))
    if before.keys() != after.keys():
        raise Absent("CPUs came or went in the window")
    chosen = [cpu for cpu in sorted(before) if readings.chosen(scope, cpu)]
    return tuple(difference(getattr(before[cpu], counter), getattr(after[cpu], counter)) for cpu in chosen)


def softnet_sum(readings: Readings, scope: Scope, counter: str) -> int:
    """Return the increase of `dropped` or `squeezed` over all CPUs of ``scope``."""
    return sum(softnet_by_cpu(readings, scope, counter))
