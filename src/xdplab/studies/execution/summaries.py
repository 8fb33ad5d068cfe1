"""What is made of the study's rows: the tables (medians and ratios, primes, causes, kernels, chains, the trap),
and the sentences of its result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import isnan
from typing import Any

import numpy as np
import pandas as pd

from xdplab.analysis.intervals import Spread
from xdplab.analysis.sentences import estimate, span
from xdplab.labs.base import ARCHITECTURE_MARK
from xdplab.studies.execution.benchmarks import all_benchmarks
from xdplab.studies.execution.points import BACKENDS, REFERENCE, state_words
from xdplab.studies.meaning import Make, Meaning, by_place, names_of, ranging
from xdplab.text import natural

DROPPED = 5
"""First calls of a warm trial, which are ignored: caches and branch predictors warm up."""

FINE = 20
"""The smallest median in steps of its clock."""

PRIME_CALLS = 15
Row = Mapping[Any, Any]
POINT = ["place", "label", "clock", "benchmark", "cold", "pause_us"]
BACKEND_ORDER = {name: rank for rank, name in enumerate(BACKENDS)}

THEIRS = {
    "where": "published: Core i3-10110U, Ubuntu 22.04, Linux 5.15, JIT on",
    "clock": "time, ns",
    "jit": "14,879.1 ± 1,190.0",
    "user": "984.0 ± 46.2",
    "jit / user": "15.12",
}
"""Takami Torao, "BPF プログラム", table 1: mean and standard deviation of 10 calls, after 5 that were dropped."""


def values(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with ``value``: nanoseconds or instructions of one execution, whichever the place's clock is."""
    return table.assign(value=_looked(table) / table["executions"].astype(float))


def _looked(table: pd.DataFrame) -> pd.Series:
    """Return what the clock said from look to look."""
    return table["elapsed_ns"].fillna(table["instructions"]).astype(float)


def is_warm(table: pd.DataFrame) -> pd.Series:
    """Return which calls follow each other. A guest that counts has no caches: there a pause changes nothing."""
    back_to_back = table["pause_us"].fillna(0).eq(0) | table["clock"].eq("instructions")
    return ~table["cold"].astype(bool) & back_to_back.astype(bool)


def settled(table: pd.DataFrame) -> pd.DataFrame:
    """Leave out the first calls of what is measured warm, where enough remain."""
    calls = table.groupby("trial_id")["call"].transform("size")
    skipped = ~table["cold"].astype(bool) & table["call"].lt(DROPPED) & calls.ge(2 * DROPPED)
    return table[~skipped]


def clock_steps(table: pd.DataFrame) -> dict[str, int]:
    """Return the clock step of each place, by label: user-mode Linux' clock has steps of 256 ns."""
    groups = table.assign(looked=_looked(table)).groupby("label", sort=False)["looked"]
    return {str(label): int(np.gcd.reduce(group.astype("int64").to_numpy())) or 1 for label, group in groups}


def typical(calls: pd.Series, step: float) -> float:
    """Return the median; if the clock's step is not small compared with it, return the mean of the calls around it.

    A median would be a multiple of the step. The phase of the clock is random, so the mean of the undisturbed calls
    (those within two steps of the median) is not.
    """
    median = float(calls.median())
    if step * FINE <= median:
        return median
    near = calls[(calls - median).abs() <= 2 * step]
    return float(near.mean()) if len(near) else median


