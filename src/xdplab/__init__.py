"""xdplab: an XDP testbed that you drive from a notebook.

import xdplab as xl
lab = xl.lab("netns")
lab.measure(xl.program("array", accesses=1600), mode="native")
run = xl.plan(program=[xl.program("chase", accesses=n) for n in (0, 100, 400)]).start(lab)
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xdplab.notebook import compare, cost, lab, open, program, race, runs, study
    from xdplab.notebook import plan as plan

__all__ = ["compare", "cost", "history", "lab", "open", "plan", "program", "race", "runs", "study"]


class _Face(ModuleType):
    """The package with its verbs. Importing the package ``plan`` must not hide the verb of the same name."""

    def __dir__(self) -> list[str]:
        return [*__all__]

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Face


def __getattr__(name: str) -> Any:
    """Load the notebook's face when it is first used: the command line starts without pandas and matplotlib."""
    if name in __all__:
        return getattr(importlib.import_module("xdplab.notebook"), name)
    raise AttributeError(f"module 'xdplab' has no attribute {name!r}")
