"""Which rights of the kernel's this process lacks, and what works without them. For scripts, standard library only."""

from collections.abc import Iterable
from pathlib import Path

NUMBERS = {
    "CAP_NET_ADMIN": 12,
    "CAP_NET_RAW": 13,
    "CAP_SYS_ADMIN": 21,
    "CAP_SYSLOG": 34,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
}
"""The bits of /proc/PID/status; see capabilities(7)."""
FOR_LAB = ("CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_SYSLOG")
"""Namespaces and mounts, links and programs, frames, the machine code of a program."""
FOR_PROGRAMS = ("CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON")
"""These three, or CAP_SYS_ADMIN alone, let a user load network and tracing programs."""
WITHOUT = "figures, report, show and audit of results work without, and so does `xdplab cost`, in guests"
_ALL_USERS = (0, 0, (1 << 32) - 1)


def missing_rights(wanted: Iterable[str]) -> str | None:
    """Return in one line what of the ``wanted`` capabilities this process lacks, or None.

    What it holds in a user namespace (a rootless container) does not count: the kernel loads no program for it.
    """
    status = Path("/proc/self/status").read_text()
    held = int(status.partition("CapEff:")[2].split()[0], 16)
    missing = [name for name in wanted if not held >> NUMBERS[name] & 1]
    if missing:
        return f"this process lacks {', '.join(missing)}"
    if tuple(map(int, Path("/proc/self/uid_map").read_text().split())) != _ALL_USERS:
        return f"this process has {', '.join(wanted)} only in a user namespace, as in a rootless container"
    return None
