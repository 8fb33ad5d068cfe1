"""Foreign frames on the link are not counted as a trial's frames, and the verdict mentions them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.end_to_end.conftest import needs_root, xdplab
from xdplab.labs import Lab

pytestmark = [pytest.mark.root, pytest.mark.lab, needs_root]

PLAN = """
name: foreign
repetitions: 1
trial: {warmup_s: 0.05, window_s: 0.4, pause_s: 0.0}
blocks:
  - points: {mode: [native, af_xdp], workload: array, accesses: 0, working_set_bytes: 4096}
    traffic: {engine: afxdp, load: 20kpps}
"""
# Test frames of another run, at most 100 per second, until this process is killed.
OTHER_RUN = """
import socket, sys, time
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
link.bind((sys.argv[1], 0))
print("ready", flush=True)
for _ in range(100 * 60):
    link.send(bytes.fromhex(sys.argv[2]))
    time.sleep(0.01)
"""
FRAME = "02000000000202000000000108004500002e000000004011eabac6120001c61300010400c42c001a000078646c62" + "00" * 14


def test_a_trial_says_that_others_were_on_the_link(lab: Lab, lab_name: str, tmp_path: Path) -> None:
    (tmp_path / "foreign.yaml").write_text(PLAN)
    other = lab.tg.start(["python3", "-c", OTHER_RUN, lab.tg_interface, FRAME], deadline_s=60)
    try:
        assert other.read_line(10.0) == "ready"
        xdplab("--lab", lab_name, "run", "foreign.yaml", "--out", "out", "--no-figures", cwd=tmp_path)
    finally:
        other.kill()
    (run,) = (tmp_path / "out").iterdir()
    rows = {row["mode"]: row for row in pd.read_parquet(run / "trials.parquet").to_dict("records")}
    for row in rows.values():
        assert row["verdict"] == "valid", row["reason"]
        assert row["refused_packets"] > 10
        assert row["rx_packets"] == row["tx_packets"]
        assert "not only test frames were on the link" in row["reason"]
        assert "of other runs or bursts, or altered" in row["reason"]
    in_user_space, in_kernel = rows["af_xdp"], rows["native"]
    assert in_user_space["dut_foreign_packets"] > 10
    assert in_user_space["dut_rx_packets"] == in_user_space["dut_tx_packets"] == in_user_space["tx_packets"]
    assert pd.isna(in_kernel["dut_foreign_packets"])
    assert "a driver's counters do not tell whose frames they counted" in in_kernel["null_reasons"]
