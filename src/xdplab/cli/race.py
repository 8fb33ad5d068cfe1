"""`race`: two programs or plans take turns in one run until it is known which is faster."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xdplab.cli.common import AS_JSON, NOTHING_VALID, SCRIPT_FORMAT, SHARE, in_lab, print_json, status_facts, tell
from xdplab.cli.conduct import conduct, exit_code, measure_missing
from xdplab.cli.options import PATH, options_as
from xdplab.cli.plan import require_labs, tell_extent
from xdplab.cli.programs import ProgramSettings, user_program_options
from xdplab.errors import PlanError, UnsupportedError
from xdplab.lazy import lazily
from xdplab.programs.spec import WORKLOADS

with lazily():
    from xdplab.cli import cost, ktap
    from xdplab.plan import model
    from xdplab.studies import comparing
    from xdplab.studies.traffic import kind, run_files, runs, turns
    from xdplab.studies.traffic import race as races

if TYPE_CHECKING:
    from xdplab.analysis.decide.race import Outcome
    from xdplab.plan import Plan
    from xdplab.run.progress import Observer
    from xdplab.run.state import RunState
    from xdplab.studies.cost import gate


@dataclass(frozen=True)
class RaceRules:
    """How two sides race: a program's point and traffic, when the race ends, in which labs, and where its run is."""

    mode: str = "native"
    accesses: int = 0
    frame_bytes: int = 64
    load: str = "max"
    window_s: float = 0.5
    margin: float | None = None
    at_least: int | None = None
    at_most: int | None = None
    by: str | None = None
    cost: bool = False
    labs: str | None = None
    name: str = "race"
    out: Path = Path("results")

    def side(self, word: str, programs: ProgramSettings, trial: Mapping[str, Any]) -> Plan:
        """Return the plan of a program or workload. Raises PlanError."""
        points = {"mode": self.mode, **self._program(word, programs)}
        if programs.frames is None or word in WORKLOADS:
            points["frame_bytes"] = self.frame_bytes
        block = {"points": points, "traffic": {"load": self.load}}
        return model.relative_to(model.parse_plan({"name": self.name, "trial": trial, "blocks": [block]}), Path())

    def _program(self, word: str, programs: ProgramSettings) -> dict[str, Any]:
        if word in WORKLOADS:
            return {"workload": word, "accesses": self.accesses}
        if not Path(word).is_file():
            raise PlanError(f"{word} is neither a file nor a workload", remedy=f"workloads are {', '.join(WORKLOADS)}")
        return {"program": programs.of(Path(word))}


race_options = options_as(
    "rules",
    RaceRules,
    click.option("--mode", default=RaceRules.mode, show_default=True),
    click.option("--accesses", "-n", default=RaceRules.accesses, show_default=True, type=int, help="N of a workload."),
    click.option("--frame-bytes", default=RaceRules.frame_bytes, show_default=True, type=int),
    click.option("--load", default=RaceRules.load, show_default=True),
    click.option(
        "--window",
        "window_s",
        default=RaceRules.window_s,
        show_default=True,
        type=float,
        help="Length of each trial's window, in seconds.",
    ),
    click.option(
        "--margin",
        type=SHARE,
        help="Two programs whose ratio differs from 1 by less than this share (0.02 or 2%) are equivalent.",
    ),
    click.option(
        "--at-least",
        type=int,
        help="Minimum number of pairs. --margin, --at-least and --at-most have the defaults of a plan.",
    ),
    click.option("--at-most", type=int, help="Pairs."),
    click.option(
        "--by",
        type=click.Choice(["slices", "windows"]),
        help="slices (default): exchange the programs every 5 ms under one sender; windows: compare whole trials.",
    ),
    click.option("--cost", is_flag=True, help="Count the instructions of both per packet, too: see `cost`."),
    click.option(
        "--labs", metavar="LAB,LAB", help="The lab of A and the lab of B: a race between kernels or machines."
    ),
    click.option("--name", default=RaceRules.name, show_default=True),
    click.option("--out", type=PATH, default=RaceRules.out, show_default=True),
)


