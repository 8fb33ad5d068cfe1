"""The sources of the verifier's work: steps of its log by source line, which add up to its own count."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner
from tests.studies.verifier.objects import CALLS

from xdplab.cli import cli
from xdplab.errors import FormatError, LabError, PlanError, ProgramError
from xdplab.formats.verifier import parse_bpfverify
from xdplab.hosts.local import LocalHost
from xdplab.labs.vm import kernels
from xdplab.studies.verifier import hotspots
from xdplab.studies.verifier.hotspots import (
    NO_LINE,
    NOT_LOGGED,
    OF_SUBPROGRAMS,
    _counted,
    by_line,
    by_subprogram,
    listed,
)

LOG = """func#0 @0
      0: .......... (b7) r6 = 0
0: R1=ctx() R10=fp0
; int i = 0; @ p.bpf.c:3
0: (b7) r6 = 0                        ; R6=0
; i += 1; @ p.bpf.c:5
1: (07) r6 += 1                       ; R6=1
2: (15) if r6 == 0x2 goto pc+1
mark_precise: frame0: regs=r6 stack= before 1: (07) r6 += 1
2: R6=1
3: (05) goto pc-3
1: (07) r6 += 1                       ; R6=2
2: (15) if r6 == 0x2 goto pc+1        ; R6=2
; return i; @ p.bpf.c:7
4: (95) exit

