"""What makes a process of ours start sooner. A library's user, in a notebook, has Python as it is."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable
from functools import cache
from typing import Any

COLLECTED = 100_000
"""Objects after which cycles are looked for: an import makes many that stay."""


def quickly() -> None:
    """Look for cycles of objects seldom, and compile a dataclass's methods when they are first called.

    Of 200 classes most are never made, and to compile all took a third of the time of loading them. `dataclasses` has
    no option for it; a version of Python that makes methods in another way compiles all.
    """
    gc.set_threshold(COLLECTED, 10, 10)
    if usual := getattr(dataclasses, "_create_fn", None):
        dataclasses._create_fn = lambda *what, **how: _compiled_later(usual, *what, **how)  # type: ignore[attr-defined]


def _compiled_later(compiled: Callable[..., Any], name: str, *what: Any, **how: Any) -> Callable[..., Any]:
    """Return a method that compiles itself, and takes its own place in the class, when it is first called."""

    @cache
    def code() -> Callable[..., Any]:
        made: Callable[..., Any] = compiled(name, *what, **how)
        made.__qualname__ = method.__qualname__
        return made

    def method(self: Any, /, *args: Any, **options: Any) -> Any:
        for one in type(self).__mro__:
            if vars(one).get(name) is method:
                setattr(one, name, code())
        return code()(self, *args, **options)

    method.__name__ = name
    return method
