"""Every study by its name, and the study a run belongs to. Add a line here for a new study."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from xdplab.errors import PlanError, ResultsError
from xdplab.later import later
from xdplab.run.rundir import RunDirectory
from xdplab.studies.points import study_of
from xdplab.trust import read_source
from xdplab.yaml_file import read_yaml

if TYPE_CHECKING:
    from xdplab.studies import plan_runs
    from xdplab.studies.every import AnyKind, AnyRun
    from xdplab.studies.frame import StudyKind
else:
    plan_runs = later("xdplab.studies.plan_runs")

STUDIES = ("verifier", "execution", "loading", "jit", "offload")


def study(name: str) -> StudyKind[Any, Any]:
    """Return the study of that name; it is loaded on demand."""
    kind: StudyKind[Any, Any] = importlib.import_module(f"xdplab.studies.{name}.runs").STUDY
    return kind


def kind_of(directory: RunDirectory) -> AnyKind:
    """Return the kind of a run: a study, a search, or XDP traffic.

    Raises ResultsError for a study that this version does not know.
    """
    name = study_of(directory)
    if name is None:
        return plan_runs.SEARCH if (directory.path / plan_runs.ASKED).exists() else plan_runs.TRAFFIC
    if name not in STUDIES:
        raise ResultsError(f"{directory.path} is a run of study {name!r}", remedy=f"known are {', '.join(STUDIES)}")
    return study(name)


def open_run(path: Path) -> AnyRun:
    """Open a run of any kind. Raises ResultsError if ``path`` is not a run."""
    return kind_of(RunDirectory.open(path)).open(path)


def request_in(plan: Path) -> tuple[StudyKind[Any, Any], Any] | None:
    """Return the study of a plan file that is to be measured, and its request; None for a plan of XDP traffic.

    Raises PlanError, StrangersFileError.
    """
    try:
        source = read_source(plan)
        written = read_yaml(source.text)
    except (OSError, ValueError, yaml.YAMLError):
        return None  # `load_plan` says what is wrong with it
    if not isinstance(written, dict) or written.get("study") not in STUDIES:
        return None
    source.require_trust("programs that are compiled and run")
    kind = study(written.pop("study"))
    return kind, request_of(kind, written, f"{plan}: ")


def request_of(kind: StudyKind[Any, Any], asked: Mapping[str, Any], where: str = "") -> Any:
    """Return what is asked of a study; lists become tuples. Raises PlanError for a name that is none of its fields."""
    known = {field.name for field in fields(kind.request)}
    for name in asked:
        if name not in known:
            raise PlanError(
                f"{where}{name}: no field of study {kind.name}", remedy=f"there are {', '.join(sorted(known))}"
            )
    return kind.request(**{name: tuple(v) if isinstance(v, list) else v for name, v in asked.items()})
