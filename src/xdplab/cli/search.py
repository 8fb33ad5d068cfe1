"""`search`: MRR, NDR, PDR and latency at shares of it, for every point of a plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xdplab.cli.common import in_lab, parse_only, tell
from xdplab.cli.conduct import conduct, labs_named
from xdplab.cli.plan import PLAN_OR_NAME, find_plan
from xdplab.cli.run import LABS, SCHEDULER, STEAL
from xdplab.errors import ResultsError
from xdplab.labs import require_name
from xdplab.later import later
from xdplab.studies.kinds import open_run
from xdplab.studies.search.profile import PROFILES, profile

if TYPE_CHECKING:
    from xdplab.plan import model
    from xdplab.studies import kind as studies_kind
    from xdplab.studies.kind import Run, Where
    from xdplab.studies.search import kind, rows
    from xdplab.studies.traffic import runs
else:
    studies_kind, kind = later("xdplab.studies.kind"), later("xdplab.studies.search.kind")
    model = later("xdplab.plan.model")
    rows, runs = later("xdplab.studies.search.rows"), later("xdplab.studies.traffic.runs")


@click.command()
@PLAN_OR_NAME
@click.option("--profile", "name", type=click.Choice(list(PROFILES)), default="quick", show_default=True)
@click.option("--latency/--no-latency", default=True, show_default=True, help="At 0, 10, 50 and 90 % of the PDR.")
@click.option("--accesses-share", "share", type=click.FloatRange(0, 1, min_open=True, max_open=True),
              help="Also find the largest N whose throughput is this share of that at N = 0.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), default=Path("results"), show_default=True)
@click.option("--only", metavar="FACTOR=VALUE,…", help="As for `run`.")
@click.option("--resume", "old", type=click.Path(path_type=Path), metavar="RUN", help="Continue this search.")
@click.option("--json", "as_json", is_flag=True, help="For a script.")
@LABS
@SCHEDULER
@STEAL
@in_lab
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
    labs: str | None,
    scheduler: str | None,
    steal: bool,
) -> int:
    """Search every point of PLAN: MRR, NDR and PDR by MLRsearch, latency at 0, 10, 50 and 90 % of the PDR.

    Loss is meaningful only if TG and DUT have separate CPUs: arrangement split, or two hosts.
    """
    if old is not None:
        run = open_run(old)
        if run.kind.name != "search":
            raise ResultsError(f"{run.directory.path} is not a search", remedy=f"`xdplab resume {run.directory.path}`")
        return _search(run, studies_kind.Where(lab_name, steal=steal), as_json, new=False)
    chosen = profile(name) if latency else replace(profile(name), latency_repeats=0)
    file, several = find_plan(plan), labs_named(labs, scheduler)
    wanted = model.load_plan(file)
    require_name(several[0] if several else lab_name or wanted.lab)
    request = kind.SearchRequest(chosen, share)
    with runs.lab_for(several[0] if several else lab_name or wanted.lab) as lab:
        run = kind.start_search(wanted, request, lab, out, only=parse_only(only))
        return _search(run, studies_kind.Where(None if several else lab, several, scheduler, steal), as_json)


def _search(run: Run[Any], where: Where, as_json: bool, *, new: bool = True) -> int:
    code = conduct(run, lambda seen: run.measure(seen, where), new=new, figures=not as_json, as_json=as_json)
    if not as_json:
        tell(f"written: {run.directory.outputs / rows.TABLE}")
    return code
