"""YAML files of users, read with a limit, because a few lines of aliases can stand for billions of values.

Errors of a model name the field, without pydantic's terms.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

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
        node = _composed(text)
        return None if node is None else _Loader("").construct_document(node)
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply") from None


@lru_cache(maxsize=8)
def _composed(text: str) -> yaml.Node | None:
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


_MUST_BE = {
    "int": "a whole number",
    "float": "a number",
    "finite": "a number",
    "bool": "true or false",
    "string": "text (write it in quotes)",
    "list": "a list",
    "tuple": "a list",
    "dict": "a mapping of keys to values",
    "model": "a mapping of keys to values",
    "literal": "{expected}",
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
    "string_too_short": "at least {min_length} characters long",
    "string_too_long": "at most {max_length} characters long",
    "string_pattern_mismatch": "of the form {pattern}",
}
"""Keyed by pydantic's type of error, or by the first word of that type."""


def places_of(parts: Mapping[str, type[BaseModel]]) -> dict[str, str]:
    """Return the part, or the parts, that each key belongs to; ``parts`` maps the name of a part to its model."""
    keys = dict.fromkeys(key for part in parts.values() for key in part.model_fields)
    return {key: " or ".join(name for name, part in parts.items() if key in part.model_fields) for key in keys}


def complaint(error: ValidationError, what: str, keys: Mapping[str, str]) -> str:
    """Return the wrong field and what is wrong with it. ``keys`` are the valid keys of ``what``, with their places.

    An unknown key is reported before a missing one, because it may be its misspelling.
    """
    first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
    kind, field = first["type"], _field(first["loc"])
    if kind == "missing":
        return f"{field} is missing"
    if kind == "extra_forbidden":
        key = str(first["loc"][-1])
        if key in keys:
            return f"{field}: {key} belongs in {keys[key]}"
        similar = get_close_matches(key, keys, n=1, cutoff=0.75)
        return f"{field} is not a key of {what}" + (f": did you mean {similar[0]}?" if similar else "")
    must = _MUST_BE.get(kind) or _MUST_BE.get(kind.partition("_")[0])
    message = f"must be {must.format(**first.get('ctx', {}))}" if must else first["msg"].removeprefix("Value error, ")
    return f"{field}: {message} (got {_got(first['input'])})" if field else message  # else it is of the whole file


_TAGS = ("number", "open", "word", "mix", "[key]")
"""Names of a field's alternatives, and of a mapping's key, which pydantic appends to the field."""


def _field(place: tuple[int | str, ...]) -> str:
    """Return ``block 2, traffic.load`` for blocks, 1, traffic, load, 0: users count from 1, and see the value."""
    counted = {"blocks": "block", "metrics": "metric", "hosts": "host"}
    if len(place) > 1 and isinstance(place[1], int) and place[0] in counted:
        which = f"{counted[str(place[0])]} {place[1] + 1}"
        return f"{which}, {_field(place[2:])}" if place[2:] else which
    return ".".join(str(part) for part in place if not isinstance(part, int) and part not in _TAGS)


def _got(value: object) -> str:
    if isinstance(value, bool):
        return f"{str(value).lower()}, as which YAML reads {'yes and on' if value else 'no and off'}, too"
    return repr(value)
