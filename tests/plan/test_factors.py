"""A factor is declared once: any difference of two points keeps them apart everywhere, and ids stay."""

import hashlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import synthetic
from tests.analysis.synthetic import judged

from xdplab import notebook
from xdplab.analysis.decide.compare import compare
from xdplab.analysis.derived import derive
from xdplab.analysis.intervals import MixedPointsError, summarise
from xdplab.errors import FigureError, PlanError
from xdplab.figures.album import views_of
from xdplab.figures.catalogue import view
from xdplab.figures.factors import FACTORS as IN_FIGURES
from xdplab.figures.marks import View, collect
from xdplab.plan import FACTORS, Factor, Plan, Point, load_plan, parse_plan, points_of, schedule
from xdplab.plan.factors import identity
from xdplab.plan.points import select
from xdplab.studies.traffic.columns import COLUMNS, trials_frame

EVERY_FACTOR = """
name: every-factor
blocks:
  - points: {mode: [native, af_xdp], queues: [1, 2], frame_bytes: [64, 512], workload: [packet, lookup], op: write,
             accesses: 5, form: loop, working_set_bytes: [4096, 32768], map_type: [percpu_array, hash],
             xsk_attach: [native, generic], xsk_bind: [copy, zerocopy]}
    traffic: {engine: [live, afxdp], load: [max, 20kpps, 50%], flows: [1, 64], src_ip: 10.0.0.1, dst_ip: 10.0.0.2,
              src_ip_stride: 0.0.0.2, dst_ip_stride: 0.0.0.3, src_port: 7, dst_port: [1, 2], stamp: all}
    passes: [rate, perf]
  - points: {mode: [native, generic],
             program: [{file: lb.bpf.c, section: xdp.a, action: drop, rodata: {b: 2, a: true},
                        setup: [[echo, "a b"], ["true"]], frames: f.pcap}, {file: lb.bpf.c}]}
    traffic: {stamp: 4}
    arrangement: split
"""


def test_points_keep_their_ids_and_their_order(tmp_path: Path) -> None:
    """A run is read by planning it again, and ids join runs: a change of these numbers loses every run there is."""
    (tmp_path / "lb.bpf.c").write_text("int x;")
    (tmp_path / "f.pcap").write_bytes(b"pcap")
    (tmp_path / "p.yaml").write_text(EVERY_FACTOR)
    plan = load_plan(tmp_path / "p.yaml")
    points = points_of(plan, "shared")
    assert len(points) == 4804
    assert points[0].point_id == "1442232a296e"
    assert [p.point_id for p in points[-4:]] == ["0e8af647fbc7", "c1e0a8687063", "38bc9017f720", "81a4c163c697"]
    assert points[7].pdr_key == "b4593dbe0cdd"
    assert points[-1].program.file_sha256 == hashlib.sha256(b"int x;").hexdigest(), "a file that is alone"
    trials = " ".join(trial.trial_id for trial in schedule(plan, points))
    assert hashlib.sha256(trials.encode()).hexdigest()[:16] == "98f14cabbd6aa81b"


def test_an_id_has_what_differs_from_the_defaults() -> None:
    """So a later factor changes no id. What does not apply has no value, and the defaults have nothing to say."""
    (point,) = points_of(parse_plan({"name": "t", "blocks": [{"points": {"mode": "native"}}]}), "shared")
    assert (point.program.identity, identity(point.values)) == ({}, {"arrangement": "shared"})
    plan = parse_plan({"name": "t", "blocks": [{"points": {"mode": "af_xdp", "workload": "packet"}}]})
    (point,) = points_of(plan, "shared")
    assert identity(point.values) == {"workload": "packet", "mode": "af_xdp", "arrangement": "shared"}


# --- every factor of the table: two values of it ---

