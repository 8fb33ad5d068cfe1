"""Plans with modes tcx and tc, with real traffic: what comes back, what is counted, and what stays after a kill."""

import json
from pathlib import Path

import pytest

from tests import forked
from tests.end_to_end.conftest import plan, run_of, trials_of
from tests.waiting import until
from xdplab.labs import Lab

pytestmark = [pytest.mark.root, pytest.mark.lab]

MODES = """
  - points: {mode: [tcx, tc], workload: lookup, op: write, accesses: 60}
    passes: [rate, bpf_stats]
  - points: {mode: tcx, workload: packet, op: write, accesses: 300, frame_bytes: 9216}
    traffic: {engine: afxdp, load: 2kpps}
  - points: {mode: [tcx, tc]}
    traffic: {load: 10kpps, directions: both}
  - points: {mode: [tcx, tc], program: [{file: back.bpf.c, section: tc}, {file: drop.bpf.c, section: tc, action: drop}]}
    traffic: {load: 10kpps}
"""
HEAD = """
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>
char LICENSE[] SEC("license") = "GPL";
SEC("tc") int own(struct __sk_buff *ctx) {
"""
BACK = """
    __u16 *half = (void *)(long)ctx->data, other;
    if ((void *)(half + 7) > (void *)(long)ctx->data_end)
        return TC_ACT_SHOT;
    for (int i = 0; i < 3; i++) { other = half[i]; half[i] = half[i + 3]; half[i + 3] = other; }
    return bpf_redirect(ctx->ifindex, 0); }
"""


def test_each_frame_comes_back_in_both_modes_and_the_same_things_are_proved(lab_name: str, tmp_path: Path) -> None:
    (tmp_path / "back.bpf.c").write_text(HEAD + BACK)
    (tmp_path / "drop.bpf.c").write_text(HEAD + "return TC_ACT_SHOT; }")
    run = run_of(lab_name, tmp_path, plan(MODES))
    trials = trials_of(run)
    assert trials["verdict"].eq("valid").all(), trials["reason"].tolist()
    assert trials["mode_obtained"].eq(trials["mode"]).all()
    assert trials["testrun_ns"].gt(0).all()
    assert trials.loc[trials["load"] == "max", "program_run_raw_ns"].gt(0).all()
    paced = trials[trials["load"] != "max"]
    assert paced["dut_rx_packets"].eq(paced["tx_packets"]).all()
    back = paced[paced["action"] != "drop"]
    assert back["rx_packets"].eq(back["tx_packets"]).all()
    assert back["foreign_packets"].eq(0).all()
    assert paced.loc[paced["action"] == "drop", "rx_packets"].eq(0).all()
    for program in trials.loc[trials["accesses"].gt(0), "program_hash"].unique():
        proof = json.loads((run / "programs" / program / "proof.json").read_text())
        assert {*proof["kernel"]} == {proof["accesses"]} != {0}
        assert len(proof["bytecode"]) == 4


def test_no_filter_stays_when_the_run_and_its_loader_are_killed(lab: Lab, lab_name: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(plan("[{points: {mode: tc}, traffic: {load: 1kpps}}]", 1, window_s=30))
    child = forked.Started("--lab", lab_name, "run", "p.yaml", "--out", "out", cwd=tmp_path)
    try:
        has_begun = until(lambda: child.poll() is not None or _has_filter(lab), 120) and child.poll() is None
        processes = lab.dut.run(["sh", "-c", LOADERS]).text.split()
    finally:
        child.kill()
        child.wait()
    assert has_begun, child.communicate()
    loader, holder = processes
    lab.dut.run(["kill", "-KILL", loader], check=False)
    assert until(lambda: not _has_filter(lab), 30)  # others may hold the kernel's network lock
    assert until(lambda: not Path(f"/proc/{holder}").exists(), 30)


# The lab's own: other labs' loaders are not ours to end.
LOADERS = """
for process in $(pgrep -x xdpload); do
    [ "$(readlink /proc/$process/ns/net)" = "$(readlink /proc/self/ns/net)" ] && tr '\\0' ' ' </proc/$process/cmdline |
        grep -q 'mode tc ' && echo $process
done
true
"""


def _has_filter(lab: Lab) -> bool:
    return "clsact" in lab.dut.run(["tc", "qdisc", "show", "dev", lab.dut_interface]).text
