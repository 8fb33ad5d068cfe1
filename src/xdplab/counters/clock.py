"""The clock, in cycles per ns, of the CPUs that do the DUT's work: by perf in its pass, or by additions at rest.

The chain is timed at rest, just before and just after the window (native/cpuclock). perf's count of cycles is divided
by the time that these CPUs were busy, so that an idle CPU, which counts no cycle, does not look like a slow one.
"""

from __future__ import annotations

from statistics import fmean

from xdplab.absent import Absent
from xdplab.counters.cpu import perf_by_cpu
from xdplab.counters.readings import Readings
from xdplab.counters.table import When
from xdplab.counters.value import difference

TICK_NS = 10_000_000
"""One tick of /proc/stat: USER_HZ is 100 on every architecture with a BPF JIT."""

MOST_TICKS = 1 / 50
"""The two ticks at the ends may be at most this share of the busy time: a shorter time is too coarse."""


def by_additions(readings: Readings) -> float:
    """Return the mean of both readings, over the CPUs that may do the DUT's work."""
    return (_at(readings, "before") + _at(readings, "after")) / 2


def change(readings: Readings) -> float:
    """Return the relative increase of the clock from before the window to after it."""
    return _at(readings, "after") / _at(readings, "before") - 1


def _at(readings: Readings, when: When) -> float:
    clocks = readings.clock(when)
    missing = set(readings.working) - clocks.keys()
    if missing or not readings.working:
        raise Absent(f"the clock of CPU {min(missing)} was not read" if missing else "no CPU was asked for its clock")
    return fmean(clocks[cpu] for cpu in readings.working)


def by_perf(readings: Readings) -> float:
    """Return perf's cycles over busy time, summed over the CPUs that may do the DUT's work."""
    cycles = sum(perf_by_cpu(readings, "cycles", readings.working).values())
    before, after = ({row.cpu: row.busy for row in readings.procstat("dut", when)} for when in ("before", "after"))
    ticks = sum(difference(before[cpu], after[cpu]) for cpu in readings.working if cpu in before and cpu in after)
    if not cycles or 2 * len(readings.working) > MOST_TICKS * ticks:
        raise Absent("perf counted no cycle" if not cycles else f"{ticks} ticks of busy time tell no clock")
    return cycles / (ticks * TICK_NS)
