"""Two runs side by side: differences of environment, warnings, then the comparison of their values."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

import pandas as pd

from xdplab.analysis import MARGIN
from xdplab.analysis.decide.calibration import Calibration
from xdplab.analysis.decide.compare import Drift, decide, drift, same_points
from xdplab.analysis.settings_rules import settings_around
from xdplab.run.rundir import RunDirectory
from xdplab.studies.comparing import ComparedRuns, Unlike, check_metric, check_runs, differences, names_of
from xdplab.studies.environment import flat
from xdplab.studies.kind import Run
from xdplab.studies.provenance import MOMENT
from xdplab.studies.traffic.run_files import run_plan
from xdplab.text import many

RATE = "forwarded_pps"


def compared(
    first: Run[Any],
    second: Run[Any],
    metric: str = "forwarded_pps",
    *,
    equal: Sequence[Run[Any]] = (),
    margin: float = MARGIN,
    calibration: Calibration | None = None,
) -> ComparedRuns:
    """Compare ``second`` to ``first``; ``equal`` are two or more runs that measured the same as each other.

    ``calibration`` stands in for them where there are none.

    Raises ResultsError if one of them is also compared, or is alone: a run has no spread by itself.
    """
    directories = first.directory, second.directory
    check_runs(*directories, [run.directory for run in equal])
    tables = [run.attempts() for run in (first, second)]
    settled = same_points(*(table.drop_duplicates("trial_id", keep="last", ignore_index=True) for table in tables))
    for directory, table in zip(directories, settled, strict=True):
        check_metric(table, metric, directory)
    names = names_of(*directories)
    doubts = {
        name: tuple(_doubts(run, table, metric))
        for name, run, table in zip(names, (first, second), tables, strict=True)
    }
    decision = decide(
        settled[0],
        settled[1],
        metric,
        equal=[run.rows() for run in equal] or calibration or (),
        margin=margin,
    )
    return ComparedRuns(metric, names, tuple(_unlike(first, second, *settled)), doubts, decision)


def _doubts(run: Run[Any], table: pd.DataFrame, metric: str) -> list[str]:
    doubts = [f"{one.rule}: {one.what}" for one in run.findings() if one.severity == "warning"]
    moved: Drift | None = drift(table, metric)
    if moved is not None and moved.told and metric != RATE:  # of the rate it is a finding
        doubts.append(
            f"drift: {metric} changed by {moved.share:+.1%} from the first to the last trial (p = {moved.p:.1g})"
        )
    return doubts


def _unlike(first: Run[Any], second: Run[Any], a: pd.DataFrame, b: pd.DataFrame) -> list[Unlike]:
    before, after = (run.around() for run in (first, second))
    unlike = differences(before, after)
    points = frozenset(a["point_id"]) & frozenset(b["point_id"])
    here, there = (settings_around(table, points) for table in (a, b))
    unlike += _of_machines(differences(here, there)) if here and there else []
    edited = changed_files(a, b, first.directory, second.directory)
    both = a.drop_duplicates("point_id").merge(b.drop_duplicates("point_id"), on="point_id")
    others = both["program_hash_x"].ne(both["program_hash_y"]) & ~both["program_name_x"].isin([e.what for e in edited])
    if changed := int(others.fillna(False).sum()):
        unlike.append(Unlike("program bytes", None, f"others at {changed} of {len(both)} points"))
    return [*edited, *unlike]


_CONTENTS = {"program_sha256": "program_name", "frames_sha256": "frames"}
"""Columns with the SHA-256 of files, and the columns with the files' names."""


def changed_files(a: pd.DataFrame, b: pd.DataFrame, first: RunDirectory | None, second: RunDirectory) -> list[Unlike]:
    """Return the users' files of one name that have other contents in the second run; ``first``: null for a baseline.

    The tables have the ids of `same_points`.
    """
    both = a.drop_duplicates("point_id").merge(b.drop_duplicates("point_id"), on="point_id")
    changed = []
    for content, name in _CONTENTS.items():
        other = both[both[f"{content}_x"].ne(both[f"{content}_y"]).fillna(False).astype(bool)]
        for row in other.drop_duplicates(f"{name}_x").to_dict("records"):
            lines = None
            if first is not None and content == "program_sha256":
                lines = _changed_lines(first, row["program_hash_x"], second, row["program_hash_y"])
            text = f"{row[f'{name}_x']} changed" + (f": {lines}" if lines else "")
            changed.append(Unlike(str(row[f"{name}_x"]), str(row[f"{content}_x"]), str(row[f"{content}_y"]), text))
    return changed


def _changed_lines(first: RunDirectory, old: object, second: RunDirectory, new: object) -> str | None:
    """Return how many lines of a program differ, or of the headers that it includes; None of a compiled object."""
    for name, of_what in (("program.c", ""), ("preprocessed.c", " of its headers")):
        paths = [run.program_dir(str(digest)) / name for run, digest in ((first, old), (second, new))]
        if not all(path.is_file() for path in paths):
            return None
        if changed := _differing(*(path.read_text(errors="replace").splitlines() for path in paths)):
            return many(changed, "line") + of_what
    return "comments of its headers, or files that its setup names"


def _differing(a: list[str], b: list[str]) -> int:
    """Return how many lines differ. The ends in common are left out first: a kernel's headers have 100,000 lines."""
    shorter = min(len(a), len(b))
    head = next((at for at in range(shorter) if a[at] != b[at]), shorter)
    tail = next((at for at in range(shorter - head) if a[-1 - at] != b[-1 - at]), shorter - head)
    steps = SequenceMatcher(a=a[head : len(a) - tail], b=b[head : len(b) - tail], autojunk=False).get_opcodes()
    return sum(max(i2 - i1, j2 - j1) for step, i1, i2, j1, j2 in steps if step != "equal")


def _of_machines(unlike: Sequence[Unlike]) -> list[Unlike]:
    """Return the differences, those of a machine that is both hosts once."""
    named = {(one.what, one.first, one.second) for one in unlike}
    return [one for one in unlike if (f"dut {one.what.partition('tg ')[2]}", one.first, one.second) not in named]


def around(run: RunDirectory) -> dict[str, str]:
    """Return the hosts' state before the last session, line by line, and the plan's times.

    Where that session had several labs, each line of a lab's hosts is under the lab's name.
    """
    facts = {f"trial.{k}": str(v) for k, v in run_plan(run).trial.model_dump().items()}
    before = [event for event in run.journal.events("hosts") if event["when"] == "before" and "place" not in event]
    states = [event["state"] for event in before if event["session"] == before[-1]["session"]]
    if not states:
        return facts
    facts["lab"] = ", ".join(str(state["lab"]) for state in states)
    facts |= {f"xdplab.{name}": str(value) for name, value in states[0]["xdplab"].items()}
    for state in states:
        under = f"{state['lab']}: " if len(states) > 1 else ""
        for host in ("dut", "tg"):
            for name, answer in state[host].items():
                if name not in _COUNTERS:
                    text = str(answer.get("value", f"absent: {answer.get('absent')}"))
                    facts |= flat(f"{under}{host} {name}", text)
    return facts


_COUNTERS = ("link", "memory", *MOMENT)
"""What differs between any two runs: interface numbers, counters, free memory."""
