"""Recomputes a run's columns from its raw files without a line of xdplab: `python tests/run/recomputed.py RUN`.

Each column's meaning is taken from docs/reference/columns.md and docs/reference/verdicts.md, not from the code that
derives it. Prints a line per column. It knows veth's counters, xdpgen, shared CPUs, one port and generated programs,
and says how many trials it does not know. Exit code 1 if a column disagrees, 2 if none does, but trials are not known.
"""

import json
import math
import operator
import re
import statistics
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

Row = dict[str, Any]
Rows = list[Row]


CPU = re.compile(r"^(cpu\d+) (.*)$", re.MULTILINE)


def spent(before: dict[str, list[int]], after: dict[str, list[int]]) -> dict[str, dict[str, float]]:
    """The shares of its time that each CPU was busy, in softirqs, and stolen by the hypervisor (proc(5))."""
    shares = {}
    for cpu in (name for name in before if name != "rx"):
        ticks = [last - first for first, last in zip(before[cpu], after[cpu], strict=True)]
        total = sum(ticks[:8])
        shares[cpu] = {
            "busy": sum(ticks[:3] + ticks[5:7]) / total,
            "softirq": ticks[6] / total,
            "steal": ticks[7] / total,
        }
    return shares


class Attempt:
    """The raw files of one attempt."""

    def __init__(self, folder: Path, plan: dict[str, Any]) -> None:
        self.folder = folder
        self.plan = plan
        self.applied = json.loads((folder / "applied.json").read_text())
        self.point: dict[str, Any] = self.applied["point"]
        self.generator = self.lines("xdpgen.jsonl")
        self.load = self.lines("xdpload.jsonl")
        self.ready = self.generator[0]
        self.shared = self.point["arrangement"] == "shared"
        self.returns = self.point["action"] == "tx"

    def lines(self, name: str) -> Rows:
        path = self.folder / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def burst(self, name: str, kind: str = "summary", file: Rows | None = None) -> Rows:
        lines = self.generator if file is None else file
        return [line for line in lines if line["type"] == kind and line["burst"] == name]

    @property
    def window(self) -> dict[str, Any]:
        return self.burst("rate")[-1]

    def histogram(self, of: str) -> dict[str, Any] | None:
        found = [line for line in self.burst("rate", "histogram") if line["of"] == of]
        return found[-1] if found and found[-1]["count"] else None

    def text(self, name: str, folder: str = "counters") -> str:
        path = self.folder / folder / name
        return path.read_text() if path.exists() else ""

    def link(self, way: str, folder: str = "counters", host: str = "dut", of: str = "packets") -> int:
        """Frames, or their bytes, over the port in the window, by `ip -s link`."""
        counted = [
            json.loads(self.text(f"{host}.iplink.{when}.json", folder))[0]["stats64"][way][of]
            for when in ("before", "after")
        ]
        return int(counted[1] - counted[0])

    def driver(self, pattern: str, folder: str = "counters") -> dict[str, int]:
        """Growth of the driver's counters whose names match, by ethtool -S."""
        texts = [self.text(f"dut.ethtool.{when}.txt", folder) for when in ("before", "after")]
        counted = [
            {name: int(value) for name, value in re.findall(rf"^\s*({pattern}): (\d+)$", text, re.MULTILINE)}
            for text in texts
        ]
        return {name: counted[1][name] - counted[0][name] for name in counted[1]}

    def sockets(self, key: str, span: str = "dut") -> list[int]:
        """Growth of a counter of the AF_XDP application, by queue."""
        ends = [self.applied[f"{span}_{when}"]["queues"] for when in ("before", "after")]
        return [after[key] - before[key] for before, after in zip(*ends, strict=True)]

    def inside(self) -> list[dict[str, list[int]]]:
        """The recorder's notes inside the window: the longest sequence with frames, without its two ends."""
        notes = []
        for block in re.split(r"(?m)^(?=\d+\.\d+ \d+\.\d+$)", self.text("dut.samples.out"))[1:]:
            cpus = {
                name: list(map(int, row.split())) for name, row in re.findall(r"^(cpu\d+) (.*)\n", block, re.MULTILINE)
            }
            notes.append({**cpus, "rx": [int(block.splitlines()[1])]})
        runs: list[list[int]] = [[]]
        for place in range(1, len(notes)):
            if notes[place]["rx"] > notes[place - 1]["rx"]:
                runs[-1].append(place)
            else:
                runs.append([])
        kept = max(runs, key=len)[1:-1]
        return [notes[kept[0] - 1], notes[kept[-1]]] if kept else []

    def shares(self) -> dict[str, dict[str, float]]:
        """The share of its time that each CPU was busy, in softirqs, or stolen by the hypervisor (proc(5))."""
        notes = self.inside()
        if not notes:
            return {}
        return spent(*notes)

    def around(self) -> dict[str, dict[str, float]]:
        texts = [self.text(f"dut.procstat.{when}.txt") for when in ("before", "after")]
        return spent(*({cpu: list(map(int, ticks.split())) for cpu, ticks in re.findall(CPU, text)} for text in texts))


