"""What a figure shows of the trials, what it refuses to mix, and the reason if it cannot be drawn."""

import json
from functools import cache
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
import synthetic
from tests.analysis.synthetic import judged

from xdplab.analysis.decide.compare import compare
from xdplab.analysis.derived import derive
from xdplab.errors import FigureError, NotApplicableError
from xdplab.figures.album import draw_all, views_of
from xdplab.figures.catalogue import CATALOGUE, view
from xdplab.figures.factors import FACTORS, FigureFiles
from xdplab.figures.marks import COLUMNS, View
from xdplab.figures.views_traffic import COUNTERS, compare_view


@cache
def quick() -> pd.DataFrame:
    return synthetic.quick()


@cache
def loads() -> pd.DataFrame:
    paced = [("20kpps", 2e4), ("100kpps", 1e5), ("max", None)]
    runs = [
        synthetic.run(workload="chase", load=load, rate_requested_pps=rate, vary={"accesses": [0, 1600]})
        for load, rate in paced
    ]
    return pd.concat(runs, ignore_index=True)


@cache
def rings() -> pd.DataFrame:
    return synthetic.run(engine="afxdp", workload="chase", vary={"queues": [1, 2, 4], "accesses": [0, 100]})


@cache
def users() -> pd.DataFrame:
    return synthetic.run(
        vary={"mode": ["native", "generic"], "program_name": ["lb.bpf.c"]}, workload=None, accesses=None
    )


WHERE = {"program": "chase-read"}


def means(found: View) -> pd.DataFrame:
    """Return the marks, without those of single repetitions."""
    return found.marks[found.marks["kind"] != "raw"]


def caption(found: object) -> str:
    return " ".join(found.look.words.caption)  # type: ignore[attr-defined]


def test_a_mark_is_the_mean_over_repetitions_in_the_axis_unit() -> None:
    found = view("throughput", quick(), where=WHERE)
    assert tuple(found.marks.columns) == COLUMNS
    mark = found.marks.query("panel == 'native' and hue == '2' and x == 100").iloc[0]
    rows = quick().query("mode == 'native' and queues == 2 and accesses == 100 and workload == 'chase'")
    assert found.look.axes.y_label == "forwarding rate (Mpps)"
    assert mark["value"] == pytest.approx(rows["forwarded_pps"].mean() / 1e6)
    assert mark["n"] == 3
    assert mark["low"] < mark["value"] < mark["high"]
    assert mark["points"] == rows["point_id"].iloc[0]


def test_hue_and_panel_are_what_varies_or_what_was_asked() -> None:
    assert set(view("throughput", quick(), where=WHERE).marks["panel"]) == {"native", "generic", "AF_XDP"}
    by_program = view("throughput", quick(), hue="workload", panel="mode", where={"queues": 1})
    assert by_program.look.words.hue_title == "program"
    assert by_program.look.order.hues == ("chase read", "lookup read")
    alone = view("throughput", quick(), hue="queues", panel="", where={"mode": "native", "program": "chase-read"})
    assert set(alone.marks["panel"]) == {""}
    sizes = synthetic.run(vary={"frame_bytes": (64, 1500), "mode": synthetic.MODES}, accesses=0)
    by_axis = view("baseline", sizes, hue="frame_bytes")
    assert (set(by_axis.marks["hue"]), by_axis.look.axes.x_label) == ({"64 B", "1500 B"}, "frame size (B, with FCS)")


def test_levels_are_never_averaged_together() -> None:
    everything = view("throughput", quick(), hue="queues")
    assert set(everything.marks["panel"]) == {
        f"{program} read, {mode}" for program in ("chase", "lookup") for mode in ("native", "generic", "AF_XDP")
    }
    assert set(means(everything)["n"]) == {3}
    sizes = {"frame_bytes": [64, 128, 256, 512, 1024], "flows": [1, 64, 1024], "mode": ["native", "generic"]}
    many = synthetic.run(vary=sizes | {"accesses": [0, 1], "queues": [1, 2]}, repetitions=1)
    with pytest.raises(FigureError, match=r"vary, more than one figure can show \(choose with where="):
        view("throughput", many, hue="queues", panel="mode")


