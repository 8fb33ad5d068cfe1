"""xdpgen on a real lab: what it sends, what it counts, how it ends."""

import json
import struct
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.compiled import build_once
from tests.generators.conftest import FIFO, Bench
from tests.generators.echo_dut import hostile

from xdplab.deploy.xdp import await_nothing_attached
from xdplab.errors import HostError, UnsupportedError
from xdplab.formats.generator import Burst, GeneratorInterval, parse_line, parse_output
from xdplab.generators import xdpgen_argv

pytestmark = [pytest.mark.root, pytest.mark.lab]

Send = Callable[..., Burst]
ENGINES = ["live", "afxdp"]
FCS = 4


@pytest.mark.parametrize("engine", ENGINES)
def test_everything_comes_back(traffic_bench: Bench, one_burst: Send, engine: str) -> None:
    with traffic_bench.dut("reflect"), traffic_bench.counting() as dut_packets:
        burst = one_burst(engine, seconds=0.3)
    assert sum(dut_packets) == burst.summary.tx_packets
    summary, histogram = burst.summary, burst.histogram
    assert summary.tx_packets > 50_000
    assert summary.rx_packets == summary.tx_packets
    assert summary.rx_bytes == summary.tx_bytes == 64 * summary.tx_packets
    assert (summary.lost_packets, summary.duplicates, summary.reordered, summary.tx_errors) == (0, 0, 0, 0)
    assert summary.foreign_packets == summary.bad_run_id == summary.bad_stamps == 0
    assert (summary.tx_by_size, summary.rx_by_size) == (None, None)
    assert histogram.count == summary.rx_packets
    assert sum(i.tx_packets for i in burst.intervals) == summary.tx_packets
    assert summary.duration_s == pytest.approx(0.3, abs=0.001)
    assert 100 < histogram.min < 100_000


def test_exact_faults_are_found_exactly(traffic_bench: Bench, one_burst: Send) -> None:
    faults = {"drop": [3], "duplicate": [5], "swap": [7], "other_run": [1], "no_magic": [2], "foreign": [9]}
    with traffic_bench.echo(faults):
        summary = one_burst(seconds=1.0, max_frames=500, rate_pps=2000.0, settle_s=0.3, flows=1).summary
    assert summary.tx_packets == 500
    assert summary.duplicates == 50
    assert summary.reordered == 50
    assert summary.bad_run_id == 50
    assert summary.foreign_packets == 100
    assert summary.damaged_packets == 50
    assert summary.rx_packets == 350
    assert summary.lost_packets == 200  # dropped frames, and frames that the receiver cannot recognise


@pytest.fixture(scope="module", params=["as built", "with sanitizers"])
def any_build(request: pytest.FixtureRequest, traffic_bench: Bench) -> Bench:
    if request.param == "as built":
        return traffic_bench
    lab = traffic_bench.lab
    on_tg = f"{lab.work_dir(lab.tg)}/xdpgen-sanitized"
    lab.tg.put(Path(build_once("xdpgen", sanitize=True)), on_tg, mode=0o755)
    return replace(traffic_bench, xdpgen=on_tg)


WITHOUT_MAGIC = {"one byte short", "foreign magic"}  # at its offset
PASSED_ON = {"runt", "vlan", "options"}  # not the port of the test, if the port is checked


def test_frames_that_are_nearly_ours_are_counted_apart(any_build: Bench) -> None:
    kinds = set(hostile(bytes(96)))
    with any_build.echo({"hostile": [4]}), any_build.generator(frame_bytes=100, rate_pps=500.0) as generator:
        generator.start()
        summary = generator.burst("measure", 0.4).summary
        generator.stop()
    times = summary.tx_packets // 10
    assert times == 20
    assert (summary.rx_packets, summary.lost_packets, summary.duplicates) == (summary.tx_packets, 0, 0)
    assert (summary.reordered, summary.bad_stamps, summary.stale_packets) == (0, 0, 0)
    assert summary.bad_run_id == times
    assert summary.damaged_packets == times * len(WITHOUT_MAGIC)
    assert summary.foreign_packets == times * (len(kinds) - 1)
    assert summary.altered_packets == times * (len(kinds - WITHOUT_MAGIC - PASSED_ON) - 1)


def test_numbers_go_on_beyond_what_a_frame_has_room_for(traffic_bench: Bench, one_burst: Send) -> None:
    """As if 2**30 frames were lost between two that come back: a burst of 42 billion frames, across 2**31 and 2**32."""
    with traffic_bench.echo({"advance": 2**30}):
        summary = one_burst(seconds=1.0, max_frames=40, rate_pps=1000.0, settle_s=0.3).summary
    assert (summary.rx_packets, summary.stale_packets, summary.lost_packets) == (40, 0, 0)
    assert (summary.duplicates, summary.reordered) == (0, 0)


