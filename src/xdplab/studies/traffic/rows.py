"""One attempt → one row of trials.parquet and its samples, from the journal's facts and the raw files alone."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from xdplab.absent import Absent
from xdplab.analysis.action_rules import returns_frames, tg_count
from xdplab.analysis.count_rules import COUNT_TOLERANCE
from xdplab.analysis.verdicts import OTHER_SHARE, RULES_VERSION, TICKS_S, forwarded, judge
from xdplab.counters import (
    COUNTERS,
    Counters,
    Readings,
    counted,
    files_in,
    intervals,
    metrics,
    packets_counted,
    unreadable,
)
from xdplab.counters.table import Role
from xdplab.counters.value import jain_index
from xdplab.deploy.afxdp import Stats
from xdplab.errors import FormatError, ResultsError
from xdplab.formats.both_ways import both
from xdplab.formats.generator import Burst, GeneratorReady, Summary, parse_output
from xdplab.formats.pcap import flow_of, frames_in, l2_bytes
from xdplab.formats.slices import SlicedRatio, parse_slices, ratio_of
from xdplab.generators import BY_DPDK, OUTPUT, OUTPUT_BACK
from xdplab.plan import Point, Trial
from xdplab.plan.schedule import SLICES
from xdplab.programs.work import AccessWork
from xdplab.run.columns import by_name
from xdplab.run.facts import learnt
from xdplab.run.metrics import METRICS
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import Attempt
from xdplab.studies.traffic import pdr
from xdplab.studies.traffic.nulls import NO_TIMES, OLDER, with_reasons
from xdplab.studies.traffic.passes import DECIDED_FOLDER, PERF_FOLDER, SECOND_FOLDER, SECOND_PERF_FOLDER
from xdplab.studies.traffic.program_rows import record_columns, same_path, testrun
from xdplab.studies.traffic.sent import in_window, traffic
from xdplab.studies.traffic.two_ports import by_direction
from xdplab.studies.trial_facts import Limit, Missing, ProgramRuns, TrialFacts, device_columns

Row = dict[str, Any]

_PERF = (
    *("cycles", "instructions", "ipc", "branches", "branch_misses", "l1d_loads", "l1d_misses"),
    *("host_cycles", "host_instructions", "perf_running"),
)


@dataclass(frozen=True)
class AttemptRows:
    """The attempt's row, and its rows of samples.parquet."""

    row: Row
    samples: list[Row]


def attempt_rows(run: RunDirectory, trial: Trial, attempt: Attempt, *, window_s: float) -> AttemptRows:
    """Derive all values of one attempt. A missing value is null, and ``null_reasons`` says why.

    ``window_s`` is the window that the run's plan asks for.
    """
    facts, raw = learnt(TrialFacts, attempt), run.raw_dir(attempt.trial_id, attempt.attempt)
    reasons: dict[str, str] = {}
    row: Row = {
        "run_id": run.run_id,
        "trial_id": attempt.trial_id,
        "attempt": attempt.attempt,
        "block": trial.block,
        "order": trial.order,
        "repetition": trial.repetition,
        "window_requested_s": window_s,
        **trial.point.factors(),
        **({} if facts.lab is None else {"lab": facts.lab}),
        **_rate_asked(facts),
        **_frames(trial.point, reasons),
        **_program(facts, trial.point),
        **_work(facts, trial.point, reasons),
        **device_columns(facts.device),
        **_deployment(facts, reasons),
        **_limits(facts, reasons),
    }
    if attempt.status != "measured":
        row |= {"verdict": attempt.status, "reason": attempt.reason, "rules_version": RULES_VERSION}
        return AttemptRows(row, [])
    bursts = _bursts(raw, trial.point, reasons)
    if "rate" in bursts:
        row |= traffic(bursts["rate"], reasons)
        row |= _counted(raw, trial, facts, reasons)
        row |= by_direction(raw, trial.point, bursts["rate"], reasons)
        row |= _port(row, bursts["rate"], raw, trial, reasons)
        row |= _rates(row, bursts["rate"], reasons)
        row |= record_columns(row, facts, reasons)
        row |= _other_work(row, facts, reasons)
        row |= _sliced(raw, trial, facts, reasons)
        row["waited_s"] = facts.waited_s
        sent_s = sum(b.summary.duration_s for b in bursts.values())
        row["overhead_s"] = attempt.duration_s - sent_s - (facts.waited_s or 0.0)
    row |= _passes(bursts, raw, trial, facts, reasons)
    row |= same_path(row, facts, reasons)
    verdict = judge(row)
    words = (verdict.reason, pdr.remark(run, trial.point, facts.lab) if verdict.verdict == "valid" else None)
    said = "; ".join(one for one in words if one)
    row |= {"verdict": verdict.verdict, "reason": said, "limited_by": verdict.limited_by}
    if facts.times is False:
        row = _without_times(row, reasons)
    row["null_reasons"] = json.dumps(dict(sorted(with_reasons(row, reasons).items())))
    row["rules_version"] = RULES_VERSION
    return AttemptRows(row, _samples(bursts, raw, attempt))


