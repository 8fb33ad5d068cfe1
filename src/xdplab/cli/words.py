"""The words of the commands, for `xdplab.completion`: verbs, options, what stands behind them, values of factors."""

from __future__ import annotations

import importlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from pydantic import TypeAdapter

from xdplab.cli import cli, described
from xdplab.cli.common import RunPath
from xdplab.cli.lab import tested_kernels
from xdplab.errors import ResultsError
from xdplab.figures import FORMATS
from xdplab.figures.catalogue import CATALOGUE
from xdplab.figures.styles import VENUES
from xdplab.plan.factors import FACTORS
from xdplab.programs.spec import WORKLOADS
from xdplab.resources import shipped
from xdplab.run.disk import write_whole
from xdplab.studies.kinds import MODULES, STUDIES

KINDS = {
    "PLAN": "plan", "A": "program", "B": "program", "WORKLOAD|FILE": "program", "PROGRAM…": "program",
    "NAME": "lab", "A,B,…": "labs",
    "LAB,LAB": "labs", "KERNEL": "kernel", "[KERNEL]…": "kernel", "VERSION": "kernel", "host|VERSION|FILE": "kernel",
    "VERSION|FILE[,MODULES]": "kernel",
    "TAG": "tag", "FIGURE": "figure", "LENGTH|VENUE": "venue", "FORMAT,…": "formats",
    "FACTOR": "factor", "FACTOR,…": "factors", "FACTOR,FACTOR": "factors", "FACTOR=VALUE,…": "values", "RUN": "run",
}  # fmt: skip
"""What a word is, by what stands for it in the help."""
LABS = {"--lab", "name"}
"""Where NAME is that of a lab."""


def table() -> dict[str, Any]:
    """Return the commands with their words, and what belongs to each kind of word."""
    return {
        "command": _words_of(cli, described()),
        "factors": {factor.name: _values(TypeAdapter(factor.type).json_schema()) for factor in FACTORS if factor.where},
        "figures": {name: _figures(name) for name in MODULES} | {"traffic": list(CATALOGUE)},
        "plans": sorted(path.stem for path in shipped("plans").glob("*.yaml")),
        "workloads": list(WORKLOADS),
        "studies": list(STUDIES),
        "labs": ["netns", "uml"],
        "venues": list(VENUES),
        "formats": list(FORMATS),
        "kernels": list(tested_kernels()),
    }


def keep(place: str, made: dict[str, Any]) -> None:
    """Keep the table; where it cannot be kept, it is made again."""
    with suppress(ResultsError, OSError):
        write_whole(Path(place), json.dumps(made).encode())


def _words_of(command: click.Command, context: click.Context) -> dict[str, Any]:
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    options = [one for one in command.get_params(context) if isinstance(one, click.Option)]
    described: dict[str, Any] = {
        "options": {name: _wanted(one) for one in options for name in (*one.opts, *one.secondary_opts)},
        "arguments": [_wanted(one)[0] for one in arguments],
        "many": any(one.nargs == -1 for one in arguments),
    }
    if isinstance(command, click.Group):
        below = {name: command.get_command(context, name) for name in command.list_commands(context)}
        described["verbs"] = {name: _words_of(one, context) for name, one in below.items() if one is not None}
    return described


def _wanted(parameter: click.Parameter) -> list[str | list[str]]:
    """Return what each word behind an option, or in an argument's place, is: a kind, or the words there are."""
    if isinstance(parameter, click.Option) and (parameter.is_flag or parameter.count):
        return []
    if isinstance(parameter.type, click.Tuple) or parameter.nargs > 1:
        return [KINDS.get(word, "") for word in (parameter.metavar or "").split()] or [""] * parameter.nargs
    if isinstance(parameter.type, click.Choice):
        return [[str(choice) for choice in parameter.type.choices]]
    if isinstance(parameter.type, RunPath):
        return ["run"]
    metavar = parameter.metavar or (
        "NAME" if parameter.name == "name" and isinstance(parameter, click.Argument) else ""
    )
    kind = KINDS.get(metavar.removesuffix("..."), "")
    return ["" if kind == "lab" and not LABS & {*parameter.opts} else kind]


def _values(schema: dict[str, Any]) -> list[str]:
    """Return the values that a factor's type names."""
    parts = [value for one in (*schema.get("anyOf", ()), *schema.get("oneOf", ())) for value in _values(one)]
    return [*parts, *map(str, schema.get("enum", ())), *([str(schema["const"])] if "const" in schema else ())]


def _figures(kind: str) -> list[str]:
    """Return the names of a kind's figures, as far as they are known without a run."""
    package = MODULES[kind].partition(":")[0].rpartition(".")[0]
    with suppress(ModuleNotFoundError):
        views = importlib.import_module(f"{package}.views")
        return list(getattr(views, "VIEWS", ()))
    return []
