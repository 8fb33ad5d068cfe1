"""A DUT that forwards from port to port, in both directions at once: each direction is counted by itself."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.generators.conftest import Bench

from xdplab.errors import HostError
from xdplab.formats.generator import Summary

pytestmark = [pytest.mark.root, pytest.mark.lab]

FIRST, SECOND = 101, 102  # the numbers of the DUT's ports, as in dut.bpf.c
engines = pytest.mark.parametrize("engine", ["live", "afxdp"])


@dataclass(frozen=True)
class Ports:
    """A DUT of two ports, d0 and d1, in a namespace inside the TG, whose ends are v0 and v1."""

    bench: Bench

    def run(self, *argv: str) -> str:
        return self.bench.lab.tg.run(list(argv)).text

    def inside(self, *argv: str) -> str:
        return self.run("nsenter", "--net=/run/netns/ports", *argv)

    def cross(self) -> None:
        """Attach the forwarding program to both ports, and tell it which port leads to which."""
        for port, own, other in (("d0", FIRST, SECOND), ("d1", SECOND, FIRST)):
            object_ = ("xdpdrv", "object", self.bench.dut_object, "section", "xdp/cross")
            self.inside("ip", "link", "set", "dev", port, *object_)
            (link,) = json.loads(self.inside("ip", "-j", "link", "show", "dev", port))
            program = json.loads(self.inside("bpftool", "-j", "prog", "show", "id", str(link["xdp"]["prog"]["id"])))
            maps = [json.loads(self.inside("bpftool", "-j", "map", "show", "id", str(n))) for n in program["map_ids"]]
            (devices,) = [str(one["id"]) for one in maps if one["name"] == "ports"]
            numbers = ("key", str(own), "0", "0", "0", "value", str(other), "0", "0", "0")
            self.inside("bpftool", "map", "update", "id", devices, *numbers)

    def packets(self, device: str, direction: str) -> int:
        words = ("ip", "-j", "-s", "link", "show", device)
        (found,) = json.loads(self.inside(*words) if device.startswith("d") else self.run(*words))
        return int(found["stats64"][direction]["packets"])

    def send(self, engine: str, ways: dict[str, str], seconds: float = 0.4, **changes: Any) -> dict[str, Summary]:
        """Send from each of ``ways`` to the port it names, all at once, and return what came of each."""
        with ExitStack() as stack, ThreadPoolExecutor() as pool:
            generators = {}
            for number, (port, other) in enumerate(ways.items()):
                cpus = self.bench.lab.cpus().tg  # two real-time senders on one CPU would be one after the other
                own = {"interface": port, "receive_on": other, "cpus": (cpus[number % len(cpus)],)}
                settings = own | {"run_id": f"b{number}", "src_mac": None}
                generators[port] = stack.enter_context(self.bench.generator(engine, **settings | changes))
                generators[port].start()
            bursts = {port: pool.submit(one.burst, "measure", seconds) for port, one in generators.items()}
            found = {port: burst.result().summary for port, burst in bursts.items()}
            for one in generators.values():
                one.stop()
        return found


@pytest.fixture
def ports(traffic_bench: Bench, tmp_path: Path) -> Iterator[Ports]:
    made = Ports(traffic_bench)
    made.run("ip", "netns", "add", "ports")
    try:
        for number, (near, far) in enumerate((("v0", "d0"), ("v1", "d1"))):
            index = str((FIRST, SECOND)[number])
            made.inside("ip", "link", "add", far, "index", index, "type", "veth", "peer", "name", near)
            made.inside("ip", "link", "set", near, "netns", "1")
            made.run("sysctl", "-qw", f"net.ipv6.conf.{near}.disable_ipv6=1")  # or the kernel sends frames of its own
            made.inside("sysctl", "-qw", f"net.ipv6.conf.{far}.disable_ipv6=1")
            made.run("ip", "link", "set", near, "up")
            made.inside("ip", "link", "set", far, "up")
        yield made
    finally:
        for near in ("v0", "v1"):  # the kernel takes its time over those of a namespace
            traffic_bench.lab.tg.run(["ip", "link", "del", near], check=False)
        made.run("ip", "netns", "del", "ports")


@engines
def test_one_direction_arrives_on_the_other_port(ports: Ports, engine: str) -> None:
    ports.cross()
    before = {name: ports.packets(name, "tx") for name in ("v0", "d0", "d1", "v1")}
    summary = ports.send(engine, {"v0": "v1"}, max_frames=20_000, rate_pps=100e3)["v0"]
    assert (summary.tx_packets, summary.rx_packets, summary.lost_packets) == (20_000, 20_000, 0)
    assert (summary.duplicates, summary.reordered, summary.foreign_packets) == (0, 0, 0)
    moved = {name: ports.packets(name, "tx") - was for name, was in before.items()}
    assert moved == {"v0": 20_000, "d0": 0, "d1": 20_000, "v1": 0}


@engines
def test_both_directions_at_once_are_counted_apart(ports: Ports, engine: str) -> None:
    """The DUT drops one frame in ten of those from v1, and none of those from v0; the ports' own counters agree."""
    ports.cross()
    before = {name: ports.packets(name, "rx") for name in ("d0", "d1", "v0", "v1")}
    found = ports.send(engine, {"v0": "v1", "v1": "v0"}, max_frames=10_000, rate_pps=30e3)
    assert [one.tx_packets for one in found.values()] == [10_000, 10_000]
    assert {port: one.rx_packets for port, one in found.items()} == {"v0": 10_000, "v1": 9_000}
    assert {port: one.lost_packets for port, one in found.items()} == {"v0": 0, "v1": 1_000}
    assert [one.foreign_packets for one in found.values()] == [0, 0]
    moved = {name: ports.packets(name, "rx") - was for name, was in before.items()}
    assert moved == {"d0": 10_000, "d1": 10_000, "v1": 10_000, "v0": 9_000}
    assert sum(one.rx_packets or 0 for one in found.values()) == moved["v0"] + moved["v1"]


def test_at_maximum_load_the_two_directions_run_at_the_same_time(ports: Ports) -> None:
    ports.cross()
    found = ports.send("live", {"v0": "v1", "v1": "v0"}, imix=(64, 1518))
    for summary in found.values():
        assert summary.tx_packets > 1_000
        assert summary.foreign_packets == 0
        assert sum(frames for _, frames in summary.rx_by_size or ()) == summary.rx_packets


def test_a_frame_of_the_other_direction_is_not_mistaken(ports: Ports) -> None:
    """The DUT sends each frame back to its port: neither direction takes the other's frames for its own."""
    for port in ("d0", "d1"):
        ports.inside(
            "ip", "link", "set", "dev", port, "xdpdrv", "object", ports.bench.dut_object, "section", "xdp/reflect"
        )
    found = ports.send("live", {"v0": "v1", "v1": "v0"}, max_frames=2_000, rate_pps=5000.0)
    assert [(one.rx_packets, one.foreign_packets) for one in found.values()] == [(0, 0), (0, 0)]
    assert all(0 < (one.bad_run_id or 0) <= 2_000 for one in found.values())  # a burst counts from its own beginning on


def test_a_port_that_is_not_there_is_named(ports: Ports) -> None:
    with pytest.raises(HostError, match="there is no interface v9"):
        ports.send("live", {"v0": "v9"})
