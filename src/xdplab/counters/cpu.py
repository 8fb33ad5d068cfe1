"""How busy the CPUs were inside the window: by the samples of a recorder, else by the readings around it.

The kernel counts CPU time in ticks (250 Hz on many kernels, printed in units of 10 ms): coarse over one second. A
share is busy ticks by all ticks of the same CPU, so that neither the tick's length nor a clock matters.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from xdplab.counters.readings import Readings, Scope
from xdplab.counters.samples import longest_run, window
from xdplab.counters.table import Role
from xdplab.counters.value import Absent, difference
from xdplab.formats.procstat import CpuTicks
from xdplab.formats.sar import CpuLoad, SarSample

FIELDS: dict[str, Callable[[CpuTicks], int]] = {"busy": lambda cpu: cpu.busy, "softirq": lambda cpu: cpu.softirq}


def share_by_cpu(readings: Readings, scope: Scope, kind: str) -> tuple[float, ...]:
    """Return the share (0 to 1) of its time that each CPU of ``scope`` was `busy` or in `softirq`."""
    before, after = ({row.cpu: row for row in rows} for rows in _bounds(readings, scope.machine))
    if before.keys() != after.keys():
        raise Absent("CPUs came or went in the window")
    return tuple(_share(before[cpu], after[cpu], kind) for cpu in sorted(before) if readings.chosen(scope, cpu))


def cores(readings: Readings, scope: Scope, kind: str) -> float:
    """Return how many CPUs of ``scope`` were `busy` or in `softirq` on average."""
    return sum(share_by_cpu(readings, scope, kind))


def source(readings: Readings, role: Role) -> str:
    """Return where the CPU values come from."""
    _bounds(readings, role)
    return "samples inside the window" if _sampled(readings, role) else "readings around the window"


def _sampled(readings: Readings, role: Role) -> bool:
    return f"{role}.samples.out" in readings.files


def _bounds(readings: Readings, role: Role) -> tuple[tuple[CpuTicks, ...], tuple[CpuTicks, ...]]:
    if _sampled(readings, role):
        first, last = window(readings.samples(role))
        return first.cpus, last.cpus
    return readings.procstat(role, "before"), readings.procstat(role, "after")


def _share(before: CpuTicks, after: CpuTicks, kind: str) -> float:
    busy = difference(before.busy, after.busy)
    # proc(5): iowait may go back; a CPU that idles is what it means by that.
    total = busy + difference(before.idle, after.idle) + max(after.iowait - before.iowait, 0)
    if total == 0:
        raise Absent("no tick passed in the window")
    return difference(FIELDS[kind](before), FIELDS[kind](after)) / total


def sar_window(readings: Readings, role: Role) -> tuple[SarSample, ...]:
    """Return sar's samples that lie wholly inside the window, found by the packets of the role's interface."""
    samples, name = readings.sar(role), readings.link(role, "before").interface
    inside = longest_run([_rate(sample, name, "rx_pps") for sample in samples], lambda rate: rate > 0)[1:-1]
    if not inside:
        raise Absent("no sample of sar (one a second) lies wholly inside the window")
    return tuple(samples[index] for index in inside)


def sar_rate(readings: Readings, role: Role, attribute: str) -> float:
    """Return the mean `rx_pps` or `tx_pps` of the role's interface inside the window."""
    name = readings.link(role, "before").interface
    return _mean([_rate(sample, name, attribute) for sample in sar_window(readings, role)])


def sar_cores(readings: Readings, scope: Scope, kind: str) -> float:
    """Return how many CPUs of ``scope`` were `busy` or in `soft` on average, by sar."""
    loads = [
        sum(_load(cpu, kind) for cpu in sample.cpus if cpu.cpu is not None and readings.chosen(scope, cpu.cpu))
        for sample in sar_window(readings, scope.machine)
    ]
    return _mean(loads) / 100


def _load(cpu: CpuLoad, kind: str) -> float:
    load = getattr(cpu, kind)
    if load is None:
        raise Absent("sar was asked without `-u ALL`: no softirq column")
    return float(load)


def _rate(sample: SarSample, name: str, attribute: str) -> float:
    for interface in sample.interfaces:
        if interface.interface == name:
            return float(getattr(interface, attribute))
    raise Absent(f"sar did not see the interface {name}")


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def packets_by_interval(readings: Readings, role: Role) -> list[tuple[float, int, int]]:
    """Return rows of interval end (s since the first sample), received and sent packets: what the link saw live."""
    samples = readings.samples(role)
    start = samples[0].uptime_s
    return [
        (
            round(after.uptime_s - start, 2),
            difference(before.rx_packets, after.rx_packets),
            difference(before.tx_packets, after.tx_packets),
        )
        for before, after in pairwise(samples)
    ]
