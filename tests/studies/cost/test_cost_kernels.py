"""The report on kernels: what of it is exact, what is left out, where runs disagree, and that any order gives it."""

import json
import shutil
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.cli.entry import ending_with_output
from tests.cli.test_answers import validate
from tests.oracle.kinds import ROOT
from tests.unpack import unpacked

from xdplab.errors import LabError
from xdplab.studies.cost import kernel_page
from xdplab.studies.cost.kernels import Count, CountedProgram, GuestKernel, KernelReport, Packet, packets_of
from xdplab.studies.kinds import open_run

OLD = GuestKernel("6.1.0-56-amd64", "", "#1 SMP Debian 6.1.192-2", "linux-image sha256:1")
NEW = GuestKernel("6.12.117+deb12-amd64", "", "#1 SMP Debian 6.12.117-1", "linux-image sha256:2")
MINE = CountedProgram("mine.bpf.c", "11623275", "native", "frames/1.txt", 64, 1)
RUN = "aaaaaaaa"


def _counts(**counts: float | tuple[float, float]) -> dict[str, Count]:
    pairs = {name: one if isinstance(one, tuple) else (one, 0.0) for name, one in counts.items()}
    return {name: Count(Fraction(value), Fraction(half)) for name, (value, half) in pairs.items()}


def _packet(kernel: GuestKernel = OLD, subject: CountedProgram = MINE, run: str = RUN, **parts: Any) -> Packet:
    functions = parts.pop("functions", {})
    counts = _counts(**{"program": 9, "called": 100, "path": 800.5, **parts})
    return Packet(subject, kernel, run, "clang 14", "live", counts, _counts(**functions), pd.DataFrame())


def _refused(kernel: GuestKernel, reason: str, subject: CountedProgram = MINE) -> Packet:
    return Packet(subject, kernel, RUN, "clang 14", "live", {}, {}, pd.DataFrame(), reason)


def _report(*packets: Packet) -> KernelReport:
    return KernelReport(packets, sorted({f"run {packet.run} of 2026-11-28" for packet in packets}))


@pytest.mark.parametrize(
    ("parts", "text", "ends"),
    [
        ({}, "910", []),
        ({"path": (800.5, 0.1)}, "910", []),
        ({"allocator": (200, 94)}, "910 + a", [("allocator", (106, 294))]),
        ({"path": (4400, 10)}, "109 + p", [("path", (4390, 4410))]),
        ({"path": (4400, 10), "allocator": 900}, "109 + p", [("path", (5290, 5310))]),
        ({"path": (3600, 10), "allocator": (900, 100), "application": 90}, "199 + p", [("path", (4390, 4610))]),
    ],
)
def test_what_another_boot_may_count_otherwise_is_in_no_number(
    parts: dict[str, Any], text: str, ends: list[tuple[str, tuple[float, float]]]
) -> None:
    packet = _packet(**parts)
    assert packet.text == text
    assert [(part, packet.ends(part)) for part in packet.marks] == ends


def test_a_kernel_without_any_count_is_a_row_with_its_reason() -> None:
    report = _report(_packet(), _packet(NEW), _refused(GuestKernel("6.99", "", "", ""), "kernel 6.99: no package"))
    rows = report.booted().set_index("Linux")["packets counted"]
    assert dict(rows) == {"6.1.0-56": "1 of 1", "6.12.117+deb12": "1 of 1", "6.99": "none: kernel 6.99: no package"}
    assert list(report.costs("native").columns) == ["program", "6.1.0-56", "6.12.117+deb12"]
    assert report.neighbours() == [(OLD, NEW)]


OTHER = MINE._replace(program="other.bpf.c")


@pytest.mark.parametrize(
    ("packets", "line"),
    [
        ([_packet(), _packet(NEW, path=802)], "a packet takes +2 (1 program) instructions"),
        ([_packet(), _packet(NEW, path=802), _packet(subject=OTHER), _packet(NEW, OTHER, called=90)],
         "a packet takes -10 (other.bpf.c) to +2 (mine.bpf.c) instructions"),
        ([_packet(), _packet(NEW, program=10, allocator=(200, 94))],
         "a packet takes +1 (1 program) instructions, without its allocator"),
        ([_packet(), _packet(NEW, path=(802, 10))], ""),
        ([_packet()], ""),
    ],
)  # fmt: skip
def test_a_line_says_what_the_newest_kernel_takes_more(packets: list[Packet], line: str) -> None:
    meanings = {table.meaning for table in kernel_page.tables(_report(*packets)).values()} - {""}
    assert meanings == ({f"From 6.1.0-56 to 6.12.117+deb12, {line}."} if line else set())


