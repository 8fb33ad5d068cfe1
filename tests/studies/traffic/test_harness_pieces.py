"""The generator's own time per frame: a difference of two bursts, which a disturbance may make negative."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.studies.traffic.columns_of import row_of

from xdplab.formats.generator import GeneratorReady
from xdplab.studies.trial_facts import HarnessPieces, TrialFacts


def test_a_receiver_takes_what_both_take_less_the_sender() -> None:
    row = row_of(facts=TrialFacts(harness=HarnessPieces(34.0, 60.0)))
    assert [row[name] for name in ("sender_ns", "harness_ns", "receiver_ns")] == [34.0, 60.0, 26.0]


@pytest.mark.parametrize("both_ns", [30.0, 34.0])
def test_a_receiver_never_takes_less_than_nothing(both_ns: float) -> None:
    row = row_of(facts=TrialFacts(harness=HarnessPieces(34.0, both_ns)))
    assert [row[name] for name in ("sender_ns", "harness_ns", "receiver_ns")] == [34.0, both_ns, None]
    assert f"{both_ns} ns and without it 34.0 ns" in (row.reason("receiver_ns") or "")


FACTS = TrialFacts(generator=GeneratorReady("live", 1, (0,), "SCHED_FIFO:5", 64, {}))
WINDOW: Any = SimpleNamespace(summary=SimpleNamespace(duration_s=0.5))


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
    row = row_of({"tx_busy_cores": own, "host_softirq_cores": softirq}, facts=FACTS, burst=WINDOW)
    assert row["other_busy_cores"] == pytest.approx(other, abs=1e-9)


def test_other_work_is_unknown_where_a_sender_may_rest() -> None:
    row = row_of({"tx_busy_cores": 0.5, "rate_requested_pps": 2e4}, facts=FACTS, burst=WINDOW)
    assert row["other_busy_cores"] is None
    assert "paced" in (row.reason("other_busy_cores") or "")