def _rate_asked(facts: TrialFacts) -> Row:
    """The rate that a share of the PDR means; for other loads the point's own."""
    rate = facts.rate_requested_pps
    return {} if rate is None else {"rate_requested_pps": rate}


def _limits(facts: TrialFacts, reasons: dict[str, str]) -> Row:
    """The trial's limits outside the DUT; runs of older versions have neither."""
    row: Row = {}
    for column, limit in (("link_bps", facts.link), ("generator_pps", facts.generator_alone)):
        found = limit or Limit(None, OLDER)
        row[column] = found.rate
        if found.missing is not None:
            reasons[column] = found.missing
    return row


def _without_times(row: Row, reasons: dict[str, str]) -> Row:
    """In an emulator the clock means nothing: counts stay, times and rates are null."""
    clocked = {m.name for m in METRICS if m.kind in ("time", "rate") or m.name.endswith("_cores")}
    kept = {name: value for name, value in row.items() if name not in clocked}
    reasons |= dict.fromkeys({"limited_by", *clocked} & row.keys(), NO_TIMES)
    return kept | {"limited_by": None}


def _frames(point: Point, reasons: dict[str, str]) -> Row:
    """The frames sent: of one size, of several in turn, or those of a pcap, which is read from its copy in the run.

    The mean of several sizes is that of the frames counted: a window may end within the pcap.
    """
    if point.program.frames is None:
        if point.frame_bytes is None:
            reasons["frame_bytes"] = "the frames have several sizes (IMIX): frame_mean_bytes is their mean"
        return {"frame_mean_bytes": point.frame_bytes}
    found = _pcap(point.program.frames)
    if isinstance(found, str):
        reasons["flows"] = found
        return {}
    if found["frame_bytes"] is None:
        reasons["frame_bytes"] = "the frames of the pcap have several sizes: frame_mean_bytes is their mean"
    return found


@cache
def _pcap(path: str) -> Row | str:
    """Return the columns of a pcap's frames, or why there are none."""
    try:
        frames = frames_in(path)
    except (OSError, FormatError) as error:
        return f"the frames in {Path(path).name} cannot be read: {error}"
    sizes = l2_bytes(frames)
    same = sizes[0] if len(set(sizes)) == 1 else None
    return {"frame_bytes": same, "flows": len({flow_of(frame) for frame in frames})}


def _program(facts: TrialFacts, point: Point) -> Row:
    """The kernel's facts about the attached program if it does the accesses; af_xdp does them in user space."""
    found = None if point.mode == "af_xdp" else facts.deployment
    return {
        "program_hash": facts.program_hash,
        "kernel": facts.kernel,
        "program_insns": found and found.program_insns,
        "helper_inlined": facts.load.lookup_inlined if found and facts.load and _as_prepared(facts) else None,
        "verified_insns": found and found.verified_insns,
        "jited_bytes": (found and found.jited_bytes) or None,
    }