def test_faults_are_found_beyond_2_to_the_32_too(traffic_bench: Bench, one_burst: Send) -> None:
    with traffic_bench.echo({"advance": 2**29, "duplicate": [5], "swap": [7]}):
        summary = one_burst(seconds=1.0, max_frames=40, rate_pps=1000.0, settle_s=0.3, flows=1).summary
    assert (summary.duplicates, summary.reordered) == (4, 4)


@pytest.mark.parametrize(("flows", "reordered"), [(2, 0), (1, 40), (100_000, 0)])
def test_order_is_asked_of_a_flow_and_not_of_several(
    traffic_bench: Bench, one_burst: Send, flows: int, reordered: int
) -> None:
    """A frame that changes places with one of another flow is in order; with one of its own flow it is not."""
    with traffic_bench.echo({"swap": [3, 7]}):
        burst = one_burst(flows=flows, seconds=1.0, max_frames=200, rate_pps=2000.0, settle_s=0.3)
    assert burst.summary.reordered == reordered


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("queues", [1, 3])
def test_more_flows_than_a_frame_has_labels_have_addresses_of_their_own_and_are_in_order(
    traffic_bench: Bench, one_burst: Send, engine: str, queues: int
) -> None:
    if engine == "live" and queues > 1:
        pytest.skip("needs a CPU for each queue")
    changes: dict[str, Any] = {"flows": 100_000, "queues": queues, "max_frames": 250_000, "rate_pps": 200_000.0}
    with traffic_bench.queues(queues), traffic_bench.dut("flows"):
        summary = one_burst(engine, seconds=2.0, **changes).summary
        assert len(traffic_bench.came("came_to")) == 100_000
    assert summary.tx_packets == summary.rx_packets == 250_000
    assert (summary.duplicates, summary.reordered, summary.foreign_packets) == (0, 0, 0)


@pytest.mark.parametrize("engine", ENGINES)
def test_latency_counts_from_the_time_a_frame_was_due(traffic_bench: Bench, one_burst: Send, engine: str) -> None:
    with traffic_bench.dut("reflect"):
        burst = one_burst(engine, seconds=0.3, rate_pps=5_000.0)
    sent, due, late = burst.histogram, burst.from_due, burst.lateness
    assert burst.latency is due
    assert sent.count == due.count == late.count == burst.summary.tx_packets
    # Lateness is per frame, and a schedule rounds down. AF_XDP reads the clock once per batch and once per stamp.
    apart = due.sum - sent.sum - late.sum
    assert -2 * due.count <= apart <= (2 if engine == "live" else 10_000) * due.count
    assert late.max == burst.summary.tx_late_max_ns


def test_lateness_includes_the_wait_for_the_queues_before(traffic_bench: Bench, one_burst: Send) -> None:
    """One thread serves eight queues in turn: its clock was read before the first, so the last one's frames seemed
    earlier than their stamps."""
    with traffic_bench.queues(8), traffic_bench.dut("reflect"):
        burst = one_burst("afxdp", seconds=0.3, rate_pps=2e6, queues=8, cpus=(0,))
    sent, due, late = burst.histogram, burst.from_due, burst.lateness
    assert sent.count == due.count == late.count
    assert due.sum - sent.sum - late.sum <= 30_000 * due.count


def test_a_load_that_cannot_be_reached_is_said_and_lags_behind_its_schedule(
    traffic_bench: Bench, one_burst: Send
) -> None:
    with traffic_bench.dut("reflect"):
        burst = one_burst(seconds=0.2, rate_pps=50e6)
    assert burst.summary.limited == "the sender could not keep the pace"
    assert burst.summary.rate_requested_pps == 50e6
    offered = burst.summary.tx_packets / 0.2
    assert burst.lateness.max == pytest.approx(0.2e9 * (1 - offered / 50e6), rel=0.05)
    assert (burst.from_due.percentile(50) or 0) > 10 * (burst.histogram.percentile(50) or 0)


def test_at_max_load_nothing_is_due(traffic_bench: Bench, one_burst: Send) -> None:
    with traffic_bench.dut("reflect"):
        burst = one_burst()
    assert (burst.from_due, burst.lateness, burst.summary.tx_late_max_ns) == (None, None, None)
    assert burst.latency is burst.histogram


def test_what_drains_after_the_window_is_told_apart(traffic_bench: Bench, one_burst: Send) -> None:
    """The echo in user space is far behind when the sender stops, and continues while the burst settles."""
    with traffic_bench.echo({}):
        summary = one_burst(seconds=0.1, settle_s=1.0, rate_pps=500e3).summary
    assert summary.rx_window_s == pytest.approx(0.1, abs=0.05)
    assert summary.rx_window_packets < summary.rx_packets


