"""The verbs. Each parses, calls one function that the notebook calls too, and shows what came back."""

from __future__ import annotations

import signal
import sys
from types import FrameType

import click

from xdplab.cli.common import fail
from xdplab.cli.doctor import doctor
from xdplab.cli.figures import audit, compare, figures
from xdplab.cli.lab import lab
from xdplab.cli.plan import plan
from xdplab.cli.programs import programs
from xdplab.cli.run import resume, run, status
from xdplab.errors import XdplabError

INTERRUPTED = 130


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--lab", "lab_name", metavar="NAME", help="Lab to use: netns, netns:NAME; overrides the plan's.")
@click.version_option(package_name="xdplab")
@click.pass_context
def cli(context: click.Context, lab_name: str | None) -> None:
    """xdplab: an XDP testbed whose numbers can be believed.

    Begin with `xdplab doctor`, then `xdplab run plans/smoke.yaml`.
    """
    context.obj = lab_name


for _command in (lab, doctor, programs, plan, run, resume, status, figures, compare, audit):
    cli.add_command(_command)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> None:
    """Entry point: an expected failure is one line and its own exit code; Ctrl-C and SIGTERM clean up and end 130."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
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
    sys.exit(result if isinstance(result, int) else 0)
