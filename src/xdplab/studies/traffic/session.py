"""XDP traffic as a study of the runner: a session in a lab, its blocks, and the restoring afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from xdplab.counters.probe import CounterProbe, install
from xdplab.deploy.device import Applied, apply, queues_now, restore
from xdplab.deploy.guarded import DpdkPort, GuardedDevice, GuardedPort, put_all_back
from xdplab.deploy.kernel_settings import kept_sysctls, unthrottled
from xdplab.deploy.queues import Endpoint, of_each, set_queues
from xdplab.deploy.settings import XPS, Value
from xdplab.deploy.xdp import await_nothing_attached
from xdplab.errors import CutOffError, HostError, ResultsError, UnsupportedError, XdplabError
from xdplab.formats.ethtool import parse_rings
from xdplab.formats.generator import GeneratorReady
from xdplab.generators import Generator, GeneratorSettings
from xdplab.hosts import run_together
from xdplab.labs import Lab
from xdplab.labs.base import LinkEnds
from xdplab.plan import Plan, Point, ProgramFactors, Trial
from xdplab.plan.points import ETHERNET_MTU, SLICES
from xdplab.run.rundir import RunDirectory
from xdplab.run.waiting import WAITS
from xdplab.studies.traffic.limits import frame_key, link_rate, machine_of, refuse_way_out
from xdplab.studies.traffic.pdr import known_pdr
from xdplab.studies.traffic.prepare import Prepared, Tools, TrialContext, build_tools, generator_of, prepare_programs
from xdplab.studies.traffic.run_files import rivals
from xdplab.studies.traffic.sending import NOBODY, generator_alone, pieces_alone, serving_cpus
from xdplab.studies.traffic.trial import measure
from xdplab.studies.traffic.two_ports import second_port
from xdplab.studies.trial_facts import MachineFacts, Mended, TrialFacts
from xdplab.text import step

# With GRO every mode has the same path into the DUT: by NAPI. Without it the generic path depends on the sender.
LINK_SETTINGS = {"features.gro": True}

WHOLE_FRAMES = ("features.rxvlan", "features.txvlan")
"""Off for tagged frames: a port that takes tags off, or a veth that leaves tc's beside the frame, gives XDP another."""

OTHER_MACS = ("testpmd",)
"""Engines whose frames go to a MAC of their own, not to the DUT's."""

TRY_S = 120.0
"""The longest a generator may take to start and end that sends nothing."""


def endpoints(lab: Lab) -> tuple[Endpoint, ...]:
    """The ends of the link that the kernel has: the DUT's, and the TG's unless DPDK has it."""
    dut = Endpoint(lab.dut, lab.dut_interface)
    return (dut,) if lab.generator.by_dpdk else (dut, Endpoint(lab.tg, lab.tg_interface))


def second_endpoints(lab: Lab, ends: LinkEnds | None) -> tuple[Endpoint, ...]:
    """The ends of the second link, the DUT's first; none without one."""
    if ends is None:
        return ()
    dut = Endpoint(lab.dut, ends.dut_interface)
    return (dut,) if lab.generator.by_dpdk else (dut, Endpoint(lab.tg, ends.tg_interface))


def all_endpoints(lab: Lab) -> tuple[Endpoint, ...]:
    """The ends of all links that the lab has now: a run may have left something on each."""
    return endpoints(lab) + second_endpoints(lab, lab.second_link(make=False))


def queue_ends(lab: Lab) -> tuple[Endpoint, ...]:
    """The ends whose queue count is set; the DUT's first."""
    return endpoints(lab)[:1] if lab.generator.follows else endpoints(lab)


def _dpdk_port(lab: Lab) -> GuardedPort | None:
    """The TG's end, where it is a PCI device that DPDK takes from the kernel."""
    place = lab.generator
    if place.card is None:
        return None
    port = DpdkPort(place.card, place.driver, place.hugepages)
    return GuardedPort(lab.tg, port, lab.state_dir(lab.tg))


def try_generator(lab: Lab) -> GeneratorReady:
    """Start the lab's generator without sending, and return what it obtained; its port is then given back.

    Raises HostError or UnsupportedError with its own words, LabError if a run holds the lab.
    """
    with lab.lock("doctor"), _with_port(lab):
        place = generator_of(lab)
        engine, able = next(iter(place.adapter.capabilities.items()))
        settings = GeneratorSettings(engine, place.port, cpus=lab.cpus().tg[:1]).changed(
            src_mac=lab.tg_mac, dst_mac=NOBODY, stamp="all" if "stamp" in able.can else "none", **able.addresses
        )
        with Generator(lab.tg, settings, place.program, adapter=place.adapter, deadline_s=TRY_S) as generator:
            ready = generator.start()
            generator.stop()
        return ready


