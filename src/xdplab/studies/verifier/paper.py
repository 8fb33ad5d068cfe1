"""A run beside the published study: the paper's number, the run's, and whether they agree, or why that is unknown.

The paper is "Performance evaluation of the Linux kernel eBPF verifier" (Derri, Lawall, Lazri, 2025).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from xdplab.run.frames import why_null
from xdplab.studies.meaning import table_with_line
from xdplab.studies.tables import Table, markdown
from xdplab.studies.verifier.points import LINUX
from xdplab.studies.verifier.summaries import (
    ENVIRONMENT,
    PROGRAM,
    TIMES,
    environment,
    first_of_each,
    general,
    is_generated,
    judged_together,
)
from xdplab.text import many

INSTRUCTIONS = {
    ("clang 8", "v2"): (31, 55, 55),
    ("clang 14", "v2"): (21, 68, 60),
    ("clang 14", "v3"): (21, 64, 56),
    ("clang 18", "v2"): (20, 68, 60),
    ("clang 18", "v3"): (20, 64, 56),
    ("clang 18", "v4"): (20, 64, 56),
}
"""Instructions of the paper's double_strcmp with 1, 2 and at least 3 iterations."""
WIDE_LOADS = 2
"""Loads of a map's address in double_strcmp. Each takes the room of two instructions; the paper counts it once."""

MOST_CAUSES = 3
"""Causes that a row names."""

FEWEST = 5
"""Programs that a rank correlation needs to say anything."""

PREVAIL_REFUSES = 4 / 144
"""The share of programs that the paper's latest PREVAIL refuses."""
STEADY = 1.5
"""At a fixpoint, the cost at the largest N is at most this many times the cost at N = 3."""
LOOP_IS_WHOLE = 3
"""From this N on, compilers keep the loop."""

BOTH_WORK = ("processed_insns", "memory_bytes")
MORE = 1.05
"""A newer kernel that needs this many times as much needs more; below it, a difference is none."""


class BesidePaper(NamedTuple):
    """One row: ``agrees`` begins with yes, no or unknown; after the last two follows the reason."""

    experiment: str
    paper: str
    ours: str
    agrees: str
    figure: str = ""


def against_paper(table: pd.DataFrame, largest: pd.DataFrame) -> pd.DataFrame:
    """Return one row per experiment of the paper; a null ``ours`` has its reason in ``agrees``."""
    rows = first_of_each(table)
    corpus, linux = rows[~is_generated(rows)], rows[rows["verifier"] == LINUX]
    loops = _usual_loops(linux[linux["maps"].fillna("btf").eq("btf")])
    counted = loops[~loops["clock"].eq("time")]
    own_corpora = corpus[corpus["verifier"] == LINUX]
    answers = [
        *_acceptance(own_corpora),
        _newer_costs(own_corpora),
        *_prevail_grows(rows),
        *_prevail_accepts(corpus[corpus["verifier"] != LINUX]),
        _disagreements(corpus),
        _fixpoint(table),
        *_prevail_loops(table),
        *_growth(loops, "processed_insns", "work (processed instructions)", "kernels"),
        *_growth(_times(table), "verify_ns", "time, ns", "kernels-time"),
        *_growth(counted, "verify_instructions", "verifier's instructions", "kernels-counted"),
        *_growth(loops, "memory_bytes", "memory, bytes", "kernels-memory"),
        *_branches(own_corpora if len(own_corpora) else linux),
        _most_iterations(largest),
        _constant_instructions(loops),
        *_instructions(loops),
    ]
    return pd.DataFrame(answers, columns=list(BesidePaper._fields)).replace("", pd.NA)


def _times(table: pd.DataFrame) -> pd.DataFrame:
    """Return the usual loops of all repetitions that have a time: only they tell whether it grows."""
    of_btf = table["maps"].fillna("btf").eq("btf")
    return _usual_loops(table[table["verifier"].eq(LINUX) & of_btf & table["clock"].eq("time")])


