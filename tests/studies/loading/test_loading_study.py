"""The loading study without a kernel: points, rows of raw files, tables, findings, figures."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from xdplab.errors import NotApplicableError, PlanError, UnsupportedError
from xdplab.figures.kinds import paint
from xdplab.run.frames import why_null
from xdplab.run.progress import silent
from xdplab.studies.kind import Run
from xdplab.studies.loading import passes, rows, runs, summaries
from xdplab.studies.loading.points import BPF, MODULE, LoadingPoint, LoadingRequest, Trial, gather, smallest
from xdplab.studies.loading.published import EXPERIMENTS
from xdplab.studies.loading.runs import STUDY, LoadingFacts
from xdplab.studies.loading.views import VIEWS
from xdplab.studies.meaning import with_meanings
from xdplab.studies.study_kind import Places, failures

GUEST, OWN = "vm:6.1:count", "host"
REQUEST = LoadingRequest(places=(OWN, GUEST), forms=("unrolled",), accesses=(1, 1600), loads=3, compiles=2)


def lines(*cycles: dict[str, int | None], sizes: dict[str, Any] | None = None) -> str:
    first = [{"type": "program", "name": "p"} | sizes] if sizes else []
    found = [*first, *({"type": "cycle", "rank": i} | c for i, c in enumerate(cycles)), {"type": "end"}]
    return "".join(json.dumps(line) + "\n" for line in found)


BPF_CYCLE = {"open_ns": 10_000, "prepare_ns": 20_000, "load_ns": 100_000, "attach_ns": 5_000, "logged_us": None}
MODULE_CYCLE = {"read_ns": 1_000, "init_ns": 50_000, "delete_ns": 9_000}


def graph(*cycles: str) -> str:
    head = "# tracer: function_graph\n 0)   7.000 us    |  bpf_check();\n"  # a probe of libbpf's, before the first mark
    marked = (
        f" 0)               |  /* cycle {i} */\n{c} 0)               |  /* done {i} */\n" for i, c in enumerate(cycles)
    )
    return head + "".join(marked)


BEHIND = " 0)  60.000 us    |  bpf_check();\n 0)   30.000 us    |  bpf_int_jit_compile();\n"
INSIDE = " 0)               |  bpf_check() {\n 0)   30.000 us    |    bpf_int_jit_compile();\n 0)   90.000 us    |  }\n"
INSERTED = """ 0)               |  load_module() {
 0)               |    do_init_module() {
 0)   1.000 us    |      do_one_initcall();
 0)   5.000 us    |    }
 0)  45.000 us    |  }