@pytest.mark.parametrize("column", ["engine", "arrangement", "lab", "kernel"])
def test_engines_and_arrangements_are_never_mixed(column: str) -> None:
    other = {"engine": "afxdp", "arrangement": "split", "lab": "vm:6.12", "kernel": "6.12.1"}[column]
    both = pd.concat([synthetic.run(), synthetic.run(run_id="77aa", **{column: other})], ignore_index=True)
    with pytest.raises(FigureError, match=f"never mixes {column} .*choose with where="):
        view("throughput", both)
    assert len(means(view("throughput", both, where={column: other}))) == 3
    assert view("throughput", both, panel=column).marks["panel"].nunique() == 2


def spoiled() -> pd.DataFrame:
    """Return trials with one point whose counts disagree and one whose TG was deaf."""
    trials = synthetic.run(vary={"accesses": [0, 100, 400, 1600]}, workload="chase")
    off, deaf = trials["accesses"] == 400, trials["accesses"] == 1600
    trials.loc[off, "dut_tx_packets"] = (trials.loc[off, "rx_packets"] * 0.8).astype(float).round().astype("Int64")
    trials.loc[deaf, ["rx_packets", "forwarded_pps"]] = 0
    return derive(judged(trials))


def test_invalid_points_are_drawn_as_such_and_never_at_zero() -> None:
    found = view("throughput", spoiled())
    by_n = found.marks.set_index("x")["verdict"].to_dict()
    assert by_n == {0: "valid", 100: "valid", 400: "invalid"}
    assert (found.marks["value"] > 0).all()
    assert "Invalid: native (1 point): TG and DUT disagree by 20.0%" in caption(found)
    assert "the TG was deaf" in caption(found)


def test_one_bad_repetition_is_not_averaged_in() -> None:
    trials = synthetic.run(vary={"accesses": [0, 100]}, workload="chase")
    bad = (trials["accesses"] == 100) & (trials["repetition"] == 2)
    trials.loc[bad, "verdict"] = "invalid"
    marks = means(view("throughput", trials)).query("x == 100").set_index("verdict")
    assert marks["n"].to_dict() == {"valid": 2, "invalid": 1}


def test_generator_limited_points_say_so() -> None:
    trials = synthetic.run(arrangement="split", workload="chase", vary={"accesses": [0, 1600]})
    assert means(view("throughput", trials)).set_index("x")["limited_by"].to_dict() == {0: "generator", 1600: "dut"}
    assert view("service_time", trials).marks.query("kind == 'point'")["x"].tolist() == [1600]
    words = "3 of 6 trials have no ns_per_packet: limited by generator: the rate is not the DUT's (3)."
    assert words in caption(view("service_time", trials))


def test_points_without_a_value_are_told_of_and_hold_nothing_still() -> None:
    """Two queues keep every CPU busy and starve the recorder: no note lies inside the window, and no point is drawn."""
    trials = synthetic.run(workload="chase", vary={"queues": [1, 2], "accesses": [0, 100]})
    two = trials["queues"].eq(2)
    why = pd.Series('{"host_busy_cores": "no note lies inside the window"}', index=trials.index)
    trials = trials.assign(
        host_busy_cores=trials["host_busy_cores"].mask(two), null_reasons=trials["null_reasons"].where(~two, why)
    )
    found = view("busy", trials)
    assert "1 queue" in caption(found)
    assert "6 of 12 trials have no host_busy_cores: no note lies inside the window (6)." in caption(found)
    assert "6 of 12 trials have no host_busy_cores." in " ".join(found.look.words.short_caption)


def test_what_a_users_program_does_not_have_is_not_said_of_it() -> None:
    """A working set belongs to its workload: a caption must not name it for the user's program too."""
    workload = synthetic.run(workload="chase", vary={"accesses": [0, 100]})
    own = synthetic.run(vary={"program_name": ["mine.bpf.c"]}, workload=None, accesses=None)
    both = pd.concat([workload, own.assign(working_set_bytes=pd.NA)], ignore_index=True)
    assert "32 KiB working set" in caption(view("throughput", workload))
    assert "working set" not in caption(view("programs", both))