def test_a_packet_without_a_count_has_the_number_of_its_reason() -> None:
    other = replace(_packet(NEW), subject=MINE._replace(program="other.bpf.c"))
    report = _report(_packet(), _refused(NEW, "it never saw a frame"), other)
    assert report.cell(MINE, NEW) == "no [1]"
    assert report.cell(other.subject, OLD) == ""
    assert "* [1] it never saw a frame" in kernel_page.page(report, None)


FUNCTIONS = ({"jhash": 76, "read_tsc": 12, "kfree": (80, 70)}, {"hash": 46, "read_tsc": 12, "kfree": (9, 70)})


def test_functions_that_changed_have_the_largest_change_first() -> None:
    old, new = (_packet(kernel, functions=of) for kernel, of in zip((OLD, NEW), FUNCTIONS, strict=True))
    report = _report(old, replace(new, parts=_counts(program=11, called=70, path=800.5)))
    frame, others = report.changes(OLD, NEW, "native", 1)
    assert list(frame.itertuples(index=False, name=None))[2:] == [("`jhash`", "-76")]
    assert (list(frame["mine.bpf.c"][:2]), others) == (["+2", "-30"], 1)


def test_on_a_path_that_holds_to_a_range_no_function_is_compared() -> None:
    old, new = (_packet(kernel, functions=of) for kernel, of in zip((OLD, NEW), FUNCTIONS, strict=True))
    step = _report(old, replace(new, parts=_counts(program=9, called=70, path=(900, 10)))).steps(OLD, NEW, "native")
    assert (step[MINE].parts, step[MINE].functions) == ({"called": -30}, {})


def test_runs_that_disagree_are_in_the_first_lines_and_compared_with_nothing() -> None:
    report = _report(_packet(), _packet(run="bbbbbbbb", path=806.5), _packet(NEW))
    _, _, loud, _, line, *_ = kernel_page.page(report, None).split("\n")
    assert loud.startswith("**")
    assert all(word in line for word in ("mine.bpf.c", "6.1.0-56", "path", "800.500", "806.500", RUN, "bbbbbbbb"))
    assert report.cell(MINE, OLD) == "910 ≠ 916"
    assert report.steps(OLD, NEW, "native") == {}


@pytest.mark.parametrize(
    "other",
    [
        _packet(run="bbbbbbbb"),
        _packet(run="bbbbbbbb", path=(806, 10)),
        _packet(run="bbbbbbbb", path=800.25),
        _packet(run="bbbbbbbb", subject=MINE._replace(object="00000000"), program=12),
        _packet(OLD._replace(packages="linux-image sha256:3"), run="bbbbbbbb", path=850),
    ],
    ids=["the same", "a range", "a trace of a tick", "another object", "another build of the kernel"],
)
def test_runs_disagree_only_about_exact_counts_of_one_object_in_one_kernel(other: Packet) -> None:
    assert _report(_packet(), other).disagreements == []


def test_things_of_one_name_are_told_apart() -> None:
    other = MINE._replace(object="00000000")
    twin = OLD._replace(packages="linux-image sha256:3")
    report = _report(_packet(), _packet(subject=other), _packet(twin), _packet(NEW._replace(build="#2")), _packet(NEW))
    assert {report.name(one) for one in report.subjects} == {"mine.bpf.c, 00000000", "mine.bpf.c, 11623275"}
    assert len({report.label(kernel) for kernel in report.kernels}) == 4


def test_any_order_of_the_runs_gives_the_same_page() -> None:
    packets = [
        _packet(),
        _packet(run="bbbbbbbb", path=806.5),
        _packet(NEW),
        _refused(NEW, "no", MINE._replace(flows=2)),
    ]
    assert kernel_page.page(_report(*packets), None) == kernel_page.page(_report(*reversed(packets)), None)


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked(ROOT / "tests/oracle/recorded/cost.tar.xz", tmp_path_factory.mktemp("recorded")) / "cost"


def _of_another_person(counted: Path, folder: Path) -> Path:
    """Copy a run with another identity, and export it; return the bundle."""
    copy = folder / "theirs"
    shutil.copytree(counted, copy)
    run_id = open_run(counted).directory.run_id
    journal = copy / "journal.jsonl"
    journal.write_text(journal.read_text().replace(run_id, "0badcafe"))
    bundle = folder / "theirs.zip"
    code, _, error = ending_with_output(["export", str(copy), "--out", str(bundle)])
    assert code == 0, error
    return bundle


