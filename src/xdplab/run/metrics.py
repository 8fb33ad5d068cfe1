"""The one table of a run's columns. The parquet schema, the docs and the figures are made from it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionArray

from xdplab.plan.factors import FACTORS

Kind = Literal["id", "factor", "state", "count", "rate", "time", "share", "verdict"]
DTYPES = {"str": "string", "int": "Int64", "float": "Float64", "bool": "boolean", "json": "string"}


@dataclass(frozen=True)
class Metric:
    """One column: ``unit`` is empty if it has none; ``text`` is what a reader needs to know."""

    name: str
    dtype: Literal["str", "int", "float", "bool", "json"]
    unit: str
    kind: Kind
    text: str


def _table(text: str) -> tuple[Metric, ...]:
    rows = []
    for line in text.strip().splitlines():
        name, dtype, unit, kind, words = (part.strip() for part in line.split("|", 4))
        rows.append(Metric(name, dtype, unit, kind, words))  # type: ignore[arg-type]
    return tuple(rows)


METRICS = (
    *_table("""
run_id              | str   |      | id      | the run directory's identity, also in the payload of its frames
point_id            | str   |      | id      | hash of the point's factors, without the lab: it is the same in two runs
trial_id            | str   |      | id      | point and repetition
attempt             | int   |      | id      | 1 for the first try of a trial
block               | int   |      | id      | number of the trial's block: trials that share settings which take time to change
order               | int   |      | id      | place of the trial in the run's seeded order
repetition          | int   |      | id      | independent trial of the same point, from 1: the unit of statistics
"""),  # noqa: E501
    *(Metric(factor.column, factor.dtype, factor.unit, "factor", factor.text) for factor in FACTORS),
    *_table("""