def test_a_point_whose_baseline_is_missing_is_drawn() -> None:
    """A run that was stopped, or whose baseline failed: the mode was in no figure, and nothing told why."""
    both = synthetic.run(vary={"accesses": [0, 100], "mode": ["native", "generic"]})
    trials = both[both["mode"].eq("native") | both["accesses"].eq(100)]
    marks = view("throughput", trials).marks.query("kind == 'line'")
    assert set(zip(marks["panel"], marks["x"], strict=True)) == {("native", 0), ("native", 100), ("generic", 100)}
    failed = both.assign(verdict=both["verdict"].mask(both["mode"].eq("generic") & both["accesses"].eq(100), "invalid"))
    marks = view("throughput", failed).marks.query("kind == 'line' and value.notna()")
    assert ("generic", 0) in set(zip(marks["panel"], marks["x"], strict=True))


def test_a_mode_of_which_only_n_0_was_tried_is_drawn_where_lines_have_its_size() -> None:
    """It was in no figure over N until another N of it had been measured."""
    lines = synthetic.run(vary={"accesses": [0, 100]})
    by_size = synthetic.run(vary={"frame_bytes": [64, 700], "mode": ["native", "generic"]}, accesses=0)
    trials = pd.concat([lines, by_size[by_size["mode"].eq("generic")], by_size], ignore_index=True)
    marks = view("throughput", trials.drop_duplicates("trial_id")).marks.query("kind == 'line'")
    assert set(zip(marks["panel"], marks["x"], strict=True)) == {("native", 0), ("native", 100), ("generic", 0)}


def test_a_factor_that_is_varied_at_one_n_makes_no_panels_of_lone_points() -> None:
    lines = synthetic.run(vary={"accesses": [0, 100, 1600]})
    by_size = synthetic.run(vary={"frame_bytes": [64, 700, 1500], "queues": [1, 2]}, accesses=100)
    marks = view("throughput", pd.concat([lines, by_size], ignore_index=True)).marks.query("kind == 'line'")
    assert (marks["panel"].nunique(), set(marks["x"])) == (1, {0, 100, 1600})


def test_a_setting_that_goes_with_the_one_on_an_axis_is_named() -> None:
    """Frames of 128 bytes alone had IPv6 and a tag, and their bar stood beside others as if only the size differed."""
    plain = synthetic.run(vary={"frame_bytes": [64]}, accesses=0, ip_version=4, vlan="none")
    other = synthetic.run(vary={"frame_bytes": [128]}, accesses=0, ip_version=6, vlan=7)
    other = other.assign(point_id="other", trial_id=other["trial_id"] + "other")
    found = view("baseline", pd.concat([plain, other], ignore_index=True))
    assert "VLAN 7 or no VLAN tag, IPv4 or IPv6" in caption(found)
    assert "IPv" not in caption(view("baseline", plain))


@pytest.mark.parametrize(
    ("reasons", "told"),
    [
        ({"cycles": "the plan asks for no perf pass"}, "passes: [rate, perf]"),
        (
            {"cycles": "the plan asks for no perf pass", "program_run_ns": "the plan asks for no bpf_stats pass"},
            "passes: [rate, bpf_stats, perf]",
        ),
        ({"cycles": "this CPU offers no counters to a guest"}, "this CPU offers no counters to a guest"),
    ],
)
def test_why_there_is_no_figure_of_counters_is_what_the_table_says(reasons: dict[str, str], told: str) -> None:
    trials = synthetic.run(workload="chase", vary={"accesses": [0, 100]}).assign(null_reasons=json.dumps(reasons))
    trials = trials.assign(**dict.fromkeys((counter.column for counter in COUNTERS), pd.NA))
    with pytest.raises(NotApplicableError) as refused:
        view("counters", trials)
    assert told in str(refused.value)


def test_unsupported_points_stand_in_the_caption() -> None:
    assert "Unsupported: offload (5 points): the driver of vd0 has no XDP offload" in caption(
        view("throughput", quick(), where=WHERE)
    )


def test_a_short_caption_counts_the_repetitions_that_a_mean_is_of() -> None:
    """One of three was invalid: the caption said 2, and the figure itself 3."""
    trials = synthetic.run(vary={"accesses": [0, 100]}).copy()
    trials.loc[trials["repetition"].eq(3), ["verdict", "reason"]] = ("invalid", "the TG was deaf")
    found = view("throughput", trials)
    assert found.short_caption[0].endswith(" · n = 2, 95 % intervals")
    assert "n = 2 repetitions" in caption(found)
    assert "n = " not in view("throughput", trials[trials["repetition"].eq(3)]).short_caption[0]


