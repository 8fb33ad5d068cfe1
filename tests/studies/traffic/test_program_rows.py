"""Columns on the program itself: a test run of another path is no value, and lost records are counted."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from tests.studies.traffic.columns_of import row_of

from xdplab.analysis.verdicts import REMARKS, say_records_lost
from xdplab.deploy.xdp import RecordCounts
from xdplab.studies.trial_facts import Missing, TestRuns, TrialFacts


@pytest.mark.parametrize(
    ("tested", "live", "column", "same"),
    [
        ({"tx": 2048}, {"tx": 1_000_000}, "actions_counted", True),
        ({"pass": 2048}, {"tx": 1_000_000}, "actions_counted", False),
        ({"drop": 512, "tx": 1536}, {"drop": 250_000, "tx": 750_000}, "actions_counted", True),
        ({"drop": 2048}, {"drop": 250_000, "tx": 750_000}, "actions_counted", False),  # each fourth frame of a trace
        ({"aborted": 2048}, {"drop": 1_000_000}, "actions_counted", False),
        ({"aborted": 2048}, {"drop": 1_000_000}, "xdp_actions", True),  # the driver does not tell them apart
        ({"tx": 2048}, {"tx": 20_000, "pass": 60}, "actions_counted", True),  # frames of others
        ({"tx": 990, "drop": 1058}, {"tx": 52, "drop": 48}, "actions_counted", True),  # by chance, few frames
        ({"tx": 2048}, {}, "actions_counted", True),
        (None, {"tx": 5}, "actions_counted", True),  # a generated program is proved
    ],
)
def test_a_test_run_counts_if_its_frames_end_as_the_trials(
    tested: dict[str, int] | None, live: dict[str, int], column: str, same: bool
) -> None:
    facts = TrialFacts(testrun=TestRuns((12.0, 11.0), 64, 64, actions=tested))
    counted = dict.fromkeys(("xdp_actions", "actions_before", "actions_counted")) | {column: json.dumps(live)}
    assert row_of(counted, facts=facts)["testrun_raw_ns"] == (11.0 if same else None)


def counts(ring: int = 0, full: int = 0, perf: int = 0, lost: int = 0, *, others: bool = False) -> RecordCounts:
    return RecordCounts(ring, full, perf, lost, others, 1_000_000, (1,))


@pytest.mark.parametrize(
    ("ring_records", "after", "same"),
    [
        (1.0, counts(ring=9), False),
        (0.0, counts(perf=9), False),
        (0.0, counts(lost=9), False),
        (0.0, counts(), True),
    ],
)
def test_test_runs_that_write_records_are_not_the_traffics_cost(
    ring_records: float, after: RecordCounts, same: bool
) -> None:
    """They took a half to a quarter of what BPF statistics told of the same program's frames."""
    testrun = TestRuns((92.0,), ring_records=ring_records)
    row = row_of(facts=TrialFacts(testrun=testrun, records_before=counts(), records_after=after))
    assert [row["testrun_raw_ns"], row["testrun_all_ns"]] == ([92.0, "[92.0]"] if same else [None, None])


WINDOW: Any = SimpleNamespace(summary=SimpleNamespace(duration_s=0.5))
EACH, UNKNOWN = TestRuns((1.0,), ring_records=2.0), Missing("records of the program were lost in test runs")


@pytest.mark.parametrize(
    ("after", "test", "read", "lost", "share"),
    [
        (counts(ring=2000), EACH, 2000, 0, 0.0),
        (counts(ring=500, full=3), EACH, 500, 1500, 0.75),
        (counts(ring=500, full=3), UNKNOWN, 500, None, None),
        (counts(perf=900, lost=100), UNKNOWN, 900, 100, 0.1),
        (counts(), EACH, 0, None, None),
        (counts(ring=500, others=True), EACH, None, None, None),
        (None, EACH, None, None, None),
    ],
)
def test_records_read_and_lost_of_a_window(
    after: RecordCounts | None, test: TestRuns | Missing, read: int | None, lost: int | None, share: float | None
) -> None:
    facts = TrialFacts(records_before=after and counts(), records_after=after, testrun=test)
    row = row_of({"dut_rx_packets": 1000}, facts=facts, burst=WINDOW)
    assert (row["records_read"], row["records_lost"], row["records_lost_share"]) == (read, lost, share)
    assert (say_records_lost(row) is not None) == bool(lost)
    assert say_records_lost in REMARKS
