"""Columns on what was set up before the window: the program as attached, both machines, and limits around the DUT.

Columns that say which trial a row is of: its place in the run, and the factors of its point.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from xdplab.absent import Absent, required
from xdplab.deploy.deployment import Deployment
from xdplab.errors import FormatError
from xdplab.formats.generator import GeneratorReady
from xdplab.formats.pcap import flow_of, frames_in, l2_bytes
from xdplab.plan.factors import FACTORS
from xdplab.programs.work import AccessWork
from xdplab.run.columns import Column
from xdplab.studies.traffic.columns.source import TrialSource
from xdplab.studies.trial_facts import TimingLimits, WarmedUp, device_columns

IDS: tuple[Column[TrialSource], ...] = (
    Column("run_id", "str", "id", "the run directory's identity, also in the payload of its frames",
           lambda t: t.run.run_id),
    Column("point_id", "str", "id", "hash of the point's factors, without the lab: it is the same in two runs",
           lambda t: t.point.point_id),
    Column("trial_id", "str", "id", "point and repetition", lambda t: t.attempt.trial_id),
    Column("attempt", "int", "id", "1 for the first try of a trial", lambda t: t.attempt.attempt),
    Column("block", "int", "id", "number of the trial's block: trials that share settings which take time to change",
           lambda t: t.trial.block),
    Column("order", "int", "id", "place of the trial in the run's seeded order", lambda t: t.trial.order),
    Column("repetition", "int", "id", "independent trial of the same point, from 1: the unit of statistics",
           lambda t: t.trial.repetition),
)  # fmt: skip


def _requested(t: TrialSource, name: str) -> object:
    return t.factors[name]


def _rate_requested_pps(t: TrialSource) -> object:
    """The rate that a share of the PDR means, or that recorded frames have in the window; else the point's own."""
    if t.point.timing != "load":
        return t.summary.required("rate_requested_pps", "this generator did not record it")
    rate = t.facts.rate_requested_pps
    return _requested(t, "rate_requested_pps") if rate is None else rate


def _frame_bytes(t: TrialSource) -> int:
    frames = t.point.program.frames
    if frames is None:
        frame_bytes: int | None = t.point.frame_bytes
        return required(frame_bytes, "the frames have several sizes (IMIX): frame_mean_bytes is their mean")
    size, _ = _pcap(frames)
    return required(size, "the frames of the pcap have several sizes: frame_mean_bytes is their mean")


def _flows(t: TrialSource) -> object:
    frames = t.point.program.frames
    if frames is None:
        return _requested(t, "flows")
    return _pcap(frames)[1]


@cache
def _pcap(path: str) -> tuple[int | None, int]:
    """Return the size of a pcap's frames, None if they have several, and the number of their flows."""
    try:
        frames = frames_in(path)
    except (OSError, FormatError) as error:
        raise Absent(f"the frames in {Path(path).name} cannot be read: {error}") from error
    sizes = set(l2_bytes(frames))
    return sizes.pop() if len(sizes) == 1 else None, len({flow_of(frame) for frame in frames})


def _batch(t: TrialSource) -> object:
    if t.facts.deployment is None:
        return _requested(t, "batch")
    return t.facts.generator and t.facts.generator.settings.get("batch")


def _device(t: TrialSource) -> object:
    """What the plan sets of the DUT's device, as obtained; where it sets nothing, the point's own word."""
    return device_columns(t.facts.device).get("device", _requested(t, "device"))


_OBTAINED: dict[str, Callable[[TrialSource], object]] = {
    "rate_requested_pps": _rate_requested_pps,
    "frame_bytes": _frame_bytes,
    "flows": _flows,
    "batch": _batch,
    "device": _device,
    "lab": lambda t: _requested(t, "lab") if t.facts.lab is None else t.facts.lab,
    "kernel": lambda t: t.facts.kernel,
}
"""Factors whose value is known only once the trial is prepared."""

POINT: tuple[Column[TrialSource], ...] = (
    *IDS,
    *(
        Column(factor.column, factor.dtype, "factor", factor.text,
               _OBTAINED.get(factor.column) or partial(_requested, name=factor.column))
        for factor in FACTORS
    ),
)  # fmt: skip


