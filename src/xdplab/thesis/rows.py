"""The logs of one trial → its row of trials.parquet, not yet judged: values, and reasons where there is none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from math import isnan
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from xdplab.errors import FormatError
from xdplab.formats.perf import require_system_wide
from xdplab.plan.points import Point, ProgramFactors
from xdplab.thesis.columns import reasons_text
from xdplab.thesis.digest import EVENTS, GeneratorDigest, LogDigest, PerfDigest, SarDigest
from xdplab.thesis.generator_log import COLUMNS, SETTLING_ROWS, GeneratorRun, latency
from xdplab.thesis.programs import PacketWork as ProgramCounts
from xdplab.thesis.samples import (
    Busy,
    Counters,
    WindowCount,
    busy_samples,
    counted,
    counters_of,
    step_in,
    sum_of_known,
    whole_run,
)
from xdplab.thesis.source import Kind, Measured
from xdplab.thesis.tool_logs import CPU_SHARES

Row = dict[str, Any]
UNKNOWN = ("src_ip", "dst_ip", "src_ip_stride", "src_port", "stamp")  # of its traffic: the logs do not say
D = TypeVar("D", GeneratorDigest, SarDigest, PerfDigest)
LINK_BPS = 10e9  # both ports of the Agilio CX 2x10GbE
PUBLISHED_CPUS = 8
_SOFT, _IDLE, _USR, _SYS = (CPU_SHARES.index(name) for name in ("soft", "idle", "usr", "sys"))
_RX_MEAN, _LATENCY, _RX_PACKETS = (COLUMNS.index(name) for name in ("rx_mean_pps", "latency_mean_s", "rx_packets"))


@dataclass(frozen=True)
class ProgramFound:
    """The C file of a trial, and what the proof counted in it; None with the reason ``why`` where it could not."""

    path: str
    sha256: str
    counts: ProgramCounts | None
    why: str


@dataclass
class TrialLogs:
    """The logs of one trial, as they are found, and its program."""

    measured: Measured
    logs: dict[Kind, LogDigest] = field(default_factory=dict)
    program: ProgramFound | None = None

    @property
    def generator(self) -> GeneratorDigest | None:
        return self._digest("generator", GeneratorDigest)

    @property
    def sar(self) -> SarDigest | None:
        return self._digest("sar", SarDigest)

    @property
    def perf(self) -> PerfDigest | None:
        return self._digest("perf", PerfDigest)

    def _digest(self, kind: Kind, wanted: type[D]) -> D | None:
        log = self.logs.get(kind)
        return log.digest if log is not None and isinstance(log.digest, wanted) else None

    @cached_property
    def busy(self) -> Busy | None:
        """The samples of sar within the traffic."""
        return busy_samples(self.sar) if self.sar else None

    @property
    def source(self) -> str:
        return next(iter(self.logs.values())).name.path.split("/", 1)[0]


def point_of(measured: Measured) -> Point:
    """Return the thesis' point in xdplab's factors: plans/thesis.yaml measures the same with another generator."""
    return _point(measured.mode, measured.queues, measured.accesses, measured.frame_bytes)


@cache
def _point(mode: str, queues: int, accesses: int, frame_bytes: int) -> Point:
    af_xdp = mode == "af_xdp"
    program = ProgramFactors(
        workload="lookup", op="read", accesses=accesses, working_set_bytes=None, map_type="percpu_array"
    )
    return Point(
        program=program, mode=mode, xsk_attach="generic" if af_xdp else None, xsk_bind=None,
        queues=queues, frame_bytes=frame_bytes, engine="moongen", load="max", flows=2047,
        src_ip="", dst_ip="", src_ip_stride="0.0.0.0", dst_ip_stride="0.0.0.255", src_port=0, dst_port=50220,
        stamp="all", arrangement="hosts", passes=("rate",),
    )  # fmt: skip


@cache
def _factors(point: Point) -> Row:
    return point.factors()


@cache
def trial_id_of(measured: Measured) -> str:
    return f"{point_of(measured).point_id}-r{measured.repetition}"


def trial_rows(logs: TrialLogs, run_id: str) -> list[Row]:
    """Return one row per run of the generator; runs that were appended to one file are attempts, the last one counts.

    sar and perf watched one of them, and nothing says which: they are the last one's.
    """
    runs: Sequence[GeneratorRun | None] = logs.generator.runs if logs.generator else (None,)
    rows = []
    for attempt, run in enumerate(runs, 1):
        rows.append(_row(logs, run, run_id, attempt, last=attempt == len(runs)))
    return rows


def _row(logs: TrialLogs, run: GeneratorRun | None, run_id: str, attempt: int, *, last: bool) -> Row:
    reasons: dict[str, str] = {}
    measured = logs.measured
    sar, perf = (logs.sar, logs.perf) if last else (None, None)
    busy = logs.busy if sar else None
    row: Row = {
        "run_id": run_id,
        "trial_id": trial_id_of(measured),
        "attempt": attempt,
        "repetition": measured.repetition,
        "lab": "thesis",
        **_factors(point_of(measured)),
        **dict.fromkeys(UNKNOWN),
        "link_bps": LINK_BPS,
        # One socket and one thread, whatever the queue count; the XDP modes have one CPU per queue.
        "dut_cpus": 1 if measured.mode == "af_xdp" else measured.queues,
        **_where(logs),
    }
    row |= _program(logs, reasons)
    counters = counters_of(run.rows) if run else None
    row |= _counts(counted(counters, sar, busy), logs, reasons)
    row |= _rates(row, counters, measured.frame_bytes)
    row |= _step(run, sar, busy)
    row |= _latency(run, reasons)
    row |= _cpu(sar, busy, reasons)
    row |= _perf(perf, logs, reasons)
    row |= published(run, sar, perf)
    row["null_reasons"] = reasons_text(row, reasons)
    return row


NOT_XDP = "AF_XDP's application runs no program of the kernel's: its C file says what it does with a packet"


def _program(logs: TrialLogs, reasons: dict[str, str]) -> Row:
    """What the trial ran: AF_XDP's application makes no lookup, whatever its N; its C file tells what it does."""
    row: Row = {}
    if logs.measured.mode == "af_xdp":
        row |= {"program_name": "application", "workload": None, "op": None, "map_type": None}
        reasons |= dict.fromkeys(("workload", "op", "map_type"), NOT_XDP)
    if logs.program is None:
        reasons["program_counts"] = "no C file beside the logs"
        return row
    counts = logs.program.counts
    if counts is None:
        reasons["program_counts"] = logs.program.why
    row |= {"program_file": logs.program.path, "program_hash": logs.program.sha256}
    return row | {"program_counts": None if counts is None else json.dumps(vars(counts), sort_keys=True)}


