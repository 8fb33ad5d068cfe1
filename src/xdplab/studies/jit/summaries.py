"""What is made of the study's rows: the tables (every test with both modes, means, classes, filters),
and the sentences of its result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import pandas as pd

from xdplab.analysis.sentences import estimate, percent, span
from xdplab.studies.jit import joined
from xdplab.studies.jit.joined import SPEED_UP
from xdplab.studies.jit.points import (
    AMPLIFIED,
    FILTERS,
    INSN_CLASSES,
    INTERPRETER,
    JIT,
    MODES,
    SUITES,
    TCP,
    TEST_BPF,
    TRAFFIC,
)
from xdplab.studies.meaning import Make, Meaning, by_place, names_of, ranging
from xdplab.text import many

PUBLISHED_MEAN = 10.4
PUBLISHED = (
    {
        "set": "test_bpf, about 120 classic tests",
        "where": "Elbrus, Linux 6.1, time (published)",
        "mean": PUBLISHED_MEAN,
    },
    {"set": "test_bpf, about 120 classic tests", "where": "Elbrus-8SV, time (published)", "mean": 10.3},
    {"set": "a program that took 6 % of netperf's CPU", "where": "Elbrus, Linux 6.1, time (published)", "mean": 5.5},
)
"""From the slides "JIT compilation of BPF for Elbrus"; docs/results/jit.md. They do not say what kind of mean it is."""

_SETS: dict[str, Callable[[pd.DataFrame], pd.Series]] = {
    "test_bpf, all tests": lambda t: t["subject"].eq("test_bpf"),
    "test_bpf, classic": lambda t: t["subject"].eq("test_bpf") & t["classic"].fillna(False),
    "test_bpf, eBPF": lambda t: t["subject"].eq("test_bpf") & ~t["classic"].fillna(True),
    "test_tail_calls": lambda t: t["subject"].eq("test_tail_calls"),
}


def all_tests(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per test, also of those that are not run: cost and result in both modes, and the speed-up."""
    rows = joined.part(table, TEST_BPF)
    keys = ["label", "subject", "number", "name"]
    each = rows.assign(result=_result(rows)).drop_duplicates([*keys, "mode", "result"])
    results = each.groupby([*keys, "mode"], sort=False)["result"].agg("; ".join).unstack("mode").reset_index()
    costs = joined.tests(table)
    out = results.merge(costs, on=keys, how="left", suffixes=(" says", "")).sort_values(["label", "subject", "number"])
    sets = out["classic"].map({True: "classic", False: "eBPF"})
    return pd.DataFrame(
        {
            "place": out["label"],
            "suite": out["subject"],
            "number": out["number"],
            "test": out["name"],
            "set": sets,
            "unit": out["unit"],
            **{mode: out[mode].round(1) for mode in MODES},
            "speed-up": out[SPEED_UP].round(2),
            **{f"{mode} says": out.get(f"{mode} says") for mode in MODES},
        }
    )


def _result(rows: pd.DataFrame) -> pd.Series:
    """Return the kernel's message; for a program that the kernel had to refuse, and did, a text that says so."""
    endings = rows["words"].fillna("")
    ran = rows["jited"].notna() | ~rows["passed"].fillna(False) | rows["subject"].ne(SUITES[0])
    return endings.where(ran, "PASS (refused, as it must be)")


def suite_results(table: pd.DataFrame) -> pd.DataFrame:
    """Return how each suite ended in each mode: tests, passed, failed, run, compiled; of every repetition together."""
    rows = joined.part(table, TEST_BPF).drop_duplicates(["trial_id", "number"])
    groups = rows.groupby(["label", "subject", "mode"], sort=False)
    counted = pd.DataFrame(
        {
            "repetitions": groups["repetition"].nunique(),
            "tests": groups.size(),
            "passed": groups["passed"].sum(),
            "failed": groups["passed"].apply(lambda p: int((~p).sum())),
            "run": groups["jited"].count(),
            "compiled": groups["jited"].sum(),
        }
    )
    counts = ["tests", "passed", "failed", "run", "compiled"]
    counted[counts] = counted[counts].astype(int)
    return counted.reset_index().rename(columns={"label": "place", "subject": "suite"})


