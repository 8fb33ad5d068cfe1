"""A trial's DUT held attached while one rate after another is offered to it: what searches are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from xdplab.formats.generator import Burst
from xdplab.plan import Point, Trial
from xdplab.studies.traffic.burst import send
from xdplab.studies.traffic.dut import DutSide
from xdplab.studies.traffic.life import attach, known_before
from xdplab.studies.traffic.limits import frame_key
from xdplab.studies.traffic.study import TrialStudy

Send = Callable[[float | None, float], Burst]
"""From a rate in frames per second (None: as fast as possible) and seconds to the burst that was sent."""


class TrialBench(TrialStudy):
    """A session in a lab like a trial's, that offers rates instead of measuring windows."""

    @contextmanager
    def attached(self, trial: Trial, raw: Path, facts: dict[str, Any]) -> Iterator[Send]:
        """Hold the trial's program attached. A program that was not prepared is, first.

        Raises CutOffError where a connection is lost meanwhile.
        """
        with self._whole(facts), self._attached(trial, raw, facts) as send:
            yield send

    @contextmanager
    def _attached(self, trial: Trial, raw: Path, facts: dict[str, Any]) -> Iterator[Send]:
        context = self._context
        if trial.point.program not in context.programs:
            context.programs = {**context.programs, **self._prepared([trial])}
        prepared = context.programs[trial.point.program]
        facts |= known_before(context, trial, prepared)
        side = attach(context, trial.point, prepared)
        try:
            facts["deployment"] = side.deployment.to_json()
            yield self._sender(side, trial.point, raw / "bursts")
            side.stop()
        finally:
            side.close()
            for name, data in side.raw_files().items():
                (raw / name).write_bytes(data)

    def generator_pps(self, trial: Trial) -> float | None:
        """Return what the generator alone offers of the trial's frames per second; tested as its block was entered."""
        return self._context.alone[frame_key(trial.point)].rate

    def _sender(self, side: DutSide, point: Point, folder: Path) -> Send:
        """Each burst is a session of the generator's own: its rate is set when it starts. Its lines are kept.

        What must live for it to be worth anything is asked for before and after it: the program, and the watchdogs.
        """
        folder.mkdir(exist_ok=True)

        def offer(rate_pps: float | None, seconds: float) -> Burst:
            self._require_all(side)
            burst, raw = send(self._context, point, rate_pps, seconds)
            (folder / f"{len(list(folder.iterdir())):05d}.jsonl").write_text(raw)
            self._require_all(side)
            return burst

        return offer

    def _require_all(self, side: DutSide) -> None:
        side.require()
        self.require_watched()
