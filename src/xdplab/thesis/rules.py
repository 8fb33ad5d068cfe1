"""Rules for runs measured elsewhere: two independent counts of the same frames, and a generator with a ceiling.

Imported trials have a second, independent counter. A difference of 1 to 5 % is reported; a larger one makes the trial
invalid. If the generator is not trustworthy and the DUT counted, the DUT's count is used.

Which repetitions are comparable: those of one program and one ring depth. The logs name neither the program nor the
ring. The time per packet identifies the program if it differs by more
than program loads differ anyway; latency x rate, the frames in flight, identifies the ring (Little's law).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import floor, log, log2, sqrt

import numpy as np
import pandas as pd

from xdplab.analysis import verdicts
from xdplab.analysis.derived import derive
from xdplab.analysis.series import SERIES, key_of, objects, plain
from xdplab.analysis.values import Row, number, records, text
from xdplab.analysis.verdicts import Verdict

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


RowRule = Callable[[Row], str | None]
RULES_VERSION = f"{verdicts.RULES_VERSION}-import-2"
COUNTS_FAR = 0.05  # two counts of the same frames by two clocks
COUNTS_CLOSE = 0.01
CEILING_SHARE = 0.97  # of the least rate at which the generator was seen to miss frames
ONE_QUEUE_FULL = 0.98  # of one queue's share of the link
JUDGED = ("verdict", "reason", "limited_by")
SERIES_AND_REPETITION = ("mode", "queues", "frame_bytes", "repetition")


def counts_apart(row: Row) -> float | None:
    """Return by what share the two counts differ in the window both hosts saw, None without one of them."""
    tg, dut = number(row, "tg_count_pps"), number(row, "dut_count_pps")
    if tg is None or dut is None or not max(tg, dut):
        return None
    return abs(tg - dut) / max(tg, dut)


def traffic_was_sent(row: Row) -> str | None:
    counts = [number(row, name) for name in ("tx_packets", "rx_packets", "dut_rx_packets")]
    if any(counts) or all(count is None for count in counts):
        return None
    return "no traffic: no counter saw a frame"


def counts_not_far(row: Row) -> str | None:
    apart = counts_apart(row)
    if apart is None or apart <= COUNTS_FAR:
        return None
    rates = f"{number(row, 'tg_count_pps'):.0f} and {number(row, 'dut_count_pps'):.0f} a second"
    return f"TG and DUT disagree by {apart:.1%} on the same frames: {rates}"


def sent_or_arrived(row: Row) -> str | None:
    """Frames that reached the DUT were sent, whether or not the sender's log is there."""
    return None if number(row, "dut_rx_packets") else verdicts.something_sent(row)


REPLACED: dict[RowRule, RowRule] = {verdicts.counts_agree: counts_not_far, verdicts.something_sent: sent_or_arrived}
RULES: tuple[RowRule, ...] = (
    traffic_was_sent,
    *(REPLACED.get(rule, rule) for rule in verdicts.RULES),
)


def one_queues_share_is_full(row: Row) -> bool:
    """AF_XDP with one socket: the frames that the steering sends to its queue are all there is."""
    queues, share = number(row, "queues"), verdicts.line_share(row)
    if text(row, "mode") != "af_xdp" or share is None or not queues or queues < 2:
        return False
    return ONE_QUEUE_FULL <= share * queues <= 1.1


def dut_alone_counted(row: Row) -> bool:
    """At maximum load more is sent than a DUT forwards that does not fill the link."""
    return number(row, "tx_packets") is None and text(row, "load") == "max" and not verdicts.link_is_full(row)


LIMITS = (("link", one_queues_share_is_full), ("dut", dut_alone_counted))


def judge(row: Row) -> Verdict:
    """Judge one imported trial by its own row."""
    for rule in RULES:
        reason = rule(row)
        if reason is not None:
            return Verdict("invalid", reason, None)
    remarks = [remark(row) for remark in verdicts.REMARKS]
    limit = next((name for name, holds in LIMITS if holds(row)), None) or verdicts.limited_by(row)
    return Verdict("valid", "; ".join(words for words in remarks if words), limit)


NEEDED = (
    *SERIES, "run_id", "trial_id", "point_id", "attempt", "block", "repetition", "accesses", "window_s", "tx_packets",
    "rx_packets", "dut_rx_packets", "dut_tx_packets", "foreign_packets", "duplicate_packets", "queues_reached",
    "link_bps", "offered_pps", "forwarded_pps", "forwarded_source", "tg_count_pps", "dut_count_pps", "dut_cpus",
    "testrun_raw_ns", "program_run_ns", "null_reasons", "verdict", "reason", "limited_by",
)  # fmt: skip
DERIVED = ("ns_per_packet", "access_ns", "testrun_ns", "null_reasons")


def with_derived(trials: pd.DataFrame) -> pd.DataFrame:
    """Return ``trials`` with the columns of ``derive``, from the few columns that it needs: the rest costs seconds."""
    derived = derive(plain(trials, NEEDED))
    return trials.assign(**{name: derived[name].array for name in DERIVED})


