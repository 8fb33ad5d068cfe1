"""Which CPU serves a card's queue: the interrupts of queue q go to the q-th of a host's CPUs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from xdplab.hosts import Host

# The name of a queue's interrupt ends with the queue: eth0-TxRx-0 (Intel, bnxt_en), eth0-Tx-Rx-0 (ena), eth0-rxtx-0
# (vmxnet3, nfp), eth0-rx-0 and eth0-tx-0 (igb with separate ones), mlx5_comp0@pci:0000:3b:00.0, virtio1-input.0.
_QUEUE = re.compile(r"(?:[tr]x|input|output|comp)[-.]?(\d+)(?:@\S*)?$", re.IGNORECASE)

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
    found = _QUEUE.search(interrupt)
    return int(found[1]) if found else None


def place_interrupts(host: Host, interface: str, cpus: Sequence[int]) -> dict[int, str]:
    """Give each queue of a card one of ``cpus``, in turn; return the CPUs that serve it now, by queue.

    The result differs from the request if the driver manages its interrupts by itself. It is empty if no
    interrupt's name tells a queue, as on a veth. Raises HostError if the host cannot be asked.
    """
    lines = host.run(["sh", "-c", _NAMES, "sh", interface]).text.splitlines()
    named = [(number, queue_of(name)) for number, _, name in (line.partition(" ") for line in lines)]
    queues = {number: queue for number, queue in named if queue is not None}
    pairs = [word for number, queue in queues.items() for word in (number, str(cpus[queue % len(cpus)]))]
    obtained = host.run(["sh", "-c", _PLACE, "sh", *pairs]).text.split() if pairs else []
    served: dict[int, set[str]] = {}
    for queue, serving in zip(queues.values(), obtained, strict=True):
        served.setdefault(queue, set()).add(serving)
    return {queue: ",".join(sorted(served[queue])) for queue in sorted(served)}
