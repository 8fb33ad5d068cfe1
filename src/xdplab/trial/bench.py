"""A trial's DUT held attached while one rate after another is offered to it: what searches are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from xdplab.formats.generator import Burst
from xdplab.plan import Point, Trial
from xdplab.traffic import Generator
from xdplab.trial.life import TrialContext, attach, generator_settings, known_before
from xdplab.trial.study import TrialStudy

SESSION_S = 900.0
WARMUP_S = 0.05

Send = Callable[[float | None, float], Burst]
"""From a rate in frames a second (None: as fast as possible) and seconds to the burst that was sent."""


class TrialBench(TrialStudy):
    """A session in a lab like a trial's, that offers rates instead of measuring windows."""

    @contextmanager
    def attached(self, trial: Trial, raw: Path, facts: dict[str, Any]) -> Iterator[Send]:
        """Hold the trial's program attached. A program that was not prepared is, first."""
        context = self._context
        if trial.point.program not in context.programs:
            context.programs = {**context.programs, **self._prepared([trial])}
        prepared = context.programs[trial.point.program]
        facts |= known_before(context, trial, prepared)
        side = attach(context, trial.point, prepared)
        try:
            facts["deployment"] = side.deployment.to_json()
            yield _sender(context, trial.point, raw / "bursts")
            side.stop()
        finally:
            side.close()
            for name, data in side.raw_files().items():
                (raw / name).write_bytes(data)

    def generator_alone(self, trial: Trial, seconds: float) -> Burst:
        """Send as fast as possible over the link while no program is attached to the DUT."""
        return send(self._context, trial.point, None, seconds)[0]


def _sender(context: TrialContext, point: Point, folder: Path) -> Send:
    """Each burst is a session of the generator's own: its rate is set when it starts. Its lines are kept."""
    folder.mkdir(exist_ok=True)

    def offer(rate_pps: float | None, seconds: float) -> Burst:
        burst, raw = send(context, point, rate_pps, seconds)
        (folder / f"{len(list(folder.iterdir())):05d}.jsonl").write_text(raw)
        return burst

    return offer


def send(context: TrialContext, point: Point, rate_pps: float | None, seconds: float) -> tuple[Burst, str]:
    """Send one burst, after a short one to warm up, and return it with everything the generator printed."""
    tools = context.tools
    settings = replace(generator_settings(context, point), rate_pps=rate_pps)
    deadline_s = SESSION_S + seconds
    with Generator(context.lab.tg, settings, tools.generator, deadline_s=deadline_s, adapter=tools.adapter) as tg:
        tg.start()
        context.lab.place(point.arrangement, point.queues)
        tg.burst("warmup", WARMUP_S)
        burst = tg.burst("offer", seconds)
        tg.stop()
    return burst, tg.raw
