"""Modules that are loaded on first use: help texts and errors need not wait for libraries of tables and figures."""

from __future__ import annotations

import importlib
from typing import Any


class _Lazy:
    """A stand-in for a module; it loads the module on first access and passes on its attributes."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute[0] == "_" and attribute != "__version__":  # asked of all objects by pytest, copy and inspect
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self._name), attribute)


def lazy(name: str) -> Any:
    """Return the module of that name; it is loaded on the first access to it.

    For readers and type checkers the same module is imported as usual, under ``TYPE_CHECKING``.
    """
    return _Lazy(name)
