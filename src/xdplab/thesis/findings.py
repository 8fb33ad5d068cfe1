"""Findings over an imported run's trials: two counters, printed means, foreign clocks. Each rule gets the judged
trials, and the same trials by the better counter; no rule refers to a particular file or point.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from xdplab.analysis import verdicts
from xdplab.analysis.findings import Finding, Severity, files_of, points_of
from xdplab.analysis.series import settled
from xdplab.plan.offered import L1_EXTRA_BYTES
from xdplab.text import many
from xdplab.thesis.published import published_figures
from xdplab.thesis.rules import (
    COUNTS_CLOSE,
    COUNTS_FAR,
    LEAST_CLOCK_ERROR,
    LEAST_FOR_CLOCK,
    RING_MATCH,
    XDP_MODES,
    Ring,
    apart,
    clock_ratio,
    deaf_by_count,
    deaf_by_signature,
    generator_ceiling_pps,
    program_classes,
    rings,
)

FOREIGN_SHARE = 0.05
SAMPLE_APART = 5.0  # percent points between the last sample and the steady mean of a CPU
QUEUE_SLACK = 1.04  # of one queue's even share of the link: the flows do not hash quite evenly


def deaf(evidence: Evidence) -> Iterator[Finding]:
    for label, rows in by_repetition(evidence.trials[deaf_by_count(evidence.trials)]):
        rates = rows["dut_count_pps"].astype(float)
        what = (
            f"{label}: in {many(len(rows), 'trial')} the generator counted 0 frames while the DUT's own interface sent "
            f"{rates.min():.0f} to {rates.max():.0f} a second ({points_text(rows)})"
        )
        yield finding_of(
            "deaf generator", "warning", what, rows, {"dut_pps_least": rates.min(), "dut_pps_most": rates.max()}
        )


def deaf_without_counter(evidence: Evidence) -> Iterator[Finding]:
    for label, rows in by_repetition(evidence.trials[deaf_by_signature(evidence.trials)]):
        what = (
            f"{label}: in {many(len(rows), 'trial')} the generator sent all the time and counted 0 from the first row "
            f"on, while the setting is known to forward ({points_text(rows)}): no count of the DUT tells the rate"
        )
        yield finding_of("deaf generator by signature", "warning", what, rows)


def _apart(trials: pd.DataFrame) -> pd.Series:
    tg, dut = (trials[name].astype("Float64") for name in ("tg_count_pps", "dut_count_pps"))
    most = tg.where(tg > dut, dut)
    return ((tg - dut).abs() / most).where((tg > 0) & (most > 0))


def counts_differ(evidence: Evidence) -> Iterator[Finding]:
    shares = _apart(evidence.trials)
    near = shares.between(COUNTS_CLOSE, COUNTS_FAR, inclusive="right").fillna(False)
    for label, rows in by_repetition(evidence.trials[near]):
        most = float(shares[rows.index].max())
        what = (
            f"{label}: the two counts of the same frames differ by up to {most:.1%} in {many(len(rows), 'trial')} "
            f"({points_text(rows)})"
        )
        yield finding_of("counts differ", "info", what, rows, {"most_share": most})


def counts_far(evidence: Evidence) -> Iterator[Finding]:
    shares = _apart(evidence.trials)
    for label, rows in by_repetition(evidence.trials[shares.gt(COUNTS_FAR).fillna(False)]):
        most = float(shares[rows.index].max())
        what = (
            f"{label}: generator and DUT disagree by up to {most:.0%} on the same frames in {many(len(rows), 'trial')} "
            f"({points_text(rows)}): invalid by the generator's count"
        )
        yield finding_of("counts disagree", "warning", what, rows, {"most_share": most})


def ceiling(evidence: Evidence) -> Iterator[Finding]:
    least = generator_ceiling_pps(evidence.trials)
    capped = evidence.trials["tg_count_pps"].ge(least or float("inf")).fillna(False)
    for label, rows in by_repetition(evidence.trials[capped]):
        alone = int(rows["dut_count_pps"].isna().sum())
        tg = rows["tg_count_pps"].astype(float)
        what = (
            f"{label}: the generator receives no more than {tg.max() / 1e6:.1f} Mpps, a plateau of its own over "
            f"{many(len(rows), 'trial')} ({points_text(rows)}); {alone} of them have no second count: their rate is "
            "not known"
        )
        numbers = {"ceiling_pps": float(tg.max()), "without_second_count": float(alone)}
        yield finding_of("generator-limited plateau", "warning", what, rows, numbers)


def appended(evidence: Evidence) -> Iterator[Finding]:
    several = evidence.attempts["attempt"].gt(1).fillna(False)
    for label, rows in by_repetition(evidence.attempts[several]):
        what = f"{label}: {len(rows)} files hold runs appended one after another; the last counts ({points_text(rows)})"
        yield finding_of("appended runs", "warning", what, rows)


def without_traffic(evidence: Evidence) -> Iterator[Finding]:
    silent = evidence.trials["reason"].str.startswith("no traffic").fillna(False)
    for label, rows in by_repetition(evidence.trials[silent]):
        what = f"{label}: {many(len(rows), 'trial')} without traffic: no counter saw a frame ({points_text(rows)})"
        yield finding_of("no traffic", "warning", what, rows)


def negative_latency(evidence: Evidence) -> Iterator[Finding]:
    negative = evidence.trials["published_latency_s"].lt(0).fillna(False)
    for label, rows in by_repetition(evidence.trials[negative]):
        saved = int(rows["latency_mean_ns"].notna().sum())
        what = (
            f"{label}: {len(rows)} printed latencies are negative, driven there by frames of others "
            f"({points_text(rows)}); {saved} could be had by undoing the running mean"
        )
        numbers = {"least_s": float(rows["published_latency_s"].min()), "recovered": float(saved)}
        yield finding_of("negative latency", "warning", what, rows, numbers)


def ring_depth(evidence: Evidence) -> Iterator[Finding]:
    by_mode = rings(evidence.better)
    kinds: dict[str, set[int]] = {}
    for (kind, _), ring in by_mode.items():
        kinds.setdefault(kind, set()).add(ring.entries)
    for (kind, repetition), ring in sorted(by_mode.items()):
        modes = XDP_MODES if kind == "xdp" else (kind,)
        rows = evidence.better[evidence.better["mode"].isin(modes) & evidence.better["repetition"].eq(repetition)]
        name = "other ring depth" if len(kinds[kind]) > 1 else "ring-bound latency"
        others = [
            f"{r.entries} in repetition {n}" for (k, n), r in sorted(by_mode.items()) if k == kind and n != repetition
        ]
        what = f"{' and '.join(modes)}, repetition {repetition}: {_ring_words(ring)}" + (
            f" ({', '.join(others)})" if others else ""
        )
        numbers = {
            "entries": float(ring.entries), "full": float(ring.full), "limited_by_dut": float(ring.trials),
            "frames_least": ring.least, "frames_median": ring.median, "frames_most": ring.most,
        }  # fmt: skip
        yield finding_of(name, "warning", what, rows, numbers)


def _ring_words(ring: Ring) -> str:
    if not ring.at_work_only:
        return (
            f"latency × rate is {ring.entries} frames a CPU at work in {ring.full} of {ring.trials} DUT-limited "
            f"trials: the latency is the fill of a ring of {ring.entries} entries"
        )
    return (
        f"latency × rate falls with N to {ring.median:.0f} frames ({ring.least:.0f} to {ring.most:.0f}) where the "
        f"accesses make the time: a ring of {ring.entries} entries that is full, and the frames beside it; "
        f"{ring.full} of {ring.trials} DUT-limited trials hold it alone within {RING_MATCH:.0%}"
    )


def other_program(evidence: Evidence) -> Iterator[Finding]:
    pairs = apart(evidence.better)
    for mode, classes in program_classes(evidence.better).items():
        if len(classes) < 2:
            continue
        rows = evidence.better[evidence.better["mode"].eq(mode)]
        of_mode = [pair for pair in pairs if pair.mode == mode]
        named = " and ".join("repetitions " + ", ".join(map(str, members)) for members in classes)
        ratios = "; ".join(
            f"{p.b} takes {p.ratio:.2f} times the service time of {p.a} at {p.queues} queues ({p.sigmas:.0f} SE)"
            for p in of_mode
        )
        what = f"{mode}: {named} ran different programs, by their service time ({ratios})"
        numbers = {f"ratio_{p.b}_to_{p.a}_at_{p.queues}_queues": p.ratio for p in of_mode}
        yield finding_of("other program", "warning", what, rows, numbers)


def _counted(rows: pd.DataFrame) -> list[dict[str, int | None]]:
    return [json.loads(text) for text in rows["program_counts"]]


def accesses_not_as_labelled(evidence: Evidence) -> Iterator[Finding]:
    """Of XDP programs with accesses: lookups that are not N, values that are not read."""
    counted = evidence.trials[evidence.trials["program_counts"].notna() & evidence.trials["accesses"].gt(0)]
    for repetition, rows in counted[counted["mode"].isin(XDP_MODES)].groupby("repetition"):
        counts = _counted(rows)
        more = [int(c["lookups"] or 0) - int(n) for c, n in zip(counts, rows["accesses"], strict=True)]
        unread = sum(not c["value_accesses"] for c in counts)
        if not any(more) and not unread:
            continue
        labels = sorted({f"N{d:+d}" if d else "N" for d in more})
        what = (
            f"{' and '.join(XDP_MODES)}, repetition {int(str(repetition))}: the programs make {' or '.join(labels)} "
            f"lookups for each packet; in {unread} of {many(len(rows), 'trial')} no value that they return is read "
            "(the C files, compiled and executed)"
        )
        yield finding_of("accesses not as labelled", "warning", what, rows, {"unread": float(unread)})


def other_program_by_source(evidence: Evidence) -> Iterator[Finding]:
    """AF_XDP's application against N: what it repeats for each packet is no lookup, or nothing at all."""
    counted = evidence.trials[evidence.trials["program_counts"].notna() & evidence.trials["accesses"].gt(0)]
    for repetition, rows in counted[counted["mode"].eq("af_xdp")].groupby("repetition"):
        counts = _counted(rows)
        stores = [int(c["repeated_stores"] or 0) for c in counts]
        done = (
            "an empty loop, which touches nothing of the packet"
            if not any(stores)
            else "N more stores of the source MAC address to the same place of the frame"
            if stores == [int(n) for n in rows["accesses"]]
            else f"{min(stores)} to {max(stores)} more stores to one place of the frame"
        )
        what = (
            f"af_xdp, repetition {int(str(repetition))}: where XDP makes lookups, the application makes {done} "
            f"({many(len(rows), 'trial')}; the C files' own function, compiled without optimisation and executed)"
        )
        numbers = {"repeated_stores_most": float(max(stores))}
        yield finding_of("other program, by its source", "warning", what, rows, numbers)


