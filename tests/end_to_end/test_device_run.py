"""A plan's device settings on a real veth with traffic: applied, read back, recorded, restored, also after a kill."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pandas as pd
import pytest

from tests import forked
from tests.end_to_end.conftest import needs_root, xdplab
from xdplab.deploy.device import snapshot
from xdplab.labs import Lab

pytestmark = [pytest.mark.root, pytest.mark.lab, needs_root]

PLAN = """
name: device
repetitions: 1
trial: {{warmup_s: 0.05, window_s: {window_s}, pause_s: 0.0, retries: 0}}
blocks:
  - points: {{mode: native, workload: array, accesses: 0, device: {device}}}
"""
SET = "features.gso=off link.mtu=3000"


def test_each_trial_has_its_own_settings_and_the_device_is_as_it_was(lab: Lab, lab_name: str, tmp_path: Path) -> None:
    before = snapshot(lab.dut, lab.dut_interface)
    asked = "[{}, {features.gso: off, link.mtu: 3000}, {coalesce.rx-usecs: 50}, {features.no-such: on}]"
    (tmp_path / "p.yaml").write_text(PLAN.format(window_s=0.2, device=asked))
    xdplab("--lab", lab_name, "run", "p.yaml", "--out", "out", "--no-figures", cwd=tmp_path)
    (run,) = (tmp_path / "out").iterdir()
    trials = pd.read_parquet(run / "trials.parquet").set_index("device")
    assert set(trials.index) == {"none", SET, "coalesce.rx-usecs=50", "features.no-such=on"}
    measured = trials.loc[["none", SET]]
    assert (measured["verdict"] == "valid").all(), measured["reason"]
    assert (measured["rx_packets"] > 0).all()
    assert json.loads(trials["device_settings"][SET])["link.mtu"] == {"requested": 3000, "obtained": 3000}
    refused = trials.drop(["none", SET])
    assert (refused["verdict"] == "unsupported").all()
    assert "not supported" in refused["reason"]["coalesce.rx-usecs=50"]
    assert "has no setting features.no-such" in refused["reason"]["features.no-such=on"]
    for trial, settings in trials.loc[["none", SET]].set_index("trial_id")["device_settings"].items():
        facts = json.loads((run / f"raw/{trial}/1/applied.json").read_text())
        assert (facts.get("device") is None) == pd.isna(settings)
        mtus = [one["obtained"]["link.mtu"] for one in facts["settings"] if "link.mtu" in one["obtained"]]
        assert mtus == ([] if pd.isna(settings) else [3000])
    assert snapshot(lab.dut, lab.dut_interface) == before


def test_settings_are_put_back_after_a_kill(lab: Lab, lab_name: str, tmp_path: Path) -> None:
    before = snapshot(lab.dut, lab.dut_interface)
    (tmp_path / "p.yaml").write_text(PLAN.format(window_s=60, device="{features.gso: off, link.mtu: 3000}"))
    child = forked.Started("--lab", lab_name, "run", "p.yaml", "--out", "out", "--no-figures", cwd=tmp_path)
    try:
        assert _until(lambda: _values(lab) == (False, 3000), 60)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    assert _until(lambda: snapshot(lab.dut, lab.dut_interface) == before, 30), snapshot(lab.dut, lab.dut_interface)


def _values(lab: Lab) -> tuple[object, object]:
    now = snapshot(lab.dut, lab.dut_interface).values
    return now["features.gso"], now["link.mtu"]


def _until(holds: object, seconds: float) -> bool:
    assert callable(holds)
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