def test_latency_puts_paced_loads_first_and_max_apart_as_queueing() -> None:
    found = view("latency", loads(), hue="accesses")
    kinds = means(found).groupby("x")["kind"].agg(set).to_dict()
    assert kinds == {"20": {"line"}, "100": {"line"}, "max": {"point"}}
    assert found.look.order.x_values == ("20", "100", "max")
    assert "queueing" in found.look.words.point_label
    with pytest.raises(NotApplicableError, match="queueing: add a paced load"):
        view("latency", quick())


def test_a_load_that_was_not_reached_is_not_drawn_and_said() -> None:
    """chase 1600 requested 1 Mpps, offered 0.28, and was drawn at 1 Mpps."""
    trials = loads().assign(batch=8, latency_from="due")
    missed = trials["load"].eq("100kpps") & trials["accesses"].eq(1600)
    trials.loc[missed, "offered_pps"] = 28e3
    found = view("latency", trials, hue="accesses", where={"N": 1600})
    assert found.look.order.x_values == ("20", "max")
    assert "Not drawn, for the load was not reached: 100kpps (0.028 Mpps offered)." in caption(found)
    alone = trials[missed].assign(offered_pps=28e3)
    with pytest.raises(NotApplicableError, match="no paced load was reached"):
        view("latency", alone)


def test_the_caption_tells_from_when_latency_counts_and_the_senders_batch() -> None:
    trials = loads().assign(batch=pd.array([60 if load == "max" else 8 for load in loads()["load"]], dtype="Int64"))
    words = caption(view("latency", trials.assign(latency_from="due"), hue="accesses"))
    assert "counts from the time a frame was due" in words
    assert "Paced in batches of 8 frames." in words
    older = trials.assign(batch=[{"20kpps": 1, "100kpps": 4}.get(load, 60) for load in trials["load"]])
    assert "Paced in batches of 1, 4 frames." in caption(view("latency", older, hue="accesses"))


def test_one_bad_repetition_does_not_make_the_quantile() -> None:
    trials = loads().copy()
    paced = trials["load"].eq("20kpps") & trials["accesses"].eq(0)
    trials.loc[paced, "latency_p99_ns"] = [5000.0, 5200.0, 25600.0]
    found = view("latency", trials, hue="quantile", where={"N": 0, "load": "20kpps"})
    p99 = found.marks[found.marks["hue"] == "p99"]
    (mark,) = p99[p99["kind"] == "line"].to_dict("records")
    assert (mark["value"], mark["n"]) == (5.2, 3)
    assert pd.isna(mark["low"])
    assert p99.loc[p99["kind"] == "raw", "value"].tolist() == [5.0, 5.2, 25.6]


@pytest.mark.parametrize(("repetitions", "single"), [(1, 0), (2, 2), (9, 9), (10, 0)])
def test_few_repetitions_are_shown_one_by_one(repetitions: int, single: int) -> None:
    found = view("throughput", synthetic.run(repetitions=repetitions))
    assert found.marks["kind"].eq("raw").groupby(found.marks["x"]).sum().to_list() == [single] * 3


def test_capacity_is_shown_at_maximum_load_only() -> None:
    assert set(means(view("throughput", loads()))["n"]) == {3}
    assert "maximum load" in caption(view("throughput", loads()))


def test_service_time_has_a_line_with_its_error() -> None:
    found = view("service_time", quick(), where=WHERE)
    lines = found.marks[found.marks["kind"] == "fit"]
    assert len(lines) == 12, "two ends for three modes and two queue counts"
    notes = dict(found.look.words.notes["native"])
    value, error = (float(part.removesuffix(" ns")) for part in notes["1"].removeprefix("c = ").split(" ± "))
    assert value == pytest.approx(2.4, abs=5 * error + 0.02)


