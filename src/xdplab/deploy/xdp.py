"""An XDP program on the DUT: loaded and owned by xdpload, and verified with the kernel's own report.

This module gives types to xdpload's lines, and classes to its errors.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from xdplab.errors import HostError, UnsupportedError
from xdplab.hosts import CommandRunner, Host
from xdplab.hosts.tool import PROGRAM_REFUSALS, Message, ToolSession, fields

LET_GO_S = 40.0
"""Seconds for the host to notice that a connection is dead (15), and for a tool to end after its burst."""
LOOK_S = 0.2
_KERNEL_MODES = {1: "native", 2: "generic", 3: "offload"}  # enum XDP_ATTACHED_* of linux/if_link.h
_REFUSALS = {**PROGRAM_REFUSALS, **dict.fromkeys(("attach", "alternate", "exchange"), UnsupportedError)}
# Offload asks the driver already at load; the program was shown to be valid by a load in another mode.
_OFFLOAD_REFUSALS = _REFUSALS | dict.fromkeys(("load", "offload map"), UnsupportedError)


@dataclass(frozen=True)
class Loaded:
    """A program in the kernel; times in ns, ``load_ns`` is BPF_PROG_LOAD alone. It is bound to the interface
    ``device``, if it calls its driver's kfuncs."""

    program_id: int
    tag: str
    name: str
    load_ns: int
    open_ns: int
    verified_insns: int | None
    xlated_bytes: int
    xlated_insns: int
    jited_bytes: int
    jit: bool
    map_ids: tuple[int, ...]
    record_maps: int
    device: str | None


@dataclass(frozen=True)
class AttachedProgram:
    """How the program is attached; ``mode_obtained`` is the mode that the kernel reports, null if it is not there."""

    mode_obtained: str | None
    attach_ns: int


@dataclass(frozen=True)
class RunStats:
    """BPF run-time statistics of the program since it was loaded."""

    run_time_ns: int
    run_cnt: int


ACTIONS = ("aborted", "drop", "pass", "tx", "redirect", "other")
"""The actions of a program, as xdpload counts them; ``other`` is every code that XDP does not define."""


@dataclass(frozen=True)
class RedirectTarget:
    """Where a program redirected frames to: a ``device``, a ``cpu``, a ``socket`` or ``other``, and its name there; or
    a ``broadcast``: the names of the devices that took its frames, each of which ``arrived`` at each of them.

    The kernel ``accepted`` or ``refused`` each frame for it. ``arrived`` counts those that the device sent or the
    CPU's thread read, ``dropped`` those lost on the way there. ``busy_ns`` is that thread's CPU time from the first
    to the last batch. None means that the kernel does not report it.
    """

    kind: str
    name: str | None
    accepted: int
    refused: int
    arrived: int | None
    dropped: int | None
    busy_ns: int | None


@dataclass(frozen=True)
class Decided:
    """Frames by action, and the targets of redirects; ``targets_missing`` says why there are none."""

    actions: Mapping[str, int]
    targets: tuple[RedirectTarget, ...] | None
    targets_missing: str | None


@dataclass(frozen=True)
class PortFrame:
    """A frame of a test run: the size of a test frame with FCS, or its bytes without; from the port's ``queue``."""

    frame: int | bytes
    queue: int = 0

    def __str__(self) -> str:
        return f"0x{self.frame.hex()}" if isinstance(self.frame, bytes) else f"{self.frame}"


@dataclass(frozen=True)
class Outcomes:
    """Packets that were each an unchanged frame: their actions, and how many the program changed.

    ``call_ns`` is the mean of the kernel's own time around one packet.
    """

    actions: Mapping[str, int]
    changed: int
    call_ns: float


