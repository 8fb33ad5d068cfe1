"""The AF_XDP application under real traffic: TG and DUT agree on every frame."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.compiled import build_once
from tests.doubles.other_sender import SEND_ON
from tests.generators.echo_dut import hostile, with_sum
from tests.waiting import until

from xdplab.deploy.afxdp import AfxdpForwarder, AfxdpRequest, forward
from xdplab.deploy.deployment import Deployment
from xdplab.deploy.native import build_workload
from xdplab.deploy.queues import set_queues
from xdplab.deploy.xdp import attached_program, await_nothing_attached, verify
from xdplab.errors import HostError, ProgramError, UnsupportedError
from xdplab.programs.source import user_source, user_state
from xdplab.programs.spec import ProgramSpec

pytestmark = [pytest.mark.root, pytest.mark.lab]


@pytest.fixture
def forwarder(lab, afxdp_user, swap_workload):
    """Start the application on the DUT with chosen options; it ends with the test."""
    with contextlib.ExitStack() as stack:

        def start(**options) -> AfxdpForwarder:
            request = AfxdpRequest(**{"interface": "vd0", "queues": 1, "workload": swap_workload} | options)
            return stack.enter_context(forward(lab.dut.host, afxdp_user, request, deadline_s=60))

        yield start


def offer(lab, xdpgen: str, queues: int, engine: str, *options: str) -> dict:
    """Send one burst from the TG and return its summary."""
    argv = [xdpgen, "--interface", "vg0", "--engine", engine, "--queues", str(queues), "--frame-bytes", "64"]
    argv += ["--src-mac", "02:00:00:00:00:01", "--dst-mac", "02:00:00:00:00:02"]
    argv += ["--bursts", "measure:0.4", "--settle", "0.1", *options]
    lines = [json.loads(line) for line in lab.tg.host.run(argv).text.splitlines()]
    return next(line for line in lines if line["type"] == "summary")


def owner_of(lab, running: AfxdpForwarder) -> int:
    """Return the process id of the application itself, not of what started it."""
    return int(lab.dut.host.run(["pgrep", "-f", f"^{running.argv[0]} --interface vd0"]).text.split()[0])


@pytest.mark.parametrize("attach", ["native", "generic"])
@pytest.mark.parametrize("engine", ["live", "afxdp"])
def test_shared_cpu_loses_nothing_and_counts_exactly(lab, forwarder, xdpgen, attach, engine):
    set_queues(lab.dut, lab.tg, 1)
    running = forwarder(attach=attach, cpus=(0,), fifo=6)
    assert running.ready.sched_policy == "SCHED_FIFO:6"
    summary = offer(lab, xdpgen, 1, engine, "--cpus", "0")
    queue = running.stats().queues[0]
    assert queue.rx == queue.tx == summary["tx_packets"] == summary["rx_packets"] > 1000
    assert (queue.tx_dropped, queue.tx_pending, queue.rx_dropped) == (0, 0, 0)
    assert running.stop().queues[0].tx == queue.tx


@pytest.mark.parametrize("queues", [2, 8])
def test_every_queue_forwards_and_counts_its_own(lab, forwarder, xdpgen, queues):
    set_queues(lab.dut, lab.tg, queues)
    running = forwarder(queues=queues, fifo=6)
    cpus = {queue.cpu for queue in running.ready.queues}
    assert len(list(Path(f"/proc/{owner_of(lab, running)}/task").iterdir())) == 1 + len(cpus)
    summary = offer(lab, xdpgen, queues, "afxdp", "--load", "40000")
    stats = running.stats()
    assert [queue.rx for queue in stats.queues] == summary["tx_by_queue"]
    assert min(summary["tx_by_queue"]) > 100
    assert stats.total("tx") == summary["rx_packets"]
    assert stats.unbound_packets == 0


def test_overload_on_two_cpus_accounts_for_every_frame(lab, forwarder, xdpgen):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs: the sender has its own")
    set_queues(lab.dut, lab.tg, 1)
    running = forwarder(cpus=(1,), busy=True)
    received = lab.link_packets(lab.tg)[0]
    summary = offer(lab, xdpgen, 1, "live", "--cpus", "0", "--max-frames", "400000")
    running.stats()
    queue = running.stop().queues[0]
    assert queue.rx + queue.rx_dropped == summary["tx_packets"] == 400000
    assert queue.fill_ring_empty == queue.rx_dropped > 0
    assert queue.rx == queue.tx + queue.tx_dropped
    assert lab.link_packets(lab.tg)[0] - received == queue.tx


def test_frames_that_the_driver_drops_on_the_way_back_are_counted(lab, forwarder):
    """The frames wait in the ring of the stopped application until the TG's interface no longer accepts their size."""
    set_queues(lab.dut, lab.tg, 1)
    running = forwarder()
    owner = owner_of(lab, running)
    os.kill(owner, signal.SIGSTOP)
    lab.send(100, length=1514)
    lab.tg.host.run(["ip", "link", "set", "dev", "vg0", "mtu", "500"])
    os.kill(owner, signal.SIGCONT)
    queue = running.stop().queues[0]
    assert (queue.rx, queue.tx, queue.tx_dropped, queue.tx_pending) == (100, 0, 100, 0)
    assert lab.link_packets(lab.tg)[0] == 0


