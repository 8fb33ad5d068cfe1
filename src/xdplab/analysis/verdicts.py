"""Whether a trial is trustworthy, and what limited it: pure rules over one trial, with a version.

Improved rules also apply to old runs: a rule reads neither the lab nor the clock nor another trial.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from xdplab.analysis.count_rules import (
    COUNT_TOLERANCE,
    closed_loop_is_closed,
    frames_arrive_as_sent,
    frames_left_whole,
    link_counts_what_xdp_takes,
    lost_at_maximum,
    program_does_as_said,
    program_saw_what_was_counted,
    redirects_are_taken,
    returns_frames,
    say_decided,
    say_kept,
    say_restored,
    tg_count,
    tg_port_sent,
    tg_took_what_came,
)
from xdplab.analysis.values import Row, number, text, three_digits
from xdplab.formats.proc import FAST_CLOCKS
from xdplab.formats.settings import PROBE_NOTE
from xdplab.plan.factors import SKB_MODES
from xdplab.plan.offered import frame_rate

RULES_VERSION = "19"

LINE_SLACK = 1.002  # clocks of two NICs
LINE_FULL = 0.99  # share of the line rate from which the link is the limit
OFFERED_SHARE = 0.999  # of what was asked of a sender with its own core
LOSS_FLOOR = 0.001  # loss below it does not show saturation
LATE_SHARE = 0.5  # of a latency from the due time: a sender that is later makes most of that latency itself
PAUSE_SHARE = 0.01  # of the window, in which the sender stood still
STEAL_CORES = 0.01  # CPUs' worth that the hypervisor took
OTHER_SHARE = 0.01  # of the time of the CPUs at work, which other work may take
SENDER_START_S = 0.004  # in which a sender begins and ends a window
CLOCK_CHANGE = 0.02  # of the clock: a CPU whose frequency is steady stays within 0.1 %
RECORDS_LOST = 0.01  # of a program's records: with more, a failed write is a part of its cost
PERF_RUNNING = 0.99  # of perf's time, by each event: with less, counts are estimates
TICKS_S = 0.04  # CPU time is printed in ticks of 10 ms: so many seconds of it may be chance
OPEN_LOOPS = frozenset({"split", "hosts"})
WITHOUT_MEASUREMENT = frozenset({"unsupported", "failed"})
DIRECTIONS = (("forth", "from the first port to the second"), ("back", "from the second port to the first"))


@dataclass(frozen=True)
class Verdict:
    """``verdict`` with its ``reason``; ``limited_by`` is None unless the trial is valid."""

    verdict: str
    reason: str
    limited_by: str | None


def forwarded(row: Row) -> float | None:
    """Frames forwarded in the window (processed, for actions but tx): the TG's count, else the DUT's."""
    if not returns_frames(row):
        return number(row, "dut_rx_packets")
    received = tg_count(row)
    return number(row, "dut_tx_packets") if received is None else received


def loss_share(row: Row) -> float | None:
    """Share of the frames sent that were not forwarded, each counted once, or None if a count is missing."""
    sent, done = number(row, "tx_packets"), forwarded(row)
    if not sent or done is None:
        return None
    heard = returns_frames(row) and tg_count(row) is not None
    return 1 - (done - ((number(row, "duplicate_packets") or 0.0) if heard else 0.0)) / sent


def offered_share(row: Row) -> float | None:
    """Offered rate over the requested one, or None at max load; without frames that never were on the link."""
    requested, offered = number(row, "rate_requested_pps"), number(row, "offered_pps")
    return offered * (1 - never_on_the_link(row)) / requested if requested and offered is not None else None


def never_on_the_link(row: Row) -> float:
    """Share of the frames sent that the TG's own card refused. On a virtual link (without a rate) the ring that was
    full is the DUT's own receive queue: then such frames are its loss.
    """
    refused, sent = number(row, "tx_errors"), number(row, "tx_packets")
    return refused / sent if refused and sent and number(row, "link_bps") else 0.0


def at_the_tgs_ring(row: Row) -> float:
    """Return how many frames a generated program sent back that the TG's end of a veth dropped, because its ring was
    full: those that the DUT received and did not send. Between link and program only a backlog drops any."""
    arrived, gone, lost = (number(row, name) for name in ("dut_rx_packets", "dut_tx_packets", "lost_packets"))
    backlog = number(row, "host_softnet_dropped")
    if (
        text(row, "workload") is None
        or text(row, "dut_driver") != "veth"
        or not lost
        or arrived is None
        or gone is None
    ):
        return 0.0
    if text(row, "mode") == "af_xdp":  # the rings of its application may have been full
        return 0.0
    if backlog is None and text(row, "mode") in SKB_MODES:  # in native mode no backlog takes frames
        return 0.0
    return min(lost, max(0.0, arrived - gone - (backlog or 0.0)))


def line_pps(link_bps: float | None, frame_bytes: float) -> float | None:
    """Frames per second that a physical link can carry, including preamble and gap (L1); None for a link without a
    rate."""
    return frame_rate(link_bps, frame_bytes) if link_bps else None


def line_share(row: Row) -> float | None:
    """Share of the physical link's L1 rate that the forwarded frames take; None on virtual links.

    Of two directions at once, each has a way of its own on each cable: the fuller one counts.
    """
    rate, size = number(row, "forwarded_pps"), _forwarded_bytes(row)  # of the window: the link carries rings later
    most = None if size is None else line_pps(number(row, "link_bps"), size)
    return rate * _fuller(row) / most if most and rate is not None else None


def _fuller(row: Row) -> float:
    """Share of the forwarded frames that the fuller of two directions has; 1 of one."""
    ways = [number(row, f"{way}_rx_packets") or 0.0 for way, _ in DIRECTIONS]
    return max(ways) / sum(ways) if any(ways) else 1.0


def _forwarded_bytes(row: Row) -> float | None:
    """Return the mean size of the forwarded frames, by their counted bytes; only users' programs change sizes."""
    bits, rate = number(row, "forwarded_l2_bps"), number(row, "forwarded_pps")
    if bits is not None:
        return bits / 8 / rate if rate else None
    return number(row, "frame_bytes") if text(row, "file") is None else None