@contextmanager
def _with_port(lab: Lab) -> Iterator[None]:
    port = _dpdk_port(lab)
    if port is None:
        yield
        return
    try:
        port.take()
        yield
    finally:
        port.put_back()


class TrafficSession:
    """One session of measuring in a lab: made before the first trial, everything put back after the last."""

    facts = TrialFacts

    def __init__(self, lab: Lab, run: RunDirectory, plan: Plan, trials: Sequence[Trial]) -> None:
        self._lab, self._run, self._plan, self._trials = lab, run, plan, trials
        self._stack = ExitStack()
        self._block: Sequence[Trial] = ()
        self._unthrottled = ExitStack()
        self._switched: dict[str, str] | None = None
        self._changed: dict[GuardedDevice, set[str]] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            two = any(trial.point.two_ports for trial in self._trials)
            self._second = second_port(self._lab) if two else None
            self._second_ends = second_endpoints(self._lab, self._second.ends if self._second else None)
            ports = [end.interface for end in self._ends if end.host is self._lab.dut]
            points = [trial.point for trial in self._trials]
            if any(point.program.setup for point in points):
                stack.enter_context(kept_sysctls(self._lab.dut))
            self._dut, *others = (
                GuardedDevice(end.host, end.interface, self._lab.state_dir(end.host)) for end in self._ends
            )
            self._held: list[GuardedDevice | GuardedPort] = [self._dut, *others]
            if (port := _dpdk_port(self._lab)) is not None:
                self._held.append(port)
            # A tap's queues follow its DUT's device: the DUT's, the first, is restored before it.
            stack.callback(put_all_back, self._held, at_once=not self._lab.generator.follows)
            stack.callback(self._unthrottled.close)
            with ThreadPoolExecutor() as meanwhile, step("building tools and programs"):
                tools = meanwhile.submit(build_tools, self._lab, points)
                programs = meanwhile.submit(self._all_prepared, tools.result)
                probes = meanwhile.submit(self._probes, tools.result)
                way_out = meanwhile.submit(refuse_way_out, self._lab.dut, ports, points)
                list(meanwhile.map(lambda held: held.take(), self._held))
                way_out.result()
                self._switch_off()
                self._context = self._made_context(tools.result(), probes.result, programs.result)
            stack.callback(lambda: self._context.close_probes())
            stack.callback(self._await_let_go)
            stack.callback(lambda: self._context.staying.end())
            self._stack = stack.pop_all()
        return self

    @property
    def _ends(self) -> tuple[Endpoint, ...]:
        return endpoints(self._lab) + self._second_ends

    def _await_let_go(self) -> None:
        """A killed generator is gone before its program is off the link; until then no queue can be set.

        A veth's features, too, change with what is attached to its peer.
        """

        def await_end(end: Endpoint) -> None:
            with suppress(HostError):  # the end of the session reports what it cannot restore
                await_nothing_attached(end.host, end.interface)

        of_each(self._ends, await_end)

    def _switch_off(self) -> None:
        """Hold throttling off if the plan asks for it. A holder whose connection is lost has released it."""
        with suppress(HostError):
            self._unthrottled.close()
        if self._plan.trial.throttling == "off":
            self._switched = self._unthrottled.enter_context(unthrottled(self._lab.tg))

    def _probes(self, tools: Callable[[], Tools]) -> tuple[CounterProbe, CounterProbe]:
        """Put what reads the counters of the DUT and of the TG there."""
        lab, made = self._lab, tools()
        dut, tg = f"{lab.work_dir(lab.dut)}/counters", f"{lab.work_dir(lab.tg)}/counters"
        with ThreadPoolExecutor() as meanwhile:
            of_tg = meanwhile.submit(install, lab.tg, "tg", lab.tg_interface, tg, reader=made.reader_on_tg)
            of_dut = install(lab.dut, "dut", lab.dut_interface, dut, reader=made.reader, sampler=made.sampler)
            return of_dut, of_tg.result()

    def _made_context(
        self,
        tools: Tools,
        probes: Callable[[], tuple[CounterProbe, CounterProbe]],
        programs: Callable[[], Mapping[ProgramFactors, Prepared]],
    ) -> TrialContext:
        """Ask what the trials need to know beside their ``programs``; only then wait for these."""
        lab, run = self._lab, self._run
        with ThreadPoolExecutor() as meanwhile:
            tg_machine = meanwhile.submit(machine_of, lab.tg)
            kernel = lab.dut.run(["uname", "-r"])
        dut_probe, tg_probe = probes()
        machine = MachineFacts(kernel=kernel.text.strip(), tg_machine=tg_machine.result(), switched_off=self._switched)
        return TrialContext(
            lab=lab,
            plan=self._plan,
            tools=tools,
            rivals=self._rivals(),
            dut_probe=dut_probe,
            tg_probe=tg_probe,
            run_id=run.run_id,
            machine=machine,
            pdr=known_pdr(run),
            link=link_rate(lab),
            second=self._second,
            programs=programs(),
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _rivals(self) -> dict[str, Point]:
        """Return the point that each point of a race by slices is raced against, by the latter's id."""
        sliced = {trial.point.point_id for trial in self._trials if SLICES in trial.point.passes}
        planned = next(self._run.journal.events("planned")).get("arrangement", self._lab.arrangement)
        return {b: a for b, a in rivals(self._plan, planned).items() if b in sliced}

    def _all_prepared(self, tools: Callable[[], Tools]) -> dict[ProgramFactors, Prepared]:
        return self._prepared([*(trial.point for trial in self._trials), *self._rivals().values()], tools)

    def _prepared(self, points: Sequence[Point], tools: Callable[[], Tools]) -> dict[ProgramFactors, Prepared]:
        return prepare_programs(self._lab, self._run, tools, points, retries=self._plan.trial.retries)

    def enter_block(self, trials: Sequence[Trial]) -> None:
        self._block = tuple(trials)
        try:
            self._set_block()
        except XdplabError:
            if self._lost() is None:
                raise
            self._mend()

    def _set_block(self) -> None:
        trials = self._block
        self._return_devices()
        applied = of_each(self._ends, lambda end: apply(end.host, end.interface, LINK_SETTINGS).require())
        applied += self._set_mtu(trials[0].point)
        for dut, *tg in filter(None, (queue_ends(self._lab), self._second_ends)):
            applied += set_queues(dut, tg[0] if tg else None, trials[0].point.queues)
        if any(trial.point.engine in OTHER_MACS for trial in trials):
            applied += self._receive_all()
        if any(trial.point.vlan != "none" for trial in trials):
            applied += self._receive_tags()
        applied += self._set_device(trials[0].point)
        applied += self._steer(max((trial.point for trial in trials), key=lambda point: point.ways))
        self._context.machine.settings = tuple(applied)
        self._test_generator(trials)

    def _set_mtu(self, point: Point) -> list[Applied]:
        """Give both ends an MTU for the point's frames; a larger one that a port had before the run is left."""
        if all(trial.point.mtu == ETHERNET_MTU for trial in self._trials):
            return []
        mtus = {held: max(int(held.before.values["link.mtu"]), point.mtu) for held in self._devices}
        return [apply(held.host, held.interface, {"link.mtu": mtu}).require() for held, mtu in mtus.items()]

    @property
    def _devices(self) -> list[GuardedDevice]:
        """The ends of the links that the kernel has."""
        return [held for held in self._held if isinstance(held, GuardedDevice)]

    def _set_for_block(self, device: GuardedDevice, wanted: Mapping[str, Value]) -> Applied:
        """Set what the next block does not set itself, and so finds as it was before the session."""
        self._changed.setdefault(device, set()).update(wanted)
        return apply(device.host, device.interface, wanted)

    def _return_devices(self) -> None:
        """Restore only the settings that a former block of this session changed."""
        if not self._changed:
            return
        self._await_let_go()
        for device, names in self._changed.items():
            before = device.before.with_queues(queues_now(device.host, device.interface))
            restore(device.host, device.interface, before.only(names))
        self._changed.clear()

    def _receive_all(self) -> list[Applied]:
        """Make the DUT's ports take frames to any MAC."""
        ports = [one for one in self._devices if one.host is self._lab.dut]
        return [self._set_for_block(port, {"link.promisc": True}).require() for port in ports]

    def _receive_tags(self) -> list[Applied]:
        """Make all ends give XDP frames with their tag, and the DUT's ports take any: a filter of tags has no id yet.

        A port that cannot be switched either has no such offload (a tap, virtio_net) or takes the tag off, and then
        the trial's frames come back altered.
        """
        names = WHOLE_FRAMES[: 1 + self._lab.virtual]  # a card puts tc's tags on the cable
        wanted = [(end, {name: False for name in names if name in end.before.values}) for end in self._devices]
        return [*self._receive_all(), *(self._set_for_block(end, off).require() for end, off in wanted if off)]

    def _set_device(self, point: Point) -> list[Applied]:
        """Set the plan's settings of the DUT's device. A number may be rounded, a switch must be as requested."""
        machine = self._context.machine
        machine.device = None
        if int(dict(point.device).get("link.mtu", point.mtu)) < point.mtu:
            raise UnsupportedError(f"device: a link.mtu below {point.mtu} has no room for the frames of {point}")
        if point.device:
            machine.device = self._set_for_block(self._dut, dict(point.device)).require(rounded=True)
        return [machine.device] if machine.device else []

    def _steer(self, point: Point) -> list[Applied]:
        """Make each CPU send by the queue that it receives by: in generic mode XDP_TX leaves the choice to XPS. Note
        the entries of one receive ring, which the same command reads.

        Without it a hash of the flow chooses, and with two queues half of the frames return over the other CPU. Added
        queues have no masks, so each block sets them again. A device without masks is left unchanged.
        """
        host, interface, serving = self._lab.dut, self._lab.dut_interface, serving_cpus(self._lab, point)
        rings, queues = run_together(host, [["ethtool", "-g", interface], XPS.question(interface)])
        masks, machine = XPS.values_in(queues), self._context.machine
        machine.rx_ring_entries = parse_rings(rings.stdout).current.rx if rings.ok else None  # veth does not say
        machine.xps = {queue: str(mask) for queue, mask in masks.items()} or None
        if serving is None or not masks:
            return []
        wanted = {f"xps.{queue}": f"{sum(1 << cpu for cpu in set(cpus)):x}" for queue, cpus in enumerate(serving)}
        done = apply(host, interface, wanted, {f"xps.{queue}": mask for queue, mask in masks.items()}).require()
        machine.xps = {name.partition(".")[2]: str(mask) for name, mask in done.obtained.items()}
        others = [apply(end.host, end.interface, wanted).require() for end in self._second_ends[:1]]
        return [done, *others]

    def _test_generator(self, trials: Sequence[Trial]) -> None:
        """Test the generator before the DUT has a program: its rate alone is the limit of every trial's load."""
        for point in (trial.point for trial in trials):
            if frame_key(point) not in self._context.alone:
                with self._lab.turn(WAITS.get()):
                    self._context.alone[frame_key(point)] = generator_alone(self._context, point)

    def measure(self, trial: Trial, raw: Path, facts: TrialFacts) -> None:
        with self._whole(facts), self._alone(facts):
            measure(self._context, trial, raw, facts)
            if "harness" in trial.point.passes:  # when the trial's own generator has released the device
                self._context.staying.end()
                facts.harness = pieces_alone(self._context, trial.point, raw)

    @contextmanager
    def _alone(self, facts: TrialFacts) -> Iterator[None]:
        began = time.monotonic()
        with self._lab.turn(WAITS.get()):
            facts.waited_s = round(time.monotonic() - began, 6)
            yield

    def require_watched(self) -> None:
        """Raise HostError if a watchdog is gone: it has restored its device, so the settings of the run are lost."""
        for held in self._held:
            held.require()

    @contextmanager
    def _whole(self, facts: TrialFacts) -> Iterator[None]:
        """Make sure that the block's settings hold before and after.

        State that a lost connection took is made again first, and recorded in ``facts``. Raises CutOffError if a
        connection is lost meanwhile, HostLostError if the host does not come back.
        """
        if (why := self._lost()) is not None:
            booted, took_s = self._mend()
            facts.mended = Mended(why, booted, took_s)
        try:
            yield
            self.require_watched()
        except ResultsError:
            raise
        except XdplabError as error:
            if (why := self._lost()) is None:
                raise
            for held in self._held:
                held.host.await_return()
            raise CutOffError(f"{error.message}: {why}" if why != error.message else why) from error

    def _lost(self, *some: GuardedDevice) -> str | None:
        """Return which watchdog (of ``some``, else of all) is gone, and what its connection held; None if none is."""
        try:
            for held in some or self._held:
                held.require()
        except HostError as error:
            return error.message
        return None

    def _mend(self) -> tuple[tuple[str, ...], float]:
        """Reconnect to the hosts, take their locks and devices again, and set up the block again.

        Returns the hosts that rebooted, and the seconds it took.

        A host that rebooted gets its tools and programs again. Raises HostChangedError if it came back
        with another kernel or other settings.
        """
        began = time.monotonic()
        for held in self._held:
            held.host.await_return()
        self._lab.regain()
        with suppress(XdplabError):  # they were lost with the connection
            self._context.staying.end()
        self._context.close_probes()
        self._switch_off()
        booted = tuple(held.host.name for held in self._held if held.take())
        for end in self._ends:
            await_nothing_attached(end.host, end.interface)
        if booted:
            tools = build_tools(self._lab, [trial.point for trial in self._trials])
            self._context = replace(
                self._made_context(
                    tools, lambda: self._probes(lambda: tools), lambda: self._all_prepared(lambda: tools)
                ),
                alone=self._context.alone,
            )
        self._set_block()
        return booted, round(time.monotonic() - began, 3)

    def leave_block(self) -> None:
        """End the generator. The next block sets everything again, and the end of the session restores it.

        If the DUT's connection was lost meanwhile, the next block mends what that took.
        """
        try:
            self._context.staying.end()
        except XdplabError:
            if self._lost(self._dut) is None:
                raise
