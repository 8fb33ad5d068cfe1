"""`calibrate`: how much equal runs of this machine differ, and whether it is fit to compare runs."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from xdplab.cli.common import echo, in_lab, tell
from xdplab.cli.plan import find_plan
from xdplab.labs import require_name
from xdplab.lazy import lazy

if TYPE_CHECKING:
    from xdplab.cli import screen
    from xdplab.plan import model
    from xdplab.run import progress
    from xdplab.studies.traffic import calibrating
else:
    progress, screen = lazy("xdplab.run.progress"), lazy("xdplab.cli.screen")
    model = lazy("xdplab.plan.model")
    calibrating = lazy("xdplab.studies.traffic.calibrating")


@click.command()
@click.argument("plan", metavar="PLAN", default="calibrate")
@click.option(
    "--runs", "count", default=5, show_default=True, type=int, help="Number of equal runs, each in its own lab."
)
@click.option("--json", "as_json", is_flag=True, help="For a script.")
@in_lab
def calibrate(lab_name: str | None, plan: str, count: int, as_json: bool) -> None:
    """Measure PLAN several times and store how much equal runs differ: `compare` uses it as the spread of runs.

    The result is kept in the user's state folder and is valid for runs on the same CPUs and drivers. The exit code is
    0 if the machine is fit to compare runs, else 1, with the reasons.
    """
    file = find_plan(plan)
    chosen = model.load_plan(file)
    where = lab_name or chosen.lab
    require_name(where)
    observer = progress.silent() if as_json else progress.observer_for(screen.console())
    calibration = calibrating.calibrate(chosen, where, count, observer)
    if as_json:
        echo(json.dumps(calibration.to_json(), indent=1))
    else:
        for line in calibration.lines():
            tell(line)
    sys.exit(1 if calibration.unfit else 0)