def _as_prepared(facts: TrialFacts) -> bool:
    """Whether the attached program is the one that was taken apart before the first trial. A hardened JIT makes other
    instructions of it, and an image of another length each time."""
    load, found = facts.load, facts.deployment
    return load is not None and (found is None or (load.tag, load.xlated_insns) == (found.tag, found.program_insns))


def _work(facts: TrialFacts, point: Point, reasons: dict[str, str]) -> Row:
    """What one access is to the machine. Runs of older versions and own programs do not tell: `nulls` says why."""
    work = facts.work
    if work is None:
        return {}
    if work.missing is None and point.mode != "af_xdp" and not _as_prepared(facts):
        work = AccessWork(missing="the attached program has other instructions than the one it was read from")
    if work.missing is not None:
        reasons["access_loads"] = work.missing
        return {}
    return {f"access_{name}": getattr(work, name) for name in ("loads", "stores", "bytes", "chain")}


def _deployment(facts: TrialFacts, reasons: dict[str, str]) -> Row:
    """The kernel's facts about the attached program."""
    found, generator = facts.deployment, facts.generator
    if found is None:
        return {}
    return {
        "mode_obtained": found.mode_obtained,
        "program_tag": found.tag,
        "sched_policy": generator and generator.sched_policy,
        "batch": generator and generator.settings.get("batch"),
        "tx_socket": _tx_socket(generator, reasons),
        "rx_ring_entries": facts.rx_ring_entries,
        **_machine(facts, reasons),
        "load_ms": None if found.load_ns is None else found.load_ns / 1e6,
        "attach_ms": None if found.attach_ns is None else found.attach_ns / 1e6,
    }


def _tx_socket(generator: GeneratorReady | None, reasons: dict[str, str]) -> str | None:
    """What the TG's AF_XDP sockets are, as the kernel says."""
    names = ("bind", "need_wakeup", "busy_poll_us", "busy_poll_missing")
    said = {} if generator is None else {name: generator.settings.get(name) for name in names}
    if said.get("bind") is not None:
        return json.dumps(said)
    if generator is not None and generator.engine != "afxdp":
        reasons["tx_socket"] = "the engine sends without AF_XDP sockets"
    return None


def _machine(facts: TrialFacts, reasons: dict[str, str]) -> Row:
    """The TG's facts behind the times, and which CPUs send by which of the DUT's queues."""
    tg, warmup = facts.tg_machine, facts.warmup
    if facts.xps_missing is not None:
        reasons["xps"] = facts.xps_missing
    return {
        "clocksource": tg and tg.clocksource,
        "rt_runtime_us": tg and tg.rt_runtime_us,
        "warmup_s": warmup and warmup.seconds,
        "warmup_steady": warmup and warmup.steady,
        "path": json.dumps(facts.path) if facts.path else None,
        "xps": None if facts.xps is None else json.dumps(facts.xps),
    }


def _bursts(raw: Path, point: Point, reasons: dict[str, str]) -> dict[str, Burst]:
    """The bursts by name; those of two directions are added up."""
    try:
        outputs = [parse_output((raw / name).read_bytes()) for name in (OUTPUT, OUTPUT_BACK)[: point.ways]]
    except (OSError, FormatError) as error:
        reasons["tx_packets"] = f"the generator's output cannot be read: {error}"
        return {}
    there, *back = ({burst.name: burst for burst in output.bursts} for output in outputs)
    return {name: both(burst, back[0][name]) for name, burst in there.items() if name in back[0]} if back else there


