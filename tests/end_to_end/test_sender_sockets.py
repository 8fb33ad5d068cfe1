"""How the TG's AF_XDP sockets are bound and woken: requested by a plan, obtained or refused, recorded."""

import json
from pathlib import Path

import pandas as pd
import pytest

from tests.end_to_end.conftest import measured, plan, trials_of, xdplab

pytestmark = [pytest.mark.root, pytest.mark.lab]

BLOCK = "[{points: {accesses: 0}, traffic: {load: 20kpps, %s}}]"


@pytest.mark.thorough
def test_sockets_are_what_the_plan_asks_for_or_the_trial_is_unsupported(lab_name: str, tmp_path: Path) -> None:
    """A veth has no zero copy."""
    factors = "tx_bind: [copy, zerocopy], tx_wakeup: [always, needed], tx_busy_poll_us: [0, 50]"
    trials = measured(lab_name, tmp_path, plan(BLOCK % f"engine: [live, afxdp], {factors}", retries=0))
    assert trials["engine"].value_counts().to_dict() == {"afxdp": 8, "live": 1}, trials["reason"].to_list()
    live = trials[trials["engine"] == "live"].iloc[0]
    assert live[["tx_bind", "tx_wakeup", "tx_busy_poll_us", "tx_socket"]].isna().all()
    own = trials[trials["engine"] == "afxdp"]
    refused, sent = own[own["tx_bind"] == "zerocopy"], own[own["tx_bind"] == "copy"]
    assert refused["verdict"].eq("unsupported").all(), refused["reason"].tolist()
    assert refused["reason"].str.contains("zerocopy on queue 0 of vg0: Operation not supp").all()
    assert refused["tx_packets"].isna().all()
    assert sent["verdict"].eq("valid").all(), sent["reason"].tolist()
    assert sent["rx_packets"].eq(sent["tx_packets"]).all()
    for _, row in sent.iterrows():
        busy = int(row["tx_busy_poll_us"])
        socket = json.loads(row["tx_socket"])
        missing = socket.pop("busy_poll_missing")  # depends on the kernel
        assert missing in (None, "the kernel gave the socket no NAPI instance to poll")
        assert busy or missing is None
        assert socket == {"bind": "copy", "need_wakeup": row["tx_wakeup"] == "needed", "busy_poll_us": busy}


@pytest.mark.thorough
def test_a_device_that_does_not_stamp_what_it_sends_is_refused_before_it_sends(lab_name: str, tmp_path: Path) -> None:
    """The driver is asked first: a veth has neither these stamps nor zero copy, and only the former are named."""
    stamps = "engine: afxdp, rx_stamp: device, tx_bind: zerocopy, tx_stamp: device"
    (tmp_path / "p.yaml").write_text(plan(BLOCK % stamps, retries=0))
    done = xdplab("--lab", lab_name, "run", "p.yaml", "--out", "out", "--no-figures", cwd=tmp_path, check=False)
    assert done.returncode == 5
    (row,) = (row for _, row in trials_of(next(tmp_path.glob("out/*"))).iterrows())
    assert row["verdict"] == "unsupported", row["reason"]
    assert "vg0 (driver veth)" in row["reason"]
    assert "tx-timestamp" in row["reason"]
    assert row[["tx_packets", "latency_p50_ns", "tx_stamped_packets"]].isna().all()


@pytest.mark.thorough
def test_stamps_of_a_device_that_has_none_leave_the_latency_null_with_the_reason(lab_name: str, tmp_path: Path) -> None:
    stamps = "engine: live, rx_stamp: [software, device]"
    trials = measured(lab_name, tmp_path, plan(BLOCK % stamps, retries=0)).set_index("rx_stamp")
    if trials["verdict"]["device"] == "unsupported":
        pytest.skip(f"before Linux 6.3: {trials['reason']['device']}")
    assert trials["verdict"].eq("valid").all(), trials["reason"].tolist()
    assert trials["rx_packets"].eq(trials["tx_packets"]).all()
    assert trials["latency_p50_ns"]["software"] > 0
    assert pd.isna(trials["latency_p50_ns"]["device"])
    assert pd.isna(trials["rx_unstamped_packets"]["software"])
    drawn = trials["rx_packets"]["device"] / 16
    assert trials["rx_unstamped_packets"]["device"] == pytest.approx(drawn, rel=0.3)
    reasons = json.loads(trials["null_reasons"]["device"])
    assert "time stamp" in reasons["latency_p50_ns"]
    assert reasons["latency_p99_ns"] == reasons["latency_p50_ns"]