def _where(logs: TrialLogs) -> Row:
    row: Row = {"source": logs.source}
    for kind, log in logs.logs.items():
        row[f"{kind}_file"] = log.name.path
    row["file_sha256"] = json.dumps({kind: log.sha256 for kind, log in logs.logs.items()})
    problems = [vars(problem) for log in logs.logs.values() for problem in log.problems]
    row["anomalies"] = json.dumps(problems) if problems else None
    row["generator_line"] = logs.generator.last_line if logs.generator else None
    row["sar_line"] = logs.sar.last_line if logs.sar else None
    row["sar_lines"] = _steady_lines(logs)
    row["perf_lines"] = json.dumps(logs.perf.lines) if logs.perf else None
    row["dut_interface"] = logs.sar.interface if logs.sar else None
    return row


def _steady_lines(logs: TrialLogs) -> str | None:
    """The lines of CPU 0 in the samples within the traffic; None if a block of sar's was damaged or left out."""
    sar, busy = logs.sar, logs.busy
    if sar is None or busy is None or len(sar.lines) != len(sar.t_s):
        return None
    return json.dumps([sar.lines[place] for place in busy.places])


def _why(logs: TrialLogs, kind: Kind) -> str:
    """Return why a log tells nothing."""
    log = logs.logs.get(kind)
    if log is None:
        return f"no {kind} log"
    problems = "; ".join(problem.text for problem in log.problems)
    return f"the {kind} log cannot be used: {problems}" if log.digest is None else f"the {kind} log does not tell"


def _counts(counts: WindowCount, logs: TrialLogs, reasons: dict[str, str]) -> Row:
    """Counts in the window both hosts saw: only over the same seconds can two counts be compared."""
    whole = {
        "tx_packets": (counts.tx, "generator"),
        "rx_packets": (counts.rx, "generator"),
        "dut_rx_packets": (counts.dut_rx, "sar"),
        "dut_tx_packets": (counts.dut_tx, "sar"),
    }
    row: Row = {"window_s": counts.seconds or None}
    for name, (value, kind) in whole.items():
        row[name] = None if isnan(value) else round(value)
        if isnan(value):
            reasons[name] = _why(logs, kind)  # type: ignore[arg-type]
    row["tg_count_pps"], row["dut_count_pps"] = _or_none(counts.rx_pps), _or_none(counts.dut_tx_pps)
    row["offered_pps"] = _or_none(counts.tx / counts.seconds) if counts.seconds else None
    if row["tx_packets"] and row["rx_packets"] is not None:
        row["lost_packets"] = row["tx_packets"] - row["rx_packets"]
        row["loss_ratio"] = row["lost_packets"] / row["tx_packets"]
    return row


COUNT_TOLERANCE = 0.01


def _rates(row: Row, counters: Counters | None, frame_bytes: int) -> Row:
    """The rate of the better counter: the generator's over its whole run, the DUT's over the seconds that sar saw."""
    tg, dut = row["tg_count_pps"], row["dut_count_pps"]
    source = "tg" if dut is None or (tg is not None and tg >= dut * (1 - COUNT_TOLERANCE)) else "dut"
    rate, seconds = (tg, row["window_s"]) if source == "tg" else (dut, row["window_s"])
    if source == "tg" and counters is not None and tg:
        whole = whole_run(counters)
        rate, seconds = (whole.rx_pps, whole.seconds) if not isnan(whole.rx_pps) else (rate, seconds)
    if rate is None:
        return {}
    return {
        "forwarded_pps": rate,
        "forwarded_source": source,
        "forwarded_l2_bps": rate * frame_bytes * 8,
        "forwarded_window_s": seconds,
    }


