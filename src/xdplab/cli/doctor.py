"""`xdplab doctor`: what this machine, or a lab's hosts, can do, and what is missing."""

from __future__ import annotations

import dataclasses
import sys

import click

from xdplab.cli.common import show
from xdplab.errors import LabError
from xdplab.labs import default_arrangement, use_lab
from xdplab.labs.doctor import Row, examine, examine_here

PROBLEM = 1


@click.command()
@click.option("--lab", "lab_name", metavar="NAME", help="Which lab (by default netns); made for the moment if not up.")
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
@click.pass_obj
def doctor(everywhere: str | None, lab_name: str | None, as_json: bool) -> None:
    """Say what is there, what is missing and what to do about it. Exit code 1 if something needed is missing."""
    rows = _examined(lab_name or everywhere or "netns")
    show([dataclasses.asdict(row) for row in rows], as_json=as_json)
    if any(row.verdict == "missing" for row in rows):
        sys.exit(PROBLEM)


def _examined(lab_name: str) -> list[Row]:
    default_arrangement(lab_name)  # a name that no lab can have is an error, not a finding
    try:
        with use_lab(lab_name) as lab:
            return examine(lab)
    except LabError as error:
        return examine_here(str(error))
