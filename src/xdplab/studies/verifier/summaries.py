"""What is made of the study's rows: the tables (acceptance and causes of refusal, verifier against verifier, compilers,
largest N), and the sentences of its result."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pandas as pd

from xdplab.analysis.intervals import Spread
from xdplab.analysis.sentences import Estimate, span
from xdplab.analysis.values import three_digits
from xdplab.studies.meaning import Make, Meaning, table_with_line
from xdplab.studies.tables import Table
from xdplab.studies.verifier.corpora import TESTBED
from xdplab.studies.verifier.points import LINUX, VerifierPlan
from xdplab.studies.verifier.rows import largest_of
from xdplab.text import many

PROGRAM = ["sha256", "section", "program"]
ENVIRONMENT = ("environment", "no_type", "loader")
"""Verdicts about the machine or the loader, not about the verifier."""

ITERATIONS = {1: "i = 1", 2: "i = 2", 3: "i ≥ 3"}


TIMES = ("load_ns", "verify_ns")


def first_of_each(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per program and verifier: its times are medians, and nothing else changes with the repetition."""
    each = [*PROGRAM, "label"]
    medians = table.groupby(each, dropna=False)[list(TIMES)].transform("median")
    return table.assign(**{name: medians[name] for name in TIMES}).sort_values("repetition").drop_duplicates(each)


def corpora(table: pd.DataFrame) -> pd.DataFrame:
    """Return for each corpus how many objects and programs it has, and how many are unique by their instructions."""
    linux = table[table["verifier"] == LINUX]
    loaded = linux[linux["insns_hash"].notna()].drop_duplicates(PROGRAM).groupby("corpus")
    groups = linux.drop_duplicates(PROGRAM).groupby("corpus", sort=False)
    out = pd.DataFrame({"objects": groups["sha256"].nunique(), "programs": groups.size()})
    out["loaded"], out["unique"] = loaded.size(), loaded["insns_hash"].nunique()
    return out.fillna(0).astype(int).reset_index()


def acceptance(table: pd.DataFrame) -> pd.DataFrame:
    """Return one column per verifier: programs accepted of those it saw, then each cause of refusal with its count.

    ``reached the verifier`` excludes programs that the machine or the loader stopped before.
    """
    rows = first_of_each(table)
    labels = list(dict.fromkeys(rows["label"]))
    out = {label: _one_column(rows[rows["label"] == label]) for label in labels}
    frame = pd.DataFrame(out)
    first = ["accepted", "reached the verifier", "programs"]
    return (
        frame.loc[[*first, *sorted(set(frame.index) - set(first))]]
        .fillna(0)
        .astype(int)
        .rename_axis("programs")
        .reset_index()
    )


def _one_column(rows: pd.DataFrame) -> dict[str, int]:
    refused = rows[rows["verdict"] != "accepted"]
    kind = refused["verdict"].isin(ENVIRONMENT).map({True: "environment", False: "verifier"})
    causes = (kind + ": " + refused["cause"].fillna("?").map(general)).value_counts().to_dict()
    accepted = int((rows["verdict"] == "accepted").sum())
    stopped = int(refused["verdict"].isin(ENVIRONMENT).sum())
    whole = {"accepted": accepted, "reached the verifier": len(rows) - stopped, "programs": len(rows)}
    return whole | {str(cause): int(count) for cause, count in causes.items()}


REMEDIES = (
    ("nothing says what type", "--types FILE with a line OBJECT SECTION TYPE"),
    ("lockdown", "a kernel that is not locked down, such as a guest (--kernel 6.1)"),
    ("kernel configuration", "a kernel built with the option (--kernel bzImage)"),
    ("BTF", "a kernel built with CONFIG_DEBUG_INFO_BTF"),
    ("is not in this kernel", "a kernel that has it (--kernel VERSION)"),
    ("does not have", "a kernel that has it (--kernel VERSION)"),
    ("not available", "a newer kernel (--kernel VERSION)"),
    ("not supported by this kernel", "a newer kernel (--kernel VERSION)"),
    ("needs the JIT", "sysctl net.core.bpf_jit_enable=1"),
    ("without preallocation", "a newer kernel (--kernel VERSION)"),
    ("not permitted", "root, or a kernel that is not locked down"),
    ("map cannot be created", "a kernel that has the map's type (--kernel VERSION), or more memory"),
    ("version argument", "--types FILE with the right type"),
    ("is not said", "--targets FILE, which names the program to attach to"),
    ("no memory", "a machine with more memory"),
)
"""The remedy for a verdict that is due to the environment, by a part of its cause."""
NO_REMEDY = "none known: see the complaint"