def test_a_run_and_anothers_bundle_make_one_page(counted: Path, tmp_path: Path) -> None:
    bundle, page = _of_another_person(counted, tmp_path), tmp_path / "kernels.md"
    code, output, error = ending_with_output(
        ["kernels", "report", str(counted), str(bundle), str(counted), "--json", "--write", str(page)]
    )
    assert code == 0, error
    facts = validate("kernels-report", output)
    assert (len(facts["runs"]), facts["disagreements"]) == (2, [])
    whole = open_run(counted).rows().query("part == 'whole'")["instructions"]
    assert {f"{value:.0f}" for value in whole} == set(page.read_text().split()) & {f"{value:.0f}" for value in whole}
    assert facts["files"] == [str(page)]  # of one kernel there is no figure


def test_another_count_of_the_same_object_ends_with_1(
    counted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, theirs = ([*packets_of(open_run(counted))] for _ in range(2))
    more = [replace(one, run="0badcafe", parts=one.parts | _counts(called=7)) for one in theirs]
    monkeypatch.setattr("xdplab.studies.cost.kernels.report_of", lambda _: _report(*mine, *more))
    code, output, _ = ending_with_output(["kernels", "report", str(counted)])
    assert (code, output.startswith("runs disagree: ")) == (1, True)


@pytest.mark.parametrize("argv", [["--kernel", "6.1"], ["--flows", "1"], ["array:100"], ["--map", "m=1=1"]])
def test_runs_are_shown_as_they_were_counted(counted: Path, argv: list[str]) -> None:
    code, _, error = ending_with_output(["kernels", "report", str(counted), *argv])
    assert (code, argv[0] in error) == (2, True)


def test_a_gates_exit_code_tells_whether_a_cost_is_the_baselines(counted: Path, tmp_path: Path) -> None:
    argv = ["cost", "--resume", str(shutil.copytree(counted, tmp_path / "run"))]
    baseline = tmp_path / "base.json"
    assert ending_with_output([*argv, "--write", str(baseline)])[0] == 0
    programs = json.loads(baseline.read_text())
    assert ending_with_output([*argv, "--against", str(baseline)])[0] == 0
    programs[0]["totals"]["whole"] = str(int(programs[0]["totals"]["whole"]) - 1)
    baseline.write_text(json.dumps(programs))
    code, output, _ = ending_with_output([*argv, "--against", str(baseline), "--json"])
    (change,) = validate("cost", output)["against"]["differences"]
    assert (code, change["program"]) == (1, programs[0]["program"])


@pytest.fixture
def _no_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, **_: Any) -> None:
        raise LabError(f"kernel {name}: no archive has it")

    monkeypatch.setattr("xdplab.labs.vm.kernels.fetch", refuse)


@pytest.mark.usefixtures("_no_archive")
def test_a_kernel_that_is_not_to_be_had_is_a_row_with_its_reason(tmp_path: Path) -> None:
    argv = ["array:10", "--mode", "test_run", "--kernel", "9.99", "--out", str(tmp_path), "--json"]
    code, output, error = ending_with_output(["kernels", "report", *argv])
    assert code == 1, error
    (packet,) = json.loads(output)["packets"]
    assert (packet["kernel"], packet["reason"]) == ("9.99", "kernel 9.99: no archive has it")


@pytest.mark.guest
@pytest.mark.thorough
@pytest.mark.usefixtures("_no_archive")
def test_each_call_gives_the_same_and_a_kernel_that_is_not_to_be_had_ends_nothing(tmp_path: Path) -> None:
    pages = []
    for name in ("first", "second"):
        page = tmp_path / f"{name}.md"
        argv = ["array:10", "--mode", "test_run", "--kernel", "6.1", "--kernel", "6.12", "--kernel", "9.99"]
        code, output, error = ending_with_output(
            ["kernels", "report", *argv, "--out", str(tmp_path), "--name", name, "--write", str(page), "--json"]
        )
        assert code == 1, error
        facts = json.loads(output)
        assert [one["reason"] for one in facts["packets"] if one["kernel"] == "9.99"] == [
            "kernel 9.99: no archive has it"
        ]
        assert (sum(one["reason"] is None for one in facts["packets"]), len(facts["steps"])) == (2, 1)
        pages.append(page.read_text().partition("## Kernels")[2].replace(f"{name}.svg", ""))
        assert page.with_suffix(".svg").is_file()
    assert pages[0] == pages[-1] != ""