def took_s(burst: Callable[[], Burst]) -> tuple[float, Burst]:
    began = time.monotonic()
    done = burst()
    return time.monotonic() - began, done


@pytest.mark.parametrize("engine", ENGINES)
def test_a_burst_ends_when_all_of_it_is_seen_to_be_back(traffic_bench: Bench, engine: str) -> None:
    """--settle is a maximum: the time is used up only if frames are missing, which may be late or lost."""
    with traffic_bench.generator(engine, settle_s=1.0, rate_pps=20_000.0) as generator:
        generator.start()
        with traffic_bench.dut("reflect"):
            seconds, burst = took_s(lambda: generator.burst("back", 0.1))
        assert (burst.summary.lost_packets, burst.summary.tx_packets) == (0, 2000)
        assert seconds < 1.0
        with traffic_bench.dut("drop"):
            seconds, burst = took_s(lambda: generator.burst("missing", 0.1))
        assert burst.summary.lost_packets == burst.summary.tx_packets
        assert seconds > 1.0


SLOW_KERNEL = r"""
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
ssize_t sendto(int fd, const void *data, size_t size, int flags, const struct sockaddr *to, socklen_t length) {
    static long last_ms, taken;
    struct timespec now;
    const char *most = getenv("MOST_TAKEN");
    clock_gettime(CLOCK_MONOTONIC, &now);
    const long ms = now.tv_sec * 1000 + now.tv_nsec / 1000000;
    if (ms < last_ms + 15 || (most && taken >= atol(most))) {
        usleep(100);
        errno = EAGAIN;
        return -1;
    }
    last_ms = ms;
    taken++;
    return syscall(SYS_sendto, fd, data, size, flags, to, length);
}
"""


OLD_KERNEL = r"""
#include <dlfcn.h>
#include <errno.h>
#include <linux/bpf.h>
#include <sys/syscall.h>
long syscall(long number, long what, union bpf_attr *of, long c, long d, long e, long f) {
    long (*kernels)(long, ...) = dlsym(RTLD_NEXT, "syscall");
    if (number == SYS_bpf && what == BPF_PROG_TEST_RUN && of->test.flags) {
        errno = EINVAL;
        return -1;
    }
    return kernels(number, what, of, c, d, e, f);
}
"""


def over(kernel: str, bench: Bench, folder: Path, words: str = "") -> Bench:
    """xdpgen over another kernel."""
    (folder / "kernel.c").write_text(kernel)
    command = ["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", folder / "kernel.so", folder / "kernel.c", "-ldl"]
    subprocess.run(command, check=True)
    script = f"{bench.lab.work_dir(bench.lab.tg)}/xdpgen-{folder.name}"
    bench.lab.tg.put((folder / "kernel.so").read_bytes(), f"{script}.so")
    text = f'#!/bin/sh\nexec env LD_PRELOAD={script}.so {words} {bench.xdpgen} "$@"\n'
    bench.lab.tg.put(text.encode(), script)
    bench.lab.tg.run(["chmod", "755", script])
    return replace(bench, xdpgen=script)


def slowed(bench: Bench, folder: Path, words: str = "") -> Bench:
    """A kernel that accepts at most 256 frames every 15 ms: xdpgen's ring of 2048 is full at the end."""
    return over(SLOW_KERNEL, bench, folder, words)


def test_a_kernel_without_live_frames_is_none_for_the_engine(traffic_bench: Bench, tmp_path: Path) -> None:
    refused = pytest.raises(UnsupportedError, match="no live frames")
    with over(OLD_KERNEL, traffic_bench, tmp_path).generator() as generator, refused:
        generator.start()


def test_what_a_slow_kernel_takes_late_is_sent_in_its_own_burst(traffic_bench: Bench, tmp_path: Path) -> None:
    """xdpgen gave up after 20 ms, and the rest left in the next burst: the DUT then counted more frames than the TG."""
    with (
        traffic_bench.dut("drop"),
        slowed(traffic_bench, tmp_path).generator("afxdp", receive=False, batch=256) as generator,
    ):
        generator.start()
        for name in ("warmup", "measure", "again"):
            with traffic_bench.counting() as arrived:
                summary = generator.burst(name, 0.2).summary
            assert sum(arrived) == summary.tx_packets > 2048, name


def test_a_burst_lasts_until_a_slow_kernel_has_taken_its_frames(traffic_bench: Bench, tmp_path: Path) -> None:
    """The ring of 2048 frames is full when the window ends: they counted as sent within it."""
    with slowed(traffic_bench, tmp_path).generator("afxdp", receive=False, batch=256) as generator:
        generator.start()
        summary = generator.burst("measure", 0.2).summary
    takes = 256 / 0.015
    assert summary.duration_s > 0.2 + 0.8 * 2048 / takes
    assert summary.tx_packets / summary.duration_s < 1.1 * takes