IN_USER_SPACE = "af_xdp: the attached program only redirects, the accesses are made in user space"
NO_VERIFIED = "this kernel does not tell how much its verifier processed (Linux 5.16 and newer do)"
NOT_ATTACHED, NO_GENERATOR, NOT_TOLD = "no program was attached", "no generator was started", "the kernel does not tell"


def _deployment(t: TrialSource) -> Deployment:
    return required(t.facts.deployment, NOT_ATTACHED)


def _in_kernel(t: TrialSource) -> Deployment:
    """The attached program, if it does the accesses."""
    if t.sockets:
        raise Absent(IN_USER_SPACE)
    return _deployment(t)


def _generator(t: TrialSource) -> GeneratorReady:
    return required(t.facts.generator, NO_GENERATOR)


def _warmup(t: TrialSource) -> WarmedUp:
    return required(t.facts.warmup, "nothing was sent to warm up")


def _tg(t: TrialSource) -> TimingLimits:
    return required(t.facts.tg_machine, "the TG was not asked")


def _as_prepared(t: TrialSource) -> bool:
    """Whether the attached program is the one that was taken apart before the first trial. A hardened JIT makes other
    instructions of it, and an image of another length each time."""
    load, deployment = t.facts.load, t.facts.deployment
    return load is not None and (
        deployment is None or (load.tag, load.xlated_insns) == (deployment.tag, deployment.program_insns)
    )


def _helper_inlined(t: TrialSource) -> bool:
    if t.row["workload"] != "lookup":
        raise Absent("the program is no lookup")
    load = t.facts.load if t.facts.deployment and not t.sockets and _as_prepared(t) else None
    why = "the names of the helpers it calls could not be read, or the attached program has other instructions"
    return required(None if load is None else load.lookup_inlined, why)


def _work(t: TrialSource) -> AccessWork:
    """What one access is to the machine: read from generated programs before the first trial."""
    work = required(t.facts.work, "what one access does is read from generated programs only")
    if work.missing is not None:
        raise Absent(work.missing)
    if not t.sockets and not _as_prepared(t):
        raise Absent("the attached program has other instructions than the one it was read from")
    return work


def _access(name: str) -> Callable[[TrialSource], object]:
    return lambda t: required(getattr(_work(t), name), "it was not counted")


def _access_chain(t: TrialSource) -> str:
    if t.row["workload"] != "chase":
        raise Absent("accesses depend on each other in chase only")
    return required(_work(t).chain, "the dependence of a chase is read in x86-64's code only")


def _tx_socket(t: TrialSource) -> str:
    """What the TG's AF_XDP sockets are, as the kernel says."""
    generator = _generator(t)
    names = ("bind", "need_wakeup", "busy_poll_us", "busy_poll_missing")
    socket = {name: generator.settings.get(name) for name in names}
    if socket["bind"] is not None:
        return json.dumps(socket)
    if generator.engine != "afxdp":
        raise Absent("the engine sends without AF_XDP sockets")
    raise Absent("the generator does not tell what its sockets are")


def _xps(t: TrialSource) -> str:
    if t.facts.xps_missing is not None:
        raise Absent(t.facts.xps_missing)
    return json.dumps(required(t.facts.xps, "the DUT was not asked"))


def _limit(t: TrialSource, name: str) -> float:
    limit = getattr(t.facts, name)
    if limit is None or limit.rate is None:
        raise Absent("it was not read" if limit is None else str(limit.missing))
    return float(limit.rate)


def _frame_mean_bytes(t: TrialSource) -> float:
    """Counted in the window, which may end within a pcap; the size asked for where the generator did not count it."""
    counted = t.attempt.status == "measured" and t.summary.tx_packets
    if counted and t.summary.tx_bytes is not None:
        return t.summary.tx_bytes / t.summary.tx_packets
    size: int | None = None if t.point.program.frames else t.point.frame_bytes
    return required(size, "the bytes of the frames sent were not counted")


