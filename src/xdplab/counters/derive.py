"""Turns the files of an attempt into values: a number, or None with the reason.

It needs only the files, so improved rules also work for old runs. Values of the DUT's CPUs are absent if TG and DUT
share them; those of the whole machine begin with `host_`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from xdplab.counters import clock, cpu, packets, settings
from xdplab.counters.readings import Readings, Scope
from xdplab.counters.table import COLLECTORS, Collector, Role, When, snapshot_file
from xdplab.counters.value import Absent, Measured, Value, jain_index
from xdplab.errors import FormatError

DUT_CPUS, TG_CPUS, ALL_CPUS = Scope("dut", "dut"), Scope("tg", "tg"), Scope("dut", None)
SHARED = "TG and DUT share CPUs: see the host_ columns"
_METRIC_FILE = re.compile(r"dut\.metric_([a-z][a-z0-9_]*)\.(before|after)\.(txt|err)")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

PERF_COLUMNS = {
    "cycles": "cycles",
    "instructions": "instructions",
    "branches": "branches",
    "branch-misses": "branch_misses",
    "L1-dcache-loads": "l1d_loads",
    "L1-dcache-load-misses": "l1d_misses",
    "context-switches": "context_switches",
}
"""Column of an event; a user's event has a column of its own name, with underscores."""


@dataclass(frozen=True)
class Derived:
    """One value and its computation. ``of_cpus`` marks values that are meaningless if TG and DUT share CPUs."""

    name: str
    compute: Callable[[Readings], Measured]
    of_cpus: bool = False

    def value(self, readings: Readings) -> Value:
        if self.of_cpus and readings.shared:
            return Value(None, SHARED)
        try:
            return Value(self.compute(readings))
        except Absent as absent:
            return Value(None, str(absent))


def _interface_rows(role: Role) -> list[Derived]:
    """Return the rows that both TG and DUT have."""
    link = [
        Derived(f"{role}_link_{direction}_{name}", partial(function, role=role, direction=direction))
        for direction in ("rx", "tx")
        for name, function in (("packets", packets.link_packets), ("dropped", packets.link_dropped))
    ]
    driver = [
        Derived(f"{role}_driver_{counter}", partial(packets.driver_sum, role=role, counter=counter))
        for counter in packets.COUNTERS
    ]
    sar = [
        Derived(f"{role}_sar_{attribute}", partial(cpu.sar_rate, role=role, attribute=attribute))
        for attribute in ("rx_pps", "tx_pps")
    ]
    program = [
        Derived(f"{role}_xdp_mode", lambda readings: packets.attached(readings, role)[0]),
        Derived(f"{role}_xdp_program_id", lambda readings: packets.attached(readings, role)[1]),
    ]
    return link + driver + sar + program


def _machine_rows(prefix: str, scope: Scope) -> list[Derived]:
    """Return the rows of the CPUs of ``scope``."""
    cpu_prefix = prefix or "cpu_"
    rows: dict[str, Callable[[Readings], Measured]] = {
        f"{cpu_prefix}busy_cores": partial(cpu.cores, scope=scope, kind="busy"),
        f"{cpu_prefix}softirq_cores": partial(cpu.cores, scope=scope, kind="softirq"),
        f"{cpu_prefix}steal_cores": partial(cpu.cores, scope=scope, kind="steal"),
        f"{cpu_prefix}busy_by_cpu": partial(cpu.share_by_cpu, scope=scope, kind="busy"),
        f"{cpu_prefix}softirq_by_cpu": partial(cpu.share_by_cpu, scope=scope, kind="softirq"),
        f"{cpu_prefix}sar_busy_cores": partial(cpu.sar_cores, scope=scope, kind="busy"),
        f"{cpu_prefix}sar_softirq_cores": partial(cpu.sar_cores, scope=scope, kind="soft"),
        f"{prefix}softnet_dropped": partial(packets.softnet_sum, scope=scope, counter="dropped"),
        f"{prefix}softnet_squeezed": partial(packets.softnet_sum, scope=scope, counter="squeezed"),
        f"{prefix}softnet_dropped_by_cpu": partial(packets.softnet_by_cpu, scope=scope, counter="dropped"),
        f"{prefix}softnet_squeezed_by_cpu": partial(packets.softnet_by_cpu, scope=scope, counter="squeezed"),
    }
    return [Derived(name, compute, of_cpus=scope.owner is not None) for name, compute in rows.items()]