def service_times_differ(evidence: Evidence) -> Iterator[Finding]:
    """Pairs that a chain of others joins: loads of one program, as far as anyone can tell."""
    classes = program_classes(evidence.better)
    for pair in apart(evidence.better):
        if any({pair.a, pair.b} <= set(members) for members in classes[pair.mode]):
            chosen = evidence.better["mode"].eq(pair.mode) & evidence.better["queues"].eq(pair.queues)
            rows = evidence.better[chosen & evidence.better["repetition"].isin([pair.a, pair.b])]
            what = (
                f"{pair.mode}, {many(pair.queues, 'queue')}: repetition {pair.b} takes "
                f"{pair.ratio:.2f} times the service time of {pair.a} over {pair.loads} N ({pair.sigmas:.0f} SE): "
                "another program, or loads of one that differ this much"
            )
            yield finding_of("service times differ", "info", what, rows, {"ratio": pair.ratio, "sigmas": pair.sigmas})


def wrong_perf_target(evidence: Evidence) -> Iterator[Finding]:
    refused = evidence.trials["perf_target"].notna() & evidence.trials["instructions"].isna()
    rows = evidence.trials[refused]
    if len(rows):
        target, count = Counter(rows["perf_target"]).most_common(1)[0]
        what = (
            f"perf counted the {target.replace(' ', ' `', 1)}` in {count} of {len(rows)} logs, not the machine: its "
            "counts are refused, they say nothing of XDP"
        )
        yield finding_of("perf of the wrong target", "warning", what, rows)