def environment(table: pd.DataFrame) -> pd.DataFrame:
    """Return what stopped programs before each kernel's verifier, the remedy, and how many it helped in this run.

    ``accepted elsewhere``: programs that another kernel of the run accepts; ``by`` names the kernels.
    """
    linux = first_of_each(table[table["verifier"] == LINUX])
    accepted_by = linux[linux["verdict"].eq("accepted")].groupby(PROGRAM, dropna=False)["label"].agg(list).to_dict()
    stopped = linux[linux["verdict"].isin(ENVIRONMENT)]
    rows: list[dict[str, object]] = []
    for (label, cause), programs in stopped.groupby(
        ["label", stopped["cause"].fillna("?").map(general)], sort=False, dropna=False
    ):
        helped = [by for key in programs[PROGRAM].itertuples(index=False, name=None) if (by := accepted_by.get(key))]
        rows.append(
            {
                "kernel": label,
                "cause": cause,
                "programs": len(programs),
                "remedy": remedy(str(cause)),
                "accepted elsewhere": len(helped),
                "by": ", ".join(dict.fromkeys(name for names in helped for name in names)) or pd.NA,
            }
        )
    return pd.DataFrame(rows)


def remedy(cause: str) -> str:
    """Return what a user can change to get a program past a cause."""
    return next((advice for part, advice in REMEDIES if part in cause), NO_REMEDY)


_PLACES = (
    (re.compile(r" \(libbpf:.*", re.DOTALL), ""),
    (re.compile(r"^\d+(:\d+)?: (.*?)\s*(\(.*)?$"), r"\2"),  # PREVAIL: ``21: Upper bound … (r1 …)``
    (re.compile(r"^(unmarshaling error) at \d+"), r"\1"),
    (re.compile(r"^error: "), ""),
    (re.compile(r" \(at \d+\)$"), ""),
    (re.compile(r"'[^']*'"), "'…'"),
    (re.compile(r"\b(map_fd|function id) \d+"), r"\1 …"),
    (re.compile(r" \[\d+-\d+\)"), ""),
    (re.compile(r"\br\d+\."), ""),
)


def general(cause: str) -> str:
    """Return a cause without the place and the operands that differ from program to program."""
    for pattern, kept in _PLACES:
        cause = pattern.sub(kept, cause)
    return cause


def confusion(table: pd.DataFrame) -> pd.DataFrame:
    """Return how many programs the verifier of a row refuses and that of a column accepts; empty for a single verifier.

    Only programs that both judged count: something that a machine lacks is not a verdict of its verifier.
    `judged_together` has the number of these programs.
    """
    wide, labels = _judged(table)
    if len(labels) < 2:
        return pd.DataFrame()
    refused = {label: wide[label].notna() & wide[label].ne("accepted") for label in labels}
    counts = {
        column: [int((refused[row] & wide[column].eq("accepted")).sum()) if row != column else pd.NA for row in labels]
        for column in labels
    }
    return pd.DataFrame(counts, index=pd.Index(labels, name="refused by → accepted by"), dtype="Int64").reset_index()


