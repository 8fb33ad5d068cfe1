"""Plans whose frames have a VLAN tag or are of IPv6, in every mode, with real traffic."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.end_to_end.conftest import needs_root, xdplab
from tests.run.nulls import unexplained
from xdplab.deploy.device import snapshot
from xdplab.labs import Lab

pytestmark = [pytest.mark.root, pytest.mark.lab, needs_root]

PLAN = """
name: kinds
repetitions: 1
trial: {warmup_s: 0.05, window_s: 0.2, pause_s: 0.0}
blocks:
  - points: {mode: [native, generic, af_xdp], frame_bytes: 72, workload: packet, op: write, accesses: 16}
    traffic: {load: 20kpps, vlan: [none, 5], ip_version: [4, 6]}
"""
OWN = """
name: own
repetitions: 1
trial: {warmup_s: 0.05, window_s: 0.2, pause_s: 0.0}
blocks:
  - points: {mode: native, frame_bytes: 100, program: {file: six.bpf.c}}
    traffic: {load: 20kpps, vlan: [none, 5], ip_version: 6}
"""
SIX = """
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
char LICENSE[] SEC("license") = "GPL";
SEC("xdp") int six(struct xdp_md *ctx) {
    __u16 *halves = (void *)(long)ctx->data;
    if ((void *)(halves + 9) > (void *)(long)ctx->data_end)
        return XDP_ABORTED;
    int type = bpf_ntohs(halves[6]), tagged = type == ETH_P_8021Q && bpf_ntohs(halves[7]) == 5;
    if (tagged)
        type = bpf_ntohs(halves[8]);
    if (type != ETH_P_IPV6)
        return XDP_DROP;
    for (int i = 0; i < 3; i++) {
        __u16 half = halves[i];
        halves[i] = halves[i + 3];
        halves[i + 3] = half;
    }
    return XDP_TX;
}
"""


@pytest.mark.thorough
def test_tags_and_ipv6_are_factors_of_valid_trials_in_every_mode(lab: Lab, lab_name: str, tmp_path: Path) -> None:
    before = snapshot(lab.dut, lab.dut_interface)
    (tmp_path / "p.yaml").write_text(PLAN)
    xdplab("--lab", lab_name, "run", "p.yaml", "--out", "out", "--no-figures", cwd=tmp_path)
    trials = pd.read_parquet(next(tmp_path.glob("out/*/trials.parquet")))
    assert len(trials) == 24
    assert unexplained(trials) == []
    for (ip, vlan), own in trials.groupby(["ip_version", "vlan"]):
        if ip == 6:
            assert own["verdict"].eq("unsupported").all()
            assert own["reason"].str.contains("sends frames of 88 to 1518 bytes").all(), own["reason"].tolist()
            continue
        assert own["verdict"].eq("valid").all(), (ip, vlan, own["reason"].tolist())
        assert own["dut_rx_packets"].eq(own["tx_packets"]).all()
        assert own["rx_packets"].eq(own["tx_packets"]).all()
        assert own["foreign_packets"].eq(0).all()
    assert snapshot(lab.dut, lab.dut_interface) == before


@pytest.mark.thorough
def test_ipv6_in_every_mode(lab_name: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(PLAN.replace("72", "[88, 1501]").replace("[4, 6]", "6"))
    xdplab("--lab", lab_name, "run", "p.yaml", "--out", "out", "--no-figures", cwd=tmp_path)
    trials = pd.read_parquet(next(tmp_path.glob("out/*/trials.parquet")))
    assert len(trials) == 24
    assert trials["verdict"].eq("valid").all(), trials["reason"].tolist()
    assert trials["rx_packets"].eq(trials["tx_packets"]).all()
    in_user_space = trials[trials["mode"] == "af_xdp"]
    assert in_user_space["dut_foreign_packets"].eq(0).all()


def test_a_users_program_sees_the_tag_and_ipv6(lab_name: str, tmp_path: Path) -> None:
    """Its test run gets the same frames: it would drop others, and have another action."""
    (tmp_path / "six.bpf.c").write_text(SIX)
    (tmp_path / "p.yaml").write_text(OWN)
    xdplab("--lab", lab_name, "run", "p.yaml", "--out", "out", "--no-figures", cwd=tmp_path)
    trials = pd.read_parquet(next(tmp_path.glob("out/*/trials.parquet")))
    assert trials["verdict"].eq("valid").all(), trials["reason"].tolist()
    assert trials["rx_packets"].eq(trials["tx_packets"]).all()
    assert set(trials["vlan"]) == {"none", "5"}
