"""A run shared among several labs: what a lab's worker does with a block, and the run as a whole."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from distributed import Client

from xdplab.errors import HostLostError, LabError, PlanError
from xdplab.labs import Arrangement, use_lab
from xdplab.plan import Block, Plan, Point, Trial
from xdplab.run.engine import InTurn, Policy, run_trials
from xdplab.run.fleet import BlockResult, OnFleet, pack
from xdplab.run.fleet_dask import DaskFleet, connected, submit
from xdplab.run.progress import Observer, silent
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import RunState, attempts_of, record_planned
from xdplab.studies.kind import Run
from xdplab.studies.provenance import host_states
from xdplab.studies.traffic.checks import check_plan, require_machines
from xdplab.studies.traffic.pdr import FILE, known_pdr
from xdplab.studies.traffic.run_files import Files, create_run, extend_run, run_plan, run_trials_of
from xdplab.studies.traffic.runs import MEASURED, JudgingObserver, TrafficMethod
from xdplab.studies.traffic.turns import PLAN_LAB


def measure_block(
    way: TrafficMethod, run_id: str, plan: Plan, pdr: Mapping[str, Any], lab_name: str, block: Sequence[Trial]
) -> BlockResult:
    """Measure one block in a lab, in a temporary run directory, and return its result.

    If the lab cannot be reached, or is lost meanwhile, ``lost`` says so; its results from before are kept.
    """
    with tempfile.TemporaryDirectory(prefix="xdplab-block-") as folder:
        run = RunDirectory.create(Path(folder), "block", run_id=run_id, plan_yaml="")
        record_planned(run, block)
        run.write_json(FILE, {"pdr_pps": pdr})
        lost = None
        try:
            with use_lab(lab_name) as lab, lab.lock(f"run {run_id}"), way.session(lab, run, plan, block) as session:
                run.write_json("programs/hosts.json", host_states(lab))
                run_trials(run, block, InTurn(lambda _: session), silent(), Policy(pause_s=way.pause_s(plan)))
        except (HostLostError, LabError) as error:
            lost = str(error)
        # A trial that failed while its lab went down failed because of that: it is given back, and costs no retry.
        attempts = [a for a in attempts_of(run) if lost is None or a.status != "failed"]
        measured = tuple((a, pack(run.raw_dir(a.trial_id, a.attempt))) for a in attempts)
        _keep_host_states(run, lab_name)
        return BlockResult(measured, pack(run.path / "programs"), lost)


def _keep_host_states(run: RunDirectory, lab_name: str) -> None:
    """The lab's hosts travel beside the programs, under the lab's own name."""
    path = run.path / "programs" / "hosts.json"
    if path.exists():
        safe = "".join(c if c.isalnum() or c in "-._" else "_" for c in lab_name)
        path.rename(path.with_name(f"hosts-{safe}.json"))


@dataclass(frozen=True)
class Looked:
    """A lab's description before a run; ``refused`` is why the plan cannot be measured there, or None."""

    name: str
    arrangement: Arrangement
    refused: str | None


def look(plan: Plan, lab_name: str) -> Looked:
    """Ask a lab, on a machine that can reach it, whether it can measure ``plan``."""
    with use_lab(lab_name) as lab:
        try:
            check_plan(plan, lab)
        except PlanError as error:
            return Looked(lab.name, lab.arrangement, str(error))
        return Looked(lab.name, lab.arrangement, None)


class JoinedLabs:
    """Equal labs that measure one run at once, each through a Dask worker that has it."""

    def __init__(self, labs: Sequence[str], client: Client, scheduler: str | None, method: TrafficMethod) -> None:
        self._labs, self._client, self._scheduler, self._method = tuple(labs), client, scheduler, method

    def start(
        self,
        plan: Plan,
        parent: Path,
        *,
        only: Mapping[str, str] | None = None,
        extend: RunDirectory | None = None,
        files: Files | None = None,
    ) -> RunDirectory:
        """Make the run directory of ``plan``, or add to an old one, once every lab can measure it.

        Raises PlanError with the message of a lab that cannot, LabError if the labs are not equal.
        """
        _require_a_number(plan)
        _require_no_lab_of_their_own(plan.blocks)
        labs = self._look(plan)
        if extend is None:
            lab, arrangement = labs[0].name, labs[0].arrangement
            return create_run(plan, parent, lab=lab, arrangement=arrangement, only=only, files=files)
        require_machines(next(extend.journal.events("planned"))["arrangement"], labs[0])
        extend_run(extend, plan, only=only, files=files)
        return extend

    def measure(self, run: Run[Any], observer: Observer) -> RunState:
        """Measure the missing trials of ``run``."""
        folder, method = run.directory, self._method
        plan, trials = run_plan(folder), run_trials_of(folder)
        _require_a_number(plan)
        _require_no_lab_of_their_own(trial.point for trial in trials)
        first = self._look(plan)[0]
        for trial in trials:
            require_machines(trial.point.arrangement, first)
        folder.journal.append("shared", labs=self._labs, scheduler=self._scheduler)
        block = partial(measure_block, method, folder.run_id, plan, known_pdr(folder))
        fleet = DaskFleet(self._client, self._labs, block)
        judged = JudgingObserver(observer, folder, plan.trial.window_s, method)
        return run_trials(folder, trials, OnFleet(fleet), judged, Policy(method.retries(plan)))

    def _look(self, plan: Plan) -> list[Looked]:
        tasks = [submit(self._client, lab, look, plan, lab) for lab in self._labs]
        looks = [task.result() for task in tasks]
        for one in looks:
            if one.refused is not None:
                raise PlanError(f"lab {one.name}: {one.refused}")
            if one.arrangement != looks[0].arrangement:
                raise LabError(
                    f"lab {looks[0].name} is of arrangement {looks[0].arrangement}, {one.name} of {one.arrangement}",
                    remedy="labs that share a run must be equal: make one run per kind of lab, and compare them",
                )
        return looks


def _require_a_number(plan: Plan) -> None:
    """Raise PlanError if results decide how many repetitions there are: labs at once do not know each other's."""
    if plan.open_ended:
        raise PlanError(
            "--labs: a run with an open number of repetitions is measured in one lab",
            remedy="give `repetitions` a number, or leave --labs out",
        )


def _require_no_lab_of_their_own(places: Iterable[Block | Point]) -> None:
    """Raise PlanError if blocks or points name a lab: these can only be measured there."""
    named = dict.fromkeys(place.lab for place in places if place.lab != PLAN_LAB)
    if named:
        raise PlanError(
            f"--labs: blocks of this plan name their own lab: {', '.join(named)}", remedy="leave --labs out"
        )


@contextmanager
def joined(labs: Sequence[str], scheduler: str | None = None, method: TrafficMethod = MEASURED) -> Iterator[JoinedLabs]:
    """Bring ``labs`` up where they are not and join them; with ``scheduler``, those of a cluster that runs already.

    Raises LabError for a lab named twice or one that the cluster at ``scheduler`` has no worker for.
    """
    if len(set(labs)) != len(labs):
        raise LabError(f"--labs names a lab twice: {', '.join(labs)}")
    with ExitStack() as stack:
        if scheduler is None:  # brought up once, not for each block; a worker keeps the lab of its own machine
            for name in labs:
                stack.enter_context(use_lab(name))
        yield JoinedLabs(labs, stack.enter_context(connected(labs, scheduler)), scheduler, method)