def _counted(raw: Path, trial: Trial, facts: TrialFacts, reasons: dict[str, str]) -> Row:
    cpus = facts.cpus
    if cpus is None:  # known before anything is measured
        raise ResultsError(f"{raw}: the journal has lost the facts of this attempt", remedy="was the journal edited?")
    shared = trial.point.arrangement == "shared"
    own: dict[Role, Collection[int]] = {} if shared else {"dut": cpus.dut}
    working = cpus.working if shared else cpus.dut
    readings = Readings(files_in(raw / "counters"), trial.point.mode, shared, own, working, trial.point.queues)
    found = counted(readings)
    row: Row = {"counters_missing": unreadable(raw / "counters")}
    row |= _clock(raw, found, cpus.working, reasons)
    for name in by_name(COUNTERS):
        row[name] = found[name]
        if (why := found.reason(name)) is not None:
            reasons[name] = why
    if facts.dut_before is not None and facts.dut_after is not None:
        row |= _rings(facts.dut_before, facts.dut_after)
        row |= _foreign(row, facts.dut_before, facts.dut_after, reasons)
        for name in ("dut_rx_packets", "dut_tx_packets", "rx_by_queue", "evenness"):
            reasons.pop(name, None)
    else:
        reasons["dut_foreign_packets"] = "a driver's counters do not tell whose frames they counted"
    if row.get("rx_by_queue") is not None:
        row["queues_reached"] = sum(count > 0 for count in row["rx_by_queue"])
        row["rx_by_queue"] = json.dumps(row["rx_by_queue"])
    if numbers := metrics(readings):
        missing = {name: str(number) for name, number in numbers.items() if isinstance(number, Absent)}
        row["metrics"] = json.dumps({name: None if name in missing else numbers[name] for name in numbers})
        reasons |= {f"metrics.{name}": why for name, why in missing.items()}
    return row


def _clock(raw: Path, found: Counters, working: Collection[int], reasons: dict[str, str]) -> Row:
    """perf's count during traffic gives the clock under load; without it, the chain of additions around the window."""
    recorded = {path.name: path.read_bytes() for path in (raw / "counters").glob("dut.perf.*")}
    in_perf = counted(Readings(files_in(raw / PERF_FOLDER) | recorded, "", True, working=working))
    for name, counters, source in (("clock_by_perf", in_perf, "perf"), ("clock_by_additions", found, "additions")):
        if counters[name] is not None:
            reasons.pop("cycles_per_ns", None)
            return {"cycles_per_ns": counters[name], "cycles_per_ns_from": source}
        reasons["cycles_per_ns"] = str(counters.reason(name))
    return {}


def _port(row: Row, burst: Burst, raw: Path, trial: Trial, reasons: dict[str, str]) -> Row:
    """What the TG's port counted: by the kernel where it has the port, else by DPDK's own registers.

    The kernel sees frames that reached a port and were never taken from its ring; DPDK's software drivers do not.
    """
    columns = ("tg_port_tx_packets", "tg_port_rx_packets", "tg_missed_packets")
    point = trial.point
    folders = ("counters", SECOND_FOLDER)[: point.ways]
    found = [packets_counted(files_in(raw / folder), point.mode) for folder in folders]
    if point.engine not in BY_DPDK:
        reasons |= dict.fromkeys(
            columns[1:], "the generator uses the kernel's own driver of the port: see its counters"
        )
        return dict.fromkeys(columns[1:]) | _left(found, point, reasons)
    reasons["tg_port_dropped_packets"] = "DPDK's own count is tx_errors"
    came, went = (found[0][name] for name in ("tg_link_rx_packets", "tg_link_tx_packets"))
    if came is None or went is None:
        reasons |= {name: "this generator did not read its port's registers" for name in columns if row[name] is None}
        return {}
    s = burst.summary
    taken = [s.rx_packets, s.foreign_packets, s.bad_run_id, s.stale_packets]
    return dict(zip(columns, (went, came, max(0, came - sum(count or 0 for count in taken))), strict=True))


def _left(found: list[Counters], point: Point, reasons: dict[str, str]) -> Row:
    """What the kernel's driver of the TG's ports sent, and what it dropped instead."""
    if point.tx_bind == "zerocopy":
        unknown = "which counters of a driver hold frames sent without a copy is not known"
        reasons |= dict.fromkeys(("tg_port_tx_packets", "tg_port_dropped_packets"), unknown)
        return {"tg_port_tx_packets": None}
    sent = "tg_handed_over_packets" if point.engine == "live" else "tg_link_tx_packets"
    row: Row = {}
    for column, name in (("tg_port_tx_packets", sent), ("tg_port_dropped_packets", "tg_link_tx_dropped")):
        why = next((one.reason(name) for one in found if one[name] is None), None)
        row[column] = None if why else sum(one[name] for one in found)
        reasons |= {column: why} if why else {}
    return row


