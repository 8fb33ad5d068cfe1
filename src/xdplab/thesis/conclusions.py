"""The thesis' statements, checked against three data sets: as published, corrected, and the user's own run. The
statements are those of its public summary and those that its figures imply, in xdplab's wording. Each is a rule over
means at points; if its points are missing, or the lab cannot show it, the result is "cannot be told here".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import hypot, sqrt
from typing import Literal

import pandas as pd

from xdplab.text import many
from xdplab.thesis.album import OwnRun
from xdplab.thesis.published import BEST_QUEUES, MODES, drawn_repetition, figure_named
from xdplab.thesis.views import Source

Verdict = Literal["holds", "does not hold", "cannot be told here"]
HOLDS, NOT, UNTOLD = "holds", "does not hold", "cannot be told here"
SLACK = 0.05  # two rates closer than this are the same: program loads differ by more
CLEAR_ERRORS = 3.0  # standard errors of a difference: repetitions that differ by 10 % say little about 5 %
MOST_APART = 0.2  # of the mean: loads of one program differ by up to 12 %, queues of them by 17 %
LINE_SHARE = 0.95
"""Of the link's L1 rate, 10 Gbit/s with 20 bytes beside each frame."""
LINE_BPS = 10e9
DOUBLED = (1.7, 2.3)
Point = tuple[str, int, int, int]  # mode, queues, frame size in B, N


class UndecidedError(Exception):
    """The reading lacks what a statement needs; the message says what."""


@dataclass(frozen=True, eq=False)
class Reading:
    """Means over repetitions by point: ``rate`` in frames per second, ``latency`` in s, ``instructions`` by perf.

    ``wired``: its link has a rate. ``cpus``: those the DUT had, None if they were enough; ``shared``: with the TG.
    ``apart``: points whose repetitions are too far apart to have a rate, by their standard deviation over the mean.
    ``errors``: the standard error of each rate over it, from the spread of all points; none for a single repetition.
    """

    name: str
    rate: Mapping[Point, float]
    latency: Mapping[Point, float]
    instructions: Mapping[Point, float]
    wired: bool = True
    cpus: int | None = None
    shared: bool = False
    apart: Mapping[Point, float] = field(default_factory=dict)
    errors: Mapping[Point, float] = field(default_factory=dict)

    def pps(self, mode: str, queues: int, frame_bytes: int, accesses: int) -> float:
        """Return a rate. Raises UndecidedError if it is not known."""
        point = (mode, queues, frame_bytes, accesses)
        place = f"{mode}, {many(queues, 'queue')}, {frame_bytes} B, N = {accesses}"
        if point in self.apart:
            raise UndecidedError(f"the repetitions of {place} are {self.apart[point]:.0%} apart (standard deviation)")
        if point not in self.rate:
            raise UndecidedError(f"no rate of {place}")
        return self.rate[point]

    def clearly_above(self, point: Point, other: Point) -> bool:
        """True if a rate is above another one by more than the repetitions of the two leave open."""
        error = hypot(self.errors.get(point, 0.0), self.errors.get(other, 0.0))
        return self.rate[point] > (1 + max(SLACK, CLEAR_ERRORS * error)) * self.rate[other]

    def rates_of(self, mode: str, queues: int, frame_bytes: int) -> list[tuple[int, float]]:
        """Return (N, rate) by rising N."""
        key = (mode, queues, frame_bytes)
        return sorted((point[3], rate) for point, rate in self.rate.items() if point[:3] == key)

    def need_cpus(self, queues: int) -> None:
        """Raise UndecidedError where the queues have no CPUs of their own."""
        if self.cpus is not None and self.cpus < queues:
            raise UndecidedError(f"{many(self.cpus, 'CPU')} for {queues} queues")


@dataclass(frozen=True)
class StatementVerdict:
    """``numbers`` are those it rests on, or what is missing."""

    verdict: str
    numbers: str


Rule = Callable[[Reading], tuple[bool, str]]


def _mpps(rate: float) -> str:
    return f"{rate / 1e6:.3g}"


def reaches_zero(r: Reading) -> tuple[bool, str]:
    """The throughput is zero at the most accesses, 64 B, one queue."""
    rates = {mode: r.pps(mode, 1, 64, 12800) for mode in MODES}
    rates_text = ", ".join(f"{MODES[mode]} {rate:,.0f}" for mode, rate in rates.items())
    return all(rate == 0 for rate in rates.values()), f"frames a second: {rates_text}"


