"""Questions about a program on a port (attaching, reading back, detaching, the verifier's path, its maps), and about
several programs: of other cards, in other modes, of other owners, of tc."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from xdplab.deploy.xdp import XdpLoader, XdpRequest, attach, verify
from xdplab.errors import HostError, XdplabError
from xdplab.formats.proc import parse_link
from xdplab.studies.offload.bench import (
    ACCEPTED,
    NOTHING,
    REFUSED,
    SESSION_S,
    Answer,
    Defines,
    HeldProgram,
    OffloadDevices,
    added_card,
    parse_net,
    remove_card,
)

Ask = Callable[[OffloadDevices], Answer]

LENGTHS = (1_000, 10_000, 100_000)
DELAY_MS = 500
THIRD = 73
"""Number of the card that is taken away while its port carries a program."""
GONE_S = 5.0
MOST_TRIED = 64
PIN = "/sys/fs/bpf/xdplab-offload-map"


def _of(look: Callable[[OffloadDevices, HeldProgram], Answer]) -> Ask:
    """Ask something of a program that is attached."""

    def ask(bench: OffloadDevices) -> Answer:
        with bench.held(bench.object()) as held:
            return look(bench, held)

    return ask


@_of
def mode_obtained(_bench: OffloadDevices, held: HeldProgram) -> Answer:
    return Answer(str(held.attached.mode_obtained))


@_of
def mode_shown(_bench: OffloadDevices, held: HeldProgram) -> Answer:
    return Answer(str(held.found.mode), f"program {held.found.program_id}, tag {held.found.tag}")


@_of
def device_shown(bench: OffloadDevices, held: HeldProgram) -> Answer:
    program = next(p for p in bench.programs() if p.program_id == held.loaded.program_id)
    return Answer("the port" if program.device == bench.port else str(program.device), f"dev {program.device}")


@_of
def mode_in_net(bench: OffloadDevices, held: HeldProgram) -> Answer:
    shown = parse_net(bench.run("bpftool", "-j", "net", "show").stdout)
    return Answer(next((a.mode for a in shown if a.program_id == held.loaded.program_id), NOTHING))


@_of
def state_in_driver(bench: OffloadDevices, held: HeldProgram) -> Answer:
    offloaded = bench.run("cat", f"{bench.one.switches}/ports/0/bpf_offloaded_id").text.strip()
    if offloaded != str(held.loaded.program_id):
        return Answer(f"program {offloaded}")
    held_there = bench.run("sh", "-c", f"cat {bench.one.switches}/bpf_bound_progs/*/state").text.split()
    loaded = bench.run("sh", "-c", f"cat {bench.one.switches}/bpf_bound_progs/*/loaded").text.split()
    state = ", ".join([*held_there, *("loaded" if word == "Y" else "not loaded" for word in loaded)])
    return Answer(state, f"bpf_offloaded_id {offloaded}")


@_of
def image_bytes(_bench: OffloadDevices, held: HeldProgram) -> Answer:
    return Answer(str(held.loaded.jited_bytes), f"xlated {held.loaded.xlated_bytes} bytes")


@_of
def test_run(bench: OffloadDevices, held: HeldProgram) -> Answer:
    try:
        held.loader.testrun(64, 1, 1)
    except XdplabError as error:
        return Answer(REFUSED, error.message.rpartition("testrun: ")[2])
    return Answer(ACCEPTED)


def after_detach(bench: OffloadDevices) -> Answer:
    with bench.held(bench.object()) as held:
        held.loader.detach()
        return _left(bench)


def after_kill(bench: OffloadDevices) -> Answer:
    with bench.held(bench.object()) as held:
        bench.run("pkill", "--signal", "KILL", "--full", f"^{held.loader.argv[0]} ")
        return _left(bench)


def _left(bench: OffloadDevices) -> Answer:
    """Return what remains; the kernel may take a moment to free a program."""
    until = time.monotonic() + GONE_S
    while True:
        link, programs = bench.attached(), [p for p in bench.programs() if p.device == bench.port]
        if link.program_id is None and not programs:
            return Answer(NOTHING)
        if time.monotonic() > until:
            return Answer(f"attached: {link.mode}, loaded: {len(programs)}")


def after_removal(bench: OffloadDevices) -> Answer:
    with added_card(bench.host, THIRD, 1) as card:
        request = XdpRequest(bench.object(), card.ports[0], "offload")
        with attach(bench.host, bench.xdpload, request, deadline_s=SESSION_S) as loader:
            remove_card(bench.host, THIRD)
            return _of_orphan(loader)


def _of_orphan(loader: XdpLoader) -> Answer:
    try:
        loader.runstats()
    except XdplabError as error:
        with suppress(HostError):
            loader.detach()
        return Answer(error.message.rpartition(": ")[2], error.message.rpartition("runstats: ")[2])
    return Answer("still there")


def taken(**defines: str | int) -> Ask:
    """Ask whether the probe with these definitions is accepted."""
    return lambda bench: bench.taken(bench.object(**defines))


def taken_at(port_of: Callable[[OffloadDevices], str]) -> Ask:
    """Ask whether the probe is accepted at another interface."""
    return lambda bench: bench.taken(bench.object(), port=port_of(bench))


def switched(switch: str, value: str, mode: str, defines: Defines) -> Ask:
    """Ask whether a program is accepted while one of the driver's switches is set."""

    def ask(bench: OffloadDevices) -> Answer:
        with bench.switched(switch, value):
            return bench.taken(bench.object(**defines), mode)

    return ask


