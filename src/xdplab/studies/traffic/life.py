"""The life of one trial: attach, verify, warm up, measure, settle, read, further passes, detach.

No command is started on the DUT inside a measured window: recorders were started before it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from xdplab.counters import CounterProbe
from xdplab.deploy.afxdp import AfxdpRequest
from xdplab.deploy.device import Applied, reread
from xdplab.deploy.xdp import Decided, XdpRequest
from xdplab.errors import HostError, ProgramError, UnsupportedError
from xdplab.generators import BothWays, Generator, GeneratorSettings, Sender, Staying
from xdplab.generators.settings import Addresses, Frames, XdpgenSettings
from xdplab.labs import Lab
from xdplab.labs.base import turned
from xdplab.plan import Plan, Point, ProgramFactors, Trial
from xdplab.plan.schedule import SLICES, SLICES_S
from xdplab.programs.image import KEPT_NAME
from xdplab.programs.work import AccessWork
from xdplab.run.facts import as_json
from xdplab.studies.traffic.dut import SESSION_S, AfxdpSide, DutSide, KernelSide
from xdplab.studies.traffic.limits import FrameKey, frame_key
from xdplab.studies.traffic.own_frames import TestFrames, frames_of, vlan_of
from xdplab.studies.traffic.passes import DECIDED_FOLDER, PASSES, RawFiles, Running, warm_up
from xdplab.studies.traffic.path import DutCount, prove, require_way_back
from xdplab.studies.traffic.pdr import offered_rate
from xdplab.studies.traffic.prepare import Prepared, Tools
from xdplab.studies.traffic.two_ports import SecondPort, TwoPortSide, require, second_probes
from xdplab.studies.trial_facts import Limit, Missing, TimingLimits, TrialCpus, TrialFacts

SENDER_FIFO = 5
# Above the sender and the DUT's softirq threads, because it would starve below them; it sleeps in poll(), because they
# would starve if it spun.
APPLICATION_FIFO = 6
DECIDED_S, DECIDED_BEFORE_S = 0.25, 0.05
"""The longest bursts that count actions after and before the window: shares of thousands of frames need no more."""
RUN_ID_DIGITS = 4  # xdpgen carries 16 bits of the run id in every frame


@dataclass
class TrialContext:
    """What the trials of one session share."""

    lab: Lab
    plan: Plan
    tools: Tools
    programs: Mapping[ProgramFactors, Prepared]
    dut_probe: CounterProbe
    tg_probe: CounterProbe
    run_id: str
    kernel: str
    rx_ring_entries: int | None
    link: Limit
    tg_machine: TimingLimits
    xps: dict[str, str] | None = None
    switched_off: dict[str, str] | None = None
    pdr: Mapping[str, float] = field(default_factory=dict)
    rivals: Mapping[str, Point] = field(default_factory=dict)
    applied: tuple[Applied, ...] = ()
    device: Applied | None = None
    alone: dict[FrameKey, Limit] = field(default_factory=dict)
    staying: Staying = field(default_factory=Staying)
    second: SecondPort | None = None

    def close_probes(self) -> None:
        """End what reads the counters; the next reading starts it again."""
        self.dut_probe.close()
        self.tg_probe.close()


def sending_cpus(lab: Lab, point: Point) -> tuple[int, ...]:
    """The CPUs the generator sends on: one per queue and direction, as far as the TG has them."""
    return lab.cpus(point.arrangement).tg[: point.queues * point.ways]


def working_cpus(lab: Lab, point: Point) -> tuple[int, ...]:
    """The CPUs that do the DUT's work, of all directions: one per queue and direction, as far as the DUT has them.

    If they are shared, a frame's softirq runs on the CPU that sent it.
    """
    if point.arrangement == "shared" and not lab.generator.follows:
        return sending_cpus(lab, point)
    return lab.cpus(point.arrangement).dut[: point.queues * point.ways]


def serving_cpus(lab: Lab, point: Point) -> tuple[tuple[int, ...], ...] | None:
    """The CPUs that receive by each of the DUT's queues; None if its interrupts decide that, as on cards.

    Where CPUs are shared a frame is received where it was sent: live frames on CPU c reach queue c modulo the queues,
    an AF_XDP sender's threads take the queues in turn. Threads of arrangement ``split`` are pinned in turn.
    """
    if not lab.virtual or lab.generator.follows:
        return None
    if point.arrangement == "split":
        return _in_threads(lab.cpus("split").dut, point)
    cpus = sending_cpus(lab, point)
    in_turn = _spread(cpus, point.queues)
    if point.engine != "live":
        return tuple(cpus[queue :: point.queues] or (cpu,) for queue, cpu in enumerate(in_turn))
    reached = [tuple(cpu for cpu in cpus if cpu % point.queues == queue) for queue in range(point.queues)]
    return tuple(own or (cpu,) for own, cpu in zip(reached, in_turn, strict=True))


def _in_threads(cpus: tuple[int, ...], point: Point) -> tuple[tuple[int, ...], ...]:
    """The second port's threads have the CPUs after the first one's, and send by the first port."""
    ports = [_spread(turned(cpus, port * point.queues), point.queues) for port in range(point.ways)]
    return tuple(tuple(sorted(set(queue))) for queue in zip(*ports, strict=True))


def clock_command(context: TrialContext, point: Point) -> tuple[str, ...]:
    """The command that measures the clock of the DUT's CPUs; none if the lab's own clock means nothing."""
    if context.lab.clock != "time":
        return ()
    return (context.tools.cpuclock, *map(str, working_cpus(context.lab, point)))


def measure(context: TrialContext, trial: Trial, raw: Path, facts: TrialFacts) -> None:
    """Measure ``trial``: write raw files into ``raw``, and requested and obtained values into ``facts``."""
    point = trial.point
    prepared = context.programs[point.program]
    know_before(context, trial, prepared, facts)
    require_way_back(context.lab, point)
    require(context.lab, context.second, point)
    with ThreadPoolExecutor(1) as meanwhile, ExitStack() as stack:
        files = RawFiles(raw)
        generator = context.staying.take(sender(context, point, deadline_s=SESSION_S))
        stack.callback(lambda: files.add({name: said.encode() for name, said in generator.outputs.items()}))
        stack.callback(lambda: None if context.staying.has(generator) else generator.close())
        starting = meanwhile.submit(generator.start)
        stack.callback(wait, [starting])  # a generator that is still starting could not be closed
        samples = meanwhile.submit(context.dut_probe.make_ready, ["samples"], deadline_s=SESSION_S)
        stack.callback(lambda: None if samples.exception() else samples.result().abandon())
        side = attach(context, point, prepared)
        stack.callback(lambda: files.add(side.raw_files()))
        stack.callback(side.close)
        facts.deployment = side.deployment
        read_device(context, facts)
        set_up(context, point, side)
        facts.generator = starting.result()
        facts.placed = context.lab.place(point.arrangement, point.queues)
        second = second_probes(context.second, point, context.dut_probe, context.tg_probe)
        facts.path = prove(
            generator,
            point,
            facts.rate_requested_pps,
            lambda: DutCount(context.dut_probe, side, point, next(iter(second), None)),
        )
        facts.warmup = warm_up(generator, context.plan.trial.warmup_s)
        probes = context.dut_probe, context.tg_probe
        clock = clock_command(context, point)
        running = Running(context.plan, *probes, side, generator, files, facts, clock, samples.result, second)
        if counts_decisions(point) and point.mode == "generic":  # in native mode the driver counts in the window
            facts.decided_before = _decided(running, context, point, "decided_before", DECIDED_BEFORE_S)
        for name in point.passes:
            if name in PASSES:
                PASSES[name](running)
        if SLICES in point.passes:
            facts.sliced = _sliced(context, trial, side, generator)
        if counts_decisions(point):
            facts.decided = _decided_after(running, context, point)
        side.require()
        facts.testrun = side.testrun(_test_frames(context, trial))
        detaching = meanwhile.submit(side.stop)  # the kernel waits until no CPU uses the program
        stack.callback(wait, [detaching])
        if context.tools.adapter.stays and "harness" not in point.passes:  # its bursts need the device exclusively
            context.staying.give(generator)
        else:
            generator.stop()
        (raw / "applied.json").write_text(json.dumps(as_json(facts), indent=1, default=str) + "\n")
        detaching.result()


def counts_decisions(point: Point) -> bool:
    """The action of a generated program is proved; the actions of a user's program are counted, in the kernel."""
    return point.program.file is not None and point.mode in ("native", "generic")