def late_quantiles(row: Row) -> list[str]:
    """Return at which percentile (p50 or p99) the sender's lateness exceeds half of the latency from the due time.

    It is the latency from the due time less that from sending, of the same frames. Latencies from a device's own stamp
    of sending, of probes or of the frames, hold no lateness: none. A frame of a burst is due with its first one, so
    its place in the burst is no lateness.
    """
    if text(row, "latency_from") == "sent" or (number(row, "burst") or 1) > 1:
        return []
    names = ("p50", "p99")
    pairs = ((name, number(row, f"latency_{name}_ns"), number(row, f"latency_sent_{name}_ns")) for name in names)
    return [name for name, whole, sent in pairs if whole and sent is not None and whole - sent > LATE_SHARE * whole]


def _lateness(row: Row, name: str) -> str:
    whole, sent = (number(row, f"latency_{since}{name}_ns") or 0.0 for since in ("", "sent_"))
    return f"the latency is {whole / 1e3:,.1f} µs from the due time and {sent / 1e3:,.1f} µs from sending ({name})"


def _rate(pps: float) -> str:
    scale, unit = next((one for one in ((1e6, "Mpps"), (1e3, "kpps")) if pps >= one[0]), (1.0, "pps"))
    return f"{pps / scale:.4g} {unit}"


def _apart(a: float, b: float) -> float:
    return abs(a - b) / max(a, b) if max(a, b) else 0.0


# --- what makes a trial invalid: each rule returns its reason, or None ---