def one_socket(evidence: Evidence) -> Iterator[Finding]:
    rows = evidence.better[evidence.better["mode"].eq("af_xdp") & evidence.better["queues"].gt(1)]
    rows = rows[rows["verdict"].eq("valid").fillna(False) & rows["forwarded_pps"].notna()]
    for queues, group in rows.groupby("queues"):
        times = float(str(queues))
        wire = group["forwarded_pps"] * (group["frame_bytes"] + L1_EXTRA_BYTES) * 8 / group["link_bps"]
        shares = wire.astype("Float64")
        most = float((shares * times).max())
        if not 0 < most <= QUEUE_SLACK:
            continue
        full = int((shares * times >= 0.98).sum())
        what = (
            f"AF_XDP, {int(times)} queues: no trial forwards more than 1/{int(times)} of the link ({most:.1%} of it), "
            f"{full} of {len(group)} just that: one socket serves one queue, the steering gives it its share"
        )
        yield finding_of(
            "one AF_XDP socket", "warning", what, group, {"most_of_a_queues_share": most, "full": float(full)}
        )


def missing_trials(evidence: Evidence) -> Iterator[Finding]:
    """Points that another repetition of the mode has, and those that have logs but not the generator's."""
    for mode, rows in evidence.trials.groupby("mode"):
        points = rows.drop_duplicates("point_id").set_index("point_id")
        for repetition, of_repetition in rows.groupby("repetition"):
            logged = of_repetition[of_repetition["generator_file"].notna()]
            gone = points.loc[[point for point in points.index if point not in set(logged["point_id"])]].reset_index()
            if len(gone):
                lost = int(of_repetition["generator_file"].isna().sum())
                what = (
                    f"{mode}, repetition {int(str(repetition))}: {len(gone)} of {len(points)} points that other "
                    f"repetitions have are missing ({points_text(gone)}); {lost} of them have other logs"
                )
                numbers = {"missing": float(len(gone)), "points": float(len(points))}
                yield Finding("missing points", "info", what, points_of(gone), numbers, ())