def _decided(running: Running, context: TrialContext, point: Point, name: str, seconds: float) -> Decided | Missing:
    """Count the program's actions in the separate burst ``name``.

    `Missing` says why it cannot be counted so, for example because the program uses nearly the whole stack.
    """
    side, request = running.side, _request(context, point, context.programs[point.program])
    assert isinstance(side, KernelSide)  # counts_decisions
    try:
        found, said = side.decided(
            context.tools.xdpload, request, lambda: running.generator.burst(name, min(seconds, running.window_s))
        )
    except (ProgramError, UnsupportedError) as error:
        return Missing(f"the program cannot be loaded with a counter before it: {error.message}")
    running.files.add({f"xdpload_{name}.jsonl": said})
    return found


def _decided_after(running: Running, context: TrialContext, point: Point) -> Decided | Missing:
    """The DUT's counters see this burst, too."""
    count = DutCount(context.dut_probe, running.side, point)
    found = _decided(running, context, point, "decided", DECIDED_S)
    running.files.add(count.gained()[1], DECIDED_FOLDER)
    return found


def _sliced(context: TrialContext, trial: Trial, side: DutSide, generator: Sender) -> Missing | None:
    """Measure the program against the race's other one, in slices under one sender. xdpload prints the slices.

    `Missing` says why the two cannot be exchanged.
    """
    rival = context.rivals[trial.point.point_id]
    request = _request(context, rival, context.programs[rival.program])
    assert isinstance(side, KernelSide)  # a race swaps only programs in the kernel
    try:
        side.slices(context.tools.xdpload, request, lambda: generator.burst(SLICES, SLICES_S), _seed(context, trial))
    except (ProgramError, UnsupportedError) as error:
        return Missing(error.message)
    return None


