"""A connection holds no more memory after very many commands than after a few."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from xdplab.hosts import ssh
from xdplab.hosts.ssh import SshHost
from xdplab.labs import Lab

pytestmark = pytest.mark.root
A_ROUND = 150


def commands(host: SshHost) -> int:
    """Run some commands and return the bytes that Python holds afterwards."""
    for _ in range(A_ROUND):
        host.run(["true"])
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def test_what_a_connection_remembers_of_its_commands_is_bounded(ssh_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "CHANNELS_KNOWN", 20)
    host = ssh_lab.dut
    assert isinstance(host, SshHost)
    tracemalloc.start()
    try:
        held = [commands(host) for _ in range(4)]
    finally:
        tracemalloc.stop()
    assert len(host._transport().channels_seen) <= 40
    assert held[-1] - held[1] < 2 * A_ROUND * 32, f"{held}: paramiko alone kept 100 bytes per command"
    late = host.start(["sh", "-c", "sleep 0.5; echo late"], deadline_s=10)  # it outlives the record of its number
    for _ in range(50):
        host.run(["true"])
    assert late.read_line(5) == "late"
