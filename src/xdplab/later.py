"""Modules that are loaded when they are first used: a help text and an error wait for no table and no figure."""

from __future__ import annotations

import importlib
from typing import Any


class _Later:
    """Stands for a module until something of it is asked for; from then on it gives that module's attributes."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


def later(name: str) -> Any:
    """Return the module of that name, loaded when something of it is first asked for.

    For readers and type checkers the same module is imported as usual, under ``TYPE_CHECKING``.
    """
    return _Later(name)
