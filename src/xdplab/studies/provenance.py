"""What a number depends on besides the plan: a host's kernel, CPU, settings and tools, as they describe themselves.

A run asks when it begins; values that change during the run (load, stolen time) are asked again at its end. The answers
are in its journal, and in ``manifest.json`` beside it. Studies of the execution side ask through `Around`.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from xdplab.formats.settings import MACHINE_FILES, parse_settings
from xdplab.hosts import Host
from xdplab.hosts.local import LocalHost
from xdplab.labs.base import HOST, OWN_QEMU
from xdplab.run.rundir import RunDirectory

MANIFEST = "manifest.json"
CONTROLLER = "this machine"
Answers = dict[str, dict[str, str]]

MACHINE: dict[str, tuple[str, ...]] = {
    "kernel": ("uname", "-r"),
    "kernel_build": ("uname", "-v"),
    "machine": ("uname", "-m"),
    "cpus": ("lscpu", "-J"),
    "microcode": ("grep", "-m1", "microcode", "/proc/cpuinfo"),
    "command_line": ("cat", "/proc/cmdline"),
    "mitigations": ("grep", "-r", ".", "/sys/devices/system/cpu/vulnerabilities"),
}
"""For any host: name → command. A failed command is stored with its last message."""

SETTINGS = "settings"
PLACE = MACHINE | {SETTINGS: ("sh", "-c", "for file; do grep -s . $file /dev/null; done; :", "sh", *MACHINE_FILES)}
"""For a study's place, too: what its trials do not read of the table of settings, which those of XDP traffic do."""

MOMENT = {
    "frequency": ("grep", "-m1", "MHz", "/proc/cpuinfo"),
    "load": ("cat", "/proc/loadavg"),
    "cpu_ticks": ("grep", "-m1", "^cpu ", "/proc/stat"),
}
"""Values that always change: read before and after, and never listed as a difference between two runs."""

TOOLS = {
    "clang": ("clang", "--version"),
    "cc": ("cc", "--version"),
    "libbpf": ("pkg-config", "--modversion", "libbpf"),
    "qemu": ("qemu-system-x86_64", "--version"),
    "bpftool": ("bpftool", "version"),
}

_SEPARATOR = "\x1e"
# One that hangs costs its own answer; the others are there.
_SCRIPT = (
    'ask() {{ name=$1 how=absent; shift; said=$(timeout -k 1 {most_s:g} "$@" 2>/dev/null); '
    "case $? in 0) how=value ;; 124 | 137) said='no answer within {most_s:g} s' ;; "
    '*) said=$("$@" 2>&1 | tail -n 1) ;; esac; '
    f'printf \'%s\\n%s\\n%s{_SEPARATOR}\' "$name" $how "$said"; }}}}\n'
)
_ANSWER_S = 30.0
_MOST_HANGING = 6
"""How many hanging tools a deadline allows for."""


def answers(host: Host, questions: Mapping[str, tuple[str, ...]], *, deadline_s: float = _ANSWER_S) -> Answers:
    """Ask a host everything in one command; each answer is a ``value``, or ``absent`` with the last message."""
    asked = "".join(f"ask {name} {shlex.join(argv)}\n" for name, argv in questions.items())
    script = _SCRIPT.format(most_s=deadline_s / _MOST_HANGING) + asked
    said = host.run(["sh", "-c", script], deadline_s=deadline_s, check=False).text
    found: Answers = {}
    for part in said.split(_SEPARATOR)[:-1]:
        name, how, text = part.split("\n", 2)
        found[name] = {how: text.strip()} if text.strip() else {"absent": "it printed nothing"}
    return {name: found.get(name, {"absent": "the host did not answer"}) for name in questions}


def own_version() -> dict[str, str]:
    """Return xdplab's commit if this is a checkout: a number leads back to the code that measured it."""
    here = Path(__file__).resolve().parent
    git = subprocess.run(
        ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12"],
        capture_output=True,
        text=True,
        check=False,
    )
    return {"commit": git.stdout.strip()} if git.returncode == 0 else {"absent": "not a git checkout"}


def flat(name: str, value: str) -> dict[str, str]:
    """Split ``key: value`` lines: then a difference names only the line that differs."""
    if value.startswith("{"):  # lscpu -J
        try:
            fields = list(_fields(json.loads(value)["lscpu"]))
        except (ValueError, LookupError, TypeError, AttributeError):  # truncated, or from another tool
            return {name: value}
        # A field stands once for each kind of core: a machine may have several models.
        told: dict[str, dict[str, None]] = {}
        for title, data in fields:
            if "MHz" not in title:
                told.setdefault(f"{name} {title.rstrip(':')}", {})[data] = None
        return {title: ", ".join(values) for title, values in told.items()}
    lines = value.splitlines()
    if len(lines) < 2 or not all(":" in line for line in lines[1:]):
        return {name: value}
    parts = [line.rsplit(":", 1) if line.startswith("/") else line.split(":", 1) for line in lines]
    return {f"{name} {part[0].strip()}": part[-1].strip() for part in parts}


