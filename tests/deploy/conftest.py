"""Two namespaces joined by an 8-queue veth pair, deleted whatever happens, and hosts that run inside them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from xdplab.deploy.queues import Endpoint
from xdplab.hosts.base import Result
from xdplab.hosts.local import LocalHost, LocalProcess

DROP_PROGRAM = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
SEC("xdp") int drop(struct xdp_md *ctx) { return XDP_DROP; }
char LICENSE[] SEC("license") = "Dual BSD/GPL";
"""


class NamespaceHost(LocalHost):
    """This machine, seen from inside one network namespace."""

    def __init__(self, namespace: str) -> None:
        super().__init__(namespace)
        self._enter = ("ip", "netns", "exec", namespace)

    def run(self, argv: Sequence[str], *, deadline_s: float = 30.0, stdin: bytes = b"", check: bool = True) -> Result:
        return super().run([*self._enter, *argv], deadline_s=deadline_s, stdin=stdin, check=check)

    def start(self, argv: Sequence[str], *, deadline_s: float) -> LocalProcess:
        return super().start([*self._enter, *argv], deadline_s=deadline_s)


class VethLab:
    """DUT with vd0 and TG with vg0, 8 queues each way, both up."""

    def __init__(self, tag: str) -> None:
        self.dut = Endpoint(NamespaceHost(f"{tag}d"), "vd0")
        self.tg = Endpoint(NamespaceHost(f"{tag}g"), "vg0")

    def up(self) -> None:
        for end in (self.dut, self.tg):
            _ip("netns", "add", end.host.name)
        self.link()

    def link(self) -> None:
        """Make the pair, or make it anew."""
        queues = ("numrxqueues", "8", "numtxqueues", "8")
        peer = ("peer", "name", "vg0", "netns", self.tg.host.name, *queues)
        _ip("link", "add", "vd0", "netns", self.dut.host.name, *queues, "type", "veth", *peer)
        for end in (self.dut, self.tg):
            end.host.run(["ip", "link", "set", "dev", end.interface, "up"])
            end.host.run(["ethtool", "-K", end.interface, "gro", "on"])

    def attach(self, end: Endpoint, program: Path) -> None:
        """Attach without an owner, as a loader that died would have left it."""
        words = ("xdpdrv", "object", str(program), "section", "xdp")
        end.host.run(["ip", "link", "set", "dev", end.interface, *words])

    def down(self) -> None:
        for end in (self.dut, self.tg):
            subprocess.run(["ip", "netns", "del", end.host.name], check=False, capture_output=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Iterator[VethLab]:
    if os.geteuid() != 0:
        pytest.skip("needs root: makes network namespaces")
    lab = VethLab(f"xdt{os.getpid()}")
    try:
        lab.up()
        yield lab
    finally:
        lab.down()


@pytest.fixture(scope="session")
def drop_object(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compiled program that drops everything."""
    folder = tmp_path_factory.mktemp("drop")
    (folder / "drop.bpf.c").write_text(DROP_PROGRAM)
    include = f"-I/usr/include/{os.uname().machine}-linux-gnu"
    command = ["clang", "-O2", "-g", "-target", "bpf", include, "-c", "drop.bpf.c", "-o", "drop.bpf.o"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "drop.bpf.o"