def test_frames_that_the_kernel_never_takes_are_an_error(traffic_bench: Bench, tmp_path: Path) -> None:
    slow = slowed(traffic_bench, tmp_path, "MOST_TAKEN=4")
    with slow.generator("afxdp", receive=False, batch=256) as generator:
        generator.start()
        with pytest.raises(HostError, match=r"the kernel did not take the last \d+ frames of queue 0"):
            generator.burst("measure", 0.3)


def test_a_late_frame_is_waited_for(traffic_bench: Bench) -> None:
    """The echo returns the 50th frame with the 150th, 0.1 s after its neighbours."""
    with traffic_bench.echo({"late": [50, 150]}), traffic_bench.generator(rate_pps=1000.0, settle_s=1.0) as generator:
        generator.start()
        assert generator.burst("late", 0.2).summary.lost_packets == 0


def test_the_sender_is_held_where_nothing_of_it_is_seen_or_left(traffic_bench: Bench) -> None:
    """A burst needs no update of the kernel's XDP dispatcher; a kill also removes the device that avoids the update."""
    lab = traffic_bench.lab
    await_nothing_attached(lab.tg, lab.tg_interface)  # the kernel takes some ms to remove what an earlier test killed
    links = lab.tg.run(["ip", "-o", "link"]).text
    argv = [traffic_bench.xdpgen, "--interface", lab.tg_interface, "--step"]
    process = lab.tg.start(["sh", "-c", 'echo $$; exec "$@"', "sh", *argv], deadline_s=30.0)
    pid = process.read_line(5.0)
    ready = parse_line(process.read_line(10.0) or "")
    assert ready.settings["not_held"] is None
    assert [line.split(":")[1] for line in lab.tg.run(["ip", "-o", "link"]).text.splitlines()] == [
        line.split(":")[1] for line in links.splitlines()
    ]
    held = f"ls -l /proc/{pid}/fd | grep -c /dev/net/tun"
    assert lab.tg.run(["sh", "-c", held]).text.strip() == "1"
    lab.tg.run(["kill", "-KILL", str(pid)])
    process.wait(10.0)
    await_nothing_attached(lab.tg, lab.tg_interface, within_s=5.0)
    assert lab.tg.run(["ip", "-o", "link"]).text.count("\n") == links.count("\n")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_burst_has_four_intervals_and_its_cpu_time(traffic_bench: Bench, one_burst: Send, engine: str) -> None:
    with traffic_bench.dut("reflect"):
        burst = one_burst(engine, seconds=0.1)
    assert len(burst.intervals) in (4, 5)
    assert 0.1 < (burst.summary.tx_busy_cores or 0) <= 1.01
    assert burst.summary.tx_pause_max_ns is not None
    assert burst.summary.tx_paused_ns >= 0


def test_a_sender_that_is_stopped_says_how_long(traffic_bench: Bench) -> None:
    """SIGSTOP for 0.3 s of a window: the sender stands still for as long."""
    lab = traffic_bench.lab
    argv = [traffic_bench.xdpgen, "--interface", lab.tg_interface, "--bursts", "long:2", "--fifo", str(FIFO)]
    with traffic_bench.dut("reflect"):
        process = lab.tg.start(["sh", "-c", 'echo $$; exec "$@"', "sh", *argv], deadline_s=30.0)
        pid = process.read_line(5.0)
        while not sends(process.read_line(5.0)):
            pass
        lab.tg.run(["sh", "-c", "kill -STOP $1; sleep 0.3; kill -CONT $1", "sh", str(pid)])
        result = process.wait(20.0)
    summary = parse_output(result.stdout.split(b"\n", 1)[1]).bursts[0].summary
    assert 200e6 < (summary.tx_pause_max_ns or 0) < 1.9e9
    assert (summary.tx_paused_ns or 0) >= (summary.tx_pause_max_ns or 0)


def test_a_frame_of_the_burst_before_is_stale_and_not_counted(traffic_bench: Bench) -> None:
    with traffic_bench.echo({"late": [0, 150]}), traffic_bench.generator(rate_pps=1000.0) as generator:
        generator.start()
        first, second = (generator.burst(name, seconds).summary for name, seconds in (("a", 0.1), ("b", 0.3)))
    assert (first.lost_packets, first.rx_packets) == (1, 99)
    assert (second.stale_packets, second.lost_packets) == (1, 0)


