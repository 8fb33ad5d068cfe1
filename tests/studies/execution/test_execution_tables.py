"""Tables and figures of the execution study, from calls whose numbers are known."""

import hashlib
import json
from collections.abc import Callable
from itertools import product

import pandas as pd
import pytest

from xdplab.errors import PlanError
from xdplab.labs.guests.keepers import largest_cache_bytes
from xdplab.run.frames import typed
from xdplab.studies.execution import points, user_pair
from xdplab.studies.execution.backends import absent, left_out
from xdplab.studies.execution.points import ExecutionPoint, ExecutionRequest
from xdplab.studies.execution.rows import COLUMNS
from xdplab.studies.execution.summaries import (
    TABLES,
    causes,
    chains,
    clock_steps,
    median_table,
    medians,
    primes,
    rank,
    results,
    typical,
    work,
)
from xdplab.studies.execution.views import VIEWS
from xdplab.studies.meaning import with_meanings

COUNTS = "vm:6.1:count"
LABELS = {"uml": "uml, Linux 6.1, time", "vm:6.1:count": "vm, Linux 6.1, instructions counted"}
COSTS = {"interpreter": 400, "jit": 110, "module": 100, "user": 130}


Cost = Callable[[int], float]


def calls(
    place: str, backend: str, benchmark: str, repetition: int = 1, cost: Cost | None = None, **factors: object
) -> list[dict[str, object]]:
    """Return twenty calls, each with the ``cost`` of its index. By default these are around the backend's: the first
    five take ten times as long, the last is a maximum."""

    def usual(index: int) -> int:
        return COSTS[backend] * (10 if index < 5 else 20 if index == 19 else 1) + index % 3 + repetition

    clock = "instructions" if place.endswith("count") else "time"
    base = {"run_id": "r", "trial_id": f"{place}-{backend}-{benchmark}-{factors}-r{repetition}", "place": place}
    base |= {"label": LABELS[place], "clock": clock, "backend": backend, "benchmark": benchmark, "cold": False}
    base |= {"repetition": repetition, "own": False, "pause_us": 0, "executions": 1, **factors}
    column = "elapsed_ns" if clock == "time" else "instructions"
    return [base | {"call": index, column: (cost or usual)(index)} for index in range(20)]


def table(*groups: list[dict[str, object]]) -> pd.DataFrame:
    rows = [row for group in groups for row in group]
    return typed(rows, COLUMNS)


def counted(
    place: str, label: str, backend: str, benchmark: str, cost: float, **factors: object
) -> list[dict[str, object]]:
    """Return calls whose instructions were counted, all alike, of a place that figures give this label."""
    at = {"place": place, "label": label, "trial_id": f"{label}, {backend}, {benchmark}"}
    return [row | at for row in calls("vm:6.1:count", backend, benchmark, cost=lambda _: cost, **factors)]


@pytest.fixture
def measured() -> pd.DataFrame:
    every = product(LABELS, COSTS, ("primes", "empty", "chain 1", "chain 32"))
    made = [
        calls(place, backend, name, repetition, links=int(name.split()[1]) if name.startswith("chain") else None)
        for place, backend, name in every
        for repetition in ((1,) if place.endswith("count") else (1, 2, 3))
    ]
    return table(*made)


def test_a_median_is_without_the_first_five_calls_and_with_its_interval(measured: pd.DataFrame) -> None:
    row = medians(measured).set_index(["place", "benchmark", "backend"]).loc[("uml", "primes", "jit")]
    assert (row["n"], row["calls"]) == (3, 15)
    middle = (112 * 113 * 114) ** (1 / 3)  # middle of 0 … 2, and the repetitions 1 … 3: a time is never below 0
    assert row["value"] == pytest.approx(middle)
    assert row["low"] < row["value"] < row["high"]
    assert row["reference"] == "module"
    assert row["ratio"] == pytest.approx((112 / 102 * 113 / 103 * 114 / 104) ** (1 / 3))
    few = table(calls("uml", "jit", "a user's own pair", own=True)[:9])
    assert medians(few)["calls"].tolist() == [9]  # five of them would be most of it


