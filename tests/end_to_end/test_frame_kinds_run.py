"""Plans whose frames have a VLAN tag, are of IPv6 or have several sizes (IMIX), in every mode, with real traffic."""

import json
from pathlib import Path

import pytest

from tests.end_to_end.conftest import measured, plan, source
from xdplab.deploy.device import snapshot
from xdplab.labs import Lab

pytestmark = [pytest.mark.root, pytest.mark.lab]

KINDS = """
  - points: &all {mode: [native, generic, af_xdp], frame_bytes: 88, workload: packet, op: write, accesses: 16}
    traffic: {load: 20kpps, vlan: [none, 5], ip_version: [4, 6]}
  - points: {<<: *all, frame_bytes: 1501}
    traffic: {load: 20kpps, vlan: 5, ip_version: 6}
"""
SIX = """
    __u16 *halves = (void *)(long)ctx->data;
    if ((void *)(halves + 9) > (void *)(long)ctx->data_end)
        return XDP_ABORTED;
    int type = bpf_ntohs(halves[6]), tagged = type == ETH_P_8021Q && bpf_ntohs(halves[7]) == 5;
    return bpf_ntohs(halves[tagged ? 8 : 6]) == ETH_P_IPV6 ? back(ctx) : XDP_DROP;
"""


@pytest.mark.thorough
def test_tags_and_ipv6_are_factors_of_valid_trials_in_every_mode(lab: Lab, lab_name: str, tmp_path: Path) -> None:
    before = snapshot(lab.dut, lab.dut_interface)
    trials = measured(lab_name, tmp_path, plan(KINDS))
    assert len(trials) == 30  # each with its baseline
    assert trials["verdict"].eq("valid").all(), trials["reason"].tolist()
    for column in ("dut_rx_packets", "rx_packets"):
        assert trials[column].eq(trials["tx_packets"]).all(), column
    assert trials["foreign_packets"].eq(0).all()
    assert trials.loc[trials["mode"] == "af_xdp", "dut_foreign_packets"].eq(0).all()
    assert snapshot(lab.dut, lab.dut_interface) == before


@pytest.mark.thorough
def test_a_users_program_sees_the_tag_and_ipv6(lab_name: str, tmp_path: Path) -> None:
    """Its test run gets the same frames: it would drop others, and have another action."""
    (tmp_path / "six.bpf.c").write_text(source("six", SIX))
    points = "{mode: native, frame_bytes: 100, program: {file: six.bpf.c}}"
    traffic = "{load: 20kpps, vlan: [none, 5], ip_version: 6}"
    trials = measured(lab_name, tmp_path, plan(f"[{{points: {points}, traffic: {traffic}}}]"))
    assert trials["verdict"].eq("valid").all(), trials["reason"].tolist()
    assert trials["rx_packets"].eq(trials["tx_packets"]).all()
    assert set(trials["vlan"]) == {"none", "5"}


SIMPLE = {"64": 7, "594": 4, "1518": 1}
SIZES = """
  - points: {mode: [native, generic, af_xdp], frame_bytes: [64, 1518], workload: packet, op: write, accesses: 16}
    traffic: {load: [20kpps, 50Mbit/s], imix: [none, simple]}
"""


@pytest.mark.thorough
def test_several_sizes_are_a_factor_of_valid_trials_in_every_mode(lab_name: str, tmp_path: Path) -> None:
    trials = measured(lab_name, tmp_path, plan(SIZES))
    assert trials["verdict"].eq("valid").all(), trials[["mode", "imix", "reason"]].to_dict("records")
    assert trials["rx_packets"].eq(trials["tx_packets"]).all()
    assert trials["dut_rx_packets"].eq(trials["tx_packets"]).all()
    assert trials.loc[trials["mode"] == "af_xdp", "dut_foreign_packets"].eq(0).all()
    mixed, plain = trials[trials["imix"] == "simple"], trials[trials["imix"] == "none"]
    assert (len(mixed), len(plain)) == (12, 24)  # each with its baseline
    assert mixed["frame_bytes"].isna().all()
    assert plain["tx_by_size"].isna().all()
    for row in mixed.to_dict("records"):
        sent = json.loads(row["tx_by_size"])
        assert sent == json.loads(row["rx_by_size"])
        assert sum(sent.values()) == row["tx_packets"]
        for size, frames in SIMPLE.items():
            assert abs(sent[size] - frames * row["tx_packets"] / 12) < frames
        mean = sum(int(size) * frames for size, frames in sent.items()) / row["tx_packets"]
        assert row["frame_mean_bytes"] == pytest.approx(mean)
        assert row["forwarded_l2_bps"] == pytest.approx(row["forwarded_pps"] * mean * 8)
    by_bits = mixed.loc[mixed["load"] == "50Mbit/s"]
    assert by_bits["rate_requested_pps"].to_list() == pytest.approx([50e6 / 8 / (4342 / 12 + 20)] * len(by_bits))
    asked = 50e6 * (4342 / 12) / (4342 / 12 + 20)  # of L2
    for row in by_bits.to_dict("records"):
        offered = row["frame_mean_bytes"] * row["tx_packets"] * 8 / row["window_s"]
        assert offered < 1.02 * asked
        assert offered > 0.98 * asked or "the load was not reached" in row["reason"], row["reason"]  # a busy machine