def test_recycled_pages_keep_nothing_of_what_the_dut_wrote(traffic_bench: Bench, one_burst: Send) -> None:
    with traffic_bench.dut("overwrite_half"):
        summary = one_burst().summary
    assert summary.rx_packets + (summary.foreign_packets or 0) == summary.tx_packets
    assert abs(2 * summary.rx_packets - summary.tx_packets) <= 2
    assert summary.bad_stamps == summary.duplicates == summary.reordered == 0


def test_an_overwritten_payload_is_damage_and_no_reception(traffic_bench: Bench, one_burst: Send) -> None:
    with traffic_bench.dut("overwrite_all"):
        summary = one_burst().summary
    assert summary.rx_packets == 0
    assert summary.foreign_packets == summary.damaged_packets == summary.lost_packets == summary.tx_packets > 0


def test_a_deaf_dut_is_0_received_and_a_dropping_one_loses_what_it_drops(traffic_bench: Bench, one_burst: Send) -> None:
    with traffic_bench.dut("drop"):
        assert one_burst().summary.rx_packets == 0
    with traffic_bench.dut("drop_tenth"):
        summary = one_burst(max_frames=100_000, seconds=2.0).summary
    assert (summary.lost_packets, summary.reordered, summary.limited) == (10_000, 0, "--max-frames was reached")
    assert summary.duration_s < 1.0


def test_sender_and_receiver_work_without_a_link(traffic_bench: Bench, one_burst: Send) -> None:
    """The DUT counts no frame; the receiver counts each frame that it gets, once and in order."""
    with traffic_bench.counting() as dut_packets:
        sender = one_burst(alone="sender", receive=False, seconds=0.2).summary
        both = one_burst(alone="receiver", seconds=0.2).summary
    assert sum(dut_packets) == 0
    assert sender.tx_packets > 50_000
    assert (sender.rx_packets, sender.missing["tx_errors"]) == (None, "the frames do not leave: --alone")
    assert both.rx_packets == both.tx_packets > 50_000
    assert (both.lost_packets, both.duplicates, both.reordered) == (0, 0, 0)
    with pytest.raises(UnsupportedError, match="engine afxdp: has no piece that works alone"):
        one_burst("afxdp", alone="sender")


@pytest.mark.parametrize(("program", "words"), [("reflect", ["--vlan", "5"]), ("drop", ["--ip-version", "6"])])
def test_plain_frames_are_counted_by_the_devices(traffic_bench: Bench, program: str, words: list[str]) -> None:
    lab = traffic_bench.lab
    argv = [traffic_bench.xdpgen, "--interface", lab.tg_interface, "--fifo", str(FIFO), "--plain", *words]
    with traffic_bench.dut(program), traffic_bench.counting() as dut_packets:
        text = lab.tg.run([*argv, "--frame-bytes", "100", "--bursts", "a:0.2,b:0.2"]).text
    summaries = [summary for summary in map(json.loads, text.splitlines()) if summary["type"] == "summary"]
    sent = [summary["tx_packets"] for summary in summaries]
    came_back = sent if program == "reflect" else [0, 0]
    assert min(sent) > 50_000
    assert sum(sent) == sum(dut_packets)
    assert [summary["rx_packets"] for summary in summaries] == came_back
    assert [summary["lost_packets"] for summary in summaries] == [a - b for a, b in zip(sent, came_back, strict=True)]
    unknown = ("duplicates", "reordered", "foreign_packets", "rx_bytes", "rx_flows", "tx_by_queue", "tx_pause_max_ns")
    assert {summary[key] for summary in summaries for key in unknown} == {None}
    assert all("--plain" in summary["missing"]["numbers"] for summary in summaries)


def test_frames_the_device_does_not_take_are_errors(traffic_bench: Bench, one_burst: Send) -> None:
    lab = traffic_bench.lab
    lab.dut.run(["ethtool", "-K", lab.dut_interface, "gro", "off"])
    try:
        summary = one_burst().summary
    finally:
        lab.dut.run(["ethtool", "-K", lab.dut_interface, "gro", "on"])
    assert summary.tx_errors == summary.lost_packets == summary.tx_packets > 0


def test_plain_frames_that_no_device_counts_are_null(traffic_bench: Bench) -> None:
    lab = traffic_bench.lab
    argv = [traffic_bench.xdpgen, "--interface", lab.tg_interface, "--plain", "--bursts", "a:0.2"]
    lab.dut.run(["ethtool", "-K", lab.dut_interface, "gro", "off"])
    try:
        text = lab.tg.run(argv).text
    finally:
        lab.dut.run(["ethtool", "-K", lab.dut_interface, "gro", "on"])
    lines = [line for line in map(json.loads, text.splitlines()) if "tx_packets" in line]
    assert {line["tx_packets"] for line in lines} == {None}
    summary = lines[-1]
    assert summary["tx_packets"] is summary["tx_bytes"] is summary["lost_packets"] is None
    assert "sent" in summary["missing"]


