"""The AF_XDP application on the DUT: types for afxdp_user's lines.

Its counts are exact after traffic has ended and settled; during traffic they are a snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdplab.errors import ProgramError, UnsupportedError
from xdplab.hosts import Host
from xdplab.hosts.tool import ToolSession, fields

_REFUSALS = {
    "bind": UnsupportedError,
    "attach": UnsupportedError,
    "workload": ProgramError,
    "init": ProgramError,
}


@dataclass(frozen=True)
class AfxdpRequest:
    """The options of afxdp_user. Paths are on the host; ``fifo`` is a real-time priority, ``busy`` spins.

    With ``frame_bytes`` (FCS included) it counts the frames that are not test frames of these sizes, ``vlan``,
    ``ip_version`` and ``run_id``. With ``frags`` a frame may have several descriptors.
    """

    interface: str
    queues: int
    workload: str
    attach: str = "native"
    bind: str = "copy"
    init: str | None = None
    cpus: tuple[int, ...] = ()
    fifo: int | None = None
    batch: int | None = None
    busy: bool = False
    run_id: str | None = None
    frame_bytes: tuple[int, ...] = ()
    vlan: int | None = None
    ip_version: int = 4
    frags: bool = False

    def argv(self, binary: str) -> list[str]:
        """Return the command line."""
        options = {
            "--interface": self.interface,
            "--queues": self.queues,
            "--attach": self.attach,
            "--bind": self.bind,
            "--workload": self.workload,
            "--init": self.init,
            "--cpus": ",".join(map(str, self.cpus)) or None,
            "--fifo": self.fifo,
            "--batch": self.batch,
            "--run-id": self.run_id,
            "--frame-bytes": ",".join(map(str, self.frame_bytes)) or None,
            "--vlan": self.vlan,
            "--ip-version": None if self.ip_version == 4 else self.ip_version,
        }
        words = [word for name, value in options.items() if value is not None for word in (name, str(value))]
        return [binary, *words, *["--busy"] * self.busy, *["--frags"] * self.frags]


@dataclass(frozen=True)
class QueueReady:
    """One socket as obtained."""

    queue: int
    cpu: int
    bind_obtained: str


@dataclass(frozen=True)
class AfxdpReady:
    """The application forwards; ``mode_obtained`` is the mode of its attached XDP program, native or generic."""

    queues: tuple[QueueReady, ...]
    program_id: int
    mode_obtained: str
    sched_policy: str

    @property
    def bind_obtained(self) -> str:
        """Return copy or zerocopy; ``mixed`` where the queues differ."""
        kinds = {queue.bind_obtained for queue in self.queues}
        return kinds.pop() if len(kinds) == 1 else "mixed"


@dataclass(frozen=True)
class QueueStats:
    """Frames since the start. ``rx_dropped`` contains those of the empty fill ring; ``tx_dropped`` were received.

    ``rx_foreign`` of ``rx`` were not test frames, and were sent back with the others. It is None if the application was
    not told what a test frame is.
    """

    queue: int
    rx: int
    tx: int
    tx_dropped: int
    tx_pending: int
    rx_dropped: int
    rx_ring_full: int
    fill_ring_empty: int
    rx_invalid: int
    wakeups: int
    polls: int
    rx_foreign: int | None


@dataclass(frozen=True)
class Stats:
    """All queues, the frames of queues without a socket (dropped), and the application's CPU time."""

    queues: tuple[QueueStats, ...]
    unbound_packets: int
    cpu_ns: int

    def total(self, name: str) -> int:
        """Return one counter's sum over the queues."""
        return sum(int(getattr(queue, name)) for queue in self.queues)

    def foreign(self) -> int | None:
        """Return the number of frames that were not test frames, or None if a queue did not check."""
        counts = [queue.rx_foreign for queue in self.queues]
        return None if None in counts else sum(count for count in counts if count is not None)


class AfxdpForwarder(ToolSession):
    """The session of one application: its program and sockets end with it.

    Raises UnsupportedError if the driver lacks zero-copy or the attach mode, ProgramError if the workload cannot be
    used, HostError otherwise.
    """

    def __init__(self, host: Host, binary: str, request: AfxdpRequest, *, deadline_s: float) -> None:
        self.request = request
        super().__init__(host, request.argv(binary), deadline_s=deadline_s, refusals=_REFUSALS)
        try:
            self.open()
            self.ready = fields(AfxdpReady, self.read("ready"))
        except BaseException:  # also Ctrl-C and SIGTERM: this process is known to no other place yet
            self.close()
            raise

    def stats(self) -> Stats:
        """Return the counters since the start."""
        return fields(Stats, self.ask("stats", "stats"))

    def stop(self) -> Stats:
        """Detach, forward the frames that are still in the rings, and return the last counters."""
        return fields(Stats, self.finish(["stats", "detached"])[0])


def forward(host: Host, binary: str, request: AfxdpRequest, *, deadline_s: float = 600.0) -> AfxdpForwarder:
    """Start forwarding; the returned session must be ended by `stop` or its ``with`` block."""
    return AfxdpForwarder(host, binary, request, deadline_s=deadline_s)