SETUP: tuple[Column[TrialSource], ...] = (
    Column("mode_obtained", "str", "state", "the attach mode the kernel reports",
           lambda t: required(_deployment(t).mode_obtained, NOT_TOLD)),
    Column("device_settings", "json", "state",
           "settings of the DUT's device that the plan asks for, a JSON object: name to requested and obtained",
           lambda t: required(device_columns(t.facts.device).get("device_settings"),
                              "the plan sets nothing of the DUT's device")),
    Column("tx_socket", "json", "state",
           "what the kernel says of the TG's AF_XDP sockets (engine afxdp), a JSON object: bind, need_wakeup, "
           "busy_poll_us, and why busy polling has nothing to poll",
           _tx_socket),
    Column("window_requested_s", "float", "time", "length of the window that the plan asks for",
           lambda t: t.window_s),
    Column("path", "json", "count",
           "frames sent and received back before the trial to prove that the path carries them; the DUT's counts where "
           "none came back",
           lambda t: json.dumps(required(t.facts.path or None, "no frame was sent ahead"))),
    Column("warmup_s", "float", "time",
           "how long frames were sent before the window, until the rate was steady or the limit of five bursts was "
           "reached",
           lambda t: _warmup(t).seconds),
    Column("warmup_steady", "bool", "state",
           "the rate was steady when the warm-up ended; null if this was not checked",
           lambda t: required(_warmup(t).steady, "the warm-up has too few intervals to tell")),
    Column("frame_mean_bytes", "float", "state", "mean L2 bytes of the frames sent in the window, with FCS, counted",
           _frame_mean_bytes),
    Column("generator_pps", "float", "rate",
           "rate that the generator reaches over this link while the DUT has no program; null where CPUs are shared",
           partial(_limit, name="generator_alone")),
    Column("access_loads", "float", "state",
           "machine loads per access, in the kernel's JIT image or in the user-space twin, including those of the walk "
           "and of the stack",
           _access("loads")),
    Column("access_stores", "float", "state", "machine stores per access", _access("stores")),
    Column("access_bytes", "float", "state", "bytes that these loads and stores move per access", _access("bytes")),
    Column("access_chain", "str", "state",
           "chase on x86-64 only: the operations in the machine code from one load to the next, which depends on it",
           _access_chain),
    Column("program_hash", "str", "id", "content hash of source, options and compiler: programs/<hash>",
           lambda t: t.facts.program_hash),
    Column("program_tag", "str", "state",
           "the kernel's tag of the attached program; in af_xdp, of the one that redirects",
           lambda t: required(_deployment(t).tag, NOT_TOLD)),
    Column("program_insns", "int", "count", "xlated instructions; null in af_xdp, whose work is done in user space",
           lambda t: required(_in_kernel(t).program_insns, NOT_TOLD)),
    Column("verified_insns", "int", "count", "instructions the verifier processed; null in af_xdp",
           lambda t: required(_in_kernel(t).verified_insns, NO_VERIFIED)),
    Column("jited_bytes", "int", "count", "bytes of the JIT image; null without JIT and in af_xdp",
           lambda t: required(_in_kernel(t).jited_bytes or None, "the kernel did not compile the program")),
    Column("helper_inlined", "bool", "state", "lookup only: the kernel inlined the map lookup", _helper_inlined),
    Column("load_ms", "float", "time", "BPF_PROG_LOAD alone",
           lambda t: required(_deployment(t).load_ns, IN_USER_SPACE if t.sockets else NOT_TOLD) / 1e6),
    Column("attach_ms", "float", "time", "attaching alone",
           lambda t: required(_deployment(t).attach_ns, IN_USER_SPACE if t.sockets else NOT_TOLD) / 1e6),
    Column("link_bps", "float", "state",
           "rate of the physical link; null on veth, tap and virtio, which have none",
           partial(_limit, name="link")),
    Column("rx_ring_entries", "int", "state", "entries of one receive ring of the DUT",
           lambda t: required(t.facts.rx_ring_entries, "the DUT's driver does not tell the size of its rings")),
    Column("sched_policy", "str", "state", "the sender's scheduling as obtained",
           lambda t: _generator(t).sched_policy),
    Column("clocksource", "str", "state", "clock source of the TG: time stamps are read from it",
           lambda t: required(_tg(t).clocksource, NOT_TOLD)),
    Column("rt_runtime_us", "int", "state",
           "time per second that real-time tasks may run on a CPU of the TG; -1: no limit",
           lambda t: required(_tg(t).rt_runtime_us, NOT_TOLD)),
    Column("xps", "json", "state",
           "CPUs (hexadecimal mask) that use each transmit queue of the DUT, a JSON object; null if the driver has no "
           "such setting",
           _xps),
)  # fmt: skip
"""Known before the window: a trial that failed or that this lab cannot measure has them too, as far as it came."""