def failures(table: pd.DataFrame) -> pd.DataFrame:
    """Return every failed test, with the kernel's message."""
    rows = joined.part(table, TEST_BPF)
    failed = rows[~rows["passed"].fillna(True)].drop_duplicates(["label", "subject", "number", "mode", "words"])
    shown = failed[["label", "subject", "number", "name", "mode", "words"]]
    return shown.rename(columns={"label": "place", "subject": "suite", "name": "test", "words": "the kernel says"})


def speed_up(table: pd.DataFrame) -> pd.DataFrame:
    """Return means of the speed-up over sets of tests, and over classes and filters; the published ones below."""
    tests = joined.tests(table)
    groups = [(name, tests[choose(tests)]) for name, choose in _SETS.items()]
    groups.append(("own instruction classes", joined.side_by_side(joined.part(table, INSN_CLASSES), ["subject"])))
    groups.append(("classic filters", joined.side_by_side(joined.part(table, FILTERS), ["subject", "name"])))
    rows = [
        {"set": name, "where": label} | _means(group.dropna(subset=[SPEED_UP]))
        for name, rows in groups
        for label, group in rows.groupby("label", sort=False)
        if group[SPEED_UP].notna().any()
    ]
    if not rows:
        return pd.DataFrame()
    shown = pd.DataFrame([*rows, *PUBLISHED]).rename(columns={"mean": "arithmetic mean"})
    return shown.astype({"tests": "Int64"})


def _means(rows: pd.DataFrame) -> dict[str, float]:
    """Return three kinds of mean, and the spread."""
    ratios = rows[SPEED_UP].astype(float)
    return {
        "tests": len(rows),
        "mean": round(float(ratios.mean()), 2),
        "geometric mean": round(float(np.exp(np.log(ratios).mean())), 2),
        "of the sums": round(float(rows[INTERPRETER].sum() / rows[JIT].sum()), 2),
        "median": round(float(ratios.median()), 2),
        "least": round(float(ratios.min()), 2),
        "most": round(float(ratios.max()), 2),
    }


def architectures(table: pd.DataFrame) -> pd.DataFrame:
    """Return for each kind of test and place: how its tests ended, their speed-up, and the size of compiled programs.

    Each test of suite test_bpf is counted in exactly one column; the published means are below.
    """
    counted = joined.fates(table)
    if counted.empty:
        return pd.DataFrame()
    ratios = joined.kinds(table)
    both = counted.merge(ratios, on=["label", "kind"], how="left")
    shown = both.rename(columns={"label": "where", "kind": "kind of test"})
    whole = dict.fromkeys(["tests", *joined.FATES, "compared"], "Int64")
    below = pd.DataFrame([_published(one) for one in PUBLISHED[:2]])
    return pd.concat([shown, below], ignore_index=True).astype(whole)


def _published(row: Mapping[str, object]) -> dict[str, object]:
    return {"kind of test": row["set"], "where": row["where"], "speed-up, arithmetic": row["mean"]}


def kinds(table: pd.DataFrame) -> pd.DataFrame:
    """Return the median test's cost by kind and place, each place in its own unit: no ratio compares two places."""
    if joined.part(table, TEST_BPF).empty:
        return pd.DataFrame()
    costs = joined.costs(table)
    return costs[["label", "kind", "tests", "unit", *MODES]].rename(columns={"label": "place", "kind": "kind of test"})


def left(table: pd.DataFrame) -> pd.DataFrame:
    """Return each test that a JIT left to the interpreter."""
    rows = joined.part(table, TEST_BPF)
    rows = rows[rows["mode"].eq(JIT) & ~rows["jited"].fillna(True)].drop_duplicates(["label", "subject", "number"])
    return rows[["label", "subject", "number", "name"]].rename(
        columns={"label": "place", "subject": "suite", "name": "test"}
    )


