"""CPU time inside the window, from the samples of a recorder, else from the readings around it; and the CPUs' clock.

The kernel counts CPU time in ticks (250 Hz on many kernels, printed in units of 10 ms): coarse over one second. A share
divides busy ticks by all ticks of the same CPU, so it depends neither on the tick's length nor on a clock.

The clock of the CPUs at work is in cycles per ns. A chain of additions is timed at rest, just before and just after the
window (native/cpuclock). perf's count of cycles, in its pass, is divided by the time that these CPUs were busy, so that
an idle CPU, which counts no cycle, does not look like a slow one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import pairwise
from math import fsum
from statistics import fmean

from xdplab.absent import Absent
from xdplab.counters.readings import Readings, Sample, Scope, difference, longest_run, window
from xdplab.counters.table import Role, When
from xdplab.formats.perf import PerfCount
from xdplab.formats.proc import CpuTicks

FIELDS: dict[str, Callable[[CpuTicks], int]] = {
    "busy": lambda cpu: cpu.busy,
    "softirq": lambda cpu: cpu.softirq,
    "steal": lambda cpu: cpu.steal,
}
AT_WORK = 0.5
"""A CPU did a part of the DUT's work if it was at least this share as busy as the busiest one."""

IDLE = 0.05

TICK_NS = 10_000_000
"""One tick of /proc/stat: USER_HZ is 100 on every architecture with a BPF JIT."""

MOST_TICKS = 1 / 50
"""The two ticks at the ends may be at most this share of the busy time: a shorter time is too coarse."""


def cores(readings: Readings, scope: Scope, kind: str) -> float:
    """Return how many CPUs of ``scope`` were `busy`, in `softirq`, or had `steal` on average."""
    shares = _shares(_bounds(readings, scope.machine), kind)
    return fsum(share for cpu, share in shares.items() if readings.chosen(scope, cpu))


def at_work(readings: Readings) -> int:
    """Return how many of the CPUs that may do the DUT's work did do some, by their busy time.

    If the window is too short for samples inside it, the readings around it are used: outside it all CPUs are idle.
    """
    try:
        bounds = _bounds(readings, "dut")
    except Absent:
        bounds = readings.procstat("dut", "before"), readings.procstat("dut", "after")
    shares = [share for cpu, share in _shares(bounds, "busy").items() if cpu in readings.working]
    busiest = max(shares, default=0.0)
    if busiest < IDLE:
        raise Absent("no CPU that may do the DUT's work was busy")
    return sum(share >= AT_WORK * busiest for share in shares)


def _bounds(readings: Readings, role: Role) -> tuple[tuple[CpuTicks, ...], tuple[CpuTicks, ...]]:
    if f"{role}.samples.out" in readings.files:
        first, last = window(readings.samples(role))
        return first.cpus, last.cpus
    return readings.procstat(role, "before"), readings.procstat(role, "after")


def _shares(bounds: tuple[tuple[CpuTicks, ...], tuple[CpuTicks, ...]], kind: str) -> dict[int, float]:
    before, after = ({row.cpu: row for row in rows} for rows in bounds)
    if before.keys() != after.keys():
        raise Absent("CPUs came or went in the window")
    return {cpu: _share(before[cpu], after[cpu], kind) for cpu in sorted(before)}


def _share(before: CpuTicks, after: CpuTicks, kind: str) -> float:
    busy = difference(before.busy, after.busy)
    # proc(5): iowait may go back; it means an idle CPU.
    idle = difference(before.idle, after.idle) + max(after.iowait - before.iowait, 0)
    total = busy + idle + difference(before.steal, after.steal)
    if total == 0:
        raise Absent("no tick passed in the window")
    return difference(FIELDS[kind](before), FIELDS[kind](after)) / total


