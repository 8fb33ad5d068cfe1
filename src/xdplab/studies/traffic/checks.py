"""What a lab can measure of a plan: checked before a run is made, with the field of the plan in the error."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from xdplab.deploy.queues import of_each, queue_limit
from xdplab.deploy.settings_nic import require_in_plans
from xdplab.errors import PlanError, UnsupportedError
from xdplab.generators import Capabilities, engines_of
from xdplab.labs import Arrangement, Lab
from xdplab.lazy import lazy
from xdplab.plan import FACTORS, Plan, Point, points_of
from xdplab.plan.offered import by_cable
from xdplab.studies.traffic.limits import require_small_frames
from xdplab.studies.traffic.session import queue_ends
from xdplab.studies.traffic.turns import PLAN_LAB

columns = lazy("xdplab.studies.traffic.columns")

LEAST_BURSTS = 20
"""In a window, which begins with one: then its mean rate is the one asked for within 5 %."""


def check_plan(plan: Plan, lab: Lab, name: str = PLAN_LAB) -> None:
    """Raise PlanError naming the field of ``plan`` that this lab cannot have; nothing is changed.

    ``name`` is the lab's name in the plan's blocks; the points of other labs are not looked at. Raises UnsupportedError
    for a lab that counts.
    """
    if plan.trial.throttling == "off" and not lab.virtual:
        raise PlanError(
            "trial.throttling: off is for virtual labs, where all of the lab is on one machine",
            remedy="on a server: `sysctl kernel.sched_rt_runtime_us=-1`",
        )
    if lab.clock == "instructions":
        raise no_rates(lab.name)
    if plan.race is not None and lab.clock != "time":
        raise PlanError(
            f"a race goes by rates, and lab {lab.name} has none: its guest's clock is no real time",
            remedy="race on a machine with KVM, on servers, or in netns",
        )
    for metric in plan.metrics:
        if metric.name in columns.NAMES:
            raise PlanError(f"metrics: {metric.name} is a column already", remedy="give it another name")
    of_each(("dut", "tg"), lambda name: getattr(lab, name))  # each is reached on first use
    most = min(of_each(queue_ends(lab), queue_limit))
    points = [point for point in points_of(plan, lab.arrangement) if point.lab == name]
    _check_engines(points, lab)
    require_small_frames({point.program.frames for point in points if point.program.frames}, lab)
    for point in points:
        _check_frames(point)
        _check_bursts(point, plan.trial.window_s)
        require_in_plans(dict(point.device))
        if point.queues > most:
            raise PlanError(f"queues: {point.queues} is more than {lab.dut_interface} can have: {most}")
        if point.arrangement == "hosts" and lab.virtual:
            raise PlanError("arrangement: hosts means two machines; this lab is one", remedy="write auto")
        if point.arrangement == "split" and len(lab.cpus().dut) < 2:
            raise PlanError("arrangement: split needs two CPUs at least; this lab has one", remedy="write auto")
        require_machines(point.arrangement, lab)


def no_rates(lab: str) -> UnsupportedError:
    """Return the error of a lab whose clock shows instructions: a trial there has no rate, no latency and no time."""
    return UnsupportedError(
        f"lab {lab} counts instructions: frames have no rate and no latency there",
        remedy=f"`xdplab cost PROGRAM --kernel {lab.split(':')[1]}` counts what a packet costs; netns has rates",
    )


class Arranged(Protocol):
    """A lab, or what is known of it."""

    @property
    def name(self) -> str: ...

    @property
    def arrangement(self) -> Arrangement: ...


def require_machines(arrangement: str, lab: Arranged) -> None:
    """Raise PlanError if two machines would be measured as one, or one as two: a loss has another meaning there."""
    if (arrangement == "hosts") != (lab.arrangement == "hosts"):
        raise PlanError(
            f"arrangement: {arrangement} is not what lab {lab.name} can be, which is {lab.arrangement}",
            remedy="in a plan write auto; points of a run are measured in a lab like its first one",
        )


def _check_engines(points: Sequence[Point], lab: Lab) -> None:
    """A plan is refused if this lab's generator can send none of its traffic; if it can send a part, that is
    measured."""
    has = engines_of(lab.generator.kind)
    engines = sorted({point.engine for point in points})
    if engines and not set(engines) & set(has):
        raise PlanError(
            f"traffic.engine: {', '.join(engines)} is not what this lab's generator ({lab.generator.kind}) has: "
            f"{', '.join(has)}",
            remedy=f"write `traffic: {{{_usual_traffic(has)}}}` in the block, in a copy of the plan",
        )


def _usual_traffic(engines: Mapping[str, Capabilities]) -> str:
    """Return what a plan's ``traffic`` has to say for the usual one of these engines."""
    engine, able = next(iter(engines.items()))
    lacks = (("pace", "load: max"), ("stamp", "stamp: none"))
    parts = (f"engine: {engine}", *(word for name, word in lacks if name not in able.can), able.own_addresses)
    return ", ".join(filter(None, parts))


def _check_bursts(point: Point, window_s: float) -> None:
    bursts = (point.rate_pps or math.inf) * window_s / (point.burst * point.queues * point.ways)
    if point.burst > 1 and bursts < LEAST_BURSTS:
        raise PlanError(
            f"burst: {point.burst}: at {point.load} a window has {bursts:.1f} of them, too few for that mean rate",
            remedy=f"`window_s` or a load with which each queue sends {LEAST_BURSTS}, or a smaller burst",
        )


def _check_frames(point: Point) -> None:
    """The frames of a pcap are sent unchanged: a factor that would change them is refused, not ignored."""
    if point.program.frames and by_cable(point.load):
        raise PlanError(
            f"load: {point.load} goes by the size of a frame, and those of {Path(point.program.frames).name} differ",
            remedy="write frames per second, such as 20kpps",
        )
    for factor in FACTORS:
        chosen = getattr(point, factor.name) if factor.form.in_pcap and point.program.frames else None
        if chosen not in (None, "none", factor.form.canonical(factor.default)):
            raise PlanError(
                f"{factor.name}: {factor.form.cell(chosen)} cannot be set: the frames of "
                f"{Path(point.program.frames).name} have their own",
                remedy="omit it, or put this program into a separate block",
            )