def classes(table: pd.DataFrame) -> pd.DataFrame:
    """Return what one body of each instruction class costs in both modes, and its machine code."""
    rows = joined.part(table, INSN_CLASSES)
    costs = joined.with_groups(joined.side_by_side(rows, ["subject"]))
    code = rows.dropna(subset=["machine_bytes"]).groupby(["label", "subject"])["machine_bytes"].first()
    sizes = [code.get((label, name)) for label, name in zip(costs["label"], costs["subject"], strict=True)]
    costs = costs.assign(**{"machine code, bytes": pd.Series(sizes, index=costs.index, dtype="Float64").round(1)})
    names = {"label": "place", "subject": "class", SPEED_UP: "speed-up"}
    columns = ["label", "group", "subject", "unit", *MODES, SPEED_UP, "machine code, bytes"]
    return _rounded(costs[columns]).rename(columns=names)


def filters(table: pd.DataFrame) -> pd.DataFrame:
    """Return what each filter costs on each packet: the whole of it, and above the shortest with that verdict."""
    rows = joined.part(table, FILTERS)
    keys = ["subject", "insns", "name"]
    whole, above = joined.side_by_side(rows, keys), joined.side_by_side(rows, keys, "above")
    more = {f"{mode}, above the shortest": above[mode] for mode in MODES}
    names = {"label": "place", "subject": "filter", "insns": "instructions", "name": "on", SPEED_UP: "speed-up"}
    columns = ["label", *keys, "unit", *MODES, SPEED_UP]
    return _rounded(whole[columns].assign(**more)).rename(columns=names)


def traffic(table: pd.DataFrame) -> pd.DataFrame:
    """Return the filter's share of all work for a datagram, interpreted (before) and compiled (after)."""
    shown = _of_all(joined.part(table, TRAFFIC), ["subject", "number", "name"], "datagram", "datagram's speed-up")
    return shown.rename(columns={"subject": "filter", "number": "payload, bytes", "name": "datagram is"})


def tcp(table: pd.DataFrame) -> pd.DataFrame:
    """Return the filter's share of a TCP transaction and of a send, as netperf's tests have them."""
    rows, keys = joined.part(table, TCP), ["subject", "name"]
    shown = _of_all(rows, keys, "in all", "speed-up of all")
    runs = joined.side_by_side(rows, keys, "packets")[list(MODES)].max(axis=1).round(2)
    shown.insert(list(shown.columns).index("unit") + 1, "filter runs", runs)
    return shown.rename(columns={"subject": "filter", "name": "test, segments are"})


WHEN = {INTERPRETER: "before", JIT: "after"}
"""What a table calls the modes where a column's name has more words."""


def _of_all(rows: pd.DataFrame, keys: list[str], whole: str, speed_up_of_all: str) -> pd.DataFrame:
    """Return the cost of ``whole`` and of the filter in it, in each mode; the filter's share; both speed-ups."""
    cost, total = joined.side_by_side(rows, keys), joined.side_by_side(rows, keys, "total")
    share = joined.shares(rows, keys)
    shown = cost[["label", *keys, "unit"]].assign(
        **{f"{WHEN[mode]}: {whole}": total[mode] for mode in MODES},
        **{f"{WHEN[mode]}: filter": cost[mode] for mode in MODES},
        **{f"{WHEN[mode]}: share, %": 100 * share[mode] for mode in MODES},
        **{"speed-up": cost[SPEED_UP], speed_up_of_all: total[INTERPRETER] / total[JIT]},
    )
    return _rounded(shown).rename(columns={"label": "place"})


