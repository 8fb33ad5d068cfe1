"""`study NAME`: what is measured besides XDP traffic, each repeatable in one command."""

from __future__ import annotations

from pathlib import Path

import click
import pandas as pd

from xdplab.cli.common import console, show
from xdplab.figures import Drawn
from xdplab.runner import observer_for, read_state
from xdplab.runner.progress import ending
from xdplab.studies.verifier import runs
from xdplab.studies.verifier.families import FAMILIES


@click.group()
def study() -> None:
    """Studies of the execution side: the verifier, and others to come."""


@study.command()
@click.argument("objects", nargs=-1)
@click.option("--out", type=click.Path(path_type=Path), default=Path("results"), show_default=True, help="Its parent.")
@click.option("--name", default="verifier", show_default=True, help="Name of the run directory.")
@click.option("--smallest", is_flag=True, help="Few sizes, one repetition: a minute, and every figure has points.")
@click.option("--kernel", "kernels", multiple=True, metavar="host|VERSION", help="host (the default), 5.10, 6.1 …")
@click.option("--prevail", "prevails", multiple=True, metavar="[NAME=]PATH", help="PREVAIL commands; else PATH's own.")
@click.option("--compiler", "compilers", multiple=True, metavar="NAME", help='Such as "clang 14"; all that are here.')
@click.option("--mcpu", "mcpus", multiple=True, type=click.Choice(["v1", "v2", "v3", "v4"]), help="v2, v3 and v4.")
@click.option("--family", "families", multiple=True, type=click.Choice([*FAMILIES, "none"]), help="All by default.")
@click.option("--testbed/--no-testbed", default=True, show_default=True, help="The XDP lab's own programs.")
@click.option("--largest/--no-largest", default=True, show_default=True, help="Look for the largest N accepted.")
@click.option("--repetitions", type=click.IntRange(1, 1000), default=3, show_default=True)
@click.option("--loads", type=click.IntRange(1, 1000), default=20, show_default=True, help="Of a program, at most.")
@click.option("--limit-s", type=click.FloatRange(1, 3600), default=60.0, show_default=True, help="Of one PREVAIL run.")
@click.option("--types", type=click.Path(exists=True, dir_okay=False), help="OBJECT SECTION TYPE lines (see the docs).")
@click.option(
    "--resume", type=click.Path(path_type=Path), metavar="RUN", help="Go on with a run; all else is its plan's."
)
@click.option("--json", "as_json", is_flag=True, help="The rows of all programs, for a script.")
def verifier(
    objects: tuple[str, ...], out: Path, name: str, smallest: bool, resume: Path | None, as_json: bool, **chosen: object
) -> int:
    """How long the kernel's verifier takes and how much memory it needs, by program size.

    OBJECTS are BPF objects, directories or archives of them, or the word system. Generated families are added.
    """
    run = runs.open_run(resume) if resume else runs.start(_request(objects, smallest, chosen), out, name)
    if not as_json:
        console.print(f"measuring into {run.directory.path}", highlight=False, soft_wrap=True)
    state = read_state(run.directory)
    if state.owed:
        state = runs.execute(run, observer_for(console) if not as_json else runs.silent())
    drawn = runs.draw(run)
    if as_json:
        click.echo(runs.table(run).to_json(orient="records"))
    else:
        _tell(run, drawn)
        console.print(ending(state), highlight=False)
    return 1 if state.failed or state.owed else 0


def _request(objects: tuple[str, ...], smallest: bool, chosen: dict[str, object]) -> runs.Request:
    """What was not said stays at the request's own default."""
    said = {key: value for key, value in chosen.items() if value != ()}
    if said.get("families") == ("none",):
        said["families"] = ()
    request = runs.Request(objects=objects, **said)  # type: ignore[arg-type]
    return runs.smallest(request) if smallest else request


def _tell(run: runs.VerifierRun, drawn: list[Drawn]) -> None:
    for title, frame in runs.tables(run).values():
        rows = [dict(zip(map(str, frame.columns), row, strict=True)) for row in frame.astype(object).values]
        show([{k: None if pd.isna(v) else v for k, v in row.items()} for row in rows], as_json=False, title=title)
        console.print()
    for figure in drawn:
        where = next((f for f in figure.files if f.suffix == ".png"), None)
        said = f"figure {figure.stem}: {where}" if where else f"no figure {figure.stem}: {figure.reason}"
        console.print(said, markup=False, highlight=False, soft_wrap=True)
    for line in (*run.notes, *runs.failures(run)):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