def baseline_is_best(r: Reading) -> tuple[bool, str]:
    """No N forwards more than N = 0."""
    pairs = [(at, rate, r.rate.get((*at[:3], 0))) for at, rate in r.rate.items() if at[3] > 0]
    shares = [(at, rate / base) for at, rate, base in pairs if base]
    if not shares:
        raise UndecidedError("no rate of N = 0 beside one of another N")
    above = [(at, ratio) for at, ratio in shares if ratio > 1 + SLACK]
    most = max(shares, key=lambda pair: pair[1])
    text = (
        f"{len(above)} of {len(shares)} points are more than {SLACK:.0%} above their baseline; the most {most[1]:.2f} "
        f"times it ({MODES[most[0][0]]}, {many(most[0][1], 'queue')}, {most[0][2]} B, N = {most[0][3]})"
    )
    if above and not any(r.clearly_above(at, (*at[:3], 0)) for at, _ in above):
        raise UndecidedError(f"{text}; none by {CLEAR_ERRORS:.0f} standard errors")
    return not above, text


def best_queues(r: Reading) -> tuple[bool, str]:
    """8 queues are best for native and generic, one for AF_XDP, at 64 B without accesses."""
    r.need_cpus(8)
    rates = {mode: {queues: r.pps(mode, queues, 64, 0) for queues in (1, 8)} for mode in MODES}
    good = all(
        by_queues[BEST_QUEUES[mode]] >= (1 - SLACK) * max(by_queues.values()) for mode, by_queues in rates.items()
    )
    return good, "Mpps with 1 and 8 queues: " + ", ".join(
        f"{MODES[mode]} {_mpps(by_queues[1])} and {_mpps(by_queues[8])}" for mode, by_queues in rates.items()
    )


def modes_in_order(r: Reading) -> tuple[bool, str]:
    """Native is above generic, and generic above AF_XDP, with one queue at 64 B."""
    shared = [n for n, _ in r.rates_of("native", 1, 64) if all((mode, 1, 64, n) in r.rate for mode in MODES)]
    if not shared:
        raise UndecidedError("no N at which all modes have a rate")
    rows = {n: [r.pps(mode, 1, 64, n) for mode in ("native", "generic", "af_xdp")] for n in shared}
    good = [n for n, (a, b, c) in rows.items() if a >= b * (1 - SLACK) and b >= c * (1 - SLACK)]
    text = "; ".join(f"N = {n}: {' / '.join(map(_mpps, rates))}" for n, rates in rows.items())
    text = f"at {len(good)} of {len(rows)} N (Mpps native / generic / AF_XDP: {text})"
    pairs = (("generic", "native"), ("af_xdp", "generic"))
    clear = any(r.clearly_above((slow, 1, 64, n), (fast, 1, 64, n)) for n in rows for slow, fast in pairs)
    if len(good) < len(rows) and not clear:
        raise UndecidedError(f"{text}; at no N another order by {CLEAR_ERRORS:.0f} standard errors")
    unknown = sorted({point[3] for point in r.apart if point[1:3] == (1, 64)})
    if unknown and len(good) == len(rows):
        raise UndecidedError(f"{text}; repetitions too far apart at N = {', '.join(map(str, unknown))}")
    return len(good) == len(rows), text


def generic_costs_more(r: Reading) -> tuple[bool, str]:
    """Without accesses generic takes at least twice the time of native."""
    if r.shared:
        raise UndecidedError("sender and receiver share the DUT's CPUs: most of a packet's time is theirs")
    ratio = r.pps("native", 1, 64, 0) / r.pps("generic", 1, 64, 0)
    return ratio >= 2, f"native forwards {ratio:.1f} times as much at 64 B, 1 queue, N = 0"


def accesses_even_out(r: Reading) -> tuple[bool, str]:
    """With the most accesses native and generic are the same within a quarter."""
    ratio = r.pps("native", 1, 64, 12800) / (r.pps("generic", 1, 64, 12800) or float("nan"))
    if ratio != ratio:
        raise UndecidedError("the generic rate is 0")
    return 0.8 <= ratio <= 1.25, f"native / generic = {ratio:.2f} at N = 12800, 64 B, 1 queue"


def halves(r: Reading) -> tuple[bool, str]:
    """From N = 800 on, four times the accesses take four times the time."""
    parts = []
    for mode in MODES:
        a, b = r.pps(mode, 1, 64, 3200), r.pps(mode, 1, 64, 12800)
        if not b:
            raise UndecidedError(f"the rate of {MODES[mode]} is 0 at N = 12800")
        parts.append((mode, a / b))
    good = all(DOUBLED[0] ** 2 <= ratio <= DOUBLED[1] ** 2 for _, ratio in parts)
    return good, "rate at N = 3200 over that at 12800: " + ", ".join(f"{MODES[m]} {ratio:.2f}" for m, ratio in parts)