def test_frames_that_a_peer_takes_no_more_are_errors(traffic_bench: Bench) -> None:
    """Such a frame does not even get into a batch: the device's own count tells how many left."""
    lab = traffic_bench.lab
    left = f"/sys/class/net/{lab.tg_interface}/statistics/tx_packets"
    with traffic_bench.generator(rate_pps=20_000.0) as generator:
        generator.start()
        before = int(lab.tg.run(["cat", left]).text)
        with ThreadPoolExecutor(1) as meanwhile:
            burst = meanwhile.submit(generator.burst, "measure", 0.6)
            time.sleep(0.3)
            lab.dut.run(["ethtool", "-K", lab.dut_interface, "gro", "off"])
            summary = burst.result().summary
        after = int(lab.tg.run(["cat", left]).text)
        lab.dut.run(["ethtool", "-K", lab.dut_interface, "gro", "on"])
        generator.stop()
    assert summary.tx_packets == 12_000
    assert 1000 < (summary.tx_errors or 0) < 11_000
    assert after - before == summary.tx_packets - (summary.tx_errors or 0)


@pytest.mark.parametrize("sizes", [{"frame_bytes": 1518}, {"imix": (64, 1518)}])
def test_frames_larger_than_the_device_takes_are_refused(
    traffic_bench: Bench, one_burst: Send, sizes: dict[str, Any]
) -> None:
    """The kernel drops such a live frame before anything counts it: of two sizes, one seemed lost by the DUT."""
    lab = traffic_bench.lab
    lab.tg.run(["ip", "link", "set", "dev", lab.tg_interface, "mtu", "1000"])
    try:
        with pytest.raises(HostError, match="at most 1022 bytes, not of 1518"):
            one_burst(**sizes)
        with traffic_bench.dut("drop"):
            assert one_burst(frame_bytes=1022).summary.tx_errors == 0
    finally:
        lab.tg.run(["ip", "link", "set", "dev", lab.tg_interface, "mtu", "1500"])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("rate_pps", [1_000.0, 20_000.0, 200_000.0])
def test_pace(traffic_bench: Bench, one_burst: Send, engine: str, rate_pps: float) -> None:
    due = 0.3 * rate_pps
    with traffic_bench.dut("reflect"):
        summaries = [one_burst(engine, seconds=0.3, rate_pps=rate_pps).summary for _ in range(3)]
    for summary in summaries:
        assert summary.tx_packets <= due + 1
        assert (summary.limited is None) == (summary.tx_packets + 1 >= 0.999 * due)
        assert summary.tx_late_max_ns is not None
    assert max(summary.tx_packets for summary in summaries) >= 0.999 * due  # the best: other processes may use the CPU


def test_live_reaches_a_queue_per_cpu(traffic_bench: Bench, one_burst: Send) -> None:
    if len(traffic_bench.lab.cpus().tg) < 2:
        pytest.skip("needs two CPUs")
    with traffic_bench.queues(2), traffic_bench.dut("reflect"), traffic_bench.counting() as dut_packets:
        summary = one_burst(queues=2, cpus=(0, 1), rate_pps=20_000.0).summary
    assert dut_packets == list(summary.tx_by_queue)
    assert summary.tx_by_queue == pytest.approx((2000, 2000), rel=0.05)  # a CPU may be busy when the window ends
    assert (summary.rx_packets, summary.reordered) == (summary.tx_packets, 0)


def test_stamps_on_one_frame_in_n_and_on_none(traffic_bench: Bench, one_burst: Send) -> None:
    with traffic_bench.dut("reflect"):
        some, none = one_burst(stamp=16), one_burst(stamp="none")
    assert some.histogram.count == pytest.approx(some.summary.tx_packets / 16, rel=0.02)
    assert (none.histogram.count, none.histogram.min) == (0, None)
    assert none.summary.rx_packets == none.summary.tx_packets


def pcap(frames: list[bytes], *, order: str = "<", magic: int = 0xA1B2C3D4, missing: int = 0) -> bytes:
    header = struct.pack(f"{order}IHHIIII", magic, 2, 4, 0, 0, 65535, 1)
    return header + b"".join(struct.pack(f"{order}IIII", 0, 0, len(f), len(f) + missing) + f for f in frames)


