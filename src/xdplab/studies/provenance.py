"""What a number depends on besides the plan: a host's kernel, CPU, settings and tools, as they describe themselves.

A run asks when it begins; values that change during the run (load, stolen time) are asked again at its end. The answers
are in its journal, and in ``manifest.json`` beside it. Studies of the execution side ask through `Around`.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from xdplab.formats.settings import MACHINE_FILES
from xdplab.hosts import Host
from xdplab.hosts.local import LocalHost
from xdplab.labs import Lab
from xdplab.labs.base import HOST
from xdplab.run.manifest import SessionRecord
from xdplab.run.rundir import RunDirectory

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

LAB: dict[str, tuple[str, ...]] = {
    **MACHINE,
    **MOMENT,
    **TOOLS,
    "memory": ("grep", "-E", "MemTotal|HugePages_Total", "/proc/meminfo"),
    "driver": ("ethtool", "-i", "{interface}"),
    "link": ("ip", "-j", "-d", "link", "show", "dev", "{interface}"),
    "perf": ("perf", "--version"),
    "sysstat": ("sar", "-V"),
    "ethtool": ("ethtool", "--version"),
}
"""For both hosts of a lab; ``{interface}`` is the host's end of the link. What can change meanwhile is read around each
window (`xdplab.counters.settings`)."""

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
    calls = "".join(f"ask {name} {shlex.join(argv)}\n" for name, argv in questions.items())
    script = _SCRIPT.format(most_s=deadline_s / _MOST_HANGING) + calls
    output = host.run(["sh", "-c", script], deadline_s=deadline_s, check=False).text
    answered: Answers = {}
    for part in output.split(_SEPARATOR)[:-1]:
        name, how, text = part.split("\n", 2)
        answered[name] = {how: text.strip()} if text.strip() else {"absent": "it printed nothing"}
    return {name: answered.get(name, {"absent": "the host did not answer"}) for name in questions}


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


def host_states(lab: Lab) -> dict[str, Any]:
    """Return both hosts' answers, which they give at the same time, and xdplab's own version, for the manifest."""
    with ThreadPoolExecutor(1) as meanwhile:
        tg = meanwhile.submit(_state, lab.tg, lab.tg_interface)
        dut = _state(lab.dut, lab.dut_interface)
        return {
            "lab": lab.name,
            "label": lab.label,
            "virtual": lab.virtual,
            "arrangement": lab.arrangement,
            "xdplab": own_version(),
            "dut": dut,
            "tg": tg.result(),
        }


def _state(host: Host, interface: str) -> dict[str, Any]:
    questions = {name: tuple(word.format(interface=interface) for word in argv) for name, argv in LAB.items()}
    return dict(answers(host, questions))


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


class Around:
    """Asks the places of one session of a study's run. ``tools``: those that only this study uses, by name."""

    def __init__(self, run: RunDirectory, tools: Mapping[str, str]) -> None:
        self._session, self._tools = SessionRecord(run), tools
        self._places: set[str] = set()

    def begin(self) -> None:
        """Ask this machine, and name the tools."""
        state = answers(LocalHost(), PLACE | MOMENT | TOOLS) | {name: {"value": it} for name, it in self._tools.items()}
        self._session.note("before", state | {"xdplab": own_version()}, place=CONTROLLER)

    def at(self, place: PlaceDescription) -> None:
        """Ask an entered place, once per session; this machine was asked when the session began."""
        if place.name == HOST or place.name in self._places:
            return
        self._places.add(place.name)
        state = answers(place.host, PLACE, deadline_s=_ANSWER_S * place.patience)
        values = {name: {"value": it} for name, it in place.around.items()}
        self._session.note("before", state | values, place=place.name)

    def end(self) -> None:
        """Ask this machine what changed, and write the manifest."""
        self._session.note("after", answers(LocalHost(), MOMENT), place=CONTROLLER)
        self._session.keep()
