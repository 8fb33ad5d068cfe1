"""`calibrate`: how far equal runs of this machine lie apart, and whether it is fit to compare runs."""

from __future__ import annotations

import json
import sys

import click

from xdplab.cli.common import console
from xdplab.cli.conduct import tell
from xdplab.cli.run import find_plan, own_plan
from xdplab.run.progress import observer_for
from xdplab.studies.frame import silent
from xdplab.studies.traffic.calibrating import calibrate as measure


@click.command()
@click.argument("plan", metavar="PLAN", default="calibrate")
@click.option("--runs", "count", default=5, show_default=True, type=int, help="Equal runs, each in a lab of its own.")
@click.option("--json", "as_json", is_flag=True, help="For a script.")
@click.pass_obj
def calibrate(lab_name: str | None, plan: str, count: int, as_json: bool) -> None:
    """Measure PLAN several times and keep how far equal runs lie apart: `compare` takes that for the spread of runs.

    It is kept in the user's state folder and holds for runs on the same CPUs and drivers. Ends with exit code 0 where
    the machine is fit to compare runs, 1 where it is not, with the reasons.
    """
    chosen = own_plan(find_plan(plan))
    found = measure(chosen, lab_name or chosen.lab, count, silent() if as_json else observer_for(console))
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=1))
    else:
        for line in found.lines():
            tell(line)
    sys.exit(1 if found.unfit else 0)
