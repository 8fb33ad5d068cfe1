"""One log → the data that the tables need: small enough to pass between processes, with line numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from xdplab.formats.perf import Target
from xdplab.thesis.generator_log import RX_CORE, GeneratorLog, GeneratorRun, parse_generator_logs
from xdplab.thesis.log_text import Anomaly
from xdplab.thesis.source import Kind, LogName, Problem, RawLog
from xdplab.thesis.tool_logs import (
    CPU_COLUMNS,
    CPU_SHARES,
    INTERFACE_COLUMNS,
    PerfText,
    SarText,
    parse_perf_text,
    parse_sar_texts,
)

Array = NDArray[np.float64]
_CPU, _INTERFACE = CPU_COLUMNS.index("cpu"), INTERFACE_COLUMNS.index("interface")
_SHARES = slice(2, None)
_RX_PPS, _TX_PPS = INTERFACE_COLUMNS.index("rx_pps"), INTERFACE_COLUMNS.index("tx_pps")
MOST_CELLS_PER_ROW = 16
"""Of the table of samples and CPUs; 1 in a whole log."""
EVENTS = {
    "instructions": "instructions",
    "branches": "branches",
    "L1-dcache-loads": "l1d_loads",
    "L1-dcache-load-misses": "l1d_misses",
}


@dataclass(frozen=True, eq=False)
class GeneratorDigest:
    """``last_line``: 1-based line of the receiver's last row in the file, None without such a row."""

    runs: tuple[GeneratorRun, ...]
    last_line: int | None


