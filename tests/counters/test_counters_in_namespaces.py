"""Counters against real interfaces: two namespaces, a veth pair, an XDP program and a known number of frames."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest
from tests.compiled import bpf_object, build_once
from tests.counters.deriving import derive, readings_of
from tests.doubles.hosts import in_namespace
from tests.waiting import until

from xdplab.absent import Absent
from xdplab.counters import columns, packets
from xdplab.counters.columns import files_in
from xdplab.counters.probe import install
from xdplab.hosts.local import LocalHost
from xdplab.plan import UserMetric

TOOLS = ("ip", "ethtool", "clang")
pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        any(shutil.which(tool) is None for tool in TOOLS), reason=f"needs {', '.join(TOOLS)} on this machine"
    ),
]

PROGRAMS = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
SEC("tx") int reflect(struct xdp_md *context) { return XDP_TX; }
SEC("pass") int let_pass(struct xdp_md *context) { return XDP_PASS; }
char LICENSE[] SEC("license") = "Dual BSD/GPL";
"""

# Broadcast frames of an unassigned EtherType: no stack answers them, so the counts are exact.
SEND = """
import socket, sys, time
device, frames, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
sender.bind((device, 0))
frame = b"\\xff" * 6 + b"\\x02" * 6 + b"\\x88\\xb5" + bytes(46)
start = time.monotonic()
for number in range(frames):
    while time.monotonic() < start + seconds * number / frames:
        time.sleep(0.001)
    sender.send(frame)
"""


class Pair:
    """A DUT and a TG namespace with two queues each, and their probes."""

    def __init__(self, name: str, directory: Path) -> None:
        self.dut, self.tg = in_namespace(f"{name}d"), in_namespace(f"{name}g")
        sampler, reader = build_once("sampler"), build_once("reader")
        self.dut_probe = install(self.dut, "dut", "vd0", str(directory), reader=reader, sampler=sampler)
        self.tg_probe = install(self.tg, "tg", "vg0", str(directory), reader=reader)

    def close(self) -> None:
        self.dut_probe.close()
        self.tg_probe.close()

    def attach(self, mode: str, program: Path) -> None:
        self.dut.run(["ip", "link", "set", "dev", "vd0", mode, "obj", str(program), "sec", "tx"])
        self.tg.run(["ip", "link", "set", "dev", "vg0", "xdpdrv", "obj", str(program), "sec", "pass"])
        time.sleep(0.3)  # attaching takes the links down and up; by then the links' own frames have passed

    def send(self, frames: int, seconds: float = 0.0) -> None:
        self.tg.run([sys.executable, "-c", SEND, "vg0", str(frames), str(seconds)], deadline_s=seconds + 20)

    def left_behind(self) -> tuple[str, list[str]]:
        """Return the processes in the DUT's namespace without the reader, and the files in the scripts' directory."""
        self.dut_probe.close()
        processes = LocalHost().run(["ip", "netns", "pids", self.dut.name]).text
        return processes, sorted(entry.name for entry in Path(self.dut_probe.directory).iterdir())

    def measure(self, frames: int) -> dict[str, bytes]:
        before = {**self.dut_probe.snapshot("before"), **self.tg_probe.snapshot("before")}
        self.send(frames)
        time.sleep(0.1)
        return {**before, **self.dut_probe.snapshot("after"), **self.tg_probe.snapshot("after")}


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    name = f"xlc{os.getpid()}"
    dut, tg = f"{name}d", f"{name}g"
    queues = "numrxqueues 2 numtxqueues 2"
    link = f"ip link add vd0 netns {dut} {queues} type veth peer name vg0 netns {tg} {queues}"
    try:
        for command in (f"ip netns add {dut}", f"ip netns add {tg}", link):
            subprocess.run(command.split(), check=True, capture_output=True)
        for namespace, device in ((dut, "vd0"), (tg, "vg0")):
            settings = f"ip netns exec {namespace} sysctl -qw net.ipv6.conf.{device}.disable_ipv6=1"
            subprocess.run(settings.split(), check=True, capture_output=True)
            subprocess.run(f"ip -n {namespace} link set {device} up".split(), check=True, capture_output=True)
        made = Pair(name, tmp_path / "scripts")
        yield made
        made.close()
    finally:
        for namespace in (dut, tg):
            subprocess.run(["ip", "netns", "del", namespace], check=False, capture_output=True)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bpf_object(tmp_path_factory.mktemp("program"), PROGRAMS, btf=False)


