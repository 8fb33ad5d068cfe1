"""The thesis repeated: a user's own trials in the published figures, and the judgement of its statements."""

from pathlib import Path

import pandas as pd
import pytest
from tests.thesis.thesis_logs import judged

from xdplab.analysis.verdicts import RULES_VERSION
from xdplab.errors import FigureError
from xdplab.studies.traffic.columns import trials_frame
from xdplab.thesis.album import Edition, OwnRun, behind, own_run, own_view, repeat
from xdplab.thesis.conclusions import (
    STATEMENTS,
    Reading,
    answer,
    conclusions,
    corrected_reading,
    in_markdown,
    own_reading,
    published_reading,
)
from xdplab.thesis.made_logs import tree
from xdplab.thesis.published import figure_named, published_figures, published_marks
from xdplab.thesis.views import Source, source_of

T0_NS = {"native": 500.0, "generic": 1500.0, "af_xdp": 2000.0}
C_NS = 3.0


def own_trials(**factors: object) -> pd.DataFrame:
    """Trials of the user's own run: t = t0 + c N on one CPU, three repetitions 1 % apart."""
    rows: list[dict[str, object]] = []
    points = [(m, q, s, n) for m in T0_NS for q in (1, 8) for s in (64, 1500) for n in (0, 100, 800, 3200, 12800)]
    for mode, queues, size, n in points:
        for repetition in (1, 2, 3):
            rate = 1e9 / (T0_NS[mode] + C_NS * n) * (1 + 0.01 * (repetition - 2))
            point = f"{mode}-{queues}-{size}-{n}"
            rows.append(
                {
                    "run_id": "0a0b", "point_id": point, "trial_id": f"{point}-r{repetition}", "attempt": 1,
                    "repetition": repetition, "lab": "netns", "arrangement": "shared", "engine": "afxdp", "load": "max",
                    "mode": mode, "queues": queues, "frame_bytes": size, "accesses": n, "program_name": "lookup",
                    "workload": "lookup", "op": "read", "verdict": "valid", "rules_version": RULES_VERSION,
                    "forwarded_pps": rate, "latency_mean_ns": 1e9 * 64 / rate, "dut_cpus": 2,
                    "limited_by": "shared_cpu",
                    "null_reasons": '{"cpu_softirq_cores": "TG and DUT share the CPUs", "instructions": "no pass"}',
                    **factors,
                }
            )  # fmt: skip
    return trials_frame(rows)


@pytest.fixture(scope="module")
def own() -> OwnRun:
    return own_run("mini", own_trials())


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return source_of(judged(tmp_path_factory.mktemp("made"), tree()))


def test_each_published_figure_can_be_drawn_from_ones_own_trials(own: OwnRun, tmp_path: Path) -> None:
    done = repeat(own, Edition(tmp_path, formats=()), published=None)
    assert len(done) == len(published_figures()) == 110
    table = pd.read_csv(tmp_path / "repeated.csv")
    mark = table[(table["file"] == figure_named("19").file) & (table["panel"] == "XDP Native") & (table["hue"] == "1")]
    assert mark["x"].tolist() == ["baseline", "100", "800", "3200", "12800"]
    assert mark["value"].iloc[0] == pytest.approx(1e9 / 500 * 64 * 8 / 1e9, rel=1e-3)
    assert (mark["low"] < mark["value"]).all()


def test_what_this_lab_cannot_say_stands_below_the_figure(own: OwnRun) -> None:
    words = " ".join(own_view(own, figure_named("19")).look.words.caption)
    assert "No NIC" in words
    assert "share the CPUs" in words
    assert "More queues than CPUs" in words
    softirq = own_view(own, figure_named("25"))
    assert softirq.marks.empty
    assert "TG and DUT share the CPUs" in " ".join(softirq.look.words.caption)


def test_published_marks_are_in_ones_own_unit_behind(published: Source, own: OwnRun, tmp_path: Path) -> None:
    spec = figure_named("complementares/latencia_packet_size_x_algoritmo@combined_1")
    seconds = published_marks(published.printed, spec)["value"]
    assert len(seconds)
    assert behind(published, spec)["value"].tolist() == pytest.approx((seconds * 1e6).tolist())
    (made,) = repeat(own, Edition(tmp_path, figures=[spec]), published=published, processes=1)
    assert [path.suffix for path in made.files] == [".svg", ".csv"]
    assert set(pd.read_csv(made.files[1])["of"]) == {"own", "published"}


def test_a_run_that_varies_something_else_is_refused() -> None:
    live = own_trials(engine="live")
    live = live.assign(trial_id=live["trial_id"] + "-live", point_id=live["point_id"] + "-live")
    both = pd.concat([own_trials(), live], ignore_index=True)
    with pytest.raises(FigureError, match="engine"):
        own_run("both", both)
    with pytest.raises(FigureError, match="maximum load"):
        own_run("paced", own_trials(load="20kpps"))


