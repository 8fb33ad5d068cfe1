"""One burst by a separate session of the generator: used by searches and by the generator's self-test."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from xdplab.errors import UnsupportedError
from xdplab.formats.generator import Burst
from xdplab.plan import Point
from xdplab.studies.traffic.life import TrialContext, sender, sending_cpus
from xdplab.studies.traffic.two_ports import require
from xdplab.studies.trial_facts import HarnessPieces, Limit, Missing

SESSION_S = 900.0
WARMUP_S = 0.05
SELF_TEST_S = 0.3

NOBODY = "02:00:00:00:00:00"
"""A MAC that no end of the link has: without a program the DUT drops such frames at once, and never routes them on."""


def send(
    context: TrialContext, point: Point, rate_pps: float | None, seconds: float, **other: Any
) -> tuple[Burst, str]:
    """Send one burst, after a short one to warm up, and return it with everything the generator printed.

    ``other`` replaces settings of the generator.
    """
    tg = sender(context, point, deadline_s=SESSION_S + seconds, rate_pps=rate_pps, **other)
    with closing(tg):
        tg.start()
        context.lab.place(point.arrangement, point.queues)
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
    found: dict[str, float] = {}
    for piece, receive in (("sender", False), ("receiver", True)):
        try:
            burst, said = send(context, point, None, context.plan.trial.window_s, alone=piece, receive=receive)
        except UnsupportedError as error:
            return Missing(error.message)
        (raw / f"alone_{piece}.jsonl").write_text(said)
        s = burst.summary
        if receive and s.rx_packets != s.tx_packets:
            return Missing(f"the receiver took {s.rx_packets} of {s.tx_packets} frames that it was handed")
        found[f"{piece}_ns"] = 1e9 * len(sending_cpus(context.lab, point)) * s.duration_s / s.tx_packets
    return HarnessPieces(found["sender_ns"], found["receiver_ns"])


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
