"""The notebook's API: a few nouns (lab, program, plan, run) over the functions that the command line calls too."""

from __future__ import annotations

import atexit
import html
import inspect
import json
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Union, get_origin

import pandas as pd
from matplotlib.figure import Figure

from xdplab import completion
from xdplab.analysis import MARGIN
from xdplab.analysis.decide.race import Outcome, Standing
from xdplab.analysis.summary import varying
from xdplab.doctor.machine import examine
from xdplab.doctor.table import Checks, checks
from xdplab.errors import FigureError, PlanError, ResultsWarning
from xdplab.figures.catalogue import CATALOGUE
from xdplab.figures.draw import draw
from xdplab.figures.factors import OF_SIZE, OF_WHAT
from xdplab.figures.styles import sized
from xdplab.figures.views_traffic import compare_view
from xdplab.labs import Lab, use_lab
from xdplab.lazy import lazy
from xdplab.notebook.costs import PacketCosts, counted
from xdplab.notebook.run_in_hand import RunInHand, sheet_of, started
from xdplab.plan import FACTORS, Plan, estimate_s, is_plan_file, load_plan, parse_plan, race_of, reference
from xdplab.plan.factors import PATHS, Factor, Where, in_plan, of_program
from xdplab.programs.program import Program
from xdplab.programs.program import program as make_program
from xdplab.programs.spec import WORKLOADS, ProgramSpec
from xdplab.run.listing import RESULTS, ROW, run_named
from xdplab.shown import ReadableFrame, paragraphs, small_table
from xdplab.studies import kinds
from xdplab.studies.comparing import ComparedRuns as TwoRuns
from xdplab.studies.cost.points import CostRequest
from xdplab.studies.kept import listed_runs
from xdplab.studies.search.kind import SearchRequest, start_search
from xdplab.studies.search.profile import profile as profile_named
from xdplab.studies.search.views import VIEWS as SEARCH_VIEWS
from xdplab.studies.traffic import race as traffic_race
from xdplab.studies.traffic import runs as traffic_runs
from xdplab.studies.traffic.kind import TRAFFIC, measured
from xdplab.studies.traffic.run_files import plan_trials
from xdplab.text import duration, many

table_over_time, changes_over_time = lazy("xdplab.history.table"), lazy("xdplab.history.changes")
_OF_A_ROOT = (".git", "pyproject.toml")
"""Only the root of a project has one of these."""
_PLAN_KEYS = ("lab", "seed", "repetitions", "trial", "perf_events", "metrics")

Programs = Program | str | Sequence[Program | str]
Side = Union[Program, "PlanInHand", str]


def results() -> Path:
    """Return the folder of the runs: ``results`` of the project that the notebook lies in, as of a terminal there."""
    here = Path.cwd()
    roots = (folder for folder in (here, *here.parents) if any((folder / name).exists() for name in _OF_A_ROOT))
    return Path(os.path.relpath(next(roots, here))) / RESULTS


def lab(name: str = "netns") -> LabInUse:
    """Use the lab of that name; if it is not up, it is brought up, and is taken down with the notebook's kernel."""
    return LabInUse(name)


def program(what: str, *, accesses: int | None = None, **options: Any) -> Program:
    """Return a program: a workload (``"array", accesses=1600``), or your own C file (``"lb.bpf.c"``).

    Options: op, form, working_set_bytes, map_type of a workload; section, action, rodata, setup, frames of a file.
    Raises PlanError naming the invalid field, and later ProgramError with the compiler's message.
    """
    fields = options if accesses is None else {"accesses": accesses, **options}
    return make_program(what, **fields)


