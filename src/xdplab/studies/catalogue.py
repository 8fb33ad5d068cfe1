"""Every study by its name, and the study a run belongs to. A new study is a line here."""

from __future__ import annotations

import importlib
from typing import Any

from xdplab.errors import ResultsError
from xdplab.run.rundir import RunDirectory
from xdplab.studies.frame import Kind, study_of

STUDIES = ("verifier", "execution", "loading", "jit", "offload")


def study(name: str) -> Kind[Any, Any]:
    """Return the study of that name; one is loaded when it is asked for."""
    kind: Kind[Any, Any] = importlib.import_module(f"xdplab.studies.{name}").STUDY
    return kind


def kind_of(directory: RunDirectory) -> Kind[Any, Any] | None:
    """Return the study a run belongs to; None for a run of the XDP testbed.

    Raises ResultsError for a study that this version does not know.
    """
    name = study_of(directory)
    if name is None:
        return None
    if name not in STUDIES:
        raise ResultsError(f"{directory.path} is a run of study {name!r}", remedy=f"known are {', '.join(STUDIES)}")
    return study(name)
