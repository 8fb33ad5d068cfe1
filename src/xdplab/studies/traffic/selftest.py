"""Negative controls: injected events must be found, and equal programs must be called equivalent. A BPF program on the
frames' path injects the events (``xdp_progs/selftest``), and ordinary plans measure them: the frames take the same way
to the table as in every run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from xdplab.analysis.decide.race import Standing
from xdplab.analysis.verdicts import RULES_VERSION
from xdplab.labs import Lab
from xdplab.plan import Plan, parse_plan
from xdplab.resources import shipped
from xdplab.run.progress import Observer
from xdplab.run.rundir import RunDirectory
from xdplab.studies.tables import markdown
from xdplab.studies.traffic import audits, kind, race
from xdplab.studies.traffic.comparison import around
from xdplab.studies.traffic.selftest_cases import (
    HELD_BACK,
    SLOW,
    TRAFFIC,
    TRIALS,
    NegativeControl,
    Switching,
    backlog_found,
    share_found,
    steering,
    switch_found,
)
from xdplab.studies.traffic.trials import latencies_of, settled_trials

DELAYS_NS = {10_000: 5000, 100_000: 1000, 1_000_000: 100}
"""Injected delays, each with a load in frames per second at which no frame waits for the one before."""
DELAY_ERROR_NS, DELAY_ERROR_SHARE = 1000, 0.01

EVERY = 200
"""Each frame with a multiple of this number is dropped, sent twice, or swapped with the next; the window has a
multiple."""
LOAD, WINDOW_S = "20kpps", 0.5

SLOWDOWN, SLOW_FRAME_NS = 0.03, 2000
"""The doctored slow-down: some frames are held back for this long."""
REPETITIONS = 3
MOST_PAIRS = 100
"""A race by slices ended after 8 pairs, the fewest that have an interval, on a busy machine too."""


@dataclass(frozen=True)
class Selftest:
    """``machine``: the kind of machine and its load, by name; ``runs``: the run directories of the controls."""

    date: str
    rules: str
    lab: str
    machine: dict[str, str]
    controls: tuple[NegativeControl, ...]
    runs: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return all(control.holds for control in self.controls)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"holds": self.holds}


def selftest(lab: Lab, parent: Path, observer: Observer) -> Selftest:
    """Measure all controls in ``lab``, into run directories below ``parent``. Raises what a run raises."""
    runs_made: list[RunDirectory] = []
    loads = [load_of(lab)]

    def measured(plan: Plan, seen: Observer = observer) -> RunDirectory:
        run = kind.measured(plan, lab, parent, seen).directory
        runs_made.append(run)
        loads.append(load_of(lab))
        return run

    held = settled_trials(measured(delay_plan(lab.name)))
    counted = settled_trials(measured(count_plan(lab)))
    equal = measured(race_plan(lab.name, "selftest-equal", [{"workload": name, "accesses": 0} for name in EQUAL]))
    period_frames = frames_between(period_ns(settled_trials(equal)))
    slow = measured(
        race_plan(lab.name, "selftest-slow", [slowed(0, period_frames), slowed(SLOW_FRAME_NS, period_frames)])
    )
    sampled = measured(sampling_plan(lab.name))
    with Switching(lab, observer) as switching:
        switched = settled_trials(measured(switch_plan(lab.name), switching))
    with steering(lab):
        behind = settled_trials(measured(backlog_plan(lab.name)))
    controls = [
        *delays_found(held),
        *events_found(counted),
        equal_found(race.standing_of(equal)),
        slowdown_found(race.standing_of(slow), period_ns(settled_trials(slow), delay_ns=0), period_frames),
        share_found(latencies_of(sampled)),
        switch_found(switched, settings_named(switched)),
        backlog_found(behind),
    ]
    return Selftest(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        rules=RULES_VERSION,
        lab=lab.label,
        machine=machine_of(runs_made[0]) | {"load average": f"{min(loads):g} to {max(loads):g}"},
        controls=tuple(controls),
        runs=tuple(str(run.path) for run in runs_made),
    )


def machine_of(run: RunDirectory) -> dict[str, str]:
    """Return the kind of machine, without anything that identifies it."""
    facts = around(run)
    names = {"CPU": "dut cpus Model name", "CPUs": "dut cpus CPU(s)", "hypervisor": "dut cpus Hypervisor vendor"}
    names |= {"kernel": "dut kernel", "clang": "dut clang"}
    return {name: facts[key].splitlines()[0] for name, key in names.items() if key in facts}


def load_of(lab: Lab) -> float:
    """Return how many tasks were runnable on the DUT, on average over the last minute."""
    return float(lab.dut.run(["cat", "/proc/loadavg"]).text.split()[0])


# --- plans ---


def _injected(maps: Mapping[str, Any] | None = None, **rodata: int) -> dict[str, Any]:
    file = str(shipped("xdp_progs") / "selftest" / "inject.bpf.c")
    return {"file": file, "action": "tx", "rodata": rodata, "maps": maps or {}}


def _plan(lab: str, name: str, blocks: list[dict[str, Any]], *, window_s: float, **other: Any) -> Plan:
    trial = {"warmup_s": 0.1, "window_s": window_s, "pause_s": 0.02}
    return parse_plan({"name": name, "lab": lab, "trial": trial, "blocks": blocks} | other)


def delay_plan(lab: str) -> Plan:
    """Each delay and no delay, at its own load; each frame is stamped and sent by itself."""
    blocks = [
        {
            "points": {"mode": "native", "program": [_injected(delay_ns=ns, delay_every=1) for ns in (0, delay)]},
            "traffic": {"load": f"{rate}pps", "flows": 1, "batch": 1, "stamp": "all"},
        }
        for delay, rate in DELAYS_NS.items()
    ]
    return _plan(lab, "selftest-delays", blocks, window_s=1.0, repetitions=REPETITIONS)


def count_plan(lab: Lab) -> Plan:
    """Nothing, a loss, a duplicate, an exchange, a longer frame; each with one flow: its frames are in order."""
    own_port = {"selftest_twice": dict.fromkeys((0, 1), lab.dut_interface)}
    programs = [
        _injected(drop_every=0),
        _injected(drop_every=EVERY),
        _injected(own_port, twice_every=EVERY),
        _injected(exchange_every=EVERY),
        _injected(longer_every=EVERY),
    ]
    traffic = {"load": LOAD, "flows": 1, "batch": 1}
    block = {"points": {"mode": "native", "program": programs}, "traffic": traffic}
    return _plan(lab.name, "selftest-counts", [block], window_s=WINDOW_S, repetitions=REPETITIONS)


def sampling_plan(lab: str) -> Plan:
    """A program that holds frames back with the period of the flows and of the stamps."""
    block = {"points": {"mode": "native", "program": _injected(None, **HELD_BACK)}, "traffic": TRAFFIC}
    return _plan(lab, "selftest-sampling", [block], window_s=1.0, repetitions=REPETITIONS)


def backlog_plan(lab: str) -> Plan:
    """A program that drops frames, more slowly than the link counts them."""
    program = _injected(None, **SLOW) | {"action": "drop"}
    block = {"points": {"mode": "generic", "program": program}, "traffic": {"load": "max", "flows": 1}}
    return _plan(lab, "selftest-backlog", [block], window_s=0.2, repetitions=REPETITIONS)


def switch_plan(lab: str) -> Plan:
    """One point, in whose run BPF statistics are switched on."""
    block = {"points": {"mode": "native", "accesses": 0}, "traffic": {"load": "max", "flows": 1}}
    return _plan(lab, "selftest-switch", [block], window_s=0.2, repetitions=TRIALS)


EQUAL = ("array", "chase")
"""Workloads whose N = 0 is the same program."""


def race_plan(lab: str, name: str, sides: Sequence[dict[str, Any]]) -> Plan:
    """Two sides in turns, until the answer is known."""
    blocks = [{"points": {"mode": "native"} | side, "traffic": {"load": "max", "flows": 1}} for side in sides]
    return _plan(lab, name, blocks, window_s=0.2, race={"at_most": MOST_PAIRS})


def slowed(delay_ns: int, period_frames: int) -> dict[str, Any]:
    """One side of the doctored slow-down: one frame in ``period_frames`` is held back."""
    return {"program": [_injected(delay_ns=delay_ns, delay_every=period_frames)]}


def period_ns(trials: pd.DataFrame, *, delay_ns: int | None = None) -> float:
    """Return the median time of a packet, in ns; ``delay_ns``: of the side that holds frames back for so long."""
    rows = _valid(trials)
    if delay_ns is not None:
        rows = rows[[given["delay_ns"] == delay_ns for given in _rodata(rows)]]
    return 1e9 / float(rows["forwarded_pps"].median())


def frames_between(period: float) -> int:
    """Return N for the doctored slow-down: one frame in N must be held back."""
    return max(1, round(SLOW_FRAME_NS / (SLOWDOWN * period)))


# --- results ---


def delays_found(trials: pd.DataFrame) -> list[NegativeControl]:
    """Each delay less none at the same load: medians of the round trip from sending, over the repetitions."""
    rows = _valid(trials).assign(delay=lambda t: [given["delay_ns"] for given in _rodata(t)])
    controls = []
    for delay in DELAYS_NS:
        allowed = DELAY_ERROR_NS + DELAY_ERROR_SHARE * delay
        load = f"{DELAYS_NS[delay]}pps"
        at_load = rows[rows["rate_requested_pps"].eq(DELAYS_NS[delay])]
        medians = at_load.groupby("delay")["latency_sent_p50_ns"].median()
        tolerance = f"within {allowed / 1e3:g} µs (1 µs + 1 %)"
        if not {0, delay} <= set(medians.index):
            reasons = sorted(set(trials.loc[trials["verdict"] != "valid", "reason"].dropna()))
            controls.append(
                _control("delay", f"{delay / 1e3:g} µs", f"no valid trial: {'; '.join(reasons)}", tolerance, False)
            )
            continue
        seen = float(medians[delay] - medians[0])
        text = f"{seen / 1e3:.2f} µs ({(seen - delay) / 1e3:+.2f} µs), n = {REPETITIONS} at {load}"
        controls.append(_control("delay", f"{delay / 1e3:g} µs", text, tolerance, abs(seen - delay) <= allowed))
    return controls


_EVENTS: dict[str, tuple[str, str, str | None]] = {
    "drop_every": ("loss", "lost_packets", "drop"),
    "twice_every": ("duplicates", "duplicate_packets", "redirect"),
    "exchange_every": ("reordering", "reordered_packets", None),
    "longer_every": ("changed length", "foreign_packets", None),
}
"""Keyed by the constant that enables it: name, the column that must count it, and the driver's own count of it."""
_COLUMNS = tuple(column for _, column, _ in _EVENTS.values())


