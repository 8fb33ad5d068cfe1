"""From repetitions to parts: medians of every step by source; for each load, parts that add up to its whole."""

from __future__ import annotations

import pandas as pd

from xdplab.analysis.intervals import Spread
from xdplab.studies.loading.rows import CLOCK, FENTRY, GRAPH, LOG, SAMPLES, SYSTEM_CALL

SUBJECT = ["place", "label", "clock", "kind", "program", "form", "accesses"]
BPF_PARTS = ("open", "prepare", "verify", "jit", "rest of load", "attach")
MODULE_PARTS = ("read", "copy", "layout", "finish", "init")
PREFERRED = (GRAPH, FENTRY, LOG, SAMPLES)
"""The preferred source of a part: a trace, then a log in whole µs, then a share of samples."""

WHOLES = ("load", "insert")
_BPF_WHOLE, _MODULE_WHOLE = ("open", "prepare", "load", "attach"), ("read", "insert")
_UNTRACED = _BPF_WHOLE + _MODULE_WHOLE
_STEPS = (
    "open",
    "prepare",
    "load",
    "verify",
    "jit",
    "attach",
    "read",
    "insert",
    "load_module",
    "do_init_module",
    "init",
)


def values(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that hold a duration, with it as ``value``: ns, or instructions where the clock counts those."""
    valued = table.assign(value=table["ns"].fillna(table["instructions"]))
    return valued.loc[valued["value"].notna()]


def scaled(table: pd.DataFrame) -> pd.DataFrame:
    """Return `values`, with times of traced passes scaled to the untraced one.

    If the clock is time, two passes differ by more than the cost of tracing: a part is then its share of its own
    repetition's system call, times the median of the untraced calls. Counts stay unchanged.
    """
    valued = values(table)
    wholes = valued.loc[valued["step"].isin(WHOLES)]
    untraced = wholes["source"].eq(SYSTEM_CALL)
    whole = wholes.loc[~untraced, ["trial_id", "source", "repetition", "value"]].rename(columns={"value": "own"})
    plain = wholes.loc[untraced].groupby("trial_id")["value"].median().rename("plain").reset_index()
    joined = valued.merge(whole, on=["trial_id", "source", "repetition"], how="left").merge(
        plain, on="trial_id", how="left"
    )
    watched = joined["clock"].eq("time") & joined["own"].notna()
    shares = joined["value"] / joined["own"] * joined["plain"]
    return joined.assign(value=joined["value"].where(~watched, shares)).drop(columns=["own", "plain"])


def medians(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per subject, step and source: ``median``, its 95 % interval ``low`` to ``high``, ``n``.

    ``n`` is the number of repetitions. Fewer than six repetitions have no such interval: it is null.
    """
    return _middle(scaled(table), [*SUBJECT, "task", "kernel", "step", "source"])


def _middle(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    groups = rows.groupby(by, dropna=False, sort=False)["value"]
    keys = groups.size().index
    spreads = [vars(Spread.of(values, "ranks")) for _, values in groups]  # no row at all where no load was measured
    middle = pd.DataFrame(spreads, columns=["median", "n", "low", "high"], index=keys)
    return middle.astype(float).reset_index()


def wholes(table: pd.DataFrame) -> pd.DataFrame:
    """Return `medians` of whole loads, one row per loaded program: each repetition's steps summed, untraced.

    The median of such sums differs from the sum of the steps' medians, which is ``whole`` of `parts`, where the
    repetitions spread.
    """
    valued = values(table)
    rows = valued.loc[
        valued["task"].eq("load") & valued["step"].isin(_UNTRACED) & valued["source"].isin((CLOCK, SYSTEM_CALL))
    ]
    each = rows.pivot_table(index=[*SUBJECT, "repetition"], columns="step", values="value", dropna=False)
    each = each.reindex(columns=list(_UNTRACED)).dropna(how="all")
    bpf, module = (each[list(steps)].sum(axis=1, skipna=False) for steps in (_BPF_WHOLE, _MODULE_WHOLE))
    summed = bpf.fillna(module).dropna().rename("value").reset_index()
    return _middle(summed, SUBJECT)


def parts(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per loaded program: medians of its parts, which add up to ``whole``; null if not measured.

    ``load``, ``insert`` and ``whole`` are the untraced pass's; "rest of load" (``copy`` for a module) is what the
    watched parts leave of the system call.
    """
    chosen, first = _preferred_steps(table)
    wide = _wide(first).reindex(columns=list(_STEPS))
    _divide_by_samples(
        wide, _wide(chosen.loc[chosen["source"].eq(SAMPLES)]).reindex(wide.index, columns=["verify", "jit"])
    )
    return _completed(wide, _compiled(table)).reset_index().sort_values(SUBJECT, na_position="first", ignore_index=True)


def part_intervals(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per subject and part with the 95 % interval of its median, ``low`` to ``high``.

    Only parts that were timed themselves have one: what remains of a whole was not timed, and a profiler has no
    repetitions.
    """
    _, first = _preferred_steps(table)
    timed = first.loc[first["step"].isin((*BPF_PARTS, *MODULE_PARTS)) & first["low"].notna()]
    return timed[[*SUBJECT, "step", "low", "high"]]


def _preferred_steps(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the `medians` of loads, and of these the one per step that is preferred."""
    middle = medians(table)
    loads = middle.loc[middle["task"].eq("load")]
    chosen = loads.loc[~(loads["step"].isin(WHOLES) & loads["source"].ne(SYSTEM_CALL))]
    ranked = chosen.assign(rank=chosen["source"].map({name: at for at, name in enumerate(PREFERRED)}).fillna(-1))
    return chosen, ranked.sort_values("rank", kind="stable").drop_duplicates([*SUBJECT, "step"])


def _wide(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.set_index([*SUBJECT, "step"])["median"].unstack("step")


def _divide_by_samples(wide: pd.DataFrame, sampled: pd.DataFrame) -> None:
    """Split the part of a load outside the log's time into JIT and rest, in the ratio of the profiler's samples."""
    by_samples = sampled["jit"].notna()
    remainder = sampled["jit"] / (wide["load"] - sampled["verify"])
    wide.loc[by_samples, "jit"] = ((wide["load"] - wide["verify"]) * remainder)[by_samples]


def _compiled(table: pd.DataFrame) -> pd.Index:
    """Return the subjects that the kernel made machine code of."""
    images = table.loc[table["step"].eq("jited") & table["bytes"].gt(0)]
    return images.groupby(SUBJECT, dropna=False).size().index


def _completed(wide: pd.DataFrame, compiled: pd.Index) -> pd.DataFrame:
    # Without a JIT there is no such part; if it ran untimed, the rest is unknown.
    jit = wide["jit"].where(wide["jit"].notna() | wide.index.isin(compiled), 0.0)
    wide["rest of load"] = wide["load"] - wide["verify"] - jit
    wide["copy"] = wide["insert"] - wide["load_module"]
    wide["layout"] = wide["load_module"] - wide["do_init_module"]
    wide["finish"] = wide["do_init_module"] - wide["init"]
    loaded, inserted = (wide[list(steps)].sum(axis=1, skipna=False) for steps in (_BPF_WHOLE, _MODULE_WHOLE))
    wide["whole"] = loaded.fillna(inserted)
    return wide