def unknown(point: dict[str, Any]) -> str | None:
    """Why the trials of a point are not recomputed."""
    if point["mode"] not in ("native", "generic", "af_xdp"):
        return f"mode {point['mode']}"
    if point.get("workload") is None or (point["frame_bytes"] is None and point.get("imix") in (None, "none")):
        return "a user's program, or frames of a file"
    if point["engine"] not in ("live", "afxdp"):
        return f"engine {point['engine']}"
    return "two ports" if point.get("directions", "back") != "back" else None


def percentile(share: float, of: str) -> Callable[[Attempt], float | None]:
    """The nearest-rank percentile, to a bucket of the histogram (1/128); None where that is the maximum."""

    def value(a: Attempt) -> float | None:
        histogram = a.histogram(of)
        if histogram is None or histogram["count"] < round(1 / (1 - share)):
            return None
        rank, seen = math.ceil(share * histogram["count"]), 0
        for low, count in histogram["buckets"]:
            seen += count
            if seen >= rank:
                return float(low)
        raise AssertionError("a histogram holds fewer values than it counts")

    return value


def headline(a: Attempt) -> str:
    return "from_sent" if a.point["rate_requested_pps"] is None else "from_due"


def of_headline(share: float) -> Callable[[Attempt], float | None]:
    return lambda a: percentile(share, headline(a))(a)


def edge(key: str, of: Callable[[Attempt], str]) -> Callable[[Attempt], float | None]:
    return lambda a: None if a.histogram(of(a)) is None else a.histogram(of(a))[key]  # type: ignore[index]


def mean_latency(a: Attempt) -> float | None:
    histogram = a.histogram(headline(a))
    return None if histogram is None else histogram["sum"] / histogram["count"]


def dut_rx(a: Attempt) -> int:
    return sum(a.sockets("rx")) if a.point["mode"] == "af_xdp" else a.link("rx")


def dut_tx(a: Attempt) -> int | None:
    if a.point["mode"] == "af_xdp":
        return sum(a.sockets("tx"))
    if a.point["mode"] == "native":
        return sum(a.driver(r"rx_queue_\d+_xdp_tx").values())
    return a.link("tx")


def lost(a: Attempt) -> int | None:
    """Frames that should have come back and did not; a duplicate counts once."""
    return a.window["tx_packets"] - a.window["rx_packets"] + a.window["duplicates"] if a.returns else None


def by_queue(a: Attempt) -> str | None:
    """veth counts only frames that its own XDP took, not those that reached the generic hook otherwise."""
    if a.point["mode"] == "af_xdp":
        return json.dumps(a.sockets("rx"))
    counted = a.driver(r"rx_queue_\d+_xdp_packets")
    queues = [counted[f"rx_queue_{queue}_xdp_packets"] for queue in range(a.point["queues"])]
    return json.dumps(queues) if any(queues) else None