def something_sent(row: Row) -> str | None:
    sent = number(row, "tx_packets")
    if sent is None:
        return "the frames sent were not counted"
    return None if sent else "the TG sent no frame"


def probes_back(row: Row) -> float:
    """Probes of a NIC: the DUT counted them, but the TG's count of frames does not include them."""
    return (number(row, "probes_sent") or 0.0) - (number(row, "probes_lost") or 0.0)


def path_carries(row: Row) -> str | None:
    """If no frame came back, before the trial or in it, the program kept them, if the kernel counted that; else the
    path is the reason."""
    proof = json.loads(text(row, "path") or "{}")
    if not returns_frames(row) or not proof.get("sent") or proof.get("back") != 0 or tg_count(row):
        return None
    if kept := say_kept(row):
        return kept
    dut = [(event, proof.get(key)) for event, key in (("received", "dut_received"), ("sent back", "dut_sent"))]
    counts = ", ".join(f"{event} {'an unknown number' if count is None else count}" for event, count in dut)
    return f"the path carried none of {proof['sent']} frames sent before the trial: the DUT {counts}"


def a_side_counted(row: Row) -> str | None:
    if forwarded(row) is not None:
        return None
    if returns_frames(row):
        return "neither TG nor DUT counted what came back"
    return f"a program whose action is {text(row, 'action')} is judged by the DUT's count, which is missing"


def frames_reached_dut(row: Row) -> str | None:
    return "no frame reached the DUT" if number(row, "dut_rx_packets") == 0 else None


def tg_hears(row: Row) -> str | None:
    if not returns_frames(row) or tg_count(row) != 0:
        return None
    sent_back = number(row, "dut_tx_packets")
    if sent_back is None:
        return "the TG received nothing and no count of the DUT tells why"
    why = f": {others}" if (others := say_foreign(row)) else ""
    return f"the TG was deaf: it counted 0 while the DUT sent {sent_back:.0f} frames back{why}" if sent_back else None


def received_within_sent(row: Row) -> str | None:
    sent, got = number(row, "tx_packets") or 0.0, tg_count(row)
    if returns_frames(row) and got is not None and got > sent:
        return f"the TG received {got:.0f} frames, more than the {sent:.0f} it sent"
    arrived = number(row, "dut_rx_packets")
    if arrived is not None and arrived > (sent + (number(row, "probes_sent") or 0.0)) * (1 + COUNT_TOLERANCE):
        why = f": {others}" if (others := say_foreign(row)) else ""
        return f"the DUT received {arrived:.0f} frames, more than the {sent:.0f} the TG sent{why}"
    return None


def within_line_rate(row: Row) -> str | None:
    share = line_share(row)
    if share is None or share <= LINE_SLACK + drained_share(row):
        return None
    return f"received {share:.1%} of what the physical link can carry"


def each_direction_carries(row: Row) -> str | None:
    """A direction that is lost, or whose counts disagree, must not hide in the sum of the two."""
    for way, direction in DIRECTIONS:
        if number(row, f"{way}_tx_packets") is not None and (reason := _wrong_direction(row, way)):
            return f"{direction}: {reason}"
    return None


def _wrong_direction(row: Row, way: str) -> str | None:
    names = ("tx_packets", "dut_rx_packets", "dut_tx_packets", "rx_packets")
    sent, arrived, gone, heard = (number(row, f"{way}_{name}") for name in names)
    if not sent:
        return "the TG sent no frame"
    if arrived is None or gone is None or heard is None:
        return "a count is missing"
    if not arrived or not gone or not heard:
        whole = f"of {sent:.0f} frames that the TG sent, the DUT received {arrived:.0f} and forwarded {gone:.0f}"
        return f"{whole}, and the TG received {heard:.0f}"
    if arrived > sent * (1 + COUNT_TOLERANCE):
        return f"the DUT received {arrived:.0f} frames, more than the {sent:.0f} the TG sent"
    if _apart(gone, heard) > COUNT_TOLERANCE:
        return f"TG and DUT disagree by {_apart(gone, heard):.1%}: {gone:.0f} forwarded, {heard:.0f} received"
    return None


