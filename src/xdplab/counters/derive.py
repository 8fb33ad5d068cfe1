"""What the files of an attempt's counters give: one function per value, which raises `Absent` where there is none.

Values of the DUT's CPUs are absent if TG and DUT share them; those of the whole machine begin with `host_`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from xdplab.absent import Absent
from xdplab.counters import clock, cpu, packets, settings
from xdplab.counters.readings import Readings, Scope
from xdplab.counters.table import COLLECTORS, Collector, When, snapshot_file
from xdplab.counters.value import jain_index
from xdplab.errors import FormatError
from xdplab.run.evaluation import Evaluation

DUT_CPUS, ALL_CPUS = Scope("dut", "dut"), Scope("dut", None)
SHARED = "TG and DUT share CPUs: see the host_ columns"
_METRIC_FILE = re.compile(r"dut\.metric_([a-z][a-z0-9_]*)\.(before|after)\.(txt|err)")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

Compute = Callable[[Readings], object]
Counters = Evaluation[Readings]


def _own(compute: Compute) -> Compute:
    """A value of the DUT's CPUs: it means nothing if they are the TG's too."""

    def value(readings: Readings) -> object:
        if readings.shared:
            raise Absent(SHARED)
        return compute(readings)

    return value


def _cores(kind: str, scope: Scope) -> Compute:
    return partial(cpu.cores, scope=scope, kind=kind)


def _softnet(counter: str, scope: Scope) -> Compute:
    return partial(packets.softnet_sum, scope=scope, counter=counter)


def _perf(event: str, scope: Scope = DUT_CPUS) -> Compute:
    return partial(_perf_sum, event=event, scope=scope)


def _perf_sum(readings: Readings, event: str, scope: Scope) -> float:
    return sum(cpu.perf_by_cpu(readings, event, readings.own_cpus(scope)).values())


def _perf_running(readings: Readings) -> float:
    shares = [c.running_percent for c in readings.perf("dut") if c.value is not None and c.running_percent is not None]
    if not shares:
        raise Absent("perf did not print how long its counters ran")
    return min(shares) / 100


def _ipc(readings: Readings) -> float:
    cycles = _perf_sum(readings, "cycles", DUT_CPUS)
    if cycles == 0:
        raise Absent("no cycle was counted")
    return _perf_sum(readings, "instructions", DUT_CPUS) / cycles


def _absent_counters(readings: Readings) -> str:
    """Return the requested counters that the DUT's machine lacks, with the reason; equal reasons are given once."""
    asked: dict[str, Callable[[], object]] = {}
    if readings.was_asked("dut", "perf"):
        asked |= {event: partial(_perf_sum, readings, event, ALL_CPUS) for event in readings.perf_events("dut")}
    if readings.was_asked("dut", "sar"):
        asked["sar"] = partial(readings.sar, "dut")
    asked |= {name: partial(_metric, readings, file) for name, file in _metric_files(readings)}
    names_by_reason: dict[str, list[str]] = {}
    for name, read in asked.items():
        try:
            read()
        except Absent as absent:
            names_by_reason.setdefault(str(absent).replace(f"perf: {name} ", "perf says "), []).append(name)
    if not names_by_reason:
        raise Absent("every counter that was asked for is there")
    return "; ".join(f"{', '.join(names)} ({reason})" for reason, names in names_by_reason.items())


