"""A user's program in real trials: its test run does the work that the traffic asks for, and its records are read."""

import os

import pandas as pd
import pytest

from tests.end_to_end.conftest import measured, plan

pytestmark = [pytest.mark.thorough, pytest.mark.root, pytest.mark.lab]

PROGRAM = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 4096); } events SEC(".maps");
static __always_inline int work(__u8 *at, int action)
{
    __u64 sum = at[0];
    for (int i = 0; i < 600; i++) {
        sum = sum * 6364136223846793005ULL + 1442695040888963407ULL;
        asm volatile("" : "+r"(sum));
    }
    return sum == 77 ? XDP_ABORTED : action;
}
#define PROGRAM(name, ...) SEC("xdp/" #name) int name(struct xdp_md *ctx) { \\
    __u8 *at = (void *)(long)ctx->data; \\
    if (at + 60 > (__u8 *)(long)ctx->data_end) return XDP_ABORTED; \\
    __VA_ARGS__ }
PROGRAM(same, return work(at, XDP_DROP);)
PROGRAM(decrements, if (at[22] <= 1) return XDP_PASS; at[22]--; return work(at, XDP_DROP);)
PROGRAM(records, void *event = bpf_ringbuf_reserve(&events, 1000, 0);
    if (event) bpf_ringbuf_submit(event, 0);
    return XDP_DROP;)
char LICENSE[] SEC("license") = "GPL";
"""
BLOCKS = """
  - points: {mode: [native, generic], program: [%s]}
    traffic: {engine: afxdp, load: max, flows: 64, src_ip_stride: 0.0.0.1, src_ip: 198.18.0.0}
    passes: [rate, bpf_stats]
"""
NAMES = ("same", "decrements", "records")


@pytest.fixture(scope="module")
def trials(lab_name: str, tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    folder = tmp_path_factory.mktemp("paths")
    (folder / "paths.bpf.c").write_text(PROGRAM)
    programs = ", ".join(f"{{file: paths.bpf.c, section: xdp/{name}, action: drop}}" for name in NAMES)
    table = measured(lab_name, folder, plan(BLOCKS % programs))
    assert set(table["verdict"]) == {"valid"}, list(table["reason"])
    return table.assign(does=table["section"].str.removeprefix("xdp/")).set_index(["does", "mode"])


@pytest.mark.parametrize("mode", ["native", "generic"])
def test_a_program_that_works_once_per_frame_costs_what_it_does_in_the_traffic(mode: str, trials: pd.DataFrame) -> None:
    """The early exit costs a tenth. Times of a shared machine differ by as much as its clock."""
    row, same = trials.loc[("decrements", mode)], trials.loc[("same", mode)]
    assert row["testrun_raw_ns"] == pytest.approx(same["testrun_raw_ns"], rel=0.3)
    assert row["testrun_raw_ns"] == pytest.approx(row["program_run_ns"], rel=0.3)


def test_a_ring_buffer_is_read_and_its_losses_are_told(trials: pd.DataFrame) -> None:
    """A page has room for four records: what the program writes faster than its reader reads is lost."""
    row = trials.loc[("records", "native")]
    assert 0 < row["records_read"] <= row["dut_rx_packets"]
    assert row["records_read"] + row["records_lost"] == pytest.approx(row["dut_rx_packets"], rel=0.01)
    assert row["records_lost_share"] > 0.01
    assert "records" in row["reason"]
    assert 0 < row["records_reader_cores"] <= 1
    assert {int(cpu) for cpu in row["records_reader_cpus"].split(",")} <= set(range(os.cpu_count() or 1))
    assert pd.isna(trials.loc[("same", "native"), "records_read"])