def perf_by_cpu(readings: Readings, event: str, cpus: Collection[int] | None) -> dict[int | None, float]:
    """Return perf's count of ``event`` on each CPU of ``cpus``, or as it printed them (None: summed over all CPUs).

    An event that stands in two groups has two counts, each an estimate: their mean counts. Raises Absent if a CPU of
    ``cpus`` has none, and if one CPU stands for several, as where an event belongs to a socket.
    """
    estimates: dict[int | None, list[PerfCount]] = {}
    for count in readings.perf("dut"):
        if count.event == event:
            estimates.setdefault(count.cpu, []).append(count)
    if not estimates:
        listed = event in readings.perf_events("dut")
        raise Absent(f"perf printed no count of {event}" if listed else f"perf was not asked for {event}")
    if cpus is not None:
        _require_each(readings, event, cpus, estimates)
    return {cpu: _mean_count(event, counts) for cpu, counts in estimates.items() if cpus is None or cpu in cpus}


def _require_each(readings: Readings, event: str, cpus: Collection[int], counted: Collection[int | None]) -> None:
    if None in counted:
        raise Absent("perf summed over all CPUs, the DUT has some of them only")
    several = len({count.cpu for count in readings.perf("dut")}) > 1
    if set(cpus) - set(counted) or (len(counted) == 1 and several):
        raise Absent(
            f"perf counted {event} on CPU {', '.join(map(str, sorted(c for c in counted if c is not None)))} only, "
            f"which says nothing of the DUT's own, {', '.join(map(str, sorted(cpus)))}"
        )


def _mean_count(event: str, counts: list[PerfCount]) -> float:
    values = [count.value for count in counts if count.value is not None]
    if not values:
        raise Absent(f"perf: {event} {counts[0].reason}")
    return sum(values) / len(values)


@dataclass(frozen=True)
class CpuInterval:
    """One sampling interval; ``t_s`` is its end since traffic began."""

    t_s: float
    rx_packets: int
    tx_packets: int


def intervals(readings: Readings, role: Role) -> list[CpuInterval]:
    """Return the intervals of the longest run of traffic, including the two partly filled ones at its ends."""
    samples = readings.samples(role)
    pairs = list(pairwise(samples))
    run = longest_run(pairs, lambda pair: pair[1].rx_packets > pair[0].rx_packets)
    return [_interval(*pairs[place], samples[run.start].uptime_s) for place in run]


def _interval(before: Sample, after: Sample, start_s: float) -> CpuInterval:
    return CpuInterval(
        t_s=round(after.uptime_s - start_s, 2),
        rx_packets=difference(before.rx_packets, after.rx_packets),
        tx_packets=difference(before.tx_packets, after.tx_packets),
    )


def clock_by_additions(readings: Readings) -> float:
    """Return the mean of both readings, over the CPUs that may do the DUT's work."""
    return (_clock_at(readings, "before") + _clock_at(readings, "after")) / 2


def clock_change(readings: Readings) -> float:
    """Return the relative increase of the clock from before the window to after it."""
    return _clock_at(readings, "after") / _clock_at(readings, "before") - 1


def _clock_at(readings: Readings, when: When) -> float:
    clocks = readings.clock(when)
    missing = set(readings.working) - clocks.keys()
    if missing or not readings.working:
        raise Absent(f"the clock of CPU {min(missing)} was not read" if missing else "no CPU was asked for its clock")
    return fmean(clocks[cpu] for cpu in readings.working)


def clock_by_perf(readings: Readings) -> float:
    """Return perf's cycles over busy time, summed over the CPUs that may do the DUT's work."""
    cycles = fsum(perf_by_cpu(readings, "cycles", readings.working).values())
    before, after = ({row.cpu: row.busy for row in readings.procstat("dut", when)} for when in ("before", "after"))
    ticks = sum(difference(before[cpu], after[cpu]) for cpu in readings.working if cpu in before and cpu in after)
    if not cycles or 2 * len(readings.working) > MOST_TICKS * ticks:
        raise Absent("perf counted no cycle" if not cycles else f"{ticks} ticks of busy time tell no clock")
    return cycles / (ticks * TICK_NS)