GENERATED = {"workload": "lookup", "accesses": [0, 100], "mode": "af_xdp"}
OTHER: dict[str, object] = {
    "mode": "generic", "queues": 2, "frame_bytes": 512, "working_set_bytes": 4096, "load": "20kpps",
    "xsk_attach": "generic", "xsk_bind": "zerocopy", "workload": "chase", "op": "write", "form": "loop",
    "map_type": "hash", "action": "drop", "file": "other.bpf.c", "section": "xdp.b", "rodata": {"backends": 64},
    "setup": [["true"]], "function": "b", "cflags": ["-DX=1"], "maps": {"jmp": {0: "b"}}, "pinned": "keep",
    "frames": "f.pcap", "flows": 1, "src_ip": "10.0.0.1", "dst_ip": "10.0.0.2",
    "src_ip_stride": "0.0.0.1", "dst_ip_stride": "0.0.1.0", "src_port": 1025, "dst_port": 53, "stamp": "all",
    "engine": "afxdp", "arrangement": "split", "accesses": 7, "frags": True,
    "directions": "both",
    "imix": "simple", "vlan": 5, "ip_version": 6, "rx_stamp": "device", "tx_bind": "zerocopy", "tx_wakeup": "needed",
    "tx_busy_poll_us": 50, "tx_stamp": "device", "batch": 4, "lab": "vm:6.1",
    "device": {"features.gro": False, "rings.rx": 512}, "entries": 1000, "hit": 50,
    "skew": "zipf 1.1", "churn": 500, "burst": 8, "timing": "recorded x2",
}  # fmt: skip
WRITTEN = [factor for factor in FACTORS if factor.where]


def _file(folder: Path, name: str, text: str) -> str:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return str(folder / name)


def two_plans(factor: Factor, folder: Path) -> list[Plan]:
    """Two plans that differ in only one factor."""
    mine = _file(folder, "lb.bpf.c", "int x;")
    _file(folder, "f.pcap", "frames")
    files = {"file": _file(folder, "other.bpf.c", "int x;"), "frames": str(folder / "f.pcap")}
    other = files.get(factor.name, OTHER[factor.name])
    plans = []
    for value in ({}, {factor.name: other}):
        points: dict[str, object] = dict(GENERATED)
        if factor.where == "program":
            points = {"mode": "native", "program": {"file": mine} | value}
        elif factor.name == "timing":
            points = {"mode": "native", "program": {"file": mine, "frames": files["frames"]}}
        elif factor.name in GENERATED or factor.name in ("working_set_bytes", "op", "form", "directions"):
            points = {"workload": "array", "accesses": [0, 100], "mode": "native"}
        points |= {"mode": "native", "map_type": "hash"} if factor.name == "hit" else {}
        points |= {"entries": 500} if factor.name == "entries" else {}
        points |= value if factor.where == "points" else {}
        of_sockets = {"engine": "afxdp"} if factor.name.startswith("tx_") else {}
        of_sockets |= {"load": "20kpps"} if factor.name == "burst" else {}
        of_sockets |= {"tx_bind": "zerocopy", "rx_stamp": "device"} if factor.name == "tx_stamp" else {}
        block = {"points": points, "traffic": of_sockets | (value if factor.where == "traffic" else {})}
        block |= value if factor.where == "block" else {}
        plans.append(parse_plan({"name": "t", "blocks": [block]}))
    return plans


def measured(points: list[Point], scale: float) -> list[synthetic.Row]:
    """Return trials of these points as a lab would measure them, with all rates times ``scale``."""
    rng, rows = np.random.default_rng(3), []
    for repetition in (1, 2, 3):
        for point in points:
            facts = {"block": 1, "program_tag": None, **point.factors()} | {"frame_bytes": point.frame_bytes}
            facts["frame_mean_bytes"] = point.mean_frame_bytes
            facts["batch"] = facts["batch"] or 60  # as obtained, if the plan requests none
            facts["lab"] = facts["lab"] or "netns"
            row = synthetic.measured(synthetic.point(**facts) | facts, rng, repetition)
            rows.append(row | {"forwarded_pps": row["forwarded_pps"] * scale})  # type: ignore[operator]
    return rows


Both = tuple[Factor, list[list[Point]]]


@pytest.fixture(scope="module")
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    factor: Factor = request.param
    return factor, [points_of(plan, "shared") for plan in two_plans(factor, tmp_path_factory.mktemp(factor.name))]