def test_access_cost_stands_beside_the_test_run() -> None:
    marks = view("access_cost", quick()).marks.query("hue == 'native' and panel == '1 queue'").set_index(["x", "kind"])
    assert marks["value"]["chase read", "bar"] == pytest.approx(2.4, rel=0.05)
    assert marks["value"]["chase read", "point"] == pytest.approx(2.4, rel=0.05)


def test_a_lookups_cost_has_a_line_for_each_kind_of_map_and_a_panel_for_hits_and_misses() -> None:
    kinds, sizes = ["hash", "lpm_trie"], [1000, 30000, 1000000]
    vary = {"accesses": [0, 1600], "map_type": kinds, "entries": sizes, "hit": [0, 100]}
    lines = means(view("lookup_cost", synthetic.run(vary=vary, workload="lookup")))
    assert set(zip(lines["panel"], lines["hue"], lines["x"], strict=True)) == set(
        product(("0 % hits", "100 % hits"), kinds, sizes)
    )
    assert lines["value"].tolist() == pytest.approx([0.6] * len(lines), rel=0.1)


def test_a_lookups_cost_leaves_out_points_without_entries_and_counts_them() -> None:
    sized = synthetic.run(vary={"accesses": [0, 1600], "entries": [1000, 30000, 1000000]}, workload="lookup")
    others = synthetic.run(vary={"accesses": [0, 1600], "workload": ["lookup", "chase"]})
    assert "Left out" not in " ".join(view("lookup_cost", sized).look.words.caption)
    found = view("lookup_cost", pd.concat([sized, others], ignore_index=True))
    assert set(means(found)["x"]) == {1000, 30000, 1000000}
    assert "2 points" in " ".join(found.look.words.caption)


def test_evenness_is_a_share_by_queue() -> None:
    marks = means(view("evenness", rings()))
    assert marks.groupby("panel")["value"].sum().to_dict() == {
        "2 queues": pytest.approx(100),
        "4 queues": pytest.approx(100),
    }


def test_baseline_keeps_the_programs_apart() -> None:
    """N = 0 of two workloads are two points, and no average joins two."""
    trials = synthetic.run(vary={"frame_bytes": [64, 1500], "workload": ["chase", "array"], "accesses": [0, 100]})
    marks = view("baseline", trials, value="forwarded_l2_bps")
    assert means(marks)["n"].tolist() == [3, 3, 3, 3]
    assert set(marks.marks["panel"]) == {"array read", "chase read"}
    assert marks.look.axes.y_label == "throughput (Gbit/s)"


MIXED = {"imix": "simple", "frame_bytes": None, "frame_mean_bytes": 4342 / 12}


def mixed_sizes(**factors: object) -> pd.DataFrame:
    """Return a run with two sizes and the simple IMIX."""
    plain = synthetic.run(vary={"frame_bytes": [64, 1500], "accesses": [0, 100]}, imix="none", **factors)
    mixed = synthetic.run(vary={"accesses": [0, 100]}, **MIXED, **factors)
    return pd.concat([plain, mixed], ignore_index=True)


def test_several_sizes_stand_beside_the_single_ones() -> None:
    found = view("baseline", mixed_sizes())
    assert found.look.order.x_values == (64, 1500, "simple IMIX")
    assert means(found)[["x", "n"]].values.tolist() == [[64, 3], [1500, 3], ["simple IMIX", 3]]
    assert set(found.marks["panel"]) | set(found.marks["hue"]) == {""}


def test_a_factor_that_does_not_apply_leaves_no_trial_undrawn(tmp_path: Path) -> None:
    """Frames of several sizes have no size: with two sizes beside them, their figures were missing without a word."""
    trials = mixed_sizes(load="20kpps", rate_requested_pps=20e3)
    done = draw_all(trials, FigureFiles(tmp_path), ["latency"])
    drawn = {item.stem for item in done if item.files}
    assert drawn == {f"latency{size}-{quantile}" for size in ("-64B", "-1500B", "") for quantile in ("p50", "p99")}
    points = pd.concat([pd.read_csv(tmp_path / f"{stem}.csv")["points"] for stem in drawn])
    assert set(points) == set(trials["point_id"])


