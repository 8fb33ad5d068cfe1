"""The maps and constants of a user's program: which there are, by the object's BTF, and the bytes that fill maps.

A value as a person writes it → its bytes in a map, by the BTF of the object that reads them.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from binascii import unhexlify
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import index
from typing import TYPE_CHECKING, Any, TypeGuard

from xdplab.errors import PlanError
from xdplab.formats.map_entries import Column, columns_of, rows_of
from xdplab.lazy import lazily
from xdplab.plan.maps import PAIR, Row
from xdplab.programs.btf import Btf, BtfField, BtfType
from xdplab.programs.build import Filling
from xdplab.programs.image import section_of

with lazily():
    import numpy as np
    import pyarrow as arrow
    import pyarrow.compute as arrow_compute

if TYPE_CHECKING:
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]

_NETWORK_ORDER = ("__be16", "__be32", "__be64", "be16", "be32", "be64")
_MAC = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}")
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+|[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*")
_IPV4_BYTES, _MAC_BYTES, _IPV6_BYTES = _ADDRESS_BYTES = (4, 6, 16)
_DECIMAL = "^(0|-?[1-9][0-9]*)$"
_MIXER = 0x9E3779B97F4A7C15  # an odd number without a pattern


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
            return _member_fields(btf, number, value, place)
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


def _member_fields(btf: Btf, number: int, value: Any, place: str) -> bytes:
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


KINDS = {
    **{1: "hash", 2: "array", 3: "prog_array", 4: "perf_event_array", 5: "percpu_hash", 6: "percpu_array"},
    **{7: "stack_trace", 8: "cgroup_array", 9: "lru_hash", 10: "lru_percpu_hash", 11: "lpm_trie", 12: "array_of_maps"},
    **{13: "hash_of_maps", 14: "devmap", 15: "sockmap", 16: "cpumap", 17: "xskmap", 18: "sockhash", 22: "queue"},
    **{23: "stack", 24: "sk_storage", 25: "devmap_hash", 26: "struct_ops", 27: "ringbuf", 30: "bloom_filter"},
}
"""enum bpf_map_type of linux/bpf.h."""
_OF_DATA = ("hash", "array", "percpu_hash", "percpu_array", "lru_hash", "lru_percpu_hash", "lpm_trie")
_OF_MAPS = ("hash_of_maps", "array_of_maps")
_OF_NAMES = ("prog_array", "devmap", "devmap_hash", "cpumap")
_INDEXED = ("array", "percpu_array", "array_of_maps")
_WORD = 8
_PREFIX_BYTES = 4  # of struct bpf_lpm_trie_key


@dataclass(frozen=True)
class MapPart:
    """A map's key or value: its type in BTF, or 0 if only its size is known."""

    type: int = 0
    size: int = 0


@dataclass(frozen=True)
class MapType:
    """A map as the object declares it; ``most`` is 0 if it does not say how many entries fit, ``inner`` is what a map
    of maps holds."""

    kind: str
    key: MapPart
    value: MapPart
    most: int
    inner: MapType | None = None


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
            contents[name] = b"".join(_content(btf, one, given, place))
        elif one.inner and one.inner.kind in _OF_DATA:
            contents[name] = _nested(btf, one, one.inner, given, place)
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

    number = declared_number("type")
    kind = KINDS.get(number, f"{number}")
    inner = _map_type(btf, btf.bare(btf.bare(members["values"]).type).type) if kind in _OF_MAPS else None
    return MapType(kind, part("key"), part("value"), declared_number("max_entries"), inner)


def _fields(value: Any) -> str:
    return ",".join(f"{name}={one}" for name, one in value.items()) if isinstance(value, Mapping) else str(value)


def _content(btf: Btf, one: MapType, given: Any, place: str) -> tuple[bytes, bytes]:
    """Return all keys, and all values."""
    if len(columns := columns_of(given)) and (whole := columns_content(btf, one, columns)):
        return whole
    values: dict[bytes, bytes] = {}
    for key, value in rows_of(given, place):
        at = f"{place}[{_shown(key)}]"
        packed = _key(btf, one, key, at)
        if packed in values:
            raise PlanError(f"{at}: this key is given twice")
        values[packed] = _bytes(btf, one.value, value, at)
    if one.most and len(values) > one.most:
        raise PlanError(f"{place}: {len(values)} entries are given, and the map has room for {one.most}")
    return b"".join(values), b"".join(values.values())