def test_refused_real_time_priority_is_said(lab, afxdp_user, swap_workload):
    argv = ["setpriv", "--bounding-set=-sys_nice", afxdp_user, "--interface", "vd0", "--workload", swap_workload]
    ready = json.loads(lab.dut.host.run([*argv, "--fifo", "6"]).text.splitlines()[0])
    assert ready["sched_policy"] == "SCHED_OTHER (refused: EPERM)"


def test_queues_without_a_socket_are_counted(lab, forwarder):
    running = forwarder(queues=1)
    lab.dut.host.run(["ethtool", "-L", "vd0", "rx", "8"])
    lab.tg.host.run(["sh", "-c", "for q in /sys/class/net/vg0/queues/tx-*; do echo 0 > $q/xps_cpus; done"])
    before = lab.link_packets(lab.dut)[0]
    lab.send(2000, flows=64)
    stats = running.stop()
    assert stats.total("rx") + stats.unbound_packets == 2000
    assert stats.unbound_packets > 0
    assert lab.link_packets(lab.dut)[0] - before == 2000


@pytest.mark.parametrize("length", [60, 1514])
def test_frames_come_back_with_swapped_macs_and_the_state_in_them(lab, forwarder, tmp_path, length):
    set_queues(lab.dut, lab.tg, 1)
    init = tmp_path / "init"
    init.write_bytes(b"sixteen bytes ok")
    forwarder(init=str(init))
    frames = lab.echo(20, length=length)
    assert len(frames) == 20
    for frame in frames:
        assert len(frame) == length
        assert frame[:12].hex() == "020000000001020000000002"
        assert frame[42:58] == b"sixteen bytes ok"


@pytest.mark.parametrize(("workload", "accesses"), [("array", 0), ("chase", 100), ("lookup", 100)])
def test_generated_workloads_forward_every_frame(lab, forwarder, xdpgen, cache, tmp_path, workload, accesses):
    spec = ProgramSpec(workload, accesses)
    init = tmp_path / "init"
    init.write_bytes(user_state(spec))
    set_queues(lab.dut, lab.tg, 1)
    running = forwarder(workload=build_workload(lab.dut.host, user_source(spec), cache), init=str(init), fifo=6)
    summary = offer(lab, xdpgen, 1, "afxdp", "--load", "20000")
    assert summary["tx_packets"] == summary["rx_packets"] == running.stop().total("tx") > 1000
    assert summary["foreign_packets"] == 0


FORMER_S = 5.0  # the queues, and then the program
SEND_HEX = """
import socket, sys
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
link.bind((sys.argv[1], 0))
for line in sys.stdin:
    link.send(bytes.fromhex(line))
"""


def a_test_frame(run_id: int) -> bytes:
    """Return a test frame of 64 bytes, as native/common/payload.h defines it."""
    ip = bytes.fromhex("4500002e0000000040110000c6120001c6130001")
    udp = bytes.fromhex("0400c42c001a0000") + (0x78646C62 ^ run_id).to_bytes(4, "big") + bytes(14)
    return with_sum(bytearray(bytes.fromhex("0200000000020200000000010800") + ip + udp))


@pytest.fixture(scope="session", params=["as built", "with sanitizers"])
def any_build(request) -> str:
    return build_once("afxdp_user", sanitize=request.param == "with sanitizers")


