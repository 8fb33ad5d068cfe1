"""The life of one trial: attach, verify, warm up, measure, settle, read, further passes, detach.

No command is started on the DUT inside a measured window: recorders were started before it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Self

from xdplab.counters.probe import CounterProbe
from xdplab.deploy.afxdp import AfxdpRequest
from xdplab.deploy.device import reread
from xdplab.deploy.xdp import Decided, XdpRequest
from xdplab.errors import HostError, ProgramError, UnsupportedError
from xdplab.formats.generator import GeneratorReady
from xdplab.lazy import lazy
from xdplab.plan import Point, Trial
from xdplab.plan.factors import HINTS
from xdplab.plan.points import SLICES, SLICES_S
from xdplab.programs.image import KEPT_NAME
from xdplab.run.state import as_json
from xdplab.studies.test_frames import TestFrames, frames_of, vlan_of
from xdplab.studies.traffic.dut import SESSION_S, AfxdpSide, DutSide, KernelSide
from xdplab.studies.traffic.limits import frame_key
from xdplab.studies.traffic.passes import DECIDED_FOLDER, PASSES, RawFiles, Running, warm_up
from xdplab.studies.traffic.path import DutCount, prove, require_way_back
from xdplab.studies.traffic.pdr import offered_rate
from xdplab.studies.traffic.prepare import Prepared, TrialContext
from xdplab.studies.traffic.sending import RUN_ID_DIGITS, sender, spread, working_cpus
from xdplab.studies.traffic.two_ports import TwoPortSide, both_ways, require, second_probes
from xdplab.studies.trial_facts import Missing, TrialCpus, TrialFacts

maker = lazy("xdplab.studies.maker")

APPLICATION_FIFO = 6
"""Above the sender and the DUT's softirq threads: it would starve below them. It sleeps in poll(); if it spun, they
would starve."""
DECIDED_S, DECIDED_BEFORE_S = 0.25, 0.05
"""The longest bursts that count actions after and before the window: shares of thousands of frames need no more."""


def measure(context: TrialContext, trial: Trial, raw: Path, facts: TrialFacts) -> None:
    """Measure ``trial``: write raw files into ``raw``, and requested and obtained values into ``facts``."""
    record_setup(context, trial, facts)
    require_way_back(context.lab, trial.point)
    require(context.lab, context.second, trial.point)
    with Phases(context, trial, raw, facts) as phases:
        phases.attach()
        phases.prove_path()
        phases.warm_up()
        phases.count_actions_before()
        phases.run_passes()
        phases.race_in_slices()
        phases.count_actions_after()
        phases.test_run()
        phases.detach()


class Phases:
    """One trial under way: what its phases hand on. Its end releases whatever has begun, in the reverse order."""

    _side: DutSide
    _second: Sequence[CounterProbe]

    def __init__(self, context: TrialContext, trial: Trial, raw: Path, facts: TrialFacts) -> None:
        self._context, self._trial, self._point = context, trial, trial.point
        self._raw, self._facts, self._files = raw, facts, RawFiles(raw)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Have the generator started beside the DUT's part."""
        with ExitStack() as stack:
            self._meanwhile = stack.enter_context(ThreadPoolExecutor(1))
            self._generator = sender(self._context, self._point, deadline_s=SESSION_S)
            stack.callback(self._end_generator)
            self._starting = self._meanwhile.submit(self._start_generator)
            stack.callback(wait, [self._starting])  # a generator that is still starting could not be closed
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _start_generator(self) -> GeneratorReady:
        self._generator = self._context.staying.take(self._generator)
        return self._generator.start()

    def _end_generator(self) -> None:
        """End it unless it stays; keep what it printed."""
        if not self._context.staying.has(self._generator):
            self._generator.close()
        self._files.add({name: text.encode() for name, text in self._generator.outputs.items()})

    def attach(self) -> None:
        """Attach the program, read the device back, run the user's commands; meanwhile the generator starts."""
        context, point, facts = self._context, self._point, self._facts
        context.staying.await_left()
        self._side = side = attach(context, point, context.programs[point.program])
        self._attached = self._stack.enter_context(ExitStack())
        self._attached.callback(lambda: self._files.add(side.raw_files()))
        self._attached.callback(side.close)
        facts.deployment = side.deployment
        read_device(context, facts)
        set_up(context, point, side)
        facts.generator = self._starting.result()
        facts.placed = context.lab.place(point.arrangement, point.queues)

    def prove_path(self) -> None:
        """Prove with a few frames that they reach the program and, if they should, come back.

        Meanwhile the sampler starts, which records later.
        """
        context, point = self._context, self._point
        probe = context.dut_probe
        self._samples = samples = self._meanwhile.submit(probe.make_ready, ["samples"], deadline_s=SESSION_S)
        self._stack.callback(lambda: None if samples.exception() else samples.result().abandon())
        self._second = second_probes(context.second, point, context.dut_probe, context.tg_probe)
        other = next(iter(self._second), None)
        self._facts.path = prove(
            self._generator,
            point,
            self._facts.rate_requested_pps,
            lambda: DutCount(context.dut_probe, self._side, point, other),
        )

    def warm_up(self) -> None:
        maker.await_loaded()
        self._facts.warmup = warm_up(self._generator, self._context.plan.trial.warmup_s)

    def count_actions_before(self) -> None:
        """In native mode the driver counts in the window, so that no burst before it is needed."""
        if counts_actions(self._point) and self._point.mode == "generic":
            self._facts.decided_before = self._count_actions("decided_before", DECIDED_BEFORE_S)

    def run_passes(self) -> None:
        """Measure the headline's window, then each further pass that the plan asks for."""
        context, cpus = self._context, working_cpus(self._context.lab, self._point)
        running = Running(
            context.plan,
            context.dut_probe,
            context.tg_probe,
            self._side,
            self._generator,
            self._files,
            self._facts,
            (context.tools.cpuclock, *map(str, cpus)) if context.lab.clock == "time" else (),
            self._samples.result,
            self._second,
        )
        for name in self._point.passes:
            if name in PASSES:
                PASSES[name](running)

    def race_in_slices(self) -> None:
        """Measure the program against the race's other one, in slices under one sender. xdpload prints the slices.

        `Missing` says why the two cannot be exchanged.
        """
        if SLICES not in self._point.passes:
            return
        context, side = self._context, self._side
        rival = context.rivals[self._point.point_id]
        request = _request(context, rival, context.programs[rival.program])
        assert isinstance(side, KernelSide)  # a race swaps only programs in the kernel
        try:
            side.slices(
                context.tools.xdpload,
                request,
                lambda: self._generator.burst(SLICES, SLICES_S),
                _seed(context, self._trial),
            )
        except (ProgramError, UnsupportedError) as error:
            self._facts.sliced = Missing(error.message)

    def count_actions_after(self) -> None:
        """The DUT's counters see this burst, too."""
        if not counts_actions(self._point):
            return
        count = DutCount(self._context.dut_probe, self._side, self._point)
        self._facts.decided = self._count_actions("decided", DECIDED_S)
        self._files.add(count.gained()[1], DECIDED_FOLDER)

    def _count_actions(self, name: str, seconds: float) -> Decided | Missing:
        """Count the program's actions in the separate burst ``name``.

        `Missing` says why it cannot be counted so, for example because the program uses nearly the whole stack.
        """
        context, side = self._context, self._side
        request = _request(context, self._point, context.programs[self._point.program])
        seconds = min(seconds, context.plan.trial.window_s)
        assert isinstance(side, KernelSide)  # counts_actions
        try:
            decided, output = side.decided(context.tools.xdpload, request, lambda: self._generator.burst(name, seconds))
        except (ProgramError, UnsupportedError) as error:
            return Missing(f"the program cannot be loaded with a counter before it: {error.message}")
        self._files.add({f"xdpload_{name}.jsonl": output})
        return decided

    def test_run(self) -> None:
        """Run the attached program on test frames in the kernel, without traffic."""
        self._side.require()
        self._facts.testrun = self._side.testrun(_test_frames(self._context, self._trial))
        if self._point.program.workload in HINTS and self._point.program.accesses:
            assert isinstance(self._side, KernelSide)  # a plan has no other
            self._facts.hints = self._side.hints()

    def detach(self) -> None:
        """Let the program go, which the next trial awaits; the generator stays for it if it can."""
        self._files.add(self._side.raw_files())
        staying = self._context.staying
        staying.leave(self._side)
        self._attached.pop_all()
        if self._context.tools.adapter.stays and "harness" not in self._point.passes:  # whose bursts need the device
            staying.give(self._generator)
        else:
            self._generator.stop()
        facts = json.dumps(as_json(self._facts), indent=1, default=str)
        (self._raw / "applied.json").write_text(f"{facts}\n")


