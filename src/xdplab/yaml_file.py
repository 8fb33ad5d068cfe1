"""YAML that people wrote: read with a bound, since a few lines of aliases can stand for billions of values."""

from __future__ import annotations

import re
from typing import Any

import yaml

MOST_VALUES = 100_000
"""More than any plan or inventory holds, once each alias stands for what it means."""


class _Loader(yaml.SafeLoader):
    """With YAML 1.2's whole numbers: ``010`` and ``1:10``, which older YAML takes for 8 and 70, stay words."""


_INT = "tag:yaml.org,2002:int"
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _INT]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_INT, re.compile(r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F]+)$"), list("-+0123456789"))


def read_yaml(text: str) -> Any:
    """Return what ``text`` says. Raises yaml.YAMLError, also where it is too large or refers to itself."""
    loader = _Loader(text)
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
