"""What every verb needs: verbs that are loaded when asked for, one way to fail, to say a line, to print rows."""

from __future__ import annotations

import functools
import importlib
import json
import math
import os
import re
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from xdplab.errors import PlanError, XdplabError
from xdplab.lazy import lazily
from xdplab.text import visible

with lazily():
    from xdplab.cli import bar, ktap, screen
    from xdplab.plan import model
    from xdplab.run import frames, listing, progress
    from xdplab.studies import kept, tables

if TYPE_CHECKING:
    import pandas as pd

    from xdplab.cli.ktap import KtapCase
    from xdplab.figures.outcome import Drawn
    from xdplab.run.progress import Observer
    from xdplab.run.rundir import RunDirectory
    from xdplab.studies.kept import RunAnswer

F = TypeVar("F", bound=Callable[..., Any])
INTERRUPTED = 130
NOTHING_VALID = 17
"""The exit code of a run in which no trial is valid."""
MISUSED = 64
"""The exit code of a wrong command line or plan where 0, 1 and 2 are answers: EX_USAGE of sysexits.h."""
BROADEST = 110
"""Columns of the broadest line of a study's table, also in a file: a person reads it in a terminal."""


@dataclass(frozen=True)
class Verb:
    """A command that is loaded on use: its module, its name there, its one-line help, and the module's package.

    ``answers``: its exit codes 0, 1 and 2 are answers.
    """

    module: str
    function: str
    help: str
    package: str = field(default="xdplab.cli", kw_only=True)
    answers: bool = field(default=False, kw_only=True)

    @property
    def is_here(self) -> bool:
        """Whether its package is installed: a plug-in may not be."""
        return find_spec(self.package) is not None

    def load(self) -> click.Command:
        command = _loaded(f"{self.package}.{self.module}", self.function)
        return _answering(command) if self.answers else command


@functools.cache
def _loaded(module: str, function: str) -> click.Command:
    command: click.Command = getattr(importlib.import_module(module), function)
    return said_once(command)


@functools.cache
def _answering(command: click.Command) -> click.Command:
    """Give the misuse of a command an exit code that is none of its answers."""
    for name in ("make_context", "invoke"):
        setattr(command, name, _misuse_apart(getattr(command, name)))
    return command


def _misuse_apart(step: Callable[..., Any]) -> Callable[..., Any]:
    def stepping(*arguments: Any, **options: Any) -> Any:
        try:
            return step(*arguments, **options)
        except (XdplabError, click.UsageError) as error:
            if error.exit_code == PlanError.exit_code:
                error.exit_code = MISUSED  # type: ignore[misc]
            raise

    return stepping


def said_once(command: click.Command) -> click.Command:
    """Make a command, and those below it, refuse a repeated option: click would silently take the last one."""
    parse = command.parse_args

    def parse_args(ctx: click.Context, args: list[str]) -> list[str]:
        _require_once(command, ctx, args)
        return parse(ctx, args)

    command.parse_args = parse_args  # type: ignore[method-assign]
    if isinstance(command, click.Group) and not isinstance(command, Verbs):  # Verbs are handled on loading
        for below in command.commands.values():
            said_once(below)
    return command


def _require_once(command: click.Command, ctx: click.Context, args: list[str]) -> None:
    if ctx.resilient_parsing:  # the shell completes an unfinished line
        return
    _, _, order = command.make_parser(ctx).parse_args(args=list(args))
    for one, times in Counter(order).items():
        if times > 1 and isinstance(one, click.Option) and not (one.multiple or one.count or one.is_flag):
            raise click.UsageError(f"{max(one.opts, key=len)} is given {times} times and takes one value", ctx)


class Verbs(click.Group):
    """A group that lists its commands without loading them."""

    def __init__(self, *args: Any, verbs: Mapping[str, Verb], **options: Any) -> None:
        super().__init__(*args, **options)
        self.verbs = {name: verb for name, verb in verbs.items() if verb.is_here}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        _require_once(self, ctx, args)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self.verbs[cmd_name].load() if cmd_name in self.verbs else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.help) for name, verb in self.verbs.items()])


