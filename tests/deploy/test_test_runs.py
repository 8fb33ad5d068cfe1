"""A test run takes the path of live frames: from the port, by its queue, each an unchanged frame."""

from pathlib import Path

import pytest
from tests.compiled import bpf_object
from veth_pair import VethLab

from xdplab.deploy.xdp import PortFrame, XdpLoader, XdpRequest, attach
from xdplab.errors import ProgramError
from xdplab.studies.test_frames import TestFrames
from xdplab.studies.traffic.dut import _runs, run_frames

pytestmark = pytest.mark.root

PROGRAM = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
static __always_inline int work(__u8 *at)
{
    __u64 sum = at[0];
    for (int i = 0; i < 400; i++) {
        sum = sum * 6364136223846793005ULL + 1442695040888963407ULL;
        asm volatile("" : "+r"(sum));
    }
    return sum == 77 ? XDP_ABORTED : XDP_TX;
}
%s
SEC("xdp") int tested(struct xdp_md *ctx)
{
    __u8 *at = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
    if (at + 60 > end)
        return XDP_DROP;
    %s
}
char LICENSE[] SEC("license") = "GPL";
"""
WORK = "return work(at);"
ONCE_PER_FRAME = {
    "decrements": "if (at[22] <= 1) return XDP_PASS; at[22]--;" + WORK,
    "rewrites, and its action stays": "if (at[30] == 7) return XDP_TX; at[30] = 7;" + WORK,
    "rewrites, and its action changes": "if (at[30] == 7) return XDP_PASS; at[30] = 7;" + WORK,
    "shrinks": "if (end - at < 100) return XDP_TX; int done = work(at); bpf_xdp_adjust_tail(ctx, -8); return done;",
    "grows": "if (end - at > 200) return XDP_TX; int done = work(at); bpf_xdp_adjust_tail(ctx, 8); return done;",
    "moves the head": "if (end - at > 200) return XDP_TX; int done = work(at); bpf_xdp_adjust_head(ctx, -8);"
    "return done;",
    "adds metadata": "if (ctx->data_meta < ctx->data) return XDP_TX; int done = work(at); bpf_xdp_adjust_meta(ctx, -8);"
    "return done;",
    "swaps": "__u8 last = at[5]; at[5] = at[11]; at[11] = last;" + WORK,
    "asks for its port": "if (ctx->ingress_ifindex == 1) return XDP_PASS;" + WORK,
}
FRAME = bytes([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 106, 0, 0, 0, 0, 64, 17]) + bytes(96)


def load(lab: VethLab, xdpload: str, folder: Path, body: str, before: str = "") -> XdpLoader:
    tested = bpf_object(folder, PROGRAM % (before, body))
    return attach(lab.dut.host, xdpload, XdpRequest(str(tested), "vd0", "native"))


def whole(*frames: PortFrame) -> TestFrames:
    return TestFrames(frames, len(frames))


@pytest.mark.parametrize("body", ONCE_PER_FRAME.values(), ids=ONCE_PER_FRAME)
def test_a_test_run_costs_what_the_path_of_a_fresh_frame_costs(
    body: str, lab: VethLab, xdpload: str, tmp_path: Path
) -> None:
    """400 multiplications in a row take hundreds of ns, within what a shared machine adds; without them, tens."""
    frames = whole(PortFrame(FRAME))
    with load(lab, xdpload, tmp_path, WORK) as same:
        expected = run_frames(same, frames)
    with load(lab, xdpload, tmp_path, body) as loader:
        found = run_frames(loader, frames)
    assert {name for name, count in found.actions.items() if count} == {"tx"}
    assert (expected.fresh, found.fresh) == (False, "ifindex" not in body)
    assert found.ring_records is None  # it has no ring
    assert min(found.runs_ns) == pytest.approx(min(expected.runs_ns), rel=0.4)


@pytest.mark.machine
@pytest.mark.parametrize("frame", [PortFrame(FRAME), PortFrame(64)], ids=["its bytes", "its size"])
def test_runs_that_bpf_statistics_time_are_no_test_runs(
    frame: PortFrame, lab: VethLab, xdpload: str, tmp_path: Path
) -> None:
    with load(lab, xdpload, tmp_path, "return XDP_TX;") as loader:
        loader.bpf_stats(True)
        with pytest.raises(ProgramError, match="BPF statistics"):
            run_frames(loader, whole(frame))
        loader.bpf_stats(False)
        assert run_frames(loader, whole(frame)).runs_ns


def test_frames_come_by_each_queue_and_the_run_is_their_mean(lab: VethLab, xdpload: str, tmp_path: Path) -> None:
    frames = [PortFrame(FRAME, queue) for queue in (0, 1)]
    with load(lab, xdpload, tmp_path, "if (ctx->rx_queue_index == 1) return XDP_DROP;" + WORK) as loader:
        first, second, both = (
            min(run_frames(loader, whole(*some)).runs_ns) for some in (frames[:1], frames[1:], frames)
        )
        actions = run_frames(loader, whole(*frames)).actions
    assert second < first / 3
    assert both == pytest.approx((first + second) / 2, rel=0.4)
    assert actions["tx"] == actions["drop"] > 0


def test_a_mean_over_different_frames_is_that_of_all(lab: VethLab, xdpload: str, tmp_path: Path) -> None:
    """Each fourth frame takes the slow path, as in a trace of which each fourth was test-run."""
    frames = [PortFrame(FRAME[:30] + bytes([number % 4]) + FRAME[31:]) for number in range(64)]
    with load(lab, xdpload, tmp_path, "if (at[30]) return XDP_DROP;" + WORK) as loader:
        runs = [run_frames(loader, whole(*f)) for f in (frames[:1], frames[1:2], frames)]
    slow, fast, mixed = (min(one.runs_ns) for one in runs)
    assert runs[2].actions["drop"] == 3 * runs[2].actions["tx"] > 0
    assert mixed == pytest.approx((slow + 3 * fast) / 4, rel=0.3)


def test_as_many_frames_as_the_trial_sends_meet_the_programs_tables(lab: VethLab, xdpload: str, tmp_path: Path) -> None:
    """A table of 256 flows: 4,096 flows in turn never find theirs, 64 always do."""
    flows = [PortFrame(FRAME[:30] + number.to_bytes(2, "big") + FRAME[32:]) for number in range(4096)]
    remembers = "__u16 slot = at[31]; __u32 was = (at[30] << 8 | at[31]) + 1; __u32 *kept = &table[slot];"
    body = remembers + "if (*kept == was) return XDP_TX; *kept = was;" + WORK
    with load(lab, xdpload, tmp_path, body, "__u32 table[256];") as loader:
        some, many = (min(run_frames(loader, whole(*flows[:n])).runs_ns) for n in (64, 4096))
    assert many > 3 * some


def test_many_frames_are_run_less_often_and_at_least_three_times() -> None:
    assert [_runs(count, 64) for count in (1, 64, 96, 128, 1000)] == [9, 9, 6, 4, 3]