def _rings(before: Stats, after: Stats) -> Row:
    """The AF_XDP application's own counts. rx_dropped contains the frames of a full or an empty ring already."""

    def gained(name: str) -> list[int]:
        return [getattr(b, name) - getattr(a, name) for a, b in zip(before.queues, after.queues, strict=True)]

    received, dropped = gained("rx"), gained("rx_dropped")
    arrived = [r + d for r, d in zip(received, dropped, strict=True)]
    return {
        "dut_rx_packets": sum(arrived) + after.unbound_packets - before.unbound_packets,
        "dut_tx_packets": sum(gained("tx")),
        "xsk_dropped": sum(dropped) + sum(gained("tx_dropped")),
        "rx_by_queue": tuple(arrived),
        "evenness": jain_index(tuple(arrived)) if any(arrived) else None,
    }


def _foreign(row: Row, before: Stats, after: Stats, reasons: dict[str, str]) -> Row:
    """Frames at the application that are not the generator's; the DUT's counts exclude them."""
    first, last = before.foreign(), after.foreign()
    if first is None or last is None:
        reasons["dut_foreign_packets"] = "the application was not told how to recognise the frames of this trial"
        return {}
    foreign = last - first
    counts = {name: row[name] - foreign for name in ("dut_rx_packets", "dut_tx_packets")}
    return {"dut_foreign_packets": foreign, **counts}


def _rates(row: Row, burst: Burst, reasons: dict[str, str]) -> Row:
    window, sent, done = row["window_s"], row["tx_packets"], forwarded(row)
    rates: Row = {"offered_pps": sent / window}
    if returns_frames(row) and row["rx_packets"] is not None:
        rates["lost_packets"] = sent - (int(tg_count(row) or 0) - (row["duplicate_packets"] or 0))
        rates["loss_ratio"] = rates["lost_packets"] / sent if sent else None
    if done is not None:
        heard = returns_frames(row) and row["rx_packets"] is not None
        frames, seconds = in_window(row, burst, done)
        if heard:  # a frame that came twice was forwarded once
            frames -= row["duplicate_packets"] or 0
        rates |= {"forwarded_pps": frames / seconds, "forwarded_window_s": seconds}
        rates["forwarded_l2_bps"] = _l2_bps(rates["forwarded_pps"], _mean_forwarded(row, burst.summary, done, reasons))
        rates["forwarded_source"] = "tg" if heard else "dut"
    return rates


FCS = 4
HEADER_AND_FCS = 18  # what a veth's link leaves out of a packet buffer's frame


def _mean_forwarded(row: Row, s: Summary, done: float, reasons: dict[str, str]) -> float | None:
    """The mean size of the ``done`` frames that were forwarded, with FCS: by those who counted their bytes.

    A user's program may change sizes, and loss may depend on them.
    """
    heard = returns_frames(row) and s.rx_packets is not None
    if heard and s.rx_packets and s.rx_bytes is not None:
        return _mean_back(s.rx_bytes, s.rx_packets, s, done)
    if heard and done and s.foreign_packets and s.foreign_bytes is not None:
        return s.foreign_bytes / s.foreign_packets
    changes = row.get("accesses") is None and returns_frames(row)
    if changes and (mean := row.get("dut_tx_mean_bytes")) is not None:
        buffers = row.get("dut_driver") == "veth" and row["mode"] == "generic"
        return float(mean) + (HEADER_AND_FCS if buffers else FCS)
    all_sent = abs(done - row["tx_packets"]) <= COUNT_TOLERANCE * done
    if not changes and (row.get("frame_bytes") is not None or all_sent):
        return row.get("frame_mean_bytes")
    reasons["forwarded_l2_bps"] = "the bytes of the frames that were forwarded were not counted"
    return None


