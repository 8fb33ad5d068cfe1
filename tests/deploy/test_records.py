"""Ring buffers and perf event arrays of the program are read while it is attached, as their user would."""

import ctypes
import os
import subprocess
from pathlib import Path

import pytest
from tests.compiled import bpf_object
from veth_pair import VethLab

from xdplab.deploy.xdp import ACTIONS, PortFrame, XdpLoader, XdpRequest, attach
from xdplab.errors import HostError, ProgramError
from xdplab.studies.test_frames import TestFrames
from xdplab.studies.traffic.dut import run_frames

pytestmark = pytest.mark.root

PROGRAM = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, %d); } ring SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY); __uint(key_size, 4); __uint(value_size, 4); } perf SEC(".maps");
SEC("xdp_ring") int by_ring(struct xdp_md *ctx)
{
    for (int i = 0; i < 2; i++) {
        __u64 *at = bpf_ringbuf_reserve(&ring, %d, 0);
        if (at)
            bpf_ringbuf_submit(at, 0);
    }
    void *discarded = bpf_ringbuf_reserve(&ring, 8, 0);
    if (discarded)
        bpf_ringbuf_discard(discarded, 0);
    return XDP_DROP;
}
SEC("xdp_quiet") int by_quiet(struct xdp_md *ctx)
{
    __u64 *at = bpf_ringbuf_reserve(&ring, 16, 0);
    if (at)
        bpf_ringbuf_submit(at, BPF_RB_NO_WAKEUP);
    return at ? XDP_TX : XDP_DROP;
}
SEC("xdp_perf") int by_perf(struct xdp_md *ctx)
{
    __u64 now = bpf_ktime_get_ns();
    bpf_perf_event_output(ctx, &perf, BPF_F_CURRENT_CPU, &now, sizeof(now));
    return XDP_DROP;
}
char LICENSE[] SEC("license") = "GPL";
"""
FRAME = bytes([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45]) + bytes(50)


def load(lab: VethLab, xdpload: str, folder: Path, section: str, ring: int = 1 << 16, record: int = 16) -> XdpLoader:
    events = bpf_object(folder, PROGRAM % (ring, record))
    return attach(lab.dut.host, xdpload, XdpRequest(str(events), "vd0", "native", section))


@pytest.mark.parametrize(
    ("section", "ring", "perf"), [("xdp_ring", 2000, 0), ("xdp_quiet", 1000, 0), ("xdp_perf", 0, 1000)]
)
def test_each_record_is_read_and_counted(
    section: str, ring: int, perf: int, lab: VethLab, xdpload: str, tmp_path: Path
) -> None:
    with load(lab, xdpload, tmp_path, section) as loader:
        assert loader.records() is not None
        lab.send(1000, flows=8)
        found = loader.records()
    assert (found.ring_records, found.perf_records, found.ring_full, found.perf_lost) == (ring, perf, 0, 0)
    assert found.reader_ns > 0
    assert set(found.cpus) <= set(range(os.cpu_count() or 1))
    assert found.cpus


def test_a_test_run_waits_for_the_reader_and_counts_the_records_of_a_frame(
    lab: VethLab, xdpload: str, tmp_path: Path
) -> None:
    """A reader that sleeps is woken by the first record: that one packet costs a thousand times the others."""
    with load(lab, xdpload, tmp_path, "xdp_ring") as loader:
        found = run_frames(loader, TestFrames((PortFrame(FRAME),) * 2, 2))
    assert (found.ring_records, found.fresh) == (2.0, True)


def test_records_that_do_not_wake_the_reader_are_read_too(lab: VethLab, xdpload: str, tmp_path: Path) -> None:
    """Without a wakeup (BPF_RB_NO_WAKEUP) the ring fills up, and test runs wait for room that nobody makes."""
    with load(lab, xdpload, tmp_path, "xdp_quiet") as loader:
        found = run_frames(loader, TestFrames((PortFrame(FRAME),), 1))
    assert (found.ring_records, found.actions) == (1.0, {**dict.fromkeys(ACTIONS, 0), "tx": 500 * 9})


def test_a_ring_that_is_full_is_seen(lab: VethLab, xdpload: str, tmp_path: Path) -> None:
    """A page has no room for two such records; while the reader sleeps, nothing is read."""
    with load(lab, xdpload, tmp_path, "xdp_ring", ring=4096, record=2048) as loader:
        lab.send(1000)
        found = loader.records()
        assert found.ring_full > 0
        assert found.ring_records <= 1000
        with pytest.raises(ProgramError, match="lost"):
            run_frames(loader, TestFrames((PortFrame(FRAME),), 1))


def test_a_reader_that_gets_no_cpu_time_is_told_and_not_awaited(lab: VethLab, xdpload: str, tmp_path: Path) -> None:
    with load(lab, xdpload, tmp_path, "xdp_quiet", ring=4096) as loader:
        stop_reader(tmp_path)
        with pytest.raises(HostError, match="were not read"):
            run_frames(loader, TestFrames((PortFrame(FRAME),), 1))
        with pytest.raises(HostError, match="were not read"):
            loader.records()


def stop_reader(folder: Path) -> None:
    """Stop the second thread of the xdpload that has loaded from ``folder``, as a debugger does."""
    found = subprocess.run(
        ["pgrep", "-n", "-f", "--", f"--object {folder}"], check=True, capture_output=True, text=True
    )
    _, reader = sorted(Path(f"/proc/{found.stdout.strip()}/task").iterdir(), key=lambda task: int(task.name))
    attach_thread, wait_for_threads = 16, 0x40000000
    assert ctypes.CDLL(None).ptrace(attach_thread, int(reader.name), 0, 0) == 0
    os.waitpid(int(reader.name), wait_for_threads)