def amplified(table: pd.DataFrame) -> pd.DataFrame:
    """Return what one run of each filter costs, found with many packet sockets: whole, interval, above the shortest."""
    rows = joined.part(table, AMPLIFIED)
    keys = ["subject", "insns", "name", "number"]
    whole = joined.side_by_side(rows, keys)
    policies = rows.groupby("label")["policy"].agg(lambda each: ", ".join(each.fillna("not recorded").unique()))
    shown = whole[["label", *keys, "unit", *MODES, SPEED_UP]].copy()
    for mode in MODES:
        ends = {end: joined.side_by_side(rows, keys, end)[mode] for end in ("low", "high", "above")}
        texts = [
            None if pd.isna(low) or pd.isna(cost) else f"{low:.2f}–{high:.2f}"
            for low, high, cost in zip(ends["low"], ends["high"], whole[mode], strict=True)
        ]
        shown[f"{mode}, 95 %"] = texts
        shown[f"{mode}, above the shortest"] = ends["above"]
    shown["scheduled as"] = shown["label"].map(policies)
    names = {"label": "place", "subject": "filter", "insns": "instructions", "name": "datagram is"}
    return _rounded(shown).rename(columns=names | {"number": "packet sockets", SPEED_UP: "speed-up"})


def _rounded(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(**{str(name): rows[name].round(2) for name in rows if rows[name].dtype == "Float64"})


def _of_kinds(shown: pd.DataFrame, _table: pd.DataFrame) -> str:
    """Say how the tests of all kinds ended; a fate that no test has is not named."""

    def ended(rows: pd.DataFrame) -> str:
        row = rows.iloc[-1]  # all kinds
        fates = ", ".join(f"{row[fate]} {fate}" for fate in joined.FATES if row[fate])
        return f"{many(int(row['tests']), 'test')}: {fates}"

    return by_place(shown, "of", ended)


def _median_tests(shown: pd.DataFrame, table: pd.DataFrame) -> str:
    both = shown.assign(times=shown[INTERPRETER] / shown[JIT])
    begin = "of a kind's median test, the interpreter takes"
    return ranging("times", ["kind of test"], begin, _AS_MANY)(both[~both["kind of test"].eq(joined.ALL)], table)


def _filter_shares(shown: pd.DataFrame, _table: pd.DataFrame) -> str:
    def shares(rows: pd.DataFrame) -> str:
        by_mode = {mode: rows[f"{when}: share, %"].dropna() / 100 for mode, when in WHEN.items()}
        return " and ".join(f"{_percents(share)} {HOW[mode]}" for mode, share in by_mode.items() if len(share))

    return by_place(shown[shown["unit"].eq("instructions")], "the filter's share is", shares)


def _counts(begin: str) -> Meaning:
    return lambda shown, _table: by_place(shown, begin, lambda rows: many(len(rows), "test"))


def _of_both(*names: str) -> Meaning:
    return ranging("speed-up", names, "the interpreter takes", _AS_MANY)


_AS_MANY = "times as many instructions as compiled code"
HOW = {INTERPRETER: "interpreted", JIT: "compiled"}

TABLES: dict[str, tuple[str, Make, Meaning]] = {
    "speed-up": ("Interpreter's cost by the JIT's", speed_up, lambda _, table: _speed_ups(table)),
    "architectures": (
        "The kernel's own tests by kind and place: how they ended, speed-up and size", architectures, _of_kinds,
    ),
    "kinds": ("The kernel's own tests by kind: cost of the median test", kinds, _median_tests),
    "results": ("Results of the kernel's own tests", suite_results, lambda _, table: _tests(table)),
    "left": ("Tests that a JIT left to the interpreter", left, _counts("the JIT left to the interpreter")),
    "failures": ("Tests that failed", failures, _counts("another result than the kernel expects had")),
    "test_bpf": (
        "Every test of the kernel's own, in both modes (cost of one run, mean over its cases)", all_tests,
        _of_both("test", "suite", "number"),
    ),
    "classes": ("One body of each instruction class", classes, _of_both("class")),
    "filters": ("Classic filters, one run", filters, _of_both("filter", "on")),
    "traffic": (
        "Classic filters under traffic, one datagram, interpreted (before) and compiled (after)", traffic,
        _filter_shares,
    ),
    "amplified": (
        "Classic filters, one run, by many packet sockets with the same filter", amplified,
        _of_both("filter", "datagram is", "packet sockets"),
    ),
    "tcp": (
        "Classic filters beside netperf's TCP tests, interpreted (before) and compiled (after)", tcp, _filter_shares,
    ),
}  # fmt: skip


def results(_plan: object, table: pd.DataFrame) -> Iterable[str]:
    """Return how much longer the interpreter takes, a filter's share of its datagram, and how the tests ended."""
    return _speed_ups(table), _shares(table), _tests(table)


def _speed_ups(table: pd.DataFrame) -> str:
    begin = "beside compiled code, the interpreter takes"
    return by_place(table, begin, lambda rows: ", ".join(_of_place(rows))) or _one_mode(table)


def _of_place(table: pd.DataFrame) -> Iterator[str]:
    tests, by = joined.tests(table), ["subject", "name"]
    for of_part, keys, what in (
        (joined.side_by_side(joined.part(table, INSN_CLASSES), ["subject"]), ["subject"], "one instruction"),
        (tests[tests["subject"].eq(SUITES[0])], ["name", "number"], "one of the kernel's own tests"),
        (joined.side_by_side(joined.part(table, FILTERS), by), by, "a classic filter"),
    ):
        rows = of_part.dropna(subset=[SPEED_UP])
        if len(rows):
            values, counted = [*zip(names_of(rows, keys), map(estimate, rows[SPEED_UP]), strict=True)], _counted(rows)
            yield f"{span(values, exact=counted)} times as {'many instructions' if counted else 'long'} for {what}"


def _one_mode(table: pd.DataFrame) -> str:
    """Return what one instruction costs at places that have only one of the modes."""

    def costs(of_place: pd.DataFrame) -> Iterator[str]:
        rows = joined.side_by_side(joined.part(of_place, INSN_CLASSES), ["subject"])
        for mode in MODES:
            costed = rows.dropna(subset=[mode])
            if len(costed):
                values = [*zip(costed["subject"], map(estimate, costed[mode]), strict=True)]
                yield f"{span(values, ' ' + costed['unit'].iloc[0], exact=_counted(costed))} {HOW[mode]}"

    return by_place(table, "one instruction costs", lambda rows: " and ".join(costs(rows)))


def _shares(table: pd.DataFrame) -> str:
    def shares(of_place: pd.DataFrame) -> str:
        rows = pd.concat([joined.shares(joined.part(of_place, part), ["subject", "name", *more])
                          for part, more in ((TRAFFIC, ["number"]), (TCP, []))])  # fmt: skip
        return " and ".join(f"{_percents(rows[mode])} {HOW[mode]}" for mode in MODES if rows[mode].notna().any())

    return by_place(table, "a filter is", shares, " of the work for a datagram or a TCP send")


def _percents(shares: pd.Series) -> str:
    least, most = percent(float(shares.min())), percent(float(shares.max()))
    return least if least == most else f"{least.removesuffix(' %')} to {most}"


def _tests(table: pd.DataFrame) -> str:
    rows = joined.part(table, TEST_BPF).drop_duplicates(["label", "trial_id", "number"])
    return by_place(rows, "of the kernel's own tests,", _ended)


def _ended(rows: pd.DataFrame) -> str:
    texts = []
    for mode, of_mode in rows.groupby("mode", sort=True):
        each = of_mode.groupby(["subject", "number"])
        failed, left = int((~each["passed"].min().astype(bool)).sum()), int((each["jited"].min().eq(False)).sum())
        text = f"{len(each) - failed} of {len(each)} passed {HOW[str(mode)]}"
        texts.append(text + (f", {left} of them left to the interpreter" if mode == JIT and left else ""))
    return " and ".join(texts)


def _counted(rows: pd.DataFrame) -> bool:
    return bool(rows["unit"].eq("instructions").all())