@dataclass(frozen=True)
class FreshRuns:
    """Means of the kernel's own time around one packet, in each run; of the program and of an empty one.

    ``empty_ns`` is what the empty program costs per packet of many in one buffer. So call_ns - empty_call_ns + empty_ns
    is on the scale of `XdpLoader.testrun`.
    """

    call_ns: tuple[float, ...]
    empty_call_ns: tuple[float, ...]
    empty_ns: float
    actions: Mapping[str, int]


@dataclass(frozen=True)
class RecordCounts:
    """Records that xdpload has read from the program's ring buffers and perf event arrays since it was loaded.

    ``ring_full`` counts the moments when a ring had no room for another record, ``perf_lost`` what the kernel says it
    lost. ``others``: another process reads them too, and xdpload has stopped. ``reader_ns`` is the reader's CPU time;
    ``cpus`` are those on which it ran since the last counts.
    """

    ring_records: int
    ring_full: int
    perf_records: int
    perf_lost: int
    others: bool
    reader_ns: int
    cpus: tuple[int, ...]


@dataclass(frozen=True)
class XdpRequest:
    """What xdpload loads, and how. ``mode`` none loads without attaching; paths are on the host.

    ``options`` are more of its options, such as those that choose the program. ``init`` fills maps when the program is
    loaded, ``entries`` when `XdpLoader.fill` says so; both are files. With ``count_actions``, 17 instructions
    before the program count its actions: this changes its cost. With ``share_maps``, the ids of another load's maps, it
    is not attached: `exchange` puts it in the other's place.
    """

    object: str
    interface: str
    mode: str
    section: str | None = None
    program: str | None = None
    rodata: Mapping[str, Any] = field(default_factory=dict)
    init: Mapping[str, str] = field(default_factory=dict)
    max_entries: Mapping[str, int | str] = field(default_factory=dict)
    entries: Mapping[str, str] = field(default_factory=dict)
    count_actions: bool = False
    share_maps: tuple[int, ...] | None = None
    options: tuple[str, ...] = ()

    def argv(self, binary: str) -> list[str]:
        """Return the command line."""
        named = [("--section", self.section), ("--program", self.program)]
        rodata = {name: int(v) if isinstance(v, bool) else v for name, v in self.rodata.items()}
        pairs = [
            ("--rodata", rodata),
            ("--init", self.init),
            ("--max-entries", self.max_entries),
            ("--entries", self.entries),
        ]
        argv = [binary, "--object", self.object, "--interface", self.interface, "--mode", self.mode]
        argv += [word for option, value in named if value is not None for word in (option, value)]
        argv += [*self.options, *["--count-actions"] * self.count_actions]
        if self.share_maps is not None:
            argv += ["--share-maps", ",".join(map(str, self.share_maps)) or "none"]
        return argv + [word for option, values in pairs for k, v in values.items() for word in (option, f"{k}={v}")]


