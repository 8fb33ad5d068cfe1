"""Which CPUs receive on a link: kernel threads at each end of one machine's (arrangement ``split``), and a card's
interrupts, where those of queue q go to the q-th of a host's CPUs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

from xdplab.errors import UnsupportedError
from xdplab.hosts import Host
from xdplab.hosts.local import LocalHost

# $1 the file of a device, $2 what is written into it. A device without NAPI (netkit) refuses even what is so already.
_THREADED = '[ -e "$1" ] || { echo absent; exit; }; [ "$(cat "$1")" = "$2" ] || echo "$2" >"$1"'

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
        done = host.run(["sh", "-c", _THREADED, "sh", file, str(int(threaded))])
        if threaded and "absent" in done.text:
            raise UnsupportedError(
                f"{interface} cannot receive in threads: its kernel has no {file}",
                remedy="arrangement split needs Linux 5.12 or newer; `arrangement: shared` does not",
            )


def pin_threads(host: Host, interface: str, cpus: Sequence[int], fifo: int) -> int:
    """Give the interface's receiving threads ``cpus`` in turn and a real-time priority; return how many there are.

    A host that is a namespace of the controller's own machine does not see them: then the controller places them.
    """
    pinned = _pinned(host, interface, cpus, fifo)
    return pinned or (_pinned(LocalHost(), interface, cpus, fifo) if _is_here(host) else 0)


def _pinned(host: Host, interface: str, cpus: Sequence[int], fifo: int) -> int:
    sudo = ["sudo", "-n", "--"] if isinstance(host, LocalHost) and os.geteuid() != 0 else []
    argv = [*sudo, "sh", "-c", _PIN, "sh", interface, str(fifo), *map(str, cpus)]
    return host.run(argv, check=False).text.count("pinned")


def _is_here(host: Host) -> bool:
    boot = "/proc/sys/kernel/random/boot_id"
    return host.get(boot) == LocalHost().get(boot)


# How drivers name a queue's interrupt, and the number of the first one. The names were read in the sources of 6.12.
_QUEUES = (
    # eth0-TxRx-0 (Intel, bnxt_en), eth0-Tx-Rx-0 (ena), eth0-rxtx-0 (vmxnet3, nfp, octeontx2), eth0-rx-0 and eth0-tx-0
    # (igb with separate ones), eth0:rx-0 (stmmac), eth0-fp-0 (qede), mlx5_comp0@pci:0000:3b:00.0, virtio1-input.0,
    # mana_q0@pci:…, eth0-xdp-0 (sfc)
    (re.compile(r"(?:[tr]x|input|output|comp|fp|q|xdp)[-.]?(\d+)(?:@\S*)?$", re.IGNORECASE), 0),
    (re.compile(r"^mlx4-(\d+)@"), 1),  # 0 is mlx4-async
    (re.compile(r"^mana_msi(\d+)@"), 1),  # 0 is mana_hwc
    (re.compile(r"ntfy-bl(?:k|ock\.)(\d+)(?:@\S*)?$"), 0),  # gve
    (re.compile(r"^[\w.]+-(\d+)$"), 0),  # sfc: eth0-0
)

# A virtio device has no interrupts of its own: they are those of the PCI device above it. $1: the interface.
_NAMES = """
cd "/sys/class/net/$1/device" || exit 0
[ -d msi_irqs ] || { [ "$(basename "$(readlink subsystem)")" = virtio ] && cd -P .. ; }
for irq in $(ls msi_irqs 2>/dev/null); do sed -n "s/^ *$irq: .* //p" /proc/interrupts | sed "s/^/$irq /"; done
"""

# Pairs of interrupt and CPU. effective_affinity_list is no help: an interrupt moves when it next fires.
_PLACE = """
while [ $# -gt 1 ]; do
    (echo "$2" >"/proc/irq/$1/smp_affinity_list") 2>/dev/null
    cat "/proc/irq/$1/smp_affinity_list"
    shift 2
done
"""


def queue_of(interrupt: str) -> int | None:
    """Return the queue that an interrupt's name tells; None for another purpose, such as link changes."""
    matches = ((pattern.search(interrupt), first) for pattern, first in _QUEUES)
    return next((int(match[1]) - first for match, first in matches if match), None)


def queues_of(named: Sequence[tuple[str, str]], interface: str) -> dict[str, int]:
    """Return the queue of each interrupt that serves one, by its number; ``named``: number and name of each."""
    ordered = sorted(named, key=lambda pair: int(pair[0]))
    if len(ordered) > 1 and all(name == interface for _, name in ordered):  # atlantic: in the order of its vectors
        return {number: at for at, (number, _) in enumerate(ordered)}
    queues = {number: queue for number, name in ordered if (queue := queue_of(name)) is not None}
    halves = (
        sum("ntfy-bl" in name for _, name in ordered) // 2
    )  # gve: first the sending blocks, then the receiving ones
    return {number: queue % halves for number, queue in queues.items()} if halves else queues


def place_interrupts(host: Host, interface: str, cpus: Sequence[int]) -> dict[int | str, str]:
    """Give each queue of a card one of ``cpus``, in turn; return the CPUs that serve it now, by queue.

    The result differs from the request if the driver manages its interrupts by itself. It is empty on a veth. If a
    device has several interrupts and no name tells a queue, none is placed, and `unknown` lists the names. Raises
    HostError if the host cannot be asked.
    """
    lines = host.run(["sh", "-c", _NAMES, "sh", interface]).text.splitlines()
    named = [(number, name) for number, _, name in (line.partition(" ") for line in lines)]
    queues = queues_of(named, interface)
    if len(named) > 1 and not queues:
        return {"unknown": ", ".join(name for _, name in named)}
    pairs = [word for number, queue in queues.items() for word in (number, str(cpus[queue % len(cpus)]))]
    obtained = host.run(["sh", "-c", _PLACE, "sh", *pairs]).text.split() if pairs else []
    served: dict[int, set[str]] = {}
    for queue, serving in zip(queues.values(), obtained, strict=True):
        served.setdefault(queue, set()).add(serving)
    return {queue: ",".join(sorted(served[queue])) for queue in sorted(served)}