def test_counters_are_per_packet_of_their_own_pass() -> None:
    trials = synthetic.run(vary={"mode": ["native", "generic"], "accesses": [0, 100]})
    trials["host_instructions"], trials["perf_packets"] = 5e9, [0, *[1_000_000] * (len(trials) - 1)]
    marks = view("counters", trials).marks
    assert set(marks.loc[marks["panel"].str.startswith("instructions"), "value"]) == {5000.0}


def test_comparison_of_two_runs() -> None:
    a, b = synthetic.run(vary={"accesses": [0, 100, 1600]}), synthetic.run(vary={"accesses": [0, 100]}, seed=8)
    found = compare_view(compare(a, b), names=("6.12", "6.18"))
    assert found.marks["value"].tolist() == pytest.approx([1, 1], rel=0.05)
    assert found.look.axes.rules == {"": 1.0}
    assert "6.18 over 6.12" in caption(found)
    assert "No ratio for 1 of 3 points: no such point in the second run." in caption(found)
    assert compare_view(compare(users(), users())).look.axes.x_scale == "category"
    assert found.look.axes.y_label == "rate of 6.18 / 6.12"
    times = compare_view(compare(a, b, "ns_per_packet"), names=("6.12", "6.18"), metric="ns_per_packet")
    assert times.look.axes.y_label == "ns_per_packet of 6.18 / 6.12", "a ratio of times was called one of rates"


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_run_without_a_measurement_says_so(name: str) -> None:
    nothing = synthetic.finish([synthetic.unsupported(accesses=n) for n in (0, 100)])
    for trials in (nothing, nothing.iloc[:0]):
        with pytest.raises(NotApplicableError) as error:
            view(name, trials)
        assert len(str(error.value)) > 10


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"where": {"mode": "nativ"}}, r"no trial has mode = 'nativ' \(there is generic|native"),
        ({"where": {"mod": "native"}}, "no column 'mod'"),
        ({"hue": "colour"}, "unknown factor 'colour'"),
        ({"value": "speed"}, "no column 'speed'"),
    ],
)
def test_a_wrong_word_is_named_with_the_right_ones(asked: dict[str, object], words: str) -> None:
    with pytest.raises(FigureError, match=words):
        view("throughput", quick(), **asked)  # type: ignore[arg-type]
    with pytest.raises(FigureError, match=r"unknown figure 'througput'.*throughput"):
        view("througput", quick())


def test_only_one_n_is_no_figure_against_n() -> None:
    with pytest.raises(NotApplicableError, match="only one N"):
        view("throughput", synthetic.run(vary={"accesses": [100]}))


def test_the_album_splits_what_may_not_mix_and_says_what_is_not_there(tmp_path: Path) -> None:
    mixed = pd.concat([synthetic.run(vary={"accesses": [0, 100], "workload": ["chase", "array"]}), rings()])
    done = draw_all(mixed.reset_index(drop=True), FigureFiles(tmp_path), ["throughput", "latency"])
    stems = {item.stem: item for item in done}
    assert [path.suffix for path in stems["throughput-afxdp"].files] == [".svg", ".csv", ".txt", ".tex"]
    assert stems["throughput-live"].files[0].is_file()
    assert stems["latency-live"].files == ()
    assert "paced load" in stems["latency-live"].reason
    table = pd.read_csv(tmp_path / "throughput-afxdp.csv")
    assert tuple(table.columns) == COLUMNS
    assert set(table["file"]) == {"throughput-afxdp"}


def test_a_figure_whose_siblings_show_another_level_says_which_it_shows() -> None:
    """The default too: `back` looks like the only way that frames took."""
    vary = {"accesses": [0, 100], "mode": ["native", "generic"], "frame_bytes": [64, 1500]}
    parts = [synthetic.run(vary=vary, directions=way) for way in ("back", "one", "both")]
    trials = pd.concat([part.assign(point_id=part["point_id"] + part["directions"]) for part in parts])
    found = {stem: drawn for stem, drawn in views_of("throughput", trials) if isinstance(drawn, View)}
    words = {FACTORS["directions"].label(way) for way in ("back", "one", "both")}
    assert len(found) == 3
    for told in (" · ".join(drawn.look.words.short_caption) for drawn in found.values()):
        assert len([label for label in words if told.endswith(label) or f"{label}, " in told]) == 1, told
    assert {label for label in words for drawn in found.values() if label in caption(drawn)} == words
    alone = trials[trials["directions"].eq("back")]
    assert not [label for label in words for _, drawn in views_of("throughput", alone) if label in str(drawn)]


