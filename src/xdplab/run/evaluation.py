"""The values that functions compute of one source: each value is computed once, when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from xdplab.absent import Absent

S = TypeVar("S")


class Evaluation(Mapping[str, Any], Generic[S]):
    """The values that ``functions`` compute from a source, by name. One that raises `Absent` is None, and has a reason.

    A function may ask the evaluation of its source for other values, in any order.
    """

    def __init__(self, functions: Mapping[str, Callable[[S], object]], source: S) -> None:
        self._functions = functions
        self._source = source
        self._values: dict[str, object] = {}
        self._reasons: dict[str, str] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            try:
                self._values[name] = self._functions[name](self._source)
            except Absent as absent:
                self._values[name] = None
                self._reasons[name] = str(absent)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def require(self, name: str) -> Any:
        """Return a value. Raises Absent with its own reason if it does not exist."""
        if self[name] is None:
            raise Absent(self._reasons[name])
        return self[name]

    def reason(self, name: str) -> str | None:
        """Return why a value does not exist; None if it does."""
        return None if self[name] is not None else self._reasons[name]
