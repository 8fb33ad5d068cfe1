"""Which repetitions are comparable: those of one program and one ring depth. The logs name neither the program nor the
ring. The time per packet identifies the program if it differs by more
than program loads differ anyway; latency x rate, the frames in flight, identifies the ring (Little's law).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import floor, log, log2, sqrt

import numpy as np
import pandas as pd

XDP_MODES = ("native", "generic")  # one driver, one set of rings
SLOPE_SHARE = 0.15  # two loads of one program differ by up to 12 %
SIGMAS = 4.0
WORK_SHARE = 2.0  # times the least service time of a series: from there on the accesses make it
LEAST_LOADS = 2
LOAD_SD = 0.06  # between loads of one program, at the least: two lucky ones do not make an error smaller
RING_MATCH = 0.08
LEAST_VOTES = 3
FULL_SLACK = 0.02  # a full ring may be read a little short
MOST_BESIDE = 0.25  # of the ring: frames that are on the wire or in the other rings


@dataclass(frozen=True)
class Apart:
    """Two repetitions of a mode whose packets take different times: ``ratio`` is b over a, at ``queues``."""

    mode: str
    queues: int
    a: int
    b: int
    ratio: float
    sigmas: float
    loads: int


def working(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the trials whose service time is mostly that of the accesses."""
    timed = trials[trials["ns_per_packet"].notna() & trials["accesses"].gt(0)]
    times = timed["ns_per_packet"].astype(float)
    least = times.groupby([timed[name] for name in ("mode", "queues", "frame_bytes")]).transform("min")
    return timed[times >= WORK_SHARE * least]


def apart(trials: pd.DataFrame) -> list[Apart]:
    """Return the pairs of repetitions that ran another program, by service time.

    A load of the program serves all frame sizes of one N, so that N are the independent observations.
    """
    pairs = []
    for key, rows in working(trials).groupby(["mode", "queues"]):
        mode, queues = str(key[0]), int(str(key[1]))
        times = rows["ns_per_packet"].astype(float).map(log)
        keys = [rows[name] for name in ("accesses", "frame_bytes", "repetition")]
        table = times.groupby(keys).mean().unstack("repetition")
        for a, b in combinations(table.columns, 2):
            loads = (table[b] - table[a]).dropna().groupby("accesses").median()
            if len(loads) < LEAST_LOADS:
                continue
            shift = float(loads.median())
            error = max(float(loads.std(ddof=1)), LOAD_SD) / sqrt(len(loads))
            if abs(shift) > log(1 + SLOPE_SHARE) and abs(shift) > SIGMAS * error:
                ratio, sigmas = float(np.exp(shift)), abs(shift) / error
                pairs.append(Apart(mode, queues, int(a), int(b), ratio, sigmas, len(loads)))
    return pairs


def program_classes(trials: pd.DataFrame) -> dict[str, list[tuple[int, ...]]]:
    """Return, by mode, the classes of repetitions; those that nothing tells apart, at least by a chain, are one."""
    differ = {(pair.mode, pair.a, pair.b) for pair in apart(trials)}
    classes = {}
    for mode, rows in trials.groupby("mode"):
        repetitions = sorted(int(number) for number in rows["repetition"].dropna().unique())
        classes[str(mode)] = _linked(repetitions, [pair[1:] for pair in differ if pair[0] == mode])
    return classes


def _linked(names: Sequence[int], differ: Sequence[tuple[int, int]]) -> list[tuple[int, ...]]:
    classes: list[set[int]] = []
    for name in names:
        like = [c for c in classes if any((min(name, m), max(name, m)) not in differ for m in c)]
        merged = {name}.union(*like)
        classes = [c for c in classes if c not in like] + [merged]
    return sorted(tuple(sorted(members)) for members in classes)


def frames_in_flight(trials: pd.DataFrame) -> pd.Series:
    """Return latency x rate a CPU at work (frames), where both are known."""
    latency_s = trials["latency_mean_ns"].astype("Float64") * 1e-9
    return latency_s * trials["forwarded_pps"].astype("Float64") / trials["dut_cpus"].astype("Float64")


def rings_of(mode: object) -> str:
    """Return whose rings a mode's frames wait in: one driver's, or the socket's."""
    return "xdp" if mode in XDP_MODES else str(mode)


@dataclass(frozen=True)
class Ring:
    """A ring by Little's law: ``entries``, and the least, median and most frames in flight of the trials that show it.

    ``full`` of ``trials`` hold within 8 % of the ring. If that is not most of them, the ring is taken from the trials
    whose time the accesses determine: the largest power of two that their median fills.
    """

    entries: int
    trials: int
    full: int
    least: float
    median: float
    most: float
    at_work_only: bool


def rings(trials: pd.DataFrame) -> dict[tuple[str, int], Ring]:
    """Return the ring by (mode or ``xdp``, repetition), where the frames in flight tell one."""
    flight = frames_in_flight(trials)
    filled = trials.assign(flight=flight)[trials["ns_per_packet"].notna() & flight.gt(0)]
    filled = filled.assign(rings=filled["mode"].map(rings_of))
    rings_of_mode = {}
    for key, rows in filled.groupby(["rings", "repetition"]):
        ring = _ring(rows)
        if ring is not None:
            rings_of_mode[str(key[0]), int(str(key[1]))] = ring
    return rings_of_mode


def _ring(rows: pd.DataFrame) -> Ring | None:
    """A depth that most trials hold; else that of the trials with the most accesses, where these agree."""
    values = rows["flight"].astype(float)
    power = (2 ** np.round(np.log2(values))).astype(int)
    votes = power[(values / power - 1).abs() < RING_MATCH].value_counts()
    if len(votes) and votes.iloc[0] >= LEAST_VOTES and votes.iloc[0] > len(values) / 2:
        depth = int(votes.index[0])
        return _ring_of(depth, values, values, at_work_only=False)
    busy = working(rows)
    numbers = sorted(busy["accesses"].unique())
    at_work = busy.loc[busy["accesses"].isin(numbers[len(numbers) // 2 :]), "flight"].astype(float)
    if len(at_work) < LEAST_VOTES:
        return None
    typical = float(at_work.median())
    depth = 2 ** floor(log2(typical * (1 + FULL_SLACK)))
    spread = float(np.subtract(*np.quantile(at_work, (0.9, 0.1)))) / typical
    if typical > depth * (1 + MOST_BESIDE) or spread > MOST_BESIDE:
        return None
    return _ring_of(depth, values, at_work, at_work_only=True)


def _ring_of(depth: int, values: pd.Series, by: pd.Series, *, at_work_only: bool) -> Ring:
    full = int(((values / depth - 1).abs() < RING_MATCH).sum())
    ends = (float(by.min()), float(by.median()), float(by.max()))
    return Ring(depth, len(values), full, *ends, at_work_only)


def ring_depths(trials: pd.DataFrame) -> dict[tuple[str, int], int]:
    """Return the entries of ``rings``."""
    return {key: ring.entries for key, ring in rings(trials).items()}


def like_for_like(trials: pd.DataFrame, reference: dict[str, int]) -> dict[str, tuple[int, ...]]:
    """Return, by mode, the repetitions that ran the program and, as far as known, had the ring of the reference."""
    classes, depths = program_classes(trials), ring_depths(trials)
    chosen = {}
    for mode, repetition in reference.items():
        alike = next((members for members in classes.get(mode, []) if repetition in members), (repetition,))
        kind = rings_of(mode)
        depth = depths.get((kind, repetition))
        chosen[mode] = tuple(r for r in alike if depth is None or depths.get((kind, r), depth) == depth)
    return chosen