def _mean_back(size: int, frames: int, s: Summary, done: float) -> float:
    """The mean of the frames that came back, with those that the program rewrote."""
    rewritten = max(done - frames, 0.0)
    if not rewritten or not s.foreign_packets or s.foreign_bytes is None:
        return size / frames
    return (size + rewritten * s.foreign_bytes / s.foreign_packets) / (frames + rewritten)


def _l2_bps(pps: float, frame_bytes: float | None) -> float | None:
    return None if frame_bytes is None else pps * frame_bytes * 8


def _other_work(row: Row, facts: TrialFacts, reasons: dict[str, str]) -> Row:
    """CPUs' worth that other work took from the senders, which never rest at maximum load.

    A kernel that accounts softirqs apart leaves them out of a thread's time: then they make up for what is missing.
    """
    own, softirq = row.get("tx_busy_cores"), row.get("host_softirq_cores") or 0.0
    if row["arrangement"] != "shared":
        reasons["other_busy_cores"] = "TG and DUT have CPUs of their own: their softirqs cannot be told from other work"
    elif row.get("rate_requested_pps") is not None:
        reasons["other_busy_cores"] = "at a paced load the sender rests: late_p99_ns shows what kept it from sending"
    elif own is None or facts.generator is None:
        reasons["other_busy_cores"] = "this generator did not measure its CPU time"
    else:
        other = len(facts.generator.cpus) - own - _application_ns(facts) / 1e9 / row["window_s"]
        apart = abs(other - softirq) <= OTHER_SHARE + TICKS_S / row["window_s"]
        return {"other_busy_cores": 0.0 if apart else max(0.0, other)}
    return {}


def _application_ns(facts: TrialFacts) -> int:
    """Zero if the kernel forwards."""
    before, after = facts.dut_before, facts.dut_after
    if before is None or after is None:
        return 0
    return after.cpu_ns - before.cpu_ns


def _passes(bursts: Mapping[str, Burst], raw: Path, trial: Trial, facts: TrialFacts, reasons: dict[str, str]) -> Row:
    row = testrun(facts, reasons) | _decided(raw, trial, facts, reasons) | _pieces(facts, reasons)
    if facts.runstats is not None:
        row |= _run_time(facts.runstats, reasons)
    elif "bpf_stats" in bursts:
        reasons["program_run_ns"] = "no kernel program does this mode's work"
    else:
        reasons["program_run_ns"] = "the plan asks for no bpf_stats pass"
    if "perf" in bursts:
        row |= _perf_packets(raw, trial, facts, reasons)
    else:
        reasons |= dict.fromkeys(_PERF, "the plan asks for no perf pass")
    return row


def _sliced(raw: Path, trial: Trial, facts: TrialFacts, reasons: dict[str, str]) -> Row:
    """How a race's two programs compare in slices under one sender, in the trials of side b."""
    if SLICES not in trial.point.passes:
        reasons["slices_ratio"] = "no other program took turns with this one: that is done in trials of a race's side b"
        return {}
    found = _slices_ratio(raw, facts)
    if isinstance(found, str):
        reasons["slices_ratio"] = found
        return {}
    return {"slices_ratio": found.median, "slices_total_ratio": found.total, "slices_pairs": found.pairs}


def _slices_ratio(raw: Path, facts: TrialFacts) -> SlicedRatio | str:
    if facts.sliced is not None:
        return facts.sliced.missing
    try:
        slices = parse_slices((raw / "xdpload.jsonl").read_bytes())
    except (OSError, FormatError) as error:
        return f"xdpload's output cannot be read: {error}"
    return OLDER if slices is None else ratio_of(slices)