@pytest.fixture(scope="module")
def rows(both: Both) -> list[list[synthetic.Row]]:
    return [measured(own, scale) for own, scale in zip(both[1], (1.0, 0.5), strict=True)]


@pytest.fixture(scope="module")
def tables(rows: list[list[synthetic.Row]]) -> list[pd.DataFrame]:
    """The table of one value, of the other, and of both."""
    return [derive(judged(trials_frame(own))) for own in (rows[0], rows[1], rows[0] + rows[1])]


CORE = {"load", *{factor.where: factor.name for factor in reversed(WRITTEN)}.values()}
every = pytest.mark.parametrize("both", WRITTEN, ids=lambda f: f.name, indirect=True, scope="module")


def one_of_a_place(*without: str) -> pytest.MarkDecorator:
    """What is derived and drawn reads the table of factors: one of each place in a plan shows it, and the load, which
    has a figure of its own; the others are thorough."""
    factors = [
        pytest.param(factor, id=factor.name, marks=[pytest.mark.thorough] * (factor.name not in CORE))
        for factor in WRITTEN
        if factor.name not in without
    ]
    return pytest.mark.parametrize("both", factors, indirect=True, scope="module")


def changed_ids(points: list[list[Point]]) -> set[str]:
    one, other = ({p.point_id for p in own} for own in points)
    return one ^ other


@every
def test_two_values_are_two_points_and_two_values_of_a_column(both: Both, rows: list[list[synthetic.Row]]) -> None:
    factor, points = both
    assert changed_ids(points)
    assert trials_frame(rows[0] + rows[1])[factor.column].nunique(dropna=False) > 1
    assert next(m for m in COLUMNS if m.name == factor.column).kind == "factor"


@one_of_a_place("accesses")
def test_two_values_are_two_baselines(tables: list[pd.DataFrame]) -> None:
    """An access costs the same alone and beside the other value: its N = 0 has the same setting."""
    first, second, table = tables
    alone = pd.concat([first, second]).drop_duplicates("trial_id").set_index("trial_id")["access_ns"]
    together = table.drop_duplicates("trial_id").set_index("trial_id")["access_ns"]
    pd.testing.assert_series_equal(alone.sort_index(), together.sort_index())


@one_of_a_place()
def test_two_values_are_never_one_mark_nor_one_ratio(both: Both, tables: list[pd.DataFrame]) -> None:
    (factor, points), (first, second, table) = both, tables
    name = "programs" if factor.where == "program" or factor.name == "timing" else "throughput"
    name = "latency" if factor.name == "load" else name
    marks = pd.concat([found.marks for found in _views(name, table)])
    assert not marks["points"].str.contains(",").any()
    assert set(marks["points"]) == set(table["point_id"])
    ratios = compare(first, second)
    assert not ratios["point_id"].duplicated().any()
    assert set(ratios["point_id"]) == {p.point_id for own in points for p in own}


def _views(name: str, table: pd.DataFrame) -> list[View]:
    found = [view for _, view in views_of(name, table)]
    assert not [reason for reason in found if isinstance(reason, str)]
    return [view for view in found if isinstance(view, View)]


@every
def test_a_value_can_be_chosen_alone(both: Both) -> None:
    factor, points = both
    everything = [point for own in points for point in own]
    value = next(p for p in points[1] if p.factors()[factor.column] != points[0][-1].factors()[factor.column])
    kept = select(everything, {factor.column: str(value.factors()[factor.column])})
    assert value in kept
    assert points[0][-1] not in kept


@every
def test_labels_of_a_point_tell_two_values_apart(both: Both) -> None:
    _, points = both
    assert len({str(p) for own in points for p in own}) == len({p.point_id for own in points for p in own})


@pytest.mark.parametrize("factor", [f for f in FACTORS if f.where or f.column in IN_FIGURES], ids=lambda f: f.name)
def test_a_hue_and_a_panel_hold_each_value(factor: Factor) -> None:
    assert {"hue", "panel"} <= set(factor.shown.uses)
    assert IN_FIGURES[factor.column].label("x1" if factor.dtype == "str" else "1")


