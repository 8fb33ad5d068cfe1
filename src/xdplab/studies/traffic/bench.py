"""Offers one rate after another to a DUT whose program stays attached: the basis of searches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from xdplab.analysis.verdicts import at_the_tgs_ring, statistics_were_off
from xdplab.counters.columns import packets_counted
from xdplab.errors import HostError, UnsupportedError
from xdplab.formats.generator import Burst, parse_output
from xdplab.plan import Point, Trial
from xdplab.studies.traffic.dut import DutSide
from xdplab.studies.traffic.limits import frame_key
from xdplab.studies.traffic.path import TOLERANCE, DutCount, Files, heard, require_way_back
from xdplab.studies.traffic.sending import send
from xdplab.studies.traffic.session import TrafficSession
from xdplab.studies.traffic.trial import attach, read_device, record_setup, set_up
from xdplab.studies.trial_facts import TrialFacts

LEAST_APART = 50  # frames of a short burst that may be strays

Send = Callable[[float | None, float], tuple[Burst, int]]
"""From a rate in frames per second (None: as fast as possible) and seconds to the burst that was sent, and how many of
its frames came back to a full ring of the TG's, at least."""


class TrialBench(TrafficSession):
    """A session in a lab like a trial's, that offers rates instead of measuring windows."""

    @contextmanager
    def attached(self, trial: Trial, raw: Path, facts: TrialFacts) -> Iterator[Send]:
        """Hold the trial's program attached. A program that was not prepared is, first.

        Raises CutOffError if a connection is lost meanwhile.
        """
        with self._whole(facts), self._alone(facts), self._attached(trial, raw, facts) as send:
            yield send

    @contextmanager
    def _attached(self, trial: Trial, raw: Path, facts: TrialFacts) -> Iterator[Send]:
        if trial.point.two_ports:
            raise UnsupportedError("directions: a search knows one port only", remedy="`directions: back`")
        context = self._context
        if trial.point.program not in context.programs:
            context.programs = {**context.programs, **self._prepared([trial.point], lambda: context.tools)}
        prepared = context.programs[trial.point.program]
        record_setup(context, trial, facts)
        require_way_back(context.lab, trial.point)
        side = attach(context, trial.point, prepared)
        try:
            facts.deployment = side.deployment
            read_device(context, facts)
            set_up(context, trial.point, side)
            yield self._sender(side, trial.point, raw / "bursts")
            side.stop()
        finally:
            side.close()
            for name, data in side.raw_files().items():
                (raw / name).write_bytes(data)

    def generator_pps(self, trial: Trial) -> float | None:
        """Return the generator's own limit in frames per second for the trial's frames; tested when its block was
        entered."""
        return self._context.alone[frame_key(trial.point)].rate

    def _sender(self, side: DutSide, point: Point, folder: Path) -> Send:
        """Each burst is a session of the generator's own: its rate is set when it starts. Its lines are kept.

        The program and the watchdogs are checked before and after it. The DUT's counts are read around it too: frames
        that the DUT sent back but the TG did not receive are not the DUT's loss.
        """
        folder.mkdir(exist_ok=True)

        def offer(rate_pps: float | None, seconds: float) -> tuple[Burst, int]:
            self._require_all(side)
            name = f"{len(list(folder.glob('*.jsonl'))):05d}"
            count = DutCount(self._context.dut_probe, side, point)
            burst, raw = send(self._context, point, rate_pps, seconds)
            counts, files = count.gained()
            (folder / f"{name}.jsonl").write_text(raw)
            keep(files, folder / f"{name}.counters")
            self._require_all(side)
            require_agreement(point, raw, counts)
            require_untimed(files)
            return burst, missed_by_the_tg(point, raw, files)

        return offer

    def _require_all(self, side: DutSide) -> None:
        side.require()
        self.require_watched()


def require_agreement(point: Point, raw: str, counts: Mapping[str, int | None]) -> None:
    """Raise HostError if the TG did not receive frames that the DUT sent back: a rate's loss would be the TG's."""
    back, tg = counts["dut_sent"], _heard_in(parse_output(raw).bursts)
    if back is None or tg is None or point.program.action not in (None, "tx"):
        return
    if abs(back - tg) > max(TOLERANCE * max(back, tg), LEAST_APART):
        raise HostError(
            f"TG and DUT disagree on the same frames: the DUT sent {back} back, the TG received {tg}",
            remedy="the path or the TG loses frames, not the DUT: `xdplab doctor` looks at both ends",
        )


def require_untimed(files: Files) -> None:
    """Raise HostError if BPF statistics were on between the readings: each run then costs more. A trial is invalid."""
    timed = packets_counted(files, mode="")["bpf_timed_runs"]
    if reason := statistics_were_off({"bpf_timed_runs": timed}):
        raise HostError(reason)


def missed_by_the_tg(point: Point, raw: str, files: Files) -> int:
    """Return how many frames of the last burst came back to a full ring of the TG's, at least.

    The readings are of the warm-up too: all that it lost may have been lost there.
    """
    summaries = [burst.summary for burst in parse_output(raw).bursts]
    lost = [s.tx_packets + (s.duplicates or 0) - s.rx_packets for s in summaries if s.rx_packets is not None]
    if len(lost) < len(summaries):
        return 0
    row = packets_counted(files, point.mode, point.queues)
    seen = {"workload": point.program.workload, "mode": point.mode, "lost_packets": sum(lost)}
    names = ("dut_driver", "dut_rx_packets", "dut_tx_packets", "host_softnet_dropped")
    return max(0, int(at_the_tgs_ring(seen | {name: row[name] for name in names})) - sum(lost[:-1]))


def _heard_in(bursts: tuple[Burst, ...]) -> int | None:
    counts = [heard(burst.summary) for burst in bursts]
    return None if None in counts else sum(count or 0 for count in counts)


def keep(files: Files, folder: Path) -> None:
    """Write readings to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
