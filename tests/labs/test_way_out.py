"""A DUT that would route test frames out of the lab is refused before anything is sent."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from xdplab import labs
from xdplab.labs import Lab

pytestmark = pytest.mark.root

PLAN = """
name: out
repetitions: 1
trial: {warmup_s: 0.05, window_s: 0.1, pause_s: 0.0}
blocks:
  - points: {mode: native, workload: array, accesses: 0, frame_bytes: 128}
    traffic: {engine: live, ip_version: %d}
"""
# Another network of the DUT, with the default route: its server's management network, for example.
OTHER = """
ip link add out0 type veth peer name out1
for port in out0 vd0; do echo 0 >/proc/sys/net/ipv6/conf/$port/disable_ipv6; done
ip link set out0 up; ip link set out1 up
ip addr add 192.0.2.1/24 dev out0; ip -6 addr add 2001:db8::1/64 dev out0 nodad
ip neigh add 192.0.2.9 dev out0 lladdr 02:00:00:00:00:09; ip -6 neigh add 2001:db8::9 dev out0 lladdr 02:00:00:00:00:09
ip route add default via 192.0.2.9; ip -6 route add default via 2001:db8::9
echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
"""
SEND = """
import socket, sys
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
link.bind(("vg0", 0))
macs = sys.argv[1].replace(":", "") + "020000000002"
frame = bytes.fromhex(macs + "0800" "4500002e000000004011ee97" "c6120001" "c6130001").ljust(60, b"\\0")
for _ in range(500):
    link.send(frame)
"""


@pytest.fixture
def server() -> Iterator[Lab]:
    with labs.use_lab(f"netns:out-{os.getpid()}") as lab:
        lab.dut.run(["sh", "-ec", OTHER])
        yield lab


def run(lab: Lab, folder: Path, version: int) -> subprocess.CompletedProcess[str]:
    (folder / "plan.yaml").write_text(PLAN % version)
    argv = [sys.executable, "-m", "xdplab", "run", "plan.yaml", "--lab", lab.name, "--out", "out", "--no-figures"]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)


def left(lab: Lab) -> int:
    return int(lab.dut.run(["cat", "/sys/class/net/out1/statistics/rx_packets"]).text)


@pytest.mark.thorough
def test_a_dut_that_routes_frames_out_of_the_lab_is_refused(server: Lab, tmp_path: Path) -> None:
    before = left(server)
    server.tg.run(["python3", "-c", SEND, server.dut_mac])
    assert left(server) - before >= 500, "without a program, the DUT's kernel routes what it receives"
    for version, remedy in (
        (4, ["sh", "-c", "echo 0 >/proc/sys/net/ipv4/conf/vd0/forwarding"]),
        (6, ["ip", "-6", "route", "add", "blackhole", "2001:2::/48"]),
    ):
        refused = run(server, tmp_path, version)
        assert refused.returncode != 0
        assert "it would route the traffic's frames from vd0 to out0, out of the lab" in refused.stderr
        server.dut.run(remedy)
        done = run(server, tmp_path, version)
        assert done.returncode == 0, done.stderr
