"""Questions about several programs: of other cards, in other modes, of other owners, of tc."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from xdplab.deploy.xdp import verify
from xdplab.errors import XdplabError
from xdplab.formats.iplink import parse_link
from xdplab.studies.offload.bench import ACCEPTED, REFUSED, Answer, OffloadDevices

OFFLOAD, NATIVE, GENERIC = "xdpoffload", "xdpdrv", "xdpgeneric"


def _pinned(bench: OffloadDevices, loaded_for: str | None, kind: str) -> Answer:
    """Return whether a program that bpftool has loaded for a port, or for none, can be attached to ours."""
    device = ("dev", loaded_for) if loaded_for else ()
    with bench.pinned(bench.object(), *device) as pin, bench.beside(pin, kind) as answer:
        return answer


def same_card(bench: OffloadDevices) -> Answer:
    return _pinned(bench, bench.one.ports[1], OFFLOAD)


def other_card(bench: OffloadDevices) -> Answer:
    return _pinned(bench, bench.other.ports[0], OFFLOAD)


def unbound(bench: OffloadDevices) -> Answer:
    return _pinned(bench, None, OFFLOAD)


def bound_as_native(bench: OffloadDevices) -> Answer:
    return _pinned(bench, bench.port, NATIVE)


def _beside_ours(bench: OffloadDevices, kind: str) -> Answer:
    with bench.held(bench.object()), bench.pinned(bench.object()) as pin, bench.beside(pin, kind) as answer:
        if answer.obtained == REFUSED:
            return answer
        shown = parse_link(bench.run("ip", "-s", "-j", "-d", "link", "show", "dev", bench.port).stdout)
        return Answer(", ".join(sorted(a.mode for a in shown.attachments)))


def native_beside(bench: OffloadDevices) -> Answer:
    return _beside_ours(bench, NATIVE)


def generic_beside(bench: OffloadDevices) -> Answer:
    return _beside_ours(bench, GENERIC)


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


def tc_filter(switch: str, value: str, *, hardware_only: bool) -> Callable[[OffloadDevices], Answer]:
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
