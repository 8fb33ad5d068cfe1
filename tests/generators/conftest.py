"""A netns lab for these tests, with xdpgen built on its TG, and several kinds of DUT."""

import ctypes
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from xdplab.deploy.native import build_tool
from xdplab.deploy.queues import Endpoint, set_queues
from xdplab.generators import Generator, GeneratorSettings
from xdplab.hosts import Process
from xdplab.labs import Lab, use_lab

HERE = Path(__file__).parent
FIFO = 20
"""Higher than that of other labs on the same CPUs: a sender of equal priority would wait until their senders end."""


@dataclass(frozen=True)
class Bench:
    """The lab with all tools on its hosts."""

    lab: Lab
    xdpgen: str
    dut_object: str
    echo_script: str

    def settings(self, engine: str = "live", **changes: Any) -> GeneratorSettings:
        macs = {"src_mac": self.lab.tg_mac, "dst_mac": self.lab.dut_mac}
        base = GeneratorSettings(engine, self.lab.tg_interface, run_id="beef")
        return base.changed(**({"fifo": FIFO} | macs | changes))

    def generator(self, engine: str = "live", **changes: Any) -> Generator:
        return Generator(self.lab.tg, self.settings(engine, **changes), self.xdpgen, deadline_s=60.0)

    @contextmanager
    def dut(self, program: str) -> Iterator[None]:
        """The DUT runs one of dut.bpf.c's programs."""
        link = ("ip", "link", "set", "dev", self.lab.dut_interface, "xdpdrv")
        self.lab.dut.run([*link, "object", self.dut_object, "program", program])
        try:
            yield
        finally:
            self.lab.dut.run([*link, "off"])

    def came(self, name: str = "came") -> dict[int, int]:
        """What the DUT's program counted in its map ``name``, without zeros; read it while the program runs."""
        shown = json.loads(self.lab.dut.run(["bpftool", "-j", "map", "show", "name", name]).text)
        libbpf, most = ctypes.CDLL("libbpf.so.1", use_errno=True), shown["max_entries"]
        batch, count = ctypes.c_uint32(), ctypes.c_uint32(most)
        keys, values = (ctypes.c_uint32 * most)(), (ctypes.c_uint64 * most)()
        descriptor = libbpf.bpf_map_get_fd_by_id(shown["id"])
        try:
            # One call for all of them: bpftool makes one for each of 131,072 entries.
            failed = libbpf.bpf_map_lookup_batch(
                descriptor, None, ctypes.byref(batch), keys, values, ctypes.byref(count), None
            )
        finally:
            os.close(descriptor)
        assert (failed, count.value) == (0, most), os.strerror(ctypes.get_errno())
        return {key: value for key, value in zip(keys, values, strict=True) if value}

    @contextmanager
    def echo(self, faults: Any, seconds: float = 20.0) -> Iterator[Process]:
        """The DUT is echo_dut.py."""
        argv = ["python3", self.echo_script, self.lab.dut_interface, json.dumps(faults), str(seconds)]
        process = self.lab.dut.start(argv, deadline_s=seconds + 5)
        try:
            assert process.read_line(10.0) == "ready"
            yield process
        finally:
            process.kill()

    @contextmanager
    def queues(self, queues: int) -> Iterator[None]:
        self._set_queues(queues)
        try:
            yield
        finally:
            self._set_queues(1)

    @contextmanager
    def mtu(self, mtu: int) -> Iterator[None]:
        """Both ends of the link have this MTU."""
        self._set_mtu(mtu)
        try:
            yield
        finally:
            self._set_mtu(1500)

    def _set_mtu(self, mtu: int) -> None:
        lab = self.lab
        for host, interface in ((lab.dut, lab.dut_interface), (lab.tg, lab.tg_interface)):
            host.run(["ip", "link", "set", "dev", interface, "mtu", str(mtu)])

    def _set_queues(self, queues: int) -> None:
        lab = self.lab
        set_queues(Endpoint(lab.dut, lab.dut_interface), Endpoint(lab.tg, lab.tg_interface), queues)

    @contextmanager
    def counting(self) -> Iterator[list[int]]:
        """At the block's end, fill the list with the frames that each DUT queue gave its XDP program in it."""
        gained: list[int] = []
        before = self._queue_packets()
        yield gained
        gained += [after - was for was, after in zip(before, self._queue_packets(), strict=True)]

    def _queue_packets(self) -> list[int]:
        shown = self.lab.dut.run(["ethtool", "-S", self.lab.dut_interface]).text
        return [int(line.split(":")[1]) for line in shown.splitlines() if "_xdp_packets" in line]


def _compile(target: Path) -> Path:
    machine = subprocess.run(["cc", "-dumpmachine"], check=True, capture_output=True, text=True).stdout.strip()
    command = ["clang", "-O2", "-g", "-target", "bpf", "-mcpu=v3", f"-I/usr/include/{machine}", "-Wall", "-Werror"]
    subprocess.run([*command, "-c", str(HERE / "dut.bpf.c"), "-o", str(target)], check=True)
    return target


@pytest.fixture(scope="session")
def traffic_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with use_lab(f"netns:traffic-{os.getpid()}") as lab:
        on_dut, on_tg = lab.work_dir(lab.dut), lab.work_dir(lab.tg)
        compiled = _compile(tmp_path_factory.mktemp("dut") / "dut.bpf.o")
        for host, folder in ((lab.dut, on_dut), (lab.tg, on_tg)):  # a test may make its DUT inside the TG
            host.put(compiled, f"{folder}/dut.bpf.o")
        lab.dut.put(HERE / "echo_dut.py", f"{on_dut}/echo_dut.py")
        bench = Bench(lab, build_tool(lab.tg, "xdpgen", on_tg), f"{on_dut}/dut.bpf.o", f"{on_dut}/echo_dut.py")
        with bench.queues(1):
            yield bench


@pytest.fixture
def one_burst(traffic_bench: Bench) -> Callable[..., Any]:
    """Send one burst of ``seconds`` with changed settings, and return its result."""

    def send(engine: str = "live", seconds: float = 0.2, **changes: Any) -> Any:
        with traffic_bench.generator(engine, **changes) as generator:
            generator.start()
            burst = generator.burst("measure", seconds)
            generator.stop()
        return burst

    return send