def _request(context: TrialContext, point: Point, prepared: Prepared) -> XdpRequest:
    there = prepared.on_dut
    return XdpRequest(
        object=there.object,
        interface=context.lab.dut_interface,
        mode=point.mode,
        options=there.options,
        init=there.init,
        max_entries=there.max_entries,
    )


def know_before(context: TrialContext, trial: Trial, prepared: Prepared, facts: TrialFacts) -> None:
    """Record the facts about a trial that are known before anything is attached."""
    point, cpus = trial.point, context.lab.cpus(trial.point.arrangement)
    facts.point = point.factors()
    facts.block, facts.order, facts.repetition = trial.block, trial.order, trial.repetition
    facts.lab, facts.label, facts.times = context.lab.name, context.lab.label, context.lab.clock == "time"
    facts.program_hash = prepared.built.hash
    facts.load, facts.work = prepared.load, _work(point, prepared)
    facts.settings, facts.device = context.applied, context.device
    facts.kernel = context.kernel
    facts.rx_ring_entries = context.rx_ring_entries
    facts.link, facts.generator_alone = context.link, context.alone[frame_key(point)]
    facts.tg_machine = context.tg_machine
    facts.xps, facts.switched_off = context.xps, context.switched_off
    facts.xps_missing = None if context.xps else "the DUT's driver has no choice of CPUs for transmit queues"
    facts.rate_requested_pps = offered_rate(point, context.pdr, context.link)
    facts.cpus = TrialCpus(tuple(cpus.dut), tuple(cpus.tg), working_cpus(context.lab, point))


