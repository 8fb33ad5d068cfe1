"""Columns on the program under test besides its rate: test runs, statistics, decisions, and the records it wrote."""

from __future__ import annotations

import json
from dataclasses import asdict

from xdplab.absent import Absent, required
from xdplab.analysis.count_rules import other_actions
from xdplab.deploy.xdp import Decided, RecordCounts
from xdplab.run.columns import Column
from xdplab.studies.traffic.columns.source import TrialSource
from xdplab.studies.traffic.passes import DECIDED_FOLDER
from xdplab.studies.trial_facts import HarnessPieces, Missing, ProgramRuns, TestRuns

NO_RECORDS = "the program has no ring buffer and no perf event array that xdplab reads"
FULL = "its ring buffer was full, and how many records belong to a frame is not known"


def _testrun(t: TrialSource) -> TestRuns:
    """This trial's own test runs. If their frames end otherwise than the trial's, their cost is not the trial's."""
    runs = t.facts.testrun or Missing("BPF_PROG_TEST_RUN was not run in this trial")
    if isinstance(runs, Missing):
        raise Absent(runs.missing)
    apart = None if runs.actions is None else other_actions(t.row, runs.actions)
    if runs.ring_records or _writes_perf_records(t):
        apart = "its records find their reader awake, and wake it in the traffic"
    if apart is not None:
        raise Absent(f"test runs take another path than the traffic: {apart}")
    return runs


def _writes_perf_records(t: TrialSource) -> bool:
    """Tell whether the program put records into a perf event array in the window."""
    before, after = t.facts.records_before, t.facts.records_after
    return (
        before is not None
        and after is not None
        and (after.perf_records, after.perf_lost) != (before.perf_records, before.perf_lost)
    )


# BPF statistics, in a pass of their own.


def _statistics(t: TrialSource) -> ProgramRuns:
    counted = t.facts.runstats
    if counted is None and "bpf_stats" in t.bursts:
        raise Absent("no kernel program does this mode's work")
    return required(counted, "the plan asks for no bpf_stats pass")


def _run_ns(runs: ProgramRuns) -> float:
    count = runs.after.run_cnt - runs.before.run_cnt
    if not count:
        raise Absent("the program did not run in the bpf_stats pass")
    return (runs.after.run_time_ns - runs.before.run_time_ns) / count


def _program_run(t: TrialSource) -> float:
    runs = _statistics(t)
    raw = _run_ns(runs)
    return raw - required(runs.cost_ns, "what BPF statistics cost themselves was not measured: see program_run_raw_ns")


def _stats_cost(t: TrialSource) -> float:
    cost = _statistics(t).cost_ns
    if cost is None:
        t.row.require("program_run_ns")
    return float(cost or 0.0)


# The generator's own share of a frame's time, without a link.


def _pieces(t: TrialSource) -> HarnessPieces:
    pieces = t.facts.harness or Missing("the plan asks for no harness pass")
    if isinstance(pieces, Missing):
        raise Absent(pieces.missing)
    return pieces


def _receiver(t: TrialSource) -> float:
    pieces = _pieces(t)
    receiver = pieces.both_ns - pieces.sender_ns
    if receiver <= 0:
        raise Absent(
            f"with the receiver a frame took {pieces.both_ns:.1f} ns and without it {pieces.sender_ns:.1f} ns: the two "
            "bursts were disturbed by more than a receiver takes"
        )
    return receiver


# What a user's program decided, in bursts before and after the window.


def _decided(t: TrialSource) -> Decided:
    counted = t.facts.decided or Missing("decisions are counted of users' programs in native and generic mode")
    if isinstance(counted, Missing):
        raise Absent(counted.missing)
    return counted


def _decided_before(t: TrialSource) -> Decided:
    counted = t.facts.decided_before or Missing("decisions are counted before the window in generic mode")
    if isinstance(counted, Missing):
        raise Absent(counted.missing)
    return counted


def _received_then(t: TrialSource) -> int:
    _decided(t)
    return int(t.packets(DECIDED_FOLDER).require("dut_rx_packets"))


def _targets(t: TrialSource) -> str:
    counted = _decided(t)
    targets = required(counted.targets, counted.targets_missing or "the program redirects no frame")
    return json.dumps([asdict(target) for target in targets])


# Records in ring buffers and perf event arrays. The kernel counts what a perf event array loses. Of a ring buffer the
# program alone knows: where it was full, its records are expected to be as many per frame as in test runs, whose
# records all find room.