def plan(name: str = "notebook", program: Programs | None = None, **factors: Any) -> PlanInHand:
    """Cross ``program`` (one or several; ``"array"`` by default) with factors, under the names of a plan file.

    Each factor takes a value, or a list of values that are crossed; ``repetitions``, ``seed``, ``trial``, ``lab``,
    ``metrics``, ``perf_events`` and ``passes`` are the plan's own. The factors of a workload (``accesses``, ``op``, …)
    go with a program given by its name, those of a user's program (``action``, ``rodata``, …) with its file.
    Raises PlanError naming the field.
    """
    chosen = [program] if isinstance(program, Program | str) else program
    return PlanInHand(_plan(name, chosen or [None], factors))


def _declare(function: Callable[..., Any], *, own: Iterable[str] = (), of: Iterable[Factor] = FACTORS) -> None:
    """Put the factors into the signature of a function that takes them as ``**factors``: Tab and Shift-Tab show it."""
    signature = inspect.signature(function)
    before = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    names = {one.name for one in before}
    written = {factor.name: _annotation(factor) for factor in of if factor.where and factor.name not in names}
    types = written | {name: Any for name in own if name not in names}
    named = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=it) for name, it in types.items()]
    function.__signature__ = signature.replace(parameters=[*before, *named])  # type: ignore[attr-defined]


def _annotation(factor: Factor) -> Any:
    """Return the words that a factor takes, or the type of its column; most take a list of values, too."""
    if get_origin(factor.type) is Literal:
        return factor.type | list if factor.where in ("points", "traffic") else factor.type
    return {"str": str, "int": int, "float": float}[factor.dtype]


_declare(plan, own=(*_PLAN_KEYS, "passes"))
_declare(program, of=[factor for factor in FACTORS if factor.where == "program" or of_program(factor)])
plan.__doc__ = f"{inspect.cleandoc(plan.__doc__ or '')}\n\nFactors:\n{reference.lines()}"


def open(path: str | Path) -> RunInHand:
    """Open a run of any kind: XDP traffic, a search, a study; the same object that ``plan.start`` returned.

    ``"latest"`` is the last run that this user began in the project's ``results``. Raises ResultsError.
    """
    return RunInHand(kinds.open_run(run_named(Path(path), results())))


def runs(folder: str | Path | None = None) -> pd.DataFrame:
    """Return the runs of a folder (the project's ``results``), the latest first: name, when it was begun, trials,
    state, note."""
    listed = listed_runs(results() if folder is None else Path(folder))
    return ReadableFrame([run.row for run in listed], columns=ROW)


def history(
    *folders: str | Path,
    metric: str | Sequence[str] = (),
    where: Mapping[str, Any] | None = None,
    by: Literal["date", "kernel", "commit", "program"] = "date",
) -> pd.DataFrame:
    """Return a row for each run and bundle below folders (the project's ``results``), point and metric: its value with
    its interval, date, program, kernel and machine.

    ``where`` chooses points, ``{"mode": "native"}``; ``by`` orders the rows of a point. What has changed is in the
    table's ``attrs["changes"]``, the largest share first; ``attrs["machines"]``: where another machine begins. What is
    odd below the folders is a warning. Raises PlanError for a factor or a metric that no run has.
    """
    if find_spec("xdplab.history") is None:
        raise PlanError("this xdplab has no history: its folder was left out", remedy="install xdplab as a whole")
    chosen = {name: str(value) for name, value in (where or {}).items()}
    made = table_over_time.history(*(folders or (results(),)), metric=metric, where=chosen, by=by)
    over_time = changes_over_time.changes(made.rows)
    for remark in (*made.remarks, *over_time.remarks):
        warnings.warn(remark, ResultsWarning, stacklevel=2)
    table = ReadableFrame(made.rows)
    table.attrs["machines"] = over_time.machines
    table.attrs["changes"] = [asdict(change) | {"text": change.text} for change in over_time.changed]
    return table