def test_native_counts_are_exact_and_by_queue(pair: Pair, program: Path) -> None:
    pair.attach("xdpdrv", program)
    values = derive(pair.measure(500), mode="native", shared=True)
    expected = {"dut_counted_by": "driver", "dut_rx_packets": 500, "dut_tx_packets": 500, "tg_link_tx_packets": 500}
    assert {name: values[name] for name in expected} == expected
    by_queue, evenness = values["rx_by_queue"], values["evenness"]
    assert len(by_queue) == 2
    assert sum(by_queue) == 500
    assert 0.5 <= evenness <= 1


def test_generic_mode_is_counted_by_the_link(pair: Pair, program: Path) -> None:
    pair.attach("xdpgeneric", program)
    values = derive(pair.measure(300), mode="generic", shared=True)
    assert values["dut_counted_by"] == "link"
    assert (values["dut_rx_packets"], values["dut_tx_packets"]) == (300, 300)
    assert values["rx_by_queue"] is None
    assert "stayed 0 while the link received 300" in (values.reason("rx_by_queue") or "")


def test_fewer_queues_between_the_readings_are_no_number(pair: Pair) -> None:
    before = pair.dut_probe.snapshot("before")
    pair.tg.run(["ethtool", "-L", "vg0", "tx", "1"])
    pair.dut.run(["ethtool", "-L", "vd0", "rx", "1"])
    values = derive(before, pair.dut_probe.snapshot("after"), mode="native", shared=True)
    assert values.reason("dut_rx_packets") == "2 queues before the window, 1 after it"


def test_the_window_is_found_in_the_samples(pair: Pair, program: Path) -> None:
    pair.attach("xdpdrv", program)
    recording = pair.dut_probe.start(["samples"], deadline_s=20)
    time.sleep(0.3)
    before = pair.dut_probe.snapshot("before")
    pair.send(400, seconds=1.0)
    time.sleep(0.3)
    files = {**before, **pair.dut_probe.snapshot("after"), **recording.stop()}
    values = derive(files, mode="native", shared=False)
    busy, softirq = values["cpu_busy_cores"], values["cpu_softirq_cores"]
    assert 0 <= softirq <= busy <= (os.cpu_count() or 1)
    assert derive(files, mode="native", shared=True)["cpu_busy_cores"] is None


@pytest.mark.skipif(shutil.which("perf") is None, reason="perf is not installed")
def test_perf_counts_the_machine_and_says_what_it_lacks(pair: Pair) -> None:
    recording = pair.dut_probe.start(["perf"], events=["context-switches", "cycles"], deadline_s=20)
    time.sleep(0.2)
    values = derive(recording.stop(), mode="native", shared=True)
    switches = values["host_context_switches"]
    assert switches > 0
    assert values["host_cycles"] is not None or "<not supported>" in (values.reason("host_cycles") or "")


@pytest.mark.skipif(shutil.which("perf") is None, reason="perf is not installed")
def test_perfs_refusal_of_an_event_is_kept(pair: Pair) -> None:
    recording = pair.dut_probe.start(["perf"], events=["no-such-event"], deadline_s=20)
    files = recording.stop()
    assert "dut.perf.out" not in files
    reason = derive(files, mode="native", shared=False).reason("cycles")
    assert "event syntax error: 'no-such-event'" in (reason or "")


@pytest.mark.skipif(shutil.which("sadf") is None, reason="sar is not installed")
def test_sar_records_until_it_is_stopped_and_leaves_nothing(pair: Pair) -> None:
    with pair.dut_probe.start(["sar"], deadline_s=20) as recording:
        time.sleep(4.0)  # one second per sample, and a busy machine starts sar late
        files = recording.stop()
    assert readings_of(files).sar("dut")
    assert b'"iface": "vd0"' in files["dut.sar.out"]
    assert pair.left_behind() == ("", ["sar.sh"])


def test_recorders_end_when_the_recording_is_left_by_an_error(pair: Pair) -> None:
    with pytest.raises(ZeroDivisionError), pair.dut_probe.start(["samples"], deadline_s=20):
        raise ZeroDivisionError
    assert until(lambda: pair.left_behind() == ("", ["sar.sh"]), 5.0)


def test_a_recorder_that_is_stopped_at_once_leaves_nothing(tmp_path: Path) -> None:
    """A recorder's child lost a signal that came before it had reset its parent's traps: 33 of 1500 stayed alive."""
    for row in resources.files("xdplab.counters").iterdir():
        if row.name.endswith(".sh"):
            (tmp_path / row.name).write_text(row.read_text())
    again = "i=0; while [ $i -lt 60 ]; do echo started | sh $* >/dev/null 2>&1; i=$((i + 1)); done"
    subprocess.run(["sh", "-c", again, "sh", f"{tmp_path}/sar.sh"], check=False)
    assert until(lambda: subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True).returncode == 1, 5.0)