def queues_scale(r: Reading) -> tuple[bool, str]:
    """Eight queues forward six to nine times what one does, where accesses are the limit."""
    r.need_cpus(8)
    one = {mode: r.pps(mode, 1, 64, 3200) for mode in ("native", "generic")}
    ratios = {mode: r.pps(mode, 8, 64, 3200) / rate for mode, rate in one.items() if rate}
    if len(ratios) < 2:
        raise UndecidedError("a rate with one queue is 0")
    text = ", ".join(f"{MODES[mode]} {ratio:.1f}" for mode, ratio in ratios.items())
    return all(6 <= ratio <= 9 for ratio in ratios.values()), f"8 queues over 1 at N = 3200, 64 B: {text}"


def free_accesses(r: Reading) -> tuple[bool, str]:
    """A hundred accesses cost native with eight queues nothing."""
    r.need_cpus(8)
    ratio = r.pps("native", 8, 64, 100) / r.pps("native", 8, 64, 0)
    return ratio >= 1 - SLACK, f"N = 100 forwards {ratio:.2f} of N = 0 (native, 8 queues, 64 B)"


def large_frames_fill_the_link(r: Reading) -> tuple[bool, str]:
    """Native with eight queues fills the link with 1500-byte frames up to N = 800."""
    if not r.wired:
        raise UndecidedError("a link without a NIC has no rate")
    rates = {n: r.pps("native", 8, 1500, n) for n in (0, 800)}
    shares = {n: rate * (1500 + 20) * 8 / LINE_BPS for n, rate in rates.items()}
    return all(share >= LINE_SHARE for share in shares.values()), "share of 10 Gbit/s at L1: " + ", ".join(
        f"N = {n} {share:.1%}" for n, share in shares.items()
    )


def size_does_not_matter(r: Reading) -> tuple[bool, str]:
    """Where accesses are the limit, the frame size does not change the rate."""
    ratios = {mode: (r.pps(mode, 1, 64, 12800), r.pps(mode, 1, 1500, 12800)) for mode in MODES}
    if any(not small for small, _ in ratios.values()):
        raise UndecidedError("a rate at 64 B is 0")
    text = ", ".join(f"{MODES[mode]} {large / small:.2f}" for mode, (small, large) in ratios.items())
    good = all(abs(large / small - 1) <= 2 * SLACK for small, large in ratios.values())
    return good, f"1500 B over 64 B at N = 12800, 1 queue: {text}"


def latency_rises(r: Reading) -> tuple[bool, str]:
    """The latency at maximum load rises with N from 100 on, at each mode's best queue count."""
    texts, good = [], []
    for mode, queues in BEST_QUEUES.items():
        r.need_cpus(queues)
        by_n = {point[3]: seconds for point, seconds in r.latency.items() if point[:3] == (mode, queues, 64)}
        latencies = [by_n[n] for n in sorted(by_n) if n >= 100]
        if len(latencies) < 3:
            raise UndecidedError(f"fewer than three latencies of {mode}, {many(queues, 'queue')}, 64 B")
        good.append(all(b >= a * (1 - SLACK) for a, b in pairwise(latencies)))
        texts.append(f"{MODES[mode]} {latencies[0] * 1e3:.3g} to {latencies[-1] * 1e3:.3g} ms")
    return all(good), ", ".join(texts)


def instructions_rise(r: Reading) -> tuple[bool, str]:
    """The instructions in perf's five seconds are more with the most accesses than with none, 64 B."""
    pairs = [(at, r.instructions.get((*at[:3], 0)), count) for at, count in r.instructions.items() if at[3] == 12800]
    ratios = [count / base for at, base, count in pairs if base and at[2] == 64]
    if not ratios:
        raise UndecidedError("no count of the DUT's instructions: perf counted none, or a command of its own")
    return min(ratios) > 1 + SLACK, f"N = 12800 over N = 0: {min(ratios):.2f} to {max(ratios):.2f}"


STATEMENTS: Mapping[str, tuple[str, Rule]] = {
    "The throughput reaches zero at 12,800 accesses, 64 B, one queue": ("summary", reaches_zero),
    "The baseline performs best in all cases": ("summary", baseline_is_best),
    "Best queue counts: 8 for native and generic, 1 for AF_XDP": ("summary", best_queues),
    "Native is above generic, generic above AF_XDP": ("figures 18 and 19", modes_in_order),
    "Generic takes at least twice the time of native without accesses": ("figure 18", generic_costs_more),
    "Many accesses make native and generic equal": ("figure 19", accesses_even_out),
    "The time of a packet grows in proportion to the accesses": ("figure 19", halves),
    "Eight queues forward some eight times as much as one": ("figure 19", queues_scale),
    "A hundred accesses cost native with 8 queues nothing": ("figure 19", free_accesses),
    "1500-byte frames fill the link up to 800 accesses": ("figure 21", large_frames_fill_the_link),
    "The frame size does not matter where accesses limit": ("figure 22", size_does_not_matter),
    "The latency rises with the accesses": ("figure 23", latency_rises),
    "More accesses are more instructions": ("figure 28", instructions_rise),
}


