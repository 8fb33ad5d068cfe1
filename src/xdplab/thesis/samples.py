"""The logs of one trial → columns of samples.parquet: one row per second of the generator, one per sample of sar."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xdplab.thesis.columns import SAMPLE_COLUMNS
from xdplab.thesis.digest import CPU_SHARES, SarDigest
from xdplab.thesis.generator_log import COLUMNS, GeneratorRun
from xdplab.thesis.window import GAP_STEPS, Busy

Array = NDArray[np.floating[Any]]
HOSTS = ("tg", "dut")
_SECOND, _TX, _RX, _MEAN = (COLUMNS.index(name) for name in ("second", "tx_packets", "rx_packets", "latency_mean_s"))
_SHARE_COLUMNS = {f"{share}_percent": place for place, share in enumerate(CPU_SHARES)}


@dataclass(frozen=True, eq=False)
class TrialSamples:
    """Rows of one trial's attempt and host; columns that are absent are null."""

    trial_id: str
    attempt: int
    host: str
    columns: Mapping[str, Array]

    def __len__(self) -> int:
        return len(self.columns["t_s"])


def generator_part(trial_id: str, attempt: int, run: GeneratorRun) -> TrialSamples:
    """One row per second: frames sent and received in it, the printed running mean, and the second's own latency."""
    rows = run.rows
    columns = {
        "t_s": rows[:, _SECOND],
        "tx_packets": _growth(rows[:, _TX]),
        "rx_packets": _growth(rows[:, _RX]),
        "latency_mean_s": rows[:, _MEAN],
        "latency_s": run.seconds_s,
    }
    return TrialSamples(trial_id, attempt, "tg", columns)


def _growth(values: Array) -> Array:
    """Return what each value has more than the one before it, and the first than 0; np.diff takes ten times as long."""
    more = values.copy()
    more[1:] -= values[:-1]
    return more


def sar_parts(trial_id: str, attempt: int, sar: SarDigest, busy: Busy | None) -> list[TrialSamples]:
    """One row per sample and CPU, and one per sample of the interface that carried the traffic.

    Times count from the traffic's start as sar saw it (samples before it are negative), from sar's own without any.
    """
    t_s = sar.t_s - (busy.start_s if busy else 0.0)
    samples, cpus, _ = sar.shares.shape
    step = _growth(sar.t_s)
    step = np.where(step > GAP_STEPS * sar.step_s, sar.step_s, step)  # a sample is missing before it
    by_cpu: dict[str, Array] = {"t_s": np.repeat(t_s, cpus), "cpu": np.tile(np.arange(cpus, dtype=float), samples)}
    by_cpu |= {name: sar.shares[:, :, place].ravel() for name, place in _SHARE_COLUMNS.items()}
    frames = {"t_s": t_s, "tx_packets": np.rint(sar.tx_pps * step), "rx_packets": np.rint(sar.rx_pps * step)}
    return [TrialSamples(trial_id, attempt, "dut", by_cpu), TrialSamples(trial_id, attempt, "dut", frames)]


PARTS = 240  # in one table: as much as fits a few MB


def samples_tables(parts: Iterable[TrialSamples]) -> Iterator[pa.Table]:
    """Yield the parts as tables with SCHEMA, some of them at a time: all together take hundreds of MB."""
    rest = iter(parts)
    while some := list(islice(rest, PARTS)):
        yield _table(some)


def _table(parts: Sequence[TrialSamples]) -> pa.Table:
    """Return the parts as one table: whole columns at a time, a row at a time takes minutes."""
    sizes = [len(part) for part in parts]
    ids = list(dict.fromkeys(part.trial_id for part in parts))
    places = {name: place for place, name in enumerate(ids)}
    codes = np.repeat(np.array([places[part.trial_id] for part in parts], np.int32), sizes)
    columns = {
        "trial_id": pa.DictionaryArray.from_arrays(codes, pa.array(ids)),
        "attempt": pa.array(np.repeat(np.array([part.attempt for part in parts], np.int64), sizes)),
        "burst": pa.DictionaryArray.from_arrays(np.zeros(len(codes), np.int32), pa.array(["rate"])),
        "host": pa.DictionaryArray.from_arrays(
            np.repeat(np.array([HOSTS.index(part.host) for part in parts], np.int32), sizes), pa.array(HOSTS)
        ),
    }
    named = {name for part in parts for name in part.columns}
    for field in SCHEMA:
        if field.name not in columns:
            column = _column(parts, sizes, field.name) if field.name in named else None
            columns[field.name] = (
                pa.nulls(len(codes), field.type)
                if column is None
                else pa.array(column, from_pandas=True).cast(field.type, safe=False)
            )
    return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _type(name: str, dtype: str) -> pa.DataType:
    if dtype == "str":
        return pa.dictionary(pa.int32(), pa.string())
    if dtype == "int":
        return pa.int64()
    return pa.float32() if name.endswith("_percent") else pa.float64()


SCHEMA = pa.schema([(metric.name, _type(metric.name, metric.dtype)) for metric in SAMPLE_COLUMNS])


def _column(parts: Sequence[TrialSamples], sizes: Sequence[int], name: str) -> Array:
    values: Array = np.full(sum(sizes), np.nan, dtype=np.float32 if name.endswith("_percent") else np.float64)
    for end, size, part in zip(np.cumsum(sizes), sizes, parts, strict=True):
        if name in part.columns:
            values[end - size : end] = part.columns[name]
    return values