def _step(run: GeneratorRun | None, sar: SarDigest | None, busy: Busy | None) -> Row:
    """A rate that changed in mid-run, by the generator's seconds, or by sar's samples where it counted nothing."""
    received = run.rows[:, _RX_PACKETS] if run is not None else np.zeros(0)
    if (received > 0).any():
        rates, length_s, begin_s = (received[1:] - received[:-1])[SETTLING_ROWS:], 1.0, 1.5 + SETTLING_ROWS
    elif sar is not None and busy is not None:
        length_s = sar.step_s
        rates, begin_s = sar.tx_pps[busy.places], float(sar.t_s[busy.places[0]]) - length_s - busy.start_s
    else:
        return {}
    step = step_in(rates)
    return {} if step is None else {"rate_step_share": step.share, "rate_step_s": begin_s + step.place * length_s}


def _or_none(value: float) -> float | None:
    return None if isnan(value) else float(value)


def _latency(run: GeneratorRun | None, reasons: dict[str, str]) -> Row:
    if run is None:
        reasons["latency_mean_ns"] = "no generator log"
        return {}
    undone = latency(run)
    if undone.mean_ns is None:
        reasons["latency_mean_ns"] = undone.how
    how = undone.how if undone.mean_ns is not None else None
    levels = json.dumps([round(level) for level in undone.levels_ns]) if undone.levels_ns else None
    return {
        "latency_mean_ns": undone.mean_ns,
        "latency_open_ns": undone.open_ns,
        "latency_levels_ns": levels,
        "latency_how": how,
        "latency_decimals": run.latency_decimals,
    }


def _cpu(sar: SarDigest | None, busy: Busy | None, reasons: dict[str, str]) -> Row:
    """CPU use as the mean of the samples that lie wholly in the traffic; user space included."""
    if sar is None or busy is None:
        why = "no sar log" if sar is None else "sar saw no traffic"
        reasons |= dict.fromkeys(("cpu_busy_cores", "cpu_softirq_cores"), why)
        return {}
    mean = _mean_of_known(sar.shares[busy.places])
    shares = np.where(np.isnan(mean), 0.0, mean)
    return {
        "cpu_busy_cores": sum_of_known(100 - mean[:, _IDLE]) / 100,
        "cpu_softirq_cores": float(shares[:, _SOFT].sum() / 100),
        "softirq_by_cpu_percent": json.dumps([round(value, 3) for value in mean[:, _SOFT].tolist()]),
        "user_percent": float(shares[:, (_USR, _SYS)].sum()),
    }


def _mean_of_known(shares: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the mean over the samples, NaN where all of them lack the value; most logs lack none."""
    unknown = np.isnan(shares)
    if not unknown.any():
        return np.asarray(shares.sum(axis=0), dtype=np.float64) / len(shares)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(unknown, np.float32(0), shares).sum(axis=0) / (~unknown).sum(axis=0))


def _perf(perf: PerfDigest | None, logs: TrialLogs, reasons: dict[str, str]) -> Row:
    """perf's counts, unless it counted something else than the machine: then they say nothing of XDP."""
    names = ("cycles", "instructions", "ipc", "branches", "branch_misses", "l1d_loads", "l1d_misses")
    if perf is None:
        reasons |= dict.fromkeys(names, _why(logs, "perf"))
        return {}
    target = f"{perf.target.kind} {perf.target.text}" if perf.target else None
    try:
        if perf.target is None:
            raise FormatError("perf's log does not say whom it counted")
        require_system_wide(perf.target)
    except FormatError as error:
        reasons |= dict.fromkeys(names, error.message)
        return {"perf_target": target}
    return {"perf_target": target, **{column: perf.counts[column] for column in EVENTS.values()}}


def published(run: GeneratorRun | None, sar: SarDigest | None, perf: PerfDigest | None) -> Row:
    """What the thesis drew: the last row of the receiver, the last sample of sar, perf's counts as they stand."""
    row: Row = {}
    if run is not None:
        received = np.flatnonzero(~np.isnan(run.rows[:, _RX_MEAN]))
        if len(received):
            last: Mapping[str, float] = dict(zip(COLUMNS, run.rows[received[-1]].tolist(), strict=True))
            row["published_rx_mean_pps"] = last["rx_mean_pps"]
            row["published_latency_s"] = _printed_latency(last, run.latency_decimals)
    if sar is not None:
        shares = sar.shares[-1, :PUBLISHED_CPUS, _SOFT]
        row["published_softirq_percent"] = json.dumps([_or_none(round(float(v), 2)) for v in shares])
    if perf is not None:
        row |= {f"published_{column}": value for column, value in perf.counts.items()}
    return row


def _printed_latency(last: Mapping[str, float], decimals: int | None) -> float | None:
    """The generator prints 0 for a mean over no frame, and so it was drawn."""
    if decimals is not None and isnan(last["latency_mean_s"]) and last["rx_packets"] == 0:
        return 0.0
    return _or_none(last["latency_mean_s"])
