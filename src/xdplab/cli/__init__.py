"""The verbs. Each parses its options, calls one function that the notebook calls too, and shows the result."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import warnings
from pathlib import Path
from types import FrameType
from typing import Any

import click
from click.exceptions import NoArgsIsHelpError

from xdplab import trust as trusted
from xdplab.cli.common import IN_KTAP, INTERRUPTED, MISUSED, NOTHING_VALID, Verb, Verbs, ask_on_terminal, echo, fail
from xdplab.errors import HostError, MissingToolError, PlanError, ResultsError, ResultsWarning, XdplabError
from xdplab.resources import cache_root
from xdplab.run.disk import is_of_the_disk, reason
from xdplab.text import STEPS

FEW_COLLECTIONS = (100_000, 20, 20)
"""An import makes many objects that stay. With Python's own thresholds a fifth of a short command is spent on them."""

VERBS = {
    "lab": Verb("lab", "lab", "Bring a lab up, see it, use it, take it down."),
    "doctor": Verb("doctor", "doctor", "Check this machine or a lab: what works, what is missing, and the remedy."),
    "probe": Verb("probe", "probe", "Try what a port can do with XDP: modes, MTUs, queues, counters."),
    "kernels": Verb("lab", "kept", "What a packet costs in each kernel; what guests' kernels take on this disk."),
    "programs": Verb("programs", "programs", "Write, show and prove XDP programs with exactly N memory accesses."),
    "plan": Verb("plan", "plan", "Show the points of PLAN, its blocks, and the time it will take."),
    "run": Verb("run", "run", "Measure PLAN: a file, or one of quick (the default), smoke, thesis."),
    "resume": Verb("run", "resume", "Continue RUN after Ctrl-C, a kill, or failed trials."),
    "status": Verb("run", "status", "Show how far RUN is, what failed, and how long the rest will take."),
    "restore": Verb("lab", "restore", "Restore the settings of both ends of the lab's link."),
    "search": Verb("search", "search", "Search every point of PLAN: MRR, NDR and PDR by MLRsearch, latency."),
    "race": Verb(
        "race", "race", "Which is faster, A or B? They take turns in one run until the answer is known.", answers=True
    ),
    "cost": Verb(
        "cost", "cost", "Count what a packet costs in PROGRAM: instructions by source line; a gate.", answers=True
    ),
    "calibrate": Verb(
        "selftest", "calibrate", "How much do equal runs of this machine differ? Is it fit to compare runs?"
    ),
    "selftest": Verb("selftest", "selftest", "Inject known events and check that each is found: negative controls."),
    "runs": Verb("runs", "runs", "List the runs in FOLDER (results), the latest first."),
    "history": Verb("cli", "history", "Show every run below DIR over time, as one table.", package="xdplab.history"),
    "bisect": Verb(
        "cli", "bisect", "Find the commit, or kernel, that changed what a packet costs.", package="xdplab.bisect"
    ),
    "claims": Verb(
        "cli", "claims", "Do the claims about RUN hold? Each with its interval.", package="xdplab.claims", answers=True
    ),
    "reproduce": Verb(
        "cli", "reproduce", "Measure somebody's plan here: do its claims hold?", package="xdplab.claims", answers=True
    ),
    "show": Verb("figures", "show", "Show RUN's results: one row per point, mean ± interval, n, verdicts."),
    "tables": Verb("figures", "tables", "Derive RUN's tables from its journal and raw files."),
    "figures": Verb("figures", "figures", "Draw RUN's figures as SVG, PDF or PNG, each with its marks."),
    "report": Verb("runs", "report", "Write one HTML file about RUN for a colleague; two runs are compared."),
    "export": Verb("runs", "export", "Write RUN as one file that another machine imports and checks."),
    "compare": Verb(
        "figures", "compare", "Did it change? Compare OTHER with RUN, point by point and overall.", answers=True
    ),
    "audit": Verb("figures", "audit", "List what in RUN is not trustworthy, and how it was found."),
    "import": Verb("runs", "import_", "Turn published raw measurements into a run directory."),
    "regenerate": Verb("cli", "regenerate", "Draw each published figure of the thesis.", package="xdplab.thesis"),
    "study": Verb("study", "study", "Studies of the execution side: what BPF costs to verify, to load and to run."),
}


EXIT_CODES = f"""Exit codes: 0 done; 1 a problem was found, or a run was stopped; 2 command line, plan or figure; 3
lab or host; 4 program; 5 not supported here; 6 unknown format; 7 run directory; 8 commands in another user's file;
{NOTHING_VALID} no trial of a run is valid; {MISUSED} a wrong line of claims, reproduce, compare, race and cost;
{INTERRUPTED} Ctrl-C or SIGTERM; 255 an error of bisect --judge, whose answers are those of git bisect. Answers of
compare and race: 0 equivalent, 1 differs, 2 undecided; of cost: 0 no more, 1 more, 2 not comparable; of claims and
reproduce: 0 all hold, 1 one is refuted, 2 one cannot be told."""


