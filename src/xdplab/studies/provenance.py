"""What a number depends on besides the plan: a host's kernel, CPU, settings and tools, as they describe themselves.

A run asks when it begins; values that change during the run (load, stolen time) are asked again at its end. The answers
are in its journal, and in ``manifest.json`` beside it. Studies of the execution side ask through `Around`.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, Literal, Protocol

from xdplab.formats.settings import MACHINE_FILES
from xdplab.hosts import Host
from xdplab.hosts.local import LocalHost
from xdplab.labs import Lab
from xdplab.labs.base import HOST
from xdplab.run.rundir import RunDirectory

MANIFEST = "manifest.json"
When = Literal["before", "after"]


class SessionRecord:
    """One session of a run: the time from the first trial that it measures until it ends."""

    def __init__(self, run: RunDirectory) -> None:
        before = [event["session"] for event in run.journal.events("hosts")]
        self._run, self._number = run, 1 + max(before, default=-1)

    def note(self, when: When, state: Mapping[str, Any], **place: Any) -> None:
        """Record what a place answered, before its first trial or after the last one; ``place`` may name it."""
        self._run.journal.append("hosts", when=when, session=self._number, **place, state=dict(state))

    def keep(self) -> None:
        keep(self._run)


def keep(run: RunDirectory) -> None:
    """Write the manifest. Raises ResultsError."""
    sessions, seed = list(run.journal.events("hosts")), run.plan_data.get("seed")
    run.write_json(MANIFEST, {"run_id": run.run_id, "sessions": sessions, "seed": seed})


def is_old(run: RunDirectory) -> bool:
    """True if the journal has answers that the manifest lacks."""
    try:
        held = len(json.loads((run.path / MANIFEST).read_bytes())["sessions"])
    except (OSError, ValueError, LookupError, TypeError):  # absent, or cut short by a power cut
        held = 0
    return held < run.journal.count("hosts")


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

_OF_A_BOOT = ("kernel", "kernel_build", "machine", "cpus", "command_line")
LAB: dict[str, tuple[str, ...]] = {
    **{name: argv for name, argv in MACHINE.items() if name not in _OF_A_BOOT},
    **MOMENT,
    "memory": ("grep", "-E", "MemTotal|HugePages_Total", "/proc/meminfo"),
    "driver": ("ethtool", "-i", "{interface}"),
    "link": ("ip", "-j", "-d", "link", "show", "dev", "{interface}"),
    "libbpf": TOOLS["libbpf"],
}
"""For both hosts of a lab, asked before each run; ``{interface}`` is the host's end of the link. What can change
meanwhile is read around each window (`xdplab.counters.settings`)."""

LAB_KEPT: dict[str, tuple[str, ...]] = {
    **{name: MACHINE[name] for name in _OF_A_BOOT},
    **{name: argv for name, argv in TOOLS.items() if name not in LAB},
    "perf": ("perf", "--version"),
    "sysstat": ("sar", "-V"),
    "ethtool": ("ethtool", "--version"),
}
"""What both hosts of a lab are, and their programs. To ask for it takes most of the time of all questions, so `_KEPT`
keeps the answers in the lab."""

_SEPARATOR = "\x1e"
# One that hangs costs its own answer; the others are there.
_SCRIPT = (
    'ask() {{ name=$1 how=absent; shift; said=$(timeout -k 1 {most_s:g} "$@" 2>/dev/null); '
    "case $? in 0) how=value ;; 124 | 137) said='no answer within {most_s:g} s' ;; "
    '*) said=$("$@" 2>&1 | tail -n 1) ;; esac; '
    f'printf \'%s\\n%s\\n%s{_SEPARATOR}\' "$name" $how "$said"; }}}}\n'
)
KEPT_S = 600
"""How long answers of programs are kept at most, for a wrapper of something that was installed without a package."""
PACKAGES = (
    "/var/lib/dpkg/status",
    "/var/lib/rpm/rpmdb.sqlite",
    "/usr/lib/sysimage/rpm/rpmdb.sqlite",
    "/lib/apk/db/installed",
    "/var/lib/pacman/local",
)
BOOT = "/proc/version /proc/sys/kernel/random/boot_id /sys/devices/system/cpu/online"
# What a program says of itself depends on its file (path, device, inode, size, time of change), and if that is a
# wrapper, on the installed packages and the kernel; what it says of the machine, on the boot and the CPUs in use.
_KEPT = """
set -f
kept=$1; shift
for tool; do file=$(command -v "$tool") && set -- "$@" "$file"; shift; done
for file in {packages}; do [ -e "$file" ] && set -- "$@" "$file"; done
state=$(echo $(stat -L -c '%n %d %i %s %Z' "$@" || echo unknown $$) $(cat {boot}) $(($(date +%s) / {kept_s})))
if [ "$(head -n 1 "$kept" 2>/dev/null)" = "$state" ]; then tail -n +2 "$kept"; else
    said=$(kept); printf %s "$said"
    mkdir -p "${{kept%/*}}" && printf '%s\\n%s' "$state" "$said" >"$kept.$$" && mv "$kept.$$" "$kept"