def events_found(trials: pd.DataFrame) -> list[NegativeControl]:
    """The column of an event counts every one of them, and no other column counts any."""
    rows = [(given, row) for given, (_, row) in zip(_rodata(trials), trials.iterrows(), strict=True)]
    controls = [_none_found([row for rodata, row in rows if not any(rodata.values())])]
    for switch, (name, column, action) in _EVENTS.items():
        switched = [row for rodata, row in rows if rodata.get(switch)]
        sent = [_count(row, "tx_packets") for row in switched]
        injected = [None if count is None else count / EVERY for count in sent]
        counted = [_count(row, column) for row in switched]
        seen = [json.loads(row["xdp_actions"]).get(action) if _has(row, "xdp_actions") else None for row in switched]
        exact = bool(switched) and injected == counted and None not in counted
        alone = all(_count(row, other) == 0 for row in switched for other in _COLUMNS if other != column)
        agrees = action is None or seen == counted
        text = f"{_numbers(counted)}" + (f"; by the DUT's driver {_numbers(seen)}" if action else "")
        text += "" if alone else "; another column counted something too"
        what = f"{_numbers(injected)} (each {EVERY}th frame of {_numbers(sent)})"
        controls.append(_control(name, what, text, "exactly", exact and alone and agrees))
    return controls


