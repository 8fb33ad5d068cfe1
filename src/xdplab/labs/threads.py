"""Arrangement ``split`` on one machine: each end of the link receives in threads, which get their own CPUs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from xdplab import hosts
from xdplab.errors import UnsupportedError
from xdplab.hosts import Host

# Only the machine's own root sees kernel threads. $1 interface, $2 priority, then the CPUs, used in turn.
_PIN = """
interface=$1 priority=$2; shift 2
for file in /proc/[0-9]*/comm; do
    read -r name <"$file" || continue
    case $name in "napi/$interface-"*) thread=${file#/proc/}; echo "${name##*-} ${thread%/comm}" ;; esac
done 2>/dev/null | sort -n | while read -r _ thread; do
    cpu=$1; shift; set -- "$@" "$cpu"
    taskset -pc "$cpu" "$thread" >/dev/null && chrt -f -p "$priority" "$thread" && echo pinned
done
"""


def receive_in_threads(ends: Iterable[tuple[Host, str]], threaded: bool) -> None:
    """Make each (host, interface) receive in kernel threads, or where its interrupts arrive.

    A kernel before 5.12 has no such threads: then requesting them raises UnsupportedError.
    """
    for host, interface in ends:
        file = f"/sys/class/net/{interface}/threaded"
        if host.run(["test", "-e", file], check=False).ok:
            host.run(["tee", file], stdin=b"1\n" if threaded else b"0\n")
        elif threaded:
            raise UnsupportedError(
                f"{interface} cannot receive in threads: its kernel has no {file}",
                remedy="arrangement split needs Linux 5.12 or newer; `arrangement: shared` does not",
            )


def pin_threads(host: Host, interface: str, cpus: Sequence[int], fifo: int) -> int:
    """Give the interface's receiving threads ``cpus`` in turn and a real-time priority; return how many there are.

    A host that is a namespace of the controller's own machine does not see them: then the controller places them.
    """
    pinned = _pinned(host, interface, cpus, fifo)
    return pinned or (_pinned(hosts.LocalHost(), interface, cpus, fifo) if _is_here(host) else 0)


def _pinned(host: Host, interface: str, cpus: Sequence[int], fifo: int) -> int:
    sudo = ["sudo", "-n", "--"] if isinstance(host, hosts.LocalHost) and os.geteuid() != 0 else []
    argv = [*sudo, "sh", "-c", _PIN, "sh", interface, str(fifo), *map(str, cpus)]
    return host.run(argv, check=False).text.count("pinned")


def _is_here(host: Host) -> bool:
    boot = "/proc/sys/kernel/random/boot_id"
    return host.get(boot) == hosts.LocalHost().get(boot)