def test_user_metrics_are_numbers_or_say_why_not(pair: Pair, tmp_path: Path) -> None:
    metrics = [
        UserMetric(name="queues", argv=["printf", " 12.5\n"], when="before"),
        UserMetric(name="words", argv=["echo", "12 apples"], when="before"),
        UserMetric(name="missing", argv=["no-such-command"], when="after"),
    ]
    files = {**pair.dut_probe.snapshot("before", metrics), **pair.dut_probe.snapshot("after", metrics)}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "scripts").mkdir(exist_ok=True)
    numbers = columns.metrics(readings_of(files_in(tmp_path)))
    assert numbers["queues"] == 12.5
    assert str(numbers["words"]) == "no number in what it printed: '12 apples'"
    assert "no-such-command" in str(numbers["missing"])


def test_a_missing_interface_is_absent_with_the_tools_message(pair: Pair) -> None:
    probe = replace(pair.dut_probe, device="nosuch0")
    files = {**probe.snapshot("before"), **probe.snapshot("after"), **probe.start(["samples"], deadline_s=10).stop()}
    values = derive(files, mode="native", shared=False)
    with pytest.raises(Absent, match='Device "nosuch0" does not exist'):
        packets.link_packets(readings_of(files), "dut", "rx")
    assert values.reason("dut_rx_packets") is not None
    assert files["dut.samples.err"] == b"no network device nosuch0"
    assert values["softnet_dropped"] is not None


VD0 = "/sys/class/net/vd0"
SWITCHED = {
    "port.queues/rx-0/rps_cpus": f"echo 1 > {VD0}/queues/rx-0/rps_cpus",
    "port.queues/rx-1/rps_flow_cnt": f"echo 64 > {VD0}/queues/rx-1/rps_flow_cnt",
    "port.queues/tx-0/xps_cpus": f"echo 1 > {VD0}/queues/tx-0/xps_cpus",
    "port.gro_flush_timeout": f"echo 20000 > {VD0}/gro_flush_timeout",
    "port.napi_defer_hard_irqs": f"echo 2 > {VD0}/napi_defer_hard_irqs",
    "port.threaded": f"ethtool -K vd0 gro on && echo 1 > {VD0}/threaded",
    "port.mtu": "ip link set vd0 mtu 1400",
    "port.flags": "ip link set vd0 promisc on",
    "port.features": "ethtool -K vd0 gro on",
    "port.channels": "ethtool -L vd0 tx 1",
    "port.qdiscs": "tc qdisc add dev vd0 clsact",
    "net.ipv4.ip_forward": "sysctl -qw net.ipv4.ip_forward=$((1 - $(sysctl -n net.ipv4.ip_forward)))",
}
"""A setting of the port, and the command that switches it."""


@pytest.mark.parametrize("name", SWITCHED)
def test_a_setting_that_is_switched_between_the_readings_is_named(pair: Pair, name: str) -> None:
    before = pair.dut_probe.snapshot("before")
    pair.dut.run(["sh", "-c", SWITCHED[name]])
    changed = derive(before, pair.dut_probe.snapshot("after"), mode="native", shared=True)["settings_changed"]
    assert f"dut {name}" in json.loads(changed) or f"dut {name.replace('-0', '-*')}" in changed


def test_a_link_that_went_down_in_between_is_counted(pair: Pair) -> None:
    before = pair.dut_probe.snapshot("before") | pair.tg_probe.snapshot("before")
    pair.tg.run(["sh", "-c", "ip link set vg0 down; ip link set vg0 up"])
    after = pair.dut_probe.snapshot("after") | pair.tg_probe.snapshot("after")
    assert derive(before, after, mode="native", shared=True)["link_changes"] == 2


def test_statistics_that_somebody_switches_on_are_seen_by_the_runs_they_time(pair: Pair, program: Path) -> None:
    """By a file descriptor, as bpftop does: no setting of the kernel says so."""
    pair.attach("xdpdrv", program)
    quiet = derive(pair.measure(200), mode="native", shared=True)
    number = {"x86_64": 321}.get(os.uname().machine, 280)  # of bpf(2)
    hold = f"import ctypes, sys; ctypes.CDLL(None).syscall({number}, 32, bytes(128), 128); print(flush=True); input()"
    holder = LocalHost().start([sys.executable, "-c", hold], deadline_s=30)
    holder.read_line(10)
    timed = derive(pair.measure(200), mode="native", shared=True)
    holder.close_stdin()
    holder.wait(10)
    assert quiet["bpf_timed_runs"] == 0
    assert int(str(timed["bpf_timed_runs"])) >= 200
    assert timed["settings_changed"] == "{}"
