"""Every kind of run by its name. Add a line here for a new study."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from xdplab.errors import ResultsError
from xdplab.lazy import lazily
from xdplab.run.rundir import SEARCHED, RunDirectory
from xdplab.trust import read_source
from xdplab.yaml_file import read_yaml

with lazily():
    from xdplab.studies import kept

if TYPE_CHECKING:
    from xdplab.studies.kind import Kind, Run

STUDIES = ("verifier", "execution", "loading", "jit", "offload", "outage", "neighbour", "cost")
MODULES = {
    "traffic": "xdplab.studies.traffic.kind:TRAFFIC",
    "search": "xdplab.studies.search.kind:SEARCH",
    "import": "xdplab.thesis.kind:IMPORT",
} | {name: f"xdplab.studies.{name}.runs:STUDY" for name in STUDIES}
"""Where each kind of run is. Its module is loaded on demand; the thesis may not be there."""


def kind_named(name: str) -> Kind[Any]:
    """Return the kind of that name, one of `MODULES`."""
    module, _, attribute = MODULES[name].partition(":")
    kind: Kind[Any] = getattr(importlib.import_module(module), attribute)
    return kind


def name_of(directory: RunDirectory) -> str:
    """Return the name of a run's kind, one of `MODULES`.

    Raises ResultsError for a kind that this installation does not have.
    """
    name = "import" if directory.imported else directory.plan_data.get("study")
    if name is None:
        return "search" if (directory.path / SEARCHED).exists() else "traffic"
    installed = [kind for kind in MODULES if kind != "import" or find_spec("xdplab.thesis")]
    if name not in installed:
        raise ResultsError(f"{directory.path} is a run of kind {name!r}", remedy=f"known are {', '.join(installed)}")
    return str(name)


def open_run(path: Path) -> Run[Any]:
    """Open a run of any kind. Raises ResultsError if ``path`` is not a run."""
    return run_in(RunDirectory.open(path))


def run_in(directory: RunDirectory) -> Run[Any]:
    """Return the run of a directory that is open: what was read of its journal is not read again."""
    kept.recall_journal(directory)
    return kind_named(name_of(directory)).run(directory)


def request_in(plan: Path) -> tuple[Kind[Any], Any] | None:
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
    kind = kind_named(written.pop("study"))
    assert kind.planning is not None  # each of `STUDIES` has one
    return kind, kind.planning.request_of(written, f"{plan}: ").within(plan.parent)
