"""A value as a person writes it → its bytes in a map, by the BTF of the object that reads them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any

from xdplab.errors import PlanError
from xdplab.programs.btf import Btf, BtfField, BtfType

_NETWORK_ORDER = ("__be16", "__be32", "__be64", "be16", "be32", "be64")
_MAC = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}")
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+|[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*")
_ADDRESS_BYTES = (4, 6, 16)


def encoded(btf: Btf, number: int, value: Any, place: str) -> bytes:
    """Return the bytes of ``value`` as the type ``number``, little-endian; addresses are in network byte order.

    ``place`` names it in an error. Raises PlanError if the value is not one of the type.
    """
    one, size = btf.bare(number), btf.size(number)
    if isinstance(value, str) and size in _ADDRESS_BYTES and one.kind != "enum" and _is_address(value):
        return _address(value, size, place)
    match one.kind:
        case "int":
            big = any(name in _NETWORK_ORDER for name in btf.names(number))
            return _integer(one, 8 * size, value, place, _called(btf, number)).to_bytes(
                size, "big" if big else "little"
            )
        case "enum" | "enum64":
            return _integer(one, 8 * size, value, place, _called(btf, number)).to_bytes(size, "little")
        case "array":
            return _array(btf, one, value, place)
        case "struct" | "union":
            return _fields(btf, number, value, place)
    raise PlanError(f"{place}: a {_called(btf, number)} cannot be given", remedy="leave it out: it is then 0")


def as_numbers(size: int, value: Any, place: str) -> bytes:
    """Return the bytes of a value whose map gives its size and no type: a number, an address, or a list of bytes."""
    if isinstance(value, str) and size in _ADDRESS_BYTES and _is_address(value):
        return _address(value, size, place)
    if isinstance(value, list):
        _require_length(value, size, place)
        byte = BtfType("int", "__u8", 1)
        return bytes(_integer(byte, 8, one, f"{place}[{i}]", "a byte") for i, one in enumerate(value))
    return _integer(BtfType("int", "", size), 8 * size, value, place, f"{size} bytes").to_bytes(size, "little")


def _is_address(text: str) -> bool:
    return bool(_MAC.fullmatch(text) or _ADDRESS.fullmatch(text))


def _address(text: str, size: int, place: str) -> bytes:
    """Return an address as it is in a frame."""
    try:
        packed = bytes.fromhex(text.replace(":", "")) if _MAC.fullmatch(text) else ipaddress.ip_address(text).packed
    except ValueError:
        raise PlanError(f"{place}: {text} is no address") from None
    if len(packed) != size:
        raise PlanError(f"{place}: {text} has {len(packed)} bytes, and there are {size}")
    return packed


def _integer(one: BtfType, bits: int, value: Any, place: str, name: str) -> int:
    """Return the number with ``bits`` bits, as an unsigned one."""
    value = (one.values or {}).get(value, value) if isinstance(value, str) else value
    number = _number(value)
    if number is None:
        choice = f"one of {', '.join(one.values)}, or a number" if one.values else "a whole number"
        raise PlanError(f"{place}: {value!r} is not {choice}, as {name} wants")
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if one.signed else (0, (1 << bits) - 1)
    high = 1 if one.boolean else high
    if not low <= number <= high:
        raise PlanError(f"{place}: {number} does not fit into {name}, which is from {low} to {high}")
    return number & ((1 << bits) - 1)


def _number(value: Any) -> int | None:
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return int(value.lower() == "true")
    try:
        return int(value, 0) if isinstance(value, str) else None
    except ValueError:
        return None


def _array(btf: Btf, one: BtfType, value: Any, place: str) -> bytes:
    size = btf.size(one.type)
    if isinstance(value, str) and size == 1 and "char" in btf.names(one.type):
        text = value.encode()
        if len(text) > one.count:
            raise PlanError(f"{place}: {value!r} has {len(text)} bytes, and there are {one.count}")
        return text.ljust(one.count, b"\0")
    if not isinstance(value, list):
        an_address = size * one.count in _ADDRESS_BYTES
        forms = "a list, or an address in quotes" if an_address else "a list"
        raise PlanError(f"{place}: {value!r} is not {forms}: {one.count} times {_called(btf, one.type)}")
    _require_length(value, one.count, place)
    return b"".join(encoded(btf, one.type, each, f"{place}[{i}]") for i, each in enumerate(value))


def _require_length(value: list[Any], count: int, place: str) -> None:
    if len(value) != count:
        raise PlanError(f"{place}: {len(value)} elements are given, and there are {count}")


def _fields(btf: Btf, number: int, value: Any, place: str) -> bytes:
    """Fields that are not given are 0, as in a C initialiser."""
    fields = _members(btf, number)
    if not isinstance(value, Mapping):
        raise PlanError(f"{place}: {value!r} is not the fields of {_called(btf, number)}: {', '.join(fields)}")
    whole = given = 0
    for name, each in value.items():
        if name not in fields:
            raise PlanError(f"{place}: {_called(btf, number)} has no field {name}; it has {', '.join(fields)}")
        bit_offset, member = fields[name]
        wide = member.bits or 8 * btf.size(member.type)
        if member.bits:
            bits = _integer(btf.bare(member.type), wide, each, f"{place}.{name}", f"{wide} bits")
        else:
            bits = int.from_bytes(encoded(btf, member.type, each, f"{place}.{name}"), "little")
        mask = ((1 << wide) - 1) << bit_offset
        if given & mask:
            raise PlanError(f"{place}.{name} shares its bytes with another field that is given", remedy="give one")
        given, whole = given | mask, whole | bits << bit_offset
    return whole.to_bytes(btf.size(number), "little")


def _members(btf: Btf, number: int, offset: int = 0) -> dict[str, tuple[int, BtfField]]:
    """Return the fields by name, each with its bit; those of a nameless struct or union are its owner's."""
    fields: dict[str, tuple[int, BtfField]] = {}
    for member in btf.bare(number).members:
        at = offset + member.bit_offset
        fields |= {member.name: (at, member)} if member.name else _members(btf, member.type, at)
    return fields


def _called(btf: Btf, number: int) -> str:
    one, names = btf.bare(number), btf.names(number)
    if one.kind in ("struct", "union", "enum") and names and names[0] == one.name:
        return f"{one.kind} {one.name}"
    return names[0] if names else {"ptr": "pointer"}.get(one.kind, one.kind)