from 2 to 4: safe
verification time 12 usec
processed 8 insns (limit 1000000) max_states_per_insn 0 total_states 1 peak_states 1 mark_read 1
"""


def test_steps_are_counted_by_line_and_a_pruned_one_is_a_step() -> None:
    found = by_line(LOG.splitlines(), 8).set_index("line")
    assert found["processed_insns"].to_dict() == {
        "i += 1; @ p.bpf.c:5": 5,
        "return i; @ p.bpf.c:7": 2,
        "int i = 0; @ p.bpf.c:3": 1,
    }
    assert found.index[0] == "i += 1; @ p.bpf.c:5"
    assert found.loc["i += 1; @ p.bpf.c:5", ["insns", "most_of_one"]].tolist() == [3, 2]
    assert found["share"].sum() == pytest.approx(1)
    without_debug_information = [line for line in LOG.splitlines() if not line.startswith("; ")]
    assert by_line(without_debug_information, 8)["line"].tolist() == [NO_LINE]


CALLS_LOG = """func#0 @0
func#1 @3
; return twice(1); @ p.bpf.c:9
0: (b7) r1 = 1
1: (85) call pc+1
; static int twice(int n) @ p.bpf.c:2
3: (bf) r0 = r1
; return n + n; @ p.bpf.c:4
4: (0f) r0 += r1
5: (95) exit
; return twice(1); @ p.bpf.c:9
2: (95) exit
processed 6 insns (limit 1000000) max_states_per_insn 0 total_states 1 peak_states 1 mark_read 1
"""


def test_steps_are_counted_by_subprogram_with_its_stack_and_where_it_begins() -> None:
    found = by_subprogram(CALLS_LOG.splitlines(), 6, (8, 104))
    assert tuple(found) == OF_SUBPROGRAMS
    assert found.to_numpy().tolist() == [
        [0, 3, 0.5, 3, 8, "return twice(1); @ p.bpf.c:9"],
        [1, 3, 0.5, 3, 104, "static int twice(int n) @ p.bpf.c:2"],
    ]
    assert by_subprogram(CALLS_LOG.splitlines(), 6, (8,))["stack_bytes"].isna().all()  # another program's
    cut = listed(by_subprogram(CALLS_LOG.splitlines(), 9, cut=True), 1)
    assert [(row["begins"], row["processed_insns"]) for row in cut][1] == (NOT_LOGGED, 3)


def lines(*arguments: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(cli, ["study", "lines", *arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


@pytest.mark.root
def test_subprograms_add_up_to_what_the_loader_counts(verify, compile_text) -> None:
    path = compile_text(CALLS)
    rows = lines(str(path), "--subprograms")
    assert {row["subprogram"] for row in rows} >= {0, 1}
    for program in verify(path):
        own = [row for row in rows if row["program"] == program.name]
        assert sum(row["processed_insns"] for row in own) == program.stats.processed_insns
        assert program.stats.stack_depths == tuple(r["stack_bytes"] for r in sorted(own, key=lambda r: r["subprogram"]))


@pytest.mark.parametrize("cut", [LOG.replace("3: (05) goto pc-3\n", ""), LOG + "5: (95) exit\n", ""])
def test_a_log_that_does_not_add_up_is_refused(cut: str) -> None:
    with pytest.raises(FormatError, match="but says that"):
        by_line(cut.splitlines(), 8)


def test_what_a_cut_log_does_not_have_is_a_row_of_its_own() -> None:
    end = LOG[LOG.index("2: R6=1") :]  # the first source line of it comes after two steps
    found = by_line(end.splitlines(), 8, cut=True).set_index("line")
    assert found["processed_insns"].to_dict() == {"return i; @ p.bpf.c:7": 2, NO_LINE: 3, NOT_LOGGED: 3}
    assert found.loc[NOT_LOGGED, "share"] == pytest.approx(3 / 8)
    assert found.loc[NOT_LOGGED, ["insns", "most_of_one"]].isna().all()
    rows = listed(found.reset_index(), 1)
    assert [row["line"] for row in rows] == [NO_LINE, NOT_LOGGED]
    assert rows[1]["insns"] is None
    with pytest.raises(FormatError):
        by_line(LOG.splitlines(), 7, cut=True)


def counted_in(folder: Path, log: str, **steps: object) -> pd.DataFrame:
    """Return the rows of a program whose log, as far as it was kept, is in a folder."""
    (folder / "p.log").write_text(log)
    line = {"object": "o", "name": "p", "verdict": "accepted", "log": LOG, "steps": steps}
    (program,) = parse_bpfverify(json.dumps(line) + "\n")
    rows = _counted(program, "host", LocalHost(), str(folder))
    assert isinstance(rows, pd.DataFrame)
    return rows


@pytest.mark.parametrize(("first", "kept"), [(200, 300), (60, 200), (None, 200)])
def test_a_log_in_two_parts_is_read_in_its_order(tmp_path: Path, first: int | None, kept: int) -> None:
    """The beginning and the end of one log, which overlap or have a gap between them; or only the end."""
    (tmp_path / "p.first.log").write_text(LOG[: first or 0])
    size = len(LOG)
    rows = counted_in(tmp_path, LOG[-kept:], bytes=kept, full=True, true_bytes=size + 1, first_bytes=first)
    assert rows["processed_insns"].sum() == 8
    assert (NOT_LOGGED in set(rows["line"])) == ((first or 0) + kept < size)
    whole = by_line(LOG.splitlines(), 8).set_index("line")["processed_insns"]
    for line, count in rows.set_index("line")["processed_insns"].drop(NOT_LOGGED, errors="ignore").items():
        assert count <= whole.get(line, 8)


def test_a_full_log_of_before_6_4_is_its_beginning(tmp_path: Path) -> None:
    rows = counted_in(tmp_path, LOG[: LOG.index("2: R6=1")], bytes=200, full=True, true_bytes=None, first_bytes=None)
    assert rows.set_index("line")["processed_insns"].to_dict() == {
        "i += 1; @ p.bpf.c:5": 2,
        "int i = 0; @ p.bpf.c:3": 1,
        NOT_LOGGED: 5,
    }


@pytest.mark.root
def test_a_log_that_is_larger_than_its_place_is_counted_in_parts(verify, compile_member) -> None:
    """Two overlapping halves give the same as the whole log; two short parts say how much of the work they show."""
    path = compile_member("pruning", 6)
    (program,) = verify(path)
    whole, both, parts = (
        next(hotspots.hotspots(path, "host", None, *options))
        for options in ((), ("--log-bytes", "150000"), ("--log-bytes", "20000"))
    )
    assert isinstance(whole, pd.DataFrame)
    assert isinstance(parts, pd.DataFrame)
    assert whole["processed_insns"].sum() == program.stats.processed_insns
    pd.testing.assert_frame_equal(whole, both)
    shown = parts.set_index("line")["processed_insns"]
    assert 0 < shown.drop(NOT_LOGGED).sum() < shown[NOT_LOGGED]
    assert shown.sum() == program.stats.processed_insns
    every = whole.set_index("line")["processed_insns"]
    assert (shown.drop(NOT_LOGGED) <= every.reindex(shown.drop(NOT_LOGGED).index)).all()


@pytest.mark.root
def test_a_listing_adds_up_to_what_the_loader_counts(verify, compile_member, tmp_path: Path) -> None:
    path = compile_member("double_strcmp", 10)
    (program,) = verify(path)
    rows = lines(str(path), "--logs", str(tmp_path))
    assert sum(row["processed_insns"] for row in rows) == program.stats.processed_insns > 1000
    (log,) = tmp_path.iterdir()
    assert f"processed {program.stats.processed_insns} insns" in log.read_text()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [([], SystemExit), (["x.bpf.o", "--repetitions", "3"], SystemExit), (["x.bpf.o", "--modules", "."], PlanError)],
)
def test_a_listing_of_nothing_or_with_an_option_that_it_would_not_heed_is_refused(
    arguments: list[str], error: type[BaseException]
) -> None:
    done = CliRunner().invoke(cli, ["study", "lines", *arguments])
    assert isinstance(done.exception, error)
    assert done.exit_code != 0


@pytest.mark.parametrize("verb", ["verifier", "lines"])
@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        ("9.9", "the archive has no package of it"),
        ("9.9+mitigations", "the archive has no package of it"),
        ("hots", "'hots' is not a kernel's name"),
        ("6.1:kvm", "'6.1:kvm' is not a kernel's name"),
    ],
)
def test_a_kernel_that_is_none_is_told_by_its_option(
    kernel: str, why: str, verb: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kernels, "_not_offered", lambda name: "the archive has no package of it")
    out = ["--smallest", "--out", str(tmp_path / "results")] if verb == "verifier" else []
    done = CliRunner().invoke(cli, ["study", verb, str(tmp_path / "x.o"), "--kernel", kernel, *out])
    assert isinstance(done.exception, LabError)
    assert done.exception.message == f"--kernel {kernel}: {why}"
    assert not (tmp_path / "results").exists()


def test_a_program_without_a_log_costs_no_other_its_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    counted = by_line(LOG.splitlines(), 8)
    counted.insert(0, "program", "first")
    counted.insert(0, "kernel", "host")
    found = [counted, ProgramError("second: there is no log of a verifier"), counted.assign(program="third")]
    monkeypatch.setattr(hotspots, "hotspots", lambda *asked, **by: iter(found))
    done = CliRunner().invoke(cli, ["study", "lines", str(tmp_path / "x.bpf.o"), "--json"])
    rows = json.loads(done.stdout)
    assert {row["program"] for row in rows} == {"first", "third"}
    assert isinstance(done.exception, ProgramError)
    assert "second" in str(done.exception)
