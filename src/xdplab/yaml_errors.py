"""What is wrong in a YAML file of a user: all wrong fields of a model, without pydantic's terms."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

Parts = Mapping[str, type[BaseModel]]
"""The model of each part of a file, by the part's name."""

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


def _places_of(parts: Parts) -> dict[str, str]:
    """Return the part, or the parts, that each key belongs to."""
    keys = dict.fromkeys(key for part in parts.values() for key in part.model_fields)
    return {key: " or ".join(name for name, part in parts.items() if key in part.model_fields) for key in keys}


MOST_COMPLAINTS = 8
"""How many wrong fields an error lists at most."""


def complaint(error: ValidationError, what: str, parts: Parts, tree: yaml.Node | None = None) -> str:
    """Return every wrong field, with its line in the ``tree`` of a file, and what is wrong with it. ``parts`` are those
    of ``what``.

    An unknown key hides a missing one beside it: it may be its misspelling. Of a field's alternatives the first counts.
    """
    keys = _places_of(parts)
    errors = sorted(error.errors(), key=lambda one: one["type"] == "missing")
    unknown = {one["loc"][:-1] for one in errors if one["type"] == "extra_forbidden"}
    wrong: dict[str, tuple[int, str]] = {}
    for one in errors:
        field = _field(one["loc"])
        hidden = one["type"] == "missing" and one["loc"][:-1] in unknown
        if not hidden and not any(field == other or field.startswith(f"{other}.") for other in wrong):
            wrong[field] = line_of(tree, one["loc"]), _one_complaint(one, field, what, keys)
    texts = [f"line {line}: {text}" if line else text for line, text in sorted(wrong.values(), key=lambda at: at[0])]
    more = [f"and {len(texts) - MOST_COMPLAINTS} more"] if len(texts) > MOST_COMPLAINTS else []
    return "; ".join([*texts[:MOST_COMPLAINTS], *more])


def _one_complaint(error: ErrorDetails, field: str, what: str, keys: Mapping[str, str]) -> str:
    kind = error["type"]
    if kind == "missing":
        return f"{field} is missing"
    if kind == "extra_forbidden":
        key = str(error["loc"][-1])
        if key in keys:
            return f"{field}: {key} belongs in {keys[key]}"
        similar = get_close_matches(key, keys, n=1, cutoff=0.75)
        return f"{field} is not a key of {what}" + (f": did you mean {similar[0]}?" if similar else "")
    must = _MUST_BE.get(kind) or _MUST_BE.get(kind.partition("_")[0])
    message = f"must be {must.format(**error.get('ctx', {}))}" if must else error["msg"].removeprefix("Value error, ")
    if not field or (kind == "value_error" and isinstance(error["input"], dict)):  # of a whole part of the file
        return f"{field}: {message}" if field else message
    return f"{field}: {message} (got {_got(error['input'])})"


def line_of(node: yaml.Node | None, place: tuple[int | str, ...]) -> int:
    """Return the line of a field, or of what should have it; 0 for one that is of the whole file, or of none."""
    line = 0
    for part in place:
        if isinstance(node, yaml.MappingNode):
            key, value = next((pair for pair in node.value if pair[0].value == part), (None, node))
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            key = value = node.value[part]
        else:
            continue  # the name of an alternative, or a single value where a list may stand
        node, line = value, line if key is None else key.start_mark.line + 1
    return line


_TAGS = ("number", "open", "word", "mix", "[key]")
"""Names of a field's alternatives, and of a mapping's key, which pydantic appends to the field."""


def _field(place: tuple[int | str, ...]) -> str:
    """Return ``block 2, traffic.load`` for blocks, 1, traffic, load, 0: users count from 1, and see the value."""
    counted = {"blocks": "block", "metrics": "metric", "hosts": "host", "claims": "claim"}
    if len(place) > 1 and isinstance(place[1], int) and place[0] in counted:
        which = f"{counted[str(place[0])]} {place[1] + 1}"
        return f"{which}, {_field(place[2:])}" if place[2:] else which
    return ".".join(str(part) for part in place if not isinstance(part, int) and part not in _TAGS)


def _got(value: object) -> str:
    if isinstance(value, bool):
        return f"{str(value).lower()}, as which YAML reads {'yes and on' if value else 'no and off'}, too"
    return repr(value)