def evenness(a: Attempt) -> float | None:
    counted = json.loads(by_queue(a) or "null")
    return (
        None
        if not counted or not sum(counted)
        else sum(counted) ** 2 / (len(counted) * sum(count * count for count in counted))
    )


def by_size(a: Attempt, name: str) -> str | None:
    pairs = a.burst("rate")[0].get(name)
    return json.dumps({str(size): frames for size, frames in pairs}) if pairs else None


def mean_size(a: Attempt, name: str) -> float:
    pairs = a.burst("rate")[0].get(name)
    if not pairs:
        return float(a.point["frame_bytes"])
    return sum(size * frames for size, frames in pairs) / sum(frames for _, frames in pairs)


def forwarded(a: Attempt) -> float:
    if not a.returns:
        return dut_rx(a) / a.window["duration_s"]
    return float((a.window["rx_window_packets"] - a.window["duplicates"]) / counted_s(a))


def counted_s(a: Attempt) -> float:
    """A count that was more than 1 % late, and after which no frame came, is of the window all the same."""
    sent, counted = (float(a.window[key]) for key in ("duration_s", "rx_window_s"))
    busy = a.window["rx_window_packets"] != a.window["rx_packets"]
    return counted if a.returns and (busy or counted <= 1.01 * sent) else sent


def rate_change(a: Attempt) -> tuple[float, str]:
    """The better of one step and one line, fitted to the intervals' rates, if it is large and certain.

    A report may come after the window ended; only frames until then count.
    """
    lines = a.burst("rate", "interval")
    frames = [line["rx_packets" if a.returns else "tx_packets"] for line in lines]
    if a.returns:
        frames[-1] = a.window["rx_window_packets"] - sum(frames[:-1])
    most = min(a.window["duration_s"], a.window["rx_window_s"]) if a.returns else a.window["duration_s"]
    ends = [min(line["t_s"], most) for line in lines]
    rates = [count / (end - start) for count, start, end in zip(frames, [0.0, *ends], ends, strict=False)]
    return (math.nan, "") if len(rates) < 4 else fitted(rates, ends)


def fitted(rates: list[float], ends: list[float]) -> tuple[float, str]:
    n, mean = len(rates), statistics.fmean(rates)
    best: tuple[float, float, float, str] | None = None
    for k in range(1, n):
        left, right = rates[:k], rates[k:]
        rest = sum((rate - statistics.fmean(part)) ** 2 for part in (left, right) for rate in part)
        change = statistics.fmean(right) - statistics.fmean(left)
        if k in (1, n - 1) and abs(change) <= 0.5 * mean:
            continue
        error = math.sqrt(rest / (n - 2) * (1 / k + 1 / (n - k)))
        if best is None or rest < best[0]:
            best = (rest, change, error, "step")
    times = [(start + end) / 2 for start, end in zip([0.0, *ends], ends, strict=False)]
    slope, intercept = statistics.linear_regression(times, rates)
    rest = sum((rate - intercept - slope * time) ** 2 for time, rate in zip(times, rates, strict=True))
    spread = sum((time - statistics.fmean(times)) ** 2 for time in times)
    if best is None or rest < best[0]:
        best = (rest, slope * ends[-1], math.sqrt(rest / (n - 2) / spread) * ends[-1], "trend")
    _, change, error, kind = best
    steady = abs(change) <= 0.10 * mean or abs(change) <= 5 * error
    return (0.0, "steady") if steady else (change / mean, kind)


def clocks(a: Attempt) -> list[float]:
    """Additions per ns of the CPUs that work, before and after the window."""
    read = [a.lines(f"counters/dut.clock.{when}.jsonl") for when in ("before", "after")]
    return [statistics.fmean(line["adds"] / line["ns"] for line in lines) for lines in read if lines]


def alone(a: Attempt, who: str) -> float | None:
    lines = a.burst("offer", file=a.lines(f"alone_{who}.jsonl"))
    if not lines:
        return None
    said = lines[-1]
    return float(len(a.ready["cpus"]) * said["duration_s"] * 1e9 / said["tx_packets"])