def last_sample(evidence: Evidence) -> Iterator[Finding]:
    sampled = evidence.trials[evidence.trials["softirq_by_cpu_percent"].notna()]
    off = [
        max(
            (abs((a or 0.0) - (b or 0.0)) for a, b in zip(json.loads(last), json.loads(mean), strict=False)),
            default=0.0,
        )
        for last, mean in zip(sampled["published_softirq_percent"], sampled["softirq_by_cpu_percent"], strict=True)
    ]
    apart_by = pd.Series(off, index=sampled.index, dtype=float)
    for label, rows in by_repetition(sampled[apart_by > SAMPLE_APART]):
        most = float(apart_by[rows.index].max())
        what = (
            f"{label}: the last sample of a CPU, which was drawn, is off its steady mean by up to {most:.0f} "
            f"points in {many(len(rows), 'trial')} ({points_text(rows)})"
        )
        yield finding_of("last sample for a run", "info", what, rows, {"most_points": most})


def sender_counts_too_much(evidence: Evidence) -> Iterator[Finding]:
    rows = evidence.trials[evidence.trials["offered_pps"].notna()]
    wire = rows["offered_pps"] * (rows["frame_bytes"] + L1_EXTRA_BYTES) * 8 / rows["link_bps"]
    over = rows[wire.gt(verdicts.LINE_SLACK).fillna(False)]
    if len(over):
        most = float(wire.max())
        what = (
            f"in {many(len(over), 'trial')} the generator says it sent more than the link carries "
            f"(up to {most:.1f} times): its count of sent frames says nothing about loss"
        )
        yield finding_of("sent more than the link carries", "info", what, over, {"most_share": most})


def clocks(evidence: Evidence) -> Iterator[Finding]:
    ratio, agree = clock_ratio(evidence.trials)
    if agree.sum() >= LEAST_FOR_CLOCK and abs(ratio - 1) >= LEAST_CLOCK_ERROR:
        # A clock that is off is off in every trial, with or without a second count.
        rows = evidence.trials[evidence.trials["tg_count_pps"].gt(0).fillna(False)]
        what = (
            f"the generator counts {100 * (ratio - 1):+z.2f} % against the DUT in the median of "
            f"{many(int(agree.sum()), 'trial')}: its clock is off by that; corrected rates are over the DUT's seconds"
        )
        yield finding_of("clocks", "info", what, rows, {"ratio": ratio, "compared": float(agree.sum())})


def rate_steps(evidence: Evidence) -> Iterator[Finding]:
    for label, rows in by_repetition(evidence.trials[evidence.trials["rate_step_share"].notna()]):
        shares = rows["rate_step_share"].to_numpy(dtype=float)
        most = float(shares[np.abs(shares).argmax()])
        what = (
            f"{label}: in {many(len(rows), 'trial')} the rate changes in mid-run, by up to {most:+.0%}, and stays so "
            f"({points_text(rows)}): their mean is of two states"
        )
        yield finding_of("rate steps in mid-run", "warning", what, rows, {"most_share": most})