class XdpLoader(ToolSession):
    """The session of one program on one interface: no program stays attached after it.

    Raises UnsupportedError if the driver lacks the mode (with its reason), ProgramError if the object is invalid or the
    verifier refuses it, HostError otherwise.
    """

    def __init__(self, host: Host, binary: str, request: XdpRequest, *, deadline_s: float) -> None:
        self.request = request
        classes = _OFFLOAD_REFUSALS if request.mode == "offload" else _REFUSALS
        super().__init__(host, request.argv(binary), deadline_s=deadline_s, refusals=classes)
        try:
            self.open()
            self.loaded: Loaded = fields(Loaded, self.read("loaded"))
            self.attached: AttachedProgram | None = self._read_attached()
        except BaseException:  # also Ctrl-C and SIGTERM: this process is known to no other place yet
            self.close()
            raise

    def _read_attached(self) -> AttachedProgram | None:
        if self.request.mode == "none" or self.request.share_maps is not None:
            return None
        return self._as_asked(self.read("attached"))

    def _as_asked(self, line: Message) -> AttachedProgram:
        """Return what the kernel told xdpload. Raises HostError if the program is not attached as asked."""
        attached, request = fields(AttachedProgram, line), self.request
        if attached.mode_obtained != request.mode:
            raise HostError(
                f"{self.host.name}: {request.interface} should run program {self.loaded.program_id} in {request.mode} "
                "mode first, but the kernel says it does not",
                remedy="detach programs that do not belong to this lab",
            )
        return attached

    def in_kernel(self, reader: CommandRunner) -> InKernel:
        """Return what the kernel says of the attached program; raise HostError if it is not there as asked.

        ``reader`` asks in the modes of XDP, xdpload in those of tc, which older tools do not show.
        """
        loaded, request = self.loaded, self.request
        if request.mode in _KERNEL_MODES.values():
            return verify(reader, request.interface, program_id=loaded.program_id, mode=request.mode)
        self._as_asked(self.ask("attached", "attached"))
        return InKernel(request.mode, loaded.program_id, loaded.name, loaded.tag, loaded.jit)

    def testrun(self, frame: int | bytes, repeat: int, runs: int) -> list[float]:
        """Return ns per packet of each of ``runs`` BPF_PROG_TEST_RUN calls of ``repeat`` packets in one buffer.

        ``frame`` is the size of a test frame with its FCS, or the bytes of a frame without it.

        Raises ProgramError if the kernel refuses to run the program in this way.
        """
        return self.testruns([PortFrame(frame)], repeat, runs)[0]

    def testruns(self, frames: Sequence[PortFrame], repeat: int, runs: int) -> list[list[float]]:
        """Do `testrun` with each of ``frames``."""
        answers = self.ask_each([f"testrun {f} {repeat} {runs} {f.queue}" for f in frames], "testrun")
        return [[float(value) for value in answer["ns"]] for answer in answers]

    def give(self, frames: Sequence[PortFrame]) -> None:
        """Give the frames of `outcomes` and `fresh_runs`, which the program sees in turn, unchanged each time."""
        self.ask("\n".join([f"frames {len(frames)}", *(f"{f} {f.queue}" for f in frames)]), "frames")

    def outcomes(self, rounds: int) -> Outcomes:
        """Return what the program makes of the frames in so many rounds."""
        return fields(Outcomes, self.ask(f"outcomes {rounds}", "outcomes"))

    def fresh_runs(self, rounds: int, runs: int) -> FreshRuns:
        """Measure ``runs`` times so many rounds."""
        return fields(FreshRuns, self.ask(f"fresh {rounds} {runs}", "fresh"))

    def fill(self) -> None:
        """Put the plan's entries into the maps of this load, and read them back. Raises ProgramError."""
        if self.request.entries or "--map" in self.request.options:
            self.ask("fill", "filled")

    def count(self, table: str = "") -> list[int]:
        """Return the accesses a counting build has made since it was loaded, or the sums of a map's values."""
        return list(self.ask(f"count {table}".strip(), "count")["values"])

    def records(self) -> RecordCounts | None:
        """Return what the program's reader has counted, once it has caught up; None if the program has no records."""
        return fields(RecordCounts, self.ask("records", "records")) if self.loaded.record_maps else None

    def decided(self) -> Decided:
        """Return the actions of the program, loaded with ``count_actions``, since then."""
        answer = self.ask("decided", "decided")
        return fields(Decided, answer | {"actions": {name: answer.get(name) for name in ACTIONS}})

    def bpf_stats(self, enabled: bool) -> None:
        """Switch BPF run-time statistics; they end with this session at the latest."""
        self.ask(f"bpf_stats {'on' if enabled else 'off'}", "bpf_stats")

    def stats_cost(self) -> float:
        """Return the run time that the statistics report for an empty program: their own cost, in ns per run."""
        answer = fields(RunStats, self.ask("stats_cost", "stats_cost"))
        return answer.run_time_ns / answer.run_cnt

    def runstats(self) -> RunStats:
        """Return the program's run time and run count."""
        return fields(RunStats, self.ask("runstats", "runstats"))

    def begin_slices(self, other: XdpLoader, slice_s: float, pairs: int, seed: int) -> None:
        """Let ``other``'s program take turns with this one, starting with the first frame that the interface receives.

        Each program has ``pairs`` slices of ``slice_s``; ``seed`` decides which goes first in each pair. Raises
        UnsupportedError if the kernel cannot exchange them.
        """
        request = f"alternate {other.loaded.program_id} {round(slice_s * 1e6)} {pairs} {seed}"
        self.ask(request, "ready")

    def await_slices(self, within_s: float) -> None:
        """Wait until all slices are measured; this program is attached again then. They are in `raw`."""
        self.read("alternated", within_s)

    def exchange(self, other: XdpLoader) -> None:
        """Attach ``other``'s program in the place of the attached one, or this one again.

        Raises UnsupportedError if the kernel cannot exchange them.
        """
        self.ask(f"exchange {other.loaded.program_id}", "exchanged")

    def detach(self) -> None:
        """Release program and interface, and wait for the end."""
        self.finish(["detached"])