def both(first: float | None, second: float | None, what: Callable[[float, float], float]) -> float | None:
    return None if first is None or second is None else what(first, second)


def slices(a: Attempt) -> list[tuple[float, float]]:
    """The rates of each pair of slices, the attached program's first; a slice without frames leaves its pair out."""
    printed = [line["slices"] for line in a.load if line["type"] == "alternated"]
    sides = (
        [{bool(s[0]): s[3] / (s[2] - s[1]) for s in printed[-1][n : n + 2]} for n in range(0, 200, 2)]
        if printed
        else []
    )
    return [(both[False], both[True]) for both in sides if len(both) == 2 and all(both.values())]


def sliced_total(a: Attempt) -> float | None:
    printed = [line["slices"] for line in a.load if line["type"] == "alternated"]
    if not printed:
        return None
    sides = [[one for one in printed[-1] if bool(one[0]) is other] for other in (False, True)]
    own, rival = (sum(one[3] for one in side) / sum(one[2] - one[1] for one in side) for side in sides)
    return float(own / rival)


def sliced_ratio(a: Attempt) -> float | None:
    pairs = slices(a)
    return math.exp(statistics.median(math.log(own / rival) for own, rival in pairs)) if pairs else None


def runstats(a: Attempt) -> float | None:
    """Read twice around test runs, when nobody counts, and twice around the burst of a pass."""
    counted = [(line["run_time_ns"], line["run_cnt"]) for line in a.load if line["type"] == "runstats"]
    pairs = zip(counted[::2], counted[1::2], strict=True)
    times = [(last[0] - first[0]) / (last[1] - first[1]) for first, last in pairs if last[1] > first[1]]
    return times[-1] if times else None


def stats_cost(a: Attempt) -> float | None:
    counted = [line for line in a.load if line["type"] == "stats_cost"]
    return counted[-1]["run_time_ns"] / counted[-1]["run_cnt"] if counted else None


def testruns(a: Attempt) -> list[float]:
    """The series of several; those of one only determine how many runs make a slice. The mean over the frames."""
    for line in a.load:
        if line["type"] == "fresh":
            return [round(ns - min(line["empty_call_ns"]) + line["empty_ns"], 3) for ns in line["call_ns"]]
    values = [line["ns"] for line in a.load if line["type"] == "testrun" and len(line["ns"]) > 1]
    return [statistics.fmean(ns) for ns in zip(*values, strict=True)]


def said(kind: str, key: str, scale: float = 1.0) -> Callable[[Attempt], float | None]:
    def value(a: Attempt) -> float | None:
        found = [line for line in a.load if line["type"] == kind]
        return found[-1][key] / scale if found else None

    return value


def program_of_link(a: Attempt) -> dict[str, Any]:
    """The program at the DUT's port, from `ip link`."""
    link = json.loads(a.text("dut.iplink.before.json"))[0]["xdp"]
    return dict(link["prog"])


def scaled(value: float | None, by: float) -> float | None:
    return None if value is None else value * by


def in_window(key: str) -> Callable[[Attempt], Any]:
    return lambda a: a.window[key]


def applied(*keys: str) -> Callable[[Attempt], Any]:
    def value(a: Attempt) -> Any:
        found: Any = a.applied
        for key in keys:
            found = found[key]
        return found

    return value


def sockets(a: Attempt) -> str | None:
    names = ("bind", "need_wakeup", "busy_poll_us", "busy_poll_missing")
    return json.dumps({name: a.ready[name] for name in names}) if a.ready.get("bind") else None


def cores(kind: str) -> Callable[[Attempt], float | None]:
    return lambda a: sum(share[kind] for share in a.shares().values()) if a.shares() else None


