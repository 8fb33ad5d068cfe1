"""Who sends a point's frames, and on which CPUs: the generator's settings, the CPUs of both ends, and a burst by a
separate session, for searches and for the generator's test without a program."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from xdplab.errors import UnsupportedError
from xdplab.formats.generator import Burst
from xdplab.generators import BothWays, Generator, GeneratorSettings, Sender
from xdplab.generators.adapter import Addresses, Frames, XdpgenSettings
from xdplab.labs import Lab
from xdplab.labs.base import turned
from xdplab.lazy import lazy
from xdplab.plan import Point
from xdplab.plan.offered import recorded_speed, zipf_exponent
from xdplab.studies.test_frames import vlan_of
from xdplab.studies.traffic.pdr import offered_rate
from xdplab.studies.traffic.prepare import TrialContext
from xdplab.studies.traffic.two_ports import require
from xdplab.studies.trial_facts import HarnessPieces, Limit, Missing

maker = lazy("xdplab.studies.maker")

SENDER_FIFO = 5
RUN_ID_DIGITS = 4
"""xdpgen carries 16 bits of the run id in every frame."""
ALONE_S = 900.0
"""The longest a session of the generator may take that sends one burst, besides the burst."""
WARMUP_S = 0.05
SELF_TEST_S = 0.3

NOBODY = "02:00:00:00:00:00"
"""A MAC that no end of the link has: without a program the DUT drops such frames at once, and never routes them on."""


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
    in_turn = spread(cpus, point.queues)
    if point.engine != "live":
        return tuple(cpus[queue :: point.queues] or (cpu,) for queue, cpu in enumerate(in_turn))
    reached = [tuple(cpu for cpu in cpus if cpu % point.queues == queue) for queue in range(point.queues)]
    return tuple(reachable or (cpu,) for reachable, cpu in zip(reached, in_turn, strict=True))


def _in_threads(cpus: tuple[int, ...], point: Point) -> tuple[tuple[int, ...], ...]:
    """The second port's threads have the CPUs after the first one's, and send by the first port."""
    ports = [spread(turned(cpus, port * point.queues), point.queues) for port in range(point.ways)]
    return tuple(tuple(sorted(set(queue))) for queue in zip(*ports, strict=True))


def spread(cpus: Sequence[int], queues: int) -> tuple[int, ...]:
    return tuple(cpus[queue % len(cpus)] for queue in range(queues))


def sender(context: TrialContext, point: Point, *, deadline_s: float, **other: Any) -> Sender:
    """Return what sends the frames of ``point``, not started; ``other`` replaces settings of the generator.

    The load is that of all directions together.
    """
    tools, settings = context.tools, generator_settings(context, point).changed(**other)

    def session(chosen: GeneratorSettings) -> Generator:
        return Generator(context.lab.tg, chosen, tools.generator, deadline_s=deadline_s, adapter=tools.adapter)

    if point.ways == 1:
        return session(settings)
    rate = None if settings.rate_pps is None else settings.rate_pps / 2
    forth, back = settings.cpus[: point.queues], settings.cpus[point.queues :]
    return BothWays(
        session(replace(settings, rate_pps=rate, cpus=forth)),
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
        back_to_back=point.burst,
        settle_s=context.plan.trial.settle_s,
        run_id=context.run_id[:RUN_ID_DIGITS],
        frames=Frames(
            frame_bytes=point.frame_sizes[0],
            imix=point.frame_sizes if point.imix != "none" else (),
            vlan=vlan_of(point),
            ip_version=point.ip_version,
            stamp=point.stamp if point.stamp in ("all", "none") else int(point.stamp),
            file=context.programs[point.program].frames_on_tg,
            speed=recorded_speed(point.timing),
        ),
        addresses=Addresses(
            flows=point.flows,
            zipf=zipf_exponent(point.skew),
            flow_seed=context.plan.seed,
            churn=point.churn,
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
        paced=point.rate_pps is not None or point.line_share is not None or point.timing != "load"
    )


def send(
    context: TrialContext, point: Point, rate_pps: float | None, seconds: float, **other: Any
) -> tuple[Burst, str]:
    """Send one burst, after a short one to warm up, and return it with everything the generator printed.

    ``other`` replaces settings of the generator. At the maximum rate all frames are back to back, whatever the burst.
    """
    spaced = point if rate_pps else replace(point, burst=1)
    tg = sender(context, spaced, deadline_s=ALONE_S + seconds, rate_pps=rate_pps, **other)
    with closing(tg):
        tg.start()
        context.lab.place(point.arrangement, point.queues)
        maker.await_loaded()
        tg.burst("warmup", WARMUP_S)
        burst = tg.burst("offer", seconds)
        tg.stop()
    return burst, "".join(tg.outputs.values())


def pieces_alone(context: TrialContext, point: Point, raw: Path) -> HarnessPieces | Missing:
    """Return the time per frame of the sender alone, and of sender and receiver without a link between them, in ns.

    Like ns_per_packet it is the window's length times the CPUs that send, over the frames: pauses are in it.

    What the generator printed goes into ``raw``. `Missing` says why a generator has no such pieces.
    """
    if point.two_ports:
        return Missing("with two ports, the generator's pieces are not measured")
    times: dict[str, float] = {}
    for piece, receive in (("sender", False), ("receiver", True)):
        try:
            burst, output = send(context, point, None, context.plan.trial.window_s, alone=piece, receive=receive)
        except UnsupportedError as error:
            return Missing(error.message)
        (raw / f"alone_{piece}.jsonl").write_text(output)
        s = burst.summary
        if receive and s.rx_packets != s.tx_packets:
            return Missing(f"the receiver took {s.rx_packets} of {s.tx_packets} frames that it was handed")
        times[f"{piece}_ns"] = 1e9 * len(sending_cpus(context.lab, point)) * s.duration_s / s.tx_packets
    return HarnessPieces(times["sender_ns"], times["receiver_ns"])


def generator_alone(context: TrialContext, point: Point) -> Limit:
    """Return the rate, in frames per second, that the generator offers of a point's frames while the DUT has no
    program.

    On a shared CPU there is no such limit: all work of the DUT slows the sender.
    """
    if point.arrangement == "shared":
        return Limit(None, "on a shared CPU the DUT's work slows the sender: it has no limit of its own")
    if point.program.frames is not None:
        return Limit(None, "a user's own frames are not sent to a DUT without a program")
    try:
        require(context.lab, context.second, point)
        summary = send(context, point, None, SELF_TEST_S, dst_mac=NOBODY)[0].summary
    except UnsupportedError as error:
        return Limit(None, error.message)
    refused = summary.tx_errors or 0 if context.link.rate else 0  # they never were on the cable
    return Limit((summary.tx_packets - refused) / summary.duration_s)
