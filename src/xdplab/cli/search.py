"""`search`: MRR, NDR, PDR and latency at shares of it, for every point of a plan."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from xdplab.cli.common import console, parse_only, show
from xdplab.cli.run import PLAN_OR_NAME, find_plan, own_plan
from xdplab.errors import ResultsError
from xdplab.labs import Lab
from xdplab.plan import Plan
from xdplab.run.engine import run_trials
from xdplab.run.progress import observer_for
from xdplab.run.rundir import RunDirectory
from xdplab.studies.search.profile import PROFILES, Profile, profile
from xdplab.studies.search.rows import TABLE, remarks, search_table, shown
from xdplab.studies.search.study import SearchStudy
from xdplab.studies.traffic import runs
from xdplab.studies.traffic.bench import TrialBench
from xdplab.studies.traffic.planned import run_plan, run_trials_of

ASKED = "search.json"
"""What a search was asked for, kept in its run: one that goes on must not go on differently."""


@click.command()
@PLAN_OR_NAME
@click.option("--profile", "name", type=click.Choice(list(PROFILES)), default="quick", show_default=True)
@click.option("--latency/--no-latency", default=True, show_default=True, help="At 0, 10, 50 and 90 % of the PDR.")
@click.option("--accesses-share", "share", type=click.FloatRange(0, 1, min_open=True, max_open=True),
              help="Also find the largest N whose throughput is this share of that at N = 0.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), default=Path("results"), show_default=True)
@click.option("--only", metavar="FACTOR=VALUE,…", help="As for `run`.")
@click.option("--resume", "old", type=click.Path(path_type=Path), metavar="RUN", help="Go on with this search.")
@click.option("--json", "as_json", is_flag=True, help="For a script.")
@click.pass_obj
def search(
    lab_name: str | None,
    plan: str,
    name: str,
    latency: bool,
    share: float | None,
    out: Path,
    only: str | None,
    old: Path | None,
    as_json: bool,
) -> int:
    """Search every point of PLAN: MRR, NDR and PDR by MLRsearch, latency at 0, 10, 50 and 90 % of the PDR.

    Loss means something only where TG and DUT have CPUs of their own: arrangement split, or two hosts.
    """
    if old is not None:
        run = RunDirectory.open(old)
        with runs.lab_for(lab_name or runs.lab_of(run)) as lab:
            return _search(run, lab, as_json)
    chosen = profile(name) if latency else replace(profile(name), latency_repeats=0)
    wanted = as_searched(own_plan(find_plan(plan)), chosen)
    with runs.lab_for(lab_name or wanted.lab) as lab:
        run = runs.start(wanted, lab, out, only=parse_only(only))
        run.write_json(ASKED, {"profile": asdict(chosen), "share": share})
        with runs.discarded_if_nothing_began(run):
            return _search(run, lab, as_json)


def _search(run: RunDirectory, lab: Lab, as_json: bool) -> int:
    trials, asked = run_trials_of(run), _asked(run)
    if not as_json:
        console.print(f"searching into {run.path}", highlight=False, soft_wrap=True)
    with run.writer(), lab.lock(), TrialBench(lab, run, run_plan(run), trials) as bench:
        study = SearchStudy(bench, Profile(**asked["profile"]), share=asked["share"])
        watching = runs.quiet() if as_json else observer_for(console)
        state = run_trials(run, trials, study, watching, retries=0, pause_s=0)
    table = search_table(run, {trial.trial_id: trial for trial in trials})
    show(json.loads(table.to_json(orient="records")) if as_json else shown(table), as_json=as_json)
    for line in [] if as_json else [*remarks(table), f"written: {run.path / TABLE}"]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return 1 if state.failed or state.owed else 0


def _asked(run: RunDirectory) -> dict[str, Any]:
    path = run.path / ASKED
    if not path.exists():
        raise ResultsError(f"{run.path} is no search", remedy="`xdplab resume` goes on with a run")
    asked: dict[str, Any] = json.loads(path.read_text())
    asked["profile"]["frame_bytes"] = tuple(asked["profile"]["frame_bytes"])
    return asked


def as_searched(plan: Plan, chosen: Profile) -> Plan:
    """A search finds the load by itself; a profile of a standard brings its frame sizes with it."""
    frames = {"frame_bytes": list(chosen.frame_bytes)} if chosen.frame_bytes else {}
    blocks = [
        block.model_copy(
            update={
                "points": block.points.model_copy(update=frames),
                "traffic": block.traffic.model_copy(update={"load": ["max"]}),
            }
        )
        for block in plan.blocks
    ]
    return plan.model_copy(update={"blocks": blocks})
