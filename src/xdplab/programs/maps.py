"""The maps and constants of a user's program: which there are, by the object's BTF, and the bytes that fill maps."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from xdplab.errors import PlanError
from xdplab.plan.maps import rows_of
from xdplab.programs.btf import Btf
from xdplab.programs.build import Filling
from xdplab.programs.encoding import as_numbers, encoded
from xdplab.programs.image import section_of

KINDS = {
    **{1: "hash", 2: "array", 3: "prog_array", 4: "perf_event_array", 5: "percpu_hash", 6: "percpu_array"},
    **{7: "stack_trace", 8: "cgroup_array", 9: "lru_hash", 10: "lru_percpu_hash", 11: "lpm_trie", 12: "array_of_maps"},
    **{13: "hash_of_maps", 14: "devmap", 15: "sockmap", 16: "cpumap", 17: "xskmap", 18: "sockhash", 22: "queue"},
    **{23: "stack", 24: "sk_storage", 25: "devmap_hash", 26: "struct_ops", 27: "ringbuf", 30: "bloom_filter"},
}
"""enum bpf_map_type of linux/bpf.h."""
_OF_DATA = ("hash", "array", "percpu_hash", "percpu_array", "lru_hash", "lru_percpu_hash", "lpm_trie")
_OF_NAMES = ("prog_array", "devmap", "devmap_hash", "cpumap")
_INDEXED = ("array", "percpu_array")
_PREFIX_BYTES = 4  # of struct bpf_lpm_trie_key


@dataclass(frozen=True)
class MapPart:
    """A map's key or value: its type in BTF, or 0 if only its size is known."""

    type: int = 0
    size: int = 0


@dataclass(frozen=True)
class MapType:
    """A map as the object declares it; ``most`` is 0 if it does not say how many entries fit."""

    kind: str
    key: MapPart
    value: MapPart
    most: int


def filling(maps: Mapping[str, Any], data: bytes, file: str) -> Filling:
    """Return what fills ``maps`` (as a plan has them) of an object. Raises PlanError naming map, field, type and range.

    ``file`` is the name of the program's file.
    """
    btf = Btf(section_of(data, ".BTF"))
    declared = {name: _map_type(btf, number) for name, number in btf.map_variables.items()}
    contents: dict[str, bytes] = {}
    named: list[str] = []
    for name, given in maps.items():
        if name not in declared:
            raise PlanError(f"maps: there is no map {name} in {file}", remedy=f"it has {', '.join(declared) or 'none'}")
        one, place = declared[name], f"maps.{name}"
        if one.kind in _OF_NAMES:
            named += [f"{name}={key}={_fields(value)}" for key, value in rows_of(given, place)]
        elif one.kind in _OF_DATA:
            contents[name] = _content(btf, one, given, place)
        else:
            raise PlanError(f"{place}: a map of type {one.kind} is not filled by a plan", remedy="fill it in `setup`")
    return Filling(contents, tuple(named))


def require_constants(places: Iterable[str], data: bytes, file: str) -> None:
    """Raise PlanError for a place (``limit``, ``mac[5]``, ``cfg.limit``) in no constant of an object, naming those that
    it has."""
    if not (section := section_of(data, ".BTF")):  # xdpload says how to compile it
        return
    present = Btf(section).constants
    for place in places:
        if (name := re.split(r"[.\[]", place)[0]) not in present:
            remedy = f"it has {', '.join(present) or 'none'}"
            raise PlanError(f"rodata: there is no constant {name} in {file}", remedy=remedy)


def _map_type(btf: Btf, number: int) -> MapType:
    members = {member.name: member.type for member in btf.bare(number).members}

    def declared_number(name: str) -> int:
        """Return a number that the declaration has as a pointer to an array of so many elements."""
        return btf.bare(btf.bare(members[name]).type).count if name in members else 0

    def part(name: str) -> MapPart:
        if name not in members:
            return MapPart(0, declared_number(f"{name}_size"))
        pointed = btf.bare(members[name]).type
        return MapPart(pointed, btf.size(pointed))

    kind = declared_number("type")
    return MapType(KINDS.get(kind, f"{kind}"), part("key"), part("value"), declared_number("max_entries"))


def _fields(value: Any) -> str:
    return ",".join(f"{name}={one}" for name, one in value.items()) if isinstance(value, Mapping) else str(value)


def _content(btf: Btf, one: MapType, given: Any, place: str) -> bytes:
    values: dict[bytes, bytes] = {}
    for key, value in rows_of(given, place):
        at = f"{place}[{_shown(key)}]"
        packed = _key(btf, one, key, at)
        if packed in values:
            raise PlanError(f"{at}: this key is given twice")
        values[packed] = _bytes(btf, one.value, value, at)
    if one.most and len(values) > one.most:
        raise PlanError(f"{place}: {len(values)} entries are given, and the map has room for {one.most}")
    return b"".join((*values, *values.values()))


def _shown(key: Any) -> str:
    return _fields(key) if isinstance(key, Mapping) else str(key)


def _key(btf: Btf, one: MapType, key: Any, place: str) -> bytes:
    if one.kind == "lpm_trie" and isinstance(key, str) and "/" in key:
        return _prefix(key, one.key.size, place)
    if one.kind == "lpm_trie" and not isinstance(key, Mapping):
        raise PlanError(f"{place}: {key} is neither ADDRESS/BITS nor fields", remedy="10.0.0.1/32 for one address")
    packed = _bytes(btf, one.key, key, place)
    if one.kind in _INDEXED and one.most and int.from_bytes(packed, "little") >= one.most:
        raise PlanError(f"{place}: the map has indices from 0 to {one.most - 1}")
    return packed


def _bytes(btf: Btf, part: MapPart, value: Any, place: str) -> bytes:
    return encoded(btf, part.type, value, place) if part.type else as_numbers(part.size, value, place)


def _prefix(text: str, size: int, place: str) -> bytes:
    """Return the key of a trie of addresses: the length in bits, then the address as it is in a frame."""
    try:
        network = ipaddress.ip_interface(text)
    except ValueError:
        raise PlanError(f"{place}: {text} is no ADDRESS/BITS") from None
    if len(network.packed) != size - _PREFIX_BYTES:
        raise PlanError(f"{place}: {text} has {len(network.packed)} bytes, and there are {size - _PREFIX_BYTES}")
    return network.network.prefixlen.to_bytes(_PREFIX_BYTES, "little") + network.packed
