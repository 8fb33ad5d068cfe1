"""What was published of a JIT for Elbrus, and where a run's table has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pandas as pd

from xdplab.studies.jit import joined
from xdplab.studies.jit.joined import SPEED_UP
from xdplab.studies.jit.points import INTERPRETER, JIT, TCP, TEST_BPF, TRAFFIC
from xdplab.studies.published import Experiment, Ours, ratio

_ELBRUS = "Elbrus"
Finder = Callable[[pd.DataFrame], Iterator[Ours]]
_WHY = "another architecture, and instructions instead of time: its interpreter needs more of both"


def _mean(table: pd.DataFrame) -> Iterator[Ours]:
    costs = joined.of_first_suite(joined.tests(table))
    chosen = costs[costs["classic"].fillna(False).astype(bool)].dropna(subset=[SPEED_UP])
    for label, group in chosen.groupby("label", sort=False):
        ratios = group[SPEED_UP].astype(float)
        yield Ours(
            str(label), float(ratios.mean()), f"× {ratios.mean():.3g} (arithmetic mean of {len(ratios)} classic tests)"
        )


def _test(number: int) -> Finder:
    def find(table: pd.DataFrame) -> Iterator[Ours]:
        costs = joined.of_first_suite(joined.tests(table))
        for row in costs[costs["number"].eq(number)].to_dict("records"):
            if pd.notna(row[SPEED_UP]):
                yield ratio(row["label"], float(row[INTERPRETER]), float(row[JIT]), str(row["unit"]))

    return find


def _passed(table: pd.DataFrame) -> Iterator[Ours]:
    rows = joined.of_first_suite(joined.part(table, TEST_BPF))
    each = rows.groupby(["label", "mode", "number"], sort=False)["passed"].min().reset_index()  # in every repetition
    for (label, mode), group in each.groupby(["label", "mode"], sort=False):
        passed = int(group["passed"].sum())
        yield Ours(f"{label}, {mode}", passed / len(group), f"{passed} of {len(group)} pass")


def _filter(part: str, value: str) -> Finder:
    """Find, for the costliest filter of a part, the interpreter's by the JIT's; ``value``: cost, or its share."""

    def find(table: pd.DataFrame) -> Iterator[Ours]:
        keys = ["subject", "name", "number"]
        rows = joined.part(table, part)
        cost, share = joined.side_by_side(rows, keys), joined.shares(rows, keys)
        costs = cost.assign(share=share[INTERPRETER]).dropna(subset=[SPEED_UP, "share"])
        for label, group in costs.groupby("label", sort=False):
            best = group.sort_values("share").iloc[-1]
            note = f" ({best['subject']}, {best['name']}, {best['number']} bytes)"
            percent = 100 * float(best["share"])
            if value == "share":
                yield Ours(str(label), percent, f"{percent:.2g} %{note}")
            else:
                yield ratio(label, float(best[INTERPRETER]), float(best[JIT]), str(best["unit"]), note)

    return find


_TESTS = {
    0: ("TAX", "1,115 and 127 ns, × 8.8", 8.78),
    1: ("TXA", "363 and 40 ns, × 9.1", 9.08),
    2: ("ADD_SUB_MUL_K", "473 and 50 ns, × 9.5", 9.46),
    3: ("DIV_MOD_KX", "1,094 and 160 ns, × 6.8", 6.84),
}
"""By number: name, the first of the published times of each mode, and their ratio."""

EXPERIMENTS = (
    Experiment(_ELBRUS, "–", "test_bpf: tests that pass", "not said", 1.0, _passed, "tests failed"),
    Experiment(_ELBRUS, "mean", "test_bpf, classic: interpreter by JIT", "× 10.4; 8SV: × 10.3", 10.4, _mean, _WHY),
    *(
        Experiment(_ELBRUS, "log", f"test {number}, {name}: interpreter by JIT", times, value, _test(number), _WHY)
        for number, (name, times, value) in _TESTS.items()
    ),
    Experiment(
        _ELBRUS, "netperf", "a filter's share of all work, interpreted: UDP", "6 % of netperf's CPU time", 6.0,
        _filter(TRAFFIC, "share"), "netperf's test and its filter are not published",
    ),
    Experiment(
        _ELBRUS, "netperf", "… compiled, that filter: interpreter by JIT", "× 5.5", 5.5, _filter(TRAFFIC, "cost"), _WHY,
    ),
    Experiment(
        _ELBRUS, "netperf", "a filter's share of all work, interpreted: TCP", "6 % of netperf's CPU time", 6.0,
        _filter(TCP, "share"), "netperf's test and its filter are not published",
    ),
    Experiment(
        _ELBRUS, "netperf", "… compiled, that filter: interpreter by JIT, TCP", "× 5.5", 5.5, _filter(TCP, "cost"),
        _WHY,
    ),
)  # fmt: skip