def perf_event(name: str) -> Callable[[Attempt], float | None]:
    def value(a: Attempt) -> float | None:
        counted = [json.loads(line) for line in a.text("dut.perf.out").splitlines() if line.startswith("{")]
        # perf of 6.12 (Debian 13) writes the PMU behind the name: `context-switches [software]`.
        values = [line["counter-value"] for line in counted if line["event"].split(" [")[0] == name]
        return (
            None
            if not values or any(not re.fullmatch(r"[\d.]+", value) for value in values)
            else sum(map(float, values))
        )

    return value


def perf_packets(a: Attempt) -> int | None:
    if not a.text("dut.perf.out"):
        return None
    return sum(a.sockets("rx", "perf")) if a.point["mode"] == "af_xdp" else a.link("rx", "counters_perf")


def pauses(a: Attempt) -> float | None:
    return None if a.point["rate_requested_pps"] is not None else a.window["tx_paused_ns"] / 1e6


def cpus_at_work(a: Attempt) -> int | None:
    """CPUs at least half as busy as the busiest of those that may do the DUT's work."""
    shares = a.shares() or a.around()
    busy = [share["busy"] for cpu, share in shares.items() if int(cpu[3:]) in a.applied["cpus"]["working"]]
    return sum(share >= max(busy) / 2 for share in busy) if busy and max(busy) >= 0.05 else None


def others(a: Attempt) -> float | None:
    """CPUs' worth that senders and application miss of the senders' CPUs, which they never leave at maximum load."""
    if a.point["rate_requested_pps"] is not None or a.point["arrangement"] != "shared":
        return None
    spent = [(a.applied.get(f"dut_{when}") or {}).get("cpu_ns") for when in ("before", "after")]
    application = 0 if None in spent else (spent[1] - spent[0]) / 1e9 / a.window["duration_s"]
    other = len(a.ready["cpus"]) - a.window["tx_busy_cores"] - application
    softirq = cores("softirq")(a) or 0.0
    return 0.0 if abs(other - softirq) <= 0.01 + 0.04 / a.window["duration_s"] else max(0.0, other)


def per_frame(way: str) -> Callable[[Attempt], float | None]:
    """Mean bytes, by the link, of the frames that the verdict's counter counted too."""

    def value(a: Attempt) -> float | None:
        if a.point["mode"] == "af_xdp" or not a.link(way):
            return None
        counted = dut_rx(a) if way == "rx" else dut_tx(a)
        return None if abs(a.link(way) - counted) > counted / 100 else a.link(way, of="bytes") / a.link(way)

    return value


# Tolerances are relative: exact except for rounding, or one bucket of a histogram.
EXACT, BUCKET = 1e-9, 1 / 100