def foreign_in_mean(evidence: Evidence) -> Iterator[Finding]:
    """Positive printed means that hold frames of others look like latencies; two latencies have no one mean."""
    printed = evidence.trials["published_latency_s"].astype("Float64")
    undone = evidence.trials["latency_mean_ns"].astype("Float64") * 1e-9
    left_open = evidence.trials["latency_open_ns"].astype("Float64") * 1e-9
    digit = 10.0 ** -evidence.trials["latency_decimals"].astype("Float64")
    off = (printed - undone).abs()
    one = evidence.trials["latency_levels_ns"].isna()
    wrong = (one & printed.gt(0) & (off > left_open + digit) & (off > FOREIGN_SHARE * undone)).fillna(False)
    for label, rows in by_repetition(evidence.trials[wrong]):
        shares = (printed / undone - 1)[rows.index].astype(float)
        what = (
            f"{label}: {len(rows)} printed latencies are off by {shares.min():+.0%} to {shares.max():+.0%}: "
            f"frames of others, most of them of the first second, stay in the running mean ({points_text(rows)})"
        )
        numbers = {"least_share": float(shares.min()), "most_share": float(shares.max())}
        yield finding_of("frames of others in the mean", "warning", what, rows, numbers)


def axis_unit(evidence: Evidence) -> Iterator[Finding]:
    """The print says nanoseconds: with latencies of that unit no frame would be on its way."""
    drawn = {pair for spec in published_figures() if spec.family == "latency" for pair in spec.repetitions.items()}
    seconds, rate = (evidence.trials[name].astype("Float64") for name in ("published_latency_s", "forwarded_pps"))
    pairs = pd.MultiIndex.from_frame(evidence.trials[["mode", "repetition"]].astype({"repetition": int}))
    comparable = (seconds.gt(0) & rate.gt(0)).fillna(False).astype(bool) & pairs.isin(drawn)
    frames = (seconds * rate)[comparable].astype(float)
    if len(frames) and frames.median() * 1e-9 < 1 <= frames.median():
        what = (
            f"the axes of the latency figures say nanoseconds and the values are seconds: latency × rate is "
            f"{frames.median():.0f} frames on their way in the median, as nanoseconds {frames.median() * 1e-9:.1g}"
        )
        numbers = {"frames_as_seconds": float(frames.median())}
        yield finding_of("axis in another unit", "warning", what, evidence.trials[comparable], numbers)


def two_latencies(evidence: Evidence) -> Iterator[Finding]:
    for label, rows in by_repetition(evidence.trials[evidence.trials["latency_levels_ns"].notna()]):
        most = max(high / low for low, high in map(json.loads, rows["latency_levels_ns"]))
        what = (
            f"{label}: in {many(len(rows), 'trial')} the seconds have two latencies, up to {most:.1f} times apart "
            f"({points_text(rows)}): no single number stands for the run"
        )
        yield finding_of("two latencies in a run", "warning", what, rows, {"most_ratio": most})


SWAPPED = "swapped_labels"


def file_anomalies(evidence: Evidence) -> Iterator[Finding]:
    yield from _problems(evidence, "file anomaly", lambda kind: kind != SWAPPED)


def labels_swapped(evidence: Evidence) -> Iterator[Finding]:
    yield from _problems(evidence, "rate labels swapped", lambda kind: kind == SWAPPED)


def _problems(evidence: Evidence, rule: str, chosen: Callable[[str], bool]) -> Iterator[Finding]:
    """One finding for each kind of problem that the logs have."""
    named = evidence.attempts[evidence.attempts["anomalies"].notna()].drop_duplicates("trial_id")
    problems = [problem for text in named["anomalies"] for problem in json.loads(text)]
    counts = Counter(problem["kind"] for problem in problems if chosen(problem["kind"]))
    for kind, count in sorted(counts.items()):
        of_kind = [p for p in problems if p["kind"] == kind]
        rows = named[[any(p["kind"] == kind for p in json.loads(text)) for text in named["anomalies"]]]
        examples = "; ".join(f"{p['file']}: {p['text']}" for p in of_kind[:2])
        what = f"{many(count, 'file')}: {kind.replace('_', ' ')} ({examples})"
        yield finding_of(rule, "warning", what, rows, {"files": float(count)})


