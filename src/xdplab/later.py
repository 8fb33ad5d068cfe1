"""Modules that are loaded on first use: help texts and errors need not wait for libraries of tables and figures."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Collection, Mapping
from types import ModuleType
from typing import Any


class _Later:
    """A stand-in for a module; it loads the module on first access and passes on its attributes."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


def later(name: str) -> Any:
    """Return the module of that name; it is loaded on the first access to it.

    For readers and type checkers the same module is imported as usual, under ``TYPE_CHECKING``.
    """
    return _Later(name)


class _Called(ModuleType):
    """A module that replaced a function of the same name, and can still be called like it."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        name = self.__name__.rpartition(".")[2]
        _say_where(self.__name__, f"{self.__name__}.{name}")
        return getattr(self, name)(*arguments, **named)


def former(package: str, names: Mapping[str, str], functions: Collection[str] = ()) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a package that still offers its former names, each with a DeprecationWarning.

    ``names`` has the present place of each: a module, or ``module:name`` if its name changed too. ``functions`` are
    those whose name is now a module of the package. The next release removes them.
    """

    class Package(ModuleType):
        def __setattr__(self, name: str, value: Any) -> None:
            if name in functions and isinstance(value, ModuleType):
                value.__class__ = _Called
            super().__setattr__(name, value)

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, present = names[name].partition(":")
        _say_where(f"{package}.{name}", f"{module}.{present or name}")
        return getattr(importlib.import_module(module), present or name)

    sys.modules[package].__class__ = Package
    return get


def _say_where(old: str, new: str) -> None:
    warnings.warn(f"{old} is {new} now; the old name ends with the next release", DeprecationWarning, stacklevel=3)
