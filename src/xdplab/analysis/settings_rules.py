"""What costs time on the hosts and can change: the settings of each trial, compared between trials and runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import pandas as pd

from xdplab.analysis.findings import Finding, files_of, points_of
from xdplab.formats.settings import OF_PORT
from xdplab.text import many

TOLD = 5
ABSENT, EMPTY = "absent", "nothing"
_SEPARATOR = " or "


def settings_of(text: str) -> dict[str, str]:
    """Return the column `settings` as names and values; a machine's settings are the TG's too if it names no other."""
    shown: dict[str, str] = json.loads(text)
    dut = {name.removeprefix("dut "): value for name, value in shown.items() if name.startswith("dut ")}
    return {f"tg {name}": value for name, value in dut.items() if not name.startswith(OF_PORT)} | shown


def is_of_port(name: str) -> bool:
    """Whether it is a port's setting: points of a run may have different ones."""
    return name.partition(" ")[2].startswith(OF_PORT)


Values = dict[str, dict[str, list[pd.Index]]]
"""By name and value: the rows that have it, by groups."""


def values_by_scope(trials: pd.DataFrame) -> list[Values]:
    """Return the values of each group of trials whose settings should be equal: ports' by point, machines' by lab."""
    recorded = trials[trials["settings"].notna()]
    parsed = {text: settings_of(text) for text in recorded["settings"].unique()}
    names = list(dict.fromkeys(name for named in parsed.values() for name in named))
    scopes: dict[tuple[object, ...], Values] = {}
    places = ["lab", "point_id", "settings"]
    for (lab, point, text), rows in recorded.groupby(places, sort=False, dropna=False, observed=True):
        for name in names:
            value = parsed[text].get(name, ABSENT)
            where = str(lab), str(point)  # null is not equal to itself
            scope = scopes.setdefault(where if is_of_port(name) else where[:1], {})
            scope.setdefault(name, {}).setdefault(value, []).append(rows.index)
    return list(scopes.values())


def settings_differ(trials: pd.DataFrame) -> Iterator[Finding]:
    """What costs time on a host and can change is equal in all trials of a lab; of a port, in all repetitions of a
    point. `settings` has each trial's.
    """
    values_of: dict[str, dict[str, set[object]]] = {}
    for scope in values_by_scope(trials):
        for name, values in scope.items():
            if len(values) > 1:
                for value, labels in values.items():
                    values_of.setdefault(name, {}).setdefault(value, set()).update(*labels)
    if not values_of:
        return
    changed = {
        name: values for name, values in values_of.items() if values_of.get(f"dut {name.partition('tg ')[2]}") != values
    }
    changes = [f"{name} is {_counts(values)}" for name, values in changed.items()]
    more = f" and {len(changes) - TOLD} more" if len(changes) > TOLD else ""
    unlike: set[object] = set().union(*(labels for values in values_of.values() for labels in values.values()))
    rows = trials[trials.index.isin(unlike)]
    what = (
        f"settings of the hosts differ between trials that are averaged or compared: {'; '.join(changes[:TOLD])}{more}"
    )
    yield Finding(
        "settings differ", "warning", what, points_of(rows), {"settings": float(len(changed))}, files_of(rows)
    )


def _counts(values: Mapping[str, set[object]]) -> str:
    return _SEPARATOR.join(f"{value or EMPTY} in {many(len(labels), 'trial')}" for value, labels in values.items())


def settings_around(trials: pd.DataFrame, points: frozenset[str]) -> dict[str, str]:
    """Return each setting of a run's trials, all its values if they differ; ports' settings of ``points`` only."""
    shared = trials[trials["point_id"].isin(points)]
    settings: dict[str, dict[str, None]] = {}
    for rows, of_port in ((trials, False), (shared, True)):
        for text in rows["settings"].dropna().unique():
            for name, value in settings_of(text).items():
                if is_of_port(name) == of_port:
                    settings.setdefault(name, {})[value] = None
    return {name: _SEPARATOR.join(value or EMPTY for value in values) for name, values in settings.items()}