@pytest.mark.parametrize("attach", ["native", "generic"])
def test_frames_that_are_nearly_ours_are_counted_apart(lab, any_build, swap_workload, attach):
    """Each frame is sent back, as in the other modes; a frame that is too long for its memory is dropped."""
    set_queues(lab.dut, lab.tg, 1)
    ours = a_test_frame(0xBEEF)
    others = {name: frame for name, frame in hostile(ours).items() if frame != ours}
    frames = [ours, *others.values()] * 10
    request = AfxdpRequest("vd0", 1, swap_workload, attach=attach, run_id="beef", frame_bytes=(64,))
    with forward(lab.dut.host, any_build, request, deadline_s=60) as running:
        lines = "".join(f"{frame.hex()}\n" for frame in frames).encode()
        lab.tg.host.run([sys.executable, "-c", SEND_HEX, "vg0"], stdin=lines)
        queue = running.stop().queues[0]
    assert (queue.rx, queue.tx) == (len(frames), len(frames))
    assert queue.rx_foreign == queue.rx - 10 == 10 * len(others)


def test_a_frame_on_its_way_is_in_all_counts_or_in_none(lab, forwarder):
    """Frames of others come at any time. One that was counted as foreign, and not yet as received or sent, made a trial
    miss a test frame, or find one too many."""
    set_queues(lab.dut, lab.tg, 1)
    running = forwarder(run_id="beef", frame_bytes=(64,), cpus=(0,), fifo=6)
    other = lab.tg.host.start([sys.executable, "-c", SEND_ON, "vg0", a_test_frame(0).hex(), "0.001"], deadline_s=60)
    try:
        assert other.read_line(10.0) == "ready"
        seen = [running.stats()]
        while seen[-1].total("rx") < 1000:
            seen.append(running.stats())
    finally:
        other.kill()
    counts = [(stats.total("rx"), stats.total("tx"), stats.foreign()) for stats in seen]
    assert [count for count in counts if len(set(count)) > 1] == []


def test_an_application_that_was_not_told_looks_at_no_frame(lab, forwarder):
    set_queues(lab.dut, lab.tg, 1)
    running = forwarder()
    lab.send(10)
    stats = running.stop()
    assert stats.total("rx") == 10
    assert stats.foreign() is None


def test_each_queue_has_its_own_state(lab, forwarder, tmp_path):
    """In a file of several states, queue i starts with state i modulo their number."""
    init = tmp_path / "init"
    init.write_bytes(b"state of queue 0state of queue 1")
    forwarder(queues=8, init=str(init))
    seen = {frame[42:58] for frame in lab.echo(200, flows=64)}
    assert seen == {b"state of queue 0", b"state of queue 1"}


def test_two_runs_one_after_the_other_get_the_same_queues(lab, forwarder):
    """The kernel releases the queues of a closed socket late: neither binding nor ethtool may stumble over it."""
    for queues in (8, 1, 4, 2):
        set_queues(lab.dut, lab.tg, queues)
        running = forwarder(queues=queues)
        lab.send(100)
        assert running.stop().total("rx") == 100
        with forward(lab.dut.host, running.argv[0], running.request) as again:
            assert len(again.ready.queues) == queues


@pytest.mark.thorough
@pytest.mark.parametrize("queues", [1, 2])
def test_a_former_application_that_is_still_ending_is_waited_for(lab, forwarder, queues):
    """As after a lost connection: under a flood, the kernel takes seconds to release a killed application's queues."""
    set_queues(lab.dut, lab.tg, queues)
    former = forwarder(queues=queues)
    ending = threading.Timer(FORMER_S, os.kill, (owner_of(lab, former), signal.SIGKILL))
    ending.start()
    try:
        running = forwarder(queues=queues)
    finally:
        ending.join()
    lab.send(10)
    assert running.stop().total("rx") == 10


@pytest.mark.parametrize("attach", ["native", "generic"])
def test_a_dead_owner_leaves_nothing_attached(lab, forwarder, attach):
    running = forwarder(attach=attach)
    found = verify(lab.dut.host, "vd0", program_id=running.ready.program_id, mode=attach)
    sockets = Deployment.of_forwarder(running, found).sockets
    assert sockets.attach_obtained == attach
    os.kill(owner_of(lab, running), signal.SIGKILL)
    assert until(lambda: not attached_program(lab.dut.host, "vd0").mode, 2)
    await_nothing_attached(lab.dut.host, "vd0", within_s=0)
    with pytest.raises(HostError):
        running.stats()