DERIVED = (
    Derived("dut_driver", lambda readings: packets.driver_of(readings, "dut").name),
    Derived("dut_counted_by", packets.counted_by),
    Derived("dut_rx_packets", partial(packets.dut_packets, direction="rx")),
    Derived("dut_tx_packets", partial(packets.dut_packets, direction="tx")),
    Derived("dut_rx_mean_bytes", partial(packets.mean_bytes, direction="rx")),
    Derived("dut_tx_mean_bytes", partial(packets.mean_bytes, direction="tx")),
    Derived("dut_forwarded_packets", packets.forwarded),
    Derived("tg_handed_over_packets", partial(packets.handed_over, role="tg")),
    Derived("xdp_actions", packets.actions),
    Derived("rx_by_queue", partial(packets.rx_by_queue, role="dut")),
    Derived("evenness", lambda readings: jain_index(packets.rx_by_queue(readings, "dut"))),
    Derived("tg_rx_by_queue", partial(packets.rx_by_queue, role="tg")),
    Derived("cpu_source", partial(cpu.source, role="dut")),
    Derived("dut_cpus", cpu.at_work),
    Derived("clock_by_additions", clock.by_additions),
    Derived("clock_by_perf", clock.by_perf),
    Derived("clock_change", clock.change),
    Derived("settings", settings.settings),
    Derived("settings_changed", settings.changed),
    Derived("link_changes", settings.link_changes),
    Derived("bpf_timed_runs", settings.timed_runs),
    Derived("perf_running", lambda readings: _perf_running(readings)),
    Derived("absent_counters", lambda readings: _absent_counters(readings)),
    *_interface_rows("dut"),
    *_interface_rows("tg"),
    *_machine_rows("", DUT_CPUS),
    *_machine_rows("tg_", TG_CPUS),
    *_machine_rows("host_", ALL_CPUS),
)


def derive(
    *files: Mapping[str, bytes],
    mode: str,
    shared: bool,
    dut_cpus: Collection[int] | None = None,
    tg_cpus: Collection[int] | None = None,
    working: Collection[int] = (),
    queues: int | None = None,
) -> dict[str, Value]:
    """Return every value that ``files`` (before, after, recorded: names as in a run's `counters/`) give.

    ``mode`` decides which count of the DUT the verdict uses; ``shared`` says that TG and DUT share CPUs. ``cpus`` names
    a role's own CPUs on a shared machine; ``working`` are those that may do the DUT's work. ``queues``: those in use,
    of which drivers may count more. The user's metrics come as `metric_NAME`.
    """
    cpus: dict[Role, Collection[int]] = {}
    if dut_cpus is not None:
        cpus["dut"] = dut_cpus
    if tg_cpus is not None:
        cpus["tg"] = tg_cpus
    merged = {name: data for mapping in files for name, data in mapping.items()}
    readings = Readings(merged, mode, shared, cpus, working, queues)
    rows = [*DERIVED, *_perf_rows(readings), *_metric_rows(merged)]
    return {row.name: row.value(readings) for row in rows}


def derive_from_directory(
    path: Path,
    *,
    mode: str,
    shared: bool,
    dut_cpus: Collection[int] | None = None,
    tg_cpus: Collection[int] | None = None,
    working: Collection[int] = (),
    queues: int | None = None,
) -> dict[str, Value]:
    """Return `derive` of the files in ``path``, an attempt's `counters/`; an absent folder gives absent values."""
    files = {entry.name: entry.read_bytes() for entry in sorted(path.glob("*")) if entry.is_file()}
    return derive(files, mode=mode, shared=shared, dut_cpus=dut_cpus, tg_cpus=tg_cpus, working=working, queues=queues)


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


