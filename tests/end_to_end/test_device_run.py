"""A plan's device settings on a real veth with traffic: applied, read back, recorded, restored, also after a kill."""

import json
from pathlib import Path

import pandas as pd
import pytest

from tests.end_to_end.conftest import plan, run_of, trials_of
from xdplab.deploy.device import snapshot
from xdplab.labs import Lab

pytestmark = [pytest.mark.root, pytest.mark.lab]

SET = "features.gso=off link.mtu=3000"
DEVICES = "[{}, {features.gso: off, link.mtu: 3000}, {coalesce.rx-usecs: 50}, {features.no-such: on}]"


def test_each_trial_has_its_own_settings_and_the_device_is_as_it_was(lab: Lab, lab_name: str, tmp_path: Path) -> None:
    before = snapshot(lab.dut, lab.dut_interface)
    run = run_of(lab_name, tmp_path, plan(f"[{{points: {{accesses: 0, device: {DEVICES}}}}}]", window_s=0.1))
    trials = trials_of(run).set_index("device")
    assert set(trials.index) == {"none", SET, "coalesce.rx-usecs=50", "features.no-such=on"}
    measured, refused = trials.loc[["none", SET]], trials.drop(["none", SET])
    assert (measured["verdict"] == "valid").all(), measured["reason"]
    assert (measured["rx_packets"] > 0).all()
    assert json.loads(trials["device_settings"][SET])["link.mtu"] == {"requested": 3000, "obtained": 3000}
    assert (refused["verdict"] == "unsupported").all()
    assert "features.no-such" in refused["reason"]["features.no-such=on"]
    for trial, settings in measured.set_index("trial_id")["device_settings"].items():
        facts = json.loads((run / f"raw/{trial}/1/applied.json").read_text())
        mtus = [one["obtained"]["link.mtu"] for one in facts["settings"] if "link.mtu" in one["obtained"]]
        assert mtus == ([] if pd.isna(settings) else [3000])
    assert snapshot(lab.dut, lab.dut_interface) == before
