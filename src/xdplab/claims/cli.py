"""`claims`: do sentences about a run's points hold?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from xdplab.cli.common import AS_JSON, FORMAT, RunPath, print_json, show_frame, tell
from xdplab.lazy import lazy
from xdplab.studies.kinds import open_run

if TYPE_CHECKING:
    from xdplab.claims import judged
else:
    judged = lazy("xdplab.claims.judged")

CLAIMS_FILE = click.option(
    "--file", "file", type=click.Path(path_type=Path), metavar="CLAIMS.yaml", help="Claims instead of the run's own."
)


@click.command()
@click.argument("directory", metavar="RUN", type=RunPath())
@CLAIMS_FILE
@FORMAT
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
        print_json({"run": run.directory.name, "claims": [*map(asdict, answers)]})
    else:
        show_frame(judged.table(answers), form=form)
        if form == "table":
            tell(judged.summary(answers))
    return judged.exit_code(answers)
