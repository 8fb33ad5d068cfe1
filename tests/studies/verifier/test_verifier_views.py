"""Tables and figures of made-up rows: what they count, draw, leave out and say."""

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from tests.studies.verifier.rows import loop, prevails, row, table

from xdplab.absent import Absent
from xdplab.errors import NotApplicableError
from xdplab.figures.draw import draw
from xdplab.figures.marks import View
from xdplab.studies.verifier import summaries
from xdplab.studies.verifier.views import VIEWS


def sized(**fields: object) -> list[dict[str, object]]:
    """Eleven programs whose time grows with their size."""
    rows = [row(sha256=str(i), trial_id=f"{i}-r1", insns=10 * i, verify_ns=1e5 * i, loads=20) for i in range(1, 12)]
    return [one | fields for one in rows]


def drawn(name: str, rows: list[dict[str, object]]) -> View:
    return VIEWS[name](table(*rows))


@pytest.mark.parametrize(
    ("cause", "kept"),
    [
        (
            "21: Upper bound must be at most r1.shared_region_size (r2)",
            "Upper bound must be at most shared_region_size",
        ),
        ("error: rejected: helper function is unavailable (at 1464)", "rejected: helper function is unavailable"),
        ("error: Subprogram 'memset' not found in section ''", "Subprogram '…' not found in section '…'"),
        ("still at it after 10 s", "still at it after 10 s"),
    ],
)
def test_causes_without_their_places(cause, kept):
    assert summaries.general(cause) == kept


def test_instructions_by_compiler_though_the_bytes_are_equal_with_percentages_against_the_first():
    counts = {("clang 14", "v2"): (20, 60, 50), ("clang 19", "v2"): (20, 60, 40), ("clang 19", "v3"): (15, 60, 40)}
    rows = [
        loop(n, compiler=compiler, mcpu=mcpu, insns=insns)
        for (compiler, mcpu), sizes in counts.items()
        for n, insns in zip((1, 2, 3), sizes, strict=True)
    ]
    unrolled = loop(1, compiler="clang 14", mcpu="v2", insns=900, form="unrolled")
    made = summaries.instruction_counts(table(unrolled, *rows))
    assert made.to_numpy().tolist() == [
        ["clang 14 + v2", "20", "60", "50"],
        ["clang 19 + v2", "20", "60", "40 (-20.00 %)"],
        ["clang 19 + v3", "15 (-25.00 %)", "60", "40 (-20.00 %)"],
    ]


def test_acceptance_sets_the_environment_apart():
    made = summaries.acceptance(
        table(
            row(sha256="1"),
            row(sha256="2", verdict="environment", cause="helper not available"),
            row(sha256="3", verdict="complexity", cause="too much"),
            row(sha256="3", verdict="complexity", cause="too much", repetition=2),
            row(sha256="1", label="Linux 5", verdict="rejected", cause="21: no good (r1)"),
        )
    ).set_index("programs")
    assert made.loc["accepted"].tolist() == [1, 0]
    assert made.loc["programs"].tolist() == [3, 1]
    assert made.loc["reached the verifier"].tolist() == [2, 1]
    assert made.loc["environment: helper not available"].tolist() == [1, 0]
    assert made.loc["verifier: no good"].tolist() == [0, 1]


def test_confusion_counts_only_what_both_judged():
    made = summaries.confusion(
        table(
            row(sha256="1"),
            row(sha256="2"),
            row(sha256="3", verdict="environment"),
            prevails(sha256="1", verdict="rejected"),
            prevails(sha256="2"),
            prevails(sha256="3"),
        )
    ).set_index("refused by → accepted by")
    assert made.loc["PREVAIL", "Linux 6"] == 1
    assert made.loc["Linux 6", "PREVAIL"] == 0
    assert pd.isna(made.loc["Linux 6", "Linux 6"])


