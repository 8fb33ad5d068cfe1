"""How the TG's AF_XDP sockets are bound and woken: requested by a plan, obtained or refused, recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from tests.end_to_end.conftest import needs_root, xdplab
from tests.run.nulls import unexplained

pytestmark = [pytest.mark.root, pytest.mark.lab, needs_root]

PLAN = """
name: sockets
repetitions: 1
trial: {warmup_s: 0.05, window_s: 0.2, pause_s: 0.0, retries: 0}
blocks:
  - points: {mode: native, workload: array, accesses: 0}
    traffic: {engine: [live, afxdp], load: 20kpps, tx_bind: [copy, zerocopy], tx_wakeup: [always, needed],
              tx_busy_poll_us: [0, 50]}
"""


@pytest.mark.thorough
def test_sockets_are_what_the_plan_asks_for_or_the_trial_is_unsupported(lab_name: str, tmp_path: Path) -> None:
    """A veth has no zero copy."""
    (tmp_path / "p.yaml").write_text(PLAN)
    xdplab("--lab", lab_name, "run", "p.yaml", "--out", "out", "--no-figures", cwd=tmp_path)
    trials = pd.read_parquet(next(tmp_path.glob("out/*/trials.parquet")))
    assert trials["engine"].value_counts().to_dict() == {"afxdp": 8, "live": 1}, trials[["verdict", "reason"]].to_dict(
        "list"
    )
    assert unexplained(trials) == []
    live = trials[trials["engine"] == "live"].iloc[0]
    assert live[["tx_bind", "tx_wakeup", "tx_busy_poll_us", "tx_socket"]].isna().all()
    assert json.loads(live["null_reasons"])["tx_socket"] == "the engine sends without AF_XDP sockets"
    own = trials[trials["engine"] == "afxdp"]
    refused, sent = own[own["tx_bind"] == "zerocopy"], own[own["tx_bind"] == "copy"]
    assert refused["verdict"].eq("unsupported").all(), refused["reason"].tolist()
    assert refused["reason"].str.contains("no AF_XDP socket with zerocopy on queue 0 of vg0: Operation not supp").all()
    assert refused["tx_packets"].isna().all()
    assert sent["verdict"].eq("valid").all(), sent["reason"].tolist()
    assert sent["rx_packets"].eq(sent["tx_packets"]).all()
    for _, row in sent.iterrows():
        busy = int(row["tx_busy_poll_us"])
        said = json.loads(row["tx_socket"])
        missing = said.pop("busy_poll_missing")  # depends on the kernel
        assert missing in (None, "the kernel gave the socket no NAPI instance to poll")
        assert busy or missing is None
        assert said == {"bind": "copy", "need_wakeup": row["tx_wakeup"] == "needed", "busy_poll_us": busy}


SENT = """
name: sent
repetitions: 1
trial: {warmup_s: 0.05, window_s: 0.2, pause_s: 0.0, retries: 0}
blocks:
  - points: {mode: native, workload: array, accesses: 0}
    traffic: {engine: afxdp, load: 20kpps, rx_stamp: device, tx_bind: zerocopy, tx_stamp: device}
"""


@pytest.mark.thorough
def test_a_device_that_does_not_stamp_what_it_sends_is_refused_before_it_sends(lab_name: str, tmp_path: Path) -> None:
    """The driver is asked first: a veth has neither these stamps nor zero copy, and only the former are named."""
    (tmp_path / "p.yaml").write_text(SENT)
    done = xdplab("--lab", lab_name, "run", "p.yaml", "--out", "out", "--no-figures", cwd=tmp_path, check=False)
    assert "nothing was measured: no trial is supported here" in done.stderr
    trials = pd.read_parquet(next(tmp_path.glob("out/*/trials.parquet")))
    (row,) = (trials.loc[i] for i in trials.index)
    assert row["verdict"] == "unsupported", row["reason"]
    told = "vg0 (driver veth) does not offer tx-timestamp: its xsk-features are: none" in row["reason"]
    older = "the kernel does not tell whether vg0 (driver veth) offers tx-timestamp: Linux 6." in row["reason"]
    assert told or older, row["reason"]
    assert row[["tx_packets", "latency_p50_ns", "tx_stamped_packets"]].isna().all()
    assert unexplained(trials) == []


STAMPS = """
name: stamps
repetitions: 1
trial: {warmup_s: 0.05, window_s: 0.2, pause_s: 0.0, retries: 0}
blocks:
  - points: {mode: native, workload: array, accesses: 0}
    traffic: {engine: live, load: 20kpps, rx_stamp: [software, device]}
"""


def test_stamps_of_a_device_that_has_none_leave_the_latency_null_with_the_reason(lab_name: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(STAMPS)
    xdplab("--lab", lab_name, "run", "p.yaml", "--out", "out", "--no-figures", cwd=tmp_path)
    trials = pd.read_parquet(next(tmp_path.glob("out/*/trials.parquet"))).set_index("rx_stamp")
    if trials["verdict"]["device"] == "unsupported":
        pytest.skip(f"before Linux 6.3: {trials['reason']['device']}")
    assert trials["verdict"].eq("valid").all(), trials["reason"].tolist()
    assert unexplained(trials.reset_index()) == []
    assert trials["rx_packets"].eq(trials["tx_packets"]).all()
    assert trials["latency_p50_ns"]["software"] > 0
    assert pd.isna(trials["latency_p50_ns"]["device"])
    assert pd.isna(trials["rx_unstamped_packets"]["software"])
    assert trials["rx_unstamped_packets"]["device"] == pytest.approx(
        trials["rx_packets"]["device"] / 16, rel=0.3
    )  # drawn
    reasons = json.loads(trials["null_reasons"]["device"])
    assert "time stamp" in reasons["latency_p50_ns"]
    assert reasons["latency_p99_ns"] == reasons["latency_p50_ns"]
