"""Every kind of run by its name. Add a line here for a new study."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from xdplab.errors import PlanError, ResultsError
from xdplab.run.rundir import RunDirectory
from xdplab.studies.points import study_of
from xdplab.trust import read_source
from xdplab.yaml_file import read_yaml

if TYPE_CHECKING:
    from xdplab.studies.every import AnyRun
    from xdplab.studies.frame import StudyKind

STUDIES = ("verifier", "execution", "loading", "jit", "offload")
PLACES = {
    "traffic": "xdplab.studies.traffic.kind:PlanRun",
    "search": "xdplab.studies.search.kind:SearchRun",
    "import": "xdplab.thesis.kind:ImportRun",
} | {name: f"xdplab.studies.{name}.runs:STUDY" for name in STUDIES}
"""Where each kind is: what has ``open(directory)``. Its module is loaded on demand; the thesis may not be there."""

SEARCHED = "search.json"
"""The file with a search's options in its run: a continued search must use the same."""


def study(name: str) -> StudyKind[Any, Any]:
    """Return the study of that name."""
    kind: StudyKind[Any, Any] = _loaded(name)
    return kind


def _loaded(kind: str) -> Any:
    module, _, name = PLACES[kind].partition(":")
    return getattr(importlib.import_module(module), name)


def kind_named(directory: RunDirectory) -> str:
    """Return the name of a run's kind, one of `PLACES`.

    Raises ResultsError for a kind that this installation does not have.
    """
    name = "import" if directory.imported else study_of(directory)
    if name is None:
        return "search" if (directory.path / SEARCHED).exists() else "traffic"
    known = [kind for kind in PLACES if kind != "import" or find_spec("xdplab.thesis")]
    if name not in known:
        raise ResultsError(f"{directory.path} is a run of kind {name!r}", remedy=f"known are {', '.join(known)}")
    return name


def open_run(path: Path) -> AnyRun:
    """Open a run of any kind. Raises ResultsError if ``path`` is not a run."""
    directory = RunDirectory.open(path)
    run: AnyRun = _loaded(kind_named(directory)).open(directory)
    return run


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