RULES: dict[str, tuple[ImportRule, str]] = {
    "deaf generator": (
        deaf,
        "the generator's count is 0 and the DUT's interface counter is not, over the same seconds",
    ),
    "deaf generator by signature": (
        deaf_without_counter,
        "0 received in every row while the sender sent, no second count, and the same point in another repetition or "
        "another N of the same setting forwards",
    ),
    "counts differ": (counts_differ, "two counts over the seconds both hosts saw differ by 1 to 5 %"),
    "counts disagree": (counts_far, "two counts over the seconds both hosts saw differ by more than 5 %"),
    "generator-limited plateau": (
        ceiling,
        "the generator's rate is within 3 % of the least at which it was seen to miss frames that the DUT sent",
    ),
    "appended runs": (appended, "more than one header in a file"),
    "no traffic": (without_traffic, "no count of either host is above 0"),
    "negative latency": (negative_latency, "the printed running mean of the last row is below 0"),
    "frames of others in the mean": (
        foreign_in_mean,
        "the printed running mean is 5 % and more than its digits off the mean of the frames after the first second",
    ),
    "axis in another unit": (
        axis_unit,
        "latency × rate is the number of frames on their way: at least one in seconds, none in nanoseconds",
    ),
    "two latencies in a run": (
        two_latencies,
        "the seconds' latencies fall into two groups, each a fifth of them, with a gap wider than either",
    ),
    "rate steps in mid-run": (
        rate_steps,
        "the seconds' rates before and after some second differ by more than 10 % and 4 standard deviations",
    ),
    "ring depth": (
        ring_depth,
        "latency × rate / CPUs at work (Little's law) is the same power of two within 8 % in most DUT-limited trials; "
        "else the largest power of two that the trials with the most accesses fill",
    ),
    "other program": (
        other_program,
        "service times of the same points differ by more than 15 % and 4 standard errors over program loads; no chain "
        "of repetitions joins the two",
    ),
    "accesses not as labelled": (
        accesses_not_as_labelled,
        "the C files beside the logs, compiled with clang: their bytecode is executed, and its lookups and the "
        "accesses to what they return are counted",
    ),
    "other program, by its source": (
        other_program_by_source,
        "the function that processes a packet is compiled against stand-ins of the socket's rings and executed by the "
        "emulator, which reports every access to the frame",
    ),
    "service times differ": (service_times_differ, "as `other program`, but other repetitions join the two"),
    "perf of the wrong target": (wrong_perf_target, "perf's header names whom it counted"),
    "one AF_XDP socket": (one_socket, "no rate above line rate / queues"),
    "missing points": (missing_trials, "points of the mode's other repetitions without a generator log"),
    "last sample for a run": (last_sample, "last sample against the mean of the samples within the traffic"),
    "sent more than the link carries": (sender_counts_too_much, "frames sent × wire size against the link's rate"),
    "clocks": (clocks, "median ratio of the two counts where they agree within 1 %"),
    "file anomaly": (file_anomalies, "the parsers' anomalies"),
    "rate labels swapped": (
        labels_swapped,
        "in the CSV file beside a log, the column whose label says average holds the log's rates of the last moment, "
        "and the other one its averages",
    ),
}


def find_import(judged: pd.DataFrame, better: pd.DataFrame, rules: Sequence[str] = tuple(RULES)) -> list[Finding]:
    """Apply the rules to judged trials (all attempts) and the same as the better counter tells them; warnings first."""
    evidence = Evidence(settled(judged), settled(better), judged)
    findings = [finding for name in rules for finding in RULES[name][0](evidence)]
    return sorted(findings, key=lambda finding: finding.severity != "warning")


@dataclass(frozen=True, eq=False)
class Evidence:
    """``trials``: judged, last attempts; ``better``: as the better counter tells them; ``attempts``: all of them."""

    trials: pd.DataFrame
    better: pd.DataFrame
    attempts: pd.DataFrame


ImportRule = Callable[[Evidence], Iterator[Finding]]


def by_repetition(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    for (mode, repetition), group in rows.groupby(["mode", "repetition"], sort=True):
        yield f"{mode}, repetition {int(str(repetition))}", group


def points_text(rows: pd.DataFrame, most: int = 4) -> str:
    """Return some of the points as text: ``8 queues, 64 B, N = 12800``."""
    columns = zip(rows["queues"], rows["frame_bytes"], rows["accesses"], strict=True)
    points = list(dict.fromkeys(f"{many(q, 'queue')}, {size} B, N = {n}" for q, size, n in columns))
    return "; ".join(points[:most]) + (f" and {len(points) - most} more" if len(points) > most else "")


def finding_of(
    rule: str, severity: Severity, what: str, rows: pd.DataFrame, evidence: dict[str, float] | None = None
) -> Finding:
    numbers = {"trials": float(len(rows)), **(evidence or {})}
    return Finding(rule, severity, what, points_of(rows), numbers, files_of(rows))