def test_verifiers_that_name_a_program_differently_are_joined_by_its_section():
    """In objects from before sections held several programs, the kernel names the function and PREVAIL the section."""
    made = table(
        row(sha256="1", section="classifier", program="cls_main", verdict="rejected", insns=33),
        row(sha256="2", section="xdp", program="one", verdict="rejected"),
        row(sha256="2", section="xdp", program="two", insns=None),  # two in one section: its name is ambiguous
        row(sha256="3", section="socket", program="s", verdict="rejected"),
        prevails(sha256="1", section="classifier", program="classifier"),
        prevails(sha256="2", section="xdp", program="xdp"),
        prevails(sha256="3", section="socket", program=None),
    )
    counts = summaries.confusion(made).set_index("refused by → accepted by")
    assert counts.loc["Linux 6", "PREVAIL"] == 2
    together = summaries.judged_together(made).set_index("judged by")
    assert together.loc["Linux 6"].tolist() == [4, 2, 2]  # its own, with PREVAIL, with no other verifier
    assert together.loc["PREVAIL"].tolist() == [2, 3, 1]
    assert made[made["verifier"] == "p"]["insns"].tolist() == [33, pd.NA, 10]


def test_unique_programs_are_counted_by_their_instructions():
    made = summaries.corpora(table(row(sha256="1"), row(sha256="2"), row(sha256="2", label="Linux 5", kernel="5")))
    assert made.to_dict("records") == [{"corpus": "c", "objects": 2, "programs": 2, "loaded": 2, "unique": 1}]


def test_a_time_is_never_drawn_without_its_verdict_nor_a_guests_at_all():
    rows = sized()
    rows.append(row(sha256="x", trial_id="x-r1", insns=500, verdict="complexity"))
    rows.append(row(sha256="y", trial_id="y-r1", insns=700, verdict="environment"))
    rows.append(row(sha256="z", trial_id="z-r1", label="Linux 5", clock="instructions", verify_ns=None, insns=20))
    marks = VIEWS["time"](table(*rows)).marks
    points = marks[marks["kind"] == "point"]
    assert points["verdict"].value_counts().to_dict() == {"valid": 11, "invalid": 1}
    assert set(points["hue"]) == {"Linux 6"}
    assert points.set_index("x")["value"].loc[20.0] == pytest.approx(0.2)
    trend = marks[marks["kind"] == "fit"]
    assert trend["value"].tolist() == pytest.approx([0.1, 1.1])


def test_no_interval_of_a_logarithmic_axis_ends_below_0():
    """Three times that differ much: their t interval in ms is -0.3 to 0.9, and hid the other points."""
    times = (1e5, 2e5, 6e5)
    rows = [row(sha256="1", trial_id=f"1-r{i}", repetition=i, verify_ns=time) for i, time in enumerate(times, 1)]
    (mark,) = VIEWS["time"](table(*rows)).marks.to_dict("records")
    assert 0 < mark["low"] < mark["value"] < mark["high"]
    assert mark["value"] == pytest.approx(0.3)


def test_a_power_law_that_one_program_is_far_from_is_not_drawn():
    rows = sized()
    assert "fit" in set(drawn("time", rows).marks["kind"])
    rows[5] |= {"verify_ns": 6e6}  # ten times its own: nine of the ten others are still on the line
    assert "fit" not in set(drawn("time", rows).marks["kind"])


def test_a_caption_tells_who_was_repeated_less():
    """A guest is measured once."""
    twice = [row(repetition=n, trial_id=f"p-r{n}") for n in (1, 2)]
    once = row(label="Linux 6.1", kernel="6.1", trial_id="q-r1")
    both, alone = (drawn("processed", rows).look.words.caption[0] for rows in ([*twice, once], twice))
    assert both.endswith("; n = 2 repetitions (1 of Linux 6.1).")
    assert alone.endswith("; n = 2 repetitions.")


def test_a_kernel_without_values_is_told_with_its_reason():
    """Linux 7.2 counts branches, 6.18 does not: the figure has the points of one and the reason for the other."""
    known = [one | {"branches": 5, "label": "Linux 7.2"} for one in sized()]
    unknown = sized(label="Linux 6.18", branches=Absent("push_stack() cannot be traced"))
    found = drawn("branches", known + unknown)
    assert set(found.marks["hue"]) == {"Linux 7.2"}
    assert "Linux 6.18: 11 programs without a value: push_stack() cannot be traced (11)." in found.look.words.caption
    with pytest.raises(NotApplicableError, match=r"cannot be traced"):
        drawn("branches", unknown)


