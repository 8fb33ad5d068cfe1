"""What this machine's numbers are worth: `calibrate` measures how much equal runs differ, `selftest` injects events."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from xdplab.cli.common import AS_JSON, SCRIPT_FORMAT, in_lab, observer_of, print_json, show, tell
from xdplab.cli.plan import find_plan, require_timed
from xdplab.lazy import lazily
from xdplab.run.disk import write_whole

with lazily():
    from xdplab.cli import ktap
    from xdplab.plan import model
    from xdplab.run import progress
    from xdplab.studies.traffic import comparison, turns
    from xdplab.studies.traffic import selftest as controls


@click.command()
@click.argument("plan", metavar="PLAN", default="calibrate")
@click.option(
    "--runs", "count", default=5, show_default=True, type=int, help="Number of equal runs, each in its own lab."
)
@AS_JSON
@in_lab
def calibrate(lab_name: str | None, plan: str, count: int, as_json: bool) -> None:
    """Measure PLAN several times and store how much equal runs differ: `compare` uses it as the spread of runs.

    The result is kept in the user's state folder and is valid for runs on the same CPUs and drivers. The exit code is
    0 if the machine is fit to compare runs, else 1, with the reasons.
    """
    file = find_plan(plan)
    chosen = model.load_plan(file)
    where = lab_name or chosen.lab
    require_timed(where)
    observer = progress.silent() if as_json else observer_of(False)
    calibration = comparison.calibrate(chosen, where, count, observer)
    if as_json:
        print_json(calibration.to_json())
    else:
        for line in calibration.lines():
            tell(line)
    sys.exit(1 if calibration.unfit else 0)


LAB = "netns:selftest"


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("results"), show_default=True, help="Parent.")
@click.option(
    "--markdown", type=click.Path(path_type=Path), metavar="FILE", help="Also write the table into this file."
)
@AS_JSON
@SCRIPT_FORMAT
@in_lab
def selftest(lab_name: str | None, out: Path, markdown: Path | None, as_json: bool) -> None:
    """Inject delays, loss, duplicates, reordering and a slow-down of 3 %, and check that each is found (a few minutes).

    So must a changed length, a sample in step with the traffic, a count upstream of the program, and BPF statistics
    that are switched on in mid-run, for the whole machine and some seconds. Two equal programs must be called
    equivalent. The lab is netns:selftest unless --lab names another. The exit code is 0 if all controls hold, else 1.
    """
    name = lab_name or LAB
    require_timed(name)
    with turns.lab_for(name) as lab:
        outcome = controls.selftest(lab, out, progress.silent() if as_json else observer_of(False))
    if markdown is not None:
        write_whole(markdown, controls.page(outcome).encode())
    if as_json:
        cases = (
            ktap.KtapCase(
                c.control, "ok" if c.holds else "not ok", f"{c.injected}; found {c.found}, allowed {c.allowed}"
            )
            for c in outcome.controls
        )
        print_json(outcome.to_json(), cases)
    else:
        rows = [
            {"control": c.control, "injected": c.injected, "found": c.found, "allowed": c.allowed,
             "holds": "yes" if c.holds else "NO"}
            for c in outcome.controls
        ]  # fmt: skip
        show(rows, f"{outcome.lab}, {outcome.date[:10]}")
        tell("all controls hold" if outcome.holds else "not all controls hold: do not trust this machine's numbers yet")
    sys.exit(0 if outcome.holds else 1)