@click.command()
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@user_program_options
@race_options
@AS_JSON
@SCRIPT_FORMAT
@in_lab
def race(
    lab_name: str | None, /, first: str, second: str, programs: ProgramSettings, rules: RaceRules, as_json: bool
) -> None:
    """Which is faster, A or B (C files of yours, workloads, plans)? They take turns in one run, paired by repetition.
    Within each pair they swap every few milliseconds if they differ only in the program.

    A plan (.yaml) has one block, and its settings replace the options for its side. Two plans must have equal trials.
    With --labs vm:6.1,vm:6.12 each side has its own lab; A and B may then be the same program.

    The run stops at the pair after which the ratio is known to differ from 1, or to lie within the margin; eight pairs
    are the least. `resume` continues after an interruption. Exit codes: 0 equivalent, 1 differs, 2 undecided, 17 no
    trial is valid. A plan with `race:` races any two blocks.
    """
    if rules.cost and any(map(model.is_plan_file, (first, second))):
        raise PlanError("--cost counts two programs, not plans", remedy="`xdplab cost PLAN` counts those of a plan")
    labs = _two(rules.labs, lab_name)
    plan = race_plan((first, second), rules, programs, labs)
    require_labs(lab_name, plan)
    with turns.lab_for(lab_name or plan.lab, plan) as lab:
        run = kind.TRAFFIC.run(runs.start(plan, lab, rules.out))

        def measure(seen: Observer) -> RunState:
            if not as_json:
                tell_extent(plan, run_files.run_trials_of(run.directory))
            return run.measure_at(runs.InLab(lab), seen)

        if as_json:
            measure_missing(run, measure, new=True, as_json=True)
            code = exit_code(run)
        else:
            code = conduct(run, measure, figures=False)
    outcome = races.outcome_of(run.directory)
    labs = labs or (lab_name or plan.lab,) * 2
    counted = _counted((first, second), rules, programs, labs) if rules.cost else None
    if as_json:
        facts = {"status": status_facts(run.directory), **outcome.to_json()}
        print_json(facts | {"cost": None if counted is None else counted.to_json()}, [_case(first, second, outcome)])
    elif counted is not None:
        tell(counted.text)
    nothing = (NOTHING_VALID, UnsupportedError.exit_code)
    sys.exit(code if code in nothing else comparing.EXIT_CODES[outcome.standing.answer])


def _case(first: str, second: str, outcome: Outcome) -> ktap.KtapCase:
    """Return the race as a test: two sides that are equivalent pass, and one that is undecided is skipped."""
    results: dict[str, ktap.Result] = {"equivalent": "ok", "differs": "not ok", "undecided": "skip"}
    return ktap.KtapCase(f"{second} is as fast as {first}", results[outcome.standing.answer], outcome.text)


def _counted(
    words: tuple[str, str], rules: RaceRules, programs: ProgramSettings, labs: tuple[str, str]
) -> gate.CostDifference:
    first, second = (f"{word}:{rules.accesses}" if word in WORKLOADS else word for word in words)
    return cost.counted_difference((first, second), programs, rules.mode, rules.frame_bytes, labs)


def _two(labs: str | None, lab_name: str | None) -> tuple[str, str] | None:
    """Return the labs of --labs, A's first. Raises PlanError unless they are two, and no --lab is given beside them."""
    if labs is None:
        return None
    names = labs.split(",")
    if len(names) != 2 or not all(names) or lab_name is not None:
        raise PlanError(f"--labs {labs}: a race has two labs, A's and B's", remedy="`--labs vm:6.1,vm:6.12`, no --lab")
    return names[0], names[1]


def race_plan(
    words: tuple[str, str],
    rules: RaceRules,
    programs: ProgramSettings = ProgramSettings(),  # noqa: B008
    labs: tuple[str, str] | None = None,
) -> Plan:
    """Return the plan of a race between two programs or plans, in the labs of A and of B. Raises PlanError."""
    plans = {word: model.load_plan(Path(word)) for word in words if model.is_plan_file(word)}
    if programs != ProgramSettings() and all(word in plans or word in WORKLOADS for word in words):
        raise PlanError(
            f"{programs.named}: {' and '.join(words)} are no program files, which alone take such options",
            remedy="a plan has its own settings",
        )
    trials = [plan.trial.model_dump() for plan in plans.values()]
    trial = trials[0] if trials else {"warmup_s": 0.1, "window_s": rules.window_s, "pause_s": 0.05}
    sides = [plans.get(word) or rules.side(word, programs, trial) for word in words]
    limits = {name: getattr(rules, name) for name in ("margin", "at_least", "at_most", "by")}
    if rules.at_most is not None and rules.at_least is None:
        limits["at_least"] = min(rules.at_most, model.Race().at_least)
    return model.race_of(rules.name, sides, limits, labs or ())