def test_conclusions_are_read_in_three_data_sets(published: Source, own: OwnRun) -> None:
    table = conclusions([published_reading(published), corrected_reading(published), own_reading(own)])
    assert len(table) == len(STATEMENTS)
    assert set(table["own"]) <= {"holds", "does not hold", "cannot be told here"}
    said = table.set_index("statement")
    line = said.loc["1500-byte frames fill the link up to 800 accesses"]
    assert (line["own"], line["own_numbers"]) == ("cannot be told here", "a link without a NIC has no rate")
    grows = said.loc["The time of a packet grows in proportion to the accesses"]
    assert grows["own"] == "holds"
    assert "2 CPUs for 8 queues" in said.loc["Best queue counts: 8 for native and generic, 1 for AF_XDP", "own_numbers"]
    assert len(in_markdown(table)) == len(table) + 2


def test_a_statement_holds_or_not_by_its_numbers() -> None:
    rates = {(mode, 1, 64, n): 1e9 / (T0_NS[mode] + C_NS * n) for mode in T0_NS for n in (0, 3200, 12800)}
    reading = Reading("made", rates, {}, {})
    rules = {statement: rule for statement, (_, rule) in STATEMENTS.items()}
    zero = rules["The throughput reaches zero at 12,800 accesses, 64 B, one queue"]
    order = rules["Native is above generic, generic above AF_XDP"]
    assert (answer(zero, reading).verdict, answer(order, reading).verdict) == ("does not hold", "holds")
    nothing = dict.fromkeys(rates, 0.0)
    assert answer(zero, Reading("made", nothing, {}, {})).verdict == "holds"
    assert answer(order, Reading("made", {}, {}, {})).verdict == "cannot be told here"


@pytest.mark.parametrize(
    ("statement", "point", "beside"),
    [
        ("The baseline performs best in all cases", ("native", 1, 64, 3200), ("native", 1, 64, 0)),
        ("Native is above generic, generic above AF_XDP", ("af_xdp", 1, 64, 0), ("generic", 1, 64, 0)),
    ],
)
def test_a_difference_that_the_repetitions_leave_open_refutes_nothing(
    statement: str, point: tuple[str, int, int, int], beside: tuple[str, int, int, int]
) -> None:
    """On a busy machine repetitions differ by 10 %: a rate 8 % above another one is not above it."""
    rule = STATEMENTS[statement][1]
    rates = {(mode, 1, 64, n): 1e9 / (T0_NS[mode] + C_NS * n) for mode in T0_NS for n in (0, 3200)}
    rates[point] = 1.08 * rates[beside]
    said = [answer(rule, Reading("own", rates, {}, {}, errors=dict.fromkeys(rates, e))) for e in (0.0, 0.01, 0.05)]
    assert [found.verdict for found in said] == ["does not hold", "does not hold", "cannot be told here"]
    assert said[2].numbers.endswith("by 3 standard errors")


def test_a_rate_that_the_generator_makes_says_nothing_of_the_dut() -> None:
    """Both rates are what the generator sends: that a hundred accesses cost nothing does not follow."""
    trials = own_trials(limited_by="generator", forwarded_pps=5e6, dut_cpus=8)
    found = answer(
        STATEMENTS["A hundred accesses cost native with 8 queues nothing"][1], own_reading(own_run("m", trials))
    )
    assert (found.verdict, found.numbers[:10]) == ("cannot be told here", "no rate of")


def test_a_single_cpu_is_one_cpu() -> None:
    rule = STATEMENTS["Best queue counts: 8 for native and generic, 1 for AF_XDP"][1]
    assert answer(rule, Reading("own", {}, {}, {}, cpus=1)).numbers == "1 CPU for 8 queues"


def test_an_order_is_not_told_where_a_point_has_no_rate() -> None:
    rule = STATEMENTS["Native is above generic, generic above AF_XDP"][1]
    rates = {(mode, 1, 64, n): 1e9 / (T0_NS[mode] + C_NS * n) for mode in T0_NS for n in (0, 800)}
    found = answer(rule, Reading("own", rates, {}, {}, apart={("native", 1, 64, 3200): 0.3}))
    assert found.verdict == "cannot be told here"
    assert found.numbers.endswith("repetitions too far apart at N = 3200")


def test_repetitions_too_far_apart_have_no_rate() -> None:
    trials = own_trials()
    factor = trials["repetition"].map({1: 0.5, 2: 1.0, 3: 1.5})
    reading = own_reading(own_run("noisy", trials.assign(forwarded_pps=trials["forwarded_pps"] * factor)))
    rule = STATEMENTS["Many accesses make native and generic equal"][1]
    found = answer(rule, reading)
    assert found.verdict == "cannot be told here"
    assert "apart (standard deviation)" in found.numbers