def _fields(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the fields of `lscpu -J` and their values; newer versions nest them."""
    for row in rows:
        title, data = str(row["field"]), row["data"]
        if data is not None:
            yield title, str(data)
        yield from _fields(row.get("children", ()))


class PlaceDescription(Protocol):
    """A place of a study, as far as it is asked; ``around`` is what it cannot be asked itself."""

    @property
    def name(self) -> str: ...

    @property
    def host(self) -> Host: ...

    @property
    def patience(self) -> int: ...

    @property
    def around(self) -> Mapping[str, str]: ...


@dataclass
class Around:
    """The environment of one session of a study's run. ``tools``: those that only this study uses, by name."""

    run: RunDirectory
    tools: Mapping[str, str] = field(default_factory=dict)
    _places: set[str] = field(default_factory=set)
    _session: int = 0

    def begin(self) -> None:
        """Ask this machine, and name the tools."""
        self._session = 1 + max((event["session"] for event in self.run.journal.events("hosts")), default=-1)
        state = answers(LocalHost(), PLACE | MOMENT | TOOLS) | {name: {"value": it} for name, it in self.tools.items()}
        self._note(CONTROLLER, "before", state | {"xdplab": own_version()})

    def at(self, place: PlaceDescription) -> None:
        """Ask an entered place, once per session; this machine was asked when the session began."""
        if place.name == HOST or place.name in self._places:
            return
        self._places.add(place.name)
        state = answers(place.host, PLACE, deadline_s=_ANSWER_S * place.patience)
        self._note(place.name, "before", state | {name: {"value": it} for name, it in place.around.items()})

    def end(self) -> None:
        """Ask this machine what changed, and write the manifest."""
        self._note(CONTROLLER, "after", answers(LocalHost(), MOMENT))
        self.run.write_json(MANIFEST, {"run_id": self.run.run_id, "sessions": list(self.run.journal.events("hosts"))})

    def _note(self, place: str, when: str, state: Mapping[str, object]) -> None:
        self.run.journal.append("hosts", when=when, session=self._session, place=place, state=dict(state))


def around(run: RunDirectory) -> dict[str, str]:
    """Return the environment of the last session of a study's run, line by line; empty if nothing was recorded."""
    facts: dict[str, str] = {}
    for place, state in _states(run).items():
        for name, answer in state.items():
            if name == SETTINGS:
                facts |= {f"{place}: {setting}": value for setting, value in _settings(state).items()}
            elif name not in MOMENT:
                facts |= flat(f"{place}: {name}", _said(answer))
    return facts


def _settings(state: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return a place's settings by name; none if it was not asked, or did not answer."""
    lines = state.get(SETTINGS, {}).get("value", "").splitlines()
    shown = "".join("{}\t{}\n".format(*line.partition(":")[::2]) for line in lines)
    return parse_settings(shown) if shown else {}


def _said(answer: Mapping[str, str]) -> str:
    words = answer.get("value", answer.get("commit"))
    return words if words is not None else f"absent: {answer.get('absent')}"


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
    cpu = flat("cpus", _said(here["cpus"])).get("cpus Model name", "CPU not known")
    said = [f"{cpu}, Linux {_said(here['kernel'])}", *(_mitigated(*known) for known in states.items())]
    hardened = {
        place: _settings(state).get("net.core.bpf_jit_harden", "not visible") for place, state in states.items()
    }
    said += [f"bpf_jit_harden {level} ({place})" for place, level in hardened.items()]
    tools = [name for name in (*_TOOLS, *also) if "value" in here.get(name, {})]
    said += [f"{name}: {_said(here[name]).splitlines()[0]}" for name in tools]
    said += _emulators(states)
    stolen = _stolen(here, _states(run, "after").get(CONTROLLER))
    said += [f"{stolen:.1%} of the time stolen by the hypervisor"] if stolen is not None else []
    return "; ".join(said)


def origin(run: RunDirectory) -> str:
    """Return when a run began, how busy the machine was then, and by which xdplab, in words."""
    began = next(run.journal.events("created"), None)
    day = time.strftime("%Y-%m-%d", time.gmtime(began["time"])) if began else "a day that is not known"
    here: Mapping[str, Any] = _states(run).get(CONTROLLER, {})
    averages = here.get("load", {}).get("value")
    load = f"of {averages.split()[0]}" if averages else "that was not recorded"
    version = _said(here.get("xdplab", {"absent": "not recorded"}))
    return f"run {run.run_id} of {day}, at a load {load}, xdplab {version}"


def _emulators(states: Mapping[str, Mapping[str, Mapping[str, str]]]) -> list[str]:
    """Return which QEMU ran the guests: a guest of another architecture has its own, named with its place."""
    guests = {place: state for place, state in states.items() if place.startswith(_GUEST)}
    others = [f"qemu: {_said(state[OWN_QEMU])} ({place})" for place, state in guests.items() if OWN_QEMU in state]
    here = states[CONTROLLER]["qemu"]
    if len(others) == len(guests) or "value" not in here:
        return others
    return [f"qemu: {_said(here).splitlines()[0]}", *others]


_GUEST = "vm:"


def _mitigated(place: str, state: Mapping[str, Mapping[str, str]]) -> str:
    """The kernel's own list counts: a guest boots with ``mitigations=off``."""
    if "value" not in state["mitigations"]:
        return f"mitigations not known ({place})"
    active = sum("Mitigation:" in line for line in _said(state["mitigations"]).splitlines())
    off = " by mitigations=off" if "mitigations=off" in _said(state["command_line"]) else ""
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
