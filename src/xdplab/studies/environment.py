"""What was recorded of the places before a run, line by line, and in one line for its captions and pages."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from xdplab.formats.settings import parse_settings
from xdplab.labs.base import OWN_QEMU
from xdplab.run.rundir import RunDirectory
from xdplab.studies.provenance import CONTROLLER, MOMENT, SETTINGS


def around(run: RunDirectory) -> dict[str, str]:
    """Return the environment of the last session of a study's run, line by line; empty if nothing was recorded."""
    facts: dict[str, str] = {}
    for place, state in _states(run).items():
        for name, answer in state.items():
            if name == SETTINGS:
                facts |= {f"{place}: {setting}": value for setting, value in _settings(state).items()}
            elif name not in MOMENT:
                facts |= flat(f"{place}: {name}", _text(answer))
    return facts


def _settings(state: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return a place's settings by name; none if it was not asked, or did not answer."""
    lines = state.get(SETTINGS, {}).get("value", "").splitlines()
    shown = "".join("{}\t{}\n".format(*line.partition(":")[::2]) for line in lines)
    return parse_settings(shown) if shown else {}


def _text(answer: Mapping[str, str]) -> str:
    text = answer.get("value", answer.get("commit"))
    return text if text is not None else f"absent: {answer.get('absent')}"


def _states(run: RunDirectory, when: str = "before") -> dict[str, defaultdict[str, Any]]:
    events = [event for event in run.journal.events("hosts") if event["when"] == when and "place" in event]
    return {event["place"]: defaultdict(lambda: {"absent": "not recorded"}, event["state"]) for event in events}


_TOOLS = ("clang", "cc", "libbpf")


def summary(run: RunDirectory, also: Iterable[str] = ()) -> str | None:
    """Return one line on the run's environment; None if nothing was recorded. ``also``: further tools to name."""
    states = _states(run)
    here = states.get(CONTROLLER)
    if here is None:
        return None
    cpu = flat("cpus", _text(here["cpus"])).get("cpus Model name", "CPU not known")
    parts = [f"{cpu}, Linux {_text(here['kernel'])}", *(_mitigated(*state) for state in states.items())]
    hardened = {
        place: _settings(state).get("net.core.bpf_jit_harden", "not visible") for place, state in states.items()
    }
    parts += [f"bpf_jit_harden {level} ({place})" for place, level in hardened.items()]
    tools = [name for name in (*_TOOLS, *also) if "value" in here.get(name, {})]
    parts += [f"{name}: {_text(here[name]).splitlines()[0]}" for name in tools]
    parts += _emulators(states)
    stolen = _stolen(here, _states(run, "after").get(CONTROLLER))
    parts += [f"{stolen:.1%} of the time stolen by the hypervisor"] if stolen is not None else []
    return "; ".join(parts)


def origin(run: RunDirectory) -> str:
    """Return when a run began, how busy the machine was then, and by which xdplab, in words."""
    began = next(run.journal.events("created"), None)
    day = time.strftime("%Y-%m-%d", time.gmtime(began["time"])) if began else "a day that is not known"
    here: Mapping[str, Any] = _states(run).get(CONTROLLER, {})
    averages = here.get("load", {}).get("value")
    load = f"of {averages.split()[0]}" if averages else "that was not recorded"
    version = _text(here.get("xdplab", {"absent": "not recorded"}))
    return f"run {run.run_id} of {day}, at a load {load}, xdplab {version}"


def _emulators(states: Mapping[str, Mapping[str, Mapping[str, str]]]) -> list[str]:
    """Return which QEMU ran the guests: a guest of another architecture has its own, named with its place."""
    guests = {place: state for place, state in states.items() if place.startswith(_GUEST)}
    others = [f"qemu: {_text(state[OWN_QEMU])} ({place})" for place, state in guests.items() if OWN_QEMU in state]
    here = states[CONTROLLER]["qemu"]
    if len(others) == len(guests) or "value" not in here:
        return others
    return [f"qemu: {_text(here).splitlines()[0]}", *others]


_GUEST = "vm:"


def _mitigated(place: str, state: Mapping[str, Mapping[str, str]]) -> str:
    """The kernel's own list counts: a guest boots with ``mitigations=off``."""
    if "value" not in state["mitigations"]:
        return f"mitigations not known ({place})"
    active = sum("Mitigation:" in line for line in _text(state["mitigations"]).splitlines())
    off = " by mitigations=off" if "mitigations=off" in _text(state["command_line"]) else ""
    return f"{active} CPU mitigations active{off} ({place})"


_STEAL = 7
"""Place of the stolen ticks in a line ``cpu …`` of /proc/stat, man 5 proc."""


def _stolen(before: Mapping[str, Mapping[str, str]], after: Mapping[str, Mapping[str, str]] | None) -> float | None:
    """Return the share of this machine's time that was stolen during the session; None if it is not known."""
    lines = [state.get("cpu_ticks", {}).get("value") for state in (before, after or {})]
    if None in lines:
        return None
    first, second = ([int(tick) for tick in str(line).split()[1:9]] for line in lines)
    total = sum(second) - sum(first)
    return (second[_STEAL] - first[_STEAL]) / total if total > 0 else None


def flat(name: str, value: str) -> dict[str, str]:
    """Split ``key: value`` lines: then a difference names only the line that differs."""
    if value.startswith("{"):  # lscpu -J
        try:
            fields = list(_fields(json.loads(value)["lscpu"]))
        except (ValueError, LookupError, TypeError, AttributeError):  # truncated, or from another tool
            return {name: value}
        # A field stands once for each kind of core: a machine may have several models.
        by_title: dict[str, dict[str, None]] = {}
        for title, data in fields:
            if "MHz" not in title:
                by_title.setdefault(f"{name} {title.rstrip(':')}", {})[data] = None
        return {title: ", ".join(values) for title, values in by_title.items()}
    lines = value.splitlines()
    if len(lines) < 2 or not all(":" in line for line in lines[1:]):
        return {name: value}
    parts = [line.split(":", 1) for line in lines]
    return {f"{name} {part[0].strip()}": part[-1].strip() for part in parts}


def _fields(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the fields of `lscpu -J` and their values; newer versions nest them."""
    for row in rows:
        title, data = str(row["field"]), row["data"]
        if data is not None:
            yield title, str(data)
        yield from _fields(row.get("children", ()))