def medians(table: pd.DataFrame, *, net: bool = False) -> pd.DataFrame:
    """Return one row per point and backend: the geometric mean of its repetitions' `typical` calls, and its ratio.

    Columns: those of `POINT`, ``backend``, ``calls`` (behind one median), ``n`` (repetitions), ``value``, ``low`` and
    ``high`` (95 % t interval of the logarithms, null for one repetition), ``reference``, and ``ratio``, ``ratio_low``,
    ``ratio_high``: geometric mean and interval of the ratios within each repetition. Traps have no ratio, and calls
    that were all shorter than a step of their clock have neither value nor ratio. ``net``: as `_less_clock` has them.
    """
    calls = settled(values(table))
    if calls.empty:
        return pd.DataFrame()
    keys = [*POINT, "backend", "repetition"]
    step = clock_steps(table)
    groups = calls.groupby(keys, sort=False, dropna=False)
    firsts = {name: (name, "first") for name in ("trap", "own", "executions")}
    each = groups.agg(calls=("value", "size"), **firsts)
    each["value"] = [
        typical(group["value"], step[str(group["label"].iloc[0])] / float(group["executions"].iloc[0]))
        for _, group in groups
    ]
    if net:
        each = _less_clock(each, step)
    wide = each["value"].unstack("backend")
    rows = []
    for key, group in each.reset_index().groupby([*POINT, "backend"], sort=False, dropna=False):
        rows.append(_row(dict(zip([*POINT, "backend"], key, strict=True)), group, wide))
    order = pd.DataFrame(rows)
    return order.sort_values(["place", "benchmark", "cold", "pause_us", "backend"], key=_sorted_by).reset_index(
        drop=True
    )


def _less_clock(each: pd.DataFrame, steps: Mapping[str, int]) -> pd.DataFrame:
    """Return values without those of `CLOCK_ALONE` in the same repetition; without one, and of a user's own pair, whose
    clock is not ours, they stay. Null where the rest, with its interval, is not above two steps of the clock (each of
    both is off by one), or a time not above that of the clock, of which a CPU does a part while it works.
    """
    index = each.index.to_frame(index=False)
    alone = index.assign(benchmark=index["benchmark"].str.replace(r"^.*?(?= x\d+$|$)", CLOCK_ALONE, n=1, regex=True))
    clock = each["value"].reindex(pd.MultiIndex.from_frame(alone)).set_axis(each.index)
    rest = each["value"] - clock.mask(each["own"].astype(bool)).fillna(0)
    points = rest.groupby([*POINT, "backend"], sort=False, dropna=False)
    least = points.transform(lambda values: Spread.of(values).low if len(values) > 1 else values.iloc[0])
    floor = 2 * each.index.get_level_values("label").map(steps).astype(float) / each["executions"].astype(float)
    floor = floor.clip(lower=clock.where(each.index.get_level_values("clock") == "time", 0))
    gross = clock.isna() | each["own"].astype(bool)
    return each.assign(value=rest.where(gross | least.gt(floor)), gross=gross)


def rank(benchmark: str) -> tuple[int, int, str]:
    """Return the position of a benchmark among all; a user's own comes last."""
    kind, _, size = str(benchmark).partition(" x")[0].partition(" ")
    kinds = [name.partition(" ")[0] for name in all_benchmarks()]
    return (kinds.index(kind) if kind in kinds else len(kinds), int(size) if size.isdigit() else 0, str(benchmark))


def _sorted_by(column: pd.Series) -> pd.Series:
    if column.name == "backend":
        return column.map(BACKEND_ORDER)
    if column.name == "benchmark":
        order = {name: at for at, name in enumerate(sorted(column.unique(), key=rank))}
        return column.map(order)
    return column


def _row(factors: dict[str, object], group: pd.DataFrame, wide: pd.DataFrame) -> dict[str, object]:
    row = factors | {"calls": int(group["calls"].min()), "n": len(group)}
    row |= {"gross": bool(group["gross"].any())} if "gross" in group else {}
    row |= _with_interval(group["value"])
    ratios = pd.Series(dtype=float)
    beside = wide.xs(tuple(factors[name] for name in POINT), level=POINT)
    reference = next((name for name in REFERENCE if name in beside and beside[name].notna().any()), None)
    if reference and group["trap"].isna().all():
        times, others = beside[str(factors["backend"])], beside[reference]
        if times.ne(0).all() and others.ne(0).all():  # a 0 was over before the clock's next step
            ratios = (times / others).dropna()
    row |= {"reference": reference if len(ratios) else None}
    return row | _geometric(ratios, "ratio", "ratio_low", "ratio_high")


def _with_interval(repetitions: pd.Series) -> dict[str, float | None]:
    """Return the geometric mean of a time, and its interval.

    If the clock did not see one of the repetitions, there is no logarithm: returns the plain mean, without interval;
    if it saw none, all are null.
    """
    if repetitions.le(0).any():
        return {"value": float(repetitions.mean()) or None, "low": None, "high": None}
    return _geometric(repetitions, "value", "low", "high")


