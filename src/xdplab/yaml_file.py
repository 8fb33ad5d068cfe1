"""YAML that people wrote: read with a bound, since a few lines of aliases can stand for billions of values."""

from __future__ import annotations

from typing import Any

import yaml

MOST_VALUES = 100_000
"""More than any plan or inventory holds, once each alias stands for what it means."""


def read_yaml(text: str) -> Any:
    """Return what ``text`` says. Raises yaml.YAMLError, also where it is too large or refers to itself."""
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if _values(node, {}) > MOST_VALUES:
            raise yaml.YAMLError(f"it stands for more than {MOST_VALUES:,} values, by its aliases")
        return loader.construct_document(node)
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply") from None
    finally:
        loader.dispose()


def _values(node: yaml.Node, known: dict[int, int]) -> int:
    """Return how many values a node stands for; a node that is met again counts again, and is not walked again."""
    if id(node) in known:
        if not known[id(node)]:
            raise yaml.YAMLError("an alias refers to what it is in")
        return known[id(node)]
    known[id(node)] = 0
    inner = node.value if isinstance(node, yaml.CollectionNode) else ()
    parts = [part for item in inner for part in (item if isinstance(item, tuple) else (item,))]
    known[id(node)] = 1 + sum(_values(part, known) for part in parts)
    return known[id(node)]
