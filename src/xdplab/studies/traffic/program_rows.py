"""Columns of a trial's row on the program itself: its test runs, and the records that it wrote."""

from __future__ import annotations

import json
from typing import Any

from xdplab.analysis.action_rules import other_actions
from xdplab.studies.trial_facts import Missing, TestRuns, TrialFacts

Row = dict[str, Any]

NO_RECORDS = "the program has no ring buffer and no perf event array that xdplab reads"


def testrun(facts: TrialFacts, reasons: dict[str, str]) -> Row:
    """The least disturbed of this trial's own test runs, and all of them."""
    found = facts.testrun or _older_testrun(facts)
    if isinstance(found, Missing):
        reasons["testrun_raw_ns"] = found.missing
        return {}
    return {"testrun_raw_ns": min(found.runs_ns), "testrun_all_ns": json.dumps(found.runs_ns)}


def same_path(row: Row, facts: TrialFacts, reasons: dict[str, str]) -> Row:
    """A test run whose frames end otherwise than the trial's took another path: its cost is not the trial's."""
    found = facts.testrun if isinstance(facts.testrun, TestRuns) else None
    apart = None if found is None or found.actions is None else other_actions(row, found.actions)
    if found is not None and (found.ring_records or _writes_perf_records(facts)):
        apart = "its records find their reader awake, and wake it in the traffic"
    if apart is None:
        return {}
    reasons["testrun_raw_ns"] = f"test runs take another path than the traffic: {apart}"
    return {"testrun_raw_ns": None, "testrun_all_ns": None}


def _writes_perf_records(facts: TrialFacts) -> bool:
    """Tell whether the program put records into a perf event array in the window."""
    before, after = facts.records_before, facts.records_after
    return (
        before is not None
        and after is not None
        and (after.perf_records, after.perf_lost) != (before.perf_records, before.perf_lost)
    )


def _older_testrun(facts: TrialFacts) -> TestRuns | Missing:
    """Runs of older versions measured once, before the first trial: every repetition carries a copy of that value."""
    once = facts.testrun_ns
    return TestRuns(once) if once else Missing("BPF_PROG_TEST_RUN was not run in this trial")


def record_columns(row: Row, facts: TrialFacts, reasons: dict[str, str]) -> Row:
    """What was read of the program's ring buffers and perf event arrays in the window, and what was lost.

    The kernel counts what a perf event array loses. Of a ring buffer the program alone knows: where it was full, its
    records are expected to be as many per frame as in test runs, whose records all find room.
    """
    before, after = facts.records_before, facts.records_after
    if before is None or after is None:
        reasons["records_read"] = NO_RECORDS
        return {}
    if after.others:
        reasons["records_read"] = "another process reads the program's ring buffers: xdplab has left them to it"
        return {}
    ring, lost = after.ring_records - before.ring_records, after.perf_lost - before.perf_lost
    found: Row = {
        "records_read": ring + after.perf_records - before.perf_records,
        "records_reader_cores": (after.reader_ns - before.reader_ns) / 1e9 / row["window_s"],
        "records_reader_cpus": ",".join(map(str, after.cpus)),
    }
    if after.ring_full > before.ring_full:
        each = facts.testrun.ring_records if isinstance(facts.testrun, TestRuns) else None
        frames = row.get("dut_rx_packets")
        if each is None or frames is None:
            why = "its ring buffer was full, and how many records belong to a frame is not known"
            return found | _missing(reasons, why, "records_lost", "records_lost_share")
        lost += max(0, round(each * frames) - ring)
    written = found["records_read"] + lost
    if not written:
        why = "no record came: none was written, or another process reads them"
        return found | _missing(reasons, why, "records_lost", "records_lost_share")
    return found | {"records_lost": lost, "records_lost_share": lost / written}


def _missing(reasons: dict[str, str], why: str, *columns: str) -> Row:
    reasons |= dict.fromkeys(columns, why)
    return {}
