"""Modules that are loaded on first use: help texts and errors need not wait for libraries of tables and figures."""

from __future__ import annotations

import builtins
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from types import SimpleNamespace
from typing import Any


class _Lazy:
    """A stand-in for a module; it loads the module on first access and passes on its attributes."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute[0] == "_" and attribute != "__version__":  # asked of all objects by pytest, copy and inspect
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self._name), attribute)


lazy: Callable[[str], Any] = _Lazy
"""For a module that no import may name, such as one of a plug-in."""
_ONE_BLOCK = Lock()


@contextmanager
def lazily() -> Iterator[None]:
    """Let what a block imports wait until it is used, as ``lazy import`` does from Python 3.15 on; modules only."""
    with _ONE_BLOCK:
        block, usual = sys._getframe(2).f_globals, builtins.__import__

        def stand_in(name: str, *rest: Any, **more: Any) -> Any:
            if not rest or rest[0] is not block:  # another thread imports
                return usual(name, *rest, **more)
            if rest[2]:  # from NAME import …
                return SimpleNamespace(**{module: _Lazy(f"{name}.{module}") for module in rest[2]})
            below = name.partition(".")[2]
            return SimpleNamespace(**{below: _Lazy(name)}) if below else _Lazy(name)

        builtins.__import__ = stand_in
        try:
            yield
        finally:
            builtins.__import__ = usual