def counts_agree(row: Row) -> str | None:
    heard, dut = tg_count(row), number(row, "dut_tx_packets")
    tg = None if heard is None else heard + probes_back(row)
    if not returns_frames(row) or tg is None or dut is None or _apart(tg, dut) <= COUNT_TOLERANCE:
        return None
    return f"TG and DUT disagree by {_apart(tg, dut):.1%} on the same frames: {tg:.0f} received, {dut:.0f} sent back"


def no_duplicates(row: Row) -> str | None:
    twice, got = number(row, "duplicate_packets"), number(row, "rx_packets")
    if not twice or not got or twice / got <= COUNT_TOLERANCE:
        return None
    return f"{twice / got:.1%} of the frames received are duplicates"


def readings_are_whole(row: Row) -> str | None:
    missing = text(row, "counters_missing")
    return f"readings of the DUT that a verdict rests on cannot be used: {missing}" if missing else None


def statistics_were_off(row: Row) -> str | None:
    """BPF statistics read a clock twice per run: with short programs more than half of the rate is theirs."""
    if not number(row, "bpf_timed_runs"):
        return None
    return (
        "BPF statistics were on in the window, and each run costs more then: end what switched them on "
        "(`sysctl kernel.bpf_stats_enabled=0`; bpftop, `bpftool prog profile`, another lab's bpf_stats pass)"
    )


def link_stayed_up(row: Row) -> str | None:
    changes = number(row, "link_changes")
    return f"the link went down or came up in the window ({changes:.0f} changes)" if changes else None


def sender_in_time(row: Row) -> str | None:
    """If the DUT does not slow the sender, the latency from the due time must not be the sender's own lateness."""
    if text(row, "arrangement") not in OPEN_LOOPS or "p50" not in late_quantiles(row):
        return None
    return f"the sender had its own core and was late: {_lateness(row, 'p50')}"


def offered_as_asked(row: Row) -> str | None:
    share, alone = offered_share(row), number(row, "generator_pps")
    if share is None or share >= OFFERED_SHARE or text(row, "arrangement") not in OPEN_LOOPS:
        return None
    limit = f" (alone it reaches {three_digits(alone)} frames per second)" if alone is not None else ""
    return f"the sender had its own core and offered {share:.2%} of the rate asked for{limit}"


RULES: tuple[Callable[[Row], str | None], ...] = (
    link_stayed_up,
    something_sent,
    tg_port_sent,
    tg_took_what_came,
    path_carries,
    a_side_counted,
    frames_reached_dut,
    tg_hears,
    received_within_sent,
    closed_loop_is_closed,
    frames_arrive_as_sent,
    frames_left_whole,
    each_direction_carries,
    within_line_rate,
    counts_agree,
    no_duplicates,
    link_counts_what_xdp_takes,
    program_saw_what_was_counted,
    program_does_as_said,
    redirects_are_taken,
    readings_are_whole,
    statistics_were_off,
    offered_as_asked,
    sender_in_time,
)


# --- remarks on a valid trial ---


def say_who_counted(row: Row) -> str | None:
    if not returns_frames(row):
        return "judged by the DUT's count alone" + say_decided(row)
    tg, dut = tg_count(row), number(row, "dut_tx_packets")
    if tg is None:
        return "one count only: the DUT's"
    if dut is None:
        return "one count only: the TG's"
    return f"TG and DUT agree within {_apart(tg + probes_back(row), dut):.2%}"


def say_nothing_forwarded(row: Row) -> str | None:
    return "the DUT forwarded nothing" if forwarded(row) == 0 else None


def say_tg_missed(row: Row) -> str | None:
    missed = (number(row, "tg_missed_packets") or 0.0) + at_the_tgs_ring(row)
    return f"{missed:.0f} frames came to the TG's port and were not taken: lost by the TG" if missed else None


