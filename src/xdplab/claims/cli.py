"""`claims` and `reproduce`: do sentences about a run's points hold, and do somebody's hold here?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from xdplab.analysis import MARGIN
from xdplab.cli.common import AS_JSON, RunPath, format_option, in_lab, print_json, show_frame, tell
from xdplab.cli.options import PATH, Sharing
from xdplab.lazy import lazily
from xdplab.studies.kinds import open_run

with lazily():
    from xdplab.claims import judged
    from xdplab.cli import ktap
    from xdplab.cli import run as running
    from xdplab.studies import report

CLAIMS_FILE = click.option(
    "--file", "file", type=click.Path(path_type=Path), metavar="CLAIMS.yaml", help="Claims instead of the run's own."
)


@click.command()
@click.argument("directory", metavar="RUN", type=RunPath())
@CLAIMS_FILE
@format_option("table", "csv", "markdown", "json", "ktap")
@AS_JSON
def claims(directory: Path, file: Path | None, form: str, as_json: bool) -> int:
    """Say of each claim whether it holds in RUN, is refuted, or cannot be told here.

    Claims are those of the plan (`claims:`), or of claims.yaml in RUN. The exit code is 0 if all hold, 1 if one is
    refuted, 2 if none is and one cannot be told.
    """
    run = open_run(directory)
    run.check_raw()
    answers = judged.judged(run, file)
    if as_json:
        print_json({"run": run.directory.name, "claims": [*map(asdict, answers)]}, map(_case, answers))
    else:
        show_frame(judged.table(answers), form=form)
        if form == "table":
            tell(judged.summary(answers))
    return judged.exit_code(answers)


def _case(claim: judged.JudgedClaim) -> ktap.KtapCase:
    """Return a claim as a test; one that cannot be told is skipped."""
    results: dict[int, ktap.Result] = {0: "ok", 1: "not ok", 2: "skip"}
    detail = ", ".join(filter(None, (claim.promise, claim.estimate, claim.would_tell)))
    return ktap.KtapCase(claim.claim, results[judged.CODES[claim.verdict]], detail)


@click.command()
@click.argument("source", metavar="PLAN|BUNDLE|FOLDER", type=PATH)
@CLAIMS_FILE
@click.option("--out", type=PATH, default=Path("results"), show_default=True, help="Parent of the run.")
@in_lab
def reproduce(lab_name: str | None, source: Path, file: Path | None, out: Path) -> int:
    """Measure somebody's plan on this machine, and say which of its claims hold here.

    The source is a plan with claims, a bundle or artifact of `xdplab export`, or the folder of a run. A page has the
    printed values, or those of the bundle, beside the measured ones. The exit code is that of `claims`.
    """
    published = judged.published(source, file)
    run, _ = running.measure_plan(lab_name, published.plan, running.PlannedRun(out), False, Sharing())
    answers = judged.judged_here(published, run)
    show_frame(judged.table(answers))
    tell(judged.summary(answers))
    runs, sides = ([published.run, run], ("published", "here")) if published.run else ([run], ())
    page = report.write_report(runs, run.directory.outputs / "report.html", sides=sides, margin=MARGIN)
    tell(f"report: {page}")
    return judged.exit_code(answers)
