"""Published experiments that the studies repeat: what was published, what runs of today give, and whether they agree.

A study lists its experiments in its module ``published``; this makes the page that sets them beside each other.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain
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


def experiments(study: str) -> Sequence[Experiment]:
    """Return the published experiments that a study repeats."""
    rows: Sequence[Experiment] = importlib.import_module(f"xdplab.studies.{study}.published").EXPERIMENTS
    return rows


def rows(experiments: Sequence[Experiment], table: pd.DataFrame, run: str | None = None) -> list[dict[str, Any]]:
    """Return a row per experiment and place that measured it; an experiment of no place has one that says so.

    ``run``: the number of the table's run in the page's list.
    """
    return [
        {
            "source": experiment.source,
            "figure": experiment.figure,
            "experiment": experiment.what,
            "published": experiment.published,
            **result,
        }
        for experiment in experiments
        for result in _results(experiment, table, run)
    ]


def _results(experiment: Experiment, table: pd.DataFrame, run: str | None) -> Iterator[dict[str, Any]]:
    results = list(experiment.ours(table)) if len(table) else []
    for ours in results:
        verdict = agrees(experiment, ours.value)
        why = None if verdict == YES else experiment.why
        yield {"place": ours.place, "ours": ours.text, "agrees": verdict, "run": run, EXPLAINED: why}
    if not results:
        yield {"place": None, "ours": None, "agrees": "not measured in these runs", "run": None, EXPLAINED: None}


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
    by_experiment: dict[str, dict[str | None, dict[str, Any]]] = {}
    for row in chain.from_iterable(rows_of_runs):
        by_experiment.setdefault(row["experiment"], {})[row["place"]] = row
    return [row for places in by_experiment.values() for row in places.values()]


def page(rows: Iterable[Mapping[str, Any]], around: Sequence[str]) -> str:
    """Return the page of the rows of all studies, with what the runs were measured with."""
    table = pd.DataFrame(list(rows))
    measured = table[table["place"].notna()]
    missing = table[table["place"].isna() & ~table["experiment"].isin(measured["experiment"])]
    shown = pd.concat([measured, missing])
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
    for name, title in SOURCES.items():
        of_source = shown[shown["source"].eq(name)]
        if len(of_source):
            parts += [f"## {title}", markdown(of_source.drop(columns="source")).rstrip()]
    parts.append("## Measured with")
    numbered = "\n".join(f"{number}. {title}" for number, title in enumerate(around, 1))
    return "\n\n".join([*parts, numbered]) + "\n"


def request_text(study: str, request: Any) -> str:
    """Return what a run was asked for: the study, and every option that is not the default."""
    values = {field.name: (getattr(request, field.name), field.default) for field in fields(request)}
    given = {name.replace("_", " "): value for name, (value, default) in values.items() if value != default}
    options = [f"{name} {_listed(value)}".removesuffix(" True") for name, value in given.items()]
    return f"study {study} ({'; '.join(options)})" if options else f"study {study}"


def _listed(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def ratio(place: object, upper: float, lower: float, unit: str, note: str = "") -> Ours:
    """Return the ratio of two costs at a place, as ``× 1.04: 47 by 45 instructions``."""
    digits = ",.0f" if min(upper, lower) >= 10 else ",.3g"
    text = f"× {upper / lower:.3g}: {upper:{digits}} by {lower:{digits}} {unit}{note}"
    return Ours(str(place), upper / lower, text)
