"""Blocks of one run in different labs, in turns: kernels, or machines, against each other in one run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

from xdplab.errors import LabError
from xdplab.labs import Lab, use_lab
from xdplab.lazy import lazy
from xdplab.plan import Block, Plan, Point, Trial
from xdplab.run.engine import Session, SessionOf
from xdplab.text import step

runs = lazy("xdplab.studies.traffic.runs")

PLAN_LAB = "auto"
"""The value of a point's lab if it is measured in the plan's lab."""

TrialSession = Session[Trial, Any]
Labs = Mapping[str, Lab]
"""Each lab by the name that the points have it under."""


@contextmanager
def labs_of(places: Iterable[Block] | Iterable[Point], lab: Lab) -> Iterator[Labs]:
    """Give the labs that these blocks or points name; ``lab`` is the plan's own.

    Raises LabError if they differ in their arrangement, or if one of them has two names.
    """
    with ExitStack() as stack:
        names = dict.fromkeys(place.lab for place in places)
        labs = {name: lab if name == PLAN_LAB else stack.enter_context(use_lab(name)) for name in names}
        names_of: dict[str, str] = {}
        for name, one in labs.items():
            if one.arrangement != lab.arrangement:
                raise LabError(
                    f"lab {lab.name} is of arrangement {lab.arrangement}, {one.name} of {one.arrangement}",
                    remedy="labs that are compared in one run have the same arrangement",
                )
            if (other := names_of.setdefault(one.name, name)) != name:
                raise LabError(
                    f"a block's lab: {name} is {'the lab of the plan' if other == PLAN_LAB else other} itself",
                    remedy="remove `lab:` from that block, or name another lab",
                )
        yield labs


@contextmanager
def lab_for(name: str, plan: Plan | None = None) -> Iterator[Lab]:
    """The lab of that name; if it is not up, it is brought up, and taken down at the end.

    The same holds for labs that blocks of ``plan`` name. What measures is loaded while both hosts are connected to.
    """
    with ExitStack() as stack:
        with step(f"bringing lab {name} up"):
            lab = stack.enter_context(use_lab(name))
        with ThreadPoolExecutor() as meanwhile:
            reached = meanwhile.map(partial(getattr, lab), ("dut", "tg"))
            _ = runs.start
        list(reached)
        stack.enter_context(labs_of(() if plan is None else plan.blocks, lab))
        yield lab


@contextmanager
def sessions_in(
    labs: Labs, trials: Sequence[Trial], session: Callable[[Lab, Sequence[Trial]], AbstractContextManager[TrialSession]]
) -> Iterator[SessionOf[Trial]]:
    """Open a session in each lab for its trials, all for the whole run; give the one that measures a trial."""
    with ExitStack() as stack:
        sessions = {
            name: stack.enter_context(session(lab, [trial for trial in trials if trial.point.lab == name]))
            for name, lab in labs.items()
        }
        yield lambda trial: sessions[trial.point.lab]