def test_what_a_logarithmic_axis_leaves_out_is_told():
    rows = [one | {"total_states": states} for states, one in enumerate(sized())]
    assert "1 program with 0 not drawn: the axes are logarithmic." in drawn("states", rows).look.words.caption
    assert not any("not drawn" in part for part in drawn("time", rows).look.words.caption)


def test_each_corpus_has_its_panel_and_its_rows():
    rows = [*sized(corpus="A"), *(one | {"sha256": f"b{n}", "corpus": "B"} for n, one in enumerate(sized()))]
    rows[0]["verdict"] = "rejected"
    assert set(drawn("time", rows).marks["panel"]) == {"A", "B"}
    accepted = summaries._by_corpus(summaries.acceptance, table(*rows))
    counts = accepted[accepted["programs"].isin(["accepted", "programs"])].set_index(["corpus", "programs"])
    assert counts.iloc[:, 0].to_dict() == {
        ("A", "accepted"): 10, ("A", "programs"): 11, ("B", "accepted"): 11, ("B", "programs"): 11,
    }  # fmt: skip


def test_a_kernel_has_one_colour_in_all_figures_of_a_run():
    """A guest has no time: this machine's kernel then had the guest's colour."""
    guest = {"label": "Linux 5", "clock": "instructions", "kernel": "5.10"}
    rows = [*sized(processed_insns=9), *(one | guest | {"verify_ns": None} for one in sized(processed_insns=9))]
    colours = []
    for name, hues in {"time": 1, "processed": 2}.items():
        ax = draw(drawn(name, rows))
        points = [line for line in ax.lines if line.get_marker() not in ("None", "", "_", "|")]
        assert len({line.get_color() for line in points}) == hues
        colours.append(points[-1].get_color())
        plt.close(ax.figure)
    assert colours[0] == colours[1]


def test_a_family_is_drawn_by_its_size():
    own = {"family": "queues", "corpus": "queues", "compiler": "clang 18", "mcpu": "v3"}
    rows = [row(**own, n=n, sha256=str(n), processed_insns=9 * n, trial_id=f"t{n}-r1") for n in (2, 5)]
    marks = VIEWS["families"](table(*rows, loop(3))).marks
    assert set(marks["panel"]) == {"queues"}
    assert marks.sort_values("x")[["x", "value"]].to_numpy().tolist() == [[2, 18], [5, 45]]


def test_instructions_of_a_loop_are_no_average_over_kernels():
    """With two kernels, each object was drawn as the mean of two rows, with an interval that no repetition gave."""
    built = {"family": "double_strcmp", "form": "rolled", "compiler": "clang 14", "mcpu": "v3"}
    rows = [
        row(**built, n=n, insns=20 * n, sha256=str(n), kernel=kernel, label=kernel, trial_id=f"{kernel}-{n}-r1")
        for n in (1, 2)
        for kernel in ("host", "6.1")
    ]
    rows[1]["insns"] = 2000  # as if another kernel's row differed
    marks = drawn("loops-insns", rows).marks
    assert marks["value"].tolist() == [20, 40]
    assert marks["n"].eq(1).all()


def test_the_work_of_a_program_beyond_the_limit_is_no_growth():
    """A refused program ends at the limit: 10 times the size seemed 118 times the work."""
    sizes = [loop(n, processed_insns=n**2) for n in (10, 20, 40)]
    beyond = [loop(80, processed_insns=1_000_001, verdict=verdict) for verdict in ("complexity", "accepted")]
    assert "with N^2.00 (double_strcmp rolled, N = 20 to 40)" in summaries._growth(table(*sizes, *beyond))
    assert summaries._growth(table(sizes[0], beyond[0])) == ""