@pytest.mark.parametrize(("order", "magic"), [("<", 0xA1B2C3D4), (">", 0xA1B2C3D4), ("<", 0xA1B23C4D)])
def test_frames_of_a_pcap_go_out_unchanged(traffic_bench: Bench, one_burst: Send, order: str, magic: int) -> None:
    port = (50220).to_bytes(2, "big")
    frames = [bytes(36) + port + bytes([size % 251]) * (size - 38) for size in (60, 200, 1514)]
    lab = traffic_bench.lab
    path = f"{lab.work_dir(lab.tg)}/some.pcap"
    lab.tg.put(pcap(frames, order=order, magic=magic), path)
    with traffic_bench.echo("print") as dut:
        burst = one_burst("afxdp", file=path, max_frames=7, rate_pps=1000.0)
        seen = [bytes.fromhex(dut.read_line(5.0) or "") for _ in range(7)]
    assert seen == [frames[number % 3] for number in range(7)]
    assert burst.summary.rx_packets is None
    assert burst.summary.missing["rx_packets"]
    assert burst.summary.tx_bytes == sum(len(frames[number % 3]) + FCS for number in range(7))


def test_what_cannot_be_is_refused_with_its_reason(traffic_bench: Bench) -> None:
    with traffic_bench.generator() as first, traffic_bench.generator() as second:
        first.start()
        with pytest.raises(HostError, match="already has an XDP program"):
            second.start()
        with pytest.raises(HostError, match="at most 3600 s"):
            first.burst("eternal", 3601)
    with traffic_bench.generator(queues=2, cpus=(0,)) as third, pytest.raises(UnsupportedError):
        third.start()
    with traffic_bench.generator(cpus=(1023,)) as fourth, pytest.raises(HostError, match="CPU 1023 is not there"):
        fourth.start()
    stamps = {"rx_stamp": "device", "tx_stamp": "device", "bind": "zerocopy"}
    with traffic_bench.generator("afxdp", **stamps) as fifth, pytest.raises(UnsupportedError, match="driver veth"):
        fifth.start()


def test_what_it_is_ready_for_is_what_it_was_asked_for(traffic_bench: Bench) -> None:
    """A run keeps these words as what was sent."""
    lab = traffic_bench.lab
    usual: dict[str, Any] = {
        "engine": "live", "interface": lab.tg_interface, "receive_on": lab.tg_interface, "queues": 1,
        "queues_reached": 1, "cpus": [0], "streams": 1, "sched_policy": f"SCHED_FIFO:{FIFO}", "frame_bytes": 64,
        "frame_sizes": None, "vlan": None, "ip_version": 4, "frames": None, "flows": 64, "zipf": 0, "churn": 0,
        "flow_seed": 1, "rate_requested_pps": None, "burst_frames": 1, "run_id": "beef", "src_mac": lab.tg_mac,
        "dst_mac": lab.dut_mac, "src_ip": "198.18.0.1", "dst_ip": "198.19.0.1", "src_ip_stride": "0.0.0.0",
        "dst_ip_stride": "0.0.0.1", "src_port": 1024, "dst_port": 50220, "port_stride": 0, "stamp_every": 1,
        "max_frames": None, "batch": 60, "bind": None, "need_wakeup": None, "busy_poll_us": None,
        "busy_poll_missing": None, "settle_s": 0.05, "receives": True, "plain": False, "rx_stamp": "software",
        "tx_stamp": "software", "tx_offers": "none", "not_held": None,
    }  # fmt: skip
    same = {"vlan": 5, "frame_bytes": 72, "max_frames": 9, "busy_poll_us": 50, "need_wakeup": True, "src_port": 7,
            "src_ip_stride": "0.0.0.2"}  # fmt: skip
    socket = {"engine": "afxdp", "batch": 256, "bind": "copy", "receives": False, "stamp_every": 4}
    drawn = {"flows": 3, "zipf": 1.5, "churn": 20.0, "flow_seed": 8}
    paced = {"frame_bytes": None, "frame_sizes": [64, 512], "rate_requested_pps": 1e4, "burst_frames": 2, "batch": 8}
    of_the_kernel = {"busy_poll_missing": None, "tx_offers": "none"}  # whether a socket can be polled; null before 6.8
    for engine, options, differs in (
        ("live", {}, {}),
        ("afxdp", {**same, "receive": False, "stamp": 4}, same | socket),
        ("live", {**drawn, "imix": (64, 512), "rate_pps": 1e4, "back_to_back": 2}, drawn | paced),
    ):
        with traffic_bench.generator(engine, **options) as generator:
            ready = generator.start().settings
            priorities = lab.tg.run(["ps", "-C", "xdpgen", "-o", "rtprio="]).text.split()
        assert str(FIFO + 1) in priorities, "it ends what sends"
        assert ready | of_the_kernel == usual | differs


