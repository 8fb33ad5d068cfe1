"""The verbs. Each parses, calls one function that the notebook calls too, and shows what came back."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import warnings
from keyword import iskeyword
from types import FrameType
from typing import TextIO

import click

from xdplab import own
from xdplab.cli.common import errors, fail
from xdplab.errors import ResultsError, ResultsWarning, XdplabError
from xdplab.run.disk import is_of_the_disk, reason

INTERRUPTED = 130

# verb → module of this package; the verb's function has its name. Loaded when asked for: `lab status` needs no pandas.
VERBS = {
    "lab": "lab",
    "doctor": "doctor",
    "programs": "programs",
    "plan": "plan",
    "run": "run",
    "resume": "run",
    "status": "run",
    "restore": "restore",
    "search": "search",
    "race": "race",
    "tables": "figures",
    "figures": "figures",
    "compare": "figures",
    "audit": "figures",
    "import": "imports",
    "regenerate": "imports",
    "study": "study",
}


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"xdplab.cli.{VERBS[cmd_name]}")
        command: click.Command = getattr(module, f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name)
        return command


@click.command(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--lab", "lab_name", metavar="NAME", help="Lab to use: netns, netns:NAME, vm:6.1, FILE.yaml; overrides the plan's."
)
@click.option("--trust", is_flag=True, help="Run what another user's plan, run or inventory names: you have read it.")
@click.version_option(package_name="xdplab")
@click.pass_context
def cli(context: click.Context, lab_name: str | None, trust: bool) -> None:
    """xdplab: an XDP testbed whose numbers can be believed.

    Begin with `xdplab doctor`, then `xdplab run smoke`.
    """
    context.obj = lab_name
    own.ask_by((lambda _: True) if trust else _ask_on_terminal)


def _ask_on_terminal(question: str) -> bool:
    """Where there is no terminal to ask on, the answer is no."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    return click.confirm(question, default=False, err=True)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """What a reader must know is one line; a warning of a library is shown as Python does."""
    if issubclass(category, ResultsWarning):
        errors.print(f"xdplab: {message}", markup=False, highlight=False, soft_wrap=True)
    else:
        _PYTHONS_OWN(message, category, filename, lineno, file, line)


_PYTHONS_OWN = warnings.showwarning


def main() -> None:
    """Entry point: an expected failure is one line and its own exit code; Ctrl-C and SIGTERM clean up and end 130."""
    os.umask(os.umask(0o077) | 0o002)  # a run names code: it is never written so that every user may change it
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    warnings.showwarning = _warn
    warnings.simplefilter("once", ResultsWarning)
    try:
        result = cli.main(standalone_mode=False)
    except XdplabError as error:
        sys.exit(fail(error))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        sys.exit(1)
    except OSError as error:
        if not is_of_the_disk(error):
            raise
        where = error.filename or "a file"
        sys.exit(fail(ResultsError(f"{where} cannot be written: {reason(error)}", remedy="free some space")))
    sys.exit(result if isinstance(result, int) else 0)
