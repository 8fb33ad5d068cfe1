"""What a plan puts into maps: a value as a person writes it becomes the bytes that the program reads, or is refused
before anything runs; files and a plan's own entries are the same thing."""

import json
import struct
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from tests.compiled import bpf_object

from xdplab.errors import PlanError
from xdplab.plan.maps import as_given, entries
from xdplab.programs import maps
from xdplab.programs.maps import filling, require_constants

SOURCE = """
#include <linux/bpf.h>
#include <linux/in6.h>
#include <bpf/bpf_helpers.h>
#define MAP(name, kind, held_key, held) struct { __uint(type, BPF_MAP_TYPE_##kind); __uint(max_entries, 4); \\
    __type(key, held_key); __type(value, held); } name SEC(".maps")
enum verdict { LET_IN = 1, KEEP_OUT };
struct flow { __be32 address; __be16 port; __u8 mac[6]; enum verdict verdict; };
struct limits {
    __u64 rate;
    __s16 change;
    char name[6];
    __u8 low : 3, high : 5;
    union { __u32 wide; __u16 narrow; };
    struct { _Bool on; } inside;
};
struct prefix { __u32 length; __be32 address; };
MAP(numbers, HASH, __u32, __u8);
MAP(flows, LRU_HASH, struct flow, __u32);
MAP(held, ARRAY, __u32, struct limits);
MAP(nets, LPM_TRIE, struct prefix, __u32);
MAP(six, HASH, struct in6_addr, int);
MAP(macs, LPM_TRIE, struct { __u32 length; __u8 mac[6]; } __attribute__((packed)), __u32);
MAP(roads, LPM_TRIE, struct { __u32 length; struct in6_addr address; }, __u32);
MAP(lists, PERCPU_ARRAY, const unsigned int, __u16[3]);
MAP(pointed, HASH, __u32, struct { void *at; });
struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 4); __uint(key_size, 2); __uint(value_size, 6); }
    sized SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_LPM_TRIE); __uint(max_entries, 4); __uint(key_size, 8); __uint(value_size, 4); }
    plain_nets SEC(".maps");
MAP(ports, DEVMAP, __u32, __u32);
struct { __uint(type, BPF_MAP_TYPE_HASH_OF_MAPS); __uint(max_entries, 4); __type(key, __u32);
    __array(values, struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 4); __type(key, __u16);
    __type(value, __u64); }); } nested SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 4096); } ring SEC(".maps");
const volatile __u32 most, weights[4];
const volatile struct limits usual SEC(".rodata.usual");
char LICENSE[] SEC("license") = "GPL";
"""
LIMITS = "<Qh6sB3xI?7x"  # the compiler aligns the union to 4 bytes, and the struct to 8


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return bpf_object(tmp_path_factory.mktemp("maps"), SOURCE).read_bytes()


def flow(**given: Any) -> list[dict[str, Any]]:
    return [{"key": given, "value": 7}]


def packed_flow(address: bytes = bytes(4), port: int = 0, mac: bytes = bytes(6), verdict: int = 0) -> bytes:
    return address + struct.pack(">H", port) + mac + struct.pack("<II", verdict, 7)


