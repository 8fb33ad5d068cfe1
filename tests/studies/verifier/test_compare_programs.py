"""A and B per program: which programs are joined and judged, and veristat's own tables as either side."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner
from pydantic import TypeAdapter
from tests.studies.verifier.rows import row as made_up_row
from tests.studies.verifier.rows import table

from xdplab.cli import cli
from xdplab.cli.answers import ANSWERS
from xdplab.errors import FormatError, PlanError, ResultsError
from xdplab.formats.verifier import parse_veristat
from xdplab.studies.verifier.compare_programs import ComparisonOptions, compared, side_of_csv, side_of_run, sides_within
from xdplab.studies.verifier.runs import STUDY, VerifierRequest

RECORDED = Path(__file__).parents[2] / "formats" / "recorded" / "veristat"
OLD, NEW = RECORDED / "demo.csv", RECORDED / "demo-new.csv"


def row(program: str, **fields: Any) -> dict[str, Any]:
    return made_up_row(**{"object": "demo.o", "program": program, "verify_ns": 1000.0, "label": "Linux 6.18"} | fields)


def run_of(*rows: dict[str, Any], kernels: tuple[str, ...] = ("host",), name: str = "run") -> Any:
    frame = table(*rows)
    return SimpleNamespace(
        kind=SimpleNamespace(name="verifier"),
        directory=SimpleNamespace(name=name),
        rows=lambda: frame,
        plan=SimpleNamespace(request=SimpleNamespace(kernels=kernels)),
    )


def of(a: Any, b: Any, **asked: Any) -> Any:
    return compared(side_of_run(a), side_of_run(b), ComparisonOptions(**asked))


def test_what_veristat_wrote_is_read_in_our_units():
    (count, late, passed) = parse_veristat(OLD.read_text())
    assert (count["object"], count["program"], count["verdict"]) == ("demo.o", "count", "accepted")
    assert (count["processed_insns"], count["total_states"], count["verify_ns"]) == (210, 5, 171_000)
    assert count["jited_bytes"] is None, "a column that veristat was not asked for is not 0"
    assert parse_veristat(NEW.read_text())[1]["verdict"] == "failure"
    assert late["processed_insns"] == 13
    assert passed["program"] == "pass"


def test_stacks_are_compared_filtered_and_judged():
    both = {"stack_depths": "8+104+40", "stack_sum_bytes": 152}
    old = run_of(row("p", **both), row("q", stack_depths="16", stack_sum_bytes=16), row("r", verdict="loader"))
    new = run_of(
        row("p", stack_depths="8+200+40", stack_sum_bytes=248), row("q", stack_depths="16", stack_sum_bytes=16)
    )
    found = of(old, new, metrics=("stack_sum_bytes",), thresholds=("stack_sum_bytes=10",))
    assert found.beyond == ("demo.o/p: stack_sum_bytes 152 → 248, +63.2 %, at most +10 %",)
    assert found.exit_code == 1
    assert of(old, new, filters=("stack_depths_a=8+*",)).programs["program"].tolist() == ["p"]
    assert of(old, new, filters=("stack_sum_bytes_b>100",)).programs["program"].tolist() == ["p"]


def test_what_veristat_did_not_obtain_is_null_and_its_stack_is_the_sum():
    names = "file_name,prog_name,verdict,total_insns,mem_peak,prog_size_jited,stack_depth"
    first, second = parse_veristat(f"{names}\na.o,p,success,N/A,-1,12,152\nb.o,p,success,7,2,,\n")
    columns = ("processed_insns", "cgroup_peak_bytes", "jited_bytes", "stack_sum_bytes")
    assert [first[name] for name in columns] == [None, None, 12, 152]
    assert [second[name] for name in columns] == [7, 2 << 20, None, None]


NAMES = "file_name,prog_name,verdict,total_insns\n"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a,b\n1,2\n",
        "file_name,prog_name,verdict_base,verdict_comp\na.o,p,success,success\n",
        "file_name,prog_name,verdict\na.o,p,perhaps\n",
        *(NAMES + end for end in ("", "a.o,p,success,many\n", "a.o,p,success,98", "a.o,p,success\n")),
        *(NAMES + end for end in ("a.o,p,success,98,7\n", '"a.o,p,success,98\nb.o,p,success,98\n')),
    ],
)
def test_what_is_no_table_of_veristat_is_refused(text):
    with pytest.raises(FormatError, match="veristat"):
        parse_veristat(text)


def test_two_tables_of_veristat_in_one_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("COLUMNS", raising=False)  # as wide as necessary
    argv = ["compare", str(OLD), str(NEW), "--programs"]
    said = CliRunner().invoke(cli, [*argv, "--json", "--threshold", "processed_insns=25"])
    TypeAdapter(ANSWERS["compare"]).validate_json(said.stdout, strict=True)
    found = json.loads(said.stdout)
    assert (said.exit_code, found["verdict"]) == (1, "differs")
    assert found["beyond"] == ["demo.o/late: accepted → failure"], "24.3 % more is within 25"
    plain = CliRunner().invoke(cli, [*argv, "--threshold", "processed_insns=24"])
    assert "beyond: demo.o/count: processed_insns 210 → 261, +24.3 %, at most +24 %" in plain.stdout
    assert "210 → 261 (+24.3 %)" in plain.stdout
    equal = CliRunner().invoke(cli, ["compare", str(OLD), str(OLD), "--threshold", "processed_insns=0"])
    assert equal.exit_code == 0, "a threshold alone means a comparison per program"


def test_a_run_and_a_table_of_veristat_join_by_file_and_function():
    run = run_of(row("count", processed_insns=210, object="deep/demo.o"), row("late", object="deep/demo.o"))
    found = compared(side_of_csv(OLD), side_of_run(run), ComparisonOptions())
    programs = found.programs.set_index("program")
    assert programs.loc["count", "processed_insns_diff"] == 0
    assert pd.isna(programs.loc["pass", "verdict_b"])
    assert found.exit_code == 2, "an accepted program that B does not have was not judged"


def test_equal_names_in_several_folders_join_by_their_path_and_are_said_where_that_is_not_known():
    both = [row("p", object="x/a.o", processed_insns=1), row("p", object="y/a.o", processed_insns=2)]
    found = of(run_of(*both), run_of(*both))
    assert len(found.programs) == 2
    assert found.programs["processed_insns_diff"].eq(0).all()
    against = compared(side_of_csv(OLD), side_of_run(run_of(*both, row("q", object="x/b.o"))), ComparisonOptions())
    assert "1 names that a side has more than once are left out, such as a.o/p" in against.notes


def test_repetitions_are_one_row_with_the_median_time():
    three = [row("p", repetition=i, verify_ns=float(ns)) for i, ns in enumerate((1000, 9000, 2000), 1)]
    found = of(run_of(*three), run_of(row("p", verify_ns=2000.0)))
    assert found.programs["verify_ns_a"].tolist() == [2000.0]
    assert found.programs["verify_ns_pct"].tolist() == [0.0]


def test_filters_order_and_top():
    a = run_of(*(row(f"p{i}", processed_insns=100) for i in range(5)))
    b = run_of(*(row(f"p{i}", processed_insns=100 + i * i) for i in range(5)))
    assert of(a, b).programs["program"].tolist() == ["p4", "p3", "p2", "p1", "p0"]
    assert of(a, b, sort="-processed_insns_b").programs["program"].tolist() == ["p0", "p1", "p2", "p3", "p4"]
    kept = of(a, b, filters=("processed_insns_pct>=4", "program!=p4"), top=1)
    assert kept.programs["program"].tolist() == ["p3", "p2"]
    assert kept.table["program"].tolist() == ["p3"]
    over = of(a, b, top=1, thresholds=("processed_insns=3%",))
    assert len(over.beyond) == 3, "what is not shown is judged too"


def test_a_threshold_that_cannot_be_judged_is_no_success():
    a, b = run_of(row("p")), run_of(row("p", verify_ns=None))
    found = of(a, b, thresholds=("verify_ns=5",))
    assert (found.exit_code, found.open) == (2, ("demo.o/p: verify_ns is not known of both",))
    assert of(run_of(row("p")), run_of(row("q"))).exit_code == 2
    from_zero = of(run_of(row("p", total_states=0)), run_of(row("p", total_states=3)), thresholds=("total_states=50",))
    assert from_zero.exit_code == 1, "any growth from 0 is beyond any percentage"
    assert of(run_of(row("p")), run_of(row("p", verdict="rejected"))).exit_code == 1
    assert of(run_of(row("p", verdict="rejected")), run_of(row("p"))).exit_code == 0


def test_one_run_has_two_sides_by_kernel_or_by_corpus():
    rows = [row("p", kernel="7.2", processed_insns=2), row("p", kernel="host", processed_insns=1)]
    a, b = sides_within(run_of(*rows, kernels=("host", "7.2")))
    assert (a.rows["processed_insns"].tolist(), b.rows["processed_insns"].tolist()) == ([1], [2])
    versions = [row("p", corpus="B: new.o", object="new.o"), row("p", corpus="A: old.o", object="old.o")]
    found = compared(*sides_within(run_of(*versions)), ComparisonOptions())
    assert len(found.programs) == 1, "one object on each side needs no equal name"
    assert found.names == ("run, Linux 6.18, A: old.o", "run, Linux 6.18, B: new.o")
    with pytest.raises(ResultsError, match="two sides are two of either"):
        sides_within(run_of(row("p")))
    with pytest.raises(ResultsError, match=r"has kernels 7\.2, host"):
        side_of_run(run_of(*rows))
    with pytest.raises(PlanError, match=r"no kernel 5\.10"):
        side_of_run(run_of(*rows), "5.10")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"metrics": ("foo",)}, "no metric foo"),
        ({"filters": ("foo>1",)}, "no column foo"),
        ({"filters": ("program>1",)}, "is text"),
        ({"filters": ("processed_insns_a>x",)}, "not a number"),
        ({"filters": ("nothing",)}, "no condition"),
        ({"sort": "foo"}, "no column foo"),
        ({"thresholds": ("processed_insns",)}, "METRIC=PERCENT"),
        ({"thresholds": ("processed_insns=-1",)}, "0 % or more"),
        ({"thresholds": ("foo=1",)}, "no metric foo"),
    ],
)
def test_what_does_not_exist_is_refused(asked, words):
    with pytest.raises(PlanError, match=words):
        of(run_of(row("p")), run_of(row("p")), **asked)


@pytest.mark.parametrize(
    "argv",
    [
        ["compare", str(OLD), "--programs"],
        ["compare", str(OLD), str(NEW), "--kernels", "one"],
        ["compare", str(OLD), str(NEW), "--programs", "--metric", "load_ns"],
        ["study", "verifier", "one.o", "--compare"],
        ["study", "verifier", "one.o", "two.o", "--compare", "--json"],
        ["study", "verifier", "one.o", "two.o", "--top", "3"],
    ],
)
def test_a_comparison_without_two_sides_is_refused_before_anything_runs(argv):
    assert isinstance(CliRunner().invoke(cli, argv).exception, PlanError)


@pytest.mark.root
def test_two_versions_of_an_object_in_one_line(compile_member, tmp_path):
    for name, n in (("old.o", 3), ("new.o", 4), ("same.o", 3)):
        (tmp_path / name).write_bytes(compile_member("double_strcmp", n).read_bytes())
    paths = [str(tmp_path / name) for name in ("old.o", "new.o", "same.o")]
    options = ["--repetitions", "1", "--loads", "1", "--threshold", "processed_insns=1", "--out", str(tmp_path / "out")]
    grown = CliRunner().invoke(cli, ["study", "verifier", *paths[:2], "--compare", *options], standalone_mode=False)
    assert grown.return_value == 1, grown.output
    assert "beyond: old.o/" in grown.output
    request = VerifierRequest(1, objects=(paths[0], paths[2]), families=(), testbed=False, largest=False, apart=True)
    run = STUDY.start(replace(request, loads=1), tmp_path / "equal")
    run.measure()
    equal = compared(*sides_within(run), ComparisonOptions(thresholds=("processed_insns=0",)))
    assert (len(equal.programs), equal.exit_code) == (1, 0), "objects of equal bytes are two sides too"