def answer(rule: Rule, reading: Reading) -> StatementVerdict:
    """Return the result of a statement for one data set."""
    try:
        holds, numbers = rule(reading)
    except UndecidedError as error:
        return StatementVerdict(UNTOLD, str(error))
    return StatementVerdict(HOLDS if holds else NOT, numbers)


def published_reading(source: Source) -> Reading:
    """Return what was printed of the repetitions that figures 18 to 23 were drawn from."""
    spec = figure_named("19")
    rows = drawn_repetition(source.printed, spec)
    latency = drawn_repetition(source.printed, figure_named("23"))
    latency = latency[latency["published_latency_s"] > 0]
    rates, seconds = _means(rows, "published_rx_mean_pps"), _means(latency, "published_latency_s")
    return Reading("published", rates, seconds, _means(rows, "published_instructions"))


def corrected_reading(source: Source) -> Reading:
    """Return the means over the like-for-like repetitions, of valid trials."""
    pairs = pd.MultiIndex.from_frame(source.better[["mode", "repetition"]])
    alike = [(mode, float(number)) for mode, numbers in source.alike.items() for number in numbers]
    rows = source.better[pairs.isin(alike) & (source.better["verdict"] == "valid")]
    rates, latency, instructions, apart, errors = _measured(rows)
    return Reading("corrected", rates, latency, instructions, apart=apart, errors=errors)


def own_reading(run: OwnRun) -> Reading:
    """Return the means over one's own valid trials. A rate that the generator makes is not the DUT's: there is none."""
    rows = run.source.better[run.source.better["verdict"] == "valid"]
    capped = rows["limited_by"].eq("generator").fillna(False).astype(bool)
    rates, latency, instructions, apart, errors = _measured(
        rows.assign(forwarded_pps=rows["forwarded_pps"].mask(capped))
    )
    return Reading("own", rates, latency, instructions, run.wired, run.cpus, run.shared, apart, errors)


PointValues = tuple[dict[Point, float], dict[Point, float], dict[Point, float], dict[Point, float], dict[Point, float]]


def _measured(rows: pd.DataFrame) -> PointValues:
    """Return rates, latencies, instructions, the points that have no rate because their repetitions differ, and errors.

    A point has few repetitions: its error is from the spread of all points.
    """
    rates, spread = _means(rows, "forwarded_pps"), _means(rows, "forwarded_pps", "std")
    apart = {point: sd / rates[point] for point, sd in spread.items() if sd > MOST_APART * rates[point]}
    steady = {point: rate for point, rate in rates.items() if point not in apart}
    squares = [(sd / rates[point]) ** 2 for point, sd in spread.items() if point in steady and rates[point]]
    common = sqrt(sum(squares) / len(squares)) if squares else 0.0
    errors = {p: common / sqrt(n) for p, n in _means(rows, "forwarded_pps", "count").items()}
    latency = {point: ns * 1e-9 for point, ns in _means(rows, "latency_mean_ns").items()}
    return steady, latency, _means(rows, "instructions"), apart, errors


def _means(rows: pd.DataFrame, column: str, how: Literal["mean", "std", "count"] = "mean") -> dict[Point, float]:
    measured = rows[rows[column].notna()]
    means = measured.groupby(["mode", "queues", "frame_bytes", "accesses"])[column].agg(how).dropna()
    keys = means.index.to_frame(index=False)
    points = zip(keys["mode"], keys["queues"], keys["frame_bytes"], keys["accesses"], strict=True)
    return {
        (str(m), int(q), int(size), int(n)): float(value)
        for (m, q, size, n), value in zip(points, means.to_list(), strict=True)
    }


def conclusions(readings: list[Reading]) -> pd.DataFrame:
    """Return one row per statement: its source, and each data set's verdict and numbers."""
    rows = []
    for statement, (where, rule) in STATEMENTS.items():
        row = {"statement": statement, "where": where}
        for reading in readings:
            verdict = answer(rule, reading)
            row |= {reading.name: verdict.verdict, f"{reading.name}_numbers": verdict.numbers}
        rows.append(row)
    return pd.DataFrame(rows)


def in_markdown(table: pd.DataFrame) -> list[str]:
    """Return the table as lines of Markdown, each reading's verdict with its numbers."""
    names = [name for name in ("published", "corrected", "own") if name in table]
    lines = [f"| statement | where | {' | '.join(names)} |", "| --- " * (len(names) + 2) + "|"]
    for row in table.to_dict("records"):
        cells = [f"**{row[name]}**: {row[f'{name}_numbers']}" for name in names]
        lines.append(f"| {row['statement']} | {row['where']} | {' | '.join(cells)} |")
    return lines
