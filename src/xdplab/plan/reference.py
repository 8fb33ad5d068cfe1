"""The factors as a reference: lines for a prompt, a table for a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter

from xdplab.plan.factors import FACTORS, Factor

KINDS = {"string": "text", "array": "a list of commands, each a list of arguments"}


def lines() -> str:
    """Return one line per factor that a plan may write: name, unit, default, meaning."""
    written = [factor for factor in FACTORS if factor.where]
    width = max(len(factor.name) for factor in written)
    return "\n".join(f"    {f.name:{width}}  {f.text}{_unit(f)}; default {_default(f)}" for f in written)


def table() -> str:
    """Return the factors as a Markdown table."""
    rows = ["| factor | in a plan | values | default | unit | acts on | meaning |", "| --- " * 7 + "|"]
    for factor in FACTORS:
        if factor.where:
            cells = (f"`{factor.name}`", _place(factor), _values(factor), _default(factor), factor.unit)
            rows.append("| " + " | ".join((*cells, factor.reader, factor.text)) + " |")
    return "\n".join(rows)


def _unit(factor: Factor) -> str:
    return f" ({factor.unit})" if factor.unit else ""


def _place(factor: Factor) -> str:
    return {"program": "`points.program`", "block": "the block"}.get(factor.where, f"`{factor.where}`")


def _default(factor: Factor) -> str:
    if factor.default is ...:
        return "none: it must be given"
    return "none" if factor.default in (None, [], {}) else f"`{factor.default}`"


def _values(factor: Factor) -> str:
    return ", ".join(_of_schema(TypeAdapter(factor.type).json_schema()))


def _of_schema(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the values that a type allows as text: ```all```, ``1 to 64``, ``text``."""
    for part in (*schema.get("anyOf", []), *schema.get("oneOf", [])):
        yield from _of_schema(part)
    if "enum" in schema:
        yield from (f"`{value}`" for value in schema["enum"])
    elif "const" in schema:
        yield f"`{schema['const']}`"
    elif "minimum" in schema:
        yield f"{schema['minimum']} to {schema['maximum']}"
    elif schema.get("type") == "object":
        held = [schema.get("additionalProperties"), *schema.get("patternProperties", {}).values()]
        kinds = [one["type"] for part in held if isinstance(part, dict) for one in part.get("anyOf", [part])]
        yield schema.get("title") or ("name: value" if "string" in kinds else "name: number")
    elif schema.get("items") == {"type": "string"}:
        yield "a list of arguments"
    elif schema.get("type") in KINDS:
        yield KINDS[schema["type"]]
