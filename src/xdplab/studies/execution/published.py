"""What was published on executing BPF, modules and user space, and where a run's table has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pandas as pd

from xdplab.studies.execution.summaries import is_warm, medians
from xdplab.studies.published import Experiment, Ours, ratio

_UNITS = {"time": "ns", "instructions": "instructions"}
_MODULES, _PRIMES = "modules", "primes"
Finder = Callable[[pd.DataFrame], Iterator[Ours]]


def _of(upper: tuple[str, str], lower: tuple[str, str]) -> Finder:
    """Find the ratio of two (benchmark, backend) at each place that has both."""

    def find(table: pd.DataFrame) -> Iterator[Ours]:
        warm = table[is_warm(table) & table["benchmark"].isin([upper[0], lower[0]])]
        rows = medians(warm) if len(warm) else warm
        for label, group in rows.groupby("label", sort=False) if len(rows) else ():
            costs = group.dropna(subset=["value"]).set_index(["benchmark", "backend"])["value"]
            if upper in costs.index and lower in costs.index:
                unit = _UNITS[str(group["clock"].iloc[0])]
                yield ratio(label, float(costs[upper]), float(costs[lower]), unit)

    return find


def _backends(benchmark: str, upper: str, lower: str) -> Finder:
    return _of((benchmark, upper), (benchmark, lower))


def _asleep(benchmark: str, backend: str) -> Finder:
    """Find how many times as long a call takes after each pause as back to back, at each place that measured both."""

    def find(table: pd.DataFrame) -> Iterator[Ours]:
        mine = table["benchmark"].eq(benchmark) & table["backend"].eq(backend) & table["clock"].eq("time")
        mine &= ~table["cold"].astype(bool)
        rows = medians(table[mine]) if mine.any() else table[mine]
        for label, group in rows.groupby("label", sort=False) if len(rows) else ():
            costs = group.dropna(subset=["value"]).set_index("pause_us")["value"].sort_index()
            for pause_us in (pause for pause in costs.index if pause and 0 in costs.index):
                place = f"{label}, after {pause_us:,} µs asleep"
                yield ratio(place, float(costs[pause_us]), float(costs[0]), "ns")

    return find


_SOURCE_OF_RANDOM = "matrix, kernel's random"
EXPERIMENTS = (
    Experiment(
        _MODULES, "5", "one clock read: JIT by module", "60 and 60 ns, × 1", 1.0, _backends("empty", "jit", "module"),
        "the clock is all of it",
    ),
    Experiment(
        _MODULES, "5", "one clock read: interpreter by module", "× 2.7", 2.7,
        _backends("empty", "interpreter", "module"),
        "most of either is the clock itself, which costs another share elsewhere",
    ),
    Experiment(
        _MODULES, "6", "a loop that adds up clocks: interpreter by JIT", "8,625 and 7,630 ns, × 1.13", 1.13,
        _backends("clock sum", "interpreter", "jit"),
        "published in time, where reading a guest's clock took most of each step; counts weigh instructions alike",
    ),
    Experiment(
        _MODULES, "7", "a loop that adds up clocks: JIT by module", "no considerable difference", 1.0,
        _backends("clock sum", "jit", "module"), "the helper's call is part of each step",
    ),
    Experiment(
        _MODULES, "8", "dereferences, get_random_bytes() in the module: module by JIT", "1.2 ms and below 0.2 ms, × 6",
        6.0, _of(("matrix, get_random_bytes", "module"), (_SOURCE_OF_RANDOM, "jit")),
        "the cipher costs another share on other CPUs and kernels: it is not the dereference that is compared",
    ),
    Experiment(
        _MODULES, "10", "dereferences, get_random_u32() in the module: module by JIT", "× 1.4", 1.4,
        _of((_SOURCE_OF_RANDOM, "module"), (_SOURCE_OF_RANDOM, "jit")),
        "get_random_u32() is fed by a cipher, bpf_get_prandom_u32() is a shift register: still not the same work",
    ),
    Experiment(
        _MODULES, "–", "dereferences with the same source of random numbers: JIT by module", "not measured", None,
        _backends("matrix", "jit", "module"), "with equal work the module is not slower: the source was the cause",
    ),
    Experiment(
        _MODULES, "11", "chain of 32: interpreter by JIT", "25,000 and 3,200 ns, × 7.8", 7.8,
        _backends("chain 32", "interpreter", "jit"), "counts weigh all instructions alike",
    ),
    Experiment(
        _MODULES, "12", "chain of 32: JIT by module", "3,200 and 3,125 ns, × 1.024", 1.024,
        _backends("chain 32", "jit", "module"),
        "published links took 100 ns each, after a sleep; back to back a tail call costs about two of recursion",
    ),
    Experiment(
        _PRIMES, "table 1", "primes up to 100: JIT by user space", "14,879 and 984 ns, × 15.1", 15.12,
        _backends("primes", "jit", "user"),
        "both do the same work here; the rows below and the table `causes` have what each cause makes",
    ),
    Experiment(
        _PRIMES, "table 1", "… as published, user space by clang", "× 15.1", 15.12,
        _of(("primes, as published", "jit"), ("primes, as published, clang", "user")),
        "clang tests the width and divides 32 bits wide, which only CPUs with slow 64-bit divisions reward",
    ),
    Experiment(
        _PRIMES, "–", "a cause: 64-bit by 32-bit divisions, JIT", "not measured", None,
        _of(("primes", "jit"), ("primes, 32 bits", "jit")), "of the CPU's divider",
    ),
    Experiment(
        _PRIMES, "–", "a cause: the test of a division's width, user space by clang by gcc", "not measured", None,
        _of(("primes, clang", "user"), ("primes", "user")), "of the compiler",
    ),
    Experiment(
        _PRIMES, "–", "a cause: interpreter by JIT, if the JIT had been off", "JIT said to be on", None,
        _backends("primes", "interpreter", "jit"), "of the mode",
    ),
    Experiment(
        _PRIMES, "–", "a cause: the published form, asleep before each call by back to back, JIT", "not measured", None,
        _asleep("primes, as published", "jit"), "of an idle CPU, and of caches that others used",
    ),
    Experiment(
        _MODULES, "–", "a cause: chain of 32, asleep before each call by back to back, JIT", "not measured", None,
        _asleep("chain 32", "jit"), "of an idle CPU, and of caches that others used",
    ),
    Experiment(
        _MODULES, "–", "a cause: chain of 32, asleep before each call by back to back, module", "not measured", None,
        _asleep("chain 32", "module"), "of an idle CPU, and of caches that others used",
    ),
)  # fmt: skip
