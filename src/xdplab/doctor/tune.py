"""`doctor --tune`: the settings of a server that are safe to change while it runs, and the way back.

The former settings are stored on the host as a script; a second call adds only what the first did not change. `undo`
runs and deletes the script.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import PurePosixPath

from xdplab.errors import HostError
from xdplab.hosts import Host

UNDO = "tune-undo.sh"


@dataclass(frozen=True)
class Tuning:
    """Files of the kernel that shall hold ``wanted``; the pattern may match one a CPU, or none."""

    name: str
    pattern: str
    wanted: str


TUNINGS = (
    Tuning("CPU governor", "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor", "performance"),
    Tuning("turbo (Intel)", "/sys/devices/system/cpu/intel_pstate/no_turbo", "1"),
    Tuning("turbo (others)", "/sys/devices/system/cpu/cpufreq/boost", "0"),
    Tuning("NMI watchdog", "/proc/sys/kernel/nmi_watchdog", "0"),
    Tuning("BPF JIT", "/proc/sys/net/core/bpf_jit_enable", "1"),
)
SERVICES = ("irqbalance",)


@dataclass(frozen=True)
class Tuned:
    """One change on a host; ``refused`` has the kernel's message if it failed."""

    host: str
    what: str
    before: str
    now: str
    refused: str | None = None


def tune(host: Host, directory: str, *, root: str = "") -> list[Tuned]:
    """Apply what differs and return it. ``root`` stands before every file's path (tests)."""
    undo = str(PurePosixPath(directory) / UNDO)
    files = [(t, path, was) for t in TUNINGS for path, was in _read(host, root + t.pattern) if was != t.wanted]
    services = [name for name in SERVICES if host.run(["systemctl", "is-active", "-q", name], check=False).ok]
    lines = {f">{shlex.quote(path)} || failed=1": f"printf %s {shlex.quote(was)} " for _, path, was in files}
    lines |= {f"{shlex.quote(name)} || failed=1": "systemctl start " for name in services}
    stored = host.run(["cat", undo], check=False).text.splitlines()[1:-1]
    new = [begin + end for end, begin in lines.items() if not any(line.endswith(end) for line in stored)]
    if new:
        host.put("\n".join(["#!/bin/sh", *stored, *new, "exit ${failed:-0}\n"]).encode(), undo, mode=0o755)
    return [_write(host, t, path, was) for t, path, was in files] + [_stop(host, name) for name in services]


def undo(host: Host, directory: str) -> bool:
    """Restore the settings that `tune` found. Returns whether there was anything; repeating it is harmless.

    Raises HostError with the message of a failed command: the script stays, for another try.
    """
    script = str(PurePosixPath(directory) / UNDO)
    if not host.run(["test", "-f", script], check=False).ok:
        return False
    done = host.run(["sh", script], check=False)
    if not done.ok or done.error_text:
        raise HostError(
            f"{host.name}: not all that --tune changed is back: {done.error_text or done.exit_code}",
            remedy=f"put it right, then `xdplab restore` again; {script} has what was before",
        )
    host.run(["rm", "-f", script])
    return True


def _read(host: Host, pattern: str) -> list[tuple[str, str]]:
    """Return path and content of every file that the pattern matches."""
    script = 'for f in $1; do [ -f "$f" ] && echo "$f $(cat "$f")"; done; true'
    lines = host.run(["sh", "-c", script, "sh", pattern]).text.splitlines()
    return [(path, was) for path, _, was in (line.partition(" ") for line in lines)]


def _write(host: Host, tuning: Tuning, path: str, was: str) -> Tuned:
    done = host.run(["tee", path], stdin=tuning.wanted.encode(), check=False)
    now = host.run(["cat", path], check=False).text.strip()
    refused = None if now == tuning.wanted else done.error_text or f"it stays {now}"
    return Tuned(host.name, f"{tuning.name} ({path})", was, now, refused)


def _stop(host: Host, name: str) -> Tuned:
    done = host.run(["systemctl", "stop", name], check=False)
    return Tuned(host.name, name, "runs", "stopped" if done.ok else "runs", None if done.ok else done.error_text)