def _judged(table: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the verdicts, a row per program and a column per verifier, and the verifiers in their order."""
    rows = first_of_each(table)
    judged = rows[~rows["verdict"].isin(ENVIRONMENT)]
    wide = judged.pivot_table(index="program_id", columns="label", values="verdict", aggfunc="first")
    return wide, [label for label in dict.fromkeys(rows["label"]) if label in wide]


def judged_together(table: pd.DataFrame) -> pd.DataFrame:
    """Return how many programs the verifiers of row and column both judged; ``alone``: those that no other judged."""
    wide, labels = _judged(table)
    if len(labels) < 2:
        return pd.DataFrame()
    has_verdict = wide[labels].notna()
    counts = {column: [int((has_verdict[row] & has_verdict[column]).sum()) for row in labels] for column in labels}
    alone = [int((has_verdict[row] & (has_verdict.sum(axis=1) == 1)).sum()) for row in labels]
    frame = pd.DataFrame(counts | {"alone": alone}, index=pd.Index(labels, name="judged by"), dtype="Int64")
    return frame.reset_index()


def instruction_counts(table: pd.DataFrame) -> pd.DataFrame:
    """Return instructions of double_strcmp after 1, 2 and ≥ 3 iterations by compiler and instruction set.

    Percentages are against the first compiler and set that has a program, as the published table does.
    """
    rows = table[(table["family"] == "double_strcmp") & (table["verifier"] == LINUX)]
    rows = rows[rows["form"].eq("rolled") & rows["exit"].eq("<") & rows["n"].isin(list(ITERATIONS))]
    wide = rows.pivot_table(index=["compiler", "mcpu"], columns="n", values="insns", aggfunc="first")
    out = pd.DataFrame({"compiled by": [f"{compiler} + {mcpu}" for compiler, mcpu in wide.index]})
    for n, heading in ITERATIONS.items():
        if n in wide:
            base = wide[n].dropna().iloc[0]
            out[heading] = [_against(value, base) for value in wide[n]]
    return out


def _against(value: float, base: float) -> str:
    if pd.isna(value):
        return ""
    return f"{value:.0f}" + ("" if value == base else f" ({(value / base - 1) * 100:+.2f} %)")


def headline(largest: pd.DataFrame) -> pd.DataFrame:
    """Return the largest N under the limit: one row per compiler and instruction set, one column per form, kernel."""
    if largest.empty:
        return largest
    named = largest.assign(
        compiled=largest["compiler"] + " + " + largest["mcpu"],
        column=largest["form"].fillna("") + ", " + largest["kernel"],
    )
    wide = named.pivot_table(index="compiled", columns="column", values="largest_n", aggfunc="first", dropna=False)
    return wide.astype("Int64").rename_axis("compiled by", axis=0).rename_axis(None, axis=1).reset_index()


def is_generated(table: pd.DataFrame) -> pd.Series:
    """Return which rows are of this project's own programs: families and the testbed's, not a user's corpus."""
    return (table["family"].notna() | table["corpus"].eq(TESTBED)).astype(bool)


def _unique(shown: pd.DataFrame, _table: pd.DataFrame) -> str:
    programs = many(int(shown["programs"].sum()), "program")
    return f"{shown['unique'].sum()} of {programs} differ in their instructions"


def _helped(shown: pd.DataFrame, _table: pd.DataFrame) -> str:
    stopped = f"{many(int(shown['programs'].sum()), 'program')} did not reach a verifier"
    helped = int(shown["accepted elsewhere"].sum())
    return f"{stopped}; another kernel accepts {helped} of them" if helped else stopped


def _disagreeing(shown: pd.DataFrame, _table: pd.DataFrame) -> str:
    by, *others = (str(name) for name in shown if name != "corpus")
    pairs = shown.melt(by, others, "accepted by", "count").dropna().sort_values("count", ascending=False)
    if pairs.empty:
        return ""
    most = pairs.iloc[0]
    if not most["count"]:
        return "no verifier refuses what another accepts"
    return f"{most[by]} refuses {many(int(most['count']), 'program')} that {most['accepted by']} accepts"


def _together(shown: pd.DataFrame, _table: pd.DataFrame) -> str:
    counts = shown[[name for name in shown if name not in ("corpus", "judged by", "alone")]]
    least, most = float(counts.min().min()), float(counts.max().max())
    return f"two verifiers both judged {_between(least, most)} programs"


def _by_compilers(shown: pd.DataFrame, _table: pd.DataFrame) -> str:
    cells = shown.drop(columns="compiled by").stack().str.extract(r"\(([-+].*) %\)")[0].dropna().astype(float)
    sizes = f"{cells.min():+.2f} to {cells.max():+.2f} %"
    return f"the instructions of the other builds differ by {sizes} from the first" if len(cells) else ""


TABLES: dict[str, tuple[str, Make, Meaning]] = {
    "corpora": ("What was verified", corpora, _unique),
    "acceptance": (
        "Programs accepted, and the causes of refusal", acceptance, lambda _, table: _accepted(table),
    ),
    "environment": ("What stopped programs before a verifier, and its remedy", environment, _helped),
    "confusion": ("Programs that the verifier of a row refuses and that of a column accepts", confusion, _disagreeing),
    "judged": (
        "Programs that two verifiers both judged: what the table before counts among", judged_together, _together,
    ),
    "instructions": (
        "Instructions of double_strcmp by compiler and instruction set", instruction_counts, _by_compilers,
    ),
}  # fmt: skip


APART = ("acceptance", "environment", "confusion", "judged")


def _by_corpus(build: Callable[[pd.DataFrame], pd.DataFrame], table: pd.DataFrame) -> pd.DataFrame:
    """Return the table of each corpus, under a column that names it where there are several."""
    parts = {str(name): rows for name, rows in table.groupby("corpus", sort=False, dropna=False)}
    if len(parts) < 2:
        return build(table)
    frames = {name: build(rows) for name, rows in parts.items()}
    for name, frame in frames.items():
        frame.insert(0, "corpus", name)
    return pd.concat(frames.values(), ignore_index=True)


def tables_of(table: pd.DataFrame, largest: pd.DataFrame) -> dict[str, Table]:
    """Return every table; one without content is empty.

    Corpora and generated programs have separate acceptance tables, because generated sizes are chosen to reach the
    limits. Each of several corpora, or families, has its own rows.
    """
    generated = is_generated(table)
    tables = {}
    for name, (title, build, meaning) in TABLES.items() if len(table) else ():
        if name not in APART:
            tables[name] = table_with_line(title, build(table), meaning, table)
            continue
        for end, more, rows in (("", "", table[~generated]), ("-generated", ": generated programs", table[generated])):
            if len(rows):
                tables[f"{name}{end}"] = table_with_line(f"{title}{more}", _by_corpus(build, rows), meaning, rows)
    title = "Largest N of double_strcmp that is accepted (limit of processed instructions)"
    return tables | {"largest": table_with_line(title, headline(largest), lambda *_: _largest(largest), table)}


MOST_NAMED = 4
MUCH_WORK = 1000
"""Instructions to process from which on the cost of one is not that of starting a load."""


def results(plan: VerifierPlan, table: pd.DataFrame) -> Iterable[str]:
    """Return the programs accepted and the largest of them, the cost of an instruction to process, and how the work
    grows with a program's size."""
    accepted = "; ".join(filter(None, (_accepted(table), _largest(largest_of(plan)))))
    return accepted, _cost(table), _growth(table)


def _accepted(table: pd.DataFrame) -> str:
    each = first_of_each(table)
    judged = each[~each["verdict"].isin(ENVIRONMENT)]
    texts = []
    for label, rows in judged.groupby("label", sort=False):
        refused = rows[rows["verdict"].ne("accepted")]
        causes = refused["cause"].fillna("no cause given").map(general).value_counts()
        why = f", most often not for: {causes.index[0]}" if len(causes) else ""
        texts.append(f"{label} accepts {len(rows) - len(refused)} of {many(len(rows), 'program')}{why}")
    return _first(texts, "verifiers")


def _first(texts: list[str], what: str) -> str:
    more = len(texts) - MOST_NAMED
    return "; ".join(texts[:MOST_NAMED]) + (f"; {more} more {what}" if more > 0 else "")


def _largest(largest: pd.DataFrame) -> str:
    if largest.empty or largest["largest_n"].isna().all():
        return ""
    sizes = {str(form): rows["largest_n"].dropna().astype(int) for form, rows in largest.groupby("form", sort=True)}
    texts = [f"{_between(one.min(), one.max())} {form}" for form, one in sizes.items() if len(one)]
    return f"the largest loop within its limit has N = {' and '.join(texts)}"


def _between(least: float, most: float) -> str:
    first, last = three_digits(least), three_digits(most)
    return first if first == last else f"{first} to {last}"


def _cost(table: pd.DataFrame) -> str:
    worked = table[table["verifier"].eq(LINUX) & table["processed_insns"].ge(MUCH_WORK)]
    texts = []
    for column, unit, counted in (("verify_ns", " ns", False), ("verify_instructions", " instructions", True)):
        for label, rows in worked.dropna(subset=[column]).groupby("label", sort=False):
            families = rows["family"].fillna(rows["corpus"]).str.cat(rows["form"], sep=" ", na_rep="").str.strip()
            values = [(str(name), _of_one(of_family, column)) for name, of_family in rows.groupby(families, sort=False)]
            texts.append(f"{span(values, unit, exact=counted)}, {label}")
    return f"an instruction that the verifier looks at costs {_first(texts, 'kernels')}" if texts else ""


def _of_one(rows: pd.DataFrame, column: str) -> Estimate:
    """Return the cost of an instruction: the mean over a family's programs, with its interval over repetitions."""
    logs = (rows[column].astype(float) / rows["processed_insns"].astype(float)).map(np.log)
    joint = Spread.of(logs.groupby(rows["repetition"]).mean())
    return Estimate(*np.exp([joint.mean, joint.low, joint.high]).tolist())


def _growth(table: pd.DataFrame) -> str:
    sized = table[table["verifier"].eq(LINUX) & table["n"].notna() & table["processed_insns"].gt(0)]
    texts = [text for family, rows in sized.groupby("family", sort=False) for text in _powers(str(family), rows)]
    return f"the work grows {_first(texts, 'families')}" if texts else ""


def _powers(family: str, rows: pd.DataFrame) -> Iterator[str]:
    """Give the power of N by which a family's work grows, from the middle of its sizes to the largest, by form.

    Two sizes are no trend: then, how many times it grows. A size that one build or kernel refuses is left out: the work
    ends there at the limit.
    """
    for form, of_form in rows.assign(form=rows["form"].fillna("")).groupby("form", sort=True):
        whole = of_form[of_form["verdict"].eq("accepted").groupby(of_form["n"]).transform("all")]
        work = whole.groupby("n")["processed_insns"].median().astype(float).sort_index()
        if len(work) < 2:
            continue
        upper = work.iloc[-max(2, len(work) // 2) :]
        (first, last), ends = (upper.index[0], upper.index[-1]), np.log([upper.iloc[0], upper.iloc[-1]])
        power = (ends[1] - ends[0]) / np.log(last / first)
        grows = f"with N^{power:.2f}" if len(work) > 2 else f"{three_digits(work.iloc[-1] / work.iloc[0])} times"
        yield f"{grows} ({' '.join(filter(None, (family, str(form))))}, N = {first} to {last})"