mode_obtained       | str   |      | state   | the attach mode the kernel reports
device_settings     | json  |      | state   | settings of the DUT's device that the plan asks for, a JSON object: name to requested and obtained
tx_socket           | json  |      | state   | what the kernel says of the TG's AF_XDP sockets (engine afxdp), a JSON object: bind, need_wakeup, busy_poll_us, and why busy polling has nothing to poll
queues_reached      | int   |      | state   | queues that received at least one test frame
frame_mean_bytes    | float | B    | state   | mean L2 bytes of the frames sent in the window, with FCS, counted
window_requested_s  | float | s    | time    | length of the window that the plan asks for
window_s            | float | s    | time    | how long frames were sent, by the sender's clock, at max until the kernel had taken the last ones: the divisor of offered_pps
path                | json  |      | count   | frames sent and received back before the trial to prove that the path carries them; the DUT's counts where none came back
warmup_s            | float | s    | time    | how long frames were sent before the window, until the rate was steady or the limit of five bursts was reached
warmup_steady       | bool  |      | state   | the rate was steady when the warm-up ended; null if this was not checked
tx_packets          | int   |      | count   | test frames the TG sent in the window
rx_packets          | int   |      | count   | test frames of this run the TG received
tx_by_size          | json  |      | count   | frames of several sizes (IMIX): tx_packets by size, a JSON object: bytes with FCS to frames
rx_by_size          | json  |      | count   | frames of several sizes (IMIX): rx_packets by size, a JSON object: bytes with FCS to frames
drained_packets     | int   |      | count   | those of rx_packets that arrived after the window had ended: frames that were still in rings. Rates do not include them
dut_rx_packets      | int   |      | count   | frames the DUT received, by its own counters
dut_tx_packets      | int   |      | count   | frames the DUT sent back, by its own counters
dut_counted_by      | str   |      | state   | who counted them: the DUT's driver or its link; null in af_xdp, whose application counts
dut_rx_mean_bytes   | float | B    | state   | mean bytes of the frames received, by the DUT's link: without their FCS, and on a veth with XDP without the Ethernet header of packet buffers
dut_tx_mean_bytes   | float | B    | state   | mean bytes of the frames sent back, by the DUT's link in the same way
forth_tx_packets    | int   |      | count   | two ports: frames the TG sent to the DUT's first port
forth_dut_rx_packets | int  |      | count   | two ports: those that the DUT's first port received
forth_dut_tx_packets | int  |      | count   | two ports: those that the DUT forwarded by its second port, by that port's counters
forth_rx_packets    | int   |      | count   | two ports: those that the TG received from the DUT's second port
back_tx_packets     | int   |      | count   | both directions: frames the TG sent to the DUT's second port
back_dut_rx_packets | int   |      | count   | both directions: those that the DUT's second port received
back_dut_tx_packets | int   |      | count   | both directions: those that the DUT forwarded by its first port, by that port's counters
back_rx_packets     | int   |      | count   | both directions: those that the TG received from the DUT's first port
lost_packets        | int   |      | count   | tx_packets minus the frames that came back, each counted once; rewritten frames count as back
loss_ratio          | float |      | share   | lost_packets / tx_packets
duplicate_packets   | int   |      | count   | test frames received more than once
reordered_packets   | int   |      | count   | test frames received behind a later one of their flow (RFC 4737); in runs of older generators, of their stream
foreign_packets     | int   |      | count   | frames received without the run's magic and id, or with altered headers or length
refused_packets     | int   |      | count   | frames received with the magic of test frames but not counted: from another run or an earlier burst, or altered
dut_foreign_packets | int   |      | count   | frames that reached the DUT's AF_XDP application but were not test frames of this run; not in dut_rx_packets
offered_pps         | float | 1/s  | rate    | tx_packets / window
rate_change         | float |      | share   | change of the rate within the window, as a share of its mean, in one step or one trend; 0 if it was steady
rate_change_kind    | str   |      | state   | steady, step or trend
tx_errors           | int   |      | count   | frames of tx_packets that the TG's device refused because its ring was full
tx_restored         | bool  |      | state   | engine live: the sender wrote each frame whole, because the program under test had changed a payload; it takes part of the time per frame
tx_unrestored_packets | int |      | count   | engine live: frames of tx_packets that were sent before it noticed: they may carry what the program wrote into an earlier frame
generator_pps       | float | 1/s  | rate    | rate that the generator reaches over this link while the DUT has no program; null where CPUs are shared
tx_late_packets     | int   |      | count   | frames of a paced load that were sent more than 100 us after they were due, and then too close together
tg_port_tx_packets  | int   |      | count   | frames that the TG's port counted as sent, probes included: by its link, its driver's redirects (engine live), or DPDK
tg_port_dropped_packets | int |    | count   | frames that the TG's link dropped instead of sending them
tg_port_rx_packets  | int   |      | count   | frames that the TG's port counted as received; DPDK only
tg_missed_packets   | int   |      | count   | frames that reached the TG's port but not its generator: lost by the TG
probes_sent         | int   |      | count   | extra frames that the TG's NIC stamps (engine moongen-hw)
probes_lost         | int   |      | count   | probes that did not come back with a stamp
rx_unstamped_packets | int   |      | count   | stamped frames that came back without a stamp of the TG's device, where the plan asks for its stamps (rx_stamp: device)
tx_stamped_packets  | int   |      | count   | frames of which the TG's device told when it sent them, where the plan asks for that (tx_stamp: device)
tx_unstamped_packets | int   |      | count   | frames of which it was asked and told nothing
unmatched_packets   | int   |      | count   | frames that came back with the device's stamp, but without one of sending, or too long after it: they are in no latency
tx_pause_ms         | float | ms   | time    | longest time in the window in which the sender stood still or fell behind
tx_paused_ms        | float | ms   | time    | total time that the sender stood still; null at a paced load, where lateness shows it
tx_busy_cores       | float |      | share   | CPUs that the sending threads kept busy, softirqs in them included
forwarded_pps       | float | 1/s  | rate    | frames forwarded (for drop and pass: processed) per second, each counted once
forwarded_window_s  | float | s    | time    | seconds that forwarded_pps is the mean of: until the frames were counted as the window ended; window_s for counts at rest
forwarded_source    | str   |      | state   | the host whose count forwarded_pps is: tg or dut
forwarded_l2_bps    | float | bit/s| rate    | forwarded_pps x the mean L2 bytes of the frames forwarded, with FCS, counted, x 8
slices_ratio        | float |      | share   | in a race, side b: rate of this program over that of side a's, as the two took turns every few milliseconds under one sender; median over neighbouring slices
slices_total_ratio  | float |      | share   | the same ratio from all frames and times of each side; unlike the median, it includes other work that hit single slices
slices_pairs        | int   |      | count   | pairs of slices that slices_ratio is the median of
ns_per_packet       | float | ns   | time    | 1e9 x (CPUs that do DUT work - other_busy_cores) / forwarded_pps; null unless the DUT or the shared CPU is the limit
access_ns           | float | ns   | time    | 1e9/pps(N) - 1e9/pps(0), N = 0 of the same block, repetition, engine and size, per CPU and less what other work took
access_loads        | float |      | state   | machine loads per access, in the kernel's JIT image or in the user-space twin, including those of the walk and of the stack
access_stores       | float |      | state   | machine stores per access
access_bytes        | float | B    | state   | bytes that these loads and stores move per access
access_chain        | str   |      | state   | chase on x86-64 only: the operations in the machine code from one load to the next, which depends on it
testrun_raw_ns      | float | ns   | time    | BPF_PROG_TEST_RUN of the program that this trial loaded: the minimum of testrun_all_ns; null for af_xdp
testrun_all_ns      | json  | ns   | time    | results of all test runs in this trial, a JSON list
testrun_ns          | float | ns   | time    | testrun_raw_ns minus that of N = 0; null for a user's program
program_run_raw_ns  | float | ns   | time    | mean run time by BPF statistics, in a pass of its own
program_run_ns      | float | ns   | time    | program_run_raw_ns minus stats_cost_ns
stats_cost_ns       | float | ns   | time    | mean run time that BPF statistics report for an empty program: their own cost, measured in the same trial
sender_ns           | float | ns   | time    | time per frame that the generator makes and drops without a link, on all its CPUs together, in a pass of its own
receiver_ns         | float | ns   | time    | time per frame that is handed to the generator's receiver without a link: harness_ns minus sender_ns; null if a disturbance makes that 0 or less
harness_ns          | float | ns   | time    | time per frame of sender and receiver together, without a link, on all its CPUs together, in a pass of its own
latency_min_ns      | float | ns   | time    | minimum round trip of the stamped frames: from the time the frame was due at a paced load, from sending at max (latency_from)
latency_mean_ns     | float | ns   | time    | mean of the round trips
latency_p50_ns      | float | ns   | time    | median
latency_p90_ns      | float | ns   | time    | 90th percentile
latency_p99_ns      | float | ns   | time    | 99th percentile
latency_p999_ns     | float | ns   | time    | 99.9th percentile
latency_max_ns      | float | ns   | time    | maximum round trip
latency_samples     | int   |      | count   | stamped frames received
latency_from        | str   |      | state   | due or sent: the time from which latencies are counted; with tx_stamp: device, sent is the device's own stamp
latency_sent_p50_ns | float | ns   | time    | the median counted from sending, at every load
latency_sent_p90_ns | float | ns   | time    | the 90th percentile counted from sending, at every load
latency_sent_p99_ns | float | ns   | time    | the 99th percentile counted from sending, at every load
latency_sent_p999_ns | float | ns   | time    | the 99.9th percentile counted from sending, at every load
latency_sent_max_ns | float | ns   | time    | the maximum round trip counted from sending, at every load
late_p50_ns         | float | ns   | time    | median of the sender's lateness: from the time a frame was due to its sending; null at max
late_p99_ns         | float | ns   | time    | 99th percentile of the sender's lateness: from the time a frame was due to its sending; null at max
late_p999_ns         | float | ns   | time    | 99.9th percentile of the sender's lateness: from the time a frame was due to its sending; null at max
late_max_ns         | float | ns   | time    | maximum of the sender's lateness: from the time a frame was due to its sending; null at max
dut_driver          | str   |      | state   | driver of the DUT's port; docs/reference/nic-counters.md says which of its counters are read
xdp_actions         | json  |      | count   | actions of the DUT's program in the window, by the driver's counters: frames by action (drop includes aborted)
actions_counted     | json  |      | count   | actions of a user's program in a burst after the window, with the maps that this left, counted by instructions that call it: frames by action
actions_before      | json  |      | count   | the same in a burst before the window, in generic mode, where no driver counts them in it
actions_received    | int   |      | count   | frames that the DUT received in that burst, by the counter that dut_rx_packets is from
redirect_targets    | json  |      | count   | targets of the redirected frames of that burst: accepted and refused by the kernel, arrived, dropped, CPU time of a cpumap's thread
records_read        | int   |      | count   | records that xdplab read in the window from the program's ring buffers and perf event arrays
records_lost        | int   |      | count   | records lost there: by the kernel's count; of a full ring buffer, those missing from as many per frame as in test runs
records_lost_share  | float |      | share   | records_lost / (records_read + records_lost)
records_reader_cores | float |      | share   | busy CPUs of the reader of these records in the window
records_reader_cpus | str   |      | state   | the CPUs on which it ran: the scheduler places it
rx_by_queue         | json  |      | count   | frames by DUT receive queue, a JSON list
evenness            | float |      | share   | Jain's fairness index of rx_by_queue over the queues requested: 1 is even
cpu_busy_cores      | float |      | share   | busy CPUs of the DUT in the window; null if TG and DUT share CPUs
cpu_softirq_cores   | float |      | share   | the part of cpu_busy_cores in softirq
host_busy_cores     | float |      | share   | busy CPUs of the whole machine in the window
host_softirq_cores  | float |      | share   | the part of host_busy_cores in softirq
host_steal_cores    | float |      | share   | CPUs with work that the hypervisor did not run (steal)
other_busy_cores    | float |      | share   | CPUs' worth that other work took from the CPUs at work, at maximum load on shared CPUs: their number minus tx_busy_cores and the AF_XDP application's time
cycles              | float |      | count   | DUT cycles in the perf pass; null if TG and DUT share CPUs
instructions        | float |      | count   | DUT instructions in the perf pass
ipc                 | float |      | share   | instructions / cycles
branches            | float |      | count   | DUT branches in the perf pass
branch_misses       | float |      | count   | DUT branch misses in the perf pass
l1d_loads           | float |      | count   | DUT L1 data loads in the perf pass
l1d_misses          | float |      | count   | DUT L1 data load misses in the perf pass
perf_packets        | int   |      | count   | frames that the DUT processed while perf counted: the divisor of perf's counts
perf_running        | float |      | share   | share of the perf pass in which an event had a hardware counter, of the event that had one least: below 1 perf scaled counts
host_cycles         | float |      | count   | cycles of the whole machine in the perf pass
host_instructions   | float |      | count   | instructions of the whole machine in the perf pass
host_context_switches | float |    | count   | context switches of the whole machine in the perf pass
cycles_per_ns       | float | 1/ns | rate    | clock of the CPUs that do the DUT's work: perf's cycles / busy time, else one addition per cycle, timed next to the window
cycles_per_ns_from  | str   |      | state   | source of cycles_per_ns: perf or additions
clock_change        | float |      | share   | relative increase of the clock from before the window to after it, by additions
host_softnet_dropped | int  |      | count   | frames that backlogs of the DUT's machine dropped: in generic mode they lie between the link's count and the program
softnet_dropped     | int   |      | count   | frames that the DUT's backlog dropped; null if TG and DUT share CPUs
softnet_squeezed    | int   |      | count   | times the DUT's NAPI ran out of budget; null if TG and DUT share CPUs
xsk_dropped         | int   |      | count   | af_xdp only: frames dropped because a ring was full or empty
program_hash        | str   |      | id      | content hash of source, options and compiler: programs/<hash>
program_tag         | str   |      | state   | the kernel's tag of the attached program; in af_xdp, of the one that redirects
program_insns       | int   |      | count   | xlated instructions; null in af_xdp, whose work is done in user space
verified_insns      | int   |      | count   | instructions the verifier processed; null in af_xdp
jited_bytes         | int   | B    | count   | bytes of the JIT image; null without JIT and in af_xdp
helper_inlined      | bool  |      | state   | lookup only: the kernel inlined the map lookup
load_ms             | float | ms   | time    | BPF_PROG_LOAD alone
attach_ms           | float | ms   | time    | attaching alone
dut_cpus            | int   |      | state   | CPUs that did the DUT's work, by their busy time in the window: the factor in ns_per_packet and access_ns
link_bps            | float | bit/s| state   | rate of the physical link; null on veth, tap and virtio, which have none
rx_ring_entries     | int   |      | state   | entries of one receive ring of the DUT
sched_policy        | str   |      | state   | the sender's scheduling as obtained
clocksource         | str   |      | state   | clock source of the TG: time stamps are read from it
rt_runtime_us       | int   | us   | state   | time per second that real-time tasks may run on a CPU of the TG; -1: no limit
xps                 | json  |      | state   | CPUs (hexadecimal mask) that use each transmit queue of the DUT, a JSON object; null if the driver has no such setting
settings            | json  |      | state   | what costs time on both hosts and can change, as read before the window, a JSON object: name to value (`dut port.` and `tg port.`: of the port)
settings_changed    | json  |      | state   | those of settings that were others after the window, a JSON object: name to both values
bpf_timed_runs      | int   |      | count   | runs of XDP programs that BPF statistics timed in the window: above 0 somebody had switched them on
link_changes        | int   |      | count   | times that the link went down or came up in the window
counters_missing    | str   |      | state   | readings of the DUT that are missing or incomplete
overhead_s          | float | s    | time    | wall time of the attempt besides warm-up, windows and waited_s
waited_s            | float | s    | time    | time that this trial waited while other labs of this machine measured on the same CPUs
metrics             | json  |      | state   | the plan's own metrics, a JSON object
absent_counters     | str   |      | state   | counters that the plan asks for and this machine lacks, each with the reason
null_reasons        | json  |      | state   | reasons of null columns, a JSON object: column to reason
verdict             | str   |      | verdict | valid, invalid, unsupported or failed
reason              | str   |      | verdict | reason of the verdict
limited_by          | str   |      | verdict | dut, shared_cpu, generator, link or none
rules_version       | str   |      | verdict | version of the rules that made the verdict
"""),  # noqa: E501
)
BY_NAME = {metric.name: metric for metric in METRICS}

SAMPLES = _table("""
trial_id   | str   |     | id    | the trial
attempt    | int   |     | id    | its attempt
burst      | str   |     | id    | which burst: rate, bpf_stats, perf or decided (verdict counting)
host       | str   |     | id    | tg or dut
cpu        | int   |     | id    | CPU; null for the whole host
queue      | int   |     | id    | queue; null for all of them
t_s        | float | s   | time  | end of the interval, from the burst's start
tx_packets | int   |     | count | frames sent in the interval
rx_packets | int   |     | count | frames received in the interval
""")


def frame(rows: list[dict[str, object]], table: tuple[Metric, ...] = METRICS) -> pd.DataFrame:
    """Return ``rows`` as a data frame with the table's columns and nullable types, in the table's order.

    A key that the table lacks raises KeyError: a column exists only once it is described.
    """
    named = {key for row in rows for key in row}
    if unknown := named - {metric.name for metric in table}:
        raise KeyError(f"columns without a description in run.metrics: {sorted(unknown)}")
    # Columns without a value share one array: a table has a hundred of them.
    nulls = {dtype: pd.array([None] * len(rows), dtype=dtype) for dtype in dict.fromkeys(DTYPES.values())}  # type: ignore[call-overload]
    return pd.DataFrame(
        {
            m.name: _column([row.get(m.name) for row in rows], m) if m.name in named else nulls[DTYPES[m.dtype]]
            for m in table
        }
    )


def _column(cells: list[object], metric: Metric) -> ExtensionArray:
    return texts(cells) if metric.dtype == "json" else pd.array(cells, dtype=DTYPES[metric.dtype])  # type: ignore[call-overload]


def texts(cells: Sequence[object]) -> ExtensionArray:
    """Return texts, None for null, as a nullable column, each text encoded once into a buffer of the exact size.

    Some texts have thousands of characters and stand in thousands of rows. Arrow's own builder expects texts of the
    mean length of the distinct ones, and doubles its buffer if the frequent ones are longer.
    """
    import pyarrow as pa

    codes, levels = pd.factorize(np.array(cells, dtype=object))
    encoded = [*(str(level).encode() for level in levels), b""]  # null has the code -1
    ends = np.zeros(len(codes) + 1, dtype=np.int64)
    np.cumsum(np.array([len(text) for text in encoded])[codes], out=ends[1:])
    known = np.packbits(codes >= 0, bitorder="little")
    data = b"".join([encoded[code] for code in codes.tolist()])
    column = pa.LargeStringArray.from_buffers(len(codes), pa.py_buffer(ends), pa.py_buffer(data), pa.py_buffer(known))
    return pd.arrays.ArrowStringArray(column)


def completed(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with those columns of trials.parquet that it lacks, as null."""
    missing = [metric for metric in METRICS if metric.name not in table]
    return table.assign(**{m.name: pd.array([None] * len(table), dtype=DTYPES[m.dtype]) for m in missing})  # type: ignore[call-overload]


def columns_version() -> str:
    """Return a hash of the columns: tables with a different hash are derived again."""
    names = [f"{metric.name} {metric.dtype}" for metric in (*METRICS, *SAMPLES)]
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:8]