fi 2>/dev/null
"""
_ANSWER_S = 30.0
_MOST_HANGING = 6
"""How many hanging tools a deadline allows for."""


def answers(
    host: Host,
    questions: Mapping[str, tuple[str, ...]],
    *,
    kept: Mapping[str, tuple[str, ...]] | None = None,
    file: str = "",
    deadline_s: float = _ANSWER_S,
) -> Answers:
    """Ask a host everything in one command; each answer is a ``value``, or ``absent`` with the last message.

    ``kept``: questions whose answers stay in the host's ``file`` until their programs, the boot or the CPUs change.
    """
    script = _SCRIPT.format(most_s=deadline_s / _MOST_HANGING) + _calls(questions)
    if kept:
        script += f"kept() {{\n{_calls(kept)}}}\n{_KEPT.format(packages=' '.join(PACKAGES), boot=BOOT, kept_s=KEPT_S)}"
        questions = {**questions, **kept}
    argv = ["sh", "-c", script, "sh", file, *{argv[0]: None for argv in (kept or {}).values()}]
    output = host.run(argv, deadline_s=deadline_s, check=False).text
    answered: Answers = {}
    for part in output.split(_SEPARATOR)[:-1]:
        name, how, text = part.split("\n", 2)
        answered[name] = {how: text.strip()} if text.strip() else {"absent": "it printed nothing"}
    return {name: answered.get(name, {"absent": "the host did not answer"}) for name in questions}


def _calls(questions: Mapping[str, tuple[str, ...]]) -> str:
    return "".join(f"ask {name} {shlex.join(argv)}\n" for name, argv in questions.items())


@cache
def own_version() -> dict[str, str]:
    """Return xdplab's commit if this is a checkout: a number leads back to the code that measured it.

    It is asked once: what a process measures with is what it loaded as it began.
    """
    here = Path(__file__).resolve().parent
    argv = ["env", "git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12"]  # env answers without git
    git = subprocess.run(argv, capture_output=True, text=True, check=False)
    return {"commit": git.stdout.strip()} if git.returncode == 0 else {"absent": "no git checkout, or no git"}


def host_states(lab: Lab, when: When = "before") -> dict[str, Any]:
    """Return both hosts' answers, which they give at the same time, and xdplab's own version, for the manifest.

    After a run that is what always changes.
    """
    ask = _state if when == "before" else lambda _lab, host, _interface: answers(host, MOMENT)
    with ThreadPoolExecutor(2) as meanwhile:
        tg = meanwhile.submit(ask, lab, lab.tg, lab.tg_interface)
        dut = meanwhile.submit(ask, lab, lab.dut, lab.dut_interface)
        return {
            "lab": lab.name,
            "label": lab.label,
            "virtual": lab.virtual,
            "arrangement": lab.arrangement,
            "xdplab": own_version(),
            "dut": dut.result(),
            "tg": tg.result(),
        }


def _state(lab: Lab, host: Host, interface: str) -> dict[str, Any]:
    questions = {name: tuple(word.format(interface=interface) for word in argv) for name, argv in LAB.items()}
    return dict(answers(host, questions, kept=LAB_KEPT, file=f"{lab.work_dir(host)}/kept-{host.name}"))


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