@dataclass(frozen=True, eq=False)
class SarDigest:
    """``shares`` is (samples, CPUs, CPU_SHARES); ``rx_pps`` and ``tx_pps`` are of the busiest interface, a sample each.

    ``t_s`` is each sample's end since sar's start. ``lines``: 1-based line of CPU 0 in each block of CPUs, the averages
    left out.
    """

    t_s: Array
    shares: NDArray[np.float32]
    interface: str | None
    rx_pps: Array
    tx_pps: Array
    lines: tuple[int, ...]

    @property
    def last_line(self) -> int | None:
        """The line of CPU 0 in the last sample."""
        return self.lines[-1] if self.lines else None

    @cached_property
    def step_s(self) -> float:
        """The time from one sample to the next; NaN for a single one."""
        steps = sorted((self.t_s[1:] - self.t_s[:-1]).tolist())
        return float(steps[len(steps) // 2] + steps[(len(steps) - 1) // 2]) / 2 if steps else float("nan")


@dataclass(frozen=True, eq=False)
class PerfDigest:
    """``counts`` by column name of EVENTS, None if perf did not count; ``lines`` likewise."""

    target: Target | None
    counts: dict[str, float | None]
    lines: dict[str, int]


Digest = GeneratorDigest | SarDigest | PerfDigest | None


@dataclass(frozen=True, eq=False)
class LogDigest:
    """One file: its name, its sha256, its digest (None if nothing can be used), its problems."""

    name: LogName
    sha256: str
    digest: Digest
    problems: tuple[Problem, ...]


def digest_logs(logs: Sequence[RawLog]) -> list[LogDigest]:
    """Digest several logs; those of one kind are parsed together."""
    datas: dict[int, bytes] = {}
    digests: dict[int, LogDigest] = {}
    for place, log in enumerate(logs):
        try:
            datas[place] = log.read()
        except OSError as error:
            problem = Problem(log.name.path, "unreadable", error.strerror or str(error))
            digests[place] = LogDigest(log.name, "", None, (problem,))
    for kind, parse in _PARSERS.items():
        part = {place: data for place, data in datas.items() if logs[place].name.kind == kind}
        # A checkout may have given the lines another end; numbers of lines stay.
        texts = [data.replace(b"\r\n", b"\n") if b"\r" in data else data for data in part.values()]
        parsed = parse(texts, [logs[place].name for place in part])
        for (place, data), (digest, anomalies) in zip(part.items(), parsed, strict=True):
            digests[place] = _digest(logs[place].name, data, digest, anomalies)
    return [digests[place] for place in range(len(logs))]


def _digest(name: LogName, data: bytes, digest: Digest, anomalies: tuple[Anomaly, ...]) -> LogDigest:
    # A file that was cut is cut once, however many ways that shows.
    first = {anomaly.kind: anomaly for anomaly in reversed(anomalies)}
    problems = tuple(Problem(name.path, kind, anomaly.text, anomaly.line) for kind, anomaly in sorted(first.items()))
    return LogDigest(name, hashlib.sha256(data).hexdigest(), digest, problems)


def _generator(data: bytes, log: GeneratorLog) -> tuple[Digest, tuple[Anomaly, ...]]:
    if not log.runs:
        return None, log.anomalies
    return GeneratorDigest(log.runs, _last_row_line(data)), log.anomalies


def _last_row_line(data: bytes) -> int | None:
    """The core stands in the last column but one."""
    end = len(data)
    while end >= 0:
        start = data.rfind(b"\n", 0, end) + 1
        fields = data[start:end].replace(b",", b" ").split()
        if len(fields) > 8 and fields[-2] == b"%d" % RX_CORE:
            return data.count(b"\n", 0, start) + 1
        end = start - 1
    return None


def _sar(text: SarText) -> tuple[Digest, tuple[Anomaly, ...]]:
    anomalies = text.anomalies
    interface: str | None
    if text.samples:
        cpus, interfaces = (table.reshape(text.samples, -1, table.shape[1]) for table in (text.cpus, text.interfaces))
        t_s, shares = cpus[:, 0, 0].copy(), cpus[:, 1:, _SHARES].astype(np.float32)
        rates = interfaces[:, :, [_RX_PPS, _TX_PPS]]
        place = int(rates.sum(axis=2).sum(axis=0).argmax())
        interface, rx_pps, tx_pps = text.interface_names[place], rates[:, place, 0].copy(), rates[:, place, 1].copy()
    else:
        plausible, lost = _plausible(text.cpus[~np.isnan(text.cpus[:, _CPU])])
        anomalies += (Anomaly("damaged", f"{lost} rows of CPUs that cannot be", None),) if lost else ()
        if not len(plausible):
            return None, anomalies or (Anomaly("damaged", "no row of any CPU", None),)
        t_s, shares = _cpu_samples(plausible)
        interface, rx_pps, tx_pps = _busiest(text, t_s)
    return SarDigest(t_s, shares, interface, rx_pps, tx_pps, text.cpu_lines), anomalies


def _plausible(rows: Array) -> tuple[Array, int]:
    """Return the rows of CPUs that can be, and how many cannot: a sample has a row per CPU, numbered from 0.

    What a damaged number would make of the table (samples times CPUs) is so never much larger than the log.
    """
    if not len(rows):
        return rows, 0
    sizes = np.unique(rows[:, 0], return_counts=True)[1]
    good = rows[rows[:, _CPU] < sizes.max()]
    cells = len(sizes) * sizes.max()
    if cells > MOST_CELLS_PER_ROW * len(rows):
        return rows[:0], len(rows)
    return good, len(rows) - len(good)


def _cpu_samples(rows: Array) -> tuple[Array, NDArray[np.float32]]:
    """Return the samples' ends and shares of rows of CPUs in any order; a row that is missing is NaN."""
    t_s, sample = np.unique(rows[:, 0], return_inverse=True)
    cpus = rows[:, _CPU].astype(int)
    shares = np.full((len(t_s), int(cpus.max(initial=-1)) + 1, len(CPU_SHARES)), np.nan, dtype=np.float32)
    shares[sample, cpus] = rows[:, _SHARES]
    return t_s, shares


def _busiest(text: SarText, t_s: Array) -> tuple[str | None, Array, Array]:
    """Return the interface with the most frames, its received and its sent rate at each sample (NaN where missing)."""
    rows = text.interfaces
    if not len(rows):
        nothing = np.full(len(t_s), np.nan)
        return None, nothing, nothing.copy()
    frames = np.bincount(rows[:, _INTERFACE].astype(int), rows[:, _RX_PPS] + rows[:, _TX_PPS])
    place = int(np.argmax(frames))
    rows_of_interface = rows[rows[:, _INTERFACE] == place]
    at = np.searchsorted(t_s, rows_of_interface[:, 0])
    matched = (at < len(t_s)) & (t_s[np.minimum(at, len(t_s) - 1)] == rows_of_interface[:, 0])
    series = np.full((2, len(t_s)), np.nan)
    series[:, at[matched]] = rows_of_interface[matched][:, [_RX_PPS, _TX_PPS]].T
    return text.interface_names[place], series[0], series[1]


def _perf(text: PerfText) -> tuple[Digest, tuple[Anomaly, ...]]:
    if not text.counts:
        return None, text.anomalies
    named = {count.event.split(":")[0]: (count.value, line) for line, count in text.counts.items()}
    columns = {column: named[event] for event, column in EVENTS.items() if event in named}
    counts = {column: columns.get(column, (None, 0))[0] for column in EVENTS.values()}
    return PerfDigest(text.target, counts, {column: line for column, (_, line) in columns.items()}), text.anomalies


_Digests = list[tuple[Digest, tuple[Anomaly, ...]]]
_PARSERS: dict[Kind, Callable[[list[bytes], list[LogName]], _Digests]] = {
    "generator": lambda texts, names: [
        _generator(text, log)
        for text, log in zip(texts, parse_generator_logs(texts, [name.seconds for name in names]), strict=True)
    ],
    "sar": lambda texts, _: [_sar(text) for text in parse_sar_texts(texts)],
    "perf": lambda texts, _: [_perf(parse_perf_text(text)) for text in texts],
}