def _usual_loops(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the loops of double_strcmp that end by ``<``."""
    return rows[rows["family"].eq("double_strcmp") & rows["exit"].fillna("<").eq("<")]


def _whole(loops: pd.DataFrame) -> pd.DataFrame:
    """Return the rolled loops that compilers keep as loops."""
    return loops[loops["form"].eq("rolled") & loops["n"].ge(LOOP_IS_WHOLE)]


def page(table: pd.DataFrame, largest: pd.DataFrame, around: str) -> str:
    """Return the comparison as a page in Markdown; ``around`` says what the run was measured with."""
    linux = table["verifier"] == LINUX
    kernels = " and ".join(dict.fromkeys(table.loc[linux, "label"])) or "no kernel"
    others = " and ".join(dict.fromkeys(table.loc[~linux, "label"]))
    kernels += f" against {others}" if others else ""
    corpora = table.loc[linux & ~is_generated(table)]
    programs = many(len(corpora.drop_duplicates(PROGRAM)), "program")
    names = ", ".join(sorted(set(corpora["corpus"])))
    of = f"{programs} of {names} and " if names else ""
    return (
        "# The verifier study and its paper\n\n"
        "`xdplab study published RUN` makes this page from a run. "
        f"This one is of {kernels}, with {of}the generated families. "
        "The paper used 144 programs on kernels 4.19 to 6.10.\n\n"
        f"{markdown(against_paper(table, largest))}\n"
        "`agrees` is `yes`, `no` with the reason, or `unknown` with what is missing. `figure` names the figure of the "
        f"run that draws the row.\n\nMeasured with {around}.\n"
    )


def paper_table(table: pd.DataFrame, largest: pd.DataFrame) -> Table:
    """Return the comparison, with how many of the numbers that the run can judge agree."""
    return table_with_line("The paper's numbers and ours", against_paper(table, largest), _agreeing, table)


def _agreeing(shown: pd.DataFrame, _table: pd.DataFrame) -> str:
    agrees, differs = (int(shown["agrees"].str.startswith(word).sum()) for word in ("yes", "no"))
    judged = many(agrees + differs, "number")
    return f"{agrees} of {judged} that this run can judge agree with the paper's" if agrees + differs else ""


def _by_kernel(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Give the rows of each kernel, the oldest first."""
    releases = rows.drop_duplicates("label").set_index("label")["kernel_release"].fillna("")
    for label in sorted(releases.index, key=lambda name: [int(part) for part in re.findall(r"\d+", releases[name])]):
        yield str(label), rows[rows["label"] == label]


def _acceptance(rows: pd.DataFrame) -> Iterator[BesidePaper]:
    as_found = "139 of 144 (4.19), 141 to 143 (5.0 to 6.10)"
    mended = "143 of 144 (4.19), 144 of 144 (5.0 to 6.10)"
    if rows.empty:
        why = "unknown: the run has no OBJECTS"
        yield BesidePaper("programs accepted as found", as_found, "", why)
        yield BesidePaper("programs accepted, environment apart", mended, "", why)
    lacking = _lacking(rows)
    for label, programs in _by_kernel(rows):
        accepted = int(programs["verdict"].eq("accepted").sum())
        stopped = programs[programs["verdict"].isin(ENVIRONMENT)]
        refused = programs[~programs["verdict"].isin((*ENVIRONMENT, "accepted"))]
        stops = ((len(stopped), "stopped before a verifier saw it"), (len(refused), "refused by the verifier"))
        missing = ", ".join(f"{count} {what}" for count, what in stops if count)
        why = f"no: {missing}" if missing else "yes"
        yield BesidePaper(
            f"programs accepted as found, {label}", as_found, f"{accepted} of {len(programs)}", why, "acceptance"
        )
        reached = len(programs) - len(stopped)
        verdict = "yes" if not len(refused) else f"no: {_causes(refused)}"
        if label in lacking:
            verdict += f"; left out: {lacking[label]}"
        name = f"programs accepted, environment apart, {label}"
        yield BesidePaper(name, mended, f"{accepted} of {reached}", verdict, "acceptance")
    if len(rows):
        yield _mended(rows, mended)


def _lacking(rows: pd.DataFrame) -> dict[str, str]:
    """Return for each kernel what it lacks, the number of programs that need it, and their result elsewhere."""
    causes = environment(rows)
    return {
        str(label): "; ".join(
            f"{r['programs']} × {r['cause']}: "
            + (f"{r['accepted elsewhere']} accepted by {r['by']}" if r["accepted elsewhere"] else f"try {r['remedy']}")
            for _, r in stops.iterrows()
        )
        for label, stops in (causes.groupby("kernel", sort=False) if len(causes) else ())
    }


def _mended(rows: pd.DataFrame, published: str) -> BesidePaper:
    """Count as mended a program that one kernel's environment stops and another kernel of the run accepts."""
    name = "programs accepted, environment mended by another kernel of the run"
    programs = rows.drop_duplicates(PROGRAM)
    once = set(rows.loc[rows["verdict"].eq("accepted"), PROGRAM].itertuples(index=False, name=None))
    left = rows[[key not in once for key in rows[PROGRAM].itertuples(index=False, name=None)]]
    if len(left) and rows["label"].nunique() < 2:
        return BesidePaper(name, published, "", "unknown: needs OBJECTS on two kernels")
    last = left.drop_duplicates(PROGRAM, keep="last")
    ours = f"{len(once)} of {len(programs)}"
    return BesidePaper(name, published, ours, f"no: {_causes(last)}" if len(last) else "yes", "acceptance")


def _newer_costs(rows: pd.DataFrame) -> BesidePaper:
    """The oldest kernel of the run against its newest, over the programs that both accept."""
    name, paper = "cost of a newer kernel, same programs", "less from 5.0 on; no regression found"
    kernels = list(_by_kernel(rows))
    if len(kernels) < 2:
        return BesidePaper(name, paper, "", "unknown: needs OBJECTS on two kernels")
    (old, before), (new, after) = kernels[0], kernels[-1]
    accepted = (part[part["verdict"].eq("accepted")] for part in (before, after))
    both = next(accepted).merge(next(accepted), on=PROGRAM, suffixes=("_a", "_b"))
    ratios = {m: _mean_ratio(both[f"{m}_a"], both[f"{m}_b"]) for m in BOTH_WORK}
    ratio_of = {m: ratio for m, ratio in ratios.items() if ratio is not None}
    if not ratio_of:
        return BesidePaper(name, paper, "", "unknown: no program was accepted by both kernels")
    counts = {m: len(_ratios(both[f"{m}_a"], both[f"{m}_b"])) for m in ratio_of}
    ours = ", ".join(f"{m} × {ratio:.3f} of {many(counts[m], 'program')}" for m, ratio in ratio_of.items())
    more = [m for m, ratio in ratio_of.items() if ratio > MORE]
    verdict = f"no: more {' and '.join(more)}" if more else "yes"
    ours_words = f"{new} against {old}: {ours} (geometric means)"
    return BesidePaper(name, paper, ours_words, verdict, "processed")


def _ratios(before: pd.Series, after: pd.Series) -> pd.Series:
    """Return the ratios of the programs of which both kernels tell the number."""
    ratios = (after.astype("Float64") / before.astype("Float64")).dropna()
    return ratios[np.isfinite(ratios) & ratios.gt(0)].astype(float)


def _mean_ratio(before: pd.Series, after: pd.Series) -> float | None:
    ratios = _ratios(before, after)
    return float(np.exp(np.log(ratios).mean())) if len(ratios) else None


def _prevail_grows(rows: pd.DataFrame) -> Iterator[BesidePaper]:
    sized = rows[(rows["verifier"] != LINUX) & ~rows["form"].fillna("").eq("rolled")]
    prevail = sized[_came_to_an_end(sized)]
    for column, cost, figure in (("load_ns", "time", "prevail-time"), ("memory_bytes", "memory", "prevail-memory")):
        name, paper = f"PREVAIL's {cost} against instructions", "grows with the instructions"
        if prevail.empty:
            yield BesidePaper(name, paper, "", _NO_PREVAIL)
        for label, runs in prevail.groupby("label", sort=False):
            both = runs.dropna(subset=["insns", column])
            rank = both["insns"].rank().corr(both[column].rank()) if len(both) >= FEWEST else float("nan")
            if pd.isna(rank):
                yield BesidePaper(f"{name}, {label}", paper, "", f"unknown: {many(len(both), 'program')} with both")
                continue
            verdict = "yes" if rank > 0.5 else "no: the two hardly rise together"
            ours = f"rank correlation {rank:.2f}, n = {len(both)}"
            if over := int(sized["label"].eq(label).sum()) - len(runs):
                ours += f"; {over} broken or over a limit are left out"
            yield BesidePaper(f"{name}, {label}", paper, ours, verdict, figure)


def _came_to_an_end(rows: pd.DataFrame) -> pd.Series:
    """Return which analyses have a cost: one that broke has none, and one over a limit has only the limit's."""
    return rows["verdict"].isin(("accepted", "rejected"))


def _prevail_accepts(rows: pd.DataFrame) -> Iterator[BesidePaper]:
    name, paper = "programs accepted by PREVAIL", "143 of 144 (of 2019), 140 of 144 (latest)"
    if rows.empty:
        yield BesidePaper(name, paper, "", _NO_PREVAIL)
    for label, programs in rows.groupby("label", sort=False):
        judged = programs[~programs["verdict"].isin(ENVIRONMENT)]
        refused = judged[judged["verdict"].ne("accepted")]
        ours = f"{len(judged) - len(refused)} of {len(judged)}"
        if len(judged) < len(programs):
            ours += f"; it cannot read {len(programs) - len(judged)}"
        verdict = "yes" if len(refused) <= PREVAIL_REFUSES * len(judged) else f"no: it refuses {_causes(refused)}"
        verdict = verdict if len(judged) else "unknown: it could read none"
        yield BesidePaper(f"{name}, {label}", paper, ours, verdict, "acceptance")


def _causes(rows: pd.DataFrame) -> str:
    """Return the causes of these rows, the most frequent first."""
    counts = rows["cause"].fillna("?").map(general).value_counts()
    parts = [f"{n} × {cause}" for cause, n in counts.head(MOST_CAUSES).items()]
    rest = int(counts.iloc[MOST_CAUSES:].sum())
    return "; ".join([*parts, *([f"{rest} × other causes"] if rest else [])])


_NO_PREVAIL = "unknown: the run has no PREVAIL (--prevail PATH)"


def _disagreements(rows: pd.DataFrame) -> BesidePaper:
    name, paper = "programs that one verifier refuses and the other accepts", "at most 4 of 144 per pair"
    if judged_together(rows).empty or not rows["verifier"].ne(LINUX).any():
        return BesidePaper(name, paper, "", _NO_PREVAIL)
    judged = rows[~rows["verdict"].isin(ENVIRONMENT)]
    wide = judged.pivot_table(index="program_id", columns="label", values="verdict", aggfunc="first")
    refused, accepted = wide.notna() & (wide != "accepted"), wide == "accepted"
    pairs = [(a, b) for a in wide.columns for b in wide.columns if a != b]
    most, pair = max((int((refused[a] & accepted[b]).sum()), f"{a} refuses, {b} accepts") for a, b in pairs)
    verdict = "yes" if most <= 4 else "no: more programs, and other versions"
    return BesidePaper(name, paper, f"at most {most} ({pair})", verdict, "confusion")


def _fixpoint(rows: pd.DataFrame) -> BesidePaper:
    name, paper = "rolled loops: PREVAIL against Linux", "PREVAIL is faster: it reaches a fixpoint"
    loops = rows[rows["form"].eq("rolled") & rows["clock"].eq("time") & rows["load_ns"].notna()]
    loops = loops[loops["n"].ge(LOOP_IS_WHOLE) & loops["exit"].fillna("<").eq("<")]
    ours, theirs = loops[loops["verifier"] == LINUX], loops[loops["verifier"] != LINUX]
    if rows["verifier"].eq(LINUX).all():
        return BesidePaper(name, paper, "", _NO_PREVAIL)
    theirs = theirs[_came_to_an_end(theirs)]
    ours = _newest_build(ours[ours["verdict"].eq("accepted")])
    both = ours.merge(theirs, on=["sha256", "repetition"], suffixes=("", "_b"))
    if both.empty:
        return BesidePaper(name, paper, "", "unknown: needs a loop from N = 3 on that Linux accepts and PREVAIL ends")
    *_, (_, pairs) = _by_kernel(both)  # the newest one's
    last = pairs.iloc[-1]
    pairs = pairs[pairs["sha256"].eq(last["sha256"]) & pairs["label_b"].eq(last["label_b"])]
    times, others = (pairs[name].astype(float) for name in ("load_ns", "load_ns_b"))
    ratio = times.median() / others.median()
    result = f"N = {last['n']}: Linux takes × {ratio:.2f} of {last['label_b']}'s time (its whole process)"
    verdict = _judged("load_ns", times > others, "no: N is small, or the process costs more")
    return BesidePaper(name, paper, result, verdict + _unless_accepted([last["verdict_b"]]), "prevail-loops")


def _judged(column: str, holds: Iterable[bool], no: str) -> str:
    """Return the verdict of what holds in each repetition; a time needs two: one alone may be the machine's noise."""
    of_each = list(holds)
    if len(set(of_each)) > 1:
        return "unknown: repetitions differ"
    if column in TIMES and len(of_each) < 2:
        return "unknown: needs two repetitions"
    return "yes" if of_each[0] else no


def _pairs(by_n: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return a row for each repetition of a time that has both N; of another cost the median, as it hardly differs."""
    return by_n.dropna() if column in TIMES else by_n.median().to_frame().T


def _unless_accepted(verdicts: Iterable[str]) -> str:
    """Return the verdicts beside a cost: PREVAIL may need it to refuse a loop, which is another fixpoint."""
    others = ", ".join(dict.fromkeys(verdict for verdict in verdicts if verdict != "accepted"))
    return f"; PREVAIL's verdict is {others}" if others else ""


def _prevail_loops(rows: pd.DataFrame) -> Iterator[BesidePaper]:
    """Yield PREVAIL's cost of a rolled loop from N = 3 on, in the newest compiler's newest build."""
    paper = "hardly grows with N: it reaches a fixpoint"
    whole = _whole(_usual_loops(rows[rows["verifier"].ne(LINUX)]))
    for column, cost, scale, figure in (
        ("load_ns", "PREVAIL's time, ms", 1e6, "prevail-loops"),
        ("memory_bytes", "PREVAIL's memory, kB", 1e3, "prevail-loops-memory"),
    ):
        name = f"double_strcmp rolled: {cost}"
        if whole.empty:
            yield BesidePaper(name, paper, "", _NO_PREVAIL)
        for label, mine in whole.groupby("label", sort=False):
            one = _newest_build(mine[mine[column].notna() & _came_to_an_end(mine)])
            by_n = one.pivot_table(index="repetition", columns="n", values=column).astype(float) / scale
            if by_n.shape[1] < 2:
                why = "unknown: needs two sizes from N = 3 on that PREVAIL ends"
                yield BesidePaper(f"{name}, {label}", paper, "", why)
                continue
            by_n = by_n.iloc[:, [0, -1]]
            (n, most), (first, last), both = map(int, by_n.columns), by_n.median(), _pairs(by_n, column)
            ours = f"{first:,.1f} at N = {n}, {last:,.1f} at N = {most} (× {last / first:.2f})"
            verdict = _judged(column, both[most] <= STEADY * both[n], "no: it grows")
            verdict += _unless_accepted(one["verdict"])
            yield BesidePaper(f"{name}, {label}", paper, ours, verdict, figure)


def _newest_build(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the newest compiler's newest instruction set, by N."""
    if rows.empty:
        return rows
    builds = zip(rows["compiler"], rows["mcpu"], strict=True)
    compiler, mcpu = max(builds, key=lambda key: (_number(key[0]), key[1]))
    return rows[rows["compiler"].eq(compiler) & rows["mcpu"].eq(mcpu)].sort_values("n", kind="stable")


def _constant_instructions(loops: pd.DataFrame) -> BesidePaper:
    """Rolled loops: the number of instructions does not depend on N once the loop is whole."""
    name, paper = "double_strcmp rolled: instructions against N", "the same from N = 3 on, with every compiler"
    whole = _whole(loops)
    counts = whole.dropna(subset=["insns"]).groupby(["compiler", "mcpu"])
    sizes, different = counts["n"].nunique(), counts["insns"].nunique()
    several = sizes.index[sizes.ge(2)]
    if not len(several):
        return BesidePaper(name, paper, "", "unknown: no build of the run has two sizes from N = 3 on")
    grows = [" + ".join(build) for build in several if different[build] > 1]
    ours = f"{len(several) - len(grows)} of {len(several)} builds, N = {whole['n'].min()} to {whole['n'].max()}"
    return BesidePaper(name, paper, ours, f"no: {', '.join(grows)}" if grows else "yes", "loops-insns")


def _growth(loops: pd.DataFrame, column: str, cost: str, figure: str) -> Iterator[BesidePaper]:
    """The power of N with which a cost grows, from the newest compiler's two largest accepted N.

    A time has a row per repetition.
    """
    expected = {"rolled": "grows with N, unlike PREVAIL's", "unrolled": "grows with N; much less from 5.3 on"}
    accepted = loops[loops["verdict"].eq("accepted") & loops[column].notna()]
    for form, paper in expected.items():
        paper = "the more iterations the more" if column == "memory_bytes" else paper
        name, shown = f"double_strcmp {form}: {cost}", 0
        for label, of_kernel in _by_kernel(accepted[accepted["form"].eq(form)]):
            one = _newest_build(of_kernel)
            by_n = one.pivot_table(index="repetition", columns="n", values=column).iloc[:, -2:].astype(float)
            if by_n.shape[1] < 2 or (by_n <= 0).any(axis=None):
                continue
            build = one[["compiler", "mcpu"]].iloc[0]
            n, most = map(int, by_n.columns)
            value, at_most = by_n.median().tolist()
            power = np.log(at_most / value) / np.log(most / n)
            ours = f"{value:,.0f} at N = {n}, {at_most:,.0f} at N = {most} (power {power:.2f}; {' '.join(build)})"
            both = _pairs(by_n, column)
            verdict = _judged(column, both[most] > both[n], "no: it does not grow")
            shown += 1
            yield BesidePaper(f"{name}, {label}", paper, ours, verdict, figure)
        if not shown:
            yield BesidePaper(name, paper, "", "unknown: no kernel of the run has it for two sizes")


def _number(compiler: str) -> int:
    return int(compiler.split()[-1])


def _branches(linux: pd.DataFrame) -> Iterator[BesidePaper]:
    paper = "4.19 makes more than 5.0"
    for label, programs in _by_kernel(linux):
        counted = programs[programs["branches"].notna() & programs["insns"].notna() & programs["insns"].gt(0)]
        name = f"branches (push_stack calls) against instructions, {label}"
        if counted.empty:
            reasons = why_null(programs, "branches").dropna()
            yield BesidePaper(
                name, paper, "", f"unknown: {reasons.mode().iloc[0] if len(reasons) else 'nothing counted'}"
            )
            continue
        each = float(counted["branches"].sum() / counted["insns"].sum())
        ours = f"{each:.3f} per instruction, n = {len(counted)}"
        yield BesidePaper(name, paper, ours, "unknown: neither 4.19 nor 5.0 is available here", "branches")


def _most_iterations(largest: pd.DataFrame) -> BesidePaper:
    name, paper = "loop iterations that are accepted, by compiler", "most with clang 8"
    answers = largest.dropna(subset=["largest_n"]) if len(largest) else largest
    if answers.empty:
        return BesidePaper(name, paper, "", "unknown: the run did not look for the largest N")
    best = answers[answers["form"].eq("rolled")].groupby("compiler")["largest_n"].max()
    ours = ", ".join(f"{compiler}: {int(n)}" for compiler, n in best.items())
    if "clang 8" not in best:
        return BesidePaper(name, paper, ours, "unknown: no clang 8 here", "largest")
    return BesidePaper(name, paper, ours, "yes" if best.idxmax() == "clang 8" else "no: another has more", "largest")


def _instructions(loops: pd.DataFrame) -> Iterator[BesidePaper]:
    sizes = loops[loops["form"].eq("rolled")].pivot_table(
        index=["compiler", "mcpu"], columns="n", values="insns", aggfunc="first"
    )
    for build, counts in INSTRUCTIONS.items():
        name = f"instructions with 1, 2, ≥ 3 iterations, {' + '.join(build)}"
        paper = ", ".join(map(str, counts))
        if build not in sizes.index or not {1, 2, 3} <= set(sizes.columns):
            yield BesidePaper(name, paper, "", "unknown: this build is not in the run")
            continue
        ours = [int(count) - WIDE_LOADS for count in sizes[[1, 2, 3]].loc[[build]].iloc[0]]
        off = ", ".join(f"{mine - theirs:+d}" for mine, theirs in zip(ours, counts, strict=True))
        verdict = "yes" if tuple(ours) == counts else f"no: {off}"
        yield BesidePaper(name, paper, ", ".join(map(str, ours)), verdict, "instructions")