WRITTEN: dict[str, tuple[str, Any, bytes]] = {
    "numbers": ("numbers", {50220: 1, "0x10": "2"}, struct.pack("<IIBB", 50220, 16, 1, 2)),
    "an address as a key": ("numbers", {"10.0.0.1": 3}, b"\x0a\0\0\1\3"),
    "an address as a field": ("flows", flow(address="10.0.0.1"), packed_flow(b"\x0a\0\0\1")),
    "a number in network order": ("flows", flow(port=50220), packed_flow(port=50220)),
    "a MAC": ("flows", flow(mac="02:00:00:00:00:0a"), packed_flow(mac=b"\2\0\0\0\0\x0a")),
    "a MAC as a list": ("flows", flow(mac=[2, 0, 0, 0, 0, 10]), packed_flow(mac=b"\2\0\0\0\0\x0a")),
    "a name of an enum": ("flows", flow(verdict="KEEP_OUT"), packed_flow(verdict=2)),
    "a struct; what is not given is 0": (
        "held",
        {1: {"rate": 1 << 40, "change": -2, "name": "eth0", "inside": {"on": True}}},
        struct.pack("<I", 1) + struct.pack(LIMITS, 1 << 40, -2, b"eth0", 0, 0, True),
    ),
    "bit-fields and a nameless union": (
        "held",
        {0: {"low": 5, "high": 1, "narrow": 9}},
        struct.pack("<I", 0) + struct.pack(LIMITS, 0, 0, b"", 5 | 1 << 3, 9, False),
    ),
    "an IPv6 prefix": (
        "roads",
        {"2001:db8::/32": 4},
        struct.pack("<I16sI", 32, bytes.fromhex("20010db8") + bytes(12), 4),
    ),
    "a prefix": ("nets", {"10.1.0.0/16": 4}, struct.pack("<I4sI", 16, b"\x0a\1\0\0", 4)),
    "an IPv6 address": ("six", {"2001:db8::1": -1}, bytes.fromhex("20010db8" + "00" * 11 + "01") + b"\xff" * 4),
    "a list": ("lists", {3: [1, 2, 65535]}, struct.pack("<I3H", 3, 1, 2, 65535)),
    "maps in a map": (
        "nested",
        {1: {5: 6}, 2: {7: 8, 9: 10}},
        struct.pack("<Q2I2I3H3Q", 2, 1, 2, 1, 2, 5, 7, 9, 6, 8, 10),
    ),
    "the ends of numbers": (
        "held",
        {0: {"rate": 2**64 - 1, "change": -32_768}, 3: {"rate": "0x10", "change": 32_767}},
        struct.pack("<II", 0, 3)
        + b"".join(struct.pack(LIMITS, *ends, b"", 0, 0, False) for ends in ((2**64 - 1, -32_768), (16, 32_767))),
    ),
    "several prefixes": (
        "nets",
        {"10.1.0.0/16": 4, "10.2.0.9/32": 5, "0.0.0.0/0": 6},
        struct.pack("<I4sI4sI4s3I", 16, b"\x0a\1\0\0", 32, b"\x0a\2\0\x09", 0, bytes(4), 4, 5, 6),
    ),
    "several IPv6 prefixes": (
        "roads",
        {"2001:db8::/32": 4, "::1/128": 5},
        struct.pack("<I16sI16s2I", 32, bytes.fromhex("20010db8") + bytes(12), 128, bytes(15) + b"\1", 4, 5),
    ),
    "several MACs": (
        "sized",
        {1: "02:00:00:00:00:01", 2: "02:00:00:00:00:0f"},
        b"\1\0\2\0\2\0\0\0\0\1\2\0\0\0\0\x0f",
    ),
    "sizes without types": ("sized", {258: "02:00:00:00:00:01"}, b"\2\1\2\0\0\0\0\1"),
}