def say_probes(row: Row) -> str | None:
    sent, lost = number(row, "probes_sent"), number(row, "probes_lost")
    return f"{lost:.0f} of {sent:.0f} probes did not come back with a stamp" if sent and lost else None


def say_rewritten(row: Row) -> str | None:
    changed = returns_frames(row) and tg_count(row) != number(row, "rx_packets")
    return "the program rewrites the payload: frames without the magic are counted" if changed else None


def say_foreign(row: Row) -> str | None:
    """No count of test frames includes foreign frames on the link, but the DUT processed them too."""
    rewritten = say_rewritten(row)
    kinds = (
        ("foreign frames at the TG", None if rewritten else number(row, "foreign_packets")),
        ("foreign frames at the DUT", number(row, "dut_foreign_packets")),
        ("of other runs or bursts, or altered", None if rewritten else number(row, "refused_packets")),
    )
    remarks = [f"{count:.0f} {origin}" for origin, count in kinds if count]
    return f"not only test frames were on the link: {', '.join(remarks)}" if remarks else None


def say_duplicates(row: Row) -> str | None:
    twice = number(row, "duplicate_packets")
    return f"{twice:.0f} duplicates" if twice else None


def say_queues(row: Row) -> str | None:
    reached, queues = number(row, "queues_reached"), number(row, "queues")
    if reached is None or queues is None or reached >= queues:
        return None
    return f"traffic reached {reached:.0f} of {queues:.0f} queues"


def say_loss(row: Row) -> str | None:
    """Loss is a result, not a fault of the trial, but a load that is lost was not carried, and a closed loop loses
    none. At maximum load in an open loop it is what was measured.
    """
    loss, paced = loss_share(row), number(row, "rate_requested_pps") is not None
    if loss is None or loss <= LOSS_FLOOR or not (paced or cpu_is_shared(row)):
        return None
    if not paced:
        return f"{loss:.2%} of the frames did not come back{lost_at_maximum(row)}"
    if not sender_bunched(row):
        return f"{loss:.2%} of this paced load was lost"
    pause = number(row, "tx_pause_ms") or 0.0
    return f"{loss:.2%} of this paced load was lost, no more than the sender sent late (after up to {pause:.0f} ms)"


def say_load_missed(row: Row) -> str | None:
    """If TG and DUT share a CPU, the DUT's work may prevent a load from being reached: the offered rate counts.

    A window with less than one frame of a slow load has one.
    """
    share, requested, offered = offered_share(row), number(row, "rate_requested_pps"), number(row, "offered_pps")
    if share is None or OFFERED_SHARE <= share <= 1 + COUNT_TOLERANCE or requested is None or offered is None:
        return None
    offered *= 1 - never_on_the_link(row)
    remark = "the load was not reached" if share < 1 else "more than the load was offered"
    return f"{remark}: {_rate(offered)} were offered, {share:.1%} of the {_rate(requested)} asked for"


def say_answered(row: Row) -> str | None:
    """Frames that an application of the DUT answers: the rate is of those that the program processed."""
    sent, back = number(row, "tx_packets"), number(row, "rx_packets")
    if returns_frames(row) or not sent or not back:
        return None
    return (
        f"{back:.0f} of {sent:.0f} frames ({back / sent:.1%}) came back, and latencies are theirs: they were answered"
    )


def say_lost_in_a_direction(row: Row) -> str | None:
    """The loss of a trial is that of both directions together; each has its own."""
    lost = [
        (direction, number(row, f"{way}_tx_packets"), number(row, f"{way}_rx_packets")) for way, direction in DIRECTIONS
    ]
    if any(not sent for _, sent, _ in lost):
        return None  # one direction's loss is the trial's
    shares = [(direction, 1 - (got or 0.0) / (sent or 1.0)) for direction, sent, got in lost]
    losses = [f"{direction} {share:.2%} of the frames were lost" for direction, share in shares if share > LOSS_FLOOR]
    return ", ".join(losses) or None