@pytest.mark.parametrize(
    ("place", "costs", "told"),
    [
        ("uml", {"empty": (30, 20), "array 100": (130, 70)}, "2 [2, 2] times user space"),
        ("uml", {"empty": (30, 20), "array 100": (130, 70), "chain 1": (40, 30)}, "2 [2, 2] times user space"),
        ("uml", {"empty": (30, 20), "array 100": (131, 29)}, ""),
        ("uml", {"array 100": (140, 70)}, "2 [2, 2] times user space, with the clock that both read"),
        (COUNTS, {"empty": (47, 77), "chain 1": (86, 98)}, "1.86 times user space"),
        ("uml", {"empty x16": (30, 20), "array 100 x16": (130, 70)}, "2 [2, 2] times user space"),
    ],
    ids=["net", "one is not resolved", "nor is the reference", "no clock alone", "counts are exact", "repeated"],
)
def test_a_sentence_compares_what_is_left_without_the_clock(
    place: str, costs: dict[str, tuple[int, int]], told: str
) -> None:
    made = [
        calls(place, backend, name, repetition, cost=lambda index, cost=cost: cost)  # type: ignore[misc]
        for name, both in costs.items()
        for backend, cost in zip(("jit", "user"), both, strict=True)
        for repetition in ((1,) if place == COUNTS else (1, 2, 3))
    ]
    sentence, *_ = results(None, table(*made, calls(place, "interpreter", "empty", cost=lambda _: 1)))
    assert sentence.removeprefix("compiled BPF takes ") == told