def hook(bench: OffloadDevices) -> Answer:
    """The log comes only with a refusal."""
    with bench.switched("bpf_bind_verifier_accept", "N"):
        text = bench.taken(bench.object()).words or ""
    return Answer("there" if "[netdevsim] " in text else "not there", text)


def delayed(bench: OffloadDevices) -> Answer:
    """No time is measured here: a wait of half a second is seen on any clock."""
    with bench.switched("bpf_bind_verifier_delay", str(DELAY_MS)), bench.held(bench.object()) as held:
        waited = held.loaded.load_ns >= DELAY_MS * 1_000_000
    return Answer("waited" if waited else "did not wait")


def longest(bench: OffloadDevices) -> Answer:
    answer, most = Answer(NOTHING), 0
    for length in LENGTHS:
        answer = bench.taken(bench.object(INSTRUCTIONS=length))
        if answer.obtained != ACCEPTED:
            break
        most = length
    return Answer(str(most), answer.words)


def _map(kind: str, entries: int = 1, key: int = 4, value: int = 8, flags: int = 0) -> dict[str, str | int]:
    sizes = {"MAP_ENTRIES": entries, "KEY_BYTES": key, "VALUE_BYTES": value, "MAP_FLAGS": flags}
    return {"MAP_TYPE": f"BPF_MAP_TYPE_{kind}"} | sizes


ARRAY = _map("ARRAY") | {"LOOKUP": 1}
NO_PREALLOC = 1
FLAGGED = _map("HASH", flags=NO_PREALLOC)
PERF = _map("PERF_EVENT_ARRAY", value=4) | {"OUTPUT": 1}