def _geometric(values: pd.Series, *names: str) -> dict[str, float | None]:
    """Return geometric mean and interval under these names; null where there is none."""
    if not len(values):
        return dict.fromkeys(names)
    spread = Spread.of(values, "geometric")
    ends = zip(names, (spread.mean, spread.low, spread.high), strict=True)
    return {name: None if isnan(end) else end for name, end in ends}


def median_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return the medians to print: one row per place, benchmark, temperature; one column per backend, its ratio."""
    points = medians(table[table["trap"].isna()])
    steps = clock_steps(table)
    rows = []
    for key, group in points.groupby(POINT, sort=False, dropna=False) if len(points) else ():
        place = dict(zip(POINT, key, strict=True))
        row = {
            "place": place["label"],
            "unit": _unit(place["clock"], steps[str(place["label"])]),
            "benchmark": place["benchmark"],
        }
        row["measured"] = state_words(bool(place["cold"]), int(str(place["pause_us"])))
        cells = {str(r["backend"]): r for r in group.to_dict("records")}
        row |= {name: _cell(cells.get(name)) for name in BACKENDS}
        rows.append(row | {"ratios to": next(iter(cells.values()))["reference"]})
    return pd.DataFrame(rows)


def _unit(clock: object, step: int = 1) -> str:
    if clock != "time":
        return "instructions"
    return f"ns, clock steps of {step}" if step > 1 else "ns"


def _cell(row: Row | None) -> str | None:
    """``184 (180–188), × 1.13 (1.10–1.16)``."""
    if row is None:
        return None
    if pd.isna(row["value"]):
        return "less than a step of the clock"
    text = _with_range(f"{row['value']:,.0f}", row["low"], row["high"], ",.0f")
    if pd.isna(row.get("ratio")):
        return text
    return f"{text}, × " + _with_range(f"{row['ratio']:.2f}", row["ratio_low"], row["ratio_high"], ".2f")


def _with_range(text: str, low: Any, high: Any, form: str) -> str:
    if low is None or pd.isna(low):
        return text
    return f"{text} ({low:{form}}–{high:{form}})"


def primes(table: pd.DataFrame) -> pd.DataFrame:
    """Return mean ± standard deviation of ten calls after five, of the first warm trial of each backend.

    As the published table has it, which is the last row; places with fewer than fifteen calls are left out.
    """
    calls = values(table)
    calls = calls[calls["benchmark"].eq("primes") & is_warm(calls) & calls["repetition"].eq(1)]
    rows = []
    for label, group in calls.groupby("label", sort=False):
        cells = {backend: _ten(group[group["backend"] == backend]) for backend in BACKENDS}
        if any(len(ten) for ten in cells.values()):
            rows.append(_prime_row(str(label), str(group["clock"].iloc[0]), cells))
    columns = ["where", "clock", *BACKENDS, "jit / user"]
    return pd.DataFrame([*rows, THEIRS] if rows else [], columns=columns)


def _ten(calls: pd.DataFrame) -> pd.Series:
    chosen = calls.sort_values("call")["value"].iloc[DROPPED:PRIME_CALLS]
    return chosen if len(chosen) == PRIME_CALLS - DROPPED else chosen.iloc[:0]


def _prime_row(label: str, clock: str, cells: dict[str, pd.Series]) -> dict[str, object]:
    row: dict[str, object] = {"where": f"here: {label}", "clock": "time, ns" if clock == "time" else clock}
    row |= {name: f"{ten.mean():,.1f} ± {ten.std(ddof=1):,.1f}" if len(ten) else None for name, ten in cells.items()}
    both = len(cells["jit"]) and len(cells["user"])
    return row | {"jit / user": f"{cells['jit'].mean() / cells['user'].mean():.2f}" if both else None}


def chains(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per place and length: tail calls of BPF beside the recursion of module and user space, warm."""
    costs = medians(table[table["links"].notna() & is_warm(table)])
    if costs.empty:
        return costs
    links = table.drop_duplicates("benchmark").set_index("benchmark")["links"]
    costs = costs.assign(links=costs["benchmark"].map(links), unit=costs["clock"].map(_unit))
    wide = costs.pivot_table(index=["label", "unit", "links"], columns="backend", values="value", sort=True)
    wide = wide[[name for name in BACKENDS if name in wide]].round(1)
    return wide.rename_axis(None, axis=1).reset_index().rename(columns={"label": "place"})