def read_device(context: TrialContext, facts: TrialFacts) -> None:
    """Read the plan's device settings back once the program is attached: a veth with XDP switches its GRO on.

    Raises UnsupportedError if a switch differs from the plan. A rounded number is recorded.
    """
    if context.device is not None:
        facts.device = reread(context.lab.dut, context.device)
        facts.device.require(rounded=True)


def _work(point: Point, prepared: Prepared) -> AccessWork | None:
    return prepared.work.get("user" if point.mode == "af_xdp" else "kernel")


def attach(context: TrialContext, point: Point, prepared: Prepared) -> DutSide:
    """Attach a point's program in its mode; the result must be stopped or closed."""
    lab, there = context.lab, prepared.on_dut
    if point.mode != "af_xdp":
        request = _request(context, point, prepared)
        if point.two_ports:
            assert context.second is not None  # `require` has refused it
            reader, binary = context.dut_probe.reader, context.tools.xdpload
            return TwoPortSide(lab.dut, reader, binary, request, context.second, queues=point.queues)
        return KernelSide(lab.dut, context.dut_probe.reader, context.tools.xdpload, request, queues=point.queues)
    if context.tools.afxdp_user is None or there.workload is None:
        raise UnsupportedError("mode af_xdp needs a generated workload")
    return AfxdpSide(
        lab.dut,
        context.dut_probe.reader,
        context.tools.afxdp_user,
        AfxdpRequest(
            interface=lab.dut_interface,
            queues=point.queues,
            workload=there.workload,
            attach=point.xsk_attach or "native",
            bind=point.xsk_bind or "copy",
            init=there.workload_init,
            cpus=_spread(lab.cpus(point.arrangement).dut, point.queues),
            fifo=APPLICATION_FIFO,
            run_id=context.run_id[:RUN_ID_DIGITS],
            frame_bytes=_recognised_bytes(context, point),
            vlan=vlan_of(point),
            ip_version=point.ip_version,
        ),
    )


def _recognised_bytes(context: TrialContext, point: Point) -> tuple[int, ...]:
    """Return the sizes of the test frames; none if others are sent: those of a file, of testpmd, a NIC's probes."""
    own = context.programs[point.program].frames_on_tg is None and point.engine not in ("moongen-hw", "testpmd")
    return tuple(sorted(set(point.frame_sizes))) if own else ()


def _test_frames(context: TrialContext, trial: Trial) -> TestFrames:
    lab = context.lab
    return frames_of(trial.point, src_mac=lab.tg_mac, dst_mac=lab.dut_mac, seed=_seed(context, trial))


def _seed(context: TrialContext, trial: Trial) -> int:
    return int(hashlib.sha256(f"{context.run_id}/{trial.trial_id}".encode()).hexdigest()[:15], 16)


def _spread(cpus: Sequence[int], queues: int) -> tuple[int, ...]:
    return tuple(cpus[queue % len(cpus)] for queue in range(queues))


def set_up(context: TrialContext, point: Point, side: DutSide) -> None:
    """Run the user's own commands on the DUT, once the program is attached; then fill the maps that the plan names."""
    folder = context.programs[point.program].on_dut.setup
    for argv in point.program.setup:
        inside = ["sh", "-c", 'cd "$0" && exec "$@"', folder, *argv] if folder else argv
        done = replace(context.lab.dut.run(inside, check=False), argv=tuple(argv))
        try:
            done.require()
        except HostError as error:
            if not (long := re.search(r"\bname\s+(\w{16,})", " ".join(argv))):
                raise
            kept = f"the kernel keeps {KEPT_NAME} characters of a name: {long[1][:KEPT_NAME]}"
            raise HostError(error.message, remedy=kept) from None
    if point.program.maps:
        assert isinstance(side, KernelSide)  # users' programs are not forwarded in user space, nor between two ports
        side.fill()


