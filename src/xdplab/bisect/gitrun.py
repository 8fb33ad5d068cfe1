"""The command of `git bisect run`: the program as it is checked out, against a baseline.

git takes 0 for good, 125 for skip, and each other code below 128 for bad. So an error of any kind has a code above: it
ends git's search, and calls no commit bad.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xdplab.errors import PlanError, XdplabError
from xdplab.lazy import lazily
from xdplab.studies.cost.points import CostRequest

with lazily():  # a command line is checked, and completed, without them
    from xdplab.bisect import counting
    from xdplab.studies.cost import gate

if TYPE_CHECKING:
    from xdplab.bisect.search import Judged

EXIT_CODES = {"good": 0, "bad": 1, "skip": 125}
ENDS_THE_SEARCH = 255
ANY_RISE = Fraction(1, 1_000_000)
"""Instructions: counts are fractions of some hundred frames."""


class EndsTheSearchError(XdplabError):
    """An error within `git bisect run`, which must call no commit bad."""

    exit_code = ENDS_THE_SEARCH


@contextmanager
def calling_none_bad() -> Iterator[None]:
    """Raise EndsTheSearchError for any error in this block."""
    try:
        yield
    except XdplabError as error:
        raise EndsTheSearchError(error.message, remedy=error.remedy) from error
    except click.ClickException as error:
        raise EndsTheSearchError(error.format_message()) from error
    except Exception as error:
        raise EndsTheSearchError(f"{type(error).__name__}: {error}") from error


class CommandOfGit(click.Command):
    """A command whose line, too, ends git's search if it is wrong."""

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **more: Any) -> click.Context:
        if not any(word.partition("=")[0] == "--judge" for word in args):
            return super().make_context(info_name, args, *rest, **more)
        with calling_none_bad():
            return super().make_context(info_name, args, *rest, **more)


def judged(baseline: Path, file: str, settings: str, step: float | None) -> Judged:
    """Judge a program against the only cost of a baseline, whose kernel, mode and frames are taken: bad is what costs
    ``step`` more, or anything. Raises ResultsError, PlanError for a baseline of several packets."""
    cases = gate.read_baseline(baseline)
    if len(cases) != 1:
        raise PlanError(f"{baseline} has {len(cases)} packets", remedy="`xdplab cost FILE --write` of one program")
    (good,) = cases
    kernel, mode, frame_bytes, flows = good.traffic
    sizes = (int(frame_bytes),) if frame_bytes.isdigit() else CostRequest.frame_bytes
    request = CostRequest(modes=(mode,), frame_bytes=sizes, flows=int(flows))
    threshold = counting.Threshold.above(good, ANY_RISE if step is None else Fraction(step))
    with (
        tempfile.TemporaryDirectory(prefix="xdplab-judge-") as folder,
        closing(counting.KeptCosts(Path(folder) / "costs", request)) as costs,
    ):
        return counting.judged_by(threshold, lambda: costs.case(Path(file), kernel, settings))
