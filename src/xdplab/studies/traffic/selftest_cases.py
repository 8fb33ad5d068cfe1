"""Negative controls that need a disturbance.

A backlog between the link's count and the program, which drops most frames; each fourth frame held back, and one in
four stamped, at random; BPF statistics switched on in mid-run, as another program on the host would.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import pandas as pd

from xdplab.hosts.held import Held, Holder
from xdplab.labs import Lab
from xdplab.labs.servers.ports import online_cpus
from xdplab.run.progress import Observer
from xdplab.run.state import AnyTrial, Attempt, RunState


@dataclass(frozen=True)
class NegativeControl:
    """One injected fault: the result, the allowed range, and whether the result is within it."""

    control: str
    injected: str
    found: str
    allowed: str
    holds: bool


SLOW: dict[str, int] = {"drop_every": 1, "delay_every": 1, "delay_ns": 2000}
"""The constants of a program that takes longer for a frame than the sender."""
LEAST = 0.5  # of the frames must be dropped before the program


@contextmanager
def steering(lab: Lab) -> Iterator[None]:
    """Have the DUT hand received frames to another CPU (RPS), where a program in generic mode sees them."""
    file = f"/sys/class/net/{lab.dut_interface}/queues/rx-0/rps_cpus"
    before = lab.dut.run(["cat", file]).text.strip()
    others = set(online_cpus(lab.dut, ())) - set(lab.cpus().dut[:1])
    _write(lab, file, f"{1 << min(others, default=0):x}")
    try:
        yield
    finally:
        _write(lab, file, before)


def _write(lab: Lab, file: str, mask: str) -> None:
    lab.dut.run(["sh", "-c", 'echo "$1" > "$2"', "sh", mask, file])


def backlog_found(trials: pd.DataFrame) -> NegativeControl:
    """Frames that the link counted and a backlog dropped are none that the program processed: no trial is valid."""
    injected, verdicts, holds = [], [], []
    for row in trials.to_dict("records"):
        counted, saw = row["actions_received"], sum(json.loads(row["actions_counted"] or "{}").values())
        injected.append(f"the program saw {saw} of {counted} frames")
        verdicts.append(str(row["verdict"]))
        holds.append(saw < (1 - LEAST) * counted and row["verdict"] == "invalid")
    held = bool(holds) and all(holds)
    return NegativeControl("count upstream", "; ".join(injected), ", ".join(verdicts), "invalid", held)


HELD_BACK: dict[str, int] = {"delay_ns": 100_000, "delay_every": 4}
TRAFFIC = {"load": "2kpps", "flows": 64, "batch": 1, "stamp": 4}
SHARE = 1 / HELD_BACK["delay_every"]
ERROR = 0.1
"""Five standard errors of the share among the 500 stamped frames of a trial."""


def share_found(latencies: pd.DataFrame) -> NegativeControl:
    """Of each trial's stamped frames, the share of those that were held back is that of all frames.

    ``latencies`` has a row per bucket (`latencies_of`). If each fourth frame were stamped, it would be all or none in
    a trial, and anything in the mean of some trials.
    """
    late = latencies["latency_ns"] > HELD_BACK["delay_ns"] / 2
    counted = latencies.assign(held=latencies["count"] * late).groupby("trial_id")[["held", "count"]].sum()
    shares = counted["held"] / counted["count"]
    percents = ", ".join(f"{share:.1%}" for share in shares)
    text = f"{percents} of {counted['count'].sum()} stamped frames" if percents else "no stamped frame came back"
    injected = f"each {HELD_BACK['delay_every']}th frame held back for {HELD_BACK['delay_ns'] / 1e3:g} µs"
    holds = bool(percents) and bool((shares - SHARE).abs().le(ERROR).all())
    return NegativeControl("sampling", injected, text, f"{SHARE:.0%}, within {100 * ERROR:g} points", holds)


SWITCHED_AFTER, TRIALS = 2, 4
"""The statistics are off in so many trials, and on in the others."""
SETTING = "kernel.bpf_stats_enabled"
_SWITCH = f"sysctl -qw {SETTING}=1 || exit 1; let_go() {{ sysctl -qw {SETTING}=0; }}"


class Switching:
    """An observer that switches the statistics on after some trials, and off at the end of its block."""

    def __init__(self, lab: Lab, observer: Observer) -> None:
        self._lab, self._told, self._done = lab, observer, 0
        self._held: Held | None = None

    def __enter__(self) -> Self:
        return self

    def started(self, state: RunState, trial: AnyTrial) -> None:
        self._told.started(state, trial)

    def finished(self, trial: AnyTrial, attempt: Attempt) -> None:
        self._told.finished(trial, attempt)
        self._done += 1
        if self._done == SWITCHED_AFTER:
            self._held = Held(self._lab.dut, Holder(SETTING, _SWITCH))

    def interrupted(self, how: str) -> None:
        self._told.interrupted(how)

    def ended(self, state: RunState) -> None:
        self._told.ended(state)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._held is not None:
            self._held.close()


def switch_found(trials: pd.DataFrame, named: str) -> NegativeControl:
    """Trials are valid before the switch and invalid after it, and the finding ``named`` has the setting."""
    rows = trials.sort_values("order")
    valid = rows["verdict"].eq("valid").fillna(False).tolist()
    timed = rows["bpf_timed_runs"].fillna(0).gt(0).tolist()
    is_named = SETTING in named
    text = (
        f"valid: {sum(valid[:SWITCHED_AFTER])} of {SWITCHED_AFTER} before, {sum(valid[SWITCHED_AFTER:])} of "
        f"{TRIALS - SWITCHED_AFTER} after; {'' if is_named else 'not '}named by the audit"
    )
    off = [False] * SWITCHED_AFTER + [True] * (TRIALS - SWITCHED_AFTER)
    holds = is_named and timed == off and valid == [not on for on in off]
    injected, allowed = (
        f"BPF statistics on after {SWITCHED_AFTER} trials",
        f"invalid after the switch, and {SETTING} named",
    )
    return NegativeControl("switched setting", injected, text, allowed, holds)