def study(name: str, *, smallest: bool = False, **fields: Any) -> RunInHand:
    """Start a study in a process of its own: execution, loading, jit, offload, outage, neighbour, verifier.

    ``fields`` are its options as in a shell (`xdplab study NAME --help`); those that may be given several times
    are lists, ``places=["host", "vm:6.1:count"]``. ``smallest`` measures a small part, in a minute or two; options that
    are given override it. Raises PlanError naming the options there are.
    """
    if name not in kinds.STUDIES:
        raise PlanError(f"there is no study {name!r}", remedy=f"there are {', '.join(kinds.STUDIES)}")
    kind = kinds.kind_named(name)
    planning = kind.planning
    assert planning is not None  # each study has one
    request = planning.request_of(fields)
    if smallest:
        chosen = {key: getattr(request, key) for key in fields}
        request = replace(planning.smallest(request), **chosen)
    return started(kind.start(request, results()))


def cost(
    *programs: Program | RunInHand | str,
    kernel: str | Sequence[str] = "6.12",
    mode: str | Sequence[str] = "native",
    frame_bytes: int = 64,
    flows: int = 1,
    **settings: Any,
) -> PacketCosts:
    """Count what a packet costs in programs: instructions, exactly, by source line and kernel function.

    Programs are C files, workloads with N accesses (``"array:100"``), or those of `program`; ``settings`` of a file are
    those of a plan: section, function, rodata, maps, cflags, frames, action. It takes some ten seconds, in a guest of
    its own, without root. ``xl.cost("mine.bpf.c").lines`` is the annotated source; of two programs,
    ``xl.cost("old.bpf.c", "new.bpf.c").difference.lines`` has the lines that changed; of a run of traffic,
    ``xl.cost(run).times`` has the measured times beside the counts. Raises PlanError, ProgramError.
    """
    request = CostRequest(
        kernels=(kernel,) if isinstance(kernel, str) else tuple(kernel),
        modes=(mode,) if isinstance(mode, str) else tuple(mode),
        frame_bytes=(frame_bytes,),
        flows=flows,
        settings=json.dumps(settings),
    )
    return counted(programs, request, results())


def compare(
    run: RunInHand,
    other: RunInHand,
    metric: str | None = None,
    *,
    equal: Sequence[RunInHand] = (),
    margin: float = MARGIN,
) -> Comparison:
    """Say whether ``other`` is faster than, slower than or equivalent to ``run`` within ``margin``, or undecided.

    The two are of one kind. ``metric`` is a column of ``run.trials``: forwarded_pps by default, pdr_pps for searches.
    ``equal``: two or more runs that measured the same show how much equal runs differ. Raises
    ResultsError, PlanError where there is no such column.
    """
    same = [one.on_disk for one in equal]
    return Comparison(run.on_disk.compare(other.on_disk, metric, equal=same, margin=margin))


def race(
    a: Side,
    b: Side,
    *,
    lab: LabInUse | str = "netns",
    other_lab: str | None = None,
    name: str = "race",
    margin: float = 0.02,
    at_least: int = 5,
    at_most: int = 200,
    by: Literal["slices", "windows"] = "slices",
    **factors: Any,
) -> Raced:
    """Measure two programs or plans in one run until it is known which is faster, or that they are equivalent.

    They take turns; each repetition gives one ratio of their forwarding rates. If they differ only in the program,
    they swap every few milliseconds under one sender (``by`` slices); otherwise, and with ``by`` windows, whole trials
    are compared. The run stops when the interval of the ratio, which holds at every look
    (`xdplab.analysis.decide.race`), excludes 1 or lies within ``margin``, at the latest after ``at_most``
    repetitions. ``factors`` are those of `plan`, and are the same for both programs; a plan
    (``xl.plan(…)``, or a plan file) has one block and its own factors. ``other_lab`` is the lab of b, for a race
    between two kernels or machines; a and b may then be the same. Raises PlanError.
    """
    limits = {"margin": margin, "at_least": at_least, "at_most": at_most, "by": by}
    labs = () if other_lab is None else (lab if isinstance(lab, str) else lab.lab.name, other_lab)
    plan = race_of(name, _sides(a, b, name, factors), limits, labs)
    used = LabInUse(lab) if isinstance(lab, str) else lab
    return Raced(PlanInHand(plan).start(used).watch())


