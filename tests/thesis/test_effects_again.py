"""What findings change in the published figures, counted a second time from the raw logs, in plain Python.

Nothing of the product reads, judges or draws here: only its list of the figures says what each of them shows. Which
trials a finding concerns, their values without the fault, the marks and their changes are this file's own.
"""

from __future__ import annotations

import csv
import re
import tarfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import resources
from itertools import pairwise
from statistics import fmean, median

import pandas as pd
import pytest
from tests.thesis.thesis_logs import DATA, needs_data

from xdplab.thesis.effects import Album, by_rule
from xdplab.thesis.findings import find_import
from xdplab.thesis.rules import corrected

Key = tuple[str, int, int, int, int]
"""Mode, repetition, queues, accesses, frame bytes."""
Numbers = dict[Key, float]
NAME = re.compile(r"combined_(\d+)[+.]algoritmo_for_0_a_(\d+)[+.]pkt_(\d+)[+.]ebpf_(xdpgeneric|xdpdrv)")
FOLDER = re.compile(r"resultados(_af_xdp)?(\d+)/(gerador|sar|perf)/")
EVENTS = {
    "instructions": "instructions",
    "branches": "branches",
    "l1_loads": "L1-dcache-loads",
    "l1_load_misses": "L1-dcache-load-misses",
}


@dataclass
class Logs:
    """What the logs say of each trial: printed values, and those over the seconds that both hosts saw."""

    rate: Numbers = field(default_factory=dict)
    softirq: dict[Key, list[float]] = field(default_factory=dict)
    counts: dict[Key, dict[str, float]] = field(default_factory=dict)
    steady: dict[Key, list[float]] = field(default_factory=dict)
    dut: Numbers = field(default_factory=dict)
    tg: Numbers = field(default_factory=dict)
    latency: Numbers = field(default_factory=dict)


@pytest.fixture(scope="module")
def logs() -> Logs:
    found: dict[str, dict[Key, str]] = {"gerador": {}, "sar": {}, "perf": {}}
    for path, text in texts():
        place, name = FOLDER.search(path), NAME.search(path)
        if place and name and path.endswith(".txt"):
            hook = {"xdpgeneric": "generic", "xdpdrv": "native"}[name[4]]
            key = ("af_xdp" if place[1] else hook, int(place[2]), int(name[1]), int(name[2]), int(name[3]))
            found[place[3]].setdefault(key, text)
    made = Logs()
    received = {key: rows for key, text in found["gerador"].items() if (rows := receiver(text))}
    for key, rows in received.items():
        made.rate[key] = rows[-1][6]
        if len(rows[-1]) == 10:
            made.latency[key] = rows[-1][7] if rows[-1][4] else 0.0
    for key, text in found["perf"].items():
        made.counts[key] = perf(text)
    for key, text in found["sar"].items():
        read_sar(made, key, text, received.get(key))
    return made


def texts() -> Iterator[tuple[str, str]]:
    for archive in sorted(DATA.glob("thesis-*.tar.xz")):
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.isfile() and (stream := tar.extractfile(member)):
                    yield member.name, stream.read().decode()


def receiver(text: str) -> list[list[float]]:
    """The rows of core 2 in the last run of the file."""
    run = text[text.rindex("Time") :].splitlines()[1:]
    rows = [[float(word) for word in line.split(",")] for line in run if line.strip()]
    return [row for row in rows if row[-2] == 2]


def perf(text: str) -> dict[str, float]:
    lines = [line.split() for line in text.splitlines()]
    counted = [words for words in lines if len(words) > 1 and re.fullmatch(r"[\d.]+", words[0])]
    return {words[1]: float(words[0].replace(".", "")) for words in counted if words[1] in EVENTS.values()}


def clock(text: str) -> int:
    hours, minutes, seconds = map(int, text.split(":"))
    return 3600 * hours + 60 * minutes + seconds


def read_sar(made: Logs, key: Key, text: str, received: list[list[float]] | None) -> None:
    """The last sample's softirq; its mean, and both hosts' rates, over the samples that lie wholly in the traffic."""
    softirq: dict[str, list[float]] = defaultdict(list)
    rates: dict[str, dict[str, tuple[float, float]]] = defaultdict(dict)
    begin, kind = "", ""
    for line in text.splitlines():
        words = line.replace(",", ".").split()
        if len(words) > 9 and words[1] in ("CPU", "IFACE"):
            kind, begin = words[1] if words[0] != "Average:" else "", begin or words[0]
        elif kind == "CPU" and len(words) == 12 and words[1] != "all":
            softirq[words[0]].append(float(words[8]))
        elif kind == "IFACE" and len(words) == 10:
            rates[words[1]][words[0]] = (float(words[2]), float(words[3]))
    made.softirq[key] = list(softirq.values())[-1][:8]
    busiest = max(rates, key=lambda name: sum(map(sum, rates[name].values())))
    times, own = list(rates[busiest]), list(rates[busiest].values())
    loud = [at for at, (rx, _) in enumerate(own) if rx > max(100.0, 0.05 * max(rx for rx, _ in own))]
    if len(loud) < 3:
        return
    first, end = loud[0], loud[-1] + (loud[-1] == len(own) - 1)
    inside = range(first + 1, end)
    made.steady[key] = [fmean(softirq[times[at]][cpu] for at in inside) for cpu in range(8)]
    made.dut[key] = fmean(own[at][1] for at in inside)
    if received:
        # The first loud sample holds a part of the traffic: its share of the next one's rate is its seconds.
        quiet = 2.0 * (1 - min(1.0, own[first][0] / own[first + 1][0]))
        start = clock(times[first]) - 2.0 + quiet
        ends = (clock(times[first + 1]) - 2.0 - start, clock(times[end - 1]) - start)
        points = [(0.0, 0.0), *((row[0], row[4]) for row in received)]
        made.tg[key] = (between(points, ends[1]) - between(points, ends[0])) / (ends[1] - ends[0])