def sender(context: TrialContext, point: Point, *, deadline_s: float, **other: Any) -> Sender:
    """Return what sends the frames of ``point``, not started; ``other`` replaces settings of the generator.

    The load is that of all directions together.
    """
    tools, settings = context.tools, generator_settings(context, point).changed(**other)

    def session(own: GeneratorSettings) -> Generator:
        return Generator(context.lab.tg, own, tools.generator, deadline_s=deadline_s, adapter=tools.adapter)

    if point.ways == 1:
        return session(settings)
    rate = None if settings.rate_pps is None else settings.rate_pps / 2
    there, back = settings.cpus[: point.queues], settings.cpus[point.queues :]
    return BothWays(
        session(replace(settings, rate_pps=rate, cpus=there)),
        session(replace(_turned(context, settings), rate_pps=rate, cpus=back)),
    )


def _turned(context: TrialContext, settings: GeneratorSettings) -> GeneratorSettings:
    """Return the settings for the other direction; its frames have a run id of their own."""
    assert context.second is not None  # `require` has refused it
    ends, nobody = context.second.ends, settings.addresses.dst_mac != context.lab.dut_mac
    return settings.changed(
        interface=ends.tg_interface,
        receive_on=settings.interface,
        src_mac=ends.tg_mac,
        dst_mac=settings.addresses.dst_mac if nobody else ends.dut_mac,
        run_id=f"{int(settings.run_id, 16) ^ 0xFFFF:04x}",
    )


def generator_settings(context: TrialContext, point: Point) -> GeneratorSettings:
    """Return the settings of the generator for ``point``, of its first direction."""
    lab = context.lab
    two = context.second if point.two_ports else None
    return GeneratorSettings(
        engine=point.engine,
        interface=context.tools.port,
        receive_on=two.ends.tg_interface if two else None,
        queues=_reached(context, point),
        cpus=sending_cpus(lab, point),
        batch=_batch(context, point),
        rate_pps=offered_rate(point, context.pdr, context.link),
        settle_s=context.plan.trial.settle_s,
        run_id=context.run_id[:RUN_ID_DIGITS],
        frames=Frames(
            frame_bytes=point.frame_sizes[0],
            imix=point.frame_sizes if point.imix != "none" else (),
            vlan=vlan_of(point),
            ip_version=point.ip_version,
            stamp=point.stamp if point.stamp in ("all", "none") else int(point.stamp),
            file=context.programs[point.program].frames_on_tg,
        ),
        addresses=Addresses(
            flows=point.flows,
            src_mac=lab.tg_mac,
            dst_mac=lab.dut_mac,
            src_ip=point.src_ip,
            dst_ip=point.dst_ip,
            src_ip_stride=point.src_ip_stride,
            dst_ip_stride=point.dst_ip_stride,
            src_port=point.src_port,
            dst_port=point.dst_port,
        ),
        xdpgen=XdpgenSettings(
            fifo=SENDER_FIFO,
            rx_stamp=point.rx_stamp or "software",
            tx_stamp=point.tx_stamp or "software",
            bind=point.tx_bind or "copy",
            need_wakeup=point.tx_wakeup == "needed",
            busy_poll_us=point.tx_busy_poll_us or 0,
            whole=context.plan.race is not None and point.engine == "live",
        ),
    )


def _reached(context: TrialContext, point: Point) -> int:
    """Return the queues that the generator's own CPUs have to reach.

    A card chooses the queue of a frame by its flow, and a sender on one CPU reaches them all; a veth goes by the CPU.
    """
    by_flow = not context.lab.virtual or context.lab.generator.follows
    by_cpu = context.tools.adapter.capability(point.engine).queue_per_cpu
    queues: int = (
        min(point.queues, len(sending_cpus(context.lab, point)) // point.ways) if by_flow and by_cpu else point.queues
    )
    return queues


def _batch(context: TrialContext, point: Point) -> int:
    """A share of the PDR is offered in full batches, as in the search for the PDR."""
    if point.batch != "auto":
        return int(point.batch)
    return context.tools.adapter.capability(point.engine).batch(
        paced=point.rate_pps is not None or point.line_share is not None
    )