@pytest.mark.parametrize("engine", ENGINES)
def test_a_generator_starts_where_another_was_just_killed(traffic_bench: Bench, engine: str) -> None:
    """Its program stays on the interface for some ms, until the kernel has removed it."""
    for _ in range(12):
        with traffic_bench.generator(engine) as generator:
            generator.start()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_device_without_stamps_gives_no_latency_and_says_why(
    traffic_bench: Bench, one_burst: Send, engine: str
) -> None:
    """veth has the call, and stamps only frames that have an skb and a stamp in it. Software never stands in for it."""
    changes: dict[str, Any] = {"rx_stamp": "device", "stamp": 4, "max_frames": 400, "rate_pps": 4000.0, "settle_s": 0.3}
    with traffic_bench.dut("reflect"), traffic_bench.generator(engine, **changes) as generator:
        try:
            ready = generator.start()
        except UnsupportedError as error:
            pytest.skip(f"before Linux 6.3: {error}")
        burst = generator.burst("measure", 0.2)
        generator.stop()
    assert ready.settings["rx_stamp"] == "device"
    summary = burst.summary
    assert (summary.tx_packets, summary.rx_packets, summary.foreign_packets) == (400, 400, 0)
    assert summary.rx_unstamped == pytest.approx(100, rel=0.4)
    assert burst.histogram.count == 0
    assert summary.missing["latency"] in (
        "the driver gave no time stamp: ENODATA",
        "the device has no PTP clock, with which its time stamps could be compared",
    )


def test_without_receiving_nothing_is_claimed(traffic_bench: Bench, one_burst: Send) -> None:
    with traffic_bench.dut("drop"):
        summary = one_burst("afxdp", receive=False).summary
    assert (summary.rx_packets, summary.lost_packets, summary.rx_by_queue) == (None, None, None)
    assert summary.missing["rx_packets"] == "--no-receive"


# At real-time priority: other work beside is not the generator's.
TIMED_END = """
signal=$1; shift
"$@" &
read -r _; began=$(date +%s%N)
kill -s "$signal" $!; wait $!; code=$?
echo $(($(date +%s%N) - began)); exit $code
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_a_signal_ends_it_within_100_ms_with_all_it_has(traffic_bench: Bench, engine: str) -> None:
    times: dict[str, list[int]] = {"INT": [], "TERM": []}
    with traffic_bench.dut("reflect"):
        for signal, ns in times.items():
            while not ns or (min(ns) > 1e8 and len(ns) < 10):  # others may hold the kernel's network lock
                ns.append(_ended_ns(traffic_bench, engine, signal))
    assert all(min(ns) < 1e8 for ns in times.values()), times


def _ended_ns(bench: Bench, engine: str, signal: str) -> int:
    argv = [bench.xdpgen, "--interface", bench.lab.tg_interface, "--engine", engine, "--bursts", "long:30"]
    timed = ["chrt", "--rr", "1", "sh", "-c", TIMED_END, "sh", signal, *argv, "--fifo", str(FIFO)]
    process = bench.lab.tg.start(timed, deadline_s=40.0)
    while not sends(process.read_line(5.0)):
        pass
    process.write_line("end")
    result = process.wait(5.0)
    printed, ended_ns, _ = result.stdout.rsplit(b"\n", 2)
    output = parse_output(printed + b"\n")
    assert result.exit_code == 0
    assert output.bursts[0].summary.interrupted
    assert output.bursts[0].summary.rx_packets == output.bursts[0].summary.tx_packets > 0
    return int(ended_ns)


def test_a_signal_is_no_error_of_a_kernel_that_is_slow(traffic_bench: Bench, tmp_path: Path) -> None:
    with slowed(traffic_bench, tmp_path).generator("afxdp", flows=1234, receive=False) as generator:
        generator.start()
        ends = f"sleep 0.5; pkill -INT -f '^{traffic_bench.xdpgen} .*--flows 1234 '"
        traffic_bench.lab.tg.start(["sh", "-c", ends], deadline_s=9.0)
        assert generator.burst("long", 5).summary.interrupted


def sends(line: str | None) -> bool:
    record = parse_line(line)
    return isinstance(record, GeneratorInterval) and record.tx_packets > 0


def test_the_help_names_every_option_of_the_adapter(traffic_bench: Bench) -> None:
    shown = traffic_bench.lab.tg.run([traffic_bench.xdpgen, "--help"]).text
    everything = traffic_bench.settings(
        cpus=(0,),
        max_frames=1,
        batch=1,
        file="x.pcap",
        speed=2.0,
        receive=False,
        vlan=5,
        ip_version=6,
        bind="zerocopy",
        need_wakeup=True,
        busy_poll_us=1,
        rx_stamp="device",
        tx_stamp="device",
    )
    options = [word for word in xdpgen_argv(everything, "xdpgen") if word.startswith("--")]
    assert len(options) == 33
    assert [option for option in options if f"  {option} " not in shown] == []