def between(points: list[tuple[float, float]], x: float) -> float:
    for (x0, y0), (x1, y1) in pairwise(points):
        if x0 <= x <= x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return points[-1][1]


Figure = dict[str, str]
Cells = dict[Key, list[float]]
"""By trial: one value, or one for each CPU."""


def figures() -> list[Figure]:
    return list(csv.DictReader((resources.files("xdplab.thesis") / "published.csv").read_text().splitlines()))


def drawn(figure: Figure, logs: Logs) -> Cells:
    family = figure["family"]
    if family == "softirq":
        return dict(logs.softirq)
    if family == "throughput":
        return {key: [rate * key[4] * 8] for key, rate in logs.rate.items()}
    if family == "latency":
        return {key: [seconds] for key, seconds in logs.latency.items()}
    return {key: [own[EVENTS[family]]] for key, own in logs.counts.items() if EVENTS[family] in own}


def marks(figure: Figure, cells: Cells) -> dict[tuple[object, ...], float]:
    places: dict[tuple[object, ...], list[float]] = defaultdict(list)
    sizes = [int(size) for size in figure["frame_bytes"].split("|") if size]
    for key, values in cells.items():
        mode, repetition, queues, accesses, size = key
        best = 1 if mode == "af_xdp" else 8
        wanted = figure["af_xdp_repetition" if mode == "af_xdp" else "xdp_repetition"]
        fixed = {"mode": mode, "queues": str(queues), "accesses": str(accesses)}
        if figure["queues"] == "best":
            fixed["queues"] = "best" if queues == best else ""
        held = all(figure[name] in ("", value) for name, value in fixed.items()) and wanted == str(repetition)
        if held and (not sizes or size in sizes):
            levels: dict[str, object] = {"mode": mode, "queues": queues, "accesses": accesses, "frame_bytes": size}
            for cpu, value in enumerate(values):
                place = tuple(levels.get(figure[axis], cpu) for axis in ("panel", "hue", "x"))
                if figure["family"] != "latency" or value >= 0:
                    places[place].append(value)
    means = {place: fmean(values) for place, values in places.items()}
    return {place: mean for place, mean in means.items() if mean or figure["kind"] == "line"}


def changed(logs: Logs, family: Callable[[str], bool], without: dict[Key, list[float] | None]) -> dict[str, int]:
    """How many marks of each figure of some families change if trials have other values, or none."""
    found = {}
    for figure in figures():
        if not family(figure["family"]):
            continue
        cells = drawn(figure, logs)
        other = {key: value for key, own in cells.items() if (value := without.get(key, own)) is not None}
        before, after = marks(figure, cells), marks(figure, other)
        span = max(before.values(), default=0.0) or 1.0
        moved = [
            place
            for place in before | after
            if (place in before) != (place in after) or abs(before[place] - after[place]) > 1e-4 * span
        ]
        if moved:
            found[figure["file"]] = len(moved)
    return found


@pytest.fixture(scope="module")
def audited(published: pd.DataFrame) -> dict[str, dict[str, int]]:
    found = by_rule(Album(published), find_import(published, corrected(published)))
    return {rule: changes.marks for rule, changes in found.items()}


def wire(key: Key, rate: float) -> list[float] | None:
    return [rate * key[4] * 8]


@pytest.mark.nightly
@needs_data
def test_the_counts_of_changed_marks_are_those_of_the_raw_logs(logs: Logs, audited: dict[str, dict[str, int]]) -> None:
    both = {key for key, rate in logs.tg.items() if rate > 0 and logs.dut[key] > 0}
    ratio = median(logs.tg[k] / logs.dut[k] for k in both if abs(logs.tg[k] - logs.dut[k]) <= 0.01 * logs.dut[k])
    far = {k for k in both if abs(logs.tg[k] - logs.dut[k]) > 0.05 * max(logs.tg[k], logs.dut[k])}
    deaf = {key for key, rate in logs.rate.items() if rate == 0 and logs.dut.get(key, 0) > 0}
    apart = {
        key: steady
        for key, steady in logs.steady.items()
        if max(abs(a - b) for a, b in zip(logs.softirq[key], steady, strict=True)) > 5
    }
    rates: Callable[[str], bool] = "throughput".__eq__
    again = {
        "perf of the wrong target": changed(logs, EVENTS.__contains__, dict.fromkeys(logs.counts)),
        "last sample for a run": changed(logs, "softirq".__eq__, dict(apart)),
        "clocks": changed(logs, rates, {key: wire(key, rate / ratio) for key, rate in logs.rate.items()}),
        "counts disagree": changed(logs, rates, {key: wire(key, max(logs.tg[key], logs.dut[key])) for key in far}),
        "deaf generator": changed(logs, rates, {key: wire(key, logs.dut[key]) for key in deaf})
        | changed(logs, "latency".__eq__, dict.fromkeys(deaf)),
    }
    for rule, figures_changed in again.items():
        assert figures_changed == audited[rule], rule
    assert len(again["perf of the wrong target"]) == 33
