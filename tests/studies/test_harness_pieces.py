"""What the generator alone takes per frame: a difference of two bursts, which a disturbance may turn round."""

from __future__ import annotations

import pytest

from xdplab.studies.traffic.rows import _pieces
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