"""
STACKS = "\tffffffff81000001 bpf_int_jit_compile\n\tffffffff81000002 bpf_prog_load\n\n" + 3 * (
    "\tffffffff81000003 do_check\n\tffffffff81000004 bpf_check\n\tffffffff81000002 bpf_prog_load\n\n"
)
STACKS += "\tffffffff81000005 memset\n\tffffffff81000002 bpf_prog_load\n\n"


_PROCESSES = {"insmod": 100_000, "busybox": 20_000, "libbpf": 50_000, "bpftool": 60_000}


class Recorded:
    """Writes the raw files that passes would leave; one program is refused."""

    place, facts = None, LoadingFacts

    def enter_block(self, trials: object) -> None: ...

    def leave_block(self) -> None: ...

    def measure(self, trial: Trial, raw: Path, facts: LoadingFacts) -> None:
        point = trial.point
        clock = "instructions" if point.place == GUEST else "time"
        facts.clock, facts.label, facts.kernel_release = clock, point.place, "6.1"
        if point.task == "compile":
            (raw / "compiled.json").write_text(json.dumps({"compile_ns": [2_000_000, 4_000_000]}))
        elif point.task == "process":
            cost = _PROCESSES[point.kind]
            undone = {"then_ns": 2 * cost, "then_own_ns": cost // 2} if point.kind != "libbpf" else {}
            (raw / "plain.jsonl").write_text(lines(*6 * [{"run_ns": 3 * cost, "run_own_ns": cost} | undone]))
        elif point.task == "start":
            (raw / "plain.jsonl").write_text(lines({"start_ns": 9_000, "own_ns": 4_000}))
        elif point.kind == MODULE:
            self._module(point, raw, facts)
        else:
            self._bpf(point, raw, facts)

    def _bpf(self, point: LoadingPoint, raw: Path, facts: LoadingFacts) -> None:
        if point.place == OWN and point.accesses == 1600:
            raise UnsupportedError("this machine: load: p is refused: too large")
        (raw / "plain.jsonl").write_text(lines(*3 * [BPF_CYCLE], sizes={"xlated_bytes": 432, "jited_bytes": 254}))
        (raw / "logged.jsonl").write_text(lines(*3 * [BPF_CYCLE | {"logged_us": 58}]))
        if point.place == OWN:
            facts.split_by, facts.split_reason = "perf samples", None
            (raw / "stacks.txt").write_text(STACKS)
            return
        facts.split_by, facts.split_reason = "function_graph", None
        inside = point.accesses == 1600
        (raw / "traced.jsonl").write_text(lines(*3 * [BPF_CYCLE | {"load_ns": 110_000}]))
        (raw / "trace.txt").write_text(graph(*3 * [INSIDE if inside else BEHIND]))

    def _module(self, point: LoadingPoint, raw: Path, facts: LoadingFacts) -> None:
        facts.split_by, facts.split_reason = None, "function_graph: nobody may trace"
        (raw / "plain.jsonl").write_text(lines(*3 * [MODULE_CYCLE], sizes={"core_bytes": 49152}))
        (raw / "sections.json").write_text(json.dumps({"text": 557, "file": 9176}))
        if point.accesses == 1:
            facts.split_by, facts.split_reason = "function_graph", None
            (raw / "traced.jsonl").write_text(lines(*3 * [MODULE_CYCLE]))
            (raw / "trace.txt").write_text(graph(*3 * [INSERTED]))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run[Any]:
    started = STUDY.start(REQUEST, tmp_path_factory.mktemp("runs"))
    state = started.measure_at(Places(lambda plan: Recorded(), lambda _: {}, ()), silent())
    assert not state.failed
    assert not state.owed
    return started


@pytest.fixture(scope="module")
def table(run: Run[Any]) -> pd.DataFrame:
    return run.rows()


def test_a_profilers_share_is_one_number_with_its_interval_not_one_per_load(table: pd.DataFrame):
    own = table[table["source"].eq("perf samples") & table["program"].eq("clock")]
    assert own.groupby("step").size().to_dict() == {"jit": 1, "verify": 1}
    assert (own["low"] < own["ns"]).all()
    assert (own["ns"] < own["high"]).all()
    marks = VIEWS["simple-parts-times"](table).marks
    shared = marks[marks["x"].eq("jit, perf samples")]
    assert shared["kind"].tolist() == ["point"]
    assert shared["low"].notna().all()


def test_whole_processes_are_compared_with_insmod_of_their_place(table: pd.DataFrame):
    made = summaries.processes(table)
    counted = made[made["place"].eq(GUEST)].set_index("process")
    assert list(counted.index) == [
        "a process that does nothing",
        "a libbpf loader",
        "bpftool prog load",
        "busybox insmod",
        "insmod",
        "busybox rmmod",
        "rmmod",
    ]
    assert counted["median"].tolist() == [4, 50, 60, 20, 100, 10, 50]  # the process's own CPU time, in thousands
    assert counted["by insmod"].tolist() == [0.04, 0.5, 0.6, 0.2, 1, 0.1, 0.5]
    timed = made[made["place"].eq(OWN)].set_index("process")
    assert timed["median"].to_dict() == {
        "a process that does nothing": 9,
        "a libbpf loader": 150,
        "bpftool prog load": 180,
    }
    assert timed["by insmod"].isna().all()  # no module is inserted here, and no ratio compares two places
    assert made.iloc[-1]["by insmod"] == 1.2
    marks = VIEWS["processes-counts"](table).marks
    assert list(dict.fromkeys(marks["x"])) == list(counted.index)
    with pytest.raises(NotApplicableError, match="no whole process"):
        VIEWS["processes-counts"](table[table["task"].ne("process")])


def test_points_of_a_request():
    found = gather(REQUEST)
    assert {(p.place, p.kind) for p in found.points if p.task == "load"} == {(OWN, BPF), (GUEST, BPF), (GUEST, MODULE)}
    assert {p.kernel for p in found.points if p.task == "compile" and p.kind == MODULE} == {"6.1"}
    whole = {(p.place, p.kind) for p in found.points if p.task == "process"}
    assert whole == {(OWN, kind) for kind in ("libbpf", "bpftool")} | {(GUEST, kind) for kind in _PROCESSES}
    assert [note.split(":")[0] for note in found.notes] == ["host"]
    assert len({p.point_id for p in found.points}) == len(found.points)
    small = gather(smallest(LoadingRequest()))
    assert {p.place for p in small.points if p.task == "load"} == {GUEST}


def test_a_guest_without_a_kernel_is_refused():
    with pytest.raises(PlanError, match="--place"):
        gather(LoadingRequest(places=("vm",)))


def part(frame: pd.DataFrame, place: str, kind: str, accesses: int | None) -> pd.Series:
    size = frame["accesses"].isna() if accesses is None else frame["accesses"].eq(accesses).fillna(False)
    (row,) = frame[frame["place"].eq(place) & frame["kind"].eq(kind) & size].to_dict("records")
    return pd.Series(row)


def test_the_rest_is_unknown_if_the_jit_ran_untimed(table: pd.DataFrame):
    untimed = table[~table["step"].eq("jit")]
    assert pd.isna(part(rows.parts(untimed), GUEST, BPF, 1)["rest of load"])
    interpreted = untimed[~untimed["step"].eq("jited")]
    assert part(rows.parts(interpreted), GUEST, BPF, 1)["rest of load"] == 40_000


def test_a_module_has_parts_only_where_it_was_traced(table: pd.DataFrame):
    traced, plain = (part(rows.parts(table), GUEST, MODULE, n) for n in (1, 1600))
    assert [traced[name] for name in rows.MODULE_PARTS] == [1_000, 5_000, 40_000, 4_000, 1_000]
    assert traced["whole"] == plain["whole"] == 51_000
    assert plain[["copy", "layout", "finish", "init"]].isna().all()
    untraced = table[table["source"].isna() & table["kind"].eq(MODULE)]
    assert set(why_null(untraced, "ns")) == {"function_graph: nobody may trace"}


def test_samples_divide_what_the_log_leaves(table: pd.DataFrame):
    found = part(rows.parts(table), OWN, BPF, 1)
    assert found["verify"] == pytest.approx(58_000)  # the log's number takes precedence over a share
    assert found["jit"] == pytest.approx(21_000)  # one sample each in the JIT and in the rest
    assert found["rest of load"] == pytest.approx(21_000)
    found = passes.shares(STACKS.encode())
    assert {name: share.value for name, share in found.items()} == {"verify": 0.6, "jit": 0.2}
    assert found["jit"].interval == pytest.approx((0.0362, 0.6245), abs=1e-3)  # 1 of 5, by Wilson's formula
    assert passes.shares(b"") == passes.shares(b"\tffffffff81000002 do_mmap\n") == {}


def test_times_of_a_watched_pass_are_shares_of_the_untraced_one(table: pd.DataFrame):
    logged = table["source"].eq(rows.LOG) & table["place"].eq(OWN)
    slow = table.copy()
    slow.loc[logged, "ns"] *= 3  # the machine was busy while the log's pass ran
    assert part(rows.parts(slow), OWN, BPF, 1)["verify"] == pytest.approx(58_000)


def test_a_whole_is_the_sum_of_one_trials_steps_not_of_a_mean_over_trials(table: pd.DataFrame):
    trial = table[table["task"].eq("load") & table["program"].eq("clock") & table["kind"].eq(BPF)]
    trial = trial[trial["place"].eq(OWN)]
    slow = [trial.assign(trial_id=name, ns=3 * trial["ns"]) for name in ("second", "third")]
    (whole,) = rows.wholes(pd.concat([trial, *slow])).to_dict("records")
    assert (whole["median"], whole["n"]) == (3 * 135_000, 9)


def test_published_ratios_are_of_one_source_for_each_part(table: pd.DataFrame):
    """The log and the trace both have the verifier's time: a median over both would be that of neither."""
    logged = table["source"].eq(rows.LOG) & table["step"].eq("verify") & table["place"].eq(GUEST)
    told = table.copy()
    told.loc[logged, "instructions"] = 30_000.0
    found = {one.what: list(one.ours(told)) for one in EXPERIMENTS}
    by_place = {ours.place: ours.value for ours in found["simple program: verifier by JIT"]}
    assert by_place[GUEST] == pytest.approx(60 / 30)  # the trace's
    assert by_place[OWN] == pytest.approx(58 / 21)  # the log's, and what the profiler's samples leave to the JIT
    share = {ours.place: ours.value for ours in found["share of verifier and JIT in the insertion"]}
    assert share[GUEST] == pytest.approx(100 * 90_000 / 50_000)


