"""Factors → points: the full crossing of a block, with a baseline for every combination that has accesses."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from xdplab.errors import PlanError
from xdplab.plan.model import Arrangement, Block, Plan, UserProgramFile, parse_load, parse_share


@dataclass(frozen=True)
class ProgramFactors:
    """What a DUT does with each frame: a workload with N accesses, or a user's own file (then N is null)."""

    workload: str | None = None
    op: str | None = None
    accesses: int | None = None
    form: str | None = None
    working_set_bytes: int | None = None
    map_type: str | None = None
    file: str | None = None
    file_sha256: str | None = None
    section: str = "xdp"
    action: str = "tx"
    rodata: tuple[tuple[str, int], ...] = ()
    setup: tuple[tuple[str, ...], ...] = ()
    frames: str | None = None
    frames_sha256: str | None = None

    @property
    def name(self) -> str:
        if self.file is not None:
            return Path(self.file).name
        return f"{self.workload}-{self.op}" + ("-hash" if self.map_type == "hash" else "")


@dataclass(frozen=True)
class Point:
    """One combination of factors, canonical: what does not apply is null, so that equal points are equal."""

    program: ProgramFactors
    mode: str
    xsk_attach: str | None
    xsk_bind: str | None
    queues: int
    frame_bytes: int
    engine: str
    load: str
    flows: int
    src_ip: str
    dst_ip: str
    src_ip_stride: str
    dst_ip_stride: str
    src_port: int
    dst_port: int
    stamp: str
    arrangement: Arrangement
    passes: tuple[str, ...]

    @property
    def rate_pps(self) -> float | None:
        """The paced rate in frames a second; None at ``max``, and at a share until the PDR is known."""
        return parse_load(self.load)

    @property
    def load_share(self) -> float | None:
        """The share of the PDR that is offered; None where the load is none."""
        return parse_share(self.load)

    @property
    def pdr_key(self) -> str:
        """Hash of what a PDR belongs to: the factors without the load and without the stamps."""
        return replace(self, load="max", stamp="").point_id

    @cached_property
    def point_id(self) -> str:
        """Hash of the factors, without the lab, the passes, and the folder of a user's file."""
        factors = asdict(self)
        del factors["passes"]
        for key in ("file", "frames"):
            if factors["program"][key] is not None:
                factors["program"][key] = Path(factors["program"][key]).name
        return hashlib.sha256(json.dumps(factors, sort_keys=True).encode()).hexdigest()[:12]

    def factors(self) -> dict[str, Any]:
        """The point's columns of the trials table."""
        p = self.program
        return {
            "point_id": self.point_id,
            "mode": self.mode,
            "xsk_attach": self.xsk_attach,
            "xsk_bind": self.xsk_bind,
            "queues": self.queues,
            "frame_bytes": self.frame_bytes,
            "engine": self.engine,
            "load": self.load,
            "rate_requested_pps": self.rate_pps,
            "flows": self.flows,
            "dst_ip_stride": self.dst_ip_stride,
            "dst_port": self.dst_port,
            "arrangement": self.arrangement,
            "program_name": p.name,
            "workload": p.workload,
            "op": p.op,
            "form": p.form,
            "map_type": p.map_type,
            "accesses": p.accesses,
            "working_set_bytes": p.working_set_bytes,
            "action": p.action,
        }

    def __str__(self) -> str:
        n = "" if self.program.accesses is None else f" N={self.program.accesses}"
        size = f"{self.frame_bytes} B, {self.queues} queue{'s' if self.queues > 1 else ''}"
        return f"{self.program.name}{n}, {self.mode}, {size}, {self.engine} {self.load}"


def points_of(plan: Plan, arrangement: Arrangement) -> list[Point]:
    """All points of a plan, each once, in the plan's order; ``arrangement`` stands for ``auto``.

    A point that several blocks ask for is one point with all their passes. Raises PlanError where a user's file cannot
    be read.
    """
    found: dict[str, Point] = {}
    for block in plan.blocks:
        for point in _block_points(block, arrangement):
            passes = (*found[point.point_id].passes, *point.passes) if point.point_id in found else point.passes
            found[point.point_id] = replace(point, passes=tuple(dict.fromkeys(passes)))
    return list(found.values())


def _block_points(block: Block, arrangement: Arrangement) -> Iterator[Point]:
    p, t = block.points, block.traffic
    where = arrangement if block.arrangement == "auto" else block.arrangement
    factors = (p.mode, p.queues, p.frame_bytes, t.engine, t.load, t.flows, t.dst_ip_stride, t.dst_port)
    for program in _programs(block):
        for mode, queues, size, engine, load, flows, stride, port in itertools.product(*factors):
            sockets = itertools.product(p.xsk_attach, p.xsk_bind) if mode == "af_xdp" else [(None, None)]
            for attach, bind in sockets:
                yield Point(
                    program=program,
                    mode=mode,
                    xsk_attach=attach,
                    xsk_bind=bind,
                    queues=queues,
                    frame_bytes=size,
                    engine=engine,
                    load=load,
                    flows=flows,
                    src_ip=t.src_ip,
                    dst_ip=t.dst_ip,
                    src_ip_stride=t.src_ip_stride,
                    dst_ip_stride=stride,
                    src_port=t.src_port,
                    dst_port=port,
                    stamp=str(t.stamp),
                    arrangement=where,
                    passes=tuple(block.passes),
                )


def _programs(block: Block) -> Iterator[ProgramFactors]:
    p = block.points
    if p.program:
        yield from map(_user_program, p.program)
        return
    # Without its baseline a point has no access cost: N = 0 is measured beside every N.
    accesses = sorted({0, *p.accesses})
    for workload, op, form, size, map_type, n in itertools.product(
        p.workload, p.op, p.form, p.working_set_bytes, p.map_type, accesses
    ):
        yield ProgramFactors(
            workload=workload,
            op=op,
            accesses=n,
            form=form,
            working_set_bytes=None if workload == "packet" else size,
            map_type=map_type if workload == "lookup" else None,
        )


def _user_program(given: UserProgramFile) -> ProgramFactors:
    return ProgramFactors(
        file=given.file,
        file_sha256=_sha256(given.file, "program.file"),
        section=given.section,
        action=given.action,
        rodata=tuple(sorted((name, int(value)) for name, value in given.rodata.items())),
        setup=tuple(tuple(argv) for argv in given.setup),
        frames=given.frames,
        frames_sha256=_sha256(given.frames, "program.frames") if given.frames else None,
    )


def _sha256(path: str, field: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise PlanError(f"{field}: {path}: {error.strerror}", remedy="paths are relative to the plan's file") from None


def select(points: list[Point], only: dict[str, str]) -> list[Point]:
    """Keep the points whose columns equal ``only`` (``{"mode": "native", "queues": "1"}``).

    A selected point keeps its baseline. Raises PlanError for an unknown factor or where nothing is left.
    """
    known = points[0].factors() if points else {}
    for name in only:
        if name not in known:
            raise PlanError(f"--only: {name} is no factor", remedy=f"factors are {', '.join(known)}")
    kept = [p for p in points if all(str(p.factors()[k]) == v for k, v in only.items())]
    if not kept:
        raise PlanError(f"--only {_words(only)} leaves no point of the plan")
    baselines = {replace(p, program=replace(p.program, accesses=0)) for p in kept if p.program.accesses}
    return [p for p in points if p in set(kept) | baselines]


def _words(only: dict[str, str]) -> str:
    return ",".join(f"{k}={v}" for k, v in only.items())
