"""`plan`: what a plan would measure and how long it takes, before anything is changed."""

from __future__ import annotations

import errno
import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xdplab.cli.common import AS_JSON, echo, in_lab, parse_only, print_json, show, tell
from xdplab.cli.options import options_as
from xdplab.errors import PlanError
from xdplab.lazy import lazily
from xdplab.resources import shipped

with lazily():
    import difflib  # few names are wrong

    import xdplab.plan as plans
    from xdplab import labs
    from xdplab.plan import factors, reference
    from xdplab.studies.traffic import checks, run_files

if TYPE_CHECKING:
    from xdplab.plan import Trial

PLAN_OR_NAME = click.argument("plan", metavar="PLAN", default="quick")


def find_plan(name: str) -> Path:
    """Return the path of a plan, given as file or by the name of a shipped plan (``quick``, ``smoke``, ``thesis``).

    Raises PlanError if there is none, before the modules that read plans are loaded.
    """
    folder = shipped("plans")
    for path in (Path(name), folder / f"{name}.yaml"):
        if path.exists() and not path.is_dir():
            return path
    near = difflib.get_close_matches(name, [path.stem for path in folder.glob("*.yaml")], n=1)
    remedy = f"did you mean {near[0]}?" if near else "name a plan file; plans/ holds some"
    raise PlanError(f"{name}: {os.strerror(errno.EISDIR if Path(name).is_dir() else errno.ENOENT)}", remedy=remedy)


@dataclass(frozen=True)
class PlanView:
    """What is shown: a plan's blocks, or its trials, of some points; or what a plan file may say."""

    dry_run: bool
    only: str | None
    schema: bool
    factors: bool


plan_view_options = options_as(
    "view",
    PlanView,
    click.option("--dry-run", is_flag=True, help="List every trial in its order."),
    click.option("--only", metavar="FACTOR=VALUE,…", help="As for `run`."),
    click.option("--schema", is_flag=True, help="Print the JSON schema of a plan file."),
    click.option("--factors", is_flag=True, help="Print every factor: values, default, unit, meaning (Markdown)."),
)


@click.command()
@PLAN_OR_NAME
@plan_view_options
@AS_JSON
@in_lab
def plan(lab_name: str | None, plan: str, view: PlanView, as_json: bool) -> None:
    """Show the points of PLAN, its blocks, and the time it will take."""
    if view.schema or view.factors:
        echo(json.dumps(plans.Plan.model_json_schema(), indent=1) if view.schema else reference.table())
        return
    file = find_plan(plan)
    chosen = plans.load_plan(file, to_measure=False)
    require_labs(lab_name, chosen)
    trials = run_files.plan_trials(chosen, labs.default_arrangement(lab_name or chosen.lab), parse_only(view.only))
    run_files.require_files(trials)
    if as_json:
        print_json(_facts(chosen, trials))
        return
    show(_each(trials) if view.dry_run else _by_mode(trials))
    tell_extent(chosen, trials)


def tell_extent(plan: plans.Plan, trials: Sequence[Trial]) -> None:
    """Print the size of these trials, and once the commands that labels name by a hash."""
    tell(plans.extent(plan, trials))
    setup = factors.BY_NAME["setup"]
    for commands in filter(None, dict.fromkeys(trial.point.program.setup for trial in trials)):
        tell(f"{setup.label(cell := setup.form.cell(commands))}: {cell}")


def _facts(plan: plans.Plan, trials: Sequence[Trial]) -> dict[str, Any]:
    """Return the points with their factors, by the names of the columns of trials.parquet, and the trials in order."""
    points = {trial.point.point_id: trial.point for trial in trials}
    return {
        "plan": plan.name,
        "lab": plan.lab,
        "points": [{"lab": point.lab} | point.factors() for point in points.values()],
        "trials": [
            {name: getattr(trial, name) for name in ("order", "block", "repetition", "trial_id")}
            | {"point_id": trial.point.point_id}
            for trial in trials
        ],
        "estimate_s": plans.estimate_s(plan, trials),
    }


def _each(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    return [
        {"order": t.order, "block": t.block, "repetition": t.repetition, "point": str(t.point), "trial": t.trial_id}
        for t in trials
    ]


def _by_mode(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    points = Counter((t.point.mode, t.point.queues) for t in trials)
    return [{"mode": m, "queues": q, "trials": n} for (m, q), n in sorted(points.items())]


def require_labs(name: str | None, plan: plans.Plan) -> None:
    """Raise LabError if a lab of ``plan``, or the lab given instead of the plan's own, has an invalid name,
    UnsupportedError for one that counts."""
    require_timed(name or plan.lab, *(block.lab for block in plan.blocks if block.lab != "auto"))


def require_timed(*names: str) -> None:
    """Raise LabError for the name of a lab that is invalid, UnsupportedError for that of one that counts."""
    for name in names:
        labs.require_name(name)
        if labs.counts(name):
            raise checks.no_rates(name)
