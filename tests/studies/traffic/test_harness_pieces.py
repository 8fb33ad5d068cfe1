"""The generator's own time per frame: a difference of two bursts, which a disturbance may make negative."""

from __future__ import annotations

import pytest

from xdplab.formats.generator import GeneratorReady
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


SENDER = GeneratorReady("live", 1, (0,), "SCHED_FIFO:5", 64, {})


@pytest.mark.parametrize(
    ("own", "softirq", "other"),
    [
        (0.735, 0.48, 0.265),  # a real-time task had the CPU; softirqs are in the sender's time
        (0.9999, 0.65, 0.0001),
        (0.35, 0.65, 0.0),  # a kernel that accounts softirqs apart
        (0.735, None, 0.265),
    ],
)
def test_other_work_is_what_the_sender_misses_of_its_cpu(own: float, softirq: float | None, other: float) -> None:
    """Work on other CPUs is none of the trial's: it was told in nearly each of them, and what took 27 % was not."""
    row = {"arrangement": "shared", "window_s": 0.5, "host_busy_cores": 2.0}
    row |= {"tx_busy_cores": own, "host_softirq_cores": softirq}
    found = _other_work(row, TrialFacts(generator=SENDER), {})
    assert found["other_busy_cores"] == pytest.approx(other, abs=1e-9)


def test_other_work_is_unknown_where_a_sender_may_rest() -> None:
    reasons: dict[str, str] = {}
    row = {"arrangement": "shared", "window_s": 0.5, "tx_busy_cores": 0.5, "rate_requested_pps": 2e4}
    assert _other_work(row, TrialFacts(generator=SENDER), reasons) == {}
    assert "paced" in reasons["other_busy_cores"]