def _nested(btf: Btf, one: MapType, inner: MapType, given: Any, place: str) -> bytes:
    """Return the number of maps (u64), their keys, how many entries each has (u32), and then all keys and all values.

    A row of a map of maps is a key and the entries of the map there; or a ``key`` and a ``value`` in that map, as a
    CSV file has them.
    """
    if len(columns := columns_of(given)) and (whole := _nested_columns(btf, one, inner, columns)):
        return whole
    maps: dict[bytes, list[Row]] = {}
    for key, value in rows_of(given, place):
        at = f"{place}[{_shown(key)}]"
        if not isinstance(value, Mapping):
            raise PlanError(f"{at}: {value!r} is not the entries of a map", remedy="{KEY: VALUE, …}")
        pairs = [(value["key"], value["value"])] if value.keys() == {"key", "value"} else value.items()
        maps.setdefault(_key(btf, one, key, at), []).extend(pairs)
    if one.most and len(maps) > one.most:
        raise PlanError(f"{place}: {len(maps)} maps are given, and there is room for {one.most}")
    contents = [_content(btf, inner, pairs, f"{place}[{key.hex()}]") for key, pairs in maps.items()]
    counts = b"".join(len(pairs).to_bytes(4, "little") for pairs in maps.values())
    head = len(maps).to_bytes(8, "little") + b"".join(maps) + counts
    return head + b"".join(keys for keys, _ in contents) + b"".join(values for _, values in contents)


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


# --- many entries at once: what this does not take is read entry by entry, which finds the place of a mistake ---


_NOT_SIMPLE = (ValueError, TypeError, KeyError, IndexError, OSError, OverflowError, AttributeError)


def columns_content(btf: Btf, one: MapType, columns: Sequence[Column]) -> tuple[bytes, bytes] | None:
    """Return all keys and all values of ``columns``; None where they are to be read entry by entry."""
    try:
        keys, values = _packed_entries(btf, one, columns)
    except _NOT_SIMPLE:
        return None
    if 0 < one.most < len(keys) or not _are_distinct(keys):
        return None
    return keys.tobytes(), values.tobytes()


def _nested_columns(btf: Btf, one: MapType, inner: MapType, columns: Sequence[Column]) -> bytes | None:
    """Return what ``_nested`` does of ``columns``; None where they are to be read entry by entry."""
    try:
        outer, entries = _keys_and_values(columns)
        maps = _packed_key(btf, one, outer)
        keys, values = _packed_entries(btf, inner, entries)
    except _NOT_SIMPLE:
        return None
    order, is_first = _sorted(maps)
    first = np.empty_like(order)  # of each row: the first row of its map
    first[order] = order[is_first][np.cumsum(is_first) - 1]
    heads, counts = np.unique(first, return_counts=True)
    if not _are_distinct(np.hstack([maps, keys])) or 0 < one.most < len(heads) or 0 < inner.most < counts.max():
        return None
    rows = np.argsort(first, kind="stable")
    head = len(heads).to_bytes(8, "little") + maps[heads].tobytes() + counts.astype("<u4").tobytes()
    return head + keys[rows].tobytes() + values[rows].tobytes()


def _are_distinct(rows: Bytes) -> bool:
    """Return whether no row is there twice: one number of each is quickly sorted, and equal numbers are looked into."""
    mixed, *others = _words(rows).T.copy()
    for words in others:
        mixed = mixed * np.uint64(_MIXER) + words
    mixed.sort()
    return bool((mixed[1:] != mixed[:-1]).all() or _sorted(rows)[1].all())


