"""A lab with a numbered stream of frames, a listener behind the DUT's XDP, and the changes that are made meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

from xdplab.deploy.queues import Endpoint
from xdplab.deploy.xdp import AttachedProgram, XdpLoader, XdpRequest, attach, await_nothing_attached
from xdplab.errors import HostError, UnsupportedError
from xdplab.formats.ethtool import parse_driver
from xdplab.formats.reading import as_list, as_object, json_of, lines_of
from xdplab.generators import Generator, GeneratorSettings
from xdplab.hosts.tool import ToolSession, fields
from xdplab.labs import Lab
from xdplab.programs.build import build
from xdplab.programs.program import cache_directory
from xdplab.programs.spec import UserProgram
from xdplab.studies.guests import tool_in
from xdplab.studies.outage.points import BARE, CHANGES, FIRST, OTHER_MODE, SECOND, Change, OutagePoint
from xdplab.studies.places import PlaceFacts


class FrameRun(NamedTuple):
    """Frames whose numbers follow each other, with one mark, as `listen.py` prints them."""

    first: int
    last: int
    mark: int
    held_ns: int


@dataclass(frozen=True)
class Gaps:
    """``lost`` numbers are missing between the first and the last frame that came, ``longest`` of them in one run.

    ``bare`` frames came between the programs. ``held_ns`` is the most that a frame was later on its way than the frame
    before it.
    """

    came: int
    lost: int
    longest: int
    bare: int
    held_ns: int


def gaps_of(runs: Sequence[FrameRun], change: Change) -> Gaps:
    """Return what was lost. Raises HostError unless the change lies within these frames."""
    if not runs:
        raise HostError("no test frame reached the DUT's stack", remedy="`xdplab doctor` tests the lab")
    if (runs[0].mark, runs[-1].mark) != change:
        raise HostError(
            f"the first frame has mark {runs[0].mark}, the last {runs[-1].mark}, where {change.before} and "
            f"{change.after} are due: the change is not within the burst",
            remedy="a longer --window-s",
        )
    holes = _holes(runs)
    marked = [index for index, run in enumerate(runs) if run.mark != BARE]
    between = runs[marked[0] : marked[-1]] if marked else []
    return Gaps(
        came=sum(map(_size, runs)),
        lost=sum(holes),
        longest=max(holes, default=0),
        bare=sum(_size(run) for run in between if run.mark == BARE),
        held_ns=max(run.held_ns for run in runs),
    )


def _holes(runs: Sequence[FrameRun]) -> list[int]:
    """Return the sizes of the runs of numbers that did not come; a frame that was overtaken, or came twice, is none."""
    holes, last = [], min(run.first for run in runs) - 1
    for run in sorted(runs):
        if run.first > last + 1:
            holes.append(run.first - last - 1)
        last = max(last, run.last)
    return holes


def _size(run: FrameRun) -> int:
    return run.last - run.first + 1


HEARD, SENT = "heard.jsonl", "sent.jsonl"
RUN_ID = "0b9"
MAGIC = f"{0x78646C62 ^ int(RUN_ID, 16):08x}"
"""As native/common/payload.h has it."""
SOURCE, NOBODY = "02:78:64:6c:62:00", "02:00:00:00:00:00"
"""The last byte of the sender's MAC is the mark. The DUT's stack drops frames to nobody, and routes none on."""
BEFORE_S = 0.3
"""When in the window the change is made."""
SESSION_S = 120.0
_MARKER = Path(__file__).parent / "programs" / "mark.bpf.c"
_LISTENER = Path(__file__).parent / "listen.py"


@dataclass
class OutageFacts(PlaceFacts):
    """A trial's facts: the driver of the DUT's port, and how late the sender was at most, in ns."""

    driver: str | None = None
    late_ns: int | None = None


@dataclass(frozen=True)
class OutageBench:
    """Paths are the DUT's, but ``xdpgen``'s, which is the TG's."""

    lab: Lab
    xdpgen: str
    xdpload: str
    listener: str
    programs: dict[int, str]
    driver: str

    @classmethod
    def at(cls, lab: Lab) -> OutageBench:
        """Put all that is needed on both hosts. Raises UnsupportedError for a lab with another generator."""
        if lab.generator.by_dpdk:
            raise UnsupportedError(f"lab {lab.name}: the outage study sends with xdpgen, not {lab.generator.kind}")
        folder = f"{lab.work_dir(lab.dut)}/outage"
        programs = {}
        for number in (FIRST, SECOND):
            program = build(UserProgram(str(_MARKER), cflags=(f"-DNUMBER={number}",)), cache_directory())
            programs[number] = f"{folder}/mark-{number}.bpf.o"
            lab.dut.put(program.object, programs[number])
        lab.dut.put(_LISTENER, f"{folder}/{_LISTENER.name}")
        return cls(
            lab,
            tool_in(lab, lab.tg, "xdpgen"),
            tool_in(lab, lab.dut, "xdpload"),
            f"{folder}/{_LISTENER.name}",
            programs,
            parse_driver(lab.dut.run(["ethtool", "-i", lab.dut_interface]).stdout),
        )

    def measure(self, point: OutagePoint, raw: Path, facts: OutageFacts) -> None:
        """Send a burst with the change in its middle, and write what was sent and what came into ``raw``."""
        facts.driver = self.driver
        await_nothing_attached(self.lab.dut, self.lab.dut_interface)
        with self._listening(point) as listener, self._sending(point) as generator:
            with self._changing(point) as change, ThreadPoolExecutor(1) as meanwhile:
                burst = meanwhile.submit(generator.burst, "outage", point.window_s)
                time.sleep(BEFORE_S)
                try:
                    change()
                finally:
                    summary = burst.result().summary
                heard = listener.ask("heard", "heard")
            generator.stop()
            (raw / HEARD).write_text(listener.raw)
            (raw / SENT).write_text(generator.raw)
        facts.late_ns = summary.tx_late_max_ns
        if heard["dropped"]:
            raise HostError(f"the listener's ring had no room for {heard['dropped']} frames", remedy="a lower rate")
        gaps_of(heard_in(raw), CHANGES[point.event])

    @contextmanager
    def _listening(self, point: OutagePoint) -> Iterator[ToolSession]:
        slots = 2 * round(point.rate_pps * point.window_s) + 1000
        argv = ["python3", "-I", self.listener, self.lab.dut_interface, MAGIC, str(slots)]
        with ToolSession(self.lab.dut, argv, deadline_s=SESSION_S) as listener:
            listener.open()
            listener.read("listening")
            yield listener

    @contextmanager
    def _sending(self, point: OutagePoint) -> Iterator[Generator]:
        """Each frame by itself: those of a batch would be lost together.

        AF_XDP, because live frames are made within BPF: on a veth they kept the kernel's grace periods waiting, so that
        a switch took ten times as long.
        """
        settings = GeneratorSettings(
            "afxdp",
            self.lab.tg_interface,
            cpus=self.lab.cpus().tg[:1],
            batch=1,
            rate_pps=float(point.rate_pps),
            run_id=RUN_ID,
        ).changed(flows=1, src_mac=SOURCE, dst_mac=NOBODY)
        with Generator(self.lab.tg, settings, self.xdpgen, deadline_s=SESSION_S) as generator:
            generator.start()
            self.lab.place(self.lab.arrangement, 1)
            self._await_link()
            yield generator

    @contextmanager
    def _changing(self, point: OutagePoint) -> Iterator[Callable[[], object]]:
        """Give what makes the change: one command, or two. All programs are loaded before."""
        mode, event = point.mode, point.event
        with ExitStack() as stack:
            first = stack.enter_context(self._loaded(FIRST, mode))
            if event == "attach":
                yield lambda: attach_loaded(first)
                return
            attach_loaded(first)
            self._await_link()
            if event in ("replace", "switch"):
                second = stack.enter_context(self._loaded(SECOND, OTHER_MODE[mode] if event == "switch" else mode))
            changes: dict[str, Callable[[], object]] = {
                "control": lambda: None,
                "replace": lambda: first.exchange(second),
                "detach": first.detach,
                "switch": lambda: switch(first, second),
            }
            yield changes[event]

    def _await_link(self) -> None:
        """A card that a program has reset, also the receiver of the TG's, negotiates its link anew, for seconds."""
        for end in (Endpoint(self.lab.dut, self.lab.dut_interface), Endpoint(self.lab.tg, self.lab.tg_interface)):
            end.await_link()

    def _loaded(self, number: int, mode: str) -> XdpLoader:
        request = XdpRequest(self.programs[number], self.lab.dut_interface, mode, share_maps=())
        return attach(self.lab.dut, self.xdpload, request, deadline_s=SESSION_S)


def attach_loaded(loader: XdpLoader) -> None:
    """Attach a program that is loaded. Raises UnsupportedError where the driver lacks the mode."""
    loader.attached = fields(AttachedProgram, loader.ask("attach", "attached"))


def switch(first: XdpLoader, second: XdpLoader) -> None:
    """The kernel takes no program in another mode before the first one is off."""
    first.detach()
    attach_loaded(second)


def heard_in(raw: Path) -> list[FrameRun]:
    """Return the runs that the listener heard. Raises FormatError."""
    *_, last = lines_of((raw / HEARD).read_bytes(), _LISTENER.name)
    heard = as_object(json_of(last, _LISTENER.name), _LISTENER.name)
    return [FrameRun(*map(int, cast("list[int]", run))) for run in as_list(heard["runs"], "runs")]
