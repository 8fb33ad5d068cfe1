"""One run on several equal labs: a free lab gets the next block; the block of a lab that dies goes to another.

Only the controller writes the run directory and its journal; a lab's worker hands back its results. A `Fleet`
connects to the workers: that of `fleet_dask` uses Dask.
"""

from __future__ import annotations

import io
import tarfile
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Protocol, TypeVar

from xdplab.errors import HostLostError, ResultsError
from xdplab.run.disk import disk_errors
from xdplab.run.engine import AllAlike, in_rounds
from xdplab.run.progress import Observer
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import AnyTrial, Attempt, RunState

T = TypeVar("T", bound=AnyTrial)
OfT = TypeVar("OfT", bound=AnyTrial, contravariant=True)


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


def run_on_fleet(
    run: RunDirectory, trials: Sequence[T], fleet: Fleet[T], observer: Observer, *, retries: int
) -> RunState:
    """Measure every trial the run still owes and return its state.

    Raises HostLostError when the last lab is gone: finished trials are kept, and `resume` continues.
    """
    alive = list(fleet.labs)

    def one_round(state: RunState, owed: list[T], alike: AllAlike) -> None:
        state.labs = len(alive)
        _one_round(run, state, owed, fleet, alive, observer, alike)

    return in_rounds(run, trials, one_round, observer, retries=retries)


def _one_round(
    run: RunDirectory,
    state: RunState,
    trials: Sequence[T],
    fleet: Fleet[T],
    alive: list[str],
    observer: Observer,
    alike: AllAlike,
) -> None:
    waiting = deque(list(group) for _, group in groupby(trials, key=lambda t: (t.repetition, t.block)))
    busy: dict[str, list[T]] = {}
    while waiting or busy:
        for lab in [lab for lab in alive if lab not in busy]:
            if waiting:
                busy[lab] = waiting.popleft()
                fleet.give(lab, busy[lab])
        if not busy:
            raise HostLostError("every lab of this run is gone", remedy="see `xdplab lab status`, then `xdplab resume`")
        lab, part = fleet.take()
        block = busy.pop(lab)
        done = _keep(run, state, block, part, observer)
        if part.lost is not None:
            alive.remove(lab)
            state.labs = len(alive)
            run.journal.append("lab_lost", lab=lab, reason=part.lost)
            if left := [trial for trial in block if trial.trial_id not in done]:
                waiting.appendleft(left)
        for trial in block:
            if trial.trial_id in done:
                alike.ended(trial, state.last[trial.trial_id])


def _keep(run: RunDirectory, state: RunState, block: Sequence[T], part: BlockResult, observer: Observer) -> set[str]:
    """Write a worker's results into the run, attempt by attempt, and return the ids of their trials."""
    trials = {trial.trial_id: trial for trial in block}
    unpack(part.programs, run.path / "programs")
    for attempt, raw in part.measured:
        ended = replace(attempt, attempt=state.next_attempt(attempt.trial_id))
        observer.started(state, trials[ended.trial_id])
        run.journal.reserve()
        with run.attempt(ended.trial_id, ended.attempt) as folder:
            unpack(raw, folder)
        run.journal.append("finished", **vars(ended))
        state.add(ended.ended)
        observer.finished(trials[ended.trial_id], ended)
    return {attempt.trial_id for attempt, _ in part.measured}


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