def _records(t: TrialSource) -> tuple[RecordCounts, RecordCounts]:
    before, after = t.facts.records_before, t.facts.records_after
    if before is None or after is None:
        raise Absent(NO_RECORDS)
    if after.others:
        raise Absent("another process reads the program's ring buffers: xdplab has left them to it")
    return before, after


def _read(t: TrialSource) -> int:
    before, after = _records(t)
    return after.ring_records - before.ring_records + after.perf_records - before.perf_records


def _lost(t: TrialSource) -> int:
    before, after = _records(t)
    lost = after.perf_lost - before.perf_lost
    if after.ring_full > before.ring_full:
        each = t.facts.testrun.ring_records if isinstance(t.facts.testrun, TestRuns) else None
        frames = t.row["dut_rx_packets"]
        if each is None or frames is None:
            raise Absent(FULL)
        lost += max(0, round(each * frames) - (after.ring_records - before.ring_records))
    if not _read(t) + lost:
        raise Absent("no record came: none was written, or another process reads them")
    return lost


def _lost_share(t: TrialSource) -> float:
    lost = int(t.row.require("records_lost"))
    return lost / (_read(t) + lost)


def _reader_cores(t: TrialSource) -> float:
    before, after = _records(t)
    return (after.reader_ns - before.reader_ns) / 1e9 / t.summary.duration_s


PROGRAM: tuple[Column[TrialSource], ...] = (
    Column("testrun_raw_ns", "float", "time",
           "BPF_PROG_TEST_RUN of the program that this trial loaded: the minimum of testrun_all_ns; null for af_xdp",
           lambda t: min(_testrun(t).runs_ns)),
    Column("testrun_all_ns", "json", "time", "results of all test runs in this trial, a JSON list",
           lambda t: json.dumps(_testrun(t).runs_ns)),
    Column("program_run_raw_ns", "float", "time", "mean run time by BPF statistics, in a pass of its own",
           lambda t: _run_ns(_statistics(t))),
    Column("program_run_ns", "float", "time", "program_run_raw_ns minus stats_cost_ns; below 0 by noise", _program_run),
    Column("stats_cost_ns", "float", "time",
           "mean run time that BPF statistics report for an empty program: their own cost, measured in the same trial",
           _stats_cost),
    Column("sender_ns", "float", "time",
           "time per frame that the generator makes and drops without a link, on all its CPUs together, in a pass of "
           "its own",
           lambda t: _pieces(t).sender_ns),
    Column("receiver_ns", "float", "time",
           "time per frame that is handed to the generator's receiver without a link: harness_ns minus sender_ns; "
           "null if a disturbance makes that 0 or less",
           _receiver),
    Column("harness_ns", "float", "time",
           "time per frame of sender and receiver together, without a link, on all its CPUs together, in a pass of "
           "its own",
           lambda t: _pieces(t).both_ns),
    Column("actions_counted", "json", "count",
           "actions of a user's program in a burst after the window, with the maps that this left, counted by "
           "instructions that call it: frames by action",
           lambda t: json.dumps(_decided(t).actions)),
    Column("actions_before", "json", "count",
           "the same in a burst before the window, in generic mode, where no driver counts them in it",
           lambda t: json.dumps(_decided_before(t).actions)),
    Column("actions_received", "int", "count",
           "frames that the DUT received in that burst, by the counter that dut_rx_packets is from",
           _received_then),
    Column("redirect_targets", "json", "count",
           "targets of the redirected frames of that burst: accepted and refused by the kernel, arrived, dropped, "
           "CPU time of a cpumap's thread",
           _targets),
    Column("records_read", "int", "count",
           "records that xdplab read in the window from the program's ring buffers and perf event arrays",
           _read),
    Column("records_lost", "int", "count",
           "records lost there: by the kernel's count; of a full ring buffer, those missing from as many per frame "
           "as in test runs",
           _lost),
    Column("records_lost_share", "float", "share", "records_lost / (records_read + records_lost)", _lost_share),
    Column("records_reader_cores", "float", "share", "busy CPUs of the reader of these records in the window",
           _reader_cores),
    Column("records_reader_cpus", "str", "state", "the CPUs on which it ran: the scheduler places it",
           lambda t: ",".join(map(str, _records(t)[1].cpus))),
)  # fmt: skip