def traps(table: pd.DataFrame) -> pd.DataFrame:
    """Return what the random source alone does to one benchmark: each beside our own source, warm, without a ratio."""
    warm = table[is_warm(table)]
    places = set(warm.loc[warm["trap"].notna(), "label"])
    costs = medians(warm[warm["label"].isin(places) & warm["benchmark"].isin(_SOURCES)])
    if costs.empty:
        return costs
    why = table.drop_duplicates("benchmark").set_index("benchmark")["trap"]
    sources = costs.apply(lambda row: _SOURCES[row["benchmark"]][row["backend"]], axis=1)
    shown = costs.assign(source=sources, why=costs["benchmark"].map(why), unit=costs["clock"].map(_unit))
    shown["value"] = shown["value"].round(0)
    return shown[["label", "backend", "source", "value", "unit", "why"]].rename(columns={"label": "place"})


_PRANDOM = dict.fromkeys(("interpreter", "jit"), "bpf_get_prandom_u32()")
_SOURCES = {
    "matrix": dict.fromkeys(BACKENDS, "xorshift, the same everywhere"),
    "matrix, kernel's random": _PRANDOM | {"module": "get_random_u32()"},
    "matrix, get_random_bytes": {"module": "get_random_bytes()"},
}


def causes(table: pd.DataFrame) -> pd.DataFrame:
    """Return the prime counter in each of its forms, beside user space's plain one at the same place: a factor each.

    The published ratio of 15 was of BPF to user space; forms of the code, compilers, kernels and pauses are its causes.
    """
    prime = table[table["benchmark"].astype(str).str.match(r"primes(, |$)") & ~table["cold"].astype(bool)]
    if prime.empty:
        return pd.DataFrame()
    costs = medians(prime)
    plain = costs[costs["benchmark"].eq("primes") & costs["backend"].eq("user") & costs["pause_us"].eq(0)]
    base = plain.drop_duplicates("label").set_index("label")["value"]
    executed = prime.drop_duplicates(["label", "benchmark", "backend"]).set_index(["label", "benchmark", "backend"])
    rows = [_cause(row, base, executed) for row in costs.to_dict("records") if pd.notna(row["value"])]
    return pd.DataFrame(rows)


def kernels(table: pd.DataFrame) -> pd.DataFrame:
    """Return the counts of each benchmark and backend at each counting place, and as a factor to the first place.

    So kernels and mitigations are factors. Places are ordered by kernel, the oldest first. Guests of another
    architecture are left out: their instructions are other ones.
    """
    counted = table[table["clock"].eq("instructions") & ~table["place"].str.contains(ARCHITECTURE_MARK, regex=False)]
    costs = medians(counted[~counted["cold"].astype(bool)]) if len(counted) else counted
    if costs.empty or costs["label"].nunique() < 2:
        return pd.DataFrame()
    wide = costs.pivot_table("value", ["benchmark", "backend"], "label", sort=False)
    ordered = sorted(wide.columns, key=lambda label: natural(str(label)))
    first, short = ordered[0], {label: str(label).removeprefix("vm, ").replace(_COUNTED, "") for label in ordered}
    shown = wide[ordered].round(1).rename(columns=short)
    for label in ordered[1:]:
        shown[f"{short[label]} by {short[first]}"] = (wide[label] / wide[first]).round(3)
    return shown.reset_index().rename_axis(columns=None)


_COUNTED = ", instructions counted"


def _cause(row: Row, base: pd.Series, executed: pd.DataFrame) -> dict[str, object]:
    counted = executed["work_instructions"].get((row["label"], row["benchmark"], row["backend"]))
    plain = base.get(row["label"])
    return {
        "place": row["label"],
        "form": row["benchmark"],
        "backend": row["backend"],
        "measured": state_words(bool(row["cold"]), int(row["pause_us"])),
        "value": round(row["value"], 1),
        "unit": _unit(row["clock"]),
        "by user space's primes": round(row["value"] / plain, 2) if plain else None,
        "instructions between the clocks": counted,
    }