def _sides(a: Side, b: Side, name: str, factors: dict[str, Any]) -> list[Plan]:
    """Return the plan of each side. Raises PlanError."""
    sides = [_loaded(a), _loaded(b)]
    plans = [side for side in sides if isinstance(side, Plan)]
    if factors and len(plans) == 2:
        raise PlanError(f"{', '.join(factors)}: both sides are plans, which have their own factors")
    given = ({"trial": plans[0].trial.model_dump()} if plans else {}) | factors
    return [side if isinstance(side, Plan) else _plan(name, [side], given) for side in sides]


def _loaded(side: Side) -> Plan | Program | str:
    """Return the plan that a side is or names; a program as it is."""
    if isinstance(side, PlanInHand):
        return side.plan
    return load_plan(Path(side)) if isinstance(side, str) and is_plan_file(side) else side


_declare(race, own=(*_PLAN_KEYS, "passes"))


@dataclass(frozen=True)
class Raced:
    """A race that has ended; ``run`` has its trials."""

    run: RunInHand

    @property
    def standing(self) -> Standing:
        """The ratio of b to a with its interval (of the logarithm), and the answer."""
        return traffic_race.standing_of(self.run.directory)

    @property
    def outcome(self) -> Outcome:
        """The standing in words: by the names of the sides, in percent and ns, with what the test runs say."""
        return traffic_race.outcome_of(self.run.directory)

    @property
    def verdict(self) -> str:
        """``equivalent``, ``differs`` or ``undecided``."""
        return self.standing.answer

    def __repr__(self) -> str:
        return f"{self.run.directory.name}: {self.outcome.text}"

    def _repr_html_(self) -> str:
        return small_table(f"race: {self.verdict}", {"answer": self.outcome.text, **self.run.about}, self.run.links)


def _plan(name: str, chosen: Sequence[Program | str | None], given: Mapping[str, Any]) -> Plan:
    top = {key: value for key, value in given.items() if key in _PLAN_KEYS}
    passes = {key: value for key, value in given.items() if key == "passes"}
    _check_names(given.keys() - top.keys() - passes.keys())
    traffic, block = _written("traffic", given), _written("block", given) | passes
    points = {f.name: given[f.name] for f in in_plan("points") if f.name in given and not of_program(f)}
    blocks = [{"points": points | _program_points(p, given), "traffic": traffic, **block} for p in chosen]
    return parse_plan({"name": name, **top, "blocks": blocks})


def _written(where: Where, given: Mapping[str, Any]) -> dict[str, Any]:
    return {factor.name: given[factor.name] for factor in in_plan(where) if factor.name in given}


def _check_names(names: Iterable[str]) -> None:
    factors = [factor.name for factor in FACTORS if factor.where]
    for name in names:
        if name not in factors:
            similar = get_close_matches(name, [*factors, "program", *_PLAN_KEYS, "passes"], n=1)
            remedy = f"did you mean {similar[0]}?" if similar else f"factors are program, {', '.join(factors)}"
            raise PlanError(f"{name} is not a factor", remedy=remedy)