@pytest.mark.parametrize(
    ("column", "labels"),
    [
        ("mode", {"af_xdp": "AF_XDP", "native": "native"}),
        ("queues", {1: "1 queue", 2: "2 queues"}),
        ("frame_bytes", {64: "64 B frames"}),
        ("working_set_bytes", {1 << 20: "1 MiB working set", 3 << 9: "1536 B working set", 2048: "2 KiB working set"}),
        ("load", {"max": "maximum load", "50%": "load 50%"}),
        ("stamp", {"all": "every frame stamped", "none": "no frame stamped", 16: "1 of 16 frames stamped"}),
        ("imix", {"none": "frames of one size", "simple": "simple IMIX", "64:1 128:2": "IMIX 64:1 128:2"}),
        ("vlan", {"none": "no VLAN tag", 5: "VLAN 5"}),
        ("directions", {"one": "two ports, one direction", "both": "two ports, both directions"}),
        ("setup", {"none": "setup none", "true": "setup b5bea41"}),
        (
            "maps",
            {"a[1]=2": "maps a[1]=2", "a[1]=2 " * 6 + "b=f.csv": "maps a, b", "a" * 36 + "[1]=2": f"maps {'a' * 36}"}
            | {"a" * 35 + "[1]=2": f"maps {'a' * 35}[1]=2"},
        ),
        ("program_name", {"array-read": "array read"}),
    ],
)
def test_a_label_is_clear_on_its_own(column: str, labels: dict[object, str]) -> None:
    factor = next(one for one in FACTORS if one.column == column)
    assert {level: factor.label(level) for level in labels} == labels


# --- no average of two points ---


def test_no_average_ever_joins_two_points() -> None:
    rows = pd.DataFrame({
        "panel": "", "hue": "", "x": 0, "value": [1.0, 2.0], "verdict": "valid", "limited_by": None,
        "point_id": ["a", "b"],
    })  # fmt: skip
    with pytest.raises(MixedPointsError, match="2 points would become one mean of value: a, b"):
        collect(rows, "throughput", "line")
    with pytest.raises(MixedPointsError):
        summarise(rows.assign(lab="netns"), "value", ["lab"])
    marks = collect(rows.assign(point_id="a"), "throughput", "line")
    assert [mark["n"] for mark in marks if mark["kind"] == "line"] == [2]


def test_loads_that_look_alike_keep_their_digits() -> None:
    rates = [("1999kpps", 1.999e6), ("2001kpps", 2.001e6), ("2500kpps", 2.5e6)]
    runs = [
        synthetic.run(load=load, rate_requested_pps=rate, accesses=0, vary={"mode": ["native"]}) for load, rate in rates
    ]
    assert view("latency", pd.concat(runs, ignore_index=True)).look.order.x_values == ("1.999", "2.001", "2.5")


def test_a_factor_has_the_uses_that_its_row_says() -> None:
    with pytest.raises(FigureError, match="unknown factor 'rate_requested_pps' for a hue"):
        view("throughput", synthetic.quick(), hue="rate_requested_pps")


# --- a made-up factor: one line makes it known everywhere ---

# --- the notebook and the pages ---


def test_the_notebook_takes_the_names_of_a_plan(tmp_path: Path) -> None:
    found = notebook.plan(workload="lookup", accesses=[0, 100], map_type=["percpu_array", "hash"], stamp="all")
    assert len(found.points) == 4
    assert set(found.points["map_type"]) == {"percpu_array", "hash"}
    assert set(notebook.plan(program=["array", "chase"], accesses=[0, 100]).points["accesses"]) == {0, 100}
    mine = notebook.plan(program=_file(tmp_path, "lb.bpf.c", "int x;"), action="drop", rodata={"backends": 64})
    assert mine.points[["action", "rodata"]].values.tolist() == [["drop", "backends=64"]]
    for wrong, words in (({"colour": "red"}, "colour is not a factor"), ({"accesses": -1}, "accesses")):
        with pytest.raises(PlanError, match=words):
            notebook.plan(**wrong)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="accesses: this program has its factors already"):
        notebook.plan(program=notebook.program("array"), accesses=[0, 100])
    for factor in WRITTEN:
        assert f"    {factor.name} " in (notebook.plan.__doc__ or "")
