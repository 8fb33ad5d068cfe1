"""The negative control of settings: BPF statistics are switched on in mid-run, as another program on the host would."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import pandas as pd

from xdplab.hosts.held import Held, Holder
from xdplab.labs import Lab
from xdplab.run.progress import Observer
from xdplab.run.state import AnyTrial, Attempt, RunState

SWITCHED_AFTER, TRIALS = 2, 4
"""The statistics are off in so many trials, and on in the others."""
SETTING = "kernel.bpf_stats_enabled"
_SWITCH = f"sysctl -qw {SETTING}=1 || exit 1; let_go() {{ sysctl -qw {SETTING}=0; }}"


def switch_blocks() -> list[dict[str, Any]]:
    """Return the blocks of the plan: one program, which has `TRIALS` repetitions."""
    return [{"points": {"mode": "native", "workload": "array", "accesses": 0}, "traffic": {"load": "max", "flows": 1}}]


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


def switch_found(trials: pd.DataFrame, named: str) -> tuple[str, bool]:
    """Return what a run says of the switch, and whether it is right: trials are valid before it and invalid after it,
    and the finding ``named`` has the setting."""
    rows = trials.sort_values("order")
    valid = rows["verdict"].eq("valid").fillna(False).tolist()
    timed = rows["bpf_timed_runs"].fillna(0).gt(0).tolist()
    is_named = SETTING in named
    text = (
        f"valid: {sum(valid[:SWITCHED_AFTER])} of {SWITCHED_AFTER} before, {sum(valid[SWITCHED_AFTER:])} of "
        f"{TRIALS - SWITCHED_AFTER} after; {'' if is_named else 'not '}named by the audit"
    )
    off = [False] * SWITCHED_AFTER + [True] * (TRIALS - SWITCHED_AFTER)
    return text, is_named and timed == off and valid == [not on for on in off]