def _none_found(rows: list[pd.Series]) -> NegativeControl:
    counts = [[_count(row, column) for column in _COLUMNS] for row in rows]
    text = ", ".join("/".join("none" if c is None else f"{c:g}" for c in one) for one in counts)
    nothing = bool(rows) and all(count == 0 for one in counts for count in one)
    return _control("no event", "none", f"lost/twice/out of order/altered: {text}", "none", nothing)


def equal_found(standing: Standing) -> NegativeControl:
    """N = 0 against N = 0: the same program."""
    return _control(
        "N = 0 against N = 0",
        "no difference",
        standing.text,
        f"equivalent within {standing.margin:.0%}",
        standing.answer == "equivalent",
    )


def slowdown_found(standing: Standing, period: float, period_frames: int) -> NegativeControl:
    """``period``: time of a packet of the side that is not slowed, in ns."""
    ratio = 1 / (1 + SLOW_FRAME_NS / period_frames / period)
    holds = standing.answer == "differs" and standing.ratio.high < 0
    what = f"b {1 - ratio:.1%} slower: one frame in {period_frames} held back for {SLOW_FRAME_NS / 1e3:g} µs"
    return _control("doctored slow-down", what, standing.text, "b is slower", holds)


def settings_named(trials: pd.DataFrame) -> str:
    """Return what the audit says of settings that differ."""
    return " ".join(one.what for one in audits.findings(trials) if one.rule == "settings differ")