def judged_import(trials: pd.DataFrame) -> pd.DataFrame:
    """Return imported ``trials`` with their verdicts and the columns derived from several trials."""
    verdicts = [judge(row) for row in records(plain(trials, [n for n in NEEDED if n not in JUDGED]))]
    columns = {name: [getattr(v, name) for v in verdicts] for name in ("verdict", "reason", "limited_by")}
    columns["rules_version"] = [RULES_VERSION] * len(verdicts)
    table = trials.assign(**{name: pd.array(cells, dtype="string") for name, cells in columns.items()})
    # Until all are known, reasons of nulls are objects that thousands of rows share: as a column they have 20 MB.
    table["null_reasons"] = objects(table["null_reasons"])
    del trials  # an import has no other reference to their column
    table = _without_unknown_rates(_with_signature(_with_ceiling(table)))
    unlimited = table["verdict"].ne("valid").fillna(True).astype(bool)
    why = pd.Series("only a valid trial has a limit", index=table.index)
    table = said_null(table, unlimited, ("limited_by",), why)
    return _with_stage(with_derived(table))


FULL_CORE_PERCENT = 95.0
STAGE_FLAT = 0.10  # of a series' highest rate
STAGE_WORK = 0.10  # of the time at the highest rate: what the accesses must add before a rate that stays says something
SOFTIRQ_STAGE = "softirq core, for which the application waits (AF_XDP is two cores in a pipeline),"


def _with_stage(trials: pd.DataFrame) -> pd.DataFrame:
    """AF_XDP is a pipeline: a softirq core hands frames to the application's core, and the slower one makes the rate.

    While the rate stays near its highest although the accesses, by their cost at the largest N, should have lowered
    it, and a softirq core has no time left, that core is the slower.
    """
    af_xdp = trials["mode"].eq("af_xdp") & trials["verdict"].eq("valid") & trials["limited_by"].eq("dut")
    names = (*SERIES_AND_REPETITION, "accesses", "forwarded_pps", "softirq_by_cpu_percent")
    of_af_xdp = plain(trials.loc[af_xdp.fillna(False).astype(bool), list(names)], names)
    of_af_xdp = of_af_xdp[of_af_xdp["forwarded_pps"] > 0]
    all_times, all_n = 1e9 / of_af_xdp["forwarded_pps"].to_numpy(), of_af_xdp["accesses"].to_numpy()
    shares = of_af_xdp["softirq_by_cpu_percent"].to_numpy()
    stage = pd.Series(None, index=trials.index, dtype="object")
    for rows_of_series in of_af_xdp.groupby(list(SERIES_AND_REPETITION)).indices.values():
        places = np.asarray(rows_of_series)
        times, n = all_times[places], all_n[places]
        least = float(times.min())
        cost = float((times[n.argmax()] - least) / n.max()) if n.max() > 0 else 0.0
        near = times <= least / (1 - STAGE_FLAT)
        # One N alone is no plateau: the accesses between the least and the most of them must cost something.
        if cost * float(n[near].max() - n[near].min()) >= STAGE_WORK * least:
            full = [place for place in places[near].tolist() if _a_core_is_full(shares[place])]
            stage[of_af_xdp.index[np.array(full, dtype=np.intp)]] = SOFTIRQ_STAGE
    return trials.assign(dut_stage=stage.astype("string"))


def _a_core_is_full(shares: object) -> bool:
    return isinstance(shares, str) and max((s or 0.0 for s in json.loads(shares)), default=0.0) >= FULL_CORE_PERCENT


RATE_COLUMNS = ("forwarded_pps", "forwarded_source", "forwarded_l2_bps", "forwarded_window_s")
LOSS_COLUMNS = ("lost_packets", "loss_ratio")


def _without_unknown_rates(trials: pd.DataFrame) -> pd.DataFrame:
    """An untrustworthy count of 0 is not a rate of 0: the rate is null, and the verdict's reason says why."""
    unknown = trials["verdict"].eq("invalid").fillna(False) & trials["forwarded_pps"].eq(0).fillna(False)
    names = [name for name in (*RATE_COLUMNS, *LOSS_COLUMNS) if name in trials]
    table = trials.assign(**{name: trials[name].mask(unknown) for name in names})
    return said_null(table, unknown, names, table["reason"])


def said_null(trials: pd.DataFrame, rows: pd.Series, names: Sequence[str], why: pd.Series) -> pd.DataFrame:
    """Return ``trials`` whose null_reasons say, in ``rows``, why the columns ``names`` are null."""
    if not rows.any():
        return trials
    nulls = objects(trials["null_reasons"])
    whys = zip(nulls[rows], why[rows], strict=True)
    nulls[rows] = [_also(text, tuple(names), str(reason)) for text, reason in whys]
    return trials.assign(null_reasons=nulls)


@lru_cache(maxsize=1024)
def _also(reasons: str | None, names: tuple[str, ...], why: str) -> str:
    """Return reasons of nulls with one more: many trials share one text."""
    return json.dumps(json.loads(reasons or "{}") | dict.fromkeys(names, why), sort_keys=True)