def counts_actions(point: Point) -> bool:
    """The action of a generated program is proved; the actions of a user's program are counted, in the kernel."""
    return point.program.file is not None and point.mode in ("native", "generic")


def _request(context: TrialContext, point: Point, prepared: Prepared) -> XdpRequest:
    built = prepared.on_dut
    return XdpRequest(
        object=built.object,
        interface=context.lab.dut_interface,
        mode=point.mode,
        options=built.options,
        init=built.init,
        max_entries=built.max_entries,
        entries=built.entries,
    )


def record_setup(context: TrialContext, trial: Trial, facts: TrialFacts) -> None:
    """Record the facts about a trial that are known before anything is attached."""
    point, cpus = trial.point, context.lab.cpus(trial.point.arrangement)
    prepared = context.programs[point.program]
    facts.point = point.factors()
    facts.block, facts.order, facts.repetition = trial.block, trial.order, trial.repetition
    facts.lab, facts.label, facts.times = context.lab.name, context.lab.label, context.lab.clock == "time"
    facts.program_hash = prepared.built.hash
    facts.load, facts.work = prepared.load, prepared.work.get("user" if point.mode == "af_xdp" else "kernel")
    vars(facts).update(vars(context.machine))
    facts.xps_missing = None if facts.xps else "the DUT's driver has no choice of CPUs for transmit queues"
    facts.link, facts.generator_alone = context.link, context.alone[frame_key(point)]
    facts.rate_requested_pps = offered_rate(point, context.pdr, context.link)
    facts.cpus = TrialCpus(tuple(cpus.dut), tuple(cpus.tg), working_cpus(context.lab, point))