def say_late_sender(row: Row) -> str | None:
    """Lateness that is more than half of a percentile of the latency from the due time makes most of it."""
    late = late_quantiles(row)
    return f"the sender was late: {_lateness(row, late[0])}" if late else None


def say_paused(row: Row) -> str | None:
    """At maximum load, pauses of the sender make the rate too low."""
    window, longest, paused = (number(row, name) for name in ("window_s", "tx_pause_ms", "tx_paused_ms"))
    if number(row, "rate_requested_pps") is not None or not window or longest is None or paused is None:
        return None
    if paused / 1e3 < PAUSE_SHARE * window:
        return None
    return f"the sender stood still for {paused:.0f} ms of {1e3 * window:.0f}{_throttled(row, longest)}"


def taken_ms(row: Row) -> float:
    """Return the CPU time that the senders lacked in the window; 0 if it was not measured. Without throttling a sender
    stands still for another reason, such as a link that is down, and keeps its CPU."""
    busy, window, queues = number(row, "tx_busy_cores"), number(row, "window_s"), number(row, "queues")
    if busy is None or not window or not queues:
        return 0.0
    senders = min(queues * (2 if text(row, "directions") == "both" else 1), number(row, "dut_cpus") or queues)
    return max(0.0, senders - busy) * 1e3 * window


def _throttled(row: Row, longest_ms: float) -> str:
    runtime = number(row, "rt_runtime_us")
    policy = text(row, "sched_policy") or ""
    if runtime is None or runtime < 0 or not policy.startswith("SCHED_FIFO"):
        return ""
    rest_ms = (1e6 - runtime) / 1e3
    if not 0.5 * rest_ms <= longest_ms <= 2 * rest_ms or taken_ms(row) < 0.5 * longest_ms:
        return ""
    each = f"{runtime / 1e3:.0f} ms of each second"
    return f", as real-time throttling has it ({each}; `trial: {{throttling: off}}` in the plan ends it)"


def say_device_refused(row: Row) -> str | None:
    """Frames that the TG's own device refused were never on the link: they count as sent, and as lost."""
    refused, sent = number(row, "tx_errors"), number(row, "tx_packets")
    if not refused or not sent or refused / sent <= LOSS_FLOOR:
        return None
    full = (number(row, "tg_port_dropped_packets") or 0.0) >= (1 - COUNT_TOLERANCE) * refused
    cause = f", its ring was full{_throttled(row, number(row, 'tx_pause_ms') or 0.0)}" if full else ""
    return f"the TG's device did not take {refused / sent:.1%} of the frames{cause}"


def say_rounded(row: Row) -> str | None:
    """A driver may round a ring's size: the trial measured the obtained size."""
    settings = json.loads(text(row, "device_settings") or "{}").items()
    other = [(name, values) for name, values in settings if values["obtained"] != values["requested"]]
    remarks = [
        f"{name} is {values['obtained']} where the plan asks for {values['requested']}" for name, values in other
    ]
    return ", ".join(remarks) or None


def say_unsteady(row: Row) -> str | None:
    """A step or a trend of more than 10 % (and five standard errors) between the intervals of one window."""
    change, kind = number(row, "rate_change"), text(row, "rate_change_kind")
    return f"the rate was not steady: a {kind} of {change:+.0%} of its mean within the window" if change else None


def drained_share(row: Row) -> float:
    """Only the TG counts when the window ends, and no rewritten frames; counts at rest include what drained later.

    Each of two directions has rings of its own.
    """
    entries, queues, done = number(row, "rx_ring_entries"), number(row, "queues"), forwarded(row)
    at_rest = not returns_frames(row) or tg_count(row) is None or say_rewritten(row)
    return entries * queues / (done * _fuller(row)) if entries and queues and done and at_rest else 0.0