def generator_ceiling_pps(trials: pd.DataFrame) -> float | None:
    """Return the rate from which the TG is known to miss frames that the DUT sent, None if it never was seen to."""
    tg, dut = (trials[name].astype("Float64") for name in ("tg_count_pps", "dut_count_pps"))
    seen = tg[(tg > 0) & (tg < dut * (1 - COUNTS_FAR)) & (tg > 0.5 * tg.max())]
    return CEILING_SHARE * float(seen.min()) if len(seen) else None


def _with_ceiling(trials: pd.DataFrame) -> pd.DataFrame:
    """A rate at the TG's ceiling that no second count confirms is the TG's: the DUT forwarded at least that."""
    ceiling = generator_ceiling_pps(trials)
    if ceiling is None:
        return trials
    alone = trials["dut_count_pps"].isna() & trials["tg_count_pps"].ge(ceiling).fillna(False)
    at = alone & trials["verdict"].eq("valid").fillna(False)
    remark = f"; at the TG's ceiling ({ceiling / 1e6:.1f} Mpps and more): the DUT may have forwarded more"
    return trials.assign(
        limited_by=trials["limited_by"].mask(at, "generator"),
        reason=trials["reason"].mask(at, trials["reason"] + remark),
    )


def _with_signature(trials: pd.DataFrame) -> pd.DataFrame:
    """A TG that receives nothing is deaf if the same setting forwards at another N or in another repetition."""
    silent = deaf_by_signature(trials)
    remark = (
        "the TG was deaf, by its signature: it sent all the time and counted 0 from the first row on, while the same "
        "setting forwarded at other N or in other repetitions; no count of the DUT tells the rate"
    )
    return trials.assign(reason=trials["reason"].mask(silent, remark))


def deaf_by_signature(trials: pd.DataFrame) -> pd.Series:
    """Return a mask: 0 received, something sent, no second count, and the setting is known to forward."""
    heard = trials["rx_packets"].gt(0).fillna(False) | trials["dut_tx_packets"].gt(0).fillna(False)
    silent = trials["rx_packets"].eq(0).fillna(False) & trials["tx_packets"].gt(0).fillna(False)
    silent &= trials["dut_tx_packets"].isna()
    series = key_of(trials, SERIES_AND_REPETITION)
    forwards = series.isin(set(series[heard])) | trials["point_id"].isin(set(trials.loc[heard, "point_id"]))
    return (silent & forwards).astype(bool)


def deaf_by_count(trials: pd.DataFrame) -> pd.Series:
    """Return a mask: the TG received 0 while the DUT's own interface counter forwards."""
    return (trials["rx_packets"].eq(0) & trials["dut_tx_packets"].gt(0)).fillna(False).astype(bool)


LEAST_FOR_CLOCK = 10
LEAST_CLOCK_ERROR = 5e-5
"""Of the clock: less is 0.00 %, and no error."""


def clock_ratio(trials: pd.DataFrame) -> tuple[float, pd.Series]:
    """Return the generator's count over the DUT's of the same frames, and the trials it is the median of.

    Both count every frame, over the seconds that each host's own clock says: the ratio is that of the clocks. 1 where
    fewer than ten trials have two counts that agree.
    """
    tg, dut = (trials[name].astype("Float64") for name in ("tg_count_pps", "dut_count_pps"))
    both_counted = (tg > 0) & (dut > 0)
    agree = (both_counted & ((tg - dut).abs() <= COUNTS_CLOSE * dut)).fillna(False).astype(bool)
    ratio = float((tg[agree] / dut[agree]).median()) if agree.sum() >= LEAST_FOR_CLOCK else 1.0
    return ratio, agree


def corrected(trials: pd.DataFrame) -> pd.DataFrame:
    """Return judged trials as the better counter tells them: where the TG missed frames, judged by the DUT's count.

    A rate at the TG's ceiling without a second count is not the DUT's: its rate is null. Rates that the TG counted
    are over the DUT's seconds: the TG's clock is off by ``clock_ratio``.
    """
    missed = trials["verdict"].eq("invalid").fillna(False) & trials["forwarded_source"].eq("dut").fillna(False)
    missed &= trials["dut_tx_packets"].gt(0).fillna(False)
    alone = plain(trials.loc[missed, list(NEEDED)], NEEDED).assign(rx_packets=np.nan, tg_count_pps=np.nan)
    verdicts = [judge(row) for row in records(alone)]
    table = trials.copy()
    for name in ("verdict", "limited_by"):
        table.loc[missed, name] = [getattr(verdict, name) for verdict in verdicts]
    table.loc[missed, "reason"] = "by the DUT's count: " + table.loc[missed, "reason"]
    capped = table["limited_by"].eq("generator").fillna(False)
    by_tg = table["forwarded_source"].eq("tg").fillna(False)
    ratio, _ = clock_ratio(trials)
    rates = {name: table[name].mask(by_tg, table[name] / ratio) for name in ("forwarded_pps", "forwarded_l2_bps")}
    rates = {name: rate.mask(capped) for name, rate in rates.items()}
    return with_derived(table.assign(**rates))