def read_device(context: TrialContext, facts: TrialFacts) -> None:
    """Read the plan's device settings back once the program is attached: a veth with XDP switches its GRO on.

    Raises UnsupportedError if a switch differs from the plan. A rounded number is recorded.
    """
    if context.machine.device is not None:
        facts.device = reread(context.lab.dut, context.machine.device)
        facts.device.require(rounded=True)


def attach(context: TrialContext, point: Point, prepared: Prepared) -> DutSide:
    """Attach a point's program in its mode; the result must be stopped or closed."""
    lab, built = context.lab, prepared.on_dut
    if point.mode != "af_xdp":
        request = _request(context, point, prepared)
        reader, binary = context.dut_probe.reader, context.tools.xdpload
        if point.two_ports:
            assert context.second is not None  # `require` has refused it
            ways = both_ways(request, context.second)
            return TwoPortSide(lab.dut, reader, binary, ways, queues=point.queues)
        return KernelSide(lab.dut, reader, binary, request, queues=point.queues)
    if context.tools.afxdp_user is None or built.workload is None:
        raise UnsupportedError("mode af_xdp needs a generated workload")
    if point.xsk_attach == "generic" and point.program.frags == "off":  # in native mode, the driver refuses it itself
        raise UnsupportedError(f"a socket that takes one descriptor a frame has no room for {point}")
    return AfxdpSide(
        lab.dut,
        context.dut_probe.reader,
        context.tools.afxdp_user,
        AfxdpRequest(
            interface=lab.dut_interface,
            queues=point.queues,
            workload=built.workload,
            attach=point.xsk_attach or "native",
            bind=point.xsk_bind or "copy",
            init=built.workload_init,
            cpus=spread(lab.cpus(point.arrangement).dut, point.queues),
            fifo=APPLICATION_FIFO,
            run_id=context.run_id[:RUN_ID_DIGITS],
            frame_bytes=_recognised_bytes(context, point),
            vlan=vlan_of(point),
            ip_version=point.ip_version,
            frags=point.program.frags == "on",
        ),
    )


def _recognised_bytes(context: TrialContext, point: Point) -> tuple[int, ...]:
    """Return the sizes of the test frames; none if others are sent: those of a file, of testpmd, a NIC's probes."""
    recognised = context.programs[point.program].frames_on_tg is None and point.engine not in ("moongen-hw", "testpmd")
    return tuple(sorted(set(point.frame_sizes))) if recognised else ()


def _test_frames(context: TrialContext, trial: Trial) -> TestFrames:
    lab = context.lab
    return frames_of(trial.point, src_mac=lab.tg_mac, dst_mac=lab.dut_mac, seed=_seed(context, trial))


def _seed(context: TrialContext, trial: Trial) -> int:
    return int(hashlib.sha256(f"{context.run_id}/{trial.trial_id}".encode()).hexdigest()[:15], 16)


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