def say_drained(row: Row) -> str | None:
    share = drained_share(row)
    if not share or (loss_share(row) or 0.0) <= LOSS_FLOOR:
        return None
    return f"up to {share:.2%} of the frames counted drained from rings after the window"


def say_refused(row: Row) -> str | None:
    """Without real-time priority other work takes the CPU from the sender, and ksoftirqd takes over."""
    policy = text(row, "sched_policy") or ""
    return f"the sender got no real-time priority: {policy}" if "refused" in policy else None


def say_stolen(row: Row) -> str | None:
    """Time in which the hypervisor ran other guests while a CPU of this machine had work."""
    stolen, window = number(row, "host_steal_cores"), number(row, "window_s")
    if stolen is None or not window or stolen <= max(STEAL_CORES, TICKS_S / window):
        return None
    return f"the hypervisor took {stolen:.2f} CPUs away"


def say_other_work(row: Row) -> str | None:
    """Other work on the CPUs at work, longer than a sender takes to begin a window."""
    other, sender, window = number(row, "other_busy_cores"), number(row, "tx_busy_cores"), number(row, "window_s")
    if other is None or sender is None or not window:
        return None
    cpus = max(1, round(sender + other))
    if other <= cpus * max(OTHER_SHARE, SENDER_START_S / window):
        return None
    return f"other work took {other / cpus:.0%} of the time of the CPUs at work"


def say_clock_changed(row: Row) -> str | None:
    """If the CPU's clock differs before and after the window, the window has no single speed."""
    change = number(row, "clock_change")
    if change is None or abs(change) <= CLOCK_CHANGE:
        return None
    return f"the CPU's clock changed by {change:+.1%} from before the window to after it"


def say_settings_changed(row: Row) -> str | None:
    """If a setting of a host or of its port differs before and after the window, the window has no single one."""
    changed = json.loads(text(row, "settings_changed") or "{}").items()
    changes = [f"{name} from {before or 'nothing'} to {after or 'nothing'}" for name, (before, after) in changed]
    return f"settings changed within the window: {', '.join(changes)}" if changes else None


def say_refuted_table(row: Row) -> str | None:
    note = json.loads(text(row, "settings") or "{}").get(f"dut {PROBE_NOTE}", "")
    if text(row, "mode") != "native" or not note.startswith(f"{text(row, 'dut_driver')} "):
        return None
    return f"some counters of the driver are not used, for a probe of the port refutes the table of drivers: {note}"


def say_slow_clock(row: Row) -> str | None:
    source = text(row, "clocksource")
    is_fast = source is None or source in FAST_CLOCKS
    return None if is_fast else f"time stamps come from the clock source {source}: each takes long to read"


def say_scaled_counts(row: Row) -> str | None:
    """With more events than hardware counters, each has one for a part of the time, and perf scales its count."""
    running = number(row, "perf_running")
    if running is None or running >= PERF_RUNNING:
        return None
    return (
        f"perf's events shared counters: one had a counter for {running:.0%} of the time, so its count is an estimate"
    )


def say_records_lost(row: Row) -> str | None:
    """A write that finds no room takes another path than one that does: the rate is that of both."""
    share, lost = number(row, "records_lost_share"), number(row, "records_lost")
    if share is None or lost is None or share <= RECORDS_LOST:
        return None
    return f"{share:.1%} of the program's records ({lost:.0f}) were lost: their reader did not keep up"


def say_absent_counters(row: Row) -> str | None:
    absent = text(row, "absent_counters")
    return f"asked for and not there: {absent}" if absent else None