def attach(host: Host, binary: str, request: XdpRequest, *, deadline_s: float = 600.0) -> XdpLoader:
    """Load and attach; the returned session must be ended by `detach` or its ``with`` block."""
    return XdpLoader(host, binary, request, deadline_s=deadline_s)


@dataclass(frozen=True)
class InKernel:
    """The state of an interface from ``ip -j -d link``; ``mode`` and ``program_id`` are None if no program is
    attached."""

    mode: str | None
    program_id: int | None
    program_name: str | None
    tag: str | None
    jited: bool | None


def attached_program(host: CommandRunner, interface: str) -> InKernel:
    """Ask the kernel which program is attached. Raises HostError if both a native and a generic program are."""
    shown = host.run(["ip", "-j", "-d", "link", "show", "dev", interface])
    xdp = shown.row("ifindex").get("xdp")
    if not xdp:
        return InKernel(None, None, None, None, None)
    if xdp["mode"] not in _KERNEL_MODES:
        several = ", ".join(f"{_KERNEL_MODES.get(a['mode'])} {a['prog']['id']}" for a in xdp.get("attached", ()))
        raise HostError(f"{host.name}: {interface} carries several XDP programs at once: {several}")
    program = xdp.get("prog", {})
    mode = _KERNEL_MODES[xdp["mode"]]
    return InKernel(mode, program.get("id"), program.get("name"), program.get("tag"), bool(program.get("jited")))


def verify(host: CommandRunner, interface: str, *, program_id: int, mode: str) -> InKernel:
    """Return the attached program after checking that it is this one in this mode.

    A dispatcher in between would show up as another program's id. Raises HostError.
    """
    attached = attached_program(host, interface)
    if (attached.program_id, attached.mode) != (program_id, mode):
        raise HostError(
            f"{host.name}: {interface} should run program {program_id} in {mode} mode, "
            f"but the kernel says {_described(attached)}",
            remedy="detach programs that do not belong to this lab",
        )
    return attached


def await_nothing_attached(host: Host, interface: str, *, within_s: float = LET_GO_S) -> None:
    """Wait until the kernel has released what a lost connection or a killed process held.

    Raises HostError if a program stays attached.
    """
    until = time.monotonic() + within_s
    while (attached := attached_program(host, interface)).program_id is not None and time.monotonic() < until:
        time.sleep(LOOK_S)
    if attached.program_id is not None:
        raise HostError(
            f"{host.name}: {interface} already carries {_described(attached)}",
            remedy=f"detach it: ip link set dev {interface} xdp off; xdpgeneric off",
        )


def _described(attached: InKernel) -> str:
    if attached.program_id is None:
        return "nothing is attached"
    return f"program {attached.program_id} ({attached.program_name}) in {attached.mode} mode"