def test_a_refusal_is_a_row_with_its_reason_and_no_number(run: Run[Any], table: pd.DataFrame):
    refused = table[table["place"].eq(OWN) & table["accesses"].eq(1600).fillna(False) & table["task"].eq("load")]
    assert list(why_null(refused, "ns")) == ["this machine: load: p is refused: too large"]
    assert refused[["ns", "instructions", "bytes"]].isna().all(axis=None)
    assert len(failures(run.plan)) == 1


def test_parts_over_the_whole_are_a_finding(table: pd.DataFrame):
    more = table.copy()
    verify = more["step"].eq("verify") & more["source"].eq(rows.GRAPH)
    more.loc[verify, "instructions"] *= 2
    assert "NO" in set(summaries.crosscheck(more)["parts ≤ whole"])
    assert "exceed the whole for 3 of 3" in with_meanings(summaries.TABLES, more)["crosscheck"].meaning


def test_pieces_of_a_bar_end_at_a_hundred(table: pd.DataFrame):
    marks = VIEWS["parts-bpf-counts"](table).marks
    tops = marks.groupby(["panel", "x"])["value"].max()
    assert tops.tolist() == pytest.approx([100.0, 100.0])
    assert (marks["low"] <= marks["value"]).all()


def repeated(table: pd.DataFrame, times: int) -> pd.DataFrame:
    """The same values with a spread of 2 %, as from so many times the repetitions."""
    each = [
        table.assign(
            repetition=table["repetition"] + 100 * turn,
            **{name: table[name] * (1 + 0.02 * turn / times) for name in ("ns", "instructions")},
        )
        for turn in range(times)
    ]
    return pd.concat(each, ignore_index=True)


