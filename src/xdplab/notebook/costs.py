"""The cost of a packet in a notebook: counted when it is asked for, shown as tables and a picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from xdplab.errors import PlanError, UnsupportedError
from xdplab.notebook.run_in_hand import RunInHand
from xdplab.programs.program import Program
from xdplab.programs.spec import ProgramSpec
from xdplab.run.progress import silent
from xdplab.shown import ReadableFrame, paragraphs
from xdplab.studies import kinds
from xdplab.studies.cost import summaries
from xdplab.studies.cost.counts import cost_in
from xdplab.studies.cost.gate import CostDifference, cases_of, compared
from xdplab.studies.cost.points import CostRequest
from xdplab.studies.cost.stacks import flame
from xdplab.studies.kind import Run, Where
from xdplab.text import step


class PacketCosts:
    """What packets cost in one or several programs; ``run`` is the recorded run.

    Raises UnsupportedError with the reason if a program cannot be counted.
    """

    def __init__(self, run: Run[Any]) -> None:
        self.run = run
        failed = [ended.reason for ended in run.state.last.values() if ended.status != "measured"]
        if failed:
            raise UnsupportedError(str(failed[0]))

    @property
    def whole(self) -> pd.DataFrame:
        """One row per program, kernel and mode: instructions in all and by part, loads, stores, branches."""
        return ReadableFrame(summaries.whole(self.run.rows()))

    @property
    def lines(self) -> pd.DataFrame:
        """The source lines of the only program, with their instructions and those of what they call.

        Where no line is known, its instructions.
        """
        return self.top(0)

    def top(self, count: int) -> pd.DataFrame:
        """The ``count`` lines that take most, with what they call, these first."""
        self._only("lines")
        return ReadableFrame(summaries.lines(self.run.rows(), count))

    @property
    def times(self) -> pd.DataFrame:
        """One row per packet of the run of traffic that was given: instructions, ns per packet, and their ratio."""
        return ReadableFrame(summaries.timed(self.run.rows()))

    @property
    def functions(self) -> pd.DataFrame:
        """The functions that take most, each without what it calls; a column for each kernel and mode."""
        return ReadableFrame(summaries.functions(self.run.rows()))

    @property
    def difference(self) -> CostDifference:
        """What the second of two programs costs beyond the first: ``totals``, ``lines``, ``functions``."""
        cases = cases_of(self.run.rows())
        if len(cases) != 2:
            raise PlanError(f"a difference is between two packets, and there are {len(cases)}")
        return compared(cases[:1], cases[1:])[0]

    def flame(self, width: float = 10.0) -> Figure:
        """Draw the call stacks of the only packet: each function as wide as its instructions; ``width`` in inches."""
        self._only("a picture")
        ((trial, _, raw),) = self.run.plan.attempts()
        return flame(str(trial.point), cost_in(raw).stacks, width)

    def __repr__(self) -> str:
        return "\n".join(self._sentences())

    def _repr_html_(self) -> str:
        rows = self.run.rows()
        tables = [summaries.whole(rows), *([self.lines] if len(self.run.plan.trials) == 1 else [])]
        shown = (ReadableFrame(table).readable_html(index=False) for table in tables)
        return paragraphs(self._sentences()) + "".join(shown)

    def _sentences(self) -> Sequence[str]:
        return self.run.kind.summary(self.run)[: len(self.run.plan.trials)]

    def _only(self, what: str) -> None:
        if len(self.run.plan.trials) != 1:
            raise PlanError(f"{what}: there are {len(self.run.plan.trials)} packets here", remedy="count one program")


def counted(programs: Sequence[Program | RunInHand | str], request: CostRequest, results: Path) -> PacketCosts:
    """Count programs into a run in ``results``. Raises PlanError for programs with different settings."""
    words = [_word(program) for program in programs]
    settings = {text for _, text in words if text is not None}
    if len(settings) > 1:
        raise PlanError("these programs have different settings", remedy="count them one by one, or by a plan")
    text = settings.pop() if settings else request.settings
    kind = kinds.kind_named("cost")
    chosen = replace(request, programs=tuple(word for word, _ in words), settings=text)
    with step("counting in a guest"):
        run = kind.start(chosen, results)
        run.measure(silent(), Where())
    return PacketCosts(run)


def _word(program: Program | RunInHand | str) -> tuple[str, str | None]:
    """Return how the command line names a program, and the settings that it brings as JSON."""
    if isinstance(program, str):
        return program, None
    if isinstance(program, RunInHand):
        return str(program.path), None
    spec = program.spec
    if isinstance(spec, ProgramSpec):
        return f"{spec.workload}:{spec.accesses}", None
    values = {key: value for key, value in spec.canonical().items() if value not in (None, (), {})}
    return str(values.pop("file")), json.dumps(values)
