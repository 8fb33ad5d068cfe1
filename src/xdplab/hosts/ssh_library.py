"""Paramiko without Invoke until that is used, by `Match exec` in a file of settings: half of the time to load it, for
asyncio and unittest."""

from __future__ import annotations

import sys
from typing import Any

from xdplab.lazy import lazy

modules: dict[str, Any] = sys.modules
if absent := "invoke" not in modules:
    modules["invoke"] = None  # an import of it fails, which Paramiko takes for "not installed"
try:
    import paramiko
    import paramiko.config
finally:
    if absent:
        del modules["invoke"]
if absent:
    vars(paramiko.config)["invoke"] = lazy("invoke")

__all__ = ["paramiko"]
