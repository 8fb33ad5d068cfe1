"""The generator's own time per frame: a difference of two bursts, which a disturbance may make negative."""

from __future__ import annotations

import pytest

from xdplab.studies.traffic.rows import _other_work, _pieces
from xdplab.studies.trial_facts import HarnessPieces, TrialFacts


def test_a_receiver_takes_what_both_take_less_the_sender() -> None:
    reasons: dict[str, str] = {}
    row = _pieces(TrialFacts(harness=HarnessPieces(34.0, 60.0)), reasons)
    assert row == {"sender_ns": 34.0, "harness_ns": 60.0, "receiver_ns": 26.0}
    assert not reasons


@pytest.mark.parametrize("both_ns", [30.0, 34.0])
def test_a_receiver_never_takes_less_than_nothing(both_ns: float) -> None:
    reasons: dict[str, str] = {}
    row = _pieces(TrialFacts(harness=HarnessPieces(34.0, both_ns)), reasons)
    assert row == {"sender_ns": 34.0, "harness_ns": both_ns}
    assert f"with the receiver a frame took {both_ns} ns and without it 34.0 ns" in reasons["receiver_ns"]


def test_other_work_is_unknown_where_the_cpus_at_work_were_not_recorded() -> None:
    """It once included everything that kept the CPU busy, also the trial's own work."""
    reasons: dict[str, str] = {}
    row = {"arrangement": "shared", "host_busy_cores": 1.1, "tx_busy_cores": 0.9, "host_softirq_cores": 0.1}
    assert _other_work(row, TrialFacts(), reasons) == {}
    assert "not recorded" in reasons["other_busy_cores"]