@click.command(
    cls=Verbs,
    verbs=VERBS,
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option(
    "--lab", "lab_name", metavar="NAME", help="Lab to use: netns, netns:NAME, vm:6.1, FILE.yaml; overrides the plan's."
)
@click.option(
    "--trust", is_flag=True, help="Allow the commands that another user's plan, run or inventory names. Read it first."
)
@click.version_option(package_name="xdplab")
@click.pass_context
def cli(context: click.Context, lab_name: str | None, trust: bool) -> None:
    """xdplab: an XDP testbed with trustworthy numbers.

    Begin with `xdplab doctor`, then `xdplab run smoke`.
    """
    context.obj = lab_name
    trusted.ask_by((lambda _: True) if trust else ask_on_terminal)


def described() -> click.Context:
    """Return the context in which the commands are described and not carried out.

    click keeps an option for help with each command that it is first asked for: without the settings it would be
    another one from then on.
    """
    return click.Context(cli, info_name="xdplab", **cli.context_settings)


def _misused(error: click.ClickException) -> PlanError:
    """click's message on a command line, with a hint to `--help`."""
    context = getattr(error, "ctx", None)
    message = error.format_message().rstrip(".")
    wrong = PlanError(message, remedy=f"`{context.command_path} --help` shows what it takes" if context else None)
    if context and isinstance(error, click.NoSuchOption):
        for option in (one for one in cli.params if error.option_name in one.opts):
            value = f" {option.metavar}" if option.metavar else ""
            before = f"xdplab {error.option_name}{value} {context.command_path.partition(' ')[2]} …"
            wrong = PlanError(f"{error.option_name} stands before the verb", remedy=f"`{before}`")
    wrong.exit_code = MISUSED if error.exit_code == MISUSED else wrong.exit_code
    return wrong


def _require_surroundings() -> None:
    """Open /dev/null in place of a closed stream: the next file would get its number, and take what is said there.

    Raises ResultsError where nobody could read the output, or the working directory is gone.
    """
    unread = sys.stdout is None
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))
    if unread:
        raise ResultsError("standard output is closed", remedy="send it elsewhere, as in >/dev/null")
    _require_directory()


def _require_directory() -> None:
    try:
        Path.cwd()
    except FileNotFoundError:
        raise ResultsError("the working directory was removed", remedy="`cd` into another") from None


def _lacks_memory(error: BaseException | None) -> bool:
    """Tell whether an error, or one that it followed, is of this process's memory."""
    while error is not None:
        if isinstance(error, MemoryError) or _NO_MEMORY.search(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


_NO_MEMORY = re.compile("annot allocate memory|can't start new thread|failed to map segment")
"""Of an OSError (ENOMEM), of threads, whose stacks have no room, and of the loader of libraries."""


def _as_xdplab_error(error: Exception) -> XdplabError | None:
    """Return the error for a failure of memory, a library, a file or the working directory, else None."""
    if _lacks_memory(error):
        return HostError("this process got no more memory", remedy="`ulimit -v` and `free` say how much there is")
    if isinstance(error, ModuleNotFoundError) and error.name and error.name.partition(".")[0] != "xdplab":
        return MissingToolError(
            f"this needs Python's module {error.name}, which {sys.executable} does not have",
            remedy="`shell/setup.sh` installs all that is needed; a container with results alone lacks it on purpose",
        )
    if not isinstance(error, OSError):
        return None
    if error.filename or is_of_the_disk(error):
        return _of_a_file(error)
    try:
        _require_directory()
    except ResultsError as gone:
        return gone
    return None


def _of_a_file(error: OSError) -> ResultsError:
    """Return the error for a file. That of a write names none: of standard output, the cache, or a temporary file."""
    cache, why = cache_root(), reason(error)
    file = Path(os.fsdecode(error.filename)) if error.filename else None
    if file is None or file.is_relative_to(cache) or cache.is_relative_to(file):
        place = file or f"standard output, or a file in {cache} or {os.environ.get('TMPDIR', '/tmp')},"
        return ResultsError(
            f"{place} cannot be written: {why}", remedy="free some space, or set XDPLAB_CACHE and TMPDIR"
        )
    if is_of_the_disk(error):
        return ResultsError(f"{file} cannot be written: {why}", remedy="free some space")
    return ResultsError(f"{file}: {why}", remedy="name another file or folder")


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _warn(message: Warning | str, category: type[Warning], *where: Any, **into: Any) -> None:
    """Show xdplab's warnings on one line each, and those of libraries as Python does."""
    if issubclass(category, ResultsWarning):
        echo(f"xdplab: {message}", err=True)
    else:
        _PYTHONS_OWN(message, category, *where, **into)


_PYTHONS_OWN = warnings.showwarning


def main() -> None:
    """Entry point: an expected failure is one line and its own exit code; Ctrl-C and SIGTERM clean up and end 130."""
    gc.set_threshold(*FEW_COLLECTIONS)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")  # it reads the metadata of every package to find none
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads spin as they start, and no matrix here is large
    try:
        _run()
    except SystemExit as ended:
        cases = IN_KTAP.get()
        sys.exit(ended.code if cases is None or not isinstance(ended.code, int) else cases.exit_code(ended.code))
    finally:
        gc.freeze()  # the interpreter ends without looking for cycles among all that was imported


def _run() -> None:
    os.umask(os.umask(0o077) | 0o002)  # a run names code: other users must not be able to change its files
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    warnings.showwarning = _warn
    warnings.simplefilter("once", ResultsWarning)
    STEPS.set(lambda name: echo(f"{name} …", err=True))
    try:
        _require_surroundings()
        result = cli.main(standalone_mode=False)
    except XdplabError as error:
        sys.exit(fail(error))
    except NoArgsIsHelpError as error:  # a group without a verb: print its help unchanged
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        sys.exit(fail(_misused(error)))
    except (KeyboardInterrupt, click.Abort):
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        sys.exit(1)
    except RecursionError:
        sys.exit(fail(PlanError("a file is nested too deeply, or contains itself by a YAML alias")))
    except (OSError, MemoryError, RuntimeError, ImportError) as error:
        known_error = _as_xdplab_error(error)
        if known_error is None:
            raise
        sys.exit(fail(known_error))
    sys.exit(result if isinstance(result, int) else 0)