COLUMNS: dict[str, tuple[Callable[[Attempt], Any], float]] = {
    "block": (applied("block"), EXACT),
    "order": (applied("order"), EXACT),
    "repetition": (applied("repetition"), EXACT),
    "kernel": (applied("kernel"), EXACT),
    "mode_obtained": (applied("deployment", "mode_obtained"), EXACT),
    "queues_reached": (lambda a: sum(count > 0 for count in json.loads(by_queue(a) or "[]")) or None, EXACT),
    "frame_mean_bytes": (lambda a: mean_size(a, "tx_by_size"), EXACT),
    "tx_by_size": (lambda a: by_size(a, "tx_by_size"), EXACT),
    "rx_by_size": (lambda a: by_size(a, "rx_by_size"), EXACT),
    "window_requested_s": (lambda a: a.plan["trial"]["window_s"], EXACT),
    "window_s": (in_window("duration_s"), EXACT),
    "warmup_s": (lambda a: sum(line["duration_s"] for line in a.burst("warmup")), EXACT),
    "tx_packets": (lambda a: a.link("tx", host="tg"), EXACT),
    "rx_packets": (lambda a: a.window["rx_packets"], EXACT),
    "drained_packets": (lambda a: a.window["rx_packets"] - a.window["rx_window_packets"], EXACT),
    "dut_cpus": (cpus_at_work, EXACT),
    "dut_rx_packets": (dut_rx, EXACT),
    "dut_tx_packets": (dut_tx, EXACT),
    "lost_packets": (lost, EXACT),
    "loss_ratio": (lambda a: both(lost(a), a.window["tx_packets"], operator.truediv), EXACT),
    "duplicate_packets": (in_window("duplicates"), EXACT),
    "reordered_packets": (in_window("reordered"), EXACT),
    "foreign_packets": (in_window("foreign_packets"), EXACT),
    "offered_pps": (lambda a: a.window["tx_packets"] / a.window["duration_s"], EXACT),
    "rate_change": (lambda a: rate_change(a)[0], 1e-6),
    "rate_change_kind": (lambda a: rate_change(a)[1], EXACT),
    "tx_errors": (in_window("tx_errors"), EXACT),
    "tx_late_packets": (in_window("tx_late_packets"), EXACT),
    "tx_pause_ms": (lambda a: scaled(a.window["tx_pause_max_ns"] or a.window["tx_late_max_ns"], 1e-6), EXACT),
    "tx_paused_ms": (pauses, EXACT),
    "tx_busy_cores": (in_window("tx_busy_cores"), EXACT),
    "forwarded_pps": (forwarded, EXACT),
    "forwarded_window_s": (counted_s, EXACT),
    "forwarded_l2_bps": (lambda a: forwarded(a) * mean_size(a, "rx_by_size") * 8, EXACT),
    "slices_ratio": (sliced_ratio, EXACT),
    "slices_total_ratio": (sliced_total, EXACT),
    "slices_pairs": (lambda a: len(slices(a)) or None, EXACT),
    "waited_s": (lambda a: a.applied.get("waited_s"), EXACT),
    "testrun_raw_ns": (lambda a: min(testruns(a), default=None), EXACT),
    "testrun_all_ns": (lambda a: json.dumps(testruns(a)) if testruns(a) else None, EXACT),
    "program_run_raw_ns": (runstats, EXACT),
    "program_run_ns": (lambda a: both(runstats(a), stats_cost(a), operator.sub), EXACT),
    "stats_cost_ns": (stats_cost, EXACT),
    "sender_ns": (lambda a: alone(a, "sender"), 1e-3),
    "harness_ns": (lambda a: alone(a, "receiver"), 1e-3),
    "latency_min_ns": (edge("min", headline), EXACT),
    "latency_mean_ns": (mean_latency, EXACT),
    "latency_p50_ns": (of_headline(0.50), BUCKET),
    "latency_p90_ns": (of_headline(0.90), BUCKET),
    "latency_p99_ns": (of_headline(0.99), BUCKET),
    "latency_p999_ns": (of_headline(0.999), BUCKET),
    "latency_max_ns": (edge("max", headline), EXACT),
    "latency_samples": (lambda a: (a.histogram("from_sent") or {"count": 0})["count"], EXACT),
    "latency_sent_p50_ns": (percentile(0.50, "from_sent"), BUCKET),
    "latency_sent_p90_ns": (percentile(0.90, "from_sent"), BUCKET),
    "latency_sent_p99_ns": (percentile(0.99, "from_sent"), BUCKET),
    "latency_sent_p999_ns": (percentile(0.999, "from_sent"), BUCKET),
    "latency_sent_max_ns": (edge("max", lambda a: "from_sent"), EXACT),
    "late_p50_ns": (percentile(0.50, "lateness"), BUCKET),
    "late_p99_ns": (percentile(0.99, "lateness"), BUCKET),
    "late_p999_ns": (percentile(0.999, "lateness"), BUCKET),
    "late_max_ns": (edge("max", lambda a: "lateness"), EXACT),
    "rx_by_queue": (by_queue, EXACT),
    "evenness": (evenness, EXACT),
    "other_busy_cores": (others, 1e-6),
    "dut_rx_mean_bytes": (per_frame("rx"), EXACT),
    "dut_tx_mean_bytes": (per_frame("tx"), EXACT),
    "tg_port_tx_packets": (lambda a: a.link("tx", host="tg"), EXACT),
    "host_busy_cores": (cores("busy"), EXACT),
    "host_softirq_cores": (cores("softirq"), EXACT),
    "host_steal_cores": (cores("steal"), EXACT),
    "host_context_switches": (perf_event("context-switches"), EXACT),
    "host_cycles": (perf_event("cycles"), EXACT),
    "perf_packets": (perf_packets, EXACT),
    "cycles_per_ns": (lambda a: statistics.fmean(clocks(a)) if clocks(a) else None, 1e-3),
    "clock_change": (lambda a: clocks(a)[1] / clocks(a)[0] - 1 if clocks(a) else None, 1e-6),
    "load_ms": (said("loaded", "load_ns", 1e6), EXACT),
    "attach_ms": (said("attached", "attach_ns", 1e6), EXACT),
    "program_insns": (said("loaded", "xlated_insns"), EXACT),
    "verified_insns": (said("loaded", "verified_insns"), EXACT),
    "jited_bytes": (said("loaded", "jited_bytes"), EXACT),
    "program_tag": (lambda a: program_of_link(a)["tag"], EXACT),
    "access_loads": (lambda a: a.applied.get("work", {}).get("loads"), EXACT),
    "access_stores": (lambda a: a.applied.get("work", {}).get("stores"), EXACT),
    "access_bytes": (lambda a: a.applied.get("work", {}).get("bytes"), EXACT),
    "clocksource": (applied("tg_machine", "clocksource"), EXACT),
    "rt_runtime_us": (applied("tg_machine", "rt_runtime_us"), EXACT),
    "sched_policy": (lambda a: a.ready["sched_policy"], EXACT),
    "batch": (lambda a: str(a.ready["batch"]), EXACT),
    "tx_socket": (sockets, EXACT),
    "tx_restored": (lambda a: a.burst("rate")[0].get("tx_restored"), EXACT),
    "tx_unrestored_packets": (lambda a: a.burst("rate")[0].get("tx_unrestored_packets"), EXACT),
    "tx_stamped_packets": (lambda a: a.burst("rate")[0].get("tx_stamped"), EXACT),
    "tx_unstamped_packets": (lambda a: a.burst("rate")[0].get("tx_unstamped"), EXACT),
    "unmatched_packets": (lambda a: a.burst("rate")[0].get("unmatched_stamps"), EXACT),
    "rx_unstamped_packets": (lambda a: a.burst("rate")[0].get("rx_unstamped"), EXACT),
}