def intervals(*files: Mapping[str, bytes], role: Role = "dut") -> list[cpu.CpuInterval]:
    """Return the traffic as the `samples` recorder saw it, ten rows per second; no rows if it recorded nothing."""
    merged = {name: data for mapping in files for name, data in mapping.items()}
    try:
        return cpu.intervals(Readings(merged, mode="", shared=False), role)
    except Absent:
        return []


def _perf_rows(readings: Readings) -> list[Derived]:
    """Return the rows of perf: the known events, and the user's events that it counted."""
    try:
        counted = {count.event for count in readings.perf("dut")}
    except Absent:
        counted = set()
    columns = {**PERF_COLUMNS, **{event: _slug(event) for event in counted - PERF_COLUMNS.keys()}}
    rows = []
    for prefix, scope in (("", DUT_CPUS), ("host_", ALL_CPUS)):
        rows += [
            Derived(prefix + column, partial(_perf_sum, event=event, scope=scope), of_cpus=scope.owner is not None)
            for event, column in columns.items()
        ]
        rows.append(Derived(f"{prefix}ipc", partial(_ipc, scope=scope), of_cpus=scope.owner is not None))
    return rows


def _perf_sum(readings: Readings, event: str, scope: Scope) -> float:
    own = readings.own_cpus(scope)
    counts = cpu.perf_by_cpu(readings, event, own)
    return sum(counts.values())


def _perf_running(readings: Readings) -> float:
    shares = [c.running_percent for c in readings.perf("dut") if c.value is not None and c.running_percent is not None]
    if not shares:
        raise Absent("perf did not print how long its counters ran")
    return min(shares) / 100


def _ipc(readings: Readings, scope: Scope) -> float:
    cycles = _perf_sum(readings, "cycles", scope)
    if cycles == 0:
        raise Absent("no cycle was counted")
    return _perf_sum(readings, "instructions", scope) / cycles


def _absent_counters(readings: Readings) -> str:
    """Return the requested counters that the DUT's machine lacks, with the reason; equal reasons are given once."""
    asked: dict[str, Callable[[], object]] = {}
    if readings.was_asked("dut", "perf"):
        events = readings.perf_events("dut")
        asked |= {event: partial(_perf_sum, readings, event=event, scope=ALL_CPUS) for event in events}
    if readings.was_asked("dut", "sar"):
        asked["sar"] = partial(readings.sar, "dut")
    asked |= {row.name.removeprefix("metric_"): partial(row.compute, readings) for row in _metric_rows(readings.files)}
    names_by_reason: dict[str, list[str]] = {}
    for name, read in asked.items():
        try:
            read()
        except Absent as absent:
            names_by_reason.setdefault(str(absent).replace(f"perf: {name} ", "perf says "), []).append(name)
    if not names_by_reason:
        raise Absent("every counter that was asked for is there")
    return "; ".join(f"{', '.join(names)} ({reason})" for reason, names in names_by_reason.items())


def _slug(event: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", event.lower()).strip("_")


def _metric_rows(files: Mapping[str, bytes]) -> list[Derived]:
    found = [(name, match) for name in sorted(files) if (match := _METRIC_FILE.fullmatch(name))]
    return [Derived(f"metric_{match[1]}", partial(_metric, file=name)) for name, match in found]


def _metric(readings: Readings, file: str) -> float:
    """Return the number that the user's command printed. Raises Absent if it printed anything else."""
    text = readings.text(file).strip()
    if file.endswith(".err"):
        raise Absent(text)
    if not _NUMBER.fullmatch(text):
        raise Absent(f"no number in what it printed: {text[:80]!r}" if text else "it printed nothing")
    return float(text)
