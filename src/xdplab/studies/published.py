"""Published experiments that the studies repeat: what was published, what runs of today give, and whether they agree.

A study lists its experiments in its module ``published``; this makes the page that sets them beside each other.
"""

from __future__ import annotations

import importlib
import re
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


COUNTED = "instructions counted"
"""In the name of a place whose clock counts instructions."""

PLACED = re.compile(r" \((?:this machine|uml|vm:\S+)\)$")
"""A setting of one place, as `environment.summary` writes it."""

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


def page(rows: Iterable[Mapping[str, Any]], around: Sequence[Sequence[str]]) -> str:
    """Return the page of the rows of all studies. ``around``: what each run was measured with, its request first."""
    table = pd.DataFrame(list(rows))
    measured = table[table["place"].notna()]
    missing = table[table["place"].isna() & ~table["experiment"].isin(measured["experiment"])]
    shown = pd.concat([measured, missing])
    parts = [
        "# Published experiments, and what we get",
        "`xdplab study published RUN …` makes this page from runs of the studies execution, loading and jit. "
        f"A cell begins with `{NO}` if its ratio is more than a factor of {CLOSE:g} from the published one. "
        "Counts are instructions in a guest that counts; times are of one place.",
        f"The column `{EXPLAINED}` says what we think makes the difference: no run of this page measures it, and it "
        "may be wrong. Rows that begin with `a cause` measure one cause alone.",
        "The column `runs` has the numbers of a row's runs in the list at the end. If several runs measured an "
        "experiment at one place, the page has the last one's result.",
    ]
    for name, title in SOURCES.items():
        of_source = shown.loc[shown["source"].eq(name)]
        if len(of_source):
            parts += [f"## {title}", markdown(_by_experiment(of_source)).rstrip()]
    return "\n\n".join([*parts, "## Measured with", *_measured_with(around)]) + "\n"


def _by_experiment(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a row per experiment, with a column per place."""
    places = rows["place"].dropna().unique()
    table = []
    for (figure, experiment, published), results in rows.groupby(["figure", "experiment", "published"], sort=False):
        at = {row["place"]: _cell(row) for row in results.to_dict("records")}
        runs = ", ".join(sorted(results["run"].dropna().unique(), key=int)) or results["agrees"].iloc[0]
        why = next(iter(results[EXPLAINED].dropna()), None)
        head = {"figure": figure, "experiment": experiment, "published": published}
        table.append(head | {place: at.get(place) for place in places} | {"runs": runs, EXPLAINED: why})
    return pd.DataFrame(table)


def _cell(row: Mapping[Any, Any]) -> str | None:
    """Return one place's result; the unit stands once, in the place's name, if that says that instructions counted."""
    place, ours = str(row["place"]), row["ours"]
    shown = str(ours).replace(" instructions", "") if COUNTED in place else ours
    return f"{NO}: {shown}" if row["agrees"] == NO else shown


def _measured_with(around: Sequence[Sequence[str]]) -> list[str]:
    """Return what is the same for all runs, once, then the numbered list of runs with what is particular to each."""
    shared = [part for part in around[0] if len(around) > 1 and all(part in of_run for of_run in around)]
    particular = ["; ".join(_places_together(part for part in run if part not in shared)) for run in around]
    numbered = "\n".join(f"{number}. {text}" for number, text in enumerate(particular, 1))
    return [f"All runs: {'; '.join(shared)}.", numbered] if shared else [numbered]


def _places_together(parts: Iterable[str]) -> list[str]:
    """Return the parts, those that say the same of several places, ``SETTING (PLACE)``, as one."""
    places: dict[str, list[str]] = {}
    for part in parts:
        setting, _, place = part.removesuffix(")").rpartition(" (") if PLACED.search(part) else (part, "", "")
        places.setdefault(setting, []).append(place)
    return [f"{setting} ({', '.join(where)})" if any(where) else setting for setting, where in places.items()]


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
