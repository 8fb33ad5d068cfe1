"""What the files of an attempt's counters give: one column per value, computed from its readings alone.

Values of the DUT's CPUs are absent if TG and DUT share them; those of the whole machine begin with `host_`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from math import fsum
from pathlib import Path

from xdplab.absent import Absent
from xdplab.counters import cpu, packets, settings
from xdplab.counters.readings import PARSERS, Readings, Scope, parsed
from xdplab.counters.table import COLLECTORS, Collector, When, snapshot_file
from xdplab.errors import FormatError
from xdplab.run.columns import Column, ColumnValues, by_name

DUT_CPUS, ALL_CPUS = Scope("dut", "dut"), Scope("dut", None)
SHARED = "TG and DUT share CPUs: see the host_ columns"
_METRIC_FILE = re.compile(r"dut\.metric_([a-z][a-z0-9_]*)\.(before|after)\.(txt|err)")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

Compute = Callable[[Readings], object]
Counters = ColumnValues[Readings]


def _apart(compute: Compute) -> Compute:
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
    return fsum(cpu.perf_by_cpu(readings, event, readings.own_cpus(scope)).values())


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
    computed: dict[str, Callable[[], object]] = {}
    if readings.was_asked("dut", "perf"):
        computed |= {event: partial(_perf_sum, readings, event, ALL_CPUS) for event in readings.perf_events("dut")}
    if readings.was_asked("dut", "sar"):
        computed["sar"] = partial(readings.sar, "dut")
    computed |= {name: partial(_metric, readings, file) for name, file in _metric_files(readings)}
    names_by_reason: dict[str, list[str]] = {}
    for name, read in computed.items():
        try:
            read()
        except Absent as absent:
            names_by_reason.setdefault(str(absent).replace(f"perf: {name} ", "perf says "), []).append(name)
    if not names_by_reason:
        raise Absent("every counter that was asked for is there")
    return "; ".join(f"{', '.join(names)} ({reason})" for reason, names in names_by_reason.items())


COUNTERS: tuple[Column[Readings], ...] = (
    Column("dut_rx_packets", "int", "count", "frames the DUT received, by its own counters",
           partial(packets.dut_packets, direction="rx")),
    Column("dut_tx_packets", "int", "count", "frames the DUT sent back, by its own counters",
           partial(packets.dut_packets, direction="tx")),
    Column("dut_counted_by", "str", "state",
           "who counted them: the DUT's driver or its link; null in af_xdp, whose application counts",
           packets.counted_by),
    Column("dut_rx_mean_bytes", "float", "state",
           "mean bytes of the frames received, by the DUT's link: without their FCS, and on a veth with XDP without "
           "the Ethernet header of packet buffers",
           partial(packets.mean_bytes, direction="rx")),
    Column("dut_tx_mean_bytes", "float", "state",
           "mean bytes of the frames sent back, by the DUT's link in the same way",
           partial(packets.mean_bytes, direction="tx")),
    Column("dut_driver", "str", "state",
           "driver of the DUT's port; docs/reference/nic-counters.md says which of its counters are read",
           lambda readings: packets.driver_of(readings, "dut").name),
    Column("dut_driver_lost", "int", "count",
           "frames for which the DUT's NIC had no place in the window, by the driver's counters",
           partial(packets.driver_lost, role="dut")),
    Column("xdp_actions", "json", "count",
           "actions of the DUT's program in the window, by the driver's counters: frames by action (drop includes "
           "aborted)",
           packets.actions),
    Column("rx_by_queue", "json", "count", "frames by DUT receive queue, a JSON list",
           partial(packets.rx_by_queue, role="dut")),
    Column("evenness", "float", "share",
           "Jain's fairness index of rx_by_queue over the queues requested: 1 is even",
           lambda readings: packets.jain_index(packets.rx_by_queue(readings, "dut"))),
    Column("cpu_busy_cores", "float", "share", "busy CPUs of the DUT in the window; null if TG and DUT share CPUs",
           _apart(_cores("busy", DUT_CPUS))),
    Column("cpu_softirq_cores", "float", "share", "the part of cpu_busy_cores in softirq",
           _apart(_cores("softirq", DUT_CPUS))),
    Column("host_busy_cores", "float", "share", "busy CPUs of the whole machine in the window",
           _cores("busy", ALL_CPUS)),
    Column("host_softirq_cores", "float", "share", "the part of host_busy_cores in softirq",
           _cores("softirq", ALL_CPUS)),
    Column("host_steal_cores", "float", "share", "CPUs with work that the hypervisor did not run (steal)",
           _cores("steal", ALL_CPUS)),
    Column("dut_cpus", "int", "state",
           "CPUs that did the DUT's work, by their busy time in the window: the factor in ns_per_packet and access_ns",
           cpu.at_work),
    Column("cycles", "float", "count", "DUT cycles in the perf pass; null if TG and DUT share CPUs",
           _apart(_perf("cycles"))),
    Column("instructions", "float", "count", "DUT instructions in the perf pass", _apart(_perf("instructions"))),
    Column("ipc", "float", "share", "instructions / cycles", _apart(_ipc)),
    Column("branches", "float", "count", "DUT branches in the perf pass", _apart(_perf("branches"))),
    Column("branch_misses", "float", "count", "DUT branch misses in the perf pass", _apart(_perf("branch-misses"))),
    Column("l1d_loads", "float", "count", "DUT L1 data loads in the perf pass", _apart(_perf("L1-dcache-loads"))),
    Column("l1d_misses", "float", "count", "DUT L1 data load misses in the perf pass",
           _apart(_perf("L1-dcache-load-misses"))),
    Column("perf_running", "float", "share",
           "share of the perf pass in which an event had a hardware counter, of the event that had one least: below 1 "
           "perf scaled counts",
           _perf_running),
    Column("host_cycles", "float", "count", "cycles of the whole machine in the perf pass", _perf("cycles", ALL_CPUS)),
    Column("host_instructions", "float", "count", "instructions of the whole machine in the perf pass",
           _perf("instructions", ALL_CPUS)),
    Column("host_context_switches", "float", "count", "context switches of the whole machine in the perf pass",
           _perf("context-switches", ALL_CPUS)),
    Column("clock_change", "float", "share",
           "relative increase of the clock from before the window to after it, by additions",
           cpu.clock_change),
    Column("host_softnet_dropped", "int", "count",
           "frames that backlogs of the DUT's machine dropped: in modes generic, tcx and tc they lie between the "
           "link's count and the program",
           _softnet("dropped", ALL_CPUS)),
    Column("softnet_dropped", "int", "count",
           "frames that the DUT's backlog dropped; null if TG and DUT share CPUs",
           _apart(_softnet("dropped", DUT_CPUS))),
    Column("softnet_squeezed", "int", "count",
           "times the DUT's NAPI ran out of budget; null if TG and DUT share CPUs",
           _apart(_softnet("squeezed", DUT_CPUS))),
    Column("settings", "json", "state",
           "what costs time on both hosts and can change, as read before the window, a JSON object: name to value "
           "(`dut port.` and `tg port.`: of the port)",
           settings.settings),
    Column("settings_changed", "json", "state",
           "those of settings that were others after the window, a JSON object: name to both values",
           settings.changed),
    Column("bpf_timed_runs", "int", "count",
           "runs of XDP programs that BPF statistics timed in the window: above 0 somebody had switched them on",
           settings.timed_runs),
    Column("link_changes", "int", "count", "times that the link went down or came up in the window",
           settings.link_changes),
    Column("absent_counters", "str", "state",
           "counters that the plan asks for and this machine lacks, each with the reason",
           _absent_counters),
)  # fmt: skip
"""The values that are columns of trials.parquet under the same name."""

STEPS: tuple[Column[Readings], ...] = (
    Column("dut_forwarded_packets", "int", "count", "frames that the DUT's interface sent for another one",
           packets.forwarded),
    Column("tg_handed_over_packets", "int", "count", "frames of XDP's redirects that the TG's interface sent",
           partial(packets.handed_over, role="tg")),
    Column("tg_link_rx_packets", "int", "count", "frames that the TG's link received",
           partial(packets.link_packets, role="tg", direction="rx")),
    Column("tg_link_tx_packets", "int", "count", "frames that the TG's link sent",
           partial(packets.link_packets, role="tg", direction="tx")),
    Column("tg_link_tx_dropped", "int", "count", "frames that the TG's link dropped instead of sending them",
           partial(packets.link_dropped, role="tg", direction="tx")),
    Column("clock_by_additions", "float", "rate", "cycles per ns, by additions at rest", cpu.clock_by_additions),
    Column("clock_by_perf", "float", "rate", "cycles per ns, by perf's cycles over busy time", cpu.clock_by_perf),
)  # fmt: skip
"""Values that columns of trials.parquet are made of."""

_COLUMNS = by_name(COUNTERS, STEPS)


def counted(readings: Readings) -> Counters:
    """Return every value of the readings, each computed when it is asked for."""
    return ColumnValues(_COLUMNS, readings)


def metrics(readings: Readings) -> dict[str, float | Absent]:
    """Return the numbers that the user's own commands printed, by the metric's name, or why there is none."""
    numbers: dict[str, float | Absent] = {}
    for name, file in _metric_files(readings):
        try:
            numbers[name] = _metric(readings, file)
        except Absent as absent:
            numbers[name] = absent
    return numbers


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


def unreadable(files: Mapping[str, bytes], recorded: Collection[str] = ()) -> str | None:
    """Return which readings of the DUT among an attempt's ``files`` are missing or truncated; None if all are whole.

    ``recorded`` are the names that its journal has, also of files that are gone.

    A failed tool leaves its error message instead of its output: this counts as a reading, unless it is empty.
    A collector that has no name in either, among others that have, is younger than the run.
    """
    judged = [row for row in COLLECTORS if not row.once]
    names = {*files, *recorded}
    taken = [row for row in judged if any(name.startswith(f"dut.{row.name}.") for name in names)] or judged
    messages = (_unreadable(files, row, when) for row in taken for when in ("before", "after"))
    return "; ".join(message for message in messages if message) or None


def _unreadable(files: Mapping[str, bytes], row: Collector, when: When) -> str | None:
    names = [snapshot_file("dut", row.name, when, extension) for extension in (row.extension, "err")]
    name = next((name for name in names if name in files), None)
    if name is None:
        return f"{names[0]} is missing"
    if not files[name].strip():
        return f"{name} is empty"
    try:
        if name == names[0]:
            parsed(PARSERS[row.name], files[name])
    except FormatError as error:
        return f"{name}: {error.message}"
    return None


def intervals(readings: Readings) -> list[cpu.CpuInterval]:
    """Return the traffic as the DUT's `samples` recorder saw it, ten rows per second; none if it recorded nothing."""
    try:
        return cpu.intervals(readings, "dut")
    except Absent:
        return []
