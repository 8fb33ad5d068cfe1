"""Foreign frames on the link are not counted as a trial's frames, and the verdict mentions them."""

from pathlib import Path

import pandas as pd
import pytest

from tests.doubles.other_sender import SEND_ON
from tests.end_to_end.conftest import measured, plan
from xdplab.labs import Lab

pytestmark = [pytest.mark.root, pytest.mark.lab]

BLOCK = "[{points: {mode: [native, af_xdp], accesses: 0}, traffic: {engine: afxdp, load: 20kpps}}]"
# Test frames of another run, at most 20 per second: far from the hundredth of the trial's frames from which on it is
# invalid, also where other work keeps its sender from the pace.
PAUSE_S = "0.05"
FRAME = "02000000000202000000000108004500002e000000004011eabac6120001c61300010400c42c001a000078646c62" + "00" * 14


def test_a_trial_says_that_others_were_on_the_link(lab: Lab, lab_name: str, tmp_path: Path) -> None:
    other = lab.tg.start(
        ["python3", "-c", SEND_ON, lab.tg_interface, FRAME, PAUSE_S], deadline_s=600
    )  # it waits for its turn
    try:
        assert other.read_line(10.0) == "ready"
        trials = measured(lab_name, tmp_path, plan(BLOCK, window_s=1.0))
    finally:
        other.kill()
    rows = {row["mode"]: row for row in trials.to_dict("records")}
    for row in rows.values():
        assert row["verdict"] == "valid", row["reason"]
        assert row["refused_packets"] > 10
        assert row["rx_packets"] == row["tx_packets"]
        assert "not only test frames were on the link" in row["reason"]
    in_user_space, in_kernel = rows["af_xdp"], rows["native"]
    assert in_user_space["dut_foreign_packets"] > 10
    assert in_user_space["dut_rx_packets"] == in_user_space["dut_tx_packets"] == in_user_space["tx_packets"]
    assert pd.isna(in_kernel["dut_foreign_packets"]), "a driver's counters do not tell whose frames they counted"
