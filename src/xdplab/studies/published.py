"""Published experiments that the studies repeat: what was published, what runs of today give, and whether they agree.

A study lists its experiments (`StudyKind.published`); this makes the page that sets them beside each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import pandas as pd

from xdplab.studies.tables import markdown

NOTHING = pd.DataFrame()
"""The table of a study without a run."""

CLOSE = 1.5
"""By what factor a ratio may differ from the published one and agree: other CPUs, kernels and compilers."""

SOURCES = {
    "modules": "A student project, 2021: BPF against kernel modules, Linux 5.10 in QEMU",
    "primes": "A blog, 2022: eBPF, and counting primes in BPF and in user space; Core i3-10110U, Linux 5.15",
    "Elbrus": "Slides: a BPF JIT for Elbrus, Linux 6.1",
}
"""Where each experiment was published."""


@dataclass(frozen=True)
class Ours:
    """What one place gives. ``value``: the number that is compared (a ratio, or a share); ``text``: with its parts."""

    place: str
    value: float
    text: str


@dataclass(frozen=True)
class Experiment:
    """One published experiment.

    ``source``: a name of `SOURCES`; ``figure``: where in it; ``published`` in words, ``value`` the number that ours is
    compared with (null: nothing is compared); ``ours`` finds it in a study's table; ``why``: what may explain a
    disagreement, which no run measures.
    """

    source: str
    figure: str
    what: str
    published: str
    value: float | None
    ours: Callable[[pd.DataFrame], Iterable[Ours]]
    why: str


def rows(experiments: Sequence[Experiment], table: pd.DataFrame, run: str | None = None) -> list[dict[str, Any]]:
    """Return a row per experiment and place that measured it; an experiment of no place has one that says so.

    ``run``: the number of the table's run in the page's list.
    """
    made: list[dict[str, Any]] = []
    for one in experiments:
        base: dict[str, Any] = {
            "source": one.source,
            "figure": one.figure,
            "experiment": one.what,
            "published": one.published,
        }
        found = list(one.ours(table)) if len(table) else []
        for mine in found:
            verdict = agrees(one, mine.value)
            why = None if verdict == YES else one.why
            measured = {"place": mine.place, "ours": mine.text, "agrees": verdict, "run": run}
            made.append(base | measured | {EXPLAINED: why})
        if not found:
            nothing = {"place": None, "ours": None, "agrees": "not measured in these runs", "run": None}
            made.append(base | nothing | {EXPLAINED: None})
    return made


YES, NO, NOT_COMPARED = "yes", "no", "–"
EXPLAINED = "our explanation, not measured"


def agrees(experiment: Experiment, value: float) -> str:
    """Return whether two ratios are on the same side of 1, or near it, and at most `CLOSE` apart."""
    if experiment.value is None:
        return NOT_COMPARED
    few, many = sorted((experiment.value, value))
    return YES if few > 0 and many <= CLOSE * few else NO


def latest(rows_of_runs: Iterable[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the rows of a study's runs in the order of its experiments.

    Of an experiment that several runs measured at one place, the last run's row is kept.
    """
    known: dict[str, dict[str | None, dict[str, Any]]] = {}
    for made in rows_of_runs:
        for row in made:
            known.setdefault(row["experiment"], {})[row["place"]] = row
    return [row for places in known.values() for row in places.values()]


def page(found: Mapping[str, Sequence[Mapping[str, Any]]], around: Sequence[str]) -> str:
    """Return the page of all rows by study, with what the runs were measured with."""
    every = pd.DataFrame([row for of_study in found.values() for row in of_study])
    order = {name: at for at, name in enumerate(SOURCES)}
    every = every.sort_values("source", key=lambda names: names.map(order), kind="stable")
    measured = every[every["place"].notna()]
    missing = every[every["place"].isna() & ~every["experiment"].isin(measured["experiment"])]
    parts = [
        "# Published experiments, and what we get",
        "`xdplab study published RUN …` makes this page from runs of the studies execution, loading and jit. "
        "A ratio agrees if it is at most a factor of "
        f"{CLOSE:g} from the published one. Counts are instructions in a guest that counts; times are of one place.",
        f"What is measured is in the column `ours`. The column `{EXPLAINED}` says what we think makes the difference: "
        "no run of this page measures it, and it may be wrong. Rows that begin with `a cause` measure one cause alone.",
        f"The rows are of {len(around)} {'run' if len(around) == 1 else 'runs'}: the column `run` has the number of "
        "each row's run in the list at the end, which has its request and its version of xdplab. Of an experiment that "
        "several runs measured at one place, the last run's row is shown.",
    ]
    for name, words in SOURCES.items():
        mine = pd.concat([measured, missing])
        mine = mine[mine["source"].eq(name)]
        if len(mine):
            parts += [f"## {words}", markdown(mine.drop(columns="source")).rstrip()]
    parts.append("## Measured with")
    numbered = "\n".join(f"{number}. {words}" for number, words in enumerate(around, 1))
    return "\n\n".join([*parts, numbered]) + "\n"


def asked(study: str, request: Any) -> str:
    """Return what a run was asked for, in words: the study, and every option that is not the default."""
    values = {one.name: (getattr(request, one.name), one.default) for one in fields(request)}
    given = {name.replace("_", " "): value for name, (value, default) in values.items() if value != default}
    said = [f"{name} {_listed(value)}".removesuffix(" True") for name, value in given.items()]
    return f"study {study} ({'; '.join(said)})" if said else f"study {study}"


def _listed(value: object) -> str:
    return ", ".join(str(one) for one in value) if isinstance(value, tuple | list) else str(value)


def ratio(upper: float, lower: float, unit: str, *names: str) -> str:
    """Return ``× 1.04 (47 by 45 instructions)``."""
    digits = ",.0f" if min(upper, lower) >= 10 else ",.3g"
    said = f" ({names[0]}, {names[1]})" if names else ""
    return f"× {upper / lower:.3g}: {upper:{digits}} by {lower:{digits}} {unit}{said}"