REMARKS = (
    say_who_counted,
    say_tg_missed,
    say_probes,
    say_nothing_forwarded,
    say_rewritten,
    say_restored,
    say_foreign,
    say_duplicates,
    say_queues,
    say_load_missed,
    say_loss,
    say_answered,
    say_lost_in_a_direction,
    say_late_sender,
    say_paused,
    say_device_refused,
    say_rounded,
    say_unsteady,
    say_drained,
    say_refused,
    say_stolen,
    say_other_work,
    say_clock_changed,
    say_settings_changed,
    say_refuted_table,
    say_slow_clock,
    say_scaled_counts,
    say_records_lost,
    say_absent_counters,
)


# --- what limited a valid trial: the first rule that holds ---


def link_is_full(row: Row) -> bool:
    share = line_share(row)
    return share is not None and share >= LINE_FULL


def load_was_met(row: Row) -> bool:
    share, loss = offered_share(row), loss_share(row)
    return share is not None and share >= OFFERED_SHARE and (loss is None or loss <= LOSS_FLOOR)


def sender_dominates(row: Row) -> bool:
    """The core is shared with an AF_XDP sender, whose frame costs a system call's share, a copy and an skb.

    One trial shows this only if the program's own time is known (BPF statistics, which are of these frames, else test
    runs): below half of the core's time, the sender limits the rate, not the DUT. ``live`` frames cost it little.
    """
    program_ns = number(row, "program_run_ns") or number(row, "testrun_raw_ns")
    rate, cpus = number(row, "forwarded_pps"), number(row, "dut_cpus") or 1.0
    if text(row, "arrangement") != "shared" or text(row, "engine") != "afxdp" or program_ns is None or rate is None:
        return False
    return program_ns * rate / (1e9 * cpus) < 0.5


def cpu_is_shared(row: Row) -> bool:
    return text(row, "arrangement") == "shared"


def sender_bunched(row: Row) -> bool:
    """A paced sender that stood still catches up in a burst, which alone may lose as many frames as were late."""
    late, lost = number(row, "tx_late_packets"), number(row, "lost_packets")
    open_loop = text(row, "arrangement") in OPEN_LOOPS
    return open_loop and late is not None and lost is not None and 0 < lost <= late


def tg_lost_frames(row: Row) -> bool:
    """The TG lost all that was lost: its card refused to send them, or its ring did not take what came back."""
    share = never_on_the_link(row) + at_the_tgs_ring(row) / (number(row, "tx_packets") or 1.0)
    return share > 0 and (loss_share(row) or 0.0) <= share + LOSS_FLOOR


def dut_lost_frames(row: Row) -> bool:
    return (loss_share(row) or 0.0) > LOSS_FLOOR


LIMITS: tuple[tuple[str, Callable[[Row], bool]], ...] = (
    ("link", link_is_full),
    ("none", load_was_met),
    ("generator", sender_dominates),
    ("shared_cpu", cpu_is_shared),
    ("generator", sender_bunched),
    ("generator", tg_lost_frames),
    ("dut", dut_lost_frames),
    ("generator", lambda row: True),  # the DUT forwarded everything offered at max
)


def is_senders_rate(row: Row) -> bool:
    """Tell whether the rate of a valid trial is that of the sender, whatever the DUT's work costs."""
    by_others = {"none", "generator", "link"} if text(row, "arrangement") in OPEN_LOOPS else {"none"}
    return text(row, "limited_by") in by_others


def limited_by(row: Row) -> str:
    """Return what limited a valid trial: link, none, generator, shared_cpu or dut."""
    return next(name for name, holds in LIMITS if holds(row))


def judge(row: Row) -> Verdict:
    """Judge one trial by its own row; ``unsupported`` and ``failed`` come with the row and are kept."""
    before = text(row, "verdict")
    if before in WITHOUT_MEASUREMENT:
        return Verdict(str(before), text(row, "reason") or "no reason was recorded", None)
    for rule in RULES:
        reason = rule(row)
        if reason is not None:
            return Verdict("invalid", reason, None)
    remarks = (remark(row) for remark in REMARKS)
    return Verdict("valid", "; ".join(words for words in remarks if words), limited_by(row))