def _control(control: str, injected: str, text: str, allowed: str, holds: bool) -> NegativeControl:
    return NegativeControl(control, injected, text, allowed, bool(holds))


def _valid(settled: pd.DataFrame) -> pd.DataFrame:
    return settled[settled["verdict"].eq("valid").fillna(False)]


def _rodata(rows: pd.DataFrame) -> list[dict[str, int]]:
    """The constants of each row's program, of the column's words: ``name=value name=value``."""
    pairs = ([word.partition("=") for word in str(text).split()] for text in rows["rodata"])
    return [{name: int(value) for name, _, value in one} for one in pairs]


def _has(row: pd.Series, column: str) -> bool:
    return not pd.isna(row[column])


def _count(row: pd.Series, column: str) -> float | None:
    return float(row[column]) if _has(row, column) else None


def _numbers(values: Sequence[float | None]) -> str:
    """Equal numbers are listed once."""
    texts = ["none" if value is None else f"{value:g}" for value in values]
    return f"{texts[0]} in each of {len(texts)}" if len(set(texts)) == 1 and len(texts) > 1 else ", ".join(texts)


# --- the page ---


def page(outcome: Selftest) -> str:
    """Return docs/results/selftest.md: what was injected and found, when, and on what kind of machine."""
    rows = [asdict(control) | {"holds": "yes" if control.holds else "**no**"} for control in outcome.controls]
    machine = "; ".join(f"{name}: {value}" for name, value in outcome.machine.items())
    return _PAGE.format(
        date=outcome.date[:10],
        lab=outcome.lab,
        machine=machine,
        rules=outcome.rules,
        table=markdown(pd.DataFrame(rows)),
        every=EVERY,
    )


_PAGE = """\
# Negative controls

`xdplab selftest` injects known events, measures them as any run does, and says whether they were found. A BPF program
on the frames' path (`xdp_progs/selftest/inject.bpf.c`) delays, drops, clones or exchanges frames. The command takes a
few minutes, needs Linux 5.17 or newer, and ends with exit code 1 if a control does not hold. `--json` is for scripts.

* **Delay**: the median round trip minus that of the same program without a delay, at the same load.
* **Loss, duplicates, reordering**: one event for each frame whose number is a multiple of {every}. The event's column
  counts exactly these, the other columns none. For loss and duplicates the driver's own counts are a second witness.
* **Changed length**: some frames come back longer; their neighbours on the same pages must not.
* **Sampling**: each fourth frame is delayed, and one in four is stamped. A quarter of the stamped frames must be late.
* **N = 0 against N = 0**: two workloads without accesses are the same program: their race must end with "equivalent".
* **Doctored slow-down**: a packet takes 3 % longer on average. The race must find this.
* **Switched setting**: BPF statistics are on for some seconds, for the whole machine: trials of all labs in that time
  are invalid, and `audit` must name the setting.
* **Count upstream**: receive packet steering hides lost frames from the link's count: the trials must be invalid.

"Undecided" means that the machine was too noisy ([races](../use/race.md)): then the control does not hold.

Made by `xdplab selftest --markdown docs/results/selftest.md` on {date}; {lab} ({machine}); rules {rules}:

{table}"""