def _perf_packets(raw: Path, trial: Trial, facts: TrialFacts, reasons: dict[str, str]) -> Row:
    """The frames that the DUT received between the readings before perf began and after it had ended."""
    if not (raw / PERF_FOLDER).is_dir():
        reasons["perf_packets"] = "the DUT's counters were not read around perf"
        return {}
    if facts.perf_before is not None and facts.perf_after is not None:
        return {"perf_packets": _rings(facts.perf_before, facts.perf_after)["dut_rx_packets"]}
    folders = (PERF_FOLDER, SECOND_PERF_FOLDER)[: trial.point.ways]
    found = [packets_counted(files_in(raw / one), trial.point.mode) for one in folders]
    if why := next((one.reason("dut_rx_packets") for one in found if one["dut_rx_packets"] is None), None):
        reasons["perf_packets"] = why
        return {}
    return {"perf_packets": sum(one["dut_rx_packets"] for one in found)}


def _run_time(runs: ProgramRuns, reasons: dict[str, str]) -> Row:
    """The program's time by BPF statistics, and the same minus that of an empty program."""
    count = runs.after.run_cnt - runs.before.run_cnt
    spent = runs.after.run_time_ns - runs.before.run_time_ns
    cost = runs.cost_ns
    if not count:
        reasons["program_run_ns"] = "the program did not run in the bpf_stats pass"
        return {"stats_cost_ns": cost}
    if cost is None:
        reasons["program_run_ns"] = "what BPF statistics cost themselves was not measured: see program_run_raw_ns"
        return {"program_run_raw_ns": spent / count}
    raw = spent / count
    return {"program_run_raw_ns": raw, "stats_cost_ns": cost, "program_run_ns": raw - cost}


def _pieces(facts: TrialFacts, reasons: dict[str, str]) -> Row:
    """The generator's own share of a frame's time, without a link."""
    found = facts.harness or Missing("the plan asks for no harness pass")
    if isinstance(found, Missing):
        reasons |= dict.fromkeys(("sender_ns", "receiver_ns", "harness_ns"), found.missing)
        return {}
    row = {"sender_ns": found.sender_ns, "harness_ns": found.both_ns}
    receiver = found.both_ns - found.sender_ns
    if receiver > 0:
        return row | {"receiver_ns": receiver}
    reasons["receiver_ns"] = (
        f"with the receiver a frame took {found.both_ns:.1f} ns and without it {found.sender_ns:.1f} ns: the two "
        "bursts were disturbed by more than a receiver takes"
    )
    return row


def _decided(raw: Path, trial: Trial, facts: TrialFacts, reasons: dict[str, str]) -> Row:
    """The actions of a user's program in bursts before and after the window, what the DUT counted in the latter, and
    targets of redirects.
    """
    before = facts.decided_before or Missing("decisions are counted before the window in generic mode")
    if isinstance(before, Missing):
        reasons["actions_before"] = before.missing
    found = facts.decided or Missing("decisions are counted of users' programs in native and generic mode")
    if isinstance(found, Missing):
        reasons |= dict.fromkeys(("actions_counted", "actions_received", "redirect_targets"), found.missing)
        return {}
    if found.targets_missing is not None:
        reasons["redirect_targets"] = found.targets_missing
    targets = None if found.targets is None else json.dumps([asdict(target) for target in found.targets])
    point = trial.point
    after = packets_counted(files_in(raw / DECIDED_FOLDER), point.mode, point.queues)
    if (why := after.reason("dut_rx_packets")) is not None:
        reasons["actions_received"] = why
    row = {"actions_counted": json.dumps(found.actions), "redirect_targets": targets}
    row |= {} if isinstance(before, Missing) else {"actions_before": json.dumps(before.actions)}
    return row | {"actions_received": after["dut_rx_packets"]}


def _samples(bursts: Mapping[str, Burst], raw: Path, attempt: Attempt) -> list[Row]:
    own = {"trial_id": attempt.trial_id, "attempt": attempt.attempt}
    rows = [
        {**own, "burst": name, "host": "tg", "t_s": i.t_s, "tx_packets": i.tx_packets, "rx_packets": i.rx_packets}
        for name, burst in bursts.items()
        for i in burst.intervals
    ]
    readings = Readings(files_in(raw / "counters"), mode="", shared=False)
    return rows + [{**own, "burst": "rate", "host": "dut", **vars(interval)} for interval in intervals(readings)]
