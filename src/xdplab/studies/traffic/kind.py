"""XDP traffic as a kind of run. Figures, audits, comparisons and races are loaded by name: measuring needs none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xdplab.labs import Lab, use_lab
from xdplab.lazy import lazily, lazy
from xdplab.plan import Plan
from xdplab.run.progress import Observer, silent
from xdplab.run.rundir import discarded_if_nothing_began
from xdplab.studies.kind import Kind, Run, Where, Workplace
from xdplab.studies.traffic.run_files import run_plan

with lazily():
    from xdplab.studies.traffic import runs

if TYPE_CHECKING:
    from xdplab.studies.traffic.runs import TrafficMethod

audits, comparison = lazy("xdplab.studies.traffic.audits"), lazy("xdplab.studies.traffic.comparison")
pictures = lazy("xdplab.studies.traffic.pictures")
fleet = lazy("xdplab.studies.traffic.fleet")
results, trials = lazy("xdplab.studies.traffic.results"), lazy("xdplab.studies.traffic.trials")


@contextmanager
def at(run: Run[Any], where: Where, method: TrafficMethod | None = None) -> Iterator[Workplace]:
    """Give what measures a run: the lab or labs of ``where``, by default those that it was measured in."""
    labs = where.labs
    if not labs and where.lab is None:
        labs = runs.shared_by(run.directory)
    if labs:
        with fleet.joined(labs, where.scheduler, method or runs.MEASURED) as joined:
            yield joined
        return
    lab = where.lab or runs.lab_of(run.directory)
    with use_lab(lab) if isinstance(lab, str) else nullcontext(lab) as held:
        yield runs.InLab(held, method or runs.MEASURED, where.steal)


def measured(plan: Plan, lab: Lab, parent: Path, observer: Observer | None = None) -> Run[Plan]:
    """Measure a plan in a lab that is up, and return its run in ``parent``."""
    run = Run(TRAFFIC, runs.start(plan, lab, parent))
    with discarded_if_nothing_began(run.directory):
        run.measure_at(runs.InLab(lab), observer or silent())
    return run


def is_race(run: Run[Any]) -> bool:
    return isinstance(run.plan, Plan) and run.plan.race is not None


TRAFFIC: Kind[Plan] = Kind(
    name="traffic",
    read=run_plan,
    at=at,
    recipe=lambda _: trials.RECIPE,
    tables=lambda run: results.tables(run),
    summary=lambda run: results.summary(run),
    pictures=pictures,
    metric=lambda _: "forwarded_pps",
    around=lambda directory: comparison.around(directory),
    compare=lambda *asked: comparison.compared(*asked),
    findings=lambda run: audits.findings(run.attempts(run.kind.of_results)),
    audit=lambda run: audits.audit(run.directory.name, run.kind.attempts(run, run.kind.of_results)),  # used once
    of_results=lambda path: results.read(path),
)
