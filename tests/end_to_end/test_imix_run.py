"""Plans whose frames have several sizes (IMIX), in every mode, with real traffic."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from tests.end_to_end.conftest import needs_root, xdplab
from tests.run.nulls import unexplained

pytestmark = [pytest.mark.thorough, pytest.mark.root, pytest.mark.lab, needs_root]

PLAN = """
name: mixed
repetitions: 1
trial: {warmup_s: 0.05, window_s: 0.2, pause_s: 0.0}
blocks:
  - points: {mode: [native, generic, af_xdp], frame_bytes: [64, 1518], workload: packet, op: write, accesses: 16}
    traffic: {load: [20kpps, 50Mbit/s], imix: [none, simple]}
"""
OWN = """
name: own
repetitions: 1
trial: {warmup_s: 0.05, window_s: 0.2, pause_s: 0.0}
blocks:
  - points: {mode: native, program: {file: big.bpf.c, action: mixed}}
    traffic: {load: 12kpps, imix: {64: 7, 594: 4, 1518: 1}}
  - points: {mode: [native, generic], program: {file: none.bpf.c, action: drop}}
    traffic: {load: 12kpps, imix: {128: 3, 1000: 1}, engine: [live, afxdp]}
"""
BIG = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
char LICENSE[] SEC("license") = "GPL";
SEC("xdp") int big(struct xdp_md *ctx) {
    __u16 *halves = (void *)(long)ctx->data;
    if ((void *)(halves + 9) > (void *)(long)ctx->data_end)
        return XDP_ABORTED;
    if (ctx->data_end - ctx->data > 1000)
        return XDP_DROP;
    for (int i = 0; i < 3; i++) {
        __u16 half = halves[i];
        halves[i] = halves[i + 3];
        halves[i + 3] = half;
    }
    return XDP_TX;
}
"""
NONE = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
char LICENSE[] SEC("license") = "GPL";
SEC("xdp") int none(struct xdp_md *ctx) { return XDP_DROP; }
"""
SIMPLE = {"64": 7, "594": 4, "1518": 1}


def measured(folder: Path, lab_name: str) -> pd.DataFrame:
    xdplab("--lab", lab_name, "run", "p.yaml", "--out", "out", "--no-figures", cwd=folder)
    trials = pd.read_parquet(next(folder.glob("out/*/trials.parquet")))
    assert unexplained(trials) == []
    return trials


def test_several_sizes_are_a_factor_of_valid_trials_in_every_mode(lab_name: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(PLAN)
    trials = measured(tmp_path, lab_name)
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


def test_a_program_may_drop_one_size(lab_name: str, tmp_path: Path) -> None:
    """Its test run and its counted actions have all sizes too."""
    (tmp_path / "big.bpf.c").write_text(BIG)
    (tmp_path / "none.bpf.c").write_text(NONE)
    (tmp_path / "p.yaml").write_text(OWN)
    trials = measured(tmp_path, lab_name)
    assert trials["verdict"].eq("valid").all(), trials[["mode", "imix", "reason"]].to_dict("records")
    own = trials[trials["imix"] == "simple"].iloc[0]
    sent, back = json.loads(own["tx_by_size"]), json.loads(own["rx_by_size"])
    assert back == sent | {"1518": 0}
    assert own["forwarded_source"] == "dut"  # which processed them all
    assert own["forwarded_l2_bps"] == pytest.approx(own["forwarded_pps"] * own["frame_mean_bytes"] * 8)
    assert json.loads(own["actions_counted"])["drop"] * 11 == pytest.approx(
        json.loads(own["actions_counted"])["tx"], rel=0.02
    )
    dropped = trials[trials["imix"] == "128:3 1000:1"]
    assert len(dropped) == 4
    assert dropped["frame_mean_bytes"].to_list() == pytest.approx([346] * 4, rel=1e-3)
    assert dropped["forwarded_l2_bps"].to_list() == pytest.approx(
        (dropped["forwarded_pps"] * dropped["frame_mean_bytes"] * 8).to_list()
    )
