"""`search`: MRR, NDR, PDR and latency at shares of it, for every point of a plan."""

from __future__ import annotations

import json
from pathlib import Path

import click

from xdplab.cli.common import console, parse_only, show
from xdplab.cli.run import PLAN_OR_NAME, find_plan
from xdplab.plan import Plan, load_plan
from xdplab.runner import observer_for, run_trials
from xdplab.store import RunDirectory
from xdplab.studies.search.profile import PROFILES, Profile, profile
from xdplab.studies.search.rows import search_table
from xdplab.studies.search.study import SearchStudy
from xdplab.trial import runs
from xdplab.trial.bench import TrialBench
from xdplab.trial.planned import run_plan, run_trials_of

SHOWN = ("program_name", "accesses", "mode", "queues", "frame_bytes", "ndr_pps", "pdr_pps", "mrr_pps", "limited_by")


@click.command()
@PLAN_OR_NAME
@click.option("--profile", "name", type=click.Choice(list(PROFILES)), default="quick", show_default=True)
@click.option("--accesses-share", "share", type=click.FloatRange(0, 1, min_open=True, max_open=True),
              help="Also find the largest N whose throughput is this share of that at N = 0.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), default=Path("results"), show_default=True)
@click.option("--only", metavar="FACTOR=VALUE,…", help="As for `run`.")
@click.option("--resume", "old", type=click.Path(path_type=Path), help="Go on with this run instead of making one.")
@click.pass_obj
def search(
    lab_name: str | None, plan: str, name: str, share: float | None, out: Path, only: str | None, old: Path | None
) -> int:
    """Search every point of PLAN: MRR, NDR and PDR by MLRsearch, latency at 0, 10, 50 and 90 % of the PDR.

    Loss means something only where TG and DUT have CPUs of their own: arrangement split, or two hosts.
    """
    chosen = profile(name)
    wanted = _as_searched(load_plan(find_plan(plan)), chosen)
    with runs.lab_for(lab_name or wanted.lab) as lab:
        run = RunDirectory.open(old) if old else runs.start(wanted, lab, out, only=parse_only(only))
        trials = run_trials_of(run)
        console.print(f"searching into {run.path}", highlight=False, soft_wrap=True)
        with run.writer(), lab.lock(), TrialBench(lab, run, run_plan(run), trials) as bench:
            study = SearchStudy(bench, chosen, share=share)
            state = run_trials(run, trials, study, observer_for(console), retries=0, pause_s=0)
    table = search_table(run, {trial.trial_id: trial for trial in trials})
    found = table[[column for column in SHOWN if column in table]]
    show(json.loads(found.to_json(orient="records")), as_json=False)
    return 1 if state.failed or state.owed else 0


def _as_searched(plan: Plan, chosen: Profile) -> Plan:
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
