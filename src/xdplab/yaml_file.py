"""YAML files of users, read with a limit, because a few lines of aliases can stand for billions of values."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import yaml

MOST_VALUES = 100_000
"""More values than any plan or inventory has after its aliases are expanded."""


class _Loader(yaml.SafeLoader):
    """A loader with the numbers of YAML 1.2, and no dates: ``010``, ``1:10`` and ``0000:03:00.0``, which YAML 1.1 reads
    as 8, 70 and 180.0, stay text, as ``2026-11-26`` and ``1e3`` do."""


_INT, _FLOAT, _DATE = (f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "timestamp"))
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in (_INT, _FLOAT, _DATE)]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_INT, re.compile(r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F]+)$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    _FLOAT,
    re.compile(r"(?:[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"),
    list("-+.0123456789"),
)


def read_yaml(text: str) -> Any:
    """Return the value of ``text``. Raises yaml.YAMLError, also if it is too large or refers to itself."""
    try:
        node = composed(text)
        return None if node is None else _Loader("").construct_document(node)
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply") from None


@lru_cache(maxsize=8)
def composed(text: str) -> yaml.Node | None:
    """Return the checked tree of a text: a command reads the plan of its run ten times, and composing takes longest."""
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
    finally:
        loader.dispose()
    if node is not None:
        _require_single_keys(node, set())
        if _values(node, {}) > MOST_VALUES:
            raise yaml.YAMLError(f"it stands for more than {MOST_VALUES:,} values, by its aliases")
    return node


def yaml_words(error: Exception) -> str:
    """Return a YAML error on one line: "line 3, column 1: …", both counted from 1."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return " ".join(str(error).split())
    problem = " ".join(str(getattr(error, "problem", None) or "it cannot be read").split())
    if "'\\t'" in problem:
        problem = "a tab stands where YAML wants spaces"
    elif problem.endswith("got '<stream end>'"):
        problem = f"{problem.split(', but')[0]} before the end of the file"
    context = getattr(error, "context_mark", None)
    since = f" (begun in line {context.line + 1})" if context is not None and context.line != mark.line else ""
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}{since}"


def _require_single_keys(node: yaml.Node, seen: set[int]) -> None:
    """Refuse a key that a mapping has twice: PyYAML would silently take the last one."""
    if not isinstance(node, yaml.CollectionNode) or id(node) in seen:
        return
    seen.add(id(node))
    lines: dict[str, int] = {}
    for item in node.value:
        for part in item if isinstance(item, tuple) else (item,):
            _require_single_keys(part, seen)
        key = item[0] if isinstance(item, tuple) else None
        if not isinstance(key, yaml.ScalarNode):
            continue
        line = key.start_mark.line + 1
        if key.value in lines:
            raise yaml.YAMLError(f"{key.value} stands twice in one mapping, in lines {lines[key.value]} and {line}")
        lines[key.value] = line


def _values(node: yaml.Node, counted: dict[int, int]) -> int:
    """Return how many values a node stands for; a repeated node counts again, but is not walked again."""
    if id(node) in counted:
        if not counted[id(node)]:
            raise yaml.YAMLError("an alias refers to what it is in")
        return counted[id(node)]
    counted[id(node)] = 0
    inner = node.value if isinstance(node, yaml.CollectionNode) else ()
    parts = [part for item in inner for part in (item if isinstance(item, tuple) else (item,))]
    counted[id(node)] = 1 + sum(_values(part, counted) for part in parts)
    return counted[id(node)]
