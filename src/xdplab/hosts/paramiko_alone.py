"""paramiko without `invoke`, 120 modules that it would load for a part of ssh's configuration that is not read here."""

import sys

_held = sys.modules.get("invoke")
sys.modules["invoke"] = _held  # type: ignore[assignment]  # None: Python looks for no such module
import paramiko  # noqa: E402

if _held is None:
    del sys.modules["invoke"]

__all__ = ["paramiko"]