def _program_points(program: Program | str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the program's factors for a block's points: its own, and those given with a workload's name."""
    of_workload = {f.name: given[f.name] for f in in_plan("points") if f.name in given and of_program(f)}
    if program is None:
        return of_workload
    if isinstance(program, Program):
        both = of_workload | _written("program", given)
        if both:
            raise PlanError(
                f"{', '.join(both)}: this program has its factors already", remedy="give them to xl.program(…)"
            )
        return _definition(program)
    if program in WORKLOADS:
        return {"workload": program} | of_workload
    if of_workload:
        raise PlanError(f"{', '.join(of_workload)}: a user's own program has no such factor", remedy="leave it out")
    return _definition(make_program(program, **_written("program", given)))


def _sortable(values: pd.Series) -> pd.Series:
    """Return the sort key of a column of points: numbers as they are, words and structures as text."""
    return values if pd.api.types.is_numeric_dtype(values) else values.astype(str)


def _definition(program: Program) -> dict[str, Any]:
    spec = program.spec
    values = {key: value for key, value in spec.canonical().items() if value not in (None, (), {})}
    if isinstance(spec, ProgramSpec):
        return {key: value for key, value in values.items() if key not in ("action", "hook")}  # others decide these
    files = {key: str(Path(values[key]).resolve()) for key in PATHS if key in values}
    return {"program": {**values, **files, "setup": [list(argv) for argv in spec.setup]}}


class LabInUse:
    """A lab that is up, held by this process."""

    def __init__(self, name: str) -> None:
        self._stack = ExitStack()
        self.lab: Lab = self._stack.enter_context(use_lab(name))
        atexit.register(self.close)

    def doctor(self) -> Checks:
        """What the hosts can do, what is missing, and the remedy: one row per check, problems first."""
        return checks(examine(self.lab))

    def run(self, host: str, *argv: str) -> str:
        """Run a command on ``dut`` or ``tg`` and return its output. Raises HostError with the command's own message."""
        return self.lab.host(host).run(argv).text

    def measure(self, program: Program | str, *, repetitions: int = 1, **factors: Any) -> pd.DataFrame:
        """Measure one program now, with its baseline; the rows of its trials, recorded in a run directory too."""
        chosen = plan("measure", program, repetitions=repetitions, **factors)
        return RunInHand(measured(chosen.plan, self.lab, results())).trials

    def search(
        self,
        what: PlanInHand | Program | str,
        *,
        profile: str = "quick",
        latency: bool = True,
        accesses_share: float | None = None,
        name: str | None = None,
        **factors: Any,
    ) -> RunInHand:
        """Search the rates of a program, or of every point of a plan: NDR, PDR, MRR, latency at shares of the PDR.

        It runs in a process of its own: ``run.watch()``, then ``run.trials``. ``profile``: quick, csit, rfc2544 or
        rfc2544-short; ``accesses_share``: also find the largest N whose throughput is this share of that at N = 0.
        Loss is meaningful only if TG and DUT have separate CPUs: ``arrangement="split"``, or two hosts. Raises
        PlanError.
        """
        given = what if isinstance(what, PlanInHand) else plan(name or "search", what, **factors)
        chosen = given.plan if name is None else given.plan.model_copy(update={"name": name})
        wanted = profile_named(profile)
        request = SearchRequest(wanted if latency else replace(wanted, latency_repeats=0), accesses_share)
        return started(start_search(chosen, request, self.lab, results()), self)

    def close(self) -> None:
        """Release the lab; if it was brought up here, it is taken down."""
        atexit.unregister(self.close)
        self._stack.close()

    def __repr__(self) -> str:
        return f"{self.lab.name}: {self.lab.label}"


_declare(LabInUse.measure, own=_PLAN_KEYS)
_declare(LabInUse.search, own=_PLAN_KEYS)


@dataclass(frozen=True)
class PlanInHand:
    """A plan that has not been started: it shows its points, its blocks and its duration."""

    plan: Plan

    @property
    def points(self) -> pd.DataFrame:
        """One row per point."""
        rows = {t.point.point_id: t.point.factors() for t in plan_trials(self.plan, "shared")}
        points = ReadableFrame(rows.values())
        return points.sort_values(varying(points), ignore_index=True, key=_sortable)

    def start(self, lab: LabInUse, name: str | None = None) -> RunInHand:
        """Start measuring in a process of its own; an interrupt of the notebook stops only the watching."""
        chosen = self.plan if name is None else self.plan.model_copy(update={"name": name})
        return started(TRAFFIC.run(traffic_runs.start(chosen, lab.lab, results())), lab)

    def __repr__(self) -> str:
        trials = plan_trials(self.plan, "shared")
        blocks = Counter((t.point.mode, t.point.queues) for t in trials)
        where = ", ".join(f"{mode} on {many(queues, 'queue')}" for mode, queues in blocks)
        n_points = len({t.point.point_id for t in trials})
        time = duration(estimate_s(self.plan, trials))
        most = "at most " if self.plan.open_ended else ""
        return (
            f"plan {self.plan.name}: {n_points} points x {most}{self.plan.most_repetitions} repetitions = "
            f"{many(len(trials), 'trial')}, {most or 'about '}{time}; blocks: {where}"
        )

    def _repr_html_(self) -> str:
        points = self.points.dropna(axis=1, how="all").drop(columns="point_id")
        names = varying(points)
        levels = points.dropna(axis=1)  # a factor that some points lack is not the same for all points
        alike = [f"{name} {levels[name].iloc[0]}" for name in levels if levels[name].astype("string").nunique() == 1]
        table = ReadableFrame(points[names]).readable_html(index=False) if names else ""
        same = f"<details><summary>the same at all points</summary>{html.escape(', '.join(alike))}</details>"
        return f"{paragraphs([repr(self)])}{table}{same}"


_declare(RunInHand.figure, own=(*OF_WHAT, *OF_SIZE, "ax"), of=())
RunInHand.figure.__doc__ = f"""{inspect.cleandoc(RunInHand.figure.__doc__ or "")}

Figures of XDP traffic:
{chr(10).join(f"    {name:13} {entry.text}" for name, entry in CATALOGUE.items())}

Figures of a search: {", ".join(SEARCH_VIEWS)}. Those of a study: `run.figures`.
"""


@dataclass(frozen=True)
class Comparison:
    """Two runs joined by their points: differences of environment, warnings, ratios, and the answer."""

    runs: TwoRuns

    @property
    def table(self) -> pd.DataFrame:
        """One row per point: factors, n, geometric means, ratio with interval, verdict, detectable difference."""
        return self.runs.points

    @property
    def metric(self) -> str:
        return self.runs.metric

    @property
    def verdict(self) -> str:
        """``equivalent``, ``differs`` or ``undecided``."""
        return self.runs.verdict

    def __repr__(self) -> str:
        return "\n".join(self.runs.lines())

    def figure(self, *, ax: Any = None, **size: Any) -> Figure:
        """Draw the ratios; return the matplotlib Figure. Options: style, width, height, caption, ax."""
        if "accesses" not in self.table:
            raise FigureError("ratios of a study's runs have no figure", remedy="the table has them")
        view = compare_view(self.table, names=self.runs.names, metric=self.metric)
        return sheet_of(draw(view, sized(**({"style": "notebook"} | size)), ax=ax))

    def _repr_html_(self) -> str:
        return paragraphs(self.runs.lines()) + ReadableFrame(self.runs.readable).readable_html(index=False)


def _match(context: Any) -> dict[str, Any]:
    """Offer IPython what can stand within the quotes at the cursor, instead of files."""
    shell: Any = sys.modules["IPython"].get_ipython()
    line = context.line_with_cursor[: context.cursor_position]
    begun, words = completion.within_quotes(line, {} if shell is None else shell.user_ns, str(results()))
    completions = [_Match(word) for word in words]
    return {"completions": completions, "matched_fragment": begun, "suppress": bool(completions)}


@dataclass(frozen=True)
class _Match:
    text: str
    type: str = "xdplab"


def _help_tab() -> None:
    """Register the matcher where this module is imported by IPython."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None:
        _match.matcher_api_version = 2  # type: ignore[attr-defined]
        shell.Completer.custom_matchers.append(_match)


_help_tab()