def test_a_coarse_clock_is_read_between_its_steps() -> None:
    """A call of 700 ns, timed at every phase of a clock with steps of 256 ns: 512 or 768; one call was disturbed."""
    seen = [(700 + phase) // 256 * 256 for phase in range(256)] + [25_600]
    assert typical(pd.Series(seen, dtype=float), 256) == pytest.approx(700, abs=1)
    assert typical(pd.Series([256.0, 4096.0]), 256) == 2176  # two modes, and nothing between them
    assert typical(pd.Series([6000.0, 6100.0, 6200.0]), 256) == 6100
    rows = calls("uml", "jit", "empty", cost=lambda index: 256 * (index % 4))
    assert clock_steps(table(rows)) == {LABELS["uml"]: 256}
    assert "steps of 256" in with_meanings(TABLES, table(rows))["medians"].frame["unit"].iloc[0]


def test_what_is_over_before_the_clocks_next_step_is_no_zero() -> None:
    unseen, seen = calls("uml", "module", "empty", cost=lambda _: 0), calls("uml", "interpreter", "empty")
    found = medians(table(unseen, seen)).set_index("backend")
    assert found["value"].isna().to_dict() == {"interpreter": False, "module": True}
    assert found["ratio"].isna().all()
    again = medians(table(unseen, seen, calls("uml", "module", "empty", 2), calls("uml", "interpreter", "empty", 2)))
    assert again["ratio"].isna().all()  # a repetition without a value gives no ratio
    assert again["value"].notna().all()
    cells = with_meanings(TABLES, table(unseen, seen))["medians"].frame.iloc[0]
    assert (cells["module"], cells["interpreter"][:3]) == ("less than a step of the clock", "402")


def test_a_trap_has_no_ratio_and_a_table_of_its_own(measured: pd.DataFrame) -> None:
    trap = "not the same work"
    own_source = [calls("uml", backend, "matrix") for backend in ("interpreter", "module")]
    random = [calls("uml", backend, "matrix, kernel's random", trap=trap) for backend in ("interpreter", "module")]
    both = table(*own_source, *random, calls("uml", "module", "matrix, get_random_bytes", trap=trap))
    made = with_meanings(TABLES, both)
    assert "kernel's random" not in made["medians"].frame["benchmark"].to_string()
    assert len(made["trap"].frame) == 5
    sources = made["trap"].frame["source"]
    assert set(sources) == {
        *("xorshift, the same everywhere", "bpf_get_prandom_u32()", "get_random_u32()", "get_random_bytes()")
    }
    assert with_meanings(TABLES, measured)["trap"].frame.empty


def test_what_an_object_does_stands_beside_what_a_guest_counted_of_it() -> None:
    """The counted clock is that of `empty`: the rest of a count is due to the emulator, for the same machine code."""
    place = "vm:6.1:count"
    of_primes = {"cost": lambda _: 3500, "work": "236 divisions", "work_steps": 236}
    rows = table(
        calls(place, "user", "empty", cost=lambda _: 75, work="nothing", work_steps=6, work_instructions=6),
        calls(place, "user", "primes", **of_primes, work_instructions=3119),
        calls(place, "jit", "primes", **of_primes, work_instructions=3666),
    )
    shown = work(rows).set_index(["benchmark", "backend"])
    columns = ["must do", "did", "instructions", "counted", "apart"]
    assert shown.loc[("primes", "user"), columns].tolist() == ["236 divisions", 236, 3119, 3431, "+10.0%"]
    assert pd.isna(shown.loc[("primes", "jit"), "counted"])  # that backend has no `empty`
    assert work(table()).empty


def test_primes_are_ten_calls_behind_five_and_none_of_fewer(measured: pd.DataFrame) -> None:
    ten = pd.Series([110 + index % 3 + 1 for index in range(5, 15)])
    ours = primes(measured).set_index("where").loc[f"here: {LABELS['uml']}"]
    assert ours["jit"] == f"{ten.mean():,.1f} ± {ten.std(ddof=1):,.1f}"
    assert primes(measured[measured["call"] < 14]).empty


def test_calls_below_a_step_of_the_clock_are_drawn_as_such() -> None:
    """They are triangles at the step, with their number: without them, the figure would show only the slow calls."""
    seen = calls("uml", "module", "primes", cost=lambda index: 256 * (index % 2))
    view = VIEWS["times-uml"](table(seen))
    (censored,) = view.marks[view.marks["kind"] == "below"].to_dict("records")
    assert (censored["value"], censored["label"], censored["n"]) == (256, "10 calls", 10)
    (one,) = VIEWS["times-uml"](table(seen[:2])).marks.query("kind == 'below'").to_dict("records")
    assert one["label"] == "1 call"
    assert view.marks["kind"].eq("sample").sum() == 10
    assert "shorter than one step" in view.look.words.legend["below"]
    unseen = calls("uml", "module", "empty", cost=lambda _: 0)
    assert set(VIEWS["times-uml"](table(seen, unseen)).marks["panel"]) == {"primes", "empty"}


def test_a_chain_beside_nothing_else_is_named_on_its_axis(measured: pd.DataFrame) -> None:
    look = VIEWS["counts"](measured[measured["benchmark"].eq("chain 32")]).look
    assert (look.axes.x_scale, look.order.x_values) == ("category", ("chain 32",))


def test_benchmarks_stand_in_their_order() -> None:
    assert sorted(["chain 8", "my own", "primes", "chain 16", "empty"], key=rank) == [
        *("empty", "primes", "chain 8", "chain 16", "my own")
    ]


def points_of(**options: object) -> list[ExecutionPoint]:
    request = ExecutionRequest(**{"benchmarks": ("empty",)} | options)  # type: ignore[arg-type]
    return points.points(request, points.chosen(request))


def test_each_state_of_a_call_is_a_point_and_a_counting_guest_has_no_pauses() -> None:
    host = points_of(places=("host",), backends=("user",), pauses_us=(0, 1000))
    assert [str(p).partition(": ")[2] for p in host] == ["empty, warm", "empty, after 1,000 µs asleep", "empty, cold"]
    assert len({p.point_id for p in host}) == 3
    guest = points_of(places=(COUNTS,), backends=("user",), pauses_us=(0, 1000))
    assert [(p.cold, p.pause_us) for p in guest] == [(False, 0), (True, 0)]


def test_a_counting_guest_is_asked_once_and_with_few_calls() -> None:
    guest, uml = (points_of(places=(place,)) for place in (COUNTS, "uml"))
    assert ({p.once for p in guest}, {p.once for p in uml}) == ({True}, {False})
    request = ExecutionRequest(calls=100)
    assert {points.calls_of(request, p) for p in guest} == {3, 15}
    assert {points.calls_of(request, p) for p in uml} == {10, 100}
    assert {p.backend for p in uml} == {"interpreter", "module"}


def test_hardening_is_a_factor_and_ids_of_points_stay() -> None:
    jit = {"places": (COUNTS,), "backends": ("jit",), "cold": False}
    (plain,), (weak, strong) = points_of(**jit), points_of(**jit, hardenings=(0, 2))
    assert (plain.harden, weak.harden, strong.harden) == (None, 0, 2)
    assert len({p.point_id for p in (plain, weak, strong)}) == 3
    factors = {"place": COUNTS, "backend": "jit", "benchmark": "empty", "cold": False, "own": False, "pause_us": 0}
    assert plain.point_id == hashlib.sha256(json.dumps(factors, sort_keys=True).encode()).hexdigest()[:12]


def test_a_users_own_pair_is_called_back_to_back_as_the_benchmarks_are() -> None:
    own = points.own_points(ExecutionRequest(places=(COUNTS, "uml")), "mine")
    assert {(point.pause_us, point.cold) for point in own} == {(0, False)}


def test_this_machines_kernel_gets_no_module_unasked() -> None:
    assert "--host-module" in absent("host")["module"]
    assert "--host-module" not in absent("host", host_module=True).get("module", "")
    assert all("module" not in note for note in left_out(("host",), ("user",)))


def test_an_unknown_benchmark_is_refused() -> None:
    with pytest.raises(PlanError, match="bubble sort"):
        points_of(benchmarks=("bubble sort",))


def test_the_largest_cache_is_found(tmp_path) -> None:
    for index, size in enumerate(("32K", "1024K", "33M")):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}/size").write_text(size + "\n")
    assert largest_cache_bytes(tmp_path) == 33 << 20


