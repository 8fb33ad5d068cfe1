"""From repetitions to parts: medians of every step by who tells it; of each load, parts that add up to its whole."""

from __future__ import annotations

import pandas as pd

from xdplab.studies.loading.rows import FENTRY, GRAPH, LOG, SAMPLES, SYSTEM_CALL

SUBJECT = ["place", "label", "clock", "kind", "program", "form", "accesses"]
BPF_PARTS = ("open", "prepare", "verify", "jit", "rest of load", "attach")
MODULE_PARTS = ("read", "copy", "layout", "finish", "init")
PREFERRED = (GRAPH, FENTRY, LOG, SAMPLES)
"""Whose word on a part is taken where several have one: a trace before a log in whole µs before a share of samples."""

WHOLES = ("load", "insert")
_TOLD = (
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
    found = table.assign(value=table["ns"].fillna(table["instructions"]))
    return found.loc[found["value"].notna()]


def scaled(table: pd.DataFrame) -> pd.DataFrame:
    """Return `values`, times of watched passes brought to the untraced one.

    Where the clock is time, two passes differ by more than what watching costs: a part is then its share of its own
    repetition's system call, times the median of the untraced calls. Counts stay as they are.
    """
    found = values(table)
    wholes = found.loc[found["step"].isin(WHOLES)]
    untraced = wholes["source"].eq(SYSTEM_CALL)
    own = wholes.loc[~untraced, ["trial_id", "source", "repetition", "value"]].rename(columns={"value": "own"})
    plain = wholes.loc[untraced].groupby("trial_id")["value"].median().rename("plain").reset_index()
    joined = found.merge(own, on=["trial_id", "source", "repetition"], how="left").merge(
        plain, on="trial_id", how="left"
    )
    watched = joined["clock"].eq("time") & joined["own"].notna()
    shares = joined["value"] / joined["own"] * joined["plain"]
    return joined.assign(value=joined["value"].where(~watched, shares)).drop(columns=["own", "plain"])


def medians(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per subject, step and source: ``median``, quartiles ``low`` and ``high``, ``n`` repetitions."""
    groups = scaled(table).groupby([*SUBJECT, "task", "kernel", "step", "source"], dropna=False, sort=False)["value"]
    found = pd.DataFrame(
        {"median": groups.median(), "low": groups.quantile(0.25), "high": groups.quantile(0.75), "n": groups.size()}
    )
    return found.astype(float).reset_index()


def parts(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per loaded program: medians of its parts, which add up to ``whole``; null if not measured.

    ``load``, ``insert`` and ``whole`` are the untraced pass's; "rest of load" (``copy`` for a module) is what the
    watched parts leave of the system call.
    """
    found = medians(table)
    loads = found.loc[found["task"].eq("load")]
    own = loads.loc[~(loads["step"].isin(WHOLES) & loads["source"].ne(SYSTEM_CALL))]
    ranked = own.assign(rank=own["source"].map({name: at for at, name in enumerate(PREFERRED)}).fillna(-1))
    first = ranked.sort_values("rank", kind="stable").drop_duplicates([*SUBJECT, "step"])
    wide = _wide(first).reindex(columns=list(_TOLD))
    _divide_by_samples(wide, _wide(own.loc[own["source"].eq(SAMPLES)]).reindex(wide.index, columns=["verify", "jit"]))
    return _completed(wide, _compiled(table)).reset_index().sort_values(SUBJECT, na_position="first", ignore_index=True)


def _wide(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.set_index([*SUBJECT, "step"])["median"].unstack("step")


def _divide_by_samples(wide: pd.DataFrame, sampled: pd.DataFrame) -> None:
    """Divide the part of a load that the log leaves between JIT and rest, in the ratio of the profiler's samples."""
    by_samples = sampled["jit"].notna()
    remainder = sampled["jit"] / (wide["load"] - sampled["verify"])
    wide.loc[by_samples, "jit"] = ((wide["load"] - wide["verify"]) * remainder)[by_samples]


def _compiled(table: pd.DataFrame) -> pd.Index:
    """Return the subjects that the kernel made machine code of."""
    images = table.loc[table["step"].eq("jited") & table["bytes"].gt(0)]
    return images.groupby(SUBJECT, dropna=False).size().index


def _completed(wide: pd.DataFrame, compiled: pd.Index) -> pd.DataFrame:
    # No JIT is no part of a load; one that ran untimed leaves the rest unknown.
    jit = wide["jit"].where(wide["jit"].notna() | wide.index.isin(compiled), 0.0)
    wide["rest of load"] = wide["load"] - wide["verify"] - jit
    wide["copy"] = wide["insert"] - wide["load_module"]
    wide["layout"] = wide["load_module"] - wide["do_init_module"]
    wide["finish"] = wide["do_init_module"] - wide["init"]
    loaded = wide["open"] + wide["prepare"] + wide["load"] + wide["attach"]
    wide["whole"] = loaded.fillna(wide["read"] + wide["insert"])
    return wide
