"""Columns that say which trial a row is of: its place in the run, and the factors of its point."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from xdplab.absent import Absent, required
from xdplab.errors import FormatError
from xdplab.formats.pcap import flow_of, frames_in, l2_bytes
from xdplab.plan.factors import FACTORS
from xdplab.run.columns import Column
from xdplab.studies.traffic.columns.source import TrialSource
from xdplab.studies.trial_facts import device_columns

IDS: tuple[Column[TrialSource], ...] = (
    Column("run_id", "str", "id", "the run directory's identity, also in the payload of its frames",
           lambda t: t.run.run_id),
    Column("point_id", "str", "id", "hash of the point's factors, without the lab: it is the same in two runs",
           lambda t: t.point.point_id),
    Column("trial_id", "str", "id", "point and repetition", lambda t: t.attempt.trial_id),
    Column("attempt", "int", "id", "1 for the first try of a trial", lambda t: t.attempt.attempt),
    Column("block", "int", "id", "number of the trial's block: trials that share settings which take time to change",
           lambda t: t.trial.block),
    Column("order", "int", "id", "place of the trial in the run's seeded order", lambda t: t.trial.order),
    Column("repetition", "int", "id", "independent trial of the same point, from 1: the unit of statistics",
           lambda t: t.trial.repetition),
)  # fmt: skip


def _requested(t: TrialSource, name: str) -> object:
    return t.factors[name]


def _rate_requested_pps(t: TrialSource) -> object:
    """The rate that a share of the PDR means; for other loads the point's own."""
    rate = t.facts.rate_requested_pps
    return _requested(t, "rate_requested_pps") if rate is None else rate


def _frame_bytes(t: TrialSource) -> int:
    frames = t.point.program.frames
    if frames is None:
        frame_bytes: int | None = t.point.frame_bytes
        return required(frame_bytes, "the frames have several sizes (IMIX): frame_mean_bytes is their mean")
    size, _ = _pcap(frames)
    return required(size, "the frames of the pcap have several sizes: frame_mean_bytes is their mean")


def _flows(t: TrialSource) -> object:
    frames = t.point.program.frames
    if frames is None:
        return _requested(t, "flows")
    return _pcap(frames)[1]


@cache
def _pcap(path: str) -> tuple[int | None, int]:
    """Return the size of a pcap's frames, None if they have several, and the number of their flows."""
    try:
        frames = frames_in(path)
    except (OSError, FormatError) as error:
        raise Absent(f"the frames in {Path(path).name} cannot be read: {error}") from error
    sizes = set(l2_bytes(frames))
    return sizes.pop() if len(sizes) == 1 else None, len({flow_of(frame) for frame in frames})


def _batch(t: TrialSource) -> object:
    if t.facts.deployment is None:
        return _requested(t, "batch")
    return t.facts.generator and t.facts.generator.settings.get("batch")


def _device(t: TrialSource) -> object:
    """What the plan sets of the DUT's device, as obtained; where it sets nothing, the point's own word."""
    return device_columns(t.facts.device).get("device", _requested(t, "device"))


_OBTAINED: dict[str, Callable[[TrialSource], object]] = {
    "rate_requested_pps": _rate_requested_pps,
    "frame_bytes": _frame_bytes,
    "flows": _flows,
    "batch": _batch,
    "device": _device,
    "lab": lambda t: _requested(t, "lab") if t.facts.lab is None else t.facts.lab,
    "kernel": lambda t: t.facts.kernel,
}
"""Factors whose value is known only once the trial is prepared."""

POINT: tuple[Column[TrialSource], ...] = (
    *IDS,
    *(
        Column(factor.column, factor.dtype, "factor", factor.text,
               _OBTAINED.get(factor.column) or partial(_requested, name=factor.column))
        for factor in FACTORS
    ),
)  # fmt: skip