def test_steps_of_an_insertion_have_no_colour_of_a_backend(table: pd.DataFrame):
    """Reading a module's file was blue, as the interpreter is, and the JIT's orange was that of copying it."""
    backends = {one.color for one in paint(["interpreter", "JIT", "module", "user space"], "colorblind").values()}
    for name, told in (("parts-module-counts", set()), ("parts-bpf-counts", {"JIT: bpf_int_jit_compile()"})):
        look = VIEWS[name](table).look
        colours = {hue: one.color for hue, one in paint(list(look.order.hues), look.order.palette).items()}
        assert len(set(colours.values())) == len(colours)
        assert {hue for hue, color in colours.items() if color in backends} == told


def test_figures_of_what_was_repeated_have_intervals(table: pd.DataFrame):
    more = repeated(table.loc[table["source"].ne("perf samples") & table["step"].notna()], 4)
    for name in ("total-counts", "total-times", "compile", "parts-bpf-counts", "parts-module-counts"):
        marks = VIEWS[name](more).marks
        shown = marks.loc[marks["kind"].isin(("point", "line", "edge"))]  # of two sizes no line is drawn
        assert len(shown), name
        assert (shown["low"] < shown["high"]).all(), name
        assert shown["value"].between(shown["low"], shown["high"]).all(), name


def test_few_compilations_are_drawn_one_by_one(table: pd.DataFrame):
    marks = VIEWS["compile"](table).marks
    assert marks.loc[marks["kind"].eq("line"), "low"].isna().all()
    assert set(marks.loc[marks["kind"].eq("raw"), "value"]) == {2.0, 4.0}


@pytest.mark.root
def test_this_machine_tells_the_parts_of_a_load_in_time(tmp_path: Path):
    """Counts, and modules, need a guest: test_loading_command.py."""
    request = LoadingRequest(places=(OWN,), forms=("unrolled",), accesses=(100,), loads=2, compiles=1)
    run = STUDY.start(request, tmp_path)
    run.measure(silent())
    assert failures(run.plan) == []
    assert set(run.rows()["task"]) == {"compile", "load", "process", "start"}
    parts = rows.parts(run.rows())
    assert sorted(parts["program"]) == ["array", "clock"]
    assert parts[["whole", "verify"]].gt(0).all(axis=None)


def test_the_module_is_made_of_the_workload_itself():
    point = LoadingPoint("load", GUEST, MODULE, "array", "unrolled", 1600)
    sources = runs.module_sources(point)
    assert b"#define ACCESSES 1600" in sources["workload.h"]
    assert b"rx_handler" in sources[f"{runs.MODULE_NAME}.c"]
    assert sources["workload.h"] != runs.module_sources(replace(point, accesses=1))["workload.h"]


@pytest.fixture
def compiled(tmp_path: Path) -> Callable[[str], Path]:
    def compile_c(text: str) -> Path:
        (tmp_path / "a.c").write_text(text)
        subprocess.run(["cc", "-c", "a.c", "-o", "a.o"], cwd=tmp_path, check=True)
        return tmp_path / "a.o"

    return compile_c


def test_sections_by_what_they_become(compiled: Callable[[str], Path]):
    found = runs.sections(compiled("char z[4096]; int d[100] = {1}; const int r[50] = {2}; int f(void) { return 1; }"))
    assert found["bss"] == 4096
    assert found["data"] == 400
    assert found["rodata"] >= 200
    assert 0 < found["text"] < 100
    assert found["file"] > 800
