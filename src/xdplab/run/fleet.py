"""One run on several equal labs: a free lab gets the next block; the block of a lab that dies goes to another.

Only the controller writes the run directory and its journal; a lab's worker hands back its results. A `Fleet`
connects to the workers: that of `fleet_dask` uses Dask.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Generic, Protocol

from xdplab.errors import HostLostError, ResultsError
from xdplab.run.disk import disk_errors
from xdplab.run.engine import Engine, OfT, T, blocks_of
from xdplab.run.state import Attempt


@dataclass(frozen=True)
class BlockResult:
    """The results of one block in one lab: attempts, each with its raw files as a tar, and the programs' files.

    ``lost`` says why the lab cannot measure any more; its results from before are included.
    """

    measured: tuple[tuple[Attempt, bytes], ...]
    programs: bytes
    lost: str | None = None


class Fleet(Protocol[OfT]):
    """Labs by name; each measures one block at a time."""

    @property
    def labs(self) -> Sequence[str]: ...

    def give(self, lab: str, block: Sequence[OfT]) -> None:
        """Start measuring ``block`` in ``lab``, which is free."""

    def take(self) -> tuple[str, BlockResult]:
        """Wait until any lab has finished its block."""


class OnFleet(Generic[T]):
    """The labs of a fleet as `Workers`: a free lab gets the next block."""

    def __init__(self, fleet: Fleet[T]) -> None:
        self._fleet, self._alive = fleet, list(fleet.labs)

    def measure(self, engine: Engine[T], trials: Sequence[T]) -> None:
        """Try each of these trials once. Raises HostLostError when the last lab is gone."""
        waiting = blocks_of(trials)
        busy: dict[str, list[T]] = {}
        engine.state.labs = len(self._alive)
        while waiting or busy:
            for lab in [lab for lab in self._alive if lab not in busy]:
                if waiting:
                    busy[lab] = waiting.popleft()
                    self._fleet.give(lab, busy[lab])
            if not busy:
                remedy = "see `xdplab lab status`, then `xdplab resume`"
                raise HostLostError("every lab of this run is gone", remedy=remedy)
            lab, result = self._fleet.take()
            block = busy.pop(lab)
            measured = _keep(engine, block, result)
            if result.lost is not None:
                self._alive.remove(lab)
                engine.state.labs = len(self._alive)
                engine.run.journal.append("lab_lost", lab=lab, reason=result.lost)
                if left := [trial for trial in block if trial.trial_id not in measured]:
                    waiting.appendleft(left)
            for trial in block:
                if trial.trial_id in measured:
                    engine.nothing_works.ended(trial, engine.state.last[trial.trial_id])


def _keep(engine: Engine[T], block: Sequence[T], result: BlockResult) -> set[str]:
    """Write a worker's results into the run, attempt by attempt, and return the ids of their trials."""
    trials = {trial.trial_id: trial for trial in block}
    unpack(result.programs, engine.run.path / "programs")
    for attempt, raw in result.measured:
        trial = trials[attempt.trial_id]
        attempt = replace(attempt, attempt=engine.state.next_attempt(trial.trial_id))
        engine.observer.started(engine.state, trial)
        engine.run.journal.reserve()
        with engine.run.attempt(trial.trial_id, attempt.attempt) as folder:
            unpack(raw, folder)
        engine.keep(trial, attempt)
    return {attempt.trial_id for attempt, _ in result.measured}


def pack(folder: Path) -> bytes:
    """Return a folder's content as a compressed tar; no bytes if the folder does not exist."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            archive.add(path, arcname=path.name)
    return buffer.getvalue()


def unpack(data: bytes, folder: Path) -> None:
    """Write the result of `pack` into ``folder``: files and folders, all of them below it.

    Raises ResultsError if the disk fails, or for anything else in the archive. tarfile's own filters came with
    Python 3.11.4, and Debian 12 has 3.11.2.
    """
    with disk_errors(folder), tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        for member in archive:
            path = PurePosixPath(member.name)
            if path.is_absolute() or ".." in path.parts or not (member.isreg() or member.isdir()):
                raise ResultsError(f"a worker handed back {member.name!r}, which is not a file of an attempt")
            target = folder / path
            (target if member.isdir() else target.parent).mkdir(parents=True, exist_ok=True)
            if content := archive.extractfile(member):
                target.write_bytes(content.read())


NOTHING = pack(Path("/nonexistent"))