PAIR = "name: n\nbpf: {directory: bpf, object: a.o, map: times}\nmodule: {directory: m, name: a, file: /proc/a}\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: [", "cannot be read"),
        ("name: n\n", "bpf"),
        (PAIR, "event"),
        (PAIR + "event: e\nelse: 1\n", "else"),
        (PAIR.replace("a.o", "../a.o") + "event: e\n", "bpf.object"),
        (PAIR + "event: e\n", "no C source"),
    ],
)
def test_a_configuration_that_cannot_be_used_names_the_field(text: str, words: str, tmp_path) -> None:
    (tmp_path / "pair.yaml").write_text(text)
    with pytest.raises(PlanError, match=words):
        user_pair.load(tmp_path / "pair.yaml")


def test_a_pause_is_a_factor_and_warm_means_back_to_back() -> None:
    """Medians after a pause and without one are two rows, and a table of warm calls has only the latter."""
    made = table(
        *(calls("uml", backend, "chain 32", links=32, pause_us=pause) for backend in COSTS for pause in (0, 1000))
    )
    made.loc[made["pause_us"].eq(1000), "elapsed_ns"] *= 3
    found = medians(made).set_index(["backend", "pause_us"])["value"]
    assert found["jit", 1000] == pytest.approx(3 * found["jit", 0])
    assert median_table(made)["measured"].tolist() == ["warm", "after 1,000 µs asleep"]
    assert chains(made)["jit"].tolist() == [pytest.approx(found["jit", 0], abs=0.05)]
    marks = VIEWS["pauses"](made).marks
    assert sorted(set(marks["x"])) == ["0", "1,000"]
    others = calls("uml", "user", "primes", cold=True), calls("uml", "user", "primes x16", executions=16)
    shown = causes(table(calls("uml", "user", "primes", pause_us=1000), *others))
    assert shown[["form", "measured"]].to_numpy().tolist() == [["primes", "after 1,000 µs asleep"]]
    assert shown["by user space's primes"].isna().all()  # none of its calls was warm


def test_what_is_executed_several_times_counts_once_and_goes_below_the_clocks_step() -> None:
    """Sixteen executions that take 512 ns together take 32 each, of a clock with steps of 256 ns."""
    rows = calls("uml", "module", "primes x16", cost=lambda index: 512 if index % 2 else 256, executions=16)
    found = medians(table(rows)).iloc[0]
    assert found["value"] == pytest.approx(384 / 16, rel=0.1)
    assert clock_steps(table(rows)) == {LABELS["uml"]: 256}
    assert sorted(["primes x16", "array 100 x16", "primes", "empty x16"], key=rank)[0] == "empty x16"


def test_kernels_and_mitigations_are_factors_to_the_oldest_and_other_architectures_are_not_compared() -> None:
    label = "vm, Linux {}, instructions counted{}"
    places = [
        ("vm:6.12:count", label.format("6.12.117-amd64", ""), 1000),
        ("vm:5.10:count", label.format("5.10.0-46-amd64", ""), 2000),
        ("vm:6.1+mitigations:count", label.format("6.1.0-56-amd64", ", mitigations on"), 3000),
        ("vm:6.1@arm64", label.format("6.1.0-56-arm64", ""), 4000),
    ]
    rows = [counted(place, label, "jit", "primes", cost) for place, label, cost in places]
    found = with_meanings(TABLES, table(*rows))["kernels"].frame
    newest, oldest, guarded = "Linux 6.12.117-amd64", "Linux 5.10.0-46-amd64", "Linux 6.1.0-56-amd64, mitigations on"
    factors = [f"{guarded} by {oldest}", f"{newest} by {oldest}"]
    assert list(found) == ["benchmark", "backend", oldest, guarded, newest, *factors]
    assert found.iloc[0].tolist() == ["primes", "jit", 2000, 3000, 1000, 1.5, 0.5]
    assert with_meanings(TABLES, table(calls("vm:6.1:count", "jit", "primes")))["kernels"].frame.empty


def hardened(level: int, pause_us: int) -> list[dict[str, object]]:
    """Calls of the JIT on this machine, of a program that was hardened to that level."""
    at = {"place": "host", "label": f"host, time, bpf_jit_harden {level}", "trial_id": f"harden-{level}-{pause_us}"}
    return [row | at for row in calls("uml", "jit", "primes", cost=lambda _: 100 + 50 * level, pause_us=pause_us)]


def test_no_distribution_and_no_line_is_of_two_settings() -> None:
    made = table(*(hardened(level, pause) for level in (0, 2) for pause in (0, 1000)))
    marks = VIEWS["times-host"](made).marks
    assert marks.groupby("panel")["value"].agg(["min", "max"]).to_numpy().tolist() == [[100, 100], [200, 200]]
    view = VIEWS["pauses"](made)
    assert view.marks.groupby("panel").size().to_dict() == dict.fromkeys(view.look.order.panels, 2)
    assert set(view.look.order.panels) == {f"primes, host, time, bpf_jit_harden {level}" for level in (0, 2)}
    assert "bpf_jit_harden 2" in view.caption[0]