def work(table: pd.DataFrame) -> pd.DataFrame:
    """Return what each wrapper does in one call, in the guest of the proof, beside what a guest's clock counted.

    ``counted``: the guest's median less that of ``empty`` there, which is the clock's. Of BPF these are the place's own
    instructions (the interpreter's, or its JIT's) and its helpers'. ``apart``: by how much the two differ where both
    count the same machine code.
    """
    proved = table[table["work_instructions"].notna()]
    rows = []
    for key, group in proved.groupby(["benchmark", "label", "backend"], sort=False):
        benchmark, label, backend = map(str, key)
        executed = int(group["work_instructions"].iloc[0])
        row = {"benchmark": benchmark, "must do": group["work"].iloc[0], "place": label}
        row |= {"backend": backend, "did": int(group["work_steps"].iloc[0]), "instructions": executed}
        here = proved[proved["label"].eq(label) & proved["backend"].eq(backend) & is_warm(proved)]
        rows.append(row | _counted(here, benchmark, backend, executed))
    result = pd.DataFrame(rows)
    return result if result.empty else result.sort_values("benchmark", key=_sorted_by, kind="stable", ignore_index=True)


def _counted(here: pd.DataFrame, benchmark: str, backend: str, executed: int) -> dict[str, object]:
    """``here``: the calls of one label (a place with its setting) and backend. A call has one clock, however often it
    executes the work."""
    counts = settled(here.assign(value=_looked(here))).groupby("benchmark")
    middle: dict[Any, float] = counts["value"].median().to_dict()
    if benchmark not in middle or "empty" not in middle or not here["place"].str.endswith(":count").all():
        return {"counted": None, "apart": None}
    empty = int(here.loc[here["benchmark"].eq("empty"), "work_instructions"].iloc[0])
    counted = middle[benchmark] - middle["empty"] + empty
    calls_others = benchmark == "clock sum" or here.loc[here["benchmark"].eq(benchmark), "trap"].notna().any()
    same = backend in REFERENCE and not calls_others
    return {"counted": round(counted), "apart": f"{counted / executed - 1:+.1%}" if same else None}


def _prime_ratios(_shown: pd.DataFrame, table: pd.DataFrame) -> str:
    """Say compiled BPF by user space, with the interval that ten calls of each give, beside the published ratio."""
    calls = values(table)
    calls = calls[calls["benchmark"].eq("primes") & is_warm(calls) & calls["repetition"].eq(1)]

    def of_place(rows: pd.DataFrame) -> str:
        both = [_ten(rows[rows["backend"].eq(backend)]) for backend in ("jit", "user")]
        if not all(map(len, both)):
            return ""
        jit, user = map(Spread.of, both)
        ratio = estimate(jit.mean / user.mean, jit.low / user.high, jit.high / user.low)
        return f"{span([('', ratio)], exact=_is_counted(rows))} times user space{_GROSS}"

    return by_place(calls, "compiled BPF takes", of_place, f"; published: {THEIRS['jit / user']}")


def _by_kernels(shown: pd.DataFrame, table: pd.DataFrame) -> str:
    last = str(shown.columns[-1])
    return ranging(last, ["benchmark", "backend"], f"{last}:", "times the instructions, with the clock's")(shown, table)


def _proved(shown: pd.DataFrame, _table: pd.DataFrame) -> str:
    apart = shown["apart"].dropna().str.rstrip("%").astype(float).abs()
    most = f"counted and executed instructions of the same code differ by at most {apart.max():.1f} %"
    return most if len(apart) else ""


def _trapped(shown: pd.DataFrame, table: pd.DataFrame) -> str:
    """Say what the kernel's random functions do to the benchmark, where it is counted."""
    ours = shown[shown["source"].eq(_SOURCES["matrix"]["jit"])].set_index(["place", "backend"])["value"]
    base = [ours.get(key) for key in zip(shown["place"], shown["backend"], strict=True)]
    others = shown.assign(times=shown["value"] / pd.Series(base, shown.index, dtype=float))
    begin, end = "with another random source it takes", "times as many instructions"
    return ranging("times", ["backend", "source"], begin, end)(others[others["why"].notna()], table)


