"""`search`: MRR, NDR, PDR and latency at shares of it, for every point of a plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xdplab.cli.common import AS_JSON, RunPath, in_lab, parse_only, tell
from xdplab.cli.conduct import conduct
from xdplab.cli.options import PATH, Sharing, options_as, sharing_options
from xdplab.cli.plan import PLAN_OR_NAME, find_plan, require_timed
from xdplab.errors import ResultsError
from xdplab.lazy import lazily
from xdplab.studies.kinds import open_run
from xdplab.studies.search.profile import PROFILES, profile

with lazily():
    from xdplab.plan import model
    from xdplab.studies.search import kind, rows
    from xdplab.studies.traffic import turns

if TYPE_CHECKING:
    from xdplab.studies.kind import Run, Where


@dataclass(frozen=True)
class SearchRun:
    """What `search` looks for, where the run is made, and of which points; or ``old``, the search to continue."""

    name: str
    latency: bool
    share: float | None
    out: Path
    only: str | None
    old: Path | None

    @property
    def request(self) -> kind.SearchRequest:
        chosen = profile(self.name)
        return kind.SearchRequest(chosen if self.latency else replace(chosen, latency_repeats=0), self.share)


search_options = options_as(
    "new",
    SearchRun,
    click.option("--profile", "name", type=click.Choice(list(PROFILES)), default="quick", show_default=True),
    click.option("--latency/--no-latency", default=True, show_default=True, help="At 0, 10, 50 and 90 % of the PDR."),
    click.option(
        "--accesses-share",
        "share",
        type=click.FloatRange(0, 1, min_open=True, max_open=True),
        help="Also find the largest N whose throughput is this share of that at N = 0.",
    ),
    click.option("--out", type=PATH, default=Path("results"), show_default=True),
    click.option("--only", metavar="FACTOR=VALUE,…", help="As for `run`."),
    click.option("--resume", "old", type=RunPath(), metavar="RUN", help="Continue this search."),
)


@click.command()
@PLAN_OR_NAME
@search_options
@AS_JSON
@sharing_options
@in_lab
def search(lab_name: str | None, plan: str, new: SearchRun, as_json: bool, sharing: Sharing) -> int:
    """Search every point of PLAN: MRR, NDR and PDR by MLRsearch, latency at 0, 10, 50 and 90 % of the PDR.

    Loss is meaningful only if TG and DUT have separate CPUs: arrangement split, or two hosts.
    """
    if new.old is not None:
        run = open_run(new.old)
        if run.kind.name != "search":
            raise ResultsError(f"{run.directory.path} is not a search", remedy=f"`xdplab resume {run.directory.path}`")
        return _search(run, sharing.where(lab_name), as_json, new=False)
    file = find_plan(plan)
    wanted = model.load_plan(file)
    first = sharing.labs[0] if sharing.labs else lab_name or wanted.lab
    require_timed(first, *sharing.labs[1:])
    with turns.lab_for(first) as lab:
        run = kind.start_search(wanted, new.request, lab, new.out, only=parse_only(new.only))
        return _search(run, sharing.where(lab), as_json)


def _search(run: Run[Any], where: Where, as_json: bool, *, new: bool = True) -> int:
    code = conduct(run, lambda seen: run.measure(seen, where), new=new, figures=not as_json, as_json=as_json)
    if not as_json:
        tell(f"written: {run.directory.outputs / rows.TABLE}")
    return code