def _words(rows: Bytes) -> npt.NDArray[np.uint64]:
    words = np.zeros((len(rows), -(-rows.shape[1] // _WORD) * _WORD), np.uint8)
    words[:, : rows.shape[1]] = rows
    return words.view("<u8")


def _sorted(rows: Bytes) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
    """Return an order of ``rows`` in which equal ones are neighbours, as they came, and which is the first of these."""
    words = _words(rows)
    order = np.lexsort(words.T)
    is_first = np.ones(len(rows), bool)
    is_first[1:] = (words[order[1:]] != words[order[:-1]]).any(axis=1)
    return order, is_first


def _keys_and_values(columns: Sequence[Column]) -> tuple[list[Column], list[Column]]:
    """Return the columns of the keys, and of the values, each by the steps within them."""
    if {steps[0] for steps, _ in columns} != PAIR:
        raise ValueError("other columns")
    keys, values = ([(steps[1:], texts) for steps, texts in columns if steps[0] == part] for part in ("key", "value"))
    return keys, values


def _packed_entries(btf: Btf, one: MapType, columns: Sequence[Column]) -> tuple[Bytes, Bytes]:
    keys, values = _keys_and_values(columns)
    return _packed_key(btf, one, keys), _packed(btf, one.value, values)


def _packed_key(btf: Btf, one: MapType, columns: Sequence[Column]) -> Bytes:
    if one.kind == "lpm_trie" and any(not steps for steps, _ in columns):
        ((_, texts),) = columns  # its fields, or the whole key
        return _prefixes(texts, one.key.size - _PREFIX_BYTES)
    packed = _packed(btf, one.key, columns)
    if one.kind in _INDEXED and packed.view("<u4").max() >= one.most:
        raise ValueError("an index that is not there")
    return packed


def _packed(btf: Btf, part: MapPart, columns: Sequence[Column]) -> Bytes:
    """Raises one of _NOT_SIMPLE where a column is not simple."""
    packed = np.zeros((len(columns[0][1]), part.size), np.uint8)
    given = np.zeros(part.size, bool)
    for steps, texts in columns:
        offset, number = _leaf(btf, part, steps)
        column = _packed_column(btf, number, part.size, texts)
        taken = slice(offset, offset + column.shape[1])
        if given[taken].any():
            raise ValueError("two fields share their bytes")
        given[taken], packed[:, taken] = True, column
    return packed


def _prefixes(texts: Sequence[Any], size: int) -> Bytes:
    if not _are_texts(texts) or size not in (_IPV4_BYTES, _IPV6_BYTES):
        raise ValueError("no prefixes")
    pairs = arrow_compute.split_pattern(texts, "/")
    parts = pairs.flatten()
    if arrow_compute.min_max(arrow_compute.list_value_length(pairs)).as_py() != {"min": 2, "max": 2}:
        raise ValueError("no prefixes")
    if not _are_decimal(parts[1::2]):
        raise ValueError("no prefixes")
    bits = np.asarray(parts[1::2].cast(arrow.uint32()), "<u4")
    if bits.max() > 8 * size:
        raise ValueError("no prefixes")
    return np.hstack([bits.view(np.uint8).reshape(-1, _PREFIX_BYTES), _addresses(parts[::2], size)])


def _leaf(btf: Btf, part: MapPart, steps: Sequence[Any]) -> tuple[int, int]:
    offset, number = 0, part.type
    for step in steps:
        bit_offset, member = _members(btf, number)[step]
        if member.bits:
            raise ValueError("a bit-field")
        offset, number = offset + bit_offset // 8, member.type
    return offset, number


def _packed_column(btf: Btf, number: int, size: int, texts: Sequence[Any]) -> Bytes:
    """Return the bytes of numbers or addresses, a row each."""
    one = btf.bare(number) if number else BtfType("int", "", size)
    size = btf.size(number) if number else size
    if _are_texts(texts) and size in _ADDRESS_BYTES and one.kind != "enum" and _is_address(texts[0].as_py()):
        return _addresses(texts, size)
    if one.kind != "int" or one.boolean or size > _WORD:
        raise ValueError("no number")
    numbers = _numbers(texts, one.signed)
    bits = 8 * size - one.signed
    if int(numbers.max()) >> bits or int(numbers.min()) < -(one.signed << bits):
        raise ValueError("a number that does not fit")
    order = ">" if number and any(name in _NETWORK_ORDER for name in btf.names(number)) else "<"
    whole = numbers.astype(f"{'i' if one.signed else 'u'}{size}").astype(f"{order}i{size}")
    return whole.view(np.uint8).reshape(-1, size)


def _are_texts(column: Sequence[Any]) -> TypeGuard[arrow.Array]:
    return isinstance(column, arrow.Array) and arrow.types.is_string(column.type)


def _are_decimal(texts: arrow.Array) -> bool:
    return bool(arrow_compute.all(arrow_compute.match_substring_regex(texts, _DECIMAL)).as_py())


def _numbers(column: Sequence[Any], signed: bool) -> npt.NDArray[Any]:
    """Return integers of 64 bits, or Python's, of any size, where a text is not plainly decimal."""
    if _are_texts(column) and not _are_decimal(column):
        column = column.to_pylist()
    if isinstance(column, arrow.Array):
        return np.asarray(column.cast(arrow.int64() if signed else arrow.uint64()))
    return np.array([int(each, 0) if isinstance(each, str) else index(each) for each in column], object)


def _addresses(texts: arrow.Array, size: int) -> Bytes:
    """Return the bytes of each text, a row each. Raises OSError, ValueError where one has another form."""
    if size == _MAC_BYTES:
        if not arrow_compute.all(arrow_compute.match_substring_regex(texts, f"^{_MAC.pattern}$")).as_py():
            raise ValueError("no MAC")
        packed = unhexlify("".join(texts.to_pylist()).replace(":", ""))
    else:
        family = {_IPV4_BYTES: socket.AF_INET, _IPV6_BYTES: socket.AF_INET6}[size]
        packed = b"".join(map(partial(socket.inet_pton, family), texts.to_pylist()))
    return np.frombuffer(packed, np.uint8).reshape(len(texts), size)