_WHOLE = "; of whole calls, with the clock that each reads"
"""What a table's values are; `empty` is the clock alone. The sentences leave it out where they do not name it."""

TABLES: dict[str, tuple[str, Make, Meaning]] = {
    "medians": (
        f"Medians, with 95 % intervals over repetitions, and ratios to the reference{_WHOLE}", median_table,
        lambda _, table: _beside(_warm(table)[1], "jit"),
    ),
    "primes": (f"Primes up to 100: mean ± standard deviation of ten calls after five{_WHOLE}", primes, _prime_ratios),
    "causes": (
        f"The prime counter in several forms: each cause as a factor{_WHOLE}", causes,
        ranging("by user space's primes", ["form", "backend", "measured"], "a form takes", "times user space's primes"),
    ),
    "kernels": (f"Counted instructions by kernel and mitigations{_WHOLE}", kernels, _by_kernels),
    "chains": (
        f"Chains: tail calls in BPF, recursion in the module and in user space{_WHOLE}", chains,
        lambda _, table: _of_a_link(*_warm(table)),
    ),
    "work": ("Proof of equal work: what one call does between its clocks", work, _proved),
    "trap": (f"The trap: one benchmark, several random functions{_WHOLE}", traps, _trapped),
}  # fmt: skip


_NAMED = {"jit": "compiled BPF", "interpreter": "interpreted BPF", "module": "a module"}
_OTHERS = {"user": "user space", "module": "a module"}
_GROSS = ", with the clock that both read"
CLOCK_ALONE = "empty"
"""The benchmark that does nothing between its two looks at the clock: its time is theirs."""


def results(_plan: object, table: pd.DataFrame) -> Iterable[str]:
    """Return how each backend compares with the same code as a module or in user space, called warm, and what one more
    tail call costs."""
    costs, warm = _warm(table)
    return *(_beside(warm, backend) for backend in ("jit", "interpreter")), _of_a_link(costs, warm)


def _warm(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the medians of warm calls, and the calls."""
    warm = table[is_warm(table) & table["trap"].isna()]
    return medians(warm) if len(warm) else warm, warm


def _beside(warm: pd.DataFrame, backend: str) -> str:
    """Say the ratios of what the code takes, without the clock that each call reads: of a short one it is most."""
    costs = medians(warm, net=True)
    if costs.empty:
        return ""
    rows = costs[costs["backend"].eq(backend) & costs["ratio"].notna()]

    def of_place(rows: pd.DataFrame) -> str:
        others = rows.groupby(["reference", "gross"], sort=False)
        ends = {key: _OTHERS[str(key[0])] + (_GROSS if key[1] else "") for key, _ in others}
        return ", ".join(f"{_ratios(each)} times {ends[key]}" for key, each in others)

    return by_place(rows, f"{_NAMED[backend]} takes", of_place)


def _ratios(rows: pd.DataFrame) -> str:
    values = map(estimate, rows["ratio"], rows["ratio_low"], rows["ratio_high"])
    return span([*zip(names_of(rows, ["benchmark", "pause_us"]), values, strict=True)], exact=_is_counted(rows))


def _of_a_link(costs: pd.DataFrame, table: pd.DataFrame) -> str:
    if costs.empty:
        return ""
    links = table.dropna(subset=["links"]).drop_duplicates("benchmark").set_index("benchmark")["links"]
    chains = costs.assign(links=costs["benchmark"].map(links)).dropna(subset=["links", "value"])
    return by_place(chains, "one more tail call costs", lambda rows: ", ".join(_links(rows)))


def _links(chains: pd.DataFrame) -> Iterator[str]:
    for backend, how in _HOW.items():
        rows = chains[chains["backend"].eq(backend)].sort_values("links")
        if rows["links"].nunique() > 1:
            first, last = rows.iloc[0], rows.iloc[-1]
            each = (last["value"] - first["value"]) / float(last["links"] - first["links"])
            unit = " instructions" if _is_counted(rows) else " ns"
            yield f"{span([('', estimate(each))], unit, exact=_is_counted(rows))} {how}"


_HOW = {"interpreter": "interpreted", "jit": "compiled", "user": "as a call in user space"}


def _is_counted(rows: pd.DataFrame) -> bool:
    return bool(rows["clock"].eq("instructions").all())
