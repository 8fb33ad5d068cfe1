"""Questions about maps on a card: types, sizes, flags, values."""

from __future__ import annotations

import json
from collections.abc import Callable

from xdplab.studies.offload.bench import ACCEPTED, REFUSED, Answer, OffloadDevices

MOST_TRIED = 64
PIN = "/sys/fs/bpf/xdplab-offload-map"


def _map(kind: str, entries: int = 1, key: int = 4, value: int = 8, flags: int = 0) -> dict[str, str | int]:
    sizes = {"MAP_ENTRIES": entries, "KEY_BYTES": key, "VALUE_BYTES": value, "MAP_FLAGS": flags}
    return {"MAP_TYPE": f"BPF_MAP_TYPE_{kind}"} | sizes


ARRAY = _map("ARRAY") | {"LOOKUP": 1}
NO_PREALLOC = 1

_TYPES = {
    "PERCPU_ARRAY": _map("PERCPU_ARRAY"),
    "PERCPU_HASH": _map("PERCPU_HASH"),
    "LRU_HASH": _map("LRU_HASH"),
    "LPM_TRIE": _map("LPM_TRIE", key=8, flags=NO_PREALLOC),
    "PROG_ARRAY": _map("PROG_ARRAY", value=4),
    "DEVMAP": _map("DEVMAP", value=4),
    "CPUMAP": _map("CPUMAP", value=4),
    "XSKMAP": _map("XSKMAP", value=4),
    "QUEUE": _map("QUEUE", key=0),
    "RINGBUF": _map("RINGBUF", entries=4096, key=0, value=0),
}
REFUSED_TYPES = tuple(_TYPES)
"""Map types that programs on a host have, and that no card may have."""


def of_type(kind: str) -> Callable[[OffloadDevices], Answer]:
    """Ask whether a map of that type is accepted."""
    return lambda bench: bench.taken(bench.object(**_TYPES[kind]))


def most_entries(kind: str) -> Callable[[OffloadDevices], Answer]:
    """Ask for 1, 2, 3 … entries until they are refused; the message is that of the first refusal."""

    def ask(bench: OffloadDevices) -> Answer:
        path = bench.object(**(_map(kind) | {"LOOKUP": 1}))
        for entries in range(1, MOST_TRIED + 1):
            answer = bench.taken(path, max_entries={"asked": entries})
            if answer.obtained != ACCEPTED:
                return Answer(str(entries - 1), answer.words)
        return Answer(f"{MOST_TRIED} and more")

    return ask


def with_flags(bench: OffloadDevices) -> Answer:
    return bench.taken(bench.object(**_map("HASH", flags=NO_PREALLOC)))


def constant(bench: OffloadDevices) -> Answer:
    return bench.taken(bench.object(CONSTANT=1))


def variable(bench: OffloadDevices) -> Answer:
    return bench.taken(bench.object(VARIABLE=1))


def perf_buffer(bench: OffloadDevices) -> Answer:
    return bench.taken(bench.object(**(_map("PERF_EVENT_ARRAY", value=4) | {"OUTPUT": 1})))


def two_programs(bench: OffloadDevices) -> Answer:
    return bench.taken(bench.object(**(ARRAY | {"SECOND": 1})))


def value_read_back(bench: OffloadDevices) -> Answer:
    with bench.held(bench.object(**ARRAY)) as held:
        (number,) = held.loaded.map_ids
        place = ["map", "update", "id", str(number), "key", "0", "0", "0", "0"]
        bench.run("bpftool", *place, "value", "7", *"0000000")
        shown = bench.run("bpftool", "-j", "map", "lookup", "id", str(number), "key", "0", "0", "0", "0")
        if not shown.ok:
            return Answer(REFUSED, shown.text.strip())
        return Answer(str(int.from_bytes(bytes(int(byte, 16) for byte in json.loads(shown.stdout)["value"]), "little")))


def element_deleted(bench: OffloadDevices) -> Answer:
    with bench.held(bench.object(**ARRAY)) as held:
        (number,) = held.loaded.map_ids
        return bench.answer("bpftool", "map", "delete", "id", str(number), "key", "0", "0", "0", "0")


def map_of_other_card(bench: OffloadDevices) -> Answer:
    path = bench.object(**ARRAY)
    with bench.held(path) as held:
        (number,) = held.loaded.map_ids
        foreign = ("map", "name", "asked", "id", str(number), "dev", bench.other.ports[0])
        try:
            return bench.answer("bpftool", "prog", "load", path, PIN, "type", "xdp", *foreign)
        finally:
            bench.run("rm", "-f", PIN)