def absent(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def agrees(mine: Any, table: Any, tolerance: float) -> bool:
    if absent(mine) or absent(table):
        return absent(mine) and absent(table)
    if isinstance(mine, int | float) and isinstance(table, int | float):
        return math.isclose(mine, table, rel_tol=tolerance, abs_tol=tolerance)
    return str(mine) == str(table)


def came_back(a: Attempt) -> bool:
    """Behind the DUT's count of a closed loop a backlog may lose frames: then the rate is not what a packet takes."""
    return not (a.shared and a.returns) or a.window["rx_packets"] >= 0.99 * dut_rx(a)


def ns_per_packet(a: Attempt, row: Row) -> float | None:
    cpus = cpus_at_work(a)
    # At a paced load a shared CPU idles; but a DUT that lost frames was busy.
    held = row["limited_by"] == "dut" or (row["limited_by"] == "shared_cpu" and a.point["rate_requested_pps"] is None)
    return None if cpus is None or not held or not came_back(a) else 1e9 * (cpus - (others(a) or 0.0)) / forwarded(a)


def place(a: Attempt) -> tuple[Any, ...]:
    factors = [f"{name} {value}" for name, value in a.point.items() if name not in ("accesses", "point_id")]
    return (*factors, a.applied["block"], a.applied["repetition"])


def cpus_of_lines(timed: list[Attempt]) -> dict[tuple[Any, ...], int | None]:
    """How many CPUs a line over N is of: those of N = 0, or without it of most of its points, the first of them."""
    lines: dict[tuple[Any, ...], list[Attempt]] = {}
    for a in sorted(timed, key=lambda a: a.point["accesses"]):
        lines.setdefault(place(a), []).append(a)
    counts = {at: [cpus_at_work(a) for a in line] for at, line in lines.items()}
    return {
        at: cpus[0] if not lines[at][0].point["accesses"] else max(cpus, key=cpus.count) for at, cpus in counts.items()
    }


def to_baseline(of: Callable[[Attempt], float | None]) -> Callable[[list[Attempt]], list[float | None]]:
    """Each trial's difference to the trial without accesses that differs from it in nothing else."""

    def values(attempts: list[Attempt]) -> list[float | None]:
        base = {place(a): of(a) for a in attempts if a.point["accesses"] == 0}
        return [None if not a.point["accesses"] else both(of(a), base.get(place(a)), operator.sub) for a in attempts]

    return values


def cost(a: Attempt) -> float | None:
    """ns of CPU per packet; at a paced load a shared CPU idles, so its rate is not a cost."""
    cpus = cpus_at_work(a)
    paced = a.point["rate_requested_pps"] is not None
    return None if cpus is None or paced or not came_back(a) else 1e9 * (cpus - (others(a) or 0.0)) / forwarded(a)


ACROSS: dict[str, Callable[[list[Attempt]], list[float | None]]] = {
    "access_ns": to_baseline(cost),
    "testrun_ns": to_baseline(lambda a: min(testruns(a), default=None)),
}


def attempts_of(run: Path) -> list[tuple[Attempt, Row]]:
    plan = yaml.safe_load((run / "plan.yaml").read_text())
    table = pd.read_parquet(run / "trials.parquet").to_dict("records")
    rows: Rows = [
        {str(key): value for key, value in row.items()} for row in table if row["verdict"] in ("valid", "invalid")
    ]
    return [(Attempt(run / "raw" / row["trial_id"] / str(row["attempt"]), plan), row) for row in rows]


def differences(run: Path) -> dict[str, list[str]]:
    """For each recomputed column, the attempts whose value in the table differs."""
    pairs = [(a, row) for a, row in attempts_of(run) if unknown(a.point) is None]
    if not pairs:
        return {}
    attempts, rows = [a for a, _ in pairs], [row for _, row in pairs]
    mine = {column: ([value(a) for a in attempts], tolerance) for column, (value, tolerance) in COLUMNS.items()}
    mine |= {column: (values(attempts), EXACT) for column, values in ACROSS.items()}
    times = [ns_per_packet(a, row) for a, row in pairs]
    lines = cpus_of_lines([a for a, time in zip(attempts, times, strict=True) if time is not None])
    on_line = [lines.get(place(a)) == cpus_at_work(a) for a in attempts]
    # a difference of CPUs is none of the accesses
    apart = [bool(cpus) for cpus in to_baseline(cpus_at_work)(attempts)]
    mine["ns_per_packet"] = [time if alike else None for time, alike in zip(times, on_line, strict=True)], EXACT
    costs, tolerance = mine["access_ns"]
    mine["access_ns"] = [None if differ else cost for cost, differ in zip(costs, apart, strict=True)], tolerance
    return {
        column: [
            f"{a.folder}: {column} recomputed {value}, in the table {row[column]}"
            for a, row, value in zip(attempts, rows, values, strict=True)
            if not agrees(value, row[column], tolerance)
        ]
        for column, (values, tolerance) in mine.items()
    }


def main(run: Path) -> int:
    found = differences(run)
    for column, bad in found.items():
        sys.stdout.write(f"{column:22} " + (f"{len(bad)} differ, first {bad[0]}\n" if bad else "agrees\n"))
    left = Counter(why for a, _ in attempts_of(run) if (why := unknown(a.point)))
    for why, count in left.items():
        sys.stdout.write(f"not recomputed: {count} trials, {why}\n")
    return 1 if any(found.values()) else 2 if left else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
