"""The gate: what a baseline keeps, what is compared, and what is no comparison."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from xdplab.cli.answers import ANSWERS
from xdplab.errors import ResultsError
from xdplab.studies.cost.gate import Case, ComparedCosts, CostDifference, Gate, compared, read_baseline, write_baseline
from xdplab.studies.cost.points import kernel_of

THIRD = Fraction(169073, 128)
CASE = Case(
    "lb.bpf.c",
    ("6.12", "native", "64", "1"),
    {
        "compiler": "clang 14",
        "kernel_release": "6.12.1",
        "came_back": "100% of the frames",
        "passed_on": "0% of the frames",
    },
    {"whole": THIRD, "program": Fraction(140), "called": Fraction(0), "path": Fraction(9)},
    {"if (known)": Fraction(3), "return XDP_TX;": Fraction(2)},
    {"veth_poll": Fraction(40)},
)
GROWN = replace(
    CASE,
    totals={"whole": THIRD + 7, "program": Fraction(147), "called": Fraction(0), "path": Fraction(9)},
    lines={"if (ip->ttl < 2)": Fraction(7), "return XDP_TX;": Fraction(2), "if (known)": Fraction(3)},
)
RANGED = replace(CASE, totals={"program": Fraction(140), "called": Fraction(0)})
"""Its path, and with it the whole, holds to a range."""


def test_a_baseline_comes_back_as_it_was(tmp_path: Path) -> None:
    write_baseline([CASE], tmp_path / "base.json")
    assert read_baseline(tmp_path / "base.json") == [CASE]


@pytest.mark.parametrize("text", ["", "1", "[1]", '{"program": "a"}', '[{"program": "a"}]'])
def test_what_is_no_baseline_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "base.json").write_text(text)
    with pytest.raises(ResultsError):
        read_baseline(tmp_path / "base.json")


def test_an_absent_baseline_is_refused_once_by_name_and_without_a_number(tmp_path: Path) -> None:
    with pytest.raises(ResultsError) as refused:
        read_baseline(tmp_path / "none.json")
    assert "Errno" not in str(refused.value)
    assert str(refused.value).count("none.json") == 1


@pytest.mark.parametrize(
    ("old", "new", "tolerance", "fails"),
    [
        (CASE, CASE, 0, False),
        (CASE, GROWN, 0, True),
        (CASE, GROWN, 7, False),
        (GROWN, CASE, 0, False),
        (CASE, replace(CASE, totals={**CASE.totals, "whole": THIRD + Fraction(1, 128)}), 0, True),
        (CASE, replace(CASE, totals={**CASE.totals, "program": Fraction(90), "called": Fraction(50)}), 0, False),
        (RANGED, replace(RANGED, totals={"program": Fraction(90), "called": Fraction(50)}), 0, False),
        (RANGED, replace(RANGED, totals={"program": Fraction(90), "called": Fraction(51)}), 0, True),
    ],
)
def test_growth_beyond_the_tolerance_fails(old: Case, new: Case, tolerance: int, fails: bool) -> None:
    (difference,) = compared([old], [new])
    assert (difference.growth[0] > Fraction(tolerance)) is fails


def test_the_lines_that_changed_are_named_by_their_text() -> None:
    (difference,) = compared([CASE], [GROWN])
    assert difference.lines.to_dict("records") == [
        {"old": "0.000", "new": "7.000", "difference": "+7.000", "line": "if (ip->ttl < 2)"}
    ]
    assert difference.functions.empty
    (change,) = Gate([difference], Fraction(0)).to_json()["differences"]
    assert change["lines"] == [{"name": "if (ip->ttl < 2)", "old": 0, "new": 7, "difference": 7}]
    assert [total["difference"] > 0 for total in change["totals"]] == [True, True, False, False]


LOOKUP = "__u64 *{} = bpf_map_lookup_elem(&allowed, &port);"


@pytest.mark.parametrize(
    ("old", "new", "named", "changed"),
    [
        ({LOOKUP.format("count"): 134}, {LOOKUP.format("hits"): 134, "if (ip->ttl < 2)": 7}, "+7 at `if (ip", 1),
        ({LOOKUP.format("count"): 134}, {LOOKUP.format("hits"): 141}, "+7 at `__u64 *hits", 1),
        ({"key = ip->saddr;": 4}, {LOOKUP.format("hits"): 11}, "+11 at `__u64 *hits", 2),
        ({"*count += 1;": 4, "*b += 1;": 4}, {"*hits += 1;": 4, "*b += 1;": 11}, "+7 at `*b", 1),
        (
            {"__u64 *seen = lookup(&seen_map, &port);": 11, "__u64 *count = lookup(&allowed, &port);": 134},
            {"__u64 *hits = lookup(&allowed, &port);": 134, "if (ip->ttl < 2)": 18},
            "+18 at `if",
            2,
        ),
    ],
)
def test_a_line_that_was_only_reworded_is_not_where_a_packet_grows(
    old: dict[str, int], new: dict[str, int], named: str, changed: int
) -> None:
    """A renamed variable was the line with most growth: +134, of 5 in all."""
    before, after = (
        replace(one, lines={k: Fraction(v) for k, v in it.items()}) for one, it in ((CASE, old), (GROWN, new))
    )
    difference = CostDifference(before, after)
    assert named in Gate([difference], Fraction(0)).text("main")
    assert len(difference.lines) == len(difference.to_json()["lines"]) == changed


def test_a_difference_between_two_kernels_names_both() -> None:
    other = replace(CASE, made_with={**CASE.made_with, "kernel_release": "7.2.12"})
    assert f"{CASE.made_with['kernel_release']} → 7.2.12" in CostDifference(CASE, other).text


@pytest.mark.parametrize(
    ("lab", "kernel"),
    [
        ("vm:6.1", "6.1"),
        ("vm:7.2+mitigations:kvm", "7.2"),
        ("vm:5.10:kvm:mine:tap", "5.10"),
        ("netns", None),
        ("uml", None),
    ],
)
def test_a_packet_is_counted_in_the_kernel_of_a_labs_guest(lab: str, kernel: str | None) -> None:
    assert kernel_of(lab) == kernel


def test_another_compiler_or_kernel_is_told() -> None:
    other = replace(CASE, made_with={**CASE.made_with, "compiler": "clang 19"})
    (difference,) = compared([CASE], [other])
    assert difference.made_otherwise == ["compiler: was clang 14, is clang 19"]


@pytest.mark.parametrize("name", [CASE.name, "new.bpf.c"])
@pytest.mark.parametrize(("kernel", "release"), [("6.1", "6.1.9"), ("6.12@arm64", "6.12.1-arm64")])
def test_a_baseline_of_another_kernel_is_compared_and_told(name: str, kernel: str, release: str) -> None:
    made_with = {**CASE.made_with, "kernel_release": release}
    other = replace(CASE, name=name, traffic=(kernel, *CASE.traffic[1:]), made_with=made_with)
    gate = Gate(compared([CASE], [other, replace(CASE, name=name)]), Fraction(0))
    assert gate.made_otherwise == [f"kernel_release: was 6.12.1, is {release}"]
    assert gate.verdict == "not comparable"


@pytest.mark.parametrize("way", ["came_back", "passed_on"])
def test_a_program_that_drops_what_it_sent_back_or_passed_on_is_told(way: str) -> None:
    before = replace(CASE, made_with={**CASE.made_with, way: "100% of the frames"})
    broken = replace(CASE, made_with={**CASE.made_with, way: "0% of the frames"})
    (difference,) = compared([before], [broken])
    assert difference.made_otherwise == [f"{way}: was 100% of the frames, is 0% of the frames"]
    assert "--map" in Gate([difference], Fraction(0)).text("lb.cost.json")


@pytest.mark.parametrize(
    ("new", "tolerance", "words"),
    [
        (CASE, 0, ("no more than lb.cost.json",)),
        (GROWN, 0, ("more than lb.cost.json", GROWN.title, "+7.000", "whole", "`if (ip->ttl < 2)`")),
        (GROWN, 7, ("no more than lb.cost.json", "within 7")),
    ],
)
def test_the_verdict_in_words_names_the_baseline_and_the_growth(
    new: Case, tolerance: int, words: tuple[str, ...]
) -> None:
    text = Gate(compared([CASE], [new]), Fraction(tolerance)).text("lb.cost.json")
    assert all(word in text for word in words), text


def test_a_verdict_on_packets_that_are_all_dropped_says_so() -> None:
    lost = replace(
        CASE, made_with={**CASE.made_with, **dict.fromkeys(("came_back", "passed_on"), "0.00% of the frames")}
    )
    assert "--map" in Gate(compared([lost], [lost]), Fraction(0)).text("lb.cost.json")
    assert "--map" not in Gate(compared([CASE], [CASE]), Fraction(0)).text("lb.cost.json")


def test_the_only_program_of_a_baseline_is_compared_under_any_name() -> None:
    (difference,) = compared([CASE], [replace(CASE, name="new.bpf.c")])
    assert (difference.old.name, difference.new.name) == ("lb.bpf.c", "new.bpf.c")


def test_a_total_that_holds_to_a_range_only_is_not_judged() -> None:
    for old, new in ((RANGED, CASE), (CASE, RANGED)):
        (difference,) = compared([old], [new])
        assert difference.growth[0] <= 0
        assert difference.inexact == ["whole", "path"]
        assert list(difference.totals["instructions"]) == ["program", "called"]
        assert difference.functions.empty


def test_programs_of_one_name_are_compared_in_their_order() -> None:
    assert [(one.old, one.new) for one in compared([CASE, GROWN], [CASE, GROWN])] == [(CASE, CASE), (GROWN, GROWN)]


def test_traffic_that_the_baseline_lacks_is_refused() -> None:
    with pytest.raises(ResultsError, match="generic"):
        compared([CASE], [replace(CASE, traffic=("6.12", "generic", "64", "1"))])


@pytest.mark.parametrize(
    ("new", "verdict", "told"),
    [
        (CASE, "equivalent", "no total differs"),
        (GROWN, "differs", "whole 1320.883 → 1327.883 (+7)"),
        (
            replace(GROWN, made_with={**CASE.made_with, "compiler": "clang 19"}),
            "undecided",
            "was clang 14, is clang 19",
        ),
        (replace(CASE, totals={"program": Fraction(140)}), "undecided", "a range only"),
        (replace(CASE, totals={k: n for k, n in CASE.totals.items() if k != "whole"}), "equivalent", "a range only"),
    ],
)
def test_two_runs_say_which_totals_differ_and_by_how_much(new: Case, verdict: str, told: str) -> None:
    both = ComparedCosts(("a", "b"), compared([CASE], [new]), [])
    assert both.verdict == verdict
    assert any(told in line for line in both.lines()), both.lines()
    TypeAdapter(ANSWERS["compare"]).validate_json(json.dumps(both.to_json()), strict=True)