class ShareType(click.FloatRange):
    """A share above 0 and up to 1, written as one (0.02) or in per cent (2%), as in a plan."""

    name = "share"

    def __init__(self) -> None:
        super().__init__(0, 1, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number: Any = model.share(value) if isinstance(value, str) else value
        return super().convert(number, param, ctx)


SHARE = ShareType()


def in_lab(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the lab's name as its first argument: its own --lab, else the one before the verb, else None."""

    @click.option("--lab", "own_lab", metavar="NAME", help="Lab to use; it may stand before the verb as well.")
    @click.pass_obj
    @functools.wraps(verb)
    def in_it(before: str | None, /, own_lab: str | None, **options: Any) -> Any:
        return verb(own_lab or before, **options)

    return in_it


def fail(error: XdplabError) -> int:
    """Print an expected failure on one line and return its exit code."""
    line = visible(f"xdplab: {' '.join(str(error).split())}")
    click.secho(line, err=True, fg=None if os.environ.get("NO_COLOR") else "red")
    return error.exit_code


def ask_on_terminal(question: str) -> bool:
    """Ask on the terminal; without one the answer is no."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    return click.confirm(visible(question), default=False, err=True)


def tell(text: str, *, err: bool = False) -> None:
    """Print sentences; with ``err`` to standard error. Only a terminal gets lines that are broken to its width."""
    text = visible(text)
    if (sys.stderr if err else sys.stdout).isatty():
        text = fitted(text, shutil.get_terminal_size().columns)
    click.echo(text, err=err)


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text as it is, but for control characters: of others' words none steers the terminal."""
    click.echo(visible(text), err=err, nl=nl)


def fitted(text: str, width: int) -> str:
    """Break lines at blanks to at most ``width`` columns, indented under their beginning.

    What stands in backticks, a command to paste, is not broken; nor is a row of a Markdown table, or code.
    """
    return "\n".join(_fitted(line, width) for line in text.split("\n"))


def _fitted(line: str, width: int) -> str:
    blanks = line[: len(line) - len(line.lstrip())]
    if len(line) <= width or line.startswith(("|", "    ")):
        return line
    whole = re.sub("`[^`]*`", lambda command: command[0].replace(" ", "\0"), line)
    indent = blanks + "  " if len(blanks) + 2 < width else ""
    lines = textwrap.wrap(whole, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\0", " ")


def show_answer(answer: RunAnswer) -> None:
    """Print tables, then sentences; of a study, whose tables are many, the sentences first.

    A study's table has a line per place above its rows, and no line broader than `BROADEST`.
    """
    for line in [*answer.summary, ""] if answer.placed and answer.summary else ():
        tell(line)
    for table in answer.tables.values():
        if answer.placed:
            screen.print_placed_table(table["rows"], table["above"], table["title"], BROADEST)
        else:
            screen.print_table(table["rows"], table["title"])
        tell("")
        show_meaning(table["meaning"], answer.summary)
    for line in () if answer.placed else answer.summary:
        tell(line)


def show_meaning(meaning: str, summary: Sequence[str]) -> None:
    """Print the line below a table that says what it means, unless the run's answer has it."""
    if meaning.rstrip(".").lower() not in " ".join(summary).lower():
        tell(fitted(meaning, min(screen.width(), BROADEST)) + "\n")


def tell_unfinished(run: RunDirectory) -> None:
    """Say, to standard error, how far a run is whose trials are not all there."""
    if progress := listing.unfinished(kept.known_run(run)):
        tell(f"{run.path}: {progress}", err=True)


def _for_scripts(context: click.Context, parameter: click.Parameter, as_json: bool) -> bool:
    return as_json or SCRIPT in context.meta


AS_JSON = click.option(
    "--json", "as_json", is_flag=True, callback=_for_scripts, help="Print JSON for a script, with all digits."
)
SCRIPT = "xdplab.script"
"""Where a command's context has the cases that `--format ktap` collects; None for JSON."""
IN_KTAP: ContextVar[ktap.KtapCases | None] = ContextVar("IN_KTAP", default=None)
"""The same cases, for the exit code of the process."""


TABLES = {"table": "", "csv": "a spreadsheet", "markdown": "a text"}
"""The forms that a person reads, and for what besides the terminal."""


def _chosen(context: click.Context, parameter: click.Parameter, form: str | None) -> str | None:
    """Return the form; note one that a script reads."""
    if form is not None and form not in TABLES:
        context.meta[SCRIPT] = ktap.KtapCases() if form == "ktap" else None
        IN_KTAP.set(context.meta[SCRIPT])
    return form


def format_option(*forms: str) -> Callable[[F], F]:
    """Return `--format` with these forms; the command gets it as ``form`` if it prints more than JSON and KTAP."""
    readers = " or ".join(filter(None, [", ".join(filter(None, map(TABLES.get, forms))), "a script"]))
    return click.option(
        "--format",
        "form",
        type=click.Choice(forms),
        default="table" if "table" in forms else None,
        show_default=True,
        is_eager=True,  # --json looks at it
        expose_value=not {"json", "ktap"}.issuperset(forms),
        callback=_chosen,
        help=f"Print it for {readers}" + ("; KTAP is what the kernel's tests print." if "ktap" in forms else "."),
    )


FORMAT, SCRIPT_FORMAT = format_option("table", "csv", "markdown", "json"), format_option("json", "ktap")


def observer_of(as_json: bool) -> Observer:
    """Return what tells a run's progress: on the terminal, or not at all; or what collects the cases of KTAP."""
    context = click.get_current_context(silent=True)  # none where no command line asked
    collecting: Observer | None = context.meta.get(SCRIPT) if context else None
    if collecting or as_json:
        return collecting or progress.silent()
    return bar.BarObserver() if screen.is_terminal() else progress.PlainObserver(echo)


def print_json(content: Any, cases: Iterable[KtapCase] = ()) -> None:
    """Print what `--json` asks for; `xdplab.cli.answers` has its type. JSON has no number that is not finite: null.

    With `--format ktap`, print the trials that were measured, and ``cases``.
    """
    collected: ktap.KtapCases | None = click.get_current_context().meta.get(SCRIPT)
    echo(json.dumps(_finite(content), indent=1, default=str) if collected is None else collected.text(cases))


def _finite(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [*map(_finite, content)]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def show(rows: Sequence[Mapping[str, Any]], title: str | None = None) -> None:
    """Print rows as a table."""
    screen.print_table(rows, title)


class RunPath(click.ParamType[Path]):
    """A run directory, or the word ``latest``; which run that is, is said."""

    name = "run"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        run = listing.run_named(Path(value))
        if run != Path(value):
            tell(f"{value} is {run}", err=True)
        return run


def show_frame(frame: pd.DataFrame, *, form: str = "table", title: str | None = None) -> None:
    """Print a data frame in one of the forms of FORMAT; null cells are empty."""
    if form == "csv":
        echo(frame.to_csv(index=False, lineterminator="\n"), nl=False)
    elif form == "markdown":
        echo(tables.markdown(frame))
    else:
        show(frames.records(frame), title)
        tell("")


def parse_only(text: str | None) -> dict[str, str]:
    """Turn ``mode=native,queues=1`` into a mapping. Raises PlanError."""
    only: dict[str, str] = {}
    for part in filter(None, (text or "").split(",")):
        key, equals, value = part.partition("=")
        if not equals or not value:
            raise PlanError(f"--only: {part!r} is not FACTOR=VALUE", remedy="write --only mode=native,queues=1")
        only[key.strip()] = value.strip()
    return only


def status_facts(run: RunDirectory) -> dict[str, Any]:
    """Return a run's progress, and what it was measured with."""
    progress = kept.progress_of(run)
    return asdict(listing.known_run(run, progress)) | {"measured_with": progress.measured_with}


def figure_facts(drawn: Sequence[Drawn]) -> list[dict[str, Any]]:
    """Return each figure's files, or why there are none."""
    return [{"figure": one.stem, "files": list(map(str, one.files)), "reason": one.reason or None} for one in drawn]


def results_facts(run: RunDirectory) -> dict[str, Any]:
    """Return a run's progress, its tables with all digits, and its lines."""
    answer = kept.answer_of(run)
    tables = {name: table["numbers"] for name, table in answer.tables.items()}
    return {"status": status_facts(run), "tables": tables, "summary": answer.summary}