@pytest.mark.parametrize("case", WRITTEN)
def test_a_value_has_the_bytes_that_the_program_reads(
    program: bytes, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, given, data = WRITTEN[case]
    read = MagicMock(side_effect=maps.rows_of)
    monkeypatch.setattr(maps, "rows_of", read)
    assert filling({name: given}, program, "lb.bpf.c").data == {name: data}
    assert read.called == (case not in BY_COLUMN)


BY_COLUMN = {"numbers", "an address as a key", "a prefix", "an IPv6 prefix", "sizes without types"}
BY_COLUMN |= {"an address as a field", "a number in network order", "a MAC"}
BY_COLUMN |= {"the ends of numbers", "several prefixes", "several IPv6 prefixes", "several MACs"}
"""Many entries of these are packed at once; of others each takes as long as all of these."""
REFUSED: dict[str, tuple[str, Any, tuple[str, ...]]] = {
    "no such map": ("numbrs", {1: 1}, ("numbrs", "lb.bpf.c", "numbers", "flows", "ring")),
    "too large a value": ("numbers", {50220: 256}, ("maps.numbers[50220]", "256", "__u8", "0 to 255")),
    "too small a value": ("held", {0: {"change": -32769}}, ("maps.held[0].change", "__s16", "-32768 to 32767")),
    "one more than 64 bits hold": ("held", {0: {"rate": 2**64}}, ("held[0].rate", "0 to 18446744073709551615")),
    "one more than 16 bits hold": ("held", {0: {"change": 32_768}}, ("held[0].change", "-32768 to 32767")),
    "more bits than an address has": ("nets", {"10.0.0.0/33": 1}, ("nets[10.0.0.0/33]",)),
    "more bits than an IPv6 address has": ("roads", {"::/129": 1}, ("roads[::/129]",)),
    "too large a key": ("numbers", {1 << 32: 1}, ("maps.numbers[4294967296]", "__u32", "0 to 4294967295")),
    "no number": ("numbers", {"http": 1}, ("maps.numbers[http]", "__u32")),
    "no such field": ("flows", flow(prot=6), ("flows", "prot", "address, port, mac, verdict")),
    "too large a field": ("flows", flow(port=65536), (".port", "__be16", "0 to 65535")),
    "too large a bit-field": ("held", {0: {"low": 8}}, ("held[0].low", "3 bits", "0 to 7")),
    "two of a union": ("held", {0: {"wide": 1, "narrow": 1}}, ("held[0].narrow",)),
    "a number for a struct": ("held", {0: 1}, ("held[0]", "struct limits", "rate")),
    "a MAC that is cut": ("flows", flow(mac="02:00:00:00:01"), (".mac", "02:00:00:00:01")),
    "an address of the other family": ("six", {"10.0.0.1": 1}, ("six[10.0.0.1]", "4 bytes", "16")),
    "no name of the enum": ("flows", flow(verdict="LET"), (".verdict", "LET_IN, KEEP_OUT", "enum verdict")),
    "too short a list": ("lists", {0: [1, 2]}, ("lists[0]", "2", "3")),
    "too long a text": ("held", {0: {"name": "longer0"}}, ("held[0].name", "7 bytes", "6")),
    "a pointer": ("pointed", {0: {"at": 1}}, ("pointed[0].at", "pointer")),
    "a number for a prefix": ("nets", {5: 1}, ("nets[5]", "ADDRESS/BITS")),
    "a number for a prefix without a type": ("plain_nets", [{"key": 5, "value": 1}], ("plain_nets[5]", "ADDRESS/BITS")),
    "a length that is not decimal": ("roads", {"::/0x8": 1}, ("roads[::/0x8]", "ADDRESS/BITS")),
    "a MAC with a length": ("macs", {"02:00:00:00:00:01/20": 1}, ("macs[02:00:00:00:00:01/20]", "ADDRESS/BITS")),
    "an address for an enum": ("flows", flow(verdict="1.2.3.4"), (".verdict", "1.2.3.4", "LET_IN, KEEP_OUT")),
    "a prefix for its length": ("nets", [{"key": {"length": "10.0.0.0/8"}, "value": 1}], ("length", "10.0.0.0/8")),
    "a zero before a byte": ("nets", {"10.00.0.0/8": 1}, ("nets[10.00.0.0/8]", "ADDRESS/BITS")),
    "an address for a prefix": ("nets", {"10.0.0.1": 1}, ("nets[10.0.0.1]", "ADDRESS/BITS", "10.0.0.1/32")),
    "an index beyond the map": ("lists", {4: [1, 2, 3]}, ("lists[4]", "0 to 3")),
    "more entries than fit": ("numbers", dict.fromkeys(range(5), 1), ("maps.numbers", "5", "4")),
    "one key twice": ("numbers", {16: 1, "0x10": 1}, ("numbers[0x10]", "twice")),
    "a number for a map in a map": ("nested", {1: 2}, ("maps.nested[1]", "entries of a map")),
    "too many maps in a map": ("nested", {i: {} for i in range(5)}, ("maps.nested", "5 maps", "4")),
    "a number that does not fit in a map in a map": ("nested", {1: {5: -1}}, ("nested", "[5]", "__u64")),
    "a map without entries": ("ring", {0: 1}, ("maps.ring", "ringbuf")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_with_its_place_and_type(program: bytes, case: str) -> None:
    name, given, facts = REFUSED[case]
    with pytest.raises(PlanError) as raised:
        filling({name: given}, program, "lb.bpf.c")
    assert all(fact in str(raised.value) for fact in facts), str(raised.value)


def test_a_constant_that_is_not_there_is_refused_with_those_that_are(program: bytes) -> None:
    require_constants(["most", "weights[3]", "usual.rate"], program, "lb.bpf.c")
    with pytest.raises(PlanError, match="no constant least in lb") as refused:
        require_constants(["most", "least"], program, "lb.bpf.c")
    assert all(name in (refused.value.remedy or "") for name in ("most", "weights", "usual"))


def test_entries_of_devices_and_programs_are_left_to_the_loader(program: bytes) -> None:
    given = {"ports": {0: "lo", 1: {"device": "lo", "program": "leave"}}}
    assert filling(given, program, "lb.bpf.c").named == ("ports=0=lo", "ports=1=device=lo,program=leave")


IN_FILES = {
    "of.csv": "key,value\n1,2\n0x10,3\n",
    "of.json": '{"1": 2, "16": 3}',
    "listed.json": '[{"key": 1, "value": 2}, {"key": 16, "value": "3"}]',
}


@pytest.mark.parametrize("name", IN_FILES)
def test_a_file_says_the_same_as_the_plan(program: bytes, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(IN_FILES[name])
    here = filling({"numbers": {1: 2, 16: 3}}, program, "lb.bpf.c").data
    assert filling({"numbers": str(tmp_path / name)}, program, "lb.bpf.c").data == here


def test_columns_of_a_file_are_fields_and_elements(program: bytes, tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("key.address,key.mac[1],key.mac[0],value\n10.0.0.1,1,2,7\n")
    with pytest.raises(PlanError, match=r"mac: 2 elements are given"):
        filling({"flows": str(tmp_path / "f.csv")}, program, "lb.bpf.c")
    (tmp_path / "f.csv").write_text("key.address, key.port, value\n10.0.0.1, 80, 7\n\n")
    assert filling({"flows": str(tmp_path / "f.csv")}, program, "").data == {"flows": packed_flow(b"\x0a\0\0\1", 80)}


def test_a_file_groups_what_belongs_into_one_map_of_a_map(program: bytes, tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("key,value.key,value.value\n2,7,8\n1,5,6\n2,9,10\n")
    here = filling({"nested": {2: {7: 8, 9: 10}, 1: {5: 6}}}, program, "").data
    assert filling({"nested": str(tmp_path / "f.csv")}, program, "").data == here
    (tmp_path / "f.csv").write_text("key,value.key,value.value\n2,7,8\n1,7,6\n2,7,10\n")
    with pytest.raises(PlanError, match=r"\[7\]: this key is given twice"):
        filling({"nested": str(tmp_path / "f.csv")}, program, "")


BROKEN = {
    "cut.csv": ("key,value\n1\n", "cut.csv:2"),
    "unnamed.csv": ("1,2\n", "key,value"),
    "empty.csv": ("", "key,value"),
    "broken.json": ("{", "broken.json"),
    "number.json": ("1", "number.json"),
    "bytes.csv": ("\udcff", "bytes.csv"),
    "comment.csv": ("key,value,comment\n1,1,x\n", "its first line names the columns"),
    "again.json": ('{"1": 2, "3": 4, "1": 5}', "again.json: 1 is given twice"),
    "spaced.json": ('{"1" : 2, "3": 4, "3": 5}', "spaced.json: 3 is given twice in one object: 4, 5"),
    "listed.json": ('[{"key": 1, "key": 2, "value": 1}]', "listed.json: key is given twice"),
    "field.json": ('[{"key": {"a": 1, "a": 2}, "value": 1}]', "field.json: a is given twice"),
    "again.csv": ("key,key,value\n1,2,1\n", "names key and a part of it, or names it twice"),
    "inside.csv": ("key,key.address,value\n1,2,1\n", "names key and a part of it"),
    "octal.csv": ("key,value\n1,1\n010,1\n", "[010]"),
    "address.csv": ("key,value\n10.0.0.1,1\n10.0.0.256,1\n", "[10.0.0.256]"),
    "roads.csv": ("key,value\n::1/64/::2,1\n32,1\n", "ADDRESS/BITS"),
    "twice.csv": ("key,value\n10.0.0.1,1\n167772170,1\n0x0100000a,2\n", "given twice"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_cannot_be_read_is_named(program: bytes, tmp_path: Path, name: str) -> None:
    text, fact = BROKEN[name]
    (tmp_path / name).write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(PlanError) as raised:
        filling({"roads" if name == "roads.csv" else "numbers": str(tmp_path / name)}, program, "lb.bpf.c")
    assert fact in str(raised.value)


def test_a_plan_reads_back_what_it_wrote(program: bytes) -> None:
    """A run's own plan must have the points of the plan that it was made from, also through JSON, whose keys are
    text."""
    given = {"numbers": {1: 2}, "flows": flow(mac="02:00:00:00:00:0a"), "six": "six.csv"}
    for again in (as_given(entries(given)), json.loads(json.dumps(given))):
        assert entries(again) == entries(given)
    assert entries(given)[1:] == (("numbers", "1", "2"), ("six", "", "six.csv"))
    assert entries({"m": {"k": {"b": [1, 2], "a": 3}}}) == (("m", "k", '{"a":3,"b":[1,2]}'),)


@pytest.mark.parametrize("case", WRITTEN)
def test_entry_by_entry_a_value_has_the_bytes_that_it_has_in_a_column(
    program: bytes, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xdplab.programs.maps.columns_of", lambda given: [])
    name, given, data = WRITTEN[case]
    assert filling({name: given}, program, "lb.bpf.c").data == {name: data}