def test_zero_copy_on_veth_is_unsupported_with_the_drivers_errno(lab, forwarder):
    with pytest.raises(UnsupportedError, match="queue 0 of vd0 does not bind with zerocopy: Operation not supported"):
        forwarder(bind="zerocopy")
    await_nothing_attached(lab.dut.host, "vd0", within_s=0)


def test_native_mode_on_a_device_without_it_is_unsupported(forwarder):
    with pytest.raises(UnsupportedError, match="lo does not take an XDP program in native mode"):
        forwarder(interface="lo")


def test_a_queue_the_device_lacks_is_refused(lab, forwarder):
    set_queues(lab.dut, lab.tg, 2)
    with pytest.raises(UnsupportedError, match="queue 2 of vd0 does not bind"):
        forwarder(queues=3)


def test_an_attached_program_is_left_alone(lab, forwarder, drop_object: Path):
    lab.attach(lab.dut, drop_object)
    theirs = attached_program(lab.dut.host, "vd0")
    with pytest.raises(HostError, match=f"already has XDP program {theirs.program_id} attached"):
        forwarder()
    assert attached_program(lab.dut.host, "vd0") == theirs


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"workload": "/no/such.so"}, r"workload: /no/such.so: No such file"),
        ({"workload": "/etc/hostname"}, r"workload: .*/etc/hostname"),
        ({"init": "/no/such"}, r"init: /no/such cannot be read: No such file"),
        ({"init": "/proc/self/comm"}, r"init: /proc/self/comm has 0 bytes, which is not a multiple"),
    ],
)
def test_a_workload_that_cannot_be_used_is_a_program_error(forwarder, options, words):
    with pytest.raises(ProgramError, match=words):
        forwarder(**options)


def test_the_device_going_away_ends_it_with_an_error(lab, forwarder):
    running = forwarder()
    lab.dut.host.run(["ip", "link", "del", "vd0"])
    with pytest.raises(HostError, match="forward: queue 0 of vd0 stopped: Network is down"):
        running.stop()


def test_a_signal_ends_it_with_its_last_counters(lab, afxdp_user, swap_workload):
    argv = ["ip", "netns", "exec", lab.dut.host.name, afxdp_user, "--interface", "vd0", "--workload", swap_workload]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert json.loads(process.stdout.readline())["type"] == "ready"
        lab.send(100)
        started = time.monotonic()
        process.send_signal(signal.SIGTERM)
        stats, detached = (json.loads(line) for line in process.stdout)
    assert time.monotonic() - started < 1.0
    assert process.returncode == 0
    assert detached == {"type": "detached"}
    assert sum(queue["rx"] for queue in stats["queues"]) + stats["unbound_packets"] == 100


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--interface", "vd0"], "--workload is missing"),
        (["--workload", "x"], "--interface is missing"),
        (["--queues", "0"], "--queues 0: expected Q from 1 to 64"),
        (["--bind", "fast"], "--bind fast: expected copy|zerocopy"),
        (["--cpus", "0,x"], "--cpus 0,x: expected C,C"),
        (["--colour"], "unrecognized option"),
    ],
)
def test_usage_errors_say_what_is_wanted(afxdp_user, options, words):
    ended = subprocess.run(
        [afxdp_user, *options], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert words in ended.stderr
    assert ended.stdout == ""


def test_a_cpu_that_does_not_exist_is_an_error(forwarder):
    with pytest.raises(HostError, match="the thread of queue 0 cannot run on CPU 1000"):
        forwarder(cpus=(1000,))


def test_a_queue_is_awaited_only_as_long_as_there_is_a_controller(lab, forwarder):
    """A killed controller's application would otherwise stay for ten seconds after its end."""
    set_queues(lab.dut, lab.tg, 1)
    running = forwarder()
    second = lab.dut.host.start(running.argv, deadline_s=30)
    with pytest.raises(HostError, match="no line"):
        second.read_line(1.0)
    began = time.monotonic()
    second.close_stdin()
    result = second.wait(20.0)
    assert result.exit_code == 1
    assert "queue 0 of vd0 does not bind" in result.text
    assert time.monotonic() - began < 3