COUNTERS: Mapping[str, Compute] = {
    "dut_driver": lambda readings: packets.driver_of(readings, "dut").name,
    "dut_counted_by": packets.counted_by,
    "dut_rx_packets": partial(packets.dut_packets, direction="rx"),
    "dut_tx_packets": partial(packets.dut_packets, direction="tx"),
    "dut_rx_mean_bytes": partial(packets.mean_bytes, direction="rx"),
    "dut_tx_mean_bytes": partial(packets.mean_bytes, direction="tx"),
    "xdp_actions": packets.actions,
    "rx_by_queue": partial(packets.rx_by_queue, role="dut"),
    "evenness": lambda readings: jain_index(packets.rx_by_queue(readings, "dut")),
    "cpu_busy_cores": _own(_cores("busy", DUT_CPUS)),
    "cpu_softirq_cores": _own(_cores("softirq", DUT_CPUS)),
    "host_busy_cores": _cores("busy", ALL_CPUS),
    "host_softirq_cores": _cores("softirq", ALL_CPUS),
    "host_steal_cores": _cores("steal", ALL_CPUS),
    "dut_cpus": cpu.at_work,
    "cycles": _own(_perf("cycles")),
    "instructions": _own(_perf("instructions")),
    "ipc": _own(_ipc),
    "branches": _own(_perf("branches")),
    "branch_misses": _own(_perf("branch-misses")),
    "l1d_loads": _own(_perf("L1-dcache-loads")),
    "l1d_misses": _own(_perf("L1-dcache-load-misses")),
    "perf_running": _perf_running,
    "host_cycles": _perf("cycles", ALL_CPUS),
    "host_instructions": _perf("instructions", ALL_CPUS),
    "host_context_switches": _perf("context-switches", ALL_CPUS),
    "clock_change": clock.change,
    "host_softnet_dropped": _softnet("dropped", ALL_CPUS),
    "softnet_dropped": _own(_softnet("dropped", DUT_CPUS)),
    "softnet_squeezed": _own(_softnet("squeezed", DUT_CPUS)),
    "settings": settings.settings,
    "settings_changed": settings.changed,
    "bpf_timed_runs": settings.timed_runs,
    "link_changes": settings.link_changes,
    "absent_counters": _absent_counters,
}
"""The values that are columns of trials.parquet under the same name."""

STEPS: Mapping[str, Compute] = {
    "dut_forwarded_packets": packets.forwarded,
    "tg_handed_over_packets": partial(packets.handed_over, role="tg"),
    "tg_link_rx_packets": partial(packets.link_packets, role="tg", direction="rx"),
    "tg_link_tx_packets": partial(packets.link_packets, role="tg", direction="tx"),
    "tg_link_tx_dropped": partial(packets.link_dropped, role="tg", direction="tx"),
    "clock_by_additions": clock.by_additions,
    "clock_by_perf": clock.by_perf,
}
"""Values that columns of trials.parquet are made of."""


def counted(readings: Readings) -> Counters:
    """Return every value of the readings, each computed when it is asked for; the user's metrics as `metric_NAME`."""
    metrics = {f"metric_{name}": partial(_metric, file=file) for name, file in _metric_files(readings)}
    return Evaluation({**COUNTERS, **STEPS, **metrics}, readings)


def packets_counted(files: Mapping[str, bytes], mode: str, queues: int | None = None) -> Counters:
    """Return the values of readings that are not asked about CPUs."""
    return counted(Readings(files, mode, shared=True, queues=queues))


def files_in(path: Path) -> dict[str, bytes]:
    """Return the files in ``path``, an attempt's `counters/`; none of an absent folder."""
    return {entry.name: entry.read_bytes() for entry in sorted(path.glob("*")) if entry.is_file()}


def _metric_files(readings: Readings) -> Iterator[tuple[str, str]]:
    for file in sorted(readings.files):
        if match := _METRIC_FILE.fullmatch(file):
            yield match[1], file


def _metric(readings: Readings, file: str) -> float:
    """Return the number that the user's command printed. Raises Absent if it printed anything else."""
    text = readings.text(file).strip()
    if file.endswith(".err"):
        raise Absent(text)
    if not _NUMBER.fullmatch(text):
        raise Absent(f"no number in what it printed: {text[:80]!r}" if text else "it printed nothing")
    return float(text)


def unreadable(path: Path) -> str | None:
    """Return which readings of the DUT in ``path`` are missing or truncated; None if all are whole.

    A failed tool leaves its error message instead of its output: this counts as a reading, unless it is empty. A run
    made before a collector was added has neither of its readings.
    """
    judged = [row for row in COLLECTORS if not row.once and (row.always or any(path.glob(f"dut.{row.name}.*")))]
    found = (_unreadable(path, row, when) for row in judged for when in ("before", "after"))
    return "; ".join(words for words in found if words) or None


def _unreadable(path: Path, row: Collector, when: When) -> str | None:
    names = [snapshot_file("dut", row.name, when, extension) for extension in (row.extension, "err")]
    there = {name: (path / name).read_bytes() for name in names if (path / name).is_file()}
    if not there:
        return f"{names[0]} is missing"
    (name, data), *_ = there.items()
    if not data.strip():
        return f"{name} is empty"
    try:
        if name == names[0]:
            row.parser(data)
    except FormatError as error:
        return f"{name}: {error.message}"
    return None


def intervals(readings: Readings) -> list[cpu.CpuInterval]:
    """Return the traffic as the DUT's `samples` recorder saw it, ten rows per second; none if it recorded nothing."""
    try:
        return cpu.intervals(readings, "dut")
    except Absent:
        return []
