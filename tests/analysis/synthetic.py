"""A made-up run that behaves like a lab: a closed loop on one core, or an open one, with seeded noise.

The model: a packet takes sender_ns + mode_ns + N x access_ns on the shared core; in ``split``, it takes only the DUT's
part, and frames beyond the DUT's rate are lost. Program loads differ by 1.5 %, as real ones do.
"""

import functools
import json
import pickle
from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import pandas as pd

from xdplab.analysis.derived import derive
from xdplab.analysis.values import records
from xdplab.analysis.verdicts import RULES_VERSION, judge
from xdplab.studies.traffic.columns import trials_frame

MODE_NS = {"native": 60.0, "generic": 700.0, "af_xdp": 1200.0}
SENDER_NS = {"live": 170.0, "afxdp": 1050.0}
ACCESS_NS = {"array": 0.065, "packet": 0.3, "chase": 2.4, "lookup": 0.6}
WINDOW_S = 1.0

Row = dict[str, object]


def point(**factors: object) -> Row:
    """Return the factors of one point, with the defaults of the quick plan."""
    base: Row = {
        "run_id": "4f3a", "lab": "netns", "arrangement": "shared", "mode": "native", "queues": 1, "workload": "array",
        "op": "read", "form": "bounded", "accesses": 0, "frame_bytes": 64, "flows": 64, "engine": "live",
        "load": "max", "action": "tx", "block": 1, "kernel": "6.18.44", "rx_ring_entries": 512, "attempt": 1,
        "working_set_bytes": 32768,
    }  # fmt: skip
    row = base | factors
    row.setdefault("program_name", f"{row['workload']}-{row['op']}")
    row.setdefault("dut_cpus", min(int(str(row["queues"])), 2))
    names = ("mode", "queues", "program_name", "accesses", "frame_bytes", "load", "engine", "arrangement")
    names += tuple(name for name in ("map_type", "entries", "hit") if name in row)
    row.setdefault("point_id", "-".join(str(row[name]) for name in names))
    return row


def measured(row: Row, rng: np.random.Generator, repetition: int = 1) -> Row:
    """Return the row that a trial of the point would give."""
    mode, engine, cpus = str(row["mode"]), str(row["engine"]), int(str(row["dut_cpus"]))
    noise = 1 + rng.normal(0, 0.015)
    accesses = row["accesses"]
    program_ns = 30 + ACCESS_NS.get(str(row["workload"]), 0.05) * (0 if accesses is None else int(str(accesses)))
    dut_ns = (MODE_NS[mode] + program_ns) * noise
    shared = row["arrangement"] == "shared"
    capacity = cpus * 1e9 / (dut_ns + (SENDER_NS[engine] if shared else 0))
    asked = row.get("rate_requested_pps")
    most = capacity if shared else 4.1e6 * (1 + rng.normal(0, 0.004))
    offered = min(float(str(asked)), most) if asked else most
    forwarded = min(offered, capacity)
    sent, got = int(offered * WINDOW_S), int(forwarded * WINDOW_S)
    latency = 1900 + dut_ns + (200_000 if not asked else 0)
    queues = int(str(row["queues"]))
    shares = rng.dirichlet([400.0] * queues)
    found: Row = {
        "repetition": repetition, "trial_id": f"{row['point_id']}-r{repetition}", "window_s": WINDOW_S,
        "tx_packets": sent, "rx_packets": got, "dut_rx_packets": sent if shared else got, "dut_tx_packets": got,
        "lost_packets": sent - got, "loss_ratio": 1 - got / sent, "duplicate_packets": 0, "foreign_packets": 0,
        "offered_pps": sent / WINDOW_S, "forwarded_pps": got / WINDOW_S, "forwarded_source": "tg",
        "forwarded_l2_bps": got / WINDOW_S * float(str(row.get("frame_mean_bytes") or row["frame_bytes"])) * 8,
        "testrun_raw_ns": None if mode == "af_xdp" else program_ns * (1 + rng.normal(0, 0.004)),
        "latency_min_ns": 0.86 * latency, "latency_mean_ns": latency, "latency_p50_ns": 0.97 * latency,
        "latency_p90_ns": 1.3 * latency, "latency_p99_ns": 1.9 * latency, "latency_p999_ns": 4 * latency,
        "latency_max_ns": 90 * latency, "latency_samples": got, "queues_reached": queues,
        "rx_by_queue": json.dumps([int(got * share) for share in shares]), "mode_obtained": mode,
        "host_busy_cores": 1.1 + 0.05 * rng.normal() + 0.5 * (cpus - 1), "host_softirq_cores": 0.7,
        "host_context_switches": 4000 * (1 + 0.1 * rng.normal()), "sched_policy": "SCHED_FIFO:5",
        "jited_bytes": 900, "program_insns": 210,
    }  # fmt: skip
    return row | found


def run(
    *, repetitions: int = 3, seed: int = 1, vary: Mapping[str, Sequence[object]] | None = None, **fixed: object
) -> pd.DataFrame:
    """Return a judged run with derived columns: each combination of ``vary`` (or three N), at ``fixed`` factors."""
    return _run(pickle.dumps((repetitions, seed, vary, fixed))).copy()


@functools.cache
def _run(asked: bytes) -> pd.DataFrame:
    repetitions, seed, vary, fixed = pickle.loads(asked)
    rng = np.random.default_rng(seed)
    levels = vary or {"accesses": [0, 100, 1600]}
    points = [point(**fixed, **dict(zip(levels, combo, strict=True))) for combo in product(*levels.values())]
    rows = [measured(p, rng, r) for r in range(1, repetitions + 1) for p in points]
    return finish(rows)


def finish(rows: list[Row]) -> pd.DataFrame:
    return derive(judged(trials_frame(rows)))


def unsupported(**factors: object) -> Row:
    """Return a trial that the lab does not support."""
    row = point(**({"mode": "offload"} | factors))
    reason = "the driver of vd0 has no XDP offload: EINVAL"
    ids = {"repetition": 1, "trial_id": f"{row['point_id']}-r1"}
    return row | ids | {"verdict": "unsupported", "reason": reason}


MODES = ("native", "generic", "af_xdp")
ACCESSES = (0, 1, 100, 400, 1600)


def quick(repetitions: int = 3) -> pd.DataFrame:
    """Return a run of plans/quick.yaml: chase and lookup, three modes, two queue counts; offload is unsupported."""
    return _quick(repetitions).copy()


@functools.cache
def _quick(repetitions: int) -> pd.DataFrame:
    vary = {"mode": MODES, "queues": (1, 2), "workload": ("chase", "lookup"), "accesses": ACCESSES}
    some = run(repetitions=repetitions, vary=vary)
    cannot = [unsupported(workload="chase", accesses=n) for n in ACCESSES]
    return pd.concat([some, finish(cannot)], ignore_index=True)


def judged(trials: pd.DataFrame) -> pd.DataFrame:
    """Return a copy of ``trials`` with verdict, reason, limited_by and rules_version of these rules."""
    verdicts = [judge(row) for row in records(trials)]
    columns = {name: [getattr(v, name) for v in verdicts] for name in ("verdict", "reason", "limited_by")}
    columns["rules_version"] = [RULES_VERSION] * len(verdicts)
    return trials.assign(**{name: pd.array(cells, dtype="string") for name, cells in columns.items()})