REFUSED_TYPES = {
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
"""Map types that programs on a host have, and that no card may have."""


def most_entries(kind: str) -> Ask:
    """Ask for 1, 2, 3 … entries until they are refused; the message is that of the first refusal."""

    def ask(bench: OffloadDevices) -> Answer:
        path = bench.object(**(_map(kind) | {"LOOKUP": 1}))
        for entries in range(1, MOST_TRIED + 1):
            answer = bench.taken(path, max_entries={"asked": entries})
            if answer.obtained != ACCEPTED:
                return Answer(str(entries - 1), answer.words)
        return Answer(f"{MOST_TRIED} and more")

    return ask


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


OFFLOAD, NATIVE, GENERIC = "xdpoffload", "xdpdrv", "xdpgeneric"


def _pinned(kind: str, port_of: Callable[[OffloadDevices], str | None]) -> Ask:
    """Ask whether a program that bpftool has loaded for a port, or for none, can be attached to ours."""

    def ask(bench: OffloadDevices) -> Answer:
        port = port_of(bench)
        device = ("dev", port) if port else ()
        with bench.pinned(bench.object(), *device) as pin, bench.beside(pin, kind) as answer:
            return answer

    return ask


same_card = _pinned(OFFLOAD, lambda bench: bench.one.ports[1])
other_card = _pinned(OFFLOAD, lambda bench: bench.other.ports[0])
unbound = _pinned(OFFLOAD, lambda _: None)
bound_as_native = _pinned(NATIVE, lambda bench: bench.port)


def beside_ours(kind: str) -> Ask:
    """Ask which programs are attached once one of another mode has come beside ours."""

    def ask(bench: OffloadDevices) -> Answer:
        with bench.held(bench.object()), bench.pinned(bench.object()) as pin, bench.beside(pin, kind) as answer:
            if answer.obtained == REFUSED:
                return answer
            shown = parse_link(bench.run("ip", "-s", "-j", "-d", "link", "show", "dev", bench.port).stdout)
            return Answer(", ".join(sorted(a.mode for a in shown.attachments)))

    return ask


def generic_beside_native(bench: OffloadDevices) -> Answer:
    path = bench.object()
    with bench.held(path, "native"), bench.pinned(path) as pin, bench.beside(pin, GENERIC) as answer:
        return answer


def second(bench: OffloadDevices) -> Answer:
    path = bench.object()
    with bench.held(path), bench.pinned(path, "dev", bench.port) as pin, bench.beside(pin, OFFLOAD) as answer:
        return answer


def ours_second(bench: OffloadDevices) -> Answer:
    with bench.pinned(bench.object()) as pin, bench.beside(pin, NATIVE):
        return bench.taken(bench.object())


def noticed(bench: OffloadDevices) -> Answer:
    with bench.held(bench.object()) as held, bench.pinned(bench.object()) as pin, bench.beside(pin, NATIVE):
        try:
            verify(bench.host, bench.port, program_id=held.loaded.program_id, mode="offload")
        except XdplabError as error:
            return Answer(REFUSED, error.message.removeprefix(f"{bench.host.name}: "))
        return Answer(ACCEPTED)


@contextmanager
def _ingress(bench: OffloadDevices) -> Iterator[None]:
    """Create a place for filters on the port, and switch on its hardware part."""
    bench.run("ethtool", "-K", bench.port, "hw-tc-offload", "on")
    bench.run("tc", "qdisc", "add", "dev", bench.port, "clsact")
    try:
        yield
    finally:
        bench.run("tc", "qdisc", "del", "dev", bench.port, "clsact")
        bench.run("ethtool", "-K", bench.port, "hw-tc-offload", "off")


def _add_filter(bench: OffloadDevices, *options: str) -> Answer:
    path = bench.object(FILTER=1)
    return bench.answer(
        *("tc", "filter", "add", "dev", bench.port, "ingress", "bpf", "da", *options),
        *("object-file", path, "section", "tc"),
    )


def tc_filter(switch: str, value: str, *, hardware_only: bool) -> Ask:
    """Ask whether tc can offload a filter while a switch is set."""

    def ask(bench: OffloadDevices) -> Answer:
        with bench.switched(switch, value), _ingress(bench):
            answer = _add_filter(bench, *(["skip_sw"] if hardware_only else []))
            return answer if hardware_only or answer.obtained == REFUSED else _in_hardware(bench)

    return ask


def _in_hardware(bench: OffloadDevices) -> Answer:
    shown = bench.run("tc", "-j", "filter", "show", "dev", bench.port, "ingress")
    inside = any(row.get("options", {}).get("in_hw") for row in json.loads(shown.stdout or b"[]"))
    return Answer("in hardware" if inside else "not in hardware")


def while_tc_holds(bench: OffloadDevices) -> Answer:
    with _ingress(bench):
        added = _add_filter(bench, "skip_sw")
        return bench.taken(bench.object()) if added.obtained == ACCEPTED else added
