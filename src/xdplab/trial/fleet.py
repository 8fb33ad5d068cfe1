"""A run shared among several labs: what a lab's worker does with a block, and the run as a whole."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from xdplab.errors import HostLostError, LabError
from xdplab.labs import use_lab
from xdplab.plan import Plan, Trial
from xdplab.runner import Observer, PlainObserver, RunState, read_state, run_trials
from xdplab.runner.fleet import Part, pack, run_on_fleet
from xdplab.runner.fleet_dask import DaskFleet, connected
from xdplab.store import RunDirectory
from xdplab.trial.manifest import host_states
from xdplab.trial.pdr import FILE, known_pdr
from xdplab.trial.planned import run_plan, run_trials_of
from xdplab.trial.runs import derive_tables
from xdplab.trial.study import TrialStudy


def measure_block(run_id: str, plan: Plan, pdr: Mapping[str, Any], lab_name: str, block: Sequence[Trial]) -> Part:
    """Measure one block in a lab, in a run directory of the moment, and return what came of it.

    A lab that cannot be had, or is lost meanwhile, is said in ``lost``; what it measured before is kept.
    """
    with tempfile.TemporaryDirectory(prefix="xdplab-block-") as folder:
        run = RunDirectory.create(Path(folder), "block", run_id=run_id, plan_yaml="")
        run.journal.append("planned", trials=[trial.trial_id for trial in block])
        run.write_json(FILE, {"pdr_pps": pdr})
        lost = None
        try:
            with use_lab(lab_name) as lab, lab.lock(f"run {run_id}"), TrialStudy(lab, run, plan, block) as study:
                run.write_json("programs/hosts.json", host_states(lab))
                run_trials(run, block, study, PlainObserver(Console(quiet=True)), retries=0, pause_s=plan.trial.pause_s)
        except (HostLostError, LabError) as error:
            lost = str(error)
        attempts = read_state(run).attempts
        measured = tuple((a, pack(run.raw_dir(a.trial_id, a.attempt))) for a in attempts)
        _keep_host_states(run, lab_name)
        return Part(measured, pack(run.path / "programs"), lost)


def _keep_host_states(run: RunDirectory, lab_name: str) -> None:
    """The lab's hosts travel beside the programs, under the lab's own name."""
    found = run.path / "programs" / "hosts.json"
    if found.exists():
        safe = "".join(c if c.isalnum() or c in "-._" else "_" for c in lab_name)
        found.rename(found.with_name(f"hosts-{safe}.json"))


def execute_on(run: RunDirectory, labs: Sequence[str], observer: Observer, *, scheduler: str | None = None) -> RunState:
    """Measure what ``run`` owes in equal ``labs`` at once, then derive its tables.

    Raises LabError for a lab named twice or one that the cluster at ``scheduler`` has no worker for.
    """
    if len(set(labs)) != len(labs):
        raise LabError(f"--labs names a lab twice: {', '.join(labs)}")
    plan, trials = run_plan(run), run_trials_of(run)
    with run.writer(), ExitStack() as stack:
        if scheduler is None:  # brought up once, not for each block; a lab of another machine is its worker's to keep
            for name in labs:
                stack.enter_context(use_lab(name))
        try:
            with connected(labs, scheduler) as client:
                fleet = DaskFleet(client, labs, partial(measure_block, run.run_id, plan, known_pdr(run)))
                state = run_on_fleet(run, trials, fleet, observer, retries=plan.trial.retries)
        finally:
            derive_tables(run)
    return state