def test_a_trial_is_counted_once_however_often_it_is_in_a_table() -> None:
    """Latency has a row per quantile, and a lent N = 0 one per series: captions counted rows as trials."""
    alone = loads().assign(action="tx", dut_tx_packets=pd.NA)
    trials = len(alone)
    assert f"One count only ({trials} of {trials} trials: the TG's)." in caption(view("latency", alone))
    zeros = synthetic.run(workload="array", vary={"accesses": [0]})
    some = [synthetic.run(workload=name, vary={"accesses": [100, 1600]}) for name in ("chase", "lookup")]
    why = pd.Series('{"ns_per_packet": "not known"}', index=zeros.index)
    lent = pd.concat([zeros.assign(ns_per_packet=pd.NA, null_reasons=why), *some], ignore_index=True)
    assert "3 of 15 trials have no ns_per_packet: not known (3)." in caption(view("service_time", lent))


def test_a_short_caption_counts_the_repetitions_of_each_counter() -> None:
    """perf failed in two of three repetitions; its marks are of one, and the figure said n = 3."""
    trials = synthetic.run(vary={"accesses": [0, 100]}).assign(host_instructions=6e8, perf_packets=1e6)
    trials.loc[trials["repetition"].gt(1), "host_instructions"] = pd.NA
    assert " · n = 1 to 3" in view("counters", trials).short_caption[0]


def test_a_mode_that_is_drawn_is_not_said_to_have_failed() -> None:
    trials = synthetic.run(vary={"mode": ["native", "generic"], "accesses": [0, 100, 1600]})
    lost = trials["mode"].eq("native") & trials["repetition"].eq(1) & trials["accesses"].eq(100)
    failing = trials.assign(verdict=trials["verdict"].mask(lost, "failed"))
    assert "Failed" not in " ".join(view("throughput", failing).look.words.short_caption), (
        "its other repetitions are there"
    )
    lost = trials["mode"].eq("native") & trials["accesses"].eq(100)
    failing = trials.assign(verdict=trials["verdict"].mask(lost, "failed"))
    assert "Failed: native (1 point)." in " ".join(view("throughput", failing).look.words.short_caption)
    lost = trials["mode"].eq("native")
    failing = trials.assign(verdict=trials["verdict"].mask(lost, "failed"))
    assert "Failed: native." in " ".join(view("throughput", failing).look.words.short_caption)


def test_more_queues_than_cpus_are_said_of_the_mode_that_has_them() -> None:
    """One mode had a CPU for each of four queues, which hid that the other had two."""
    native = synthetic.run(vary={"accesses": [0, 100]}, queues=4, dut_cpus=4)
    generic = synthetic.run(vary={"accesses": [0, 100]}, queues=4, dut_cpus=2, mode="generic")
    both = pd.concat([native, generic], ignore_index=True)
    assert "More queues" not in caption(view("throughput", native))
    assert "More queues than the 2 CPUs at work" in caption(view("throughput", both))


def test_an_even_share_is_that_of_the_panels_queues() -> None:
    """With two and four queues in one panel, 25 % was the even share of both."""
    assert set(view("evenness", rings()).look.axes.rules.values()) == {50.0, 25.0}
    joined = view("evenness", rings(), hue="queues", panel="")
    assert joined.look.axes.rules == {}
    assert "Dashed" not in caption(joined)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("busy", "forwarded_pps", "busy does not show forwarded_pps: it shows cpu_busy_cores, host_busy_cores"),
        ("service_time", "latency_p50_ns", "it shows ns_per_packet"),
        ("throughput", "loss_ratio", "it shows forwarded_pps, forwarded_l2_bps, offered_pps"),
        ("latency", "latency_p90_ns", "it has its own values"),
    ],
)
def test_no_axis_names_what_it_does_not_show(name: str, value: str, words: str) -> None:
    """A rate was drawn as busy CPUs, a round trip as CPU time per packet; a wanted quantile was left out."""
    with pytest.raises(FigureError, match=words):
        view(name, loads(), value=value)
