"""Blocks of one run in different labs, in turns: kernels, or machines, against each other in one run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from xdplab.errors import LabError
from xdplab.labs import Lab, use_lab
from xdplab.plan import Block, Point, Trial
from xdplab.run.engine import Study
from xdplab.studies.trial_facts import TrialFacts

THE_PLANS = "auto"
"""The value of a point's lab if it is measured in the plan's lab."""

Labs = Mapping[str, Lab]
"""Each lab by the name that the points have it under."""


@contextmanager
def labs_of(places: Iterable[Block] | Iterable[Point], lab: Lab) -> Iterator[Labs]:
    """Give the labs that these blocks or points name; ``lab`` is the plan's own.

    Raises LabError if they differ in their arrangement, or if one of them has two names.
    """
    with ExitStack() as stack:
        names = dict.fromkeys(place.lab for place in places)
        found = {name: lab if name == THE_PLANS else stack.enter_context(use_lab(name)) for name in names}
        told: dict[str, str] = {}
        for name, one in found.items():
            if one.arrangement != lab.arrangement:
                raise LabError(
                    f"lab {lab.name} is of arrangement {lab.arrangement}, {one.name} of {one.arrangement}",
                    remedy="labs that are compared in one run have the same arrangement",
                )
            if (other := told.setdefault(one.name, name)) != name:
                raise LabError(
                    f"a block's lab: {name} is {'the lab of the plan' if other == THE_PLANS else other} itself",
                    remedy="remove `lab:` from that block, or name another lab",
                )
        yield found


class InTurns:
    """The study of a run whose blocks are in several labs: one session in each, all open for the whole run."""

    def __init__(
        self,
        session: Callable[[Lab, Sequence[Trial]], Any],
        labs: Labs,
        trials: Sequence[Trial],
    ) -> None:
        self._session, self._labs, self._trials = session, labs, trials
        self._studies: dict[str, Study[Trial, Any]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> InTurns:
        with ExitStack() as stack:
            for name, lab in self._labs.items():
                trials = [trial for trial in self._trials if trial.point.lab == name]
                self._studies[name] = stack.enter_context(self._session(lab, trials))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def facts(self) -> Callable[[], TrialFacts]:
        return next(iter(self._studies.values())).facts

    def enter_block(self, trials: Sequence[Trial]) -> None:
        self._now = self._studies[trials[0].point.lab]
        self._now.enter_block(trials)

    def measure(self, trial: Trial, raw: Path, facts: Any) -> None:
        self._now.measure(trial, raw, facts)

    def leave_block(self) -> None:
        self._now.leave_block()
