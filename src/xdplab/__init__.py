"""xdplab: an XDP testbed you drive from a notebook.

import xdplab as xl
lab = xl.lab("netns")
lab.measure(xl.program("array", accesses=1600), mode="native")
run = xl.plan(program=[xl.program("chase", accesses=n) for n in (0, 100, 400)]).start(lab)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xdplab.notebook import compare, lab, open, plan, program

__all__ = ["compare", "lab", "open", "plan", "program"]


def __getattr__(name: str) -> Any:
    """Load the notebook's face when it is first used: the command line starts without pandas and matplotlib."""
    if name in __all__:
        return getattr(importlib.import_module("xdplab.notebook"), name)
    raise AttributeError(f"module 'xdplab' has no attribute {name!r}")
